"""Tests of ``svc.authenticators``."""
