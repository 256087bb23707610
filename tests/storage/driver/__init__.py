"""Tests of ``svc.storage.driver``."""
