"""Tests of ``svc.settings``."""
