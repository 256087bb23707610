"""The state of this server, told from the last round of probes."""
