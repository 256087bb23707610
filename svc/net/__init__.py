"""Connections to other machines: which addresses, whose certificates, and one guarded question over HTTP."""
