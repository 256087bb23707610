"""Tests of ``svc.storage.memory``."""
