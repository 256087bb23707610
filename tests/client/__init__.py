"""Tests of ``svc.client``."""
