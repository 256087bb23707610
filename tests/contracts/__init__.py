"""Suites that a real provider of a seam and its fake both pass."""
