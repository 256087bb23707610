"""Events of the audit: what was done or tried, by whom, from where, and the outcome; and the seams by which they are kept.

The words are those of the installed base (AUD-3): ``msgid`` says what sort of event it is,
``operation`` what was done, ``subject`` to what. Records of RFC 5424 are made of them in ``journal``, rows in ``storage``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import attrs
from zope.interface import Interface

from svc.model.names import RoleName

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
    """Something that is done or tried; the same whether it succeeds.

    ``subject`` is what it is done to. ``did`` and ``does`` say it in words, after the role: "fetched x", "fetch x"; what
    stands in them from outside is made fit for a line when it is written. ``user`` is the full id of the role that acts,
    where it isn't the caller's. ``policy``: the id and the version of the policy that a load made. ``severity`` is that of
    the success; a failure is a warning.
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


@attrs.frozen
class Server:
    """Which server tells an event: the name of its machine, and of the program (RFC 5424, 6.2.4 and 6.2.5)."""

    hostname: str
    appname: str


@attrs.frozen(slots=False)
class AuditContext:
    """Where events come from: the caller's full id, ``None`` before it is proven, its address, and the request's id."""

    server: Server
    user: str | None
    client_ip: str
    request_id: str


@attrs.frozen
class EventBatch:
    """Events of one origin, for the transaction that makes the changes that they tell of."""

    origin: AuditContext
    events: tuple[Event, ...] = ()


#: The reason of an outcome that nobody knows: a change was asked for, and the database didn't say whether it made it.
OUTCOME_UNKNOWN: Final = "outcome-unknown"


@attrs.frozen
class Outcome:
    """How events ended: ``reason`` is a code of a bounded set, ``None`` where they succeeded."""

    reason: str | None = None

    @property
    def word(self) -> str:
        """The word of the record for it (AUD-12)."""
        return {None: "success", OUTCOME_UNKNOWN: "unknown"}.get(self.reason, "failure")


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


#: What events can be looked for by, beside the parameters of their subjects.
PARAMETERS: Final = frozenset({("action", "operation"), ("auth", "user"), ("client", "ip"), ("policy", "id")})


@attrs.frozen
class EventsQuery:
    """Which events of an account to list, the newest first.

    ``about``: only those that tell of what has this full id, as role, resource or member. ``data``: parameters that they
    have, by the name of the structured data, its own name and its value: any of ``subject``, and of others those that are
    in ``PARAMETERS``. The rest are equal where given.
    """

    account: str
    about: str | None = None
    facility: int | None = None
    severity: int | None = None
    hostname: str | None = None
    appname: str | None = None
    procid: str | None = None
    msgid: str | None = None
    data: tuple[tuple[str, str, str], ...] = ()
    limit: int = 100
    offset: int = 0


class IJournal(Interface):
    """What takes every event of a server before the request that it tells of is answered."""

    def origin(user: RoleName | None, client_ip: str, request_id: str) -> AuditContext:
        """Say where the events of one request come from."""

    def admit() -> None:
        """Return when events can be taken now.

        :raises AuditUnavailable: they can't, and requests are to be refused then.
        """

    async def take(origin: AuditContext, events: Sequence[Event], outcome: Outcome) -> None:
        """Return when events have been taken by all sinks.

        :raises AuditUnavailable: they have not, and requests are to be refused then.
        """


class IEvents(Interface):
    """The events that the database keeps: those that changed it, written with the change.

    Every method may raise ``StoreUnavailable``, and those that write ``StoreReadOnly``, as in ``interfaces``.
    """

    async def listed(query: EventsQuery) -> list[StoredEvent]:
        """The events that the query matches, the newest first. None is older than the account."""

    async def after(number: int, last: int, origin: AuditContext, limit: int) -> list[tuple[int, Event]]:
        """The events of one origin that are numbered after ``number``, up to ``last``, in order, ``limit`` at most."""

    async def purge(before: float) -> int:
        """Remove those from before a moment (epoch seconds), and tell how many they were."""
