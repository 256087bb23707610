"""The agent: keeps files, or the environment of a program, up to date with the values of variables."""
