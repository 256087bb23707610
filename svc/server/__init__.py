"""The server put together: its parts, the order in which they start and stop, and where it listens."""
