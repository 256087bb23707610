"""What is counted, for monitoring; served as Prometheus text on an endpoint of its own (rulings: health).

Where nothing is served nothing is counted, and the library isn't loaded, which would make every start longer.

It has an endpoint of its own because counters by reason would tell a stranger what refusals hide from clients. Labels come
from bounded sets alone: nothing that a stranger sends can make a series.
"""

from __future__ import annotations

from twisted.web.http import Request
from twisted.web.server import Site
from zope.interface import implementer

from svc.authentication import Admitted, Attempt, IAuthenticator, Refused


class Metrics:
    """The counters of one server, all in ``registry``."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter  # noqa: PLC0415 - as above

        self.registry = CollectorRegistry()
        self._authentications = Counter(
            "svc_authentications",
            "Attempts to authenticate, by type of authenticator, outcome (admitted, refused), and reason of refusals.",
            ("authenticator", "outcome", "reason"),
            registry=self.registry,
        )

        self._lost_records = Counter(
            "svc_audit_records_lost",
            "Audit records for which there was no room while a sink took none.",
            registry=self.registry,
        )

    def count_lost_records(self, count: int) -> None:
        """Count audit records that were lost."""
        self._lost_records.inc(count)

    def count_authentication(self, authenticator: str, decision: Admitted | Refused) -> None:
        """Count a decision of an authenticator of this type, such as ``authn-jwt``."""
        outcome, reason = ("refused", decision.reason.value) if isinstance(decision, Refused) else ("admitted", "")
        self._authentications.labels(authenticator, outcome, reason).inc()

    def site(self) -> Site:
        """What serves them."""
        from prometheus_client.twisted import MetricsResource  # noqa: PLC0415 - as above

        return _QuietSite(MetricsResource(self.registry))  # type: ignore[no-untyped-call] # neither has types


class _QuietSite(Site):
    """Doesn't log each request: monitoring asks all the time."""

    noisy = False

    def log(self, request: Request) -> None:
        """Log nothing."""


@implementer(IAuthenticator)
class CountedAuthenticator:
    """Counts the decisions of ``inner``. ``name`` is that of its type, such as ``authn-jwt``."""

    def __init__(self, inner: IAuthenticator, name: str, metrics: Metrics) -> None:
        self._inner = inner
        self._name = name
        self._metrics = metrics

    async def authenticate(self, attempt: Attempt) -> Admitted | Refused:
        """Let ``inner`` decide."""
        decision = await self._inner.authenticate(attempt)
        self._metrics.count_authentication(self._name, decision)
        return decision
