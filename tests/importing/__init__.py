"""Tests of moving in from other servers."""
