"""What smugglers send is read in one way or refused; behind proxies, in ``integration/test_smuggling.py``."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.model.limits import Limits
from svc.web.http.client_address import TrustedProxies
from svc.web.http.messages import HttpConfig, IncomingRequest, Response
from svc.web.http.site import Site
from tests.web.http.smuggling import CASES, Case
from tests.web.support import Connection, read_answers

MARKER = b"GET /marker HTTP/1.1\r\nHost: h\r\n\r\n"


class SmugglingTests(SynchronousTestCase):
    """A site that answers each request with its body."""

    def setUp(self) -> None:
        """Serve."""
        self.clock = Clock()
        self.seen: list[tuple[str, bytes]] = []
        self.site = Site(
            HttpConfig(
                respond=lambda incoming: Deferred.fromCoroutine(self.respond(incoming)),
                limits=Limits(),
                clock=self.clock,
                wall=self.clock,
                new_id=lambda: "id",
                proxies=TrustedProxies(),
            )
        )

    async def respond(self, incoming: IncomingRequest) -> Response:
        """Return the body."""
        if incoming.size > incoming.limit:
            return Response.empty(413)
        body = await incoming.read_body()
        self.seen.append((incoming.target, body))
        return Response.content(body, "text/plain")

    def check(self, name: str, case: Case, size: int) -> None:
        """Send a case and another request, so many bytes at a time."""
        self.seen.clear()
        connection = Connection(self.site, self.clock)
        sent = case.sent + MARKER
        connection.send(*(sent[start : start + size] for start in range(0, len(sent), size)))
        received = connection.received().replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
        answers = [answer.body if answer.status == 200 else answer.status for answer in read_answers(received)]
        self.assertEqual(answers, [*case.answers, *([] if case.closes else [b""])], name)
        self.assertEqual([body for target, body in self.seen if target != "/marker"], case.read, name)
        self.assertNotIn("/smuggled", [target for target, _ in self.seen], name)
        connection.leave()

    def test_whole(self) -> None:
        """Sent at once, each case is read as the table says, and so is the request after it (WIRE-2)."""
        for name, case in CASES.items():
            self.check(name, case, len(case.sent) + len(MARKER))

    def test_in_pieces(self) -> None:
        """However few bytes arrive at a time, each case is read in the same way (WIRE-2)."""
        for size in (1, 2, 3, 7):
            for name, case in CASES.items():
                self.check(name, case, size)

    def test_many(self) -> None:
        """The table has at least 120 cases, more of which are refused than not."""
        refused = [case for case in CASES.values() if isinstance(case.answers[-1], int)]
        self.assertGreaterEqual(len(CASES), 120)
        self.assertGreater(len(refused), len(CASES) / 2)
