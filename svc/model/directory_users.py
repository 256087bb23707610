"""Values of the users of directories: who logged in last by which LDAP authenticator, and whose entry is missing.

Note [Two rounds]. An entry that is found missing once may be missing by mistake. So a round notes since when it is missing,
by the moment at which the round ended, and another one that began ``apart`` later confirms it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import attrs

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
    """The round of an authenticator: whether it is ``due`` now, and why the last one changed nothing, if so."""

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
