"""Tests of ``svc.storage.dumps``: which program dumps a database; that dumps are whole, tests on PostgreSQL prove."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.storage.dumps import dumpers

OWN = "/usr/bin/pg_dump"


class DumpersTests(SynchronousTestCase):
    """Whose ``pg_dump`` is taken; ``None`` is ours."""

    def test_embedded(self) -> None:
        """The embedded PostgreSQL is dumped by the program that came with it, whatever else the machine has."""
        self.assertEqual(dumpers(embedded=True, own=OWN), [None])
        self.assertEqual(dumpers(embedded=True, own=None), [None])

    def test_of_the_operator(self) -> None:
        """Any other is dumped by the machine's own program, which speaks TLS, and else by ours."""
        self.assertEqual(dumpers(embedded=False, own=OWN), [OWN, None])
        self.assertEqual(dumpers(embedded=False, own=None), [None])
