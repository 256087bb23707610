"""The workload's side: its identity from its platform, and a client that reads secrets with it."""
