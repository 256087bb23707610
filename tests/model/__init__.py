"""Tests of ``svc.model``."""
