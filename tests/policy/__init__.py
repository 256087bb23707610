"""Tests of the policy language and of what a load does."""
