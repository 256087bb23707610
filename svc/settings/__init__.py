"""Settings: which there are, how each is written, and how they are read at the start."""
