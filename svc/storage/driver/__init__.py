"""Sessions of PostgreSQL: the pool, transactions, migrations, and errors translated."""
