"""Tests of ``svc.cli``."""
