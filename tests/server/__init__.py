"""Tests of ``svc.server``."""
