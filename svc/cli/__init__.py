"""The svc command: administration of a server and a client of its HTTP interface."""
