"""Values and port of the audit: events, their origins and outcomes, in the words of the installed base (AUD-3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypedDict

import attrs
from zope.interface import Attribute, Interface

#: Facilities and severities (RFC 5424, 6.2.1) that events have.
AUTH: Final = 4
AUTHPRIV: Final = 10
WARNING: Final = 4
NOTICE: Final = 5
INFO: Final = 6
DEBUG: Final = 7

#: The parameters of an event's subject, in order.
Subject = tuple[tuple[str, str], ...]


# A tuple, since it is made sooner than other values: a batch of secrets makes hundreds.
class Event(NamedTuple):
    """An act or an attempt: the kind of event (``msgid``), the ``operation``, and the ``subject`` that it is done to.

    ``did`` and ``does`` say it in words, after the role: "fetched x", "fetch x"; text from outside in them is escaped when
    it is written. ``user`` is the full id of the role that acts, where it isn't the caller's. ``policy``: the id and the
    version of the policy that a load made. ``severity`` is that of the success; a failure is a warning. ``reason``: why this
    one failed where the request as a whole didn't.
    """

    msgid: str
    operation: str
    subject: Subject
    did: str
    does: str
    user: str | None = None
    authenticator: str | None = None
    service: str | None = None
    policy: tuple[str, int] | None = None
    facility: int = AUTHPRIV
    severity: int = INFO
    reason: str | None = None


@attrs.frozen
class EventSource:
    """The server that an event comes from: its machine, and the program (RFC 5424, 6.2.4 and 6.2.5)."""

    hostname: str
    appname: str


@attrs.frozen(slots=False)
class AuditContext:
    """The origin of events: the caller's full id, ``None`` before it is proven, its address, and the request's id."""

    server: EventSource
    user: str | None
    client_ip: str
    request_id: str


@attrs.frozen
class EventBatch:
    """Events of one origin, for the transaction that makes the changes that they record."""

    origin: AuditContext
    events: tuple[Event, ...] = ()


#: The reason where the database didn't confirm whether it made a change.
OUTCOME_UNKNOWN: Final = "outcome-unknown"


@attrs.frozen
class Outcome:
    """The outcome of events: ``reason`` is a code of a bounded set, ``None`` for a success.

    ``stale``: it was decided from a read cache that wasn't confirmed (CLU-36).
    """

    reason: str | None = None
    stale: bool = False


@attrs.frozen
class StoredEvent:
    """An event as the database keeps it; ``at`` is in seconds since the epoch, ``data`` the structured data by name."""

    number: int
    at: float
    facility: int
    severity: int
    hostname: str
    appname: str
    procid: str
    msgid: str
    data: Mapping[str, Mapping[str, str]]
    message: str


#: The parameters by which events can be found, beside those of their subjects.
PARAMETERS: Final = frozenset({("action", "operation"), ("auth", "user"), ("client", "ip"), ("policy", "id")})


@attrs.frozen
class EventsQuery:
    """A query for events of an account, the newest first.

    ``about``: the full id of a role, resource or member that they are about. ``data``: parameters that they have, as names
    of the structured data, own names and values: any of ``subject``, and those in ``PARAMETERS``. ``what``: their msgid or
    operation. ``load``: the full id of a policy and the version of it that the load made. ``since`` and ``until`` are in
    epoch seconds, the end is left out. The other fields must be equal.
    """

    account: str
    about: str | None = None
    facility: int | None = None
    severity: int | None = None
    hostname: str | None = None
    appname: str | None = None
    procid: str | None = None
    msgid: str | None = None
    what: str | None = None
    since: float | None = None
    until: float | None = None
    data: tuple[tuple[str, str, str], ...] = ()
    load: tuple[str, int] | None = None
    limit: int = 100
    offset: int = 0


class AuditFacts(TypedDict, total=False):
    """Facts about a request that its path and query don't say; ids are full ones. A fact is absent until it is known.

    ``role`` is the one that logs in, ``None`` where the evidence names none, and ``unknown`` if there is none of that name;
    ``target`` is the one that a request changes. ``tried``: an explanation was asked with a key or password. ``rows`` are
    the events of the rows that an edit changed. ``refused`` has the reasons by the ids of a batch as they were written, and
    ``known`` says that the client had the whole batch already. ``repeated``: it is a repeat, which got its answer again.
    """

    account: str
    authenticator: str
    batch: str
    count: int
    dry_run: bool
    enabled: bool | None
    factory: str
    fetched: Sequence[str]
    host: str
    kind: str
    known: bool
    login: str | None
    member: str
    name: str
    policy: str
    purged: Sequence[str]
    reason: str
    refused: Mapping[str, str]
    repeated: bool
    resources: Sequence[str]
    restored: Sequence[tuple[str, Sequence[int]]]
    role: str | None
    rows: Sequence[Event]
    service_id: str | None
    session: str
    target: str
    token: str
    tried: bool
    unchanged: bool
    unknown: bool
    version: str | None

    # Facts about a page of the console: the parts of it that were read.
    audit: bool
    proven: bool
    reach: bool
    read: bool
    refusals: bool
    tokens: bool
    #: The parameters of a list, and the privileges whose holders were listed, each with the most of them.
    listed: tuple[tuple[str, str], ...]
    holders: Sequence[tuple[str, int]]
    #: The authenticators whose status was read.
    states: Sequence[str]


class IJournal(Interface):
    """The journal, which takes every event of a server before the request is answered."""

    server: EventSource = Attribute("""The server that the events come from.""")

    def require_available() -> None:
        """Return when events can be taken now.

        :raises AuditUnavailable: they can't, and requests are to be refused then.
        """

    async def record_events(origin: AuditContext, events: Sequence[Event], outcome: Outcome) -> None:
        """Return when events have been taken by all sinks.

        :raises AuditUnavailable: they have not, and requests are to be refused then.
        """
