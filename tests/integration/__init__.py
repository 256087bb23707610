"""The service as its users run it: real processes, real sockets, a real PostgreSQL."""
