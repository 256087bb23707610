"""The embedded PostgreSQL: its binaries, its directory, its process."""
