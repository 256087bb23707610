"""Tests of ``svc.expiration``."""
