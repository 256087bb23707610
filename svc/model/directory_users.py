"""Values and port of the users of directories: who logged in last by which LDAP authenticator, and whose entry is missing.

Note [Two rounds]. An entry that is found missing once may be missing by mistake. So a round notes since when it is missing,
by the moment at which the round ended, and another one that began ``apart`` later confirms it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence

import attrs
from zope.interface import Interface

from svc.model.events import EventBatch
from svc.model.names import ResourceName, RoleName


class EntryState(enum.Enum):
    """The state of a login's entry in a directory."""

    PRESENT = "present"
    GONE = "gone"
    DISABLED = "disabled"
    #: There are several entries, from which nothing follows.
    AMBIGUOUS = "ambiguous"


@attrs.frozen
class DirectoryUser:
    """A user of a directory. ``missing``: a round has recorded that; ``refused``: another one has confirmed it."""

    role: RoleName
    missing: bool = False
    refused: bool = False


@attrs.frozen
class ScheduledRound:
    """The turn of an authenticator at a round: whether it is ``due`` now, and why the last one changed nothing, if so."""

    webservice: ResourceName
    due: bool
    fault: str | None


@attrs.frozen
class MissingUsersChange:
    """A change of the refused users, in the order of names: the newly refused, and those no longer; with authenticators."""

    refused: tuple[tuple[RoleName, ResourceName], ...] = ()
    admitted: tuple[tuple[RoleName, ResourceName], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.refused or self.admitted)


#: Returns the events of a change.
TrailOf = Callable[[MissingUsersChange], EventBatch | None]


class IDirectoryUsers(Interface):
    """The users of directories. ``ILastLogins`` records where a user logged in. Errors: see ``ports``."""

    async def begin_rounds(
        webservices: Mapping[ResourceName, float], every: float, apart: float
    ) -> Sequence[ScheduledRound]:
        """Take the turns of authenticators, each for one server alone; those that are gone have none.

        One is due ``every`` so many seconds, ``apart`` seconds after a round that found somebody missing, and after one that
        changed nothing, when the authenticator's own seconds are over.
        """

    async def list_users(webservice: ResourceName, after: str, most: int) -> Sequence[DirectoryUser]:
        """Return so many users of an authenticator, in the order of their full ids, from the one after ``after`` on."""

    async def record_findings(
        webservice: ResourceName, missing: Sequence[RoleName], found: Sequence[RoleName], apart: float, trail: TrailOf
    ) -> MissingUsersChange:
        """Record the findings of the round that began last, in one transaction, and return what changes by them.

        A user who is ``missing``, and was so already ``apart`` seconds before the round began, is refused, and loses
        tokens and sessions. Users who are ``found`` aren't missing any more.
        """

    async def record_fault(webservice: ResourceName, fault: str | None) -> None:
        """Keep why a round changed nothing; ``None`` where it did its work."""

    async def clear_mark(role: RoleName, trail: TrailOf) -> MissingUsersChange:
        """Record that the entry of a user was found, and return what changes by it."""

    async def clear_stale_marks(seconds: float, trail: TrailOf) -> MissingUsersChange:
        """Clear the marks of missing users of authenticators for which no server began a turn for so long."""

    async def read_fault(webservice: ResourceName, seconds: float) -> str | None:
        """Return why the last round of an authenticator changed nothing, unless no server began a turn for so long."""
