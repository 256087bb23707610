"""What is counted."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.authentication import Admitted, Attempt, IAuthenticator, Refused
from svc.errors import Reason
from svc.metrics import CountedAuthenticator, Metrics
from svc.names import RoleName

ADMITTED = Admitted(RoleName("acct", "host", "web"), "key")


@implementer(IAuthenticator)
@attrs.frozen
class Decided:
    """Decides on every attempt alike."""

    decision: Admitted | Refused

    async def authenticate(self, attempt: Attempt) -> Admitted | Refused:
        """The decision."""
        return self.decision


class MetricsTests(SynchronousTestCase):
    """Counters of authentications."""

    def setUp(self) -> None:
        """Start from nothing."""
        self.metrics = Metrics()

    def decide(self, decision: Admitted | Refused, name: str = "authn-jwt", text: str = "ci") -> None:
        """Let an authenticator decide, having seen that the decision comes through."""
        authenticator = CountedAuthenticator(Decided(decision), name, self.metrics)
        attempt = Attempt(text, text, text.encode("utf-8", "surrogatepass"), text, text)
        self.assertIs(self.successResultOf(Deferred.fromCoroutine(authenticator.authenticate(attempt))), decision)

    def counted(self, *labels: str) -> float | None:
        """How often there was such an authentication."""
        named = dict(zip(("authenticator", "outcome", "reason"), labels, strict=True))
        return self.metrics.registry.get_sample_value("svc_authentications_total", named)

    def test_it_provides_what_it_encloses(self) -> None:
        """The wrapper is an authenticator."""
        self.assertTrue(verifyObject(IAuthenticator, CountedAuthenticator(Decided(ADMITTED), "authn", self.metrics)))

    def test_decisions_are_counted(self) -> None:
        """Each decision counts once, by authenticator, outcome and reason."""
        for _ in range(2):
            self.decide(ADMITTED)
            self.decide(Refused(Reason.CLAIM_MISMATCH, "detail"))
        self.decide(Refused(Reason.CREDENTIALS_WRONG, "detail"), "authn")
        self.assertEqual(self.counted("authn-jwt", "admitted", ""), 2)
        self.assertEqual(self.counted("authn-jwt", "refused", "claim-mismatch"), 2)
        self.assertEqual(self.counted("authn", "refused", "credentials-wrong"), 1)
        self.assertIsNone(self.counted("authn", "admitted", ""))

    def test_servers_count_for_themselves(self) -> None:
        """Two servers in one process share no counter."""
        self.decide(ADMITTED)
        self.metrics = Metrics()
        self.assertIsNone(self.counted("authn-jwt", "admitted", ""))

    def test_lost_records_are_counted(self) -> None:
        """Audit records that were lost are counted, from none on."""
        for lost, count in ((0, 0.0), (3, 3.0), (2, 5.0)):
            self.metrics.count_lost_records(lost)
            self.assertEqual(self.metrics.registry.get_sample_value("svc_audit_records_lost_total"), count)

    @given(st.text(min_size=1))
    def test_labels_are_bounded(self, text: str) -> None:
        """Nothing that is sent becomes a label."""
        self.metrics = Metrics()
        self.decide(ADMITTED)
        self.decide(Refused(Reason.ROLE_UNKNOWN, "detail", "role"))
        before = _series(self.metrics)
        self.decide(ADMITTED, text=text)
        self.decide(Refused(Reason.ROLE_UNKNOWN, text, text), text=text)
        self.assertEqual(_series(self.metrics), before)


def _series(metrics: Metrics) -> list[bytes]:
    """The names and labels of all counters, without their values."""
    return [line.rpartition(b" ")[0] for line in generate_latest(metrics.registry).splitlines()]
