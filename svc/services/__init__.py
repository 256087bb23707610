"""The use cases: what a route, the worker or a command asks for, without HTTP and without SQL."""
