"""Tests of ``svc.web.console``."""
