"""The cost of changes for readers: others write policies, hosts and values while logins or reads go on.

Note [What is taken off]. Changes cost something by themselves, with or without readers. So the CPU time of one change is
measured on the same server without readers, less the CPU time when it is idle. From the CPU time of server and database in a
run beside writers, that much is subtracted for each change that was made during it; the rest for each request is compared
with a run without writers, right before. A rate of requests by the clock would depend on which process gets the two cores.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlencode

import attrs

from bench import settings
from bench.client import Client
from bench.counters import Load
from bench.load import Figures
from bench.meanwhile import Meanwhile
from bench.processes import cpu_seconds
from bench.report import Figure
from bench.server import ACCOUNT, Server

#: The least that remains of the requests for each second of CPU time.
CHURN_LEAST: Final = 0.85

_OTHERS: Final = """
- !policy
  id: others
  body:
  - !group team
  - !layer fleet
  - !host-factory {id: factory, layers: [!layer fleet]}
  - !variable value
"""
_CHANGE: Final = """
- !host machine-{n}
- !grant {{role: !group team, member: !host machine-{n}}}
- !permit {{role: !host machine-{n}, privileges: [read, execute], resource: !variable value}}
"""


class Others(Meanwhile):
    """Three writers in another branch of the policy; each makes ``CHANGES_A_SECOND`` while a ``with`` block runs."""

    #: How many changes were made so far.
    made = 0

    def __init__(self, admin: Client, token: str) -> None:
        self._admin, self._machine = admin, Client(admin.url, token)
        changes = (self._change_policy, self._make_host, self._write_value)
        super().__init__(partial(self._make, change) for change in changes)

    @classmethod
    def introduced(cls, admin: Client) -> Callable[[], Self]:
        """Make their branch; what returns them, once for each run."""
        admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", _OTHERS.encode())
        until = (datetime.now(UTC) + timedelta(hours=12)).strftime("%Y-%m-%dT%H:%M:%SZ")
        wanted = urlencode({"host_factory": f"{ACCOUNT}:host_factory:others/factory", "expiration": until})
        (made,) = json.loads(admin.ask("POST", "/host_factory_tokens", wanted.encode()))
        return partial(cls, admin, made["token"])

    def _make(self, change: Callable[[int], object], ended: threading.Event) -> None:
        due = time.monotonic()
        while not ended.wait(due - time.monotonic()):
            change(time.time_ns())
            self.made += 1
            due += 1 / settings.CHANGES_A_SECOND

    def _change_policy(self, number: int) -> None:
        self._admin.ask("POST", f"/policies/{ACCOUNT}/policy/others", _CHANGE.format(n=number).encode())

    def _make_host(self, number: int) -> None:
        self._machine.ask("POST", "/host_factories/hosts", f"id=others/made-{number}".encode())

    def _write_value(self, number: int) -> None:
        self._admin.ask("POST", f"/secrets/{ACCOUNT}/variable/others%2Fvalue", str(number).encode())


@attrs.frozen
class Churn:
    """A run without writers and one with them, how many changes were made meanwhile, and what one costs by itself, in
    microseconds of server and database.
    """

    quiet: Load
    busy: Load
    made: int
    change_cpu: float

    @classmethod
    def run(cls, server: Server, requests: Path, others: Callable[[], Others]) -> Self:
        """Run both (Note [What is taken off])."""
        idle, _ = _spent(server)
        with others() as alone:
            spent, made = _spent(server, alone)
        quiet = Load.run(server, requests)
        with others() as writing:
            before = writing.made
            busy = Load.run(server, requests)
            meanwhile = writing.made - before
        return cls(quiet, busy, meanwhile, (spent - idle) / made * 1e6)

    @property
    def share(self) -> float:
        """The requests for each second of CPU time, as a share of those without changes."""
        busy = self.busy.figures
        return self.quiet.figures.cpu / (busy.cpu - self.change_cpu * self.made / busy.requests)

    @staticmethod
    def figure(name: str, runs: Sequence[Churn]) -> Figure:
        """The figure of the median share."""
        quiet, busy = (Figures.median([getattr(each, of).figures for each in runs]) for of in ("quiet", "busy"))
        change, made = (statistics.median(getattr(each, of) for each in runs) for of in ("change_cpu", "made"))
        beside = f"{made * busy.rate / busy.requests:.0f} changes/s of {change:.0f} µs"
        origin = (
            f"{busy.rate:.0f} requests/s of {busy.cpu:.0f} µs beside {beside}; {quiet.rate:.0f} requests/s of"
            f" {quiet.cpu:.0f} µs without; beside them {Load.told([each.busy for each in runs])}"
        )
        share = statistics.median(each.share for each in runs)
        return Figure(
            f"{name} while others change: requests for a CPU second", share, "times", least=CHURN_LEAST, origin=origin
        )


def _spent(server: Server, others: Others | None = None) -> tuple[float, int]:
    """The CPU time of the server and its database in a while, in seconds, and the changes that were made."""
    made, before = others.made if others else 0, sum(cpu_seconds(server.process.pid))
    time.sleep(settings.ALONE_SECONDS)
    return sum(cpu_seconds(server.process.pid)) - before, (others.made if others else 0) - made
