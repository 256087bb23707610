"""Tests of ``svc.rotation``."""
