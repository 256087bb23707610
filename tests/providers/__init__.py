"""Tests of ``svc.providers``."""
