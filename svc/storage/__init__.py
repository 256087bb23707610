"""All SQL: rows to values, errors translated, one pool."""
