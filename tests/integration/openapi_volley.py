"""Variants of requests, sent on several connections at once, and their answers judged."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import ItemsView, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import requests

from svc.web.openapi.document import iterate_operations
from tests.integration.openapi_callers import PATIENCE, Callers
from tests.integration.openapi_examples import examples_of
from tests.integration.openapi_shots import Shot
from tests.integration.openapi_variants import Variants
from tests.integration.openapi_wire import Line, Malformed, Reply, ready
from tests.integration.openapi_words import Words
from tests.web.openapi.judging import Judge

#: How many of the variants are of requests of other operations.
_BETWEEN: Final = 0.25

#: How many requests wait for their answers at once.
_LINES: Final = 12

#: Answers of 500 and more that are no faults: a type without a status, an authenticator that isn't configured, no changes to
#: watch, a server that isn't well, a login that can't be judged.
_MEANT: Final = frozenset({501, 502, 503})

#: Headers that belong to the connection, or that the library adds of itself.
_OF_CONNECTION: Final = frozenset(
    {"content-length", "transfer-encoding", "connection", "host", "user-agent", "accept-encoding"}
)

#: What a login of the admin by HTTP Basic begins with.
_ADMIN: Final = "YWRtaW4"

#: How many faults of one operation are told.
_FAULTS: Final = 5


@attrs.define
class Findings:
    """What came of requests; ``faults`` are what the document doesn't tell, in words, each with a request that shows it."""

    judge: Judge
    #: How many requests are schemathesis's own, and how many are variants of these.
    own: int = 0
    varied: int = 0
    slowest: float = 0.0
    #: The request that took it.
    slow: str = ""
    statuses: Counter[int] = attrs.field(factory=Counter)
    #: The operations that did what they were asked for.
    done: set[tuple[str, str]] = attrs.field(factory=set)
    faults: dict[str, str] = attrs.field(factory=dict)

    def count(self, operation: tuple[str, str | None], status: int, seconds: float, request: object) -> None:
        """Count an answer to an operation, which is a method and a path of the document, if it is one."""
        self.statuses[status] += 1
        method, path = operation
        if status < 300 and path is not None:
            self.done.add(("GET" if method == "HEAD" else method, path))
        if seconds > self.slowest:
            self.slowest, self.slow = seconds, f"{request}"[:120]

    def fault(self, about: str, why: str, request: object, body: str = "") -> None:
        """Note a fault of an operation."""
        if sum(each.startswith(f"{about}: ") for each in self.faults) < _FAULTS:
            self.faults.setdefault(f"{about}: {why}"[:800], f"{request}\n  answered {body[:500]}")

    def told(self) -> str:
        """Return the figures in one line."""
        codes = ", ".join(f"{status}: {number}" for status, number in sorted(self.statuses.items()))
        whole = sum(len(methods) for methods in self.judge.document["paths"].values())
        return (
            f"{self.own + self.varied} requests, {self.own} of them schemathesis's own and {self.varied} variants of these,"
            f" {len(self.done)} of {whole} operations did what they were asked for,"
            f" {len(self.faults)} faults, the slowest {self.slowest:.2f} s ({self.slow}); {codes}"
        )


def unmeant(path: str | None, status: int, body: bytes | None) -> bool:
    """Return whether a status is one of a fault of the program; ``body`` is ``None`` for an answer to ``HEAD``."""
    if status < 500 or status in _MEANT:
        return False
    told = body is None or b'"status":"error"' in body
    return not (status == 500 and path is not None and path.endswith("/status") and told)


@attrs.define
class Volley:
    """Variants of requests to one server; ``callers`` are renewed when it is time."""

    callers: Callers
    findings: Findings
    rng: random.Random
    _variants: Variants = attrs.field(init=False)
    _lines: tuple[Line, ...] = attrs.field(init=False)
    _shots: dict[Line, Shot] = attrs.field(factory=dict)
    #: The names of operations by method and path.
    _names: dict[tuple[str, str], str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        found = urlsplit(self.callers.url)
        address = (found.hostname or "", found.port or 0)
        self._lines = tuple(Line(address, PATIENCE) for _ in range(_LINES))
        document = dict(self.findings.judge.document)
        self._names = {(method, path): found["operationId"] for path, method, found in iterate_operations(document)}
        self._variants = Variants(Words(self.rng), tuple(sorted(_parameters(document))), examples_of(document))

    def send(self, operation: str, request: requests.PreparedRequest, number: int) -> None:
        """Send variants of a request, which was sent as it is, and judge the answers; some may still be outstanding."""
        original = self._shot(request)
        self._variants.keep(operation, original)
        for _ in range(number):
            self.renew()
            self._variants.proofs = self.callers.proofs
            line = self._free()
            # Others come in between, as they do.
            between = self.rng.random() < _BETWEEN
            of = self._variants.elsewhere() if between else (operation, original)
            shot = self.callers.filled(self._variants.of(*of))
            if self._is_harmless(shot):
                self._shots[line] = shot
                line.send(shot.written(self.rng))

    def renew(self) -> None:
        """Renew the callers and their records if it is time, when nothing is outstanding that could be in the way."""
        if self.callers.due:
            self.drain()
            self.callers.renew()

    def drain(self) -> None:
        """Judge the answers that are outstanding."""
        while self._shots:
            self._collect()

    def close(self) -> None:
        """Close all connections."""
        for line in self._lines:
            line.close()

    def _is_harmless(self, shot: Shot) -> bool:
        """Whether a request leaves the admin a key that this knows."""
        if shot.method != "PUT" or "api_key" not in shot.raw_path:
            return True
        return not any(_ADMIN in value for _, value in shot.headers)

    def _shot(self, request: requests.PreparedRequest) -> Shot:
        target = urlsplit(request.url or "")
        method, body = request.method or "GET", request.body or b""
        path = self.findings.judge.path_of(method, target.path)
        values = {} if path is None else self.findings.judge.values_of(path, target.path)
        headers: ItemsView[str, Any] = request.headers.items()
        pairs = (pair.partition("=") for pair in target.query.split("&") if pair)
        return Shot(
            method=method,
            path=path if path is not None and values else target.path,
            values=values,
            query=tuple((name, value) for name, _, value in pairs),
            headers=tuple((name, _text(value)) for name, value in headers if name.lower() not in _OF_CONNECTION),
            body=body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body),
        )

    def _free(self) -> Line:
        """Return a connection on which nothing is outstanding, when there is one."""
        while True:
            line = next((line for line in self._lines if line not in self._shots), None)
            if line is not None:
                return line
            self._collect()

    def _collect(self) -> None:
        """Judge some answers."""
        answered = ready([*self._shots], PATIENCE)
        for line in answered:
            self._read(line)
        now = time.monotonic()
        for line in [line for line in self._shots if now - line.began > PATIENCE]:
            self.findings.fault("variants", "a hang", self._shots.pop(line))
            line.close()

    def _read(self, line: Line) -> None:
        shot = self._shots.pop(line)
        try:
            reply = line.reply()
        except (Malformed, TimeoutError) as error:
            self.findings.fault(shot.path, f"no answer of HTTP, {error!r}", shot)
            return
        if reply is not None:
            path = self.findings.judge.path_of(shot.method, shot.raw_path)
            self.findings.count((shot.method, path), reply.status, time.monotonic() - line.began, shot)
            self.findings.varied += 1
            self._judged(shot, path, reply)
        elif shot.manner != "cut":
            self.findings.fault(shot.path, "the connection closed without an answer", shot)

    def _judged(self, shot: Shot, path: str | None, reply: Reply) -> None:
        judge, status = self.findings.judge, reply.status
        body = None if shot.method == "HEAD" else reply.body
        untold = judge.untold(path, shot.method, status, reply.headers, body, quickly=True)
        if untold is not None and shot.manner == "cut":
            # What is there of it may be no request.
            untold = judge.untold(None, shot.method, status, reply.headers, body, quickly=True)
        about, said = f"{shot.method} {path}", (body or b"").decode("utf-8", "replace")
        if untold is not None:
            self.findings.fault(about, untold, shot, said)
        if unmeant(path, status, body):
            self.findings.fault(about, f"a {status}", shot, said)
        if shot.header("authorization") == self.callers.by_token or status != 401:
            self.callers.answered(shot.method, shot.raw_path, status, reply.headers.get("content-type", ""))
        if status < 300 and path is not None and self.rng.random() < 0.2:
            self._variants.words.learn(reply.headers, body)
            if shot.manner == "" and (shot.method, path) in self._names:
                values = judge.values_of(path, shot.raw_path)
                self._variants.succeeded(
                    self._names[shot.method, path], attrs.evolve(shot, path=path if values else shot.raw_path, values=values)
                )


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _parameters(document: dict[str, Any]) -> Iterator[str]:
    """The names of parameters in queries."""
    for _, _, operation in iterate_operations(document):
        yield from (each["name"] for each in operation["parameters"] if each.get("in") == "query")
