"""Tests of ``svc.storage.embedded``."""
