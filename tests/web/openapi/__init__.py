"""Tests of ``svc.web.openapi``."""
