"""A process beside the server, for work that blocks its process: large loads of policy."""
