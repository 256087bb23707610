"""The endpoint that serves counters to Prometheus, those of all processes of a server added up.

Note [Added up]. Other processes are asked for their counters at each request for all, and now and then: the counters of a
dead process are kept, or the sum would decrease. Its gauges (connections, sessions, backlogs) are not. Ages aren't added:
the oldest counts. Of moments the first does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.web.http import Request
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET, Site

from svc.telemetry.metrics import Family, Metrics

#: Connections for reading the counters, of which there are few.
SCRAPES: Final = 16

#: The kinds of metrics that only grow.
_COUNTER_KINDS: Final = ("counter", "histogram", "summary")

#: The ends of names of samples that aren't added: of ages and facts the largest counts, of moments the first.
_MAX_SUFFIXES: Final = ("_oldest_seconds", "_age_seconds", "_info")
_MIN_SUFFIXES: Final = ("_created", "_start_time_seconds", "_timestamp_seconds")

_log = Logger()


class AggregatedMetrics:
    """The counters of this process, and the last counters that others reported (Note [Added up])."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        #: Those of processes that live, by number, and of those that have died: replaced at once, since they are added up in
        #: another thread.
        self._by_process: tuple[dict[int, list[Family]], list[Family]] = ({}, [])

    def update_process(self, number: int, families: list[Family]) -> None:
        """Keep the counters of another process."""
        others, dead = self._by_process
        self._by_process = (others | {number: families}, dead)

    def retire_process(self, number: int) -> None:
        """Keep what a process that has died had counted."""
        others, dead = self._by_process
        growing = [each for each in others.get(number, []) if each.kind in _COUNTER_KINDS]
        living = {other: families for other, families in others.items() if other != number}
        self._by_process = (living, _add_families([dead, growing]))

    def collect(self) -> Iterator[Any]:
        """Return the sums, for the library; in a thread of its own (``metrics``, Note [Read in a thread])."""
        from prometheus_client.core import Metric  # noqa: PLC0415 - not everybody serves counters

        others, dead = self._by_process
        for family in _add_families([self._metrics.collect_families(), dead, *others.values()]):
            metric: Any = Metric(family.name, family.text, family.kind)
            for (name, *labels), value in family.samples.items():
                metric.add_sample(name, dict(labels), value)
            yield metric


def _add_families(of_each: Iterable[list[Family]]) -> list[Family]:
    """Return the sums of the samples that have the same name and labels."""
    found: dict[str, Family] = {}
    for families in of_each:
        for family in families:
            known = found.get(family.name)
            samples = family.samples if known is None else _add_samples(known.samples, family.samples)
            found[family.name] = Family(family.name, family.text, family.kind, samples)
    return list(found.values())


def _add_samples(
    some: Mapping[tuple[Any, ...], float], others: Mapping[tuple[Any, ...], float]
) -> dict[tuple[Any, ...], float]:
    samples = dict(some)
    for key, value in others.items():
        name = str(key[0])
        if key not in samples:
            samples[key] = value
        elif name.endswith(_MAX_SUFFIXES):
            samples[key] = max(samples[key], value)
        elif name.endswith(_MIN_SUFFIXES):
            samples[key] = min(samples[key], value)
        else:
            samples[key] += value
    return samples


def parse_samples(text: str) -> dict[str, float]:
    """Return the samples of a text of counters, those of one name added up.

    :raises ValueError: it isn't one.
    """
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - as above

    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def metrics_site(registry: Any, gather: Callable[[], Awaitable[object]] | None = None) -> IProtocolFactory:
    """Return the site that serves the counters of ``registry`` at ``/metrics`` alone, on a few connections.

    ``gather`` has them brought up to date before each answer.
    """
    from prometheus_client.twisted import MetricsResource  # noqa: PLC0415 - as above

    root = Resource()
    shown: Any = MetricsResource(registry)  # type: ignore[no-untyped-call] # it has no types
    root.putChild(b"metrics", shown if gather is None else _GatheringResource(shown, gather))
    return _LimitedFactory(_QuietSite(root))  # type: ignore[no-untyped-call] # as above


class _GatheringResource(Resource):
    """A resource that is answered by ``inner`` once ``gather`` has returned."""

    isLeaf = True

    def __init__(self, inner: IResource, gather: Callable[[], Awaitable[object]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Twisted's
        self._inner, self._gather = inner, gather

    def render(self, request: Request) -> int:
        """Answer later."""
        answering = Deferred.fromCoroutine(self._gather_and_render(request))
        request.notifyFinish().addErrback(lambda _: answering.cancel())
        answering.addErrback(lambda failure: failure.trap(CancelledError))
        answering.addErrback(lambda failure: _log.failure("Counters could not be told", failure))
        return NOT_DONE_YET

    async def _gather_and_render(self, request: Request) -> None:
        await self._gather()
        body: Any = self._inner.render(request)
        if body is not NOT_DONE_YET:
            request.write(body)
            request.finish()


class _QuietSite(Site):
    """A site that doesn't log each request: monitoring asks all the time."""

    noisy = False

    def log(self, request: Request) -> None:
        pass


class _LimitedFactory(WrappingFactory[ProtocolWrapper]):
    """A factory that accepts ``SCRAPES`` connections at a time, and refuses others."""

    noisy = False

    def buildProtocol(self, addr: IAddress | None) -> ProtocolWrapper | None:  # type: ignore[override]  # as its base's base
        return None if len(self.protocols) >= SCRAPES else super().buildProtocol(addr)
