"""Where PostgreSQL is, how libpq connects to it, and the settings that its sessions get then.

Note [Names before connecting]

libpq would block the reactor while it looks a name up. So the reactor resolves names first, and hands them over as
``hostaddr`` beside ``host``, which the check of a TLS certificate still needs.

Note [Several hosts]

Of several hosts, libpq takes the one that matches ``target_session_attrs``. A primary may be read-only for a while, and
libpq finds no ``read-write`` host then: for a session for reads, that value is treated as ``primary``. Where reads may
go to standbys (``storage/read_routing``), each host, and each address of a name, is tried on its own.

Note [What is repeated]

A part of a password that should have been escaped may be anything to libpq: a host, a port, a value, or the name of an
option. So no value is repeated, and an unknown name only where no secret can be before it, nor, in a URL, an @ after it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import unquote

import psycopg2
import psycopg2.extensions

from svc.model.errors import ConfigurationInvalid, StoreUnavailable
from svc.net.lookup import resolve_name

#: How long a transaction may hold its locks while this side is silent, in seconds: the process hangs, or its machine sleeps.
IDLE_IN_TRANSACTION: Final = 30.0
#: The values of ``target_session_attrs`` that only one of several hosts can match.
_SINGLE_SUITABLE: Final = frozenset({"primary", "read-write"})
#: The parameters for libpq unless the DSN sets others: they detect within a minute that a peer has vanished.
_DEFAULTS: Final = {"application_name": "svc", "keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}

#: How a URL begins, and one with an ``@`` too many; a word that libpq doesn't know, and some that it does.
_SCHEMES: Final = ("postgresql://", "postgres://")
_SECOND_AT: Final = re.compile(r"postgres(?:ql)?://[^/@]*@[^/?]*@")
_UNKNOWN_WORD: Final = re.compile(r'invalid (?:connection option|URI query parameter:) "(?P<word>[a-z_]+)"')
_KNOWN_WORD: Final = re.compile(r"(?:^|\s)(?:host|hostaddr|port|dbname|user|service)\s*=")
#: How the name of a parameter with a secret begins; and the hosts of a URL, which the first half of a password isn't.
_SECRET: Final = re.compile(r"(?:^|[?&\s])[a-z_]*(?:pass|secret|scram)")
_WITH_SECRET: Final = re.compile("pass|secret|scram|options")
_HOST: Final = r"(?:[^][:,/?@]*|\[[^]/?@]*\])(?::[0-9]*)?"
_HOSTS: Final = re.compile(rf"postgres(?:ql)?://(?:[^/?@]*@)?{_HOST}(?:,{_HOST})*[/?]")

#: The parameters whose values are integers, which libpq finds out when it has connected.
_INTEGERS: Final = (
    "connect_timeout",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "tcp_user_timeout",
)
#: A directory without a socket, and how libpq's lines begin when it has found nothing there, also those of libpq 13.
_NOWHERE: Final = "/nonexistent"
_NOT_REACHED: Final = ("connection to server", "could not connect", "\t")


def milliseconds(seconds: float) -> int:
    """Return seconds as milliseconds, for PostgreSQL's settings; at least 1, since 0 means no limit."""
    return max(1, round(seconds * 1000))


def with_attributes(dsn: str, attributes: Literal["primary", "standby"], **place: str) -> str:
    """Return a DSN for sessions with a primary, or a standby, alone; with other hosts where ``place`` names them.

    :raises ConfigurationInvalid: it cannot be read.
    """
    return str(psycopg2.extensions.make_dsn(**{**dsn_parameters(dsn), **place, "target_session_attrs": attributes}))


class Location:
    """Make the parameters of libpq from a DSN.

    :param reactor: resolves names (``IReactorPluggableNameResolver``).
    :param statement_timeout: how long PostgreSQL may work on one statement, in seconds.
    :raises ConfigurationInvalid: the DSN cannot be read. It holds a password, perhaps, and is not repeated.
    """

    def __init__(self, reactor: Any, dsn: str, statement_timeout: float) -> None:
        self._reactor = reactor
        self._settings = {
            "statement_timeout": str(milliseconds(statement_timeout)),
            "idle_in_transaction_session_timeout": str(milliseconds(IDLE_IN_TRANSACTION)),
            # A role's own limits would cut off what this program limits itself: waits for locks, large loads, idle sessions.
            "lock_timeout": "0",
            "transaction_timeout": "0",
            "idle_session_timeout": "0",
            "TimeZone": "UTC",
            "DateStyle": "ISO",
            "bytea_output": "hex",
            # A notice about a COMMIT is a warning, or worse (Note [Unknown outcomes] in ``database``).
            "client_min_messages": "warning",
            "standard_conforming_strings": "on",
            # Each statement sees what had been replayed when it began (Note [Known before] in ``cache/invalidation_poll``).
            "default_transaction_isolation": "read committed",
            # See Note [Plans that last] in svc/storage/sql/access_facts.py.
            "plan_cache_mode": "force_generic_plan",
            "enable_seqscan": "off",
            "enable_bitmapscan": "off",
            "jit": "off",
        }
        self._parameters = {**_DEFAULTS, **dsn_parameters(dsn), "client_encoding": "UTF8"}

    @property
    def suits_one(self) -> bool:
        """Return whether only one of several hosts can suit: the primary."""
        return self._parameters.get("target_session_attrs") in _SINGLE_SUITABLE

    def session_settings(self, *, read_only: bool) -> Mapping[str, str]:
        """Return what a session is to be set to once it is connected, by the names of ``pg_settings``.

        :param read_only: whether PostgreSQL is to refuse writes in this session. A session that writes keeps the setting of
            the database and the role: by that, a database that is nearly full may be made read-only.
        """
        return {**self._settings, "default_transaction_read_only": "on"} if read_only else self._settings

    async def resolve_parameters(self, *, read_only: bool) -> Mapping[str, str]:
        """Return the parameters of libpq, with the addresses that its host names have now (Note [Names before connecting]).

        :param read_only: whether the session is for reads alone.
        :raises StoreUnavailable: a host name has no address now.
        """
        parameters = self._parameters
        if read_only and parameters.get("target_session_attrs") == "read-write":  # Note [Several hosts]
            parameters = {**parameters, "target_session_attrs": "primary"}
        hosts = parameters.get("host", "").split(",")
        if "hostaddr" in parameters or not any(map(_is_name, hosts)):
            return parameters
        ports = parameters.get("port", "").split(",")
        found = [
            (host, address, port)
            for host, port in zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False)
            for address in (await resolve_name(self._reactor.nameResolver, host) if _is_name(host) else [""])
        ]
        if not found:
            raise StoreUnavailable(f"the database's host name has no address: {', '.join(filter(_is_name, hosts))}")
        columns = (",".join(column) for column in zip(*found, strict=True))
        return {**parameters, **dict(zip(("host", "hostaddr", "port"), columns, strict=True))}

    async def list_alternatives(self, *, read_only: bool) -> list[Mapping[str, str]]:
        """Return parameters as ``parameters`` does: for each host, and each address of one, where only one can suit, else
        for all of them (Note [Side by side] in ``hosts``).
        """
        parameters = await self.resolve_parameters(read_only=read_only)
        if parameters.get("target_session_attrs") not in _SINGLE_SUITABLE:
            return [parameters]
        return [{**parameters, **place} for place in _split_hosts(parameters)]

    async def list_hosts(self) -> list[Mapping[str, str]]:
        """Return where each of the hosts is, and each address of one: ``host``, ``hostaddr``, ``port``, as far as given.

        :raises StoreUnavailable: a host name has no address now.
        """
        return _split_hosts(await self.resolve_parameters(read_only=True))


def _split_hosts(parameters: Mapping[str, str]) -> list[Mapping[str, str]]:
    columns = {name: parameters[name].split(",") for name in ("host", "hostaddr", "port") if parameters.get(name)}
    count = max((len(values) for name, values in columns.items() if name != "port"), default=1)
    # A single port is that of all hosts.
    return [
        {name: values[number] if len(values) > 1 else values[0] for name, values in columns.items()}
        for number in range(count)
    ]


def dsn_parameters(dsn: str) -> dict[str, str]:
    """Return the parameters that a DSN gives, by the names of libpq.

    :raises ConfigurationInvalid: it can't be read, or libpq doesn't accept a value (Note [What is repeated]).
    """
    if _SECOND_AT.match(dsn):
        raise _invalid_dsn("has more than one @ before the path: write @ in a password as %40")
    try:
        given: dict[str, str] = psycopg2.extensions.parse_dsn(dsn)
    except psycopg2.Error as error:
        raise _invalid_dsn(_describe_unreadable(dsn, str(error))) from None
    except ValueError:  # of an escape, or of the text itself
        raise _invalid_dsn("has bytes that are no text: write % in a password as %25") from None
    faulty = _find_bad_value(given)
    if faulty is not None:
        remedy = "; write / in a password as %2F" if faulty == "port" and dsn.startswith(_SCHEMES) else ""
        raise _invalid_dsn(f"has {f'a value of {faulty}' if faulty else 'a value'} that libpq doesn't accept{remedy}")
    return given


def without_secrets(dsn: str) -> str:
    """Return a DSN without its parameters that are secrets, or that may hold some.

    :raises ConfigurationInvalid: it can't be read.
    """
    given = dsn_parameters(dsn)
    shown = {name: value for name, value in given.items() if name == "passfile" or not _WITH_SECRET.search(name)}
    return str(psycopg2.extensions.make_dsn(**dict(sorted(shown.items()))))


def _invalid_dsn(message: str) -> ConfigurationInvalid:
    return ConfigurationInvalid("database_url", message)


def _describe_unreadable(dsn: str, error: str) -> str:
    if "percent-encoded" in error:
        return "has a % that begins no escape: write % in a password as %25"
    unknown = _UNKNOWN_WORD.search(error)
    if unknown is not None:
        plain = unquote(dsn)
        after, before = plain.partition(unknown["word"])[2], plain.rpartition(unknown["word"])[0]
        is_whole = _HOSTS.match(dsn) and "@" not in after if dsn.startswith(_SCHEMES) else _KNOWN_WORD.search(dsn)
        if is_whole and not _SECRET.search(before):
            return f"can't be read by libpq: {unknown[0]}"
    return "is neither a PostgreSQL URL nor key=value pairs"


def _find_bad_value(given: Mapping[str, str]) -> str | None:
    """Return the parameter with a value that libpq doesn't accept, empty if it isn't known; ``None`` where there is none.

    libpq compares values before it connects; so it is given a socket that isn't there, and neither what a socket can't do
    (encryption by GSSAPI), nor hosts or ports beside those of a service file or the environment.
    """
    for name in _INTEGERS:
        if not re.fullmatch("-?[0-9]*", given.get(name, "").strip()):
            return name
    port, security = given.get("port", ""), given.get("gssencmode", "require")
    count = (given.get("hostaddr") or given.get("host") or port).count(",") + 1
    place = {"hostaddr": "", "host": ",".join([_NOWHERE] * count), "port": port, "connect_timeout": "2"}
    try:
        psycopg2.connect(**{**given, **place, "gssencmode": "disable" if security == "require" else security}).close()
    except psycopg2.Error as error:
        reason = next((line for line in str(error).splitlines() if not line.startswith(_NOT_REACHED)), None)
        if reason is None:
            return None
        words = {*re.findall(r"\w+", reason.partition('"')[0]), *re.findall(r'"(\w+)"', reason)}
        return next((name for name in given if name in words), "")
    return None


def _is_name(host: str) -> bool:
    """Return whether a host is to be looked up: it is no address and no socket."""
    if not host or host.startswith(("/", "@")):
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False
