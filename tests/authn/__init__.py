"""Tests of ``svc.authn``."""
