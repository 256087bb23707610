"""Tests of ``svc.web.http``."""
