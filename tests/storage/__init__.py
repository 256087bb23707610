"""Tests of ``svc/storage/`` that need no PostgreSQL."""
