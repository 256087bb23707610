"""Settings: read from the command line, the environment and a file, once, and refused early."""
