"""Tests of ``svc.web.routes``."""
