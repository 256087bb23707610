"""Where PostgreSQL is, how libpq connects to it, and the settings that its sessions get then.

Note [Names before connecting]

libpq would block the reactor while it looks a name up. So the reactor resolves names first, and hands them over as
``hostaddr`` beside ``host``, which the check of a TLS certificate still needs.

Note [Several hosts]

Of several hosts, libpq takes the one that matches ``target_session_attrs``. A primary may be read-only for a while, and
libpq finds no ``read-write`` host then: for a session for reads, that value is treated as ``primary``. Where reads may
go to standbys (``storage/read_routing``), each host, and each address of a name, is tried on its own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final, Literal

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


def milliseconds(seconds: float) -> int:
    """Return seconds as milliseconds, for PostgreSQL's settings; at least 1, since 0 means no limit."""
    return max(1, round(seconds * 1000))


def with_attributes(dsn: str, attributes: Literal["primary", "standby"], **place: str) -> str:
    """Return a DSN for sessions with a primary, or a standby, alone; with other hosts where ``place`` names them.

    :raises ConfigurationInvalid: it cannot be read.
    """
    try:
        return str(psycopg2.extensions.make_dsn(dsn, **place, target_session_attrs=attributes))
    except psycopg2.Error:
        raise _invalid_dsn() from None


def _invalid_dsn() -> ConfigurationInvalid:
    return ConfigurationInvalid("database_url", "is neither a PostgreSQL URL nor key=value pairs")


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

    :raises ConfigurationInvalid: it cannot be read. It holds a password, perhaps, and is not repeated.
    """
    try:
        given: dict[str, str] = psycopg2.extensions.parse_dsn(dsn)
    except psycopg2.Error:
        raise _invalid_dsn() from None
    return given


def _is_name(host: str) -> bool:
    """Return whether a host is to be looked up: it is no address and no socket."""
    if not host or host.startswith(("/", "@")):
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False
