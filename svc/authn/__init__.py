"""Authenticators: each decides which role some evidence proves, or refuses it."""
