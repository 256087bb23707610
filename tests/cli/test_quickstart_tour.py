"""Tests of ``svc.cli.quickstart``."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from treq.testing import StubTreq
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Request

from svc.cli.connection import ApiConnection
from svc.cli.provider import Provider
from svc.cli.quickstart import Tour
from svc.cli.quickstart_steps import Steps
from tests.workload.wire import exchange_of


class Teapot(Resource):
    """A server that does nothing of what it should; ``asked`` counts how often."""

    isLeaf = True
    asked = 0

    def render(self, request: Request) -> bytes:
        """Be a teapot."""
        self.asked += 1
        request.setResponseCode(418)
        request.setHeader(b"x-request-id", b"r-1")
        return b""


class Late(Resource):
    """A server whose checks have failed in as many rounds as it is asked about first."""

    isLeaf = True

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds

    def render(self, request: Request) -> bytes:
        """Answer the health request alone as a server would."""
        if request.uri != b"/health":
            request.setResponseCode(418)
            request.setHeader(b"x-request-id", b"r-1")
            return b""
        self.rounds -= 1
        request.setResponseCode(200 if self.rounds < 0 else 502)
        request.setHeader(b"x-request-id", b"r-1")
        request.setHeader(b"content-type", b"application/json")
        return b'{"ok": true, "services": {"core": "ok"}}'


class TourTests(SynchronousTestCase):
    """The quickstart's steps."""

    def walk(self, server: Resource) -> tuple[Steps, str, int]:
        """Take all steps at a server; return them, what was shown, and how often a round of checks was waited for."""
        shown, waited = io.StringIO(), []
        http: Any = StubTreq(server)
        provider = Provider.from_key_file(Path(self.mktemp()), "https://issuer.example")
        connection = ApiConnection("http://svc.example", "acme", None, None, exchange_of(http))
        steps = Steps(connection, list)

        async def next_round() -> None:
            waited.append(True)

        tour = Tour(steps, provider, "http://issuer.example/keys", "key", b"", "policy.yml", next_round)
        with contextlib.redirect_stdout(shown):
            self.successResultOf(Deferred.fromCoroutine(tour.run_steps()))
        return steps, shown.getvalue(), len(waited)

    def test_every_wrong_answer_counts(self) -> None:
        """Each answer that is not the expected one counts as wrong, and so does a log that doesn't say why."""
        teapot = Teapot()
        steps, shown, _ = self.walk(teapot)
        # Health is asked for a second time, and counts once.
        self.assertEqual(steps.mismatches, teapot.asked - 1 + 1)
        self.assertIn("expected the status 201", shown)
        self.assertIn("the log should have said why", shown)

    def test_late_health(self) -> None:
        """Health that isn't well is asked for again after the next round, once, and the output says so (CLI-26)."""
        well, _, never = self.walk(Late(0))
        self.assertEqual(never, 0)
        late, shown, once = self.walk(Late(1))
        self.assertEqual((late.mismatches, once), (well.mismatches, 1))
        self.assertIn("the next round is waited for, once", shown)
        ill, _, again = self.walk(Late(2))
        self.assertEqual((ill.mismatches, again), (well.mismatches + 1, 1))
