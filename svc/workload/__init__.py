"""The client library for workloads: identity tokens of platforms, and a client that reads secrets."""
