"""Tests of ``svc.storage.cache``."""
