"""Tests of ``svc.audit``."""
