"""Tests of the room ``ldap``."""
