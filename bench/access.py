"""The cost of asking which roles have a privilege, where a million do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import attrs

from bench import settings
from bench.client import Client
from bench.crowd import Group, gathered
from bench.loop import Blocking, Watched
from bench.probe import lengths
from bench.processes import cpu_seconds
from bench.report import Figure, Part
from bench.server import ACCOUNT, Server, say
from svc.model.access import HoldersCursor
from svc.web.routes.cursors import position_cursor

#: How much CPU, in milliseconds, server and database may take together for a first page.
CPU_MOST: Final = 50

#: How long an answer may block the loop, in milliseconds.
BLOCKED_MOST: Final = 20

#: The group of a million may read this, and the policy of its hosts owns them all.
_POLICY: Final = """
- !variable everybody
- !permit
  role: !group multitude/all
  privileges: [ read ]
  resource: !variable everybody
"""


@attrs.frozen
class Cost:
    """The cost of one answer: CPU of the server and of the database, and time, all in milliseconds."""

    server: float
    database: float
    wall: float

    @classmethod
    def of(cls, server: Server, admin: Client, path: str, times: int) -> Cost:
        """Ask so many times."""
        admin.ask("GET", path)
        before = cpu_seconds(server.process.pid)
        spans = [admin.span("GET", path) for _ in range(times)]
        after = cpu_seconds(server.process.pid)
        ours, database = (1000 * (now - then) / times for then, now in zip(before, after, strict=True))
        return cls(ours, database, 1000 * sum(lengths(spans)) / times)

    def figure(self, name: str, most: float | None) -> Figure:
        """The sum."""
        origin = f"server {self.server:.1f} ms, database {self.database:.1f} ms; answered in {self.wall:.1f} ms"
        return Figure(f"CPU of the {name}", self.server + self.database, "ms", most, origin)


def _questions(group: Group) -> dict[str, tuple[str, int, float | None]]:
    """The path of each request, how often it is sent, and how much CPU it may take."""
    who_can = f"/resources/{ACCOUNT}/variable/everybody?who_can&privilege=read"
    host = f"{ACCOUNT}:host:{group.name}/app-{group.size // 2:07}"
    beyond, times = position_cursor(HoldersCursor(3, True)), settings.ACCESS_QUESTIONS
    middle = position_cursor(HoldersCursor(2, True, (group.role, host)))
    owner = f"/roles/{ACCOUNT}/policy/{group.name}?reach"
    return {
        "first page of 100": (who_can, times, CPU_MOST),
        "page of 100 in the middle": (f"{who_can}&after={middle}", times, CPU_MOST),
        "page of 1000": (f"{who_can}&limit=1000", times, None),
        "page beyond the million": (f"{who_can}&after={beyond}", 3, None),
        "direct holders": (f"{who_can}&direct", times, CPU_MOST),
        "count": (f"{who_can}&count", 3, None),
        "verdict on a member": (
            f"/resources/{ACCOUNT}/variable/everybody?can&privilege=read&role={quote(host, safe='')}",
            times,
            CPU_MOST,
        ),
        "verdict on the owner of all": (
            f"/resources/{ACCOUNT}/variable/everybody?can&privilege=read&role={ACCOUNT}:policy:{group.name}",
            3,
            None,
        ),
        "reach of a member": (f"/roles/{ACCOUNT}/host/{quote(host.split(':', 2)[2], safe='')}?reach", times, CPU_MOST),
        "first page of the reach of the owner of all": (owner, times, CPU_MOST),
        "first page of the reach of the admin": (f"/roles/{ACCOUNT}/user/admin?reach", times, CPU_MOST),
    }


def measure(folder: Path) -> Part:
    """Fill a server and ask it."""
    say("access: a server …")
    server = Server.started(folder / "access", watched=True)
    try:
        admin = server.admin()
        group, _ = gathered(server, admin)
        admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", _POLICY.encode())
        return _measured(server, admin, group)
    finally:
        server.stop()


def _measured(server: Server, admin: Client, group: Group) -> Part:
    costs: dict[str, Cost] = {}
    blockings: dict[str, list[Blocking]] = {}
    figures: list[Figure] = []
    loop = Watched(server.url, server.loop_record)
    for name, (path, times, most) in _questions(group).items():
        say(f"access: {name}")
        costs[name] = Cost.of(server, admin, path, times)
        figures.append(costs[name].figure(name, most))
        ask: Callable[[], object] = partial(admin.ask, "GET", path)
        blockings[name] = [Blocking.by(loop, ask) for _ in range(settings.LOOP_RUNS)]
        figures.append(attrs.evolve(Blocking.figure(name, blockings[name]), most=BLOCKED_MOST))
    details: dict[str, Any] = {
        "costs": {name: attrs.asdict(cost) for name, cost in costs.items()},
        "loop": {name: [attrs.asdict(run) for run in runs] for name, runs in blockings.items()},
    }
    return Part.of(figures, details)
