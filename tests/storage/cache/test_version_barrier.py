"""Tests of ``svc.storage.cache.version_barrier``."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import copy_context
from typing import Any, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.model.names import RoleName
from svc.model.request_notes import begin_notes
from svc.model.versions import StateVersion
from svc.storage.cache.version_barrier import VersionBarrier

ALICE = RoleName("acme", "user", "alice")


@attrs.define
class Looking:
    """A memory that counts how often it is asked to look."""

    looks: int = 0
    history: int = 0
    is_lost: bool = False
    away: bool = False

    async def poll_now(self) -> bool:
        """Look."""
        self.looks += 1
        return not self.away


class Reaching:
    """A database that has every version."""

    async def wait_until_reached(self, versions: Sequence[StateVersion], role: RoleName) -> None:
        """Return at once."""


class CoverageTests(SynchronousTestCase):
    """When memory looks again for a version."""

    def setUp(self) -> None:
        """Make a memory that has looked for nothing."""
        self.memory = Looking()
        self.coverage = VersionBarrier(cast(Any, Reaching()), cast(Any, self.memory))

    def looks(self, position: int) -> int:
        """Return how often memory has looked, once a request has asked for this position."""
        asked = self.coverage.wait_until_reached([StateVersion(1, 1, position)], ALICE)
        self.successResultOf(Deferred.fromCoroutine(asked))
        return self.memory.looks

    def test_once(self) -> None:
        """Memory looks for a version once, while it is of one history (CLU-28)."""
        self.assertEqual([self.looks(10), self.looks(10)], [1, 1])
        self.memory.history += 1
        self.assertEqual(self.looks(10), 2)

    def test_what_is_to_come(self) -> None:
        """Someone who asks for a state that is far away spares nobody else's version a look (CLU-28)."""
        self.assertEqual([self.looks(2**63), self.looks(10), self.looks(11)], [1, 2, 3])

    def test_database_hangs(self) -> None:
        """While a database hangs, memory stands in for it where it is known to have the version, and only there (CLU-28,
        CLU-36).
        """
        self.looks(10)
        self.memory.away = True

        def asked(position: int) -> bool:
            notes = begin_notes()
            notes.may_serve_stale = True
            self.looks(position)
            return notes.may_serve_stale

        self.assertEqual([copy_context().run(asked, position) for position in (10, 11)], [True, False])
