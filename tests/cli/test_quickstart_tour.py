"""Tests of ``svc.cli.quickstart_tour``."""

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
from svc.cli.quickstart_steps import Steps
from svc.cli.quickstart_tour import Tour
from tests.workload.wire import exchange_of


class Teapot(Resource):
    """A server that does nothing of what it should; ``asked`` counts how often."""

    isLeaf = True
    asked = 0

    def render(self, request: Request) -> bytes:
        """Be a teapot."""
        self.asked += 1
        request.setResponseCode(418)
        return b""


class TourTests(SynchronousTestCase):
    """The quickstart's steps."""

    def test_every_wrong_answer_counts(self) -> None:
        """Each answer that is not the expected one counts as wrong, and so does a log that doesn't say why."""
        teapot, shown = Teapot(), io.StringIO()
        http: Any = StubTreq(teapot)
        provider = Provider.kept_at(Path(self.mktemp()), "https://issuer.example")
        connection = ApiConnection("http://svc.example", "acme", None, None, exchange_of(http))
        steps = Steps(connection, list)
        tour = Tour(steps, provider, "http://issuer.example/keys", "key", b"", "policy.yml")
        with contextlib.redirect_stdout(shown):
            self.successResultOf(Deferred.fromCoroutine(tour.walk()))
        self.assertEqual(steps.wrong, teapot.asked + 1)
        self.assertIn("expected the status 201", shown.getvalue())
        self.assertIn("the log should have said why", shown.getvalue())
