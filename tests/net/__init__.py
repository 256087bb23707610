"""Tests of ``svc.net``."""
