"""Tests of ``svc.storage.sql``."""
