"""Values and port of LDAP directories."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import attrs
from zope.interface import Interface

from svc.model.authentication import Problem
from svc.model.directory_users import EntryState
from svc.model.errors import Refusal
from svc.model.reasons import Reason

#: The place of the login in a filter template.
PLACEHOLDER: Final = "%s"

#: The place of the name of a person's entry in the template of a filter for groups, and the default template.
ENTRY_PLACEHOLDER: Final = "%d"
GROUP_FILTER: Final = "(|(member=%d)(uniqueMember=%d)(memberUid=%s))"

#: How many groups of a person are read; for a person in more no decision is possible.
GROUPS_MOST: Final = 1000

#: Seconds for a whole conversation, the wait for its turn included, unless policy sets them.
DEADLINE: Final = 5.0


#: Seconds for a conversation about the states of entries, and the most logins that it is about.
STATES_DEADLINE: Final = 30.0
STATES_MOST: Final = 100


class Security(enum.Enum):
    """The protection of a connection to a directory; the values are those of policies (AUTH-54)."""

    PLAIN = "plain"
    START_TLS = "tls"  # asked for on a plain connection, before anything else is sent (RFC 4511 4.14)
    TLS = "ssl"  # from the first byte on (LDAPS)


class GroupSource(enum.Enum):
    """Where a directory has the groups of a person; policies write the value of the second, and leave out the first."""

    MEMBERS = "member"  # a search for groups that name the person, or the entry's memberOf
    TOKEN_GROUPS = "tokenGroups"  # of Active Directory: the security identifiers of all groups, nested and primary ones too


@attrs.frozen
class LdapServer:
    """A directory, and how people are found in it, below the entry ``base_dn``; an empty one is the root.

    ``others`` are further hosts of the same directory with their ports, asked in order when the first doesn't answer.
    A conversation takes at most ``timeout`` seconds, with all of them.

    ``filter_template`` is an LDAP filter (RFC 4515) with ``PLACEHOLDER``. ``bind_dn``: the account that searches, ``None``
    for nobody. ``ca_cert``: PEM of the only authorities to trust; ``None`` stands for the platform's. The groups of a person
    are found by ``group_source``, below ``group_base_dn`` with ``group_filter_template``; without that, their entry lists
    them (``memberOf``).
    """

    host: str
    port: int
    security: Security
    base_dn: str
    filter_template: str
    bind_dn: str | None = None
    bind_password: bytes | None = attrs.field(default=None, repr=False)
    ca_cert: str | None = attrs.field(default=None, repr=False)
    group_base_dn: str | None = None
    group_filter_template: str = GROUP_FILTER
    group_source: GroupSource = GroupSource.MEMBERS
    others: tuple[tuple[str, int], ...] = ()
    timeout: float = DEADLINE

    @property
    def host_ports(self) -> tuple[tuple[str, int], ...]:
        """Return all hosts with their ports, in the order in which they are asked."""
        return (self.host, self.port), *self.others


@attrs.frozen(str=False)
class DirectoryRefused(Refusal):
    """An LDAP directory refuses a password, or can't be reached; raised by ``ldap``. ``detail`` has no password.

    ``retry_after``: the seconds after which it is tried again, where that is known.
    """

    reason: Reason
    detail: str
    retry_after: float | None = attrs.field(default=None, repr=False)


@attrs.frozen(str=False)
class Unanswered(DirectoryRefused):
    """A host has not answered, or can't be trusted to be the directory; another host of it might. Raised by ``ldap``."""


@attrs.frozen(str=False)
class BaseUnreadable(DirectoryRefused):
    """The entry below which people are found can't be read, as ``IDirectories.read_bases`` shows, too."""


@attrs.frozen
class DirectoryBase:
    """An entry below which people or groups are found: the annotation that names it, its name, and why it can't be read."""

    annotation: str
    dn: str
    fault: str | None


@attrs.frozen
class DirectoryStatus:
    """The state of an authenticator that asks a directory: its faults, and whether the configuration lists it.

    ``account`` is the one that searches, ``None`` for nobody. ``outcome`` is that of its bind: ``ok``, ``refused``,
    ``failed``, or ``not asked``; ``retry_after`` the seconds until the bind is retried after a recorded refusal.
    """

    problems: tuple[Problem, ...]
    listed: bool
    account: str | None = None
    outcome: str = "not asked"
    retry_after: float | None = None
    bases: tuple[DirectoryBase, ...] = ()


class IDirectories(Interface):
    """Directories, asked over the network. Every call ends within ``timeout`` seconds, whatever the other side does.

    ``asked``: the call is for an operator, so that one bind is sent for an account that was refused before (LOCK-2).
    """

    async def verify_password(server: LdapServer, login: str, password: bytes, *, asked: bool = False) -> None:
        """Find the one entry that a login stands for, and check that the directory accepts the password for it.

        :raises DirectoryRefused: it doesn't, or it can't be reached.
        """

    async def read_groups(
        server: LdapServer, login: str, password: bytes, mapped: Sequence[str] = (), *, asked: bool = False
    ) -> Sequence[str]:
        """Do as ``verify_password``, then return the names of the groups that the person is in, which are read only after
        that.

        Where ``group_source`` is ``TOKEN_GROUPS`` they are those of the distinguished names ``mapped``, as given.

        :raises DirectoryRefused: as ``verify_password``; or it doesn't return the groups, or they are more than
        ``GROUPS_MOST``.
        """

    async def check_connection(server: LdapServer, within: float | None = None, *, asked: bool = False) -> None:
        """Do all that comes before a search: connect, secure the connection, bind; ``within`` so many seconds if given.

        :raises DirectoryRefused: that fails.
        """

    async def read_bases(server: LdapServer) -> Sequence[DirectoryBase]:
        """Do as ``check_connection``, and read the entries below which people and groups are found.

        :raises DirectoryRefused: as ``check_connection``.
        """

    async def read_entry_states(server: LdapServer, logins: Sequence[str]) -> Sequence[EntryState]:
        """Return the states of the entries of at most ``STATES_MOST`` logins, in ``STATES_DEADLINE`` seconds.

        :raises DirectoryRefused: as ``check_connection``; or the entry below which people are isn't found, or a search is
        refused.
        """
