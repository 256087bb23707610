"""Tests of ``svc.services``."""
