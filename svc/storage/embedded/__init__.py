"""The PostgreSQL that comes along: its binaries, its directory, its process."""
