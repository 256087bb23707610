"""Tests of ``svc.importing``."""
