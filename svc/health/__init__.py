"""The state of this server, as of the last round of checks."""
