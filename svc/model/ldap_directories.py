"""Values and port of LDAP directories: their names, users, groups, and mappings of groups to roles.

Note [One group by each name]. A name with an equals sign is a distinguished name (RFC 4514), and means that entry. Any
other name N is short for the entry ``cn=N`` right below ``group_base_dn``, and for no other: where groups of the same name
exist in several places, a person who may make groups in one of them can't make members of another. Logins are the ids of
users, and compared as these.

Note [Different to any directory]. Directories disagree about which names are equal: capitals beyond A to Z, letters that are
composed in two ways, repeated blanks, and characters that are like blanks. Where a directory distinguishes two names, a
person who may make groups could name one so that it is mistaken for another here. So only capitals from A to Z equal small
letters, as they do to all directories; names that differ otherwise are different, and give nothing.

Note [Two rounds]. An entry that is found missing once may be missing by mistake. So a round notes since when it is missing,
by the moment at which the round ended, and another one that began ``apart`` later confirms it.

Note [Granted by nobody]. A mapped membership is one that exists only because of mappings. One that policy or an operator
made isn't mapped, though a mapping would give it too; and if one of them grants it later, it is theirs from then on. So
their memberships stay when mappings are removed, and mapped ones are removed with the mappings.
"""

from __future__ import annotations

import enum
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import attrs
from zope.interface import Interface

from svc.model.authentication import Problem
from svc.model.errors import Refusal
from svc.model.events import EventBatch
from svc.model.names import ResourceName, RoleName
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

    ``by_operator``: the call is for an operator, so that one bind is sent for an account that was refused before (LOCK-2).
    """

    async def verify_password(server: LdapServer, login: str, password: bytes, *, by_operator: bool = False) -> None:
        """Find the one entry that a login stands for, and check that the directory accepts the password for it.

        :raises DirectoryRefused: it doesn't, or it can't be reached.
        """

    async def read_groups(
        server: LdapServer, login: str, password: bytes, mapped: Sequence[str] = (), *, by_operator: bool = False
    ) -> Sequence[str]:
        """Do as ``verify_password``, then return the names of the groups that the person is in, which are read only after
        that.

        Where ``group_source`` is ``TOKEN_GROUPS`` they are those of the distinguished names ``mapped``, as given.

        :raises DirectoryRefused: as ``verify_password``; or it doesn't return the groups, or they are more than
        ``GROUPS_MOST``.
        """

    async def check_connection(server: LdapServer, within: float | None = None, *, by_operator: bool = False) -> None:
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


_TYPE: Final = re.compile(r" *([A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)*) *= *")
#: Octets of a value: what is escaped, or means nothing.
_VALUE: Final = re.compile(r'(?:\\[0-9A-Fa-f]{2}|\\[ "#+,;<=>\\]|[^\\"+,;<>\0])*')
_ESCAPED: Final = re.compile(r"\\([0-9A-Fa-f]{2})|\\(.)|([^\\]+)", re.DOTALL)
_SPECIAL: Final = re.compile(r'[\\"+,;<>=# \0]')
_SMALL: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

#: Attributes whose values are the same in capitals and small letters (RFC 4519).
_CASELESS: Final = frozenset({"c", "cn", "dc", "l", "o", "ou", "st", "street", "uid"})


class InvalidDirectoryName(ValueError):
    """A text is no name that could be mapped; the message says why."""


class _Assertion(NamedTuple):
    attribute: str
    value: str


_Rdn = tuple[_Assertion, ...]


def escape_dn_value(text: str) -> str:
    """Escape a text as a value in a distinguished name (RFC 4514 2.4); more is escaped than needs to be."""
    return _SPECIAL.sub(lambda match: "\\00" if match[0] == "\0" else f"\\{match[0]}", text)


def group_key(name: str) -> str:
    """Return the key by which the name of a group is compared (Note [One group by each name]).

    :raises InvalidDirectoryName: it has an equals sign, and is no distinguished name.
    """
    return _format_dn(_parse_dn(name)) if "=" in name else _lower_ascii(name)


def list_directory_names(login: str, groups: Iterable[str], group_base_dn: str | None) -> list[DirectoryName]:
    """Return all names by which mappings may refer to a person who is in groups of these distinguished names."""
    return list(dict.fromkeys((DirectoryName(USER, login), *_group_names(groups, group_base_dn))))


def _group_names(groups: Iterable[str], group_base_dn: str | None) -> Iterator[DirectoryName]:
    base = None if group_base_dn is None else _parse_dn_or_none(group_base_dn)
    for group in groups:
        rdns = _parse_dn_or_none(group)
        if not rdns:
            continue
        yield DirectoryName(GROUP, _format_dn(rdns))
        (first, *more), above = rdns[0], rdns[1:]
        plain = first.attribute == "cn" and not more and "=" not in first.value and "\0" not in first.value
        if plain and base is not None and above == base:
            yield DirectoryName(GROUP, first.value)


def _parse_dn_or_none(name: str) -> tuple[_Rdn, ...] | None:
    try:
        return _parse_dn(name)
    except InvalidDirectoryName:
        return None


def _parse_dn(name: str) -> tuple[_Rdn, ...]:
    """Read a distinguished name, its values folded as they are compared."""
    rdns: list[_Rdn] = []
    assertions: list[_Assertion] = []
    place = 0
    while True:
        kind = _TYPE.match(name, place)
        if kind is None:
            raise InvalidDirectoryName(f"there is no attribute, such as cn=, at character {place + 1}")
        found = _VALUE.match(name, kind.end())
        assert found is not None
        attribute, text = kind[1].lower(), found[0]
        place = found.end()
        end = name[place : place + 1]
        if end == '"':
            raise InvalidDirectoryName(
                f'no quotation mark is taken, as at character {place + 1}: write cn=a\\,b for cn="a,b"'
            )
        if end not in {",", "", "+"}:
            raise InvalidDirectoryName(f"there is something at character {place + 1} that has to be escaped")
        assertions.append(_Assertion(attribute, _unescape_value(attribute, text)))
        if end != "+":
            rdns.append(tuple(sorted(assertions)))
            assertions = []
        if not end:
            return tuple(rdns)
        place += 1


def _unescape_value(attribute: str, text: str) -> str:
    # A blank that is escaped belongs to the value.
    bare = text.rstrip(" ")
    if len(bare) < len(text) and (len(bare) - len(bare.rstrip("\\"))) % 2:
        bare += " "
    if not bare or bare.startswith("#"):
        raise InvalidDirectoryName(f"the value of {attribute} is empty, or written in hexadecimal")
    octets = b"".join(
        bytes.fromhex(hexadecimal) if hexadecimal else (escaped or plain).encode("utf-8", "surrogatepass")
        for hexadecimal, escaped, plain in _ESCAPED.findall(bare)
    )
    try:
        value = octets.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidDirectoryName(f"the value of {attribute} is not UTF-8") from None
    return _lower_ascii(value) if attribute in _CASELESS else value


def _lower_ascii(text: str) -> str:
    """Make small letters of capitals (Note [Different to any directory])."""
    return text.translate(_SMALL)


def _format_dn(rdns: Iterable[_Rdn]) -> str:
    return ",".join("+".join(f"{one.attribute}={escape_dn_value(one.value)}" for one in rdn) for rdn in rdns)


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
class DirectoryUsersChange:
    """The users whose logins a round disabled, since the directory has no usable entry for them, and those enabled again.

    Each is a user and the webservice of the authenticator, in the order of names.
    """

    disabled: tuple[tuple[RoleName, ResourceName], ...] = ()
    enabled: tuple[tuple[RoleName, ResourceName], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.disabled or self.enabled)


#: Returns the events of a change.
DirectoryEventsOf = Callable[[DirectoryUsersChange], EventBatch | None]


#: The kinds of names.
GROUP: Final = "group"
USER: Final = "user"

#: Names of each kind that an authenticator maps at most, and roles that a name is mapped to.
NAMES_MOST: Final = 1000
ROLES_MOST: Final = 50

#: Bytes of a name's key and the full ids of webservice and role, together: with a member's they must fit into a page of an
#: index.
BYTES_MOST: Final = 1400


@attrs.frozen(order=True)
class DirectoryName:
    """A name of a directory's: its ``kind``, and its ``key``, by which names are compared."""

    kind: str
    key: str


@attrs.frozen
class LdapMapping:
    """A mapping: the name as it was written, and the full ids of its roles, in order."""

    name: str
    roles: tuple[str, ...]


class MappedRole(NamedTuple):
    """A role that a mapping gives to a member, or has given.

    ``given``: it does now. ``made``: the membership exists because of it, perhaps among others. ``member``: the grant
    exists. ``mapped``: it exists because of mappings alone. ``elsewhere``: because of another authenticator's.
    """

    name: DirectoryName
    role: str
    given: bool
    made: bool
    member: bool
    mapped: bool
    elsewhere: bool


@attrs.frozen
class MappingDifference:
    """The difference between memberships as mappings give them and as they are.

    Mappings to roles that begin or cease to hold, and the full ids of the roles that their member gains and loses by that.
    """

    begins: tuple[tuple[DirectoryName, str], ...] = ()
    ceases: tuple[tuple[DirectoryName, str], ...] = ()
    gains: tuple[str, ...] = ()
    loses: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.begins or self.ceases)

    @classmethod
    def from_rows(cls, rows: Iterable[MappedRole]) -> MappingDifference:
        """Compare what mappings of one authenticator give a member, and have given (Note [Granted by nobody])."""
        every = sorted(rows)
        begins = tuple(
            (row.name, row.role) for row in every if row.given and not row.made and (row.mapped or not row.member)
        )
        ceases = tuple((row.name, row.role) for row in every if row.made and not row.given)
        staying = {row.role for row in every if (row.made and row.given) or row.elsewhere} | {role for _, role in begins}
        gains = {row.role for row in every if row.given and not row.member}
        loses = {role for _, role in ceases} - staying
        return cls(begins, ceases, tuple(sorted(gains)), tuple(sorted(loses)))


@attrs.frozen
class MappingPreview:
    """The changes that a login would make, the names that are mapped, and whether its role could authenticate after it."""

    difference: MappingDifference
    names: tuple[DirectoryName, ...]
    may_authenticate: bool


#: Returns the events of what a member gains and loses, for the transaction.
MappingEventsOf = Callable[[MappingDifference], EventBatch | None]
