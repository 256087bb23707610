"""Expiration and rotation of values: their loop, and the rotators that put new passwords in force."""
