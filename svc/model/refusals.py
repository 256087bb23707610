"""Values and port of recent refusals: of whom, of what, and by which check, for those who read all of an account."""

from __future__ import annotations

import attrs
from zope.interface import Interface


@attrs.frozen
class RefusedRequest:
    """A request that was refused, at a moment (epoch seconds); its texts are made visible, and hold no evidence (REF-2).

    ``account`` is that of the caller or, without one, of the path. ``reason`` is a code, ``detail`` what the check compared.
    ``authenticator`` is set for a login. ``role`` is the caller, or the role that asked to be admitted, where it exists.
    """

    at: float
    request_id: str
    client_ip: str
    account: str
    route: str
    reason: str
    detail: str
    authenticator: str | None = None
    service_id: str | None = None
    role: str | None = None


@attrs.frozen
class RefusalGroup:
    """The reason for refusals and, if they were logins, the authenticator: its type, and its service id where it has one."""

    reason: str
    authenticator: str | None = None
    service_id: str | None = None


@attrs.frozen
class RefusalsQuery:
    """A query for refusals of an account, the newest first; where given, of one request, and before a number.

    Where ``group`` is given, only those that it counts.
    """

    account: str
    request_id: str | None = None
    before: int | None = None
    limit: int = 100
    group: RefusalGroup | None = None


@attrs.frozen
class RefusalCount:
    """How many refusals of the last hour are of one sort."""

    group: RefusalGroup
    count: int


@attrs.frozen
class RefusalsFound:
    """The refusals that one server has kept since a moment (epoch seconds).

    ``complete``: none of that time was pushed out (REF-4). ``counts`` are of all that the account has, the largest first;
    ``refusals`` those of the query, and ``before`` the number to continue with, ``None`` at the end.
    """

    since: float
    complete: bool
    counts: tuple[RefusalCount, ...]
    refusals: tuple[RefusedRequest, ...]
    before: int | None


class IRefusals(Interface):
    """The recent refusals of one server, whatever the number of its processes."""

    def add_refusal(refused: RefusedRequest) -> None:
        """Keep a refusal for an hour, as far as there is room."""

    async def find_recent(query: RefusalsQuery) -> RefusalsFound:
        """Return the refusals that a query matches.

        :raises StoreUnavailable: another process has them, and can't be reached now.
        """
