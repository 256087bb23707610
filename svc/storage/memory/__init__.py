"""Readings of the store, remembered while they are known to hold."""
