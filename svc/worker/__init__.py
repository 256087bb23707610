"""A process beside the server, for work in which a process answers nobody: large loads of policy."""
