"""Tests of ``svc.agent``."""
