"""The use cases that routes, the worker and commands call, without HTTP and without SQL."""
