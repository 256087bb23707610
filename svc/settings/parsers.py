"""Parsers of settings' values: texts of the command line and the environment, and values of a TOML file.

A parser reads both into one type. It refuses with a ``ValueError`` whose message ends a sentence that begins with the
setting's name.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import attrs

from svc.model.dialect import CLOUD_NAMES, Dialect, dialect_named
from svc.model.errors import ConfigurationInvalid, InvalidName
from svc.model.hosts import DNS_NAME, HOST_LIMIT, IPV6
from svc.model.names import RESERVED_ACCOUNT, account_name, identifier
from svc.model.query_results import ClusterMember, Network

T = TypeVar("T")

#: The name that stands for standard output where a file is expected.
STANDARD_OUTPUT: Final = Path("-")

#: The type of authenticator that is listed bare, and those that are listed as ``<type>/<service id>``.
_BARE_TYPE: Final = "authn"
_SERVICE_TYPES: Final = ("authn-jwt", "authn-ldap", *CLOUD_NAMES)

#: How many other servers a cluster may have: a look at all of them asks each.
_MEMBERS_LIMIT: Final = 100

_URL: Final = re.compile(
    rf"(?P<scheme>https?)://(?P<host>{IPV6}|{DNS_NAME})(?::(?P<port>[0-9]{{1,5}}))?"
    r"(?P<path>(?:/[A-Za-z0-9._~-]+)*)/?",
    re.ASCII,
)
_URL_LIMIT: Final = 2048

_HOST: Final = re.compile(DNS_NAME, re.ASCII)
_WHOLE: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)

_FLAGS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_SWITCHES: Final = {"on": True, "off": False, **_FLAGS}


@attrs.frozen
class Parser(Generic[T]):
    """A parser of one kind of value. ``metavar`` stands for it in help texts; a flag has none, since its name says true."""

    metavar: str | None
    from_text: Callable[[str], T]
    from_toml: Callable[[Any], T]


def _scalar(metavar: str, read: Callable[[str], T], noun: str = "a text in quotation marks", *toml: type) -> Parser[T]:
    types = toml or (str,)

    def from_toml(value: object) -> T:
        # Not isinstance: Python's true is the number 1, TOML's isn't.
        if type(value) not in types:
            raise ValueError(f"must be {noun}")
        return read(str(value))

    return Parser(metavar, read, from_toml)


def _several(
    metavar: str, read: Callable[[str], T], *, separator: str | None = ",", empty: tuple[T, ...] | None = ()
) -> Parser[tuple[T, ...]]:
    """Return a parser of lists: a text is split at ``separator``, where ``None`` stands for blanks; in TOML a list of texts.

    Blanks around items, empty items and repeated ones are dropped. An empty list is ``empty``, or refused if that is None.
    """

    def of_items(items: Iterable[str]) -> tuple[T, ...]:
        trimmed = (item.strip() for item in items)
        values = tuple(dict.fromkeys(read(item) for item in trimmed if item)) or empty
        if values is None:
            raise ValueError("must list at least one")
        return values

    def from_toml(value: object) -> tuple[T, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError("must be a list of texts")
        return of_items(value)

    return Parser(metavar, lambda text: of_items(text.split(separator)), from_toml)


def _number(read: Callable[[str], T], pattern: re.Pattern[str], low: T, high: T, what: str) -> Callable[[str], T]:
    def number(text: str) -> T:
        value = read(text) if pattern.fullmatch(text) else None
        # Both bounds are numbers of the type that was read.
        if value is None or not low <= value <= high:  # type: ignore[operator]
            raise ValueError(f"must be {what} from {low} to {high}, not {_shown(text)}")
        return value

    return number


def whole(low: int, high: int, metavar: str) -> Parser[int]:
    """Return a parser of whole numbers from ``low`` to ``high``, both included."""
    return _scalar(metavar, _number(int, _WHOLE, low, high, "a whole number"), "a whole number", int)


def decimal(low: float, high: float, metavar: str) -> Parser[float]:
    """Return a parser of numbers from ``low`` to ``high``, both included; fractions are written with a point."""
    return _scalar(metavar, _number(float, _DECIMAL, low, high, "a number"), "a number", int, float)


def decimal_or_off(low: float, high: float, metavar: str) -> Parser[float | None]:
    """Return a parser of numbers like :func:`decimal`'s, or of the word ``off``, which is read as ``None``."""
    number = _number(float, _DECIMAL, low, high, "off, or a number")

    def read(text: str) -> float | None:
        return None if text.lower() == "off" else number(text)

    return _scalar(metavar, read, 'a number or "off"', int, float, str)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _word(values: Mapping[str, T], known: str) -> Callable[[str], T]:
    def word(text: str) -> T:
        if text.lower() not in values:
            raise ValueError(f"must be {known}, not {_shown(text)}")
        return values[text.lower()]

    return word


def _toml_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false, without quotation marks")
    return value


def _secret(text: str) -> str:
    if not text or "\x00" in text:
        raise ValueError("may not be empty, nor hold a NUL character")
    return text


def _path(text: str) -> Path:
    # Absolute at once: twistd changes the current directory before the server starts.
    return Path(os.path.abspath(os.path.expanduser(_secret(text))))


def _audit_file(text: str) -> Path:
    return STANDARD_OUTPUT if text == str(STANDARD_OUTPUT) else _path(text)


def _account(text: str) -> str:
    if text == RESERVED_ACCOUNT:
        raise ValueError("is the name of the service's own account")
    try:
        return account_name(text)
    except InvalidName as refusal:
        raise ValueError(f"is no name for an account: {refusal.message}") from None


def _dialect(text: str) -> Dialect:
    try:
        return dialect_named(text)
    except ConfigurationInvalid as refusal:
        raise ValueError(refusal.message) from None


def _audit_failure(text: str) -> str:
    if text not in {"refuse", "continue"}:
        raise ValueError(f"must be refuse or continue, not {_shown(text)}")
    return text


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"must list networks such as 10.0.0.0/8: {error}") from None


def _authenticator(text: str) -> str:
    kind, _, service_id = text.partition("/")
    if text == _BARE_TYPE:
        return text
    if kind not in _SERVICE_TYPES:
        known = ", ".join((_BARE_TYPE, *(f"{name}/<service id>" for name in _SERVICE_TYPES)))
        raise ValueError(f"names an authenticator of unknown type, {_shown(text)}; known are {known}")
    try:
        identifier(service_id)
    except InvalidName:
        raise ValueError(f"names {_shown(text)}, which needs a service id: {kind}/<service id>") from None
    return text


def _member(name: str, url: str, ca: str | None = None) -> ClusterMember:
    """Return another server of the cluster (HEALTH-18)."""
    if len(name) > HOST_LIMIT or not _HOST.fullmatch(name):
        raise ValueError(f"names {_shown(name)}, which is no name of a host")
    address = _URL.fullmatch(url) if len(url) <= _URL_LIMIT else None
    # What is wrong may be a password that stands in it, so it isn't repeated.
    if address is None or not 0 < int(address["port"] or 1) < 1 << 16 or not _is_host(address["host"]):
        raise ValueError(f"gives {name} no address of the form https://host[:port][/path], without user, query and fragment")
    secure = address["scheme"] == "https"
    if not secure and not _is_this_machine(address["host"]):
        raise ValueError(
            f"gives {name} an http address of another machine, whose answers anybody between could forge: use https"
        )
    if not secure and ca is not None:
        raise ValueError(f"gives {name} a ca, which is for https alone")
    return ClusterMember(name, url.rstrip("/"), None if ca is None else _path(ca))


def _is_host(host: str) -> bool:
    try:
        return not host.startswith("[") or bool(ipaddress.IPv6Address(host.strip("[]")))
    except ValueError:
        return False


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return f".{host.lower()}".endswith(".localhost")


def _members(members: Iterable[ClusterMember]) -> tuple[ClusterMember, ...]:
    found: dict[str, ClusterMember] = {}
    for member in members:
        # Names of hosts that differ in case alone are the same.
        if found.setdefault(member.name.lower(), member) is not member:
            raise ValueError(f"names {member.name} twice")
    if len(found) > _MEMBERS_LIMIT:
        raise ValueError(f"names {len(found)} servers, more than {_MEMBERS_LIMIT}")
    return tuple(found.values())


def _members_of_text(text: str) -> tuple[ClusterMember, ...]:
    def member(item: str) -> ClusterMember:
        name, equals, url = item.partition("=")
        if not equals:
            raise ValueError("must list servers as NAME=URL, such as b.example=https://b.example:8443")
        return _member(name.strip(), url.strip())

    return _members(member(item.strip()) for item in text.split(",") if item.strip())


def _members_of_toml(value: object) -> tuple[ClusterMember, ...]:
    def member(table: dict[str, object]) -> ClusterMember:
        unknown = sorted(table.keys() - {"name", "url", "ca"})
        if unknown:
            raise ValueError(f"has a table with {_shown(unknown[0])}; known are name, url and ca")
        name, url, ca = table.get("name"), table.get("url"), table.get("ca")
        if not isinstance(name, str) or not isinstance(url, str) or not isinstance(ca, str | None):
            raise ValueError("must give each server a name and a url, and may give it a ca, all of them texts")
        return _member(name, url, ca)

    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("must be written as tables, [[cluster]], each with name, url and perhaps ca")
    return _members(map(member, value))


FLAG: Final = Parser(None, _word(_FLAGS, "true or false"), _toml_flag)
SWITCH: Final = _scalar("on|off", _word(_SWITCHES, "on or off"), '"on" or "off"', str, bool)
TEXT: Final = _scalar("TEXT", _secret)
PATH: Final = _scalar("PATH", _path)
DIALECT: Final = _scalar("DIALECT", _dialect)
AUDIT_FILE: Final = _scalar("PATH", _audit_file)
AUDIT_FAILURE: Final = _scalar("refuse|continue", _audit_failure)
ACCOUNT: Final = _scalar("NAME", _account)
ENDPOINT: Final = _scalar("ENDPOINT", _secret)
ENDPOINTS: Final = _several("ENDPOINT", str, separator=None, empty=None)
NETWORKS: Final = _several("CIDRS", _network)
AUTHENTICATORS: Final = _several("LIST", _authenticator, empty=(_BARE_TYPE,))
CLUSTER: Final = Parser("NAME=URL", _members_of_text, _members_of_toml)
