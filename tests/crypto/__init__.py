"""Tests of ``svc.crypto``."""
