"""Tests of the processes for large loads, without processes; those with them are in tests/integration."""
