"""The cost of a thousand times as many members."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import psycopg2

from bench import settings
from bench.client import Client
from bench.crowd import Group, gathered
from bench.load import Request
from bench.loop import Blocking, Watched
from bench.probe import Line, Span, Waits, lengths, prepared
from bench.processes import Sampling, sizes
from bench.report import Figure, Part
from bench.server import Server, say

#: How many times the cost for the small group a request may cost for the large one.
GROWTH_MOST: Final = 1.5

#: How many times what PostgreSQL takes for the bare query a deep page and a count may take.
BARE_MOST: Final = 1.3

#: How much the server may grow while it lists everybody, in megabytes.
MEGABYTES_MOST: Final = 50

#: Requests before the first that is timed.
_WARMING: Final = 20

#: The parameters of lists that have to read many rows.
_DEEP: Final = f"&limit={settings.PAGE}&offset={settings.DEEP_OFFSET}"
_COUNT: Final = "&count=true"

#: The same as bare queries.
_BARE: Final = (
    """
    PREPARE bare_page (text, bigint, bigint) AS
    SELECT role_id, member_id, admin_option, ownership, policy_id FROM memberships
    WHERE role_id = $1 ORDER BY member_id COLLATE "C" LIMIT $2 OFFSET $3
    """,
    "PREPARE bare_count (text) AS SELECT count(*) FROM memberships WHERE role_id = $1",
)


@attrs.frozen
class Round:
    """How long answers about the large group and about the small one took, requested in turns."""

    many: Waits
    few: Waits


@attrs.frozen
class Deep:
    """How long the service takes for what has to read much, and how long PostgreSQL takes for the bare query; in seconds."""

    service: list[float]
    bare: list[float]

    def figure(self, name: str) -> Figure:
        """The one of the other."""
        ratio = statistics.median(ours / bare for ours, bare in zip(self.service, self.bare, strict=True))
        ours, bare = (statistics.median(seconds) * 1000 for seconds in (self.service, self.bare))
        origin = f"{ours:.0f} ms, where PostgreSQL takes {bare:.0f} ms"
        return Figure(f"{name}, of the bare query", ratio, "times", BARE_MOST, origin)


@attrs.frozen
class Groups:
    """The two groups at a server whose event loop is watched."""

    server: Server
    admin: Client
    many: Group
    few: Group

    def questions(self) -> dict[str, Callable[[Group], str]]:
        """The requests that cost about the same, however large a group is: the path for a group."""
        size = settings.PAGE

        def middle(group: Group) -> str:
            return group.members(f"&limit=1&offset={group.size // 2}")

        return {
            f"first page of {size}": lambda group: group.members(f"&limit={size}"),
            f"page of {size} in the middle, by cursor": lambda group: group.members(
                f"&limit={size}&cursor={self.admin.cursor(middle(group))}"
            ),
            f"search that matches {settings.MATCHES}": lambda group: group.members(f"&search={group.word}&limit={size}"),
        }

    def rounds(self, question: Callable[[Group], str]) -> list[Round]:
        """Ask a question about both in turns."""
        line = Line.to(self.server.url)
        many, few = (self._prepared(question(group)) for group in (self.many, self.few))
        for _ in range(_WARMING):
            line.span(many)
            line.span(few)
        return [self._round(line, many, few) for _ in range(settings.ROUNDS)]

    def _round(self, line: Line, many: bytes, few: bytes) -> Round:
        spans = [(line.span(many), line.span(few)) for _ in range(settings.QUESTIONS)]
        return Round(*(Waits.of(of_group) for of_group in zip(*spans, strict=True)))

    @property
    def loop(self) -> Watched:
        """The server's event loop."""
        return Watched(self.server.url, self.server.loop_record)

    def read_everybody(self) -> None:
        """Read the whole list of the large group; its owner is in it, too."""
        listed = self.admin.read_list(self.many.members())
        if listed != self.many.size + 1:
            raise SystemExit(f"{listed} members were listed, and there are {self.many.size}, and their group's owner")

    def to_watch(self) -> dict[str, str]:
        """The requests that could block the event loop, apart from the whole list: the path of each."""
        return {
            "deep page": self.many.members(_DEEP),
            "count": self.many.members(_COUNT),
            f"page of {settings.LONG_PAGE}": self.many.members(f"&limit={settings.LONG_PAGE}"),
            f"search that matches {settings.MATCHES}": self.many.members(f"&search={self.many.word}&limit={settings.PAGE}"),
        }

    def deeps(self) -> dict[str, Deep]:
        """The requests that have to read much of the large group, beside the bare queries."""
        role, size, offset = self.many.role, settings.PAGE, settings.DEEP_OFFSET
        return {
            f"page of {size} at offset {offset}": self._deep(_DEEP, "EXECUTE bare_page (%s, %s, %s)", (role, size, offset)),
            "count": self._deep(_COUNT, "EXECUTE bare_count (%s)", (role,)),
        }

    def _deep(self, parameters: str, query: str, values: tuple[object, ...]) -> Deep:
        line, request = Line.to(self.server.url), self._prepared(self.many.members(parameters))
        service, bare = list[Span](), list[Span]()
        with closing(psycopg2.connect(self.server.database)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                for statement in _BARE:
                    cursor.execute(statement)
                for _ in range(settings.DEEP_QUESTIONS + 1):
                    service.append(line.span(request))
                    bare.append(_span(cursor, query, values))
        # The first find nothing prepared.
        return Deep(lengths(service[1:]), lengths(bare[1:]))

    def _prepared(self, path: str) -> bytes:
        return prepared(Request("GET", path, self.admin.header))


def measure(folder: Path) -> Part:
    """Fill a server and ask it."""
    say("growth: a server …")
    server = Server.started(folder / "growth", watched=True)
    try:
        admin = server.admin()
        return _measured(Groups(server, admin, *gathered(server, admin)))
    finally:
        server.stop()


def _measured(groups: Groups) -> Part:
    server = groups.server.process.pid
    before, _ = sizes(server)
    say("growth: the whole list")
    with Sampling(server) as sampling:
        blockings = {"whole list": [Blocking.by(groups.loop, groups.read_everybody)]}
    rounds: dict[str, list[Round]] = {}
    for name, question in groups.questions().items():
        say(f"growth: {name}")
        rounds[name] = groups.rounds(question)
    say("growth: a deep page, and a count")
    deeps = groups.deeps()
    for name, path in groups.to_watch().items():
        say(f"growth: the event loop, and the {name}")
        ask = partial(groups.admin.ask, "GET", path)
        blockings[name] = [Blocking.by(groups.loop, ask) for _ in range(settings.LOOP_RUNS)]
    figures = [_grown(name, share, asked) for name, asked in rounds.items() for share in ("p50", "p99")]
    figures += [deep.figure(name) for name, deep in deeps.items()]
    origin = f"{before:.0f} MB before, {sampling.peak:.0f} MB at most; PostgreSQL beside it: {sampling.database_peak:.0f} MB"
    figures.append(Figure("RSS grown by the whole list", sampling.peak - before, "MB", MEGABYTES_MOST, origin))
    figures += [Blocking.figure(name, runs) for name, runs in blockings.items()]
    details: dict[str, Any] = {
        "rounds": {name: [attrs.asdict(asked) for asked in of_name] for name, of_name in rounds.items()},
        "deep": {name: attrs.asdict(deep) for name, deep in deeps.items()},
        "loop": {name: [attrs.asdict(run) for run in runs] for name, runs in blockings.items()},
    }
    return Part.of(figures, details)


def _grown(name: str, share: str, rounds: list[Round]) -> Figure:
    many, few = ([getattr(getattr(asked, group), share) for asked in rounds] for group in ("many", "few"))
    ratio = statistics.median(large / small for large, small in zip(many, few, strict=True))
    origin = f"{statistics.median(many):.1f} ms of {settings.MANY}, {statistics.median(few):.1f} ms of {settings.FEW}"
    return Figure(f"{name}, {share}", ratio, "times", GROWTH_MOST, origin)


def _span(cursor: Any, query: str, parameters: tuple[object, ...]) -> Span:
    begin = time.monotonic()
    cursor.execute(query, parameters)
    cursor.fetchall()
    return begin, time.monotonic()
