"""Tests of ``svc.workload``."""
