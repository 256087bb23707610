"""Asks both servers of a bed at every route of health, and compares with what they are to say."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import treq
from treq.client import HTTPClient
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.error import ConnectError, ConnectionClosed
from twisted.internet.task import deferLater
from twisted.web.client import Agent, HTTPConnectionPool, RequestTransmissionFailed, ResponseFailed, ResponseNeverReceived
from twisted.web.http_headers import Headers

from tests.integration.bed import INTERVAL, THIRD, Bed
from tests.integration.verdicts import DATABASE, SERVICES, Fault, Verdict

reactor: Any = installed_reactor

#: How much later than it should the truth may be told on a machine that has other things to do, in seconds.
TOLERANCE: Final = 2.5

#: For how long it must be told, and how often that may begin again, for the machine's sake.
_STEADY: Final = INTERVAL
_TRIALS: Final = 4

#: How long a test waits for what never comes, in seconds.
_PATIENCE: Final = 30.0

#: Time between two questions at one route, in seconds.
_BEAT: Final = 0.2

#: How long an answer may take before there is none, in seconds: of a server on itself, and of one on another that hangs.
_OWN: Final = 2.0
_REMOTE: Final = 8.0

#: How often ``/livez`` is timed, and how long it may take, in seconds.
_ASKINGS: Final = 15
LIVE: Final = 0.05

_IETF: Final = "application/health+json"

#: The name under which what is said of primaries is compared.
PRIMARIES: Final = "primaries"


@attrs.frozen
class Seen:
    """An answer; ``status`` is 0 where there was none."""

    status: int
    document: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Route:
    """One route of one server. ``truth`` says what is wrong with an answer, ``None`` for the right one."""

    server: str
    path: str
    afar: bool
    truth: Callable[[Fault, Seen], str | None]
    accept: str = "application/json"

    def __str__(self) -> str:
        """For failures."""
        return f"{self.server} {self.path} ({self.accept})"


def _other(server: str) -> str:
    return "follower" if server == "primary" else "primary"


def _words(verdict: Verdict) -> dict[str, str]:
    return {name: verdict.word_of(name) for name in (*SERVICES, DATABASE)}


def _differing(expected: Mapping[str, str], found: Mapping[str, Any]) -> str | None:
    wrong = [f"{name} is {found.get(name)!r}, not {word!r}" for name, word in expected.items() if found.get(name) != word]
    return "; ".join(wrong) or None


def _report(verdict: Verdict, seen: Seen) -> str | None:
    """Return the faults of a report of health."""
    if verdict.gone:
        return None if seen.status == 0 else f"there is an answer: {seen}"
    if seen.status != (200 if verdict.ok else 502):
        return f"status {seen.status}: {dict(seen.document)}"
    services, database = seen.document["services"], seen.document["database"]
    services_ok = not verdict.failed - {DATABASE}
    if (seen.document["ok"], services["ok"], database["ok"]) != (verdict.ok, services_ok, DATABASE not in verdict.failed):
        return f"the flags contradict: {dict(seen.document)}"
    primaries = "unreachable" if verdict.word == "unreachable" else verdict.primaries
    found = {name: value for name, value in seen.document["cluster"].items() if name != "node"}
    if found != {"ok": primaries == "ok", "primaries": primaries}:
        return f"of primaries it says {found}, not {primaries}"
    return _differing(_words(verdict), {**services, DATABASE: database["connect"]["main"]})


def _own(server: str) -> Callable[[Fault, Seen], str | None]:
    return lambda fault, seen: _report(fault.of(server), seen)


def _draft(server: str) -> Callable[[Fault, Seen], str | None]:
    def truth(fault: Fault, seen: Seen) -> str | None:
        verdict = fault.of(server)
        if verdict.gone or seen.status != (200 if verdict.ok else 502):
            return _report(verdict, seen)
        if seen.document["status"] != ("pass" if verdict.ok else "fail"):
            return f"the flag contradicts: {dict(seen.document)}"
        names = {**{name: f"{name}:state" for name in SERVICES}, DATABASE: "database:main", PRIMARIES: "cluster:primaries"}
        found = {name: seen.document["checks"].get(key, [{}])[0].get("observedValue") for name, key in names.items()}
        return _differing({**_words(verdict), PRIMARIES: verdict.primaries}, found)

    return truth


def _live(server: str) -> Callable[[Fault, Seen], str | None]:
    return lambda fault, seen: None if seen.status == (0 if fault.of(server).gone else 200) else f"status {seen.status}"


def _ready(server: str) -> Callable[[Fault, Seen], str | None]:
    def truth(fault: Fault, seen: Seen) -> str | None:
        verdict = fault.of(server)
        expected = 0 if verdict.gone else 200 if verdict.ready else 503
        return None if seen.status == expected else f"status {seen.status}, not {expected}"

    return truth


def _writes(server: str) -> Callable[[Fault, Seen], str | None]:
    def truth(fault: Fault, seen: Seen) -> str | None:
        expected = 0 if fault.of(server).gone else 200 if fault.writes(server) else 503
        return None if seen.status == expected else f"status {seen.status}, not {expected}"

    return truth


def _remote(server: str) -> Callable[[Fault, Seen], str | None]:
    def truth(fault: Fault, seen: Seen) -> str | None:
        if fault.of(server).gone:
            return None if seen.status == 0 else f"there is an answer: {seen}"
        verdict = fault.of(_other(server))
        return _report(Verdict(frozenset(_words(verdict)), "unreachable") if verdict.gone else verdict, seen)

    return truth


def _third(server: str) -> Callable[[Fault, Seen], str | None]:
    def truth(fault: Fault, seen: Seen) -> str | None:
        if fault.of(server).gone:
            return None if seen.status == 0 else f"there is an answer: {seen}"
        word = fault.third
        if seen.status != (200 if word == "ok" else 502) or seen.document["ok"] is not (word == "ok"):
            return f"status {seen.status}: {dict(seen.document)}"
        return _differing({"core": word}, seen.document["services"])

    return truth


def _view(server: str) -> Callable[[Fault, Seen], str | None]:
    def truth(fault: Fault, seen: Seen) -> str | None:
        if fault.of(server).gone:
            return None if seen.status == 0 else f"there is an answer: {seen}"
        shown = {each["name"]: each for each in seen.document.get("servers", ())}
        expected = {"this server": fault.of(server), _other(server): fault.of(_other(server))}
        for name, verdict in expected.items():
            found = shown.get(name, {})
            word = "unreachable" if verdict.gone else "ok" if verdict.ok else "failed"
            if (found.get("word"), found.get("ok")) != (word, verdict.ok):
                return f"{name} is {found}, not {word}"
            if not verdict.gone and (
                wrong := _differing(
                    {**_words(verdict), PRIMARIES: verdict.primaries},
                    {**found["services"], DATABASE: found["database"], PRIMARIES: found["primaries"]},
                )
            ):
                return f"{name}: {wrong}"
        if shown.get(THIRD, {}).get("word") != fault.third:
            return f"{THIRD} is {shown.get(THIRD)}, not {fault.third}"
        all_ok = fault.primary.ok and fault.follower.ok and fault.third == "ok"
        return None if seen.document["ok"] is all_ok else "the flag contradicts"

    return truth


ROUTES: Final = tuple(
    route
    for server in ("primary", "follower")
    for route in (
        Route(server, "/health", False, _own(server)),
        Route(server, "/health", False, _draft(server), _IETF),
        Route(server, "/livez", False, _live(server)),
        Route(server, "/readyz", False, _ready(server)),
        Route(server, "/readyz?write", False, _writes(server)),
        Route(server, f"/remote_health/{_other(server)}", True, _remote(server)),
        Route(server, f"/remote_health/{THIRD}", True, _third(server)),
        Route(server, "/ui/health", True, _view(server)),
    )
)


class Observer:
    """Asks the servers of a bed. Its connections are closed by :meth:`close`."""

    def __init__(self, bed: Bed) -> None:
        self._urls = {"primary": bed.primary.url, "follower": bed.follower.url}
        self._pool = HTTPConnectionPool(reactor)
        self._pool.maxPersistentPerHost = len(ROUTES)
        self._http = HTTPClient(Agent(reactor, pool=self._pool))

    def close(self) -> Deferred[Any]:
        """Close what is open."""
        closed: Deferred[Any] = self._pool.closeCachedConnections()
        return closed

    async def ask(self, server: str, path: str, accept: str = "application/json", patience: float = _OWN) -> Seen:
        """Ask once."""

        async def answer() -> Seen:
            headers = Headers({"Accept": [accept]})
            response = await self._http.get(f"{self._urls[server]}{path}", headers=headers, unbuffered=True)
            return Seen(response.code, json.loads(await treq.content(response)))

        try:
            return await Deferred.fromCoroutine(answer()).addTimeout(patience, reactor)
        except (
            CancelledError,
            ConnectError,
            ConnectionClosed,
            DeferredTimeout,
            RequestTransmissionFailed,
            ResponseFailed,
            ResponseNeverReceived,
        ):
            return Seen(0)

    async def wrong(self, fault: Fault, route: Route) -> str | None:
        """Return the fault of what this route says now."""
        patience = _REMOTE if route.afar and not fault.of(route.server).gone else _OWN
        seen = await self.ask(route.server, route.path, route.accept, patience)
        wrong = route.truth(fault, seen)
        if fault.never_ok and route.server == "primary" and route.path == "/health":
            assert seen.status != 200, f"{route}: false ok"
        return None if wrong is None else f"{route}: {wrong}"

    async def settles(self, fault: Fault, since: float) -> dict[Route, float]:
        """Wait until all routes tell the truth, and go on telling it; the seconds until each did, for the first time.

        :raises AssertionError: one doesn't.
        """
        first: dict[Route, float] = {}
        for _ in range(_TRIALS):
            for route, seconds in (await self.comes(fault, since)).items():
                first.setdefault(route, seconds)
            complaints = [wrong for wrong in await _all(self._stays(fault, route) for route in ROUTES) if wrong]
            if not complaints:
                return first
        raise AssertionError(f"{fault.name}: it is not told for long: {complaints}")

    async def comes(self, fault: Fault, since: float) -> dict[Route, float]:
        """Wait until all routes tell the truth; the seconds until each did.

        :raises AssertionError: one doesn't.
        """
        times = await _all(self._comes(fault, route) for route in ROUTES)
        return {route: max(0.0, moment - since) for route, moment in zip(ROUTES, times, strict=True)}

    async def _comes(self, fault: Fault, route: Route) -> float:
        until = reactor.seconds() + _PATIENCE
        while True:
            asked: float = reactor.seconds()
            wrong = await self.wrong(fault, route)
            if wrong is None:
                return asked if fault.of(route.server).gone else reactor.seconds()
            if asked > until:
                raise AssertionError(f"{fault.name}: the truth is never told. {wrong}")
            await deferLater(reactor, _BEAT)

    async def _stays(self, fault: Fault, route: Route) -> str | None:
        if route.afar and fault.afar > INTERVAL:
            return None  # It takes so long to know that it can't change meanwhile.
        until = reactor.seconds() + _STEADY
        while reactor.seconds() < until:
            await deferLater(reactor, _BEAT)
            if (wrong := await self.wrong(fault, route)) is not None:
                return wrong
        return None

    async def liveness(self, server: str) -> float:
        """How long ``/livez`` takes, in seconds: the median of several askings, one after the other."""
        took: list[float] = []
        for _ in range(_ASKINGS):
            asked = reactor.seconds()
            assert (await self.ask(server, "/livez")).status == 200, f"{server} doesn't live"
            took.append(reactor.seconds() - asked)
        return statistics.median(took)

    async def told(self, fault: Fault) -> None:
        """Wait until the follower's replication status is as it is to become."""
        assert fault.told is not None
        until = reactor.seconds() + _PATIENCE
        while True:
            seen = await self.ask("follower", "/health")
            if seen.status == (200 if fault.follower.ok else 502) and fault.told(
                seen.document["database"]["replication_status"]
            ):
                return
            assert reactor.seconds() < until, f"{fault.name}: {fault.telling} isn't told: {seen}"
            await deferLater(reactor, _BEAT)


async def _all(asking: Any) -> list[Any]:
    """Do them beside each other."""
    found: list[Any] = await gatherResults([Deferred.fromCoroutine(each) for each in asking], consumeErrors=True)
    return found


async def _nothing(bed: Bed) -> None:
    """There is no fault."""


#: What is told while there is no fault.
CALM: Final = Fault(name="calm", words="", inject=_nothing, undo=_nothing)
