"""Tests of ``svc.services``, all use cases together, in memory; ``tests.integration.test_storage`` has PostgreSQL."""

from __future__ import annotations

from tests.contracts import day
from tests.test_memory import InMemory


class DayTests(day.DayContract, InMemory):
    """A day without HTTP and without SQL."""
