"""Tests of ``svc.journal``."""
