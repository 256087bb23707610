"""Tests of ``svc.processes``."""
