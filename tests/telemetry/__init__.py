"""Tests of ``svc.telemetry``."""
