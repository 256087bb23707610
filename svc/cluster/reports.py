"""Health reports of other servers, read strictly.

Note [Strict reports]. A report is a JSON object whose ``ok`` is a boolean that fits the status: true with 200, false with
502 (HEALTH-19). Text that two readers could understand differently is none: members that stand there twice, ``NaN``,
other encodings than UTF-8. A member that lies about its health can't be found out; one that contradicts itself can.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

import attrs

from svc.model.databases import AttachedStandby
from svc.model.strict_json import Malformed, parse_json_value

#: The words for a member that gave no answer, and for one whose answer is no report.
UNREACHABLE: Final = "unreachable"
INVALID: Final = "invalid"

#: The ``ok`` of a report by its status (Note [Strict reports]).
_STATUSES: Final = {200: True, 502: False}

#: Services of one report that are shown, standbys, and characters of the name or word of one.
_SERVICES_LIMIT: Final = 32
_STANDBYS_LIMIT: Final = 16
_WORD_LIMIT: Final = 32

#: Moments are before this, in epoch seconds: later ones, after the year 4147, can't be written as dates one day.
_MOMENTS_END: Final = 1 << 36


@attrs.frozen
class ProbeReply:
    """The result of asking a server for its health: whether it is ``ok``, and the report as it was sent and as it was read.

    ``fault`` is empty when a report came, and otherwise the word for its absence, which ``why`` explains to operators.
    """

    ok: bool = False
    body: bytes = attrs.field(default=b"", repr=False)
    document: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    fault: str = ""
    why: str = ""


def parse_reply(status: int, body: bytes) -> ProbeReply:
    """Read an answer of HTTP (Note [Strict reports])."""
    if status not in _STATUSES:
        return ProbeReply(fault=INVALID, why=f"the answer has status {status}, which no health report has")
    try:
        document = parse_json_value(body)
    except Malformed:
        return ProbeReply(fault=INVALID, why="the answer is not JSON")
    if not isinstance(document, dict) or document.get("ok") is not _STATUSES[status]:
        return ProbeReply(fault=INVALID, why=f"the answer has status {status} and no ok that fits it")
    return ProbeReply(_STATUSES[status], body, document)


@attrs.frozen(kw_only=True)
class MemberHealth:
    """A server as the view of the cluster shows it; it holds nothing that a health route wouldn't show.

    ``word`` is ``ok``, ``failed``, or a fault of :class:`ProbeReply`. ``role`` is ``primary``, ``follower``, or empty when
    the server doesn't say; ``primaries`` is ``ok``, ``two`` when there is another primary beside its own, ``unknown``, or
    empty. ``changed`` is when its state became what it is, as far as is known, in epoch seconds; ``age`` in seconds.

    ``version`` is its program's, ``release`` PostgreSQL's, ``schema`` that of its tables. ``since`` is when its database got
    its role, in epoch seconds, and ``position`` where its log stands, in bytes. ``standbys`` are a primary's, if it says.
    """

    name: str
    here: bool
    word: str
    services: Mapping[str, str] = attrs.field(factory=dict)
    database: str = ""
    role: str = ""
    primaries: str = ""
    lag_seconds: float | None = None
    lag_bytes: float | None = None
    changed: float | None = None
    age: float = 0.0
    version: str = ""
    release: str = ""
    schema: float | None = None
    timeline: float | None = None
    since: float | None = None
    position: float | None = None
    standbys: Sequence[AttachedStandby] | None = None

    @property
    def ok(self) -> bool:
        """Whether the server is well."""
        return self.word == "ok"

    @property
    def is_reachable(self) -> bool:
        """Whether it gave a health report."""
        return self.word in {"ok", "failed"}

    def document(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        return {**attrs.asdict(self), "ok": self.ok, "reachable": self.is_reachable, "age": round(self.age, 1)}


def member_health(name: str, document: Mapping[str, Any], *, here: bool, changed: float | None, age: float) -> MemberHealth:
    """Return the health by a report. That may come from anybody: malformed parts are left out."""
    services, database = _mapping_or_empty(document.get("services")), _mapping_or_empty(document.get("database"))
    replication = _mapping_or_empty(database.get("replication_status"))
    words = {key: value for key, value in services.items() if _is_word(key) and _is_word(value)}
    connection = _mapping_or_empty(database.get("connect")).get("main")
    cluster = _mapping_or_empty(document.get("cluster"))
    primaries, node = cluster.get("primaries"), _mapping_or_empty(cluster.get("node"))
    reported = _read_moment(node.get("changed"))
    role = ""
    if database.get("ok") is True:
        role = "primary" if {"lag_seconds", "lag_bytes"}.isdisjoint(replication) else "follower"
    return MemberHealth(
        name=name,
        here=here,
        word="ok" if document.get("ok") is True else "failed",
        services=dict(list(words.items())[:_SERVICES_LIMIT]),
        database=_word_or_empty(connection),
        role=role,
        primaries=_word_or_empty(primaries),
        lag_seconds=_read_number(replication.get("lag_seconds")),
        lag_bytes=_read_number(replication.get("lag_bytes")),
        changed=changed if reported is None else reported,
        age=age,
        version=_word_or_empty(node.get("version")),
        release=_word_or_empty(node.get("release")),
        schema=_read_number(node.get("schema")),
        timeline=_read_number(node.get("timeline")),
        since=_read_moment(node.get("since")),
        position=next((_read_number(value) for key, value in replication.items() if key.endswith("_location_bytes")), None),
        standbys=_read_standbys(node.get("standbys")),
    )


def _read_standbys(value: object) -> Sequence[AttachedStandby] | None:
    if not isinstance(value, list):
        return None
    found = []
    for each in map(_mapping_or_empty, value[:_STANDBYS_LIMIT]):
        name, state, sync, since = (
            *(_word_or_empty(each.get(key)) for key in ("name", "state", "sync")),
            _read_moment(each.get("since")),
        )
        if name and since is not None:
            lags = _read_number(each.get("lag_bytes")), _read_number(each.get("lag_seconds"))
            found.append(AttachedStandby(name, state, sync, None if lags[0] is None else int(lags[0]), lags[1], since))
    return found


def _word_or_empty(value: object) -> str:
    return value if _is_word(value) else ""


def _mapping_or_empty(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_word(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _WORD_LIMIT and value.isprintable()


def _read_moment(value: object) -> float | None:
    """Return a moment; ``None`` for what can't be one."""
    seconds = _read_number(value)
    return seconds if seconds is not None and seconds < _MOMENTS_END else None


def _read_number(value: object) -> float | None:
    """Return a lag; ``None`` for what can't be one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 63 or not math.isfinite(value):
        return None
    return value
