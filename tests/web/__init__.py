"""Tests of the routes and of the edge, in memory; those over sockets are in tests/integration."""
