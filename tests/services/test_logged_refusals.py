"""Refusals in the log."""

from __future__ import annotations

from contextvars import copy_context

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from svc.model.authentication import Admitted, LoginRequest, Refused
from svc.model.names import RoleName
from svc.model.reasons import Reason
from svc.model.request_notes import begin_notes
from svc.model.text import escape_unprintable
from svc.services.login import log_refusals

REQUEST = LoginRequest("acct", "host/web", b"the evidence", "10.0.0.1", "ci")
ADMITTED = Admitted(RoleName("acct", "host", "web"), "key")
REFUSED = Refused(Reason.CLAIM_MISMATCH, "ref is 'x' and should be 'main'", "acct:host:web")


@attrs.frozen
class Decided:
    """Decides on every attempt alike."""

    decision: Admitted | Refused

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """The decision."""
        return self.decision

    async def api_key(self, request: LoginRequest) -> bytes | Refused:
        """The evidence, or the decision."""
        return self.decision if isinstance(self.decision, Refused) else request.evidence


class LoggedTests(SynchronousTestCase):
    """The wrappers."""

    def decide(self, decision: Admitted | Refused, request: LoginRequest = REQUEST) -> list[LogEvent]:
        """Let both wrappers decide so; return what was logged, having seen that the decision came through."""
        inner = Decided(decision)
        authenticate, read_key = log_refusals(inner.authenticate, "authn-jwt"), log_refusals(inner.api_key, "authn")
        with capturedLogs() as events:
            decided = self.successResultOf(Deferred.fromCoroutine(authenticate(request)))
            told = self.successResultOf(Deferred.fromCoroutine(read_key(request)))
        self.assertIs(decided, decision)
        self.assertIs(told, decision if isinstance(decision, Refused) else request.evidence)
        return list(events)

    def test_a_refusal_is_logged(self) -> None:
        """A refusal is one event at info that names the reason, what was compared, and who asked from where (FAIL-22)."""
        events = self.decide(REFUSED)
        self.assertEqual([event["authenticator"] for event in events], ["authn-jwt", "authn"])
        for event in events:
            self.assertEqual(event["log_level"], LogLevel.info)
            self.assertEqual(
                {name: event[name] for name in ("reason", "detail", "role", "account", "service", "client_ip")},
                {
                    "reason": "claim-mismatch",
                    "detail": "ref is 'x' and should be 'main'",
                    "role": "acct:host:web",
                    "account": "acct",
                    "service": "ci",
                    "client_ip": "10.0.0.1",
                },
            )

    def test_a_refusal_is_a_sentence(self) -> None:
        """A refusal reads as a sentence on one line."""
        self.assertEqual(
            formatEvent(self.decide(REFUSED)[0]),
            "authn-jwt refused acct:host:web, account acct, service ci, from 10.0.0.1: claim-mismatch"
            " (ref is 'x' and should be 'main')",
        )

    def test_the_request_is_named(self) -> None:
        """A refusal is logged with the id of its request, and counts with others of its kind (FAIL-22)."""
        before = self.decide(REFUSED)[0]

        def decide() -> LogEvent:
            begin_notes().request_id = "r-1"
            return self.decide(REFUSED)[0]

        event = copy_context().run(decide)
        self.assertEqual(formatEvent(event), f"{formatEvent(before)}, request r-1")
        self.assertEqual(event["repeats_as"], before["repeats_as"])

    def test_evidence_is_never_logged(self) -> None:
        """No field of an event holds the evidence (FAIL-11)."""
        for event in self.decide(REFUSED):
            self.assertNotIn("the evidence", repr(event))

    def test_an_admission_is_not_logged(self) -> None:
        """An authentication that succeeds leaves nothing in this log."""
        self.assertEqual(self.decide(ADMITTED), [])

    def test_what_is_unknown_has_a_place(self) -> None:
        """Where no role was determined the login stands in its place, and a hyphen where nothing was given."""
        refused = Refused(Reason.TOKEN_MISSING, "no token")
        self.assertEqual(self.decide(refused)[0]["role"], "host/web")
        bare = self.decide(refused, LoginRequest("acct", None, b"", "10.0.0.1"))[0]
        self.assertEqual((bare["role"], bare["service"]), ("-", "-"))

    def test_a_client_cannot_write_the_log(self) -> None:
        """Nothing that a client sends ends a line of the log or is taken for part of its form (FAIL-22)."""
        nasty = "x\nauthn admitted {reason} \x1b[1A{log_level}" * 100
        event = self.decide(Refused(Reason.ROLE_UNKNOWN, nasty, nasty), LoginRequest(nasty, nasty, b"", nasty, nasty))[0]
        for name in ("detail", "role", "account", "service", "client_ip"):
            self.assertEqual(event[name], escape_unprintable(nasty))
        self.assertTrue(formatEvent(event).isprintable())
        self.assertIn("{log_level}", formatEvent(event))
