"""The effect on readers of secrets of a storm of logins with passwords, right ones and wrong ones.

The throttle is off: from one address it would end the storm at once.
"""

from __future__ import annotations

import base64
import statistics
import threading
import time
from collections import Counter
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

import attrs

from bench import settings
from bench.client import Client
from bench.load import Request
from bench.meanwhile import Meanwhile
from bench.probe import Probe, Waits
from bench.report import Figure, Part
from bench.server import ACCOUNT, Server, say

#: How many times their 99th percentile without it readers may wait during the storm.
READERS_MOST: Final = 2

#: The possible answers in the storm: the key, a refusal, or that too many passwords wait.
_ANSWERS: Final = {200, 401, 503}

_SECRET: Final = "read-meanwhile"
_PASSWORD: Final = "A-Password-of-the-bench-1"
_WRONG: Final = "A-Password-of-nobody-2"


class Storm(Meanwhile):
    """Logins over ``STORM_CONNECTIONS`` connections, one after the other on each, while a ``with`` block runs.

    ``answers`` counts them by status when it has ended.
    """

    def __init__(self, url: str, api_key: str) -> None:
        address = urlsplit(url).netloc
        self.answers: Counter[int] = Counter()
        first = HTTPConnection(address, timeout=60)
        first.request("PUT", f"/authn/{ACCOUNT}/password", _PASSWORD.encode(), _basic(api_key))
        if first.getresponse().status != 204:
            raise SystemExit("the password couldn't be set")
        first.close()
        passwords = (_PASSWORD, _WRONG)
        super().__init__(partial(self._log_in, address, passwords[n % 2]) for n in range(settings.STORM_CONNECTIONS))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        if unexpected := self.answers.keys() - _ANSWERS:
            raise SystemExit(f"logins were answered with {unexpected}")

    def _log_in(self, address: str, password: str, ended: threading.Event) -> None:
        connection = HTTPConnection(address, timeout=60)
        while not ended.is_set():
            connection.request("GET", f"/authn/{ACCOUNT}/login", headers=_basic(password))
            answer = connection.getresponse()
            answer.read()
            self.answers[answer.status] += 1
            if answer.status == 503:
                # Told to come again in two seconds, a client that is in a hurry waits for less.
                time.sleep(settings.STORM_PAUSE_SECONDS)
        connection.close()


def measure(folder: Path) -> Part:
    """Read a secret before the storm and during it, in turns."""
    say("storm: a server …")
    server = Server.started(folder / "storm", more=("--login-throttle=off",))
    try:
        return _measured(server, server.admin())
    finally:
        server.stop()


def _measured(server: Server, admin: Client) -> Part:
    admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", f"- !variable {_SECRET}\n".encode())
    admin.ask("POST", f"/secrets/{ACCOUNT}/variable/{_SECRET}", b"s" * 32)
    request = Request("GET", f"/secrets/{ACCOUNT}/variable/{_SECRET}", admin.header)
    before, during, answers = list[Waits](), list[Waits](), Counter[int]()
    for number in range(settings.STORM_RUNS):
        say(f"storm: run {number + 1} of {settings.STORM_RUNS}")
        before.append(_waits(server, request))
        with Storm(server.url, server.api_key) as storm:
            during.append(_waits(server, request))
        answers.update(storm.answers)
    ratio = statistics.median(late.p99 / early.p99 for late, early in zip(during, before, strict=True))
    calm, stormy = (statistics.median(each.p99 for each in waits) for waits in (before, during))
    hashed = sum(count for status, count in answers.items() if status != 503)
    seconds = settings.STORM_RUNS * settings.STORM_SECONDS
    origin = (
        f"{stormy:.1f} ms, and {calm:.1f} ms without; {hashed / seconds:.1f} passwords hashed a second,"
        f" {answers[503] / seconds:.1f} told to come again"
    )
    figure = Figure("readers' p99 during a storm of password logins", ratio, "times", READERS_MOST, origin)
    details = {
        "before": [attrs.asdict(waits) for waits in before],
        "during": [attrs.asdict(waits) for waits in during],
        "answers": dict(answers),
    }
    return Part.of([figure], details)


def _waits(server: Server, request: Request) -> Waits:
    with Probe(server.url, request, settings.READ_SECONDS, "due") as probe:
        time.sleep(settings.STORM_SECONDS)
    return Waits.of(probe.spans)


def _basic(secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"admin:{secret}".encode()).decode()}
