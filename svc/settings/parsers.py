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

from svc.model.databases import ClusterMember
from svc.model.dialect import CLOUD_NAMES, SINGLE_TYPES, UNSERVED, Dialect, find_dialect
from svc.model.errors import ConfigurationInvalid, InvalidName
from svc.model.listed_authenticators import is_pattern, is_sound_pattern
from svc.model.names import RESERVED_ACCOUNT, check_account_name, check_identifier
from svc.model.query_results import Network
from svc.model.web_address import DNS_NAME, HOST_LIMIT, IPV6

T = TypeVar("T")

#: The name that stands for standard output where a file is expected.
STANDARD_OUTPUT: Final = Path("-")

#: Where reads go: to the PostgreSQL that takes writes, or to a standby of it.
PRIMARY: Final = "primary"
STANDBY: Final = "standby"

_VERSION: Final = re.compile(r"(?:0|[1-9][0-9]{0,5})(?:\.(?:0|[1-9][0-9]{0,5})){2}", re.ASCII)

#: The types of authenticators that are listed bare, the first always, and those that are listed as ``<type>/<service id>``.
_BARE_TYPE: Final = "authn"
_BARE_TYPES: Final = (_BARE_TYPE, *SINGLE_TYPES)
SERVICE_TYPES: Final = ("authn-jwt", "authn-iam", "authn-ldap", "authn-oidc", *CLOUD_NAMES)

#: The most other servers of a cluster: a view of all of them queries each.
_MEMBERS_LIMIT: Final = 100

_URL: Final = re.compile(
    rf"(?P<scheme>https?)://(?P<host>{IPV6}|{DNS_NAME})(?::(?P<port>[0-9]{{1,5}}))?"
    r"(?P<path>(?:/[A-Za-z0-9._~-]+)*)/?",
    re.ASCII,
)
_URL_LIMIT: Final = 2048
_USUAL_PORTS: Final = {"http": 80, "https": 443}

_HOST: Final = re.compile(DNS_NAME, re.ASCII)
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]{2,20}){1,3}-[0-9]{1,2}", re.ASCII)
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


def _scalar_parser(
    metavar: str, read: Callable[[str], T], expected: str = "a text in quotation marks", *toml: type
) -> Parser[T]:
    types = toml or (str,)

    def from_toml(value: object) -> T:
        # Not isinstance: Python's true is the number 1, TOML's isn't.
        if type(value) not in types:
            raise ValueError(f"must be {expected}")
        return read(str(value))

    return Parser(metavar, read, from_toml)


def _list_parser(
    metavar: str, read: Callable[[str], T], *, separator: str | None = ",", empty: tuple[T, ...] | None = ()
) -> Parser[tuple[T, ...]]:
    """Return a parser of lists: a text is split at ``separator``, where ``None`` stands for blanks; in TOML a list of texts.

    Blanks around items, empty items and repeated ones are dropped. An empty list is ``empty``, or refused if that is None.
    """

    def parse_items(items: Iterable[str]) -> tuple[T, ...]:
        trimmed = (item.strip() for item in items)
        values = tuple(dict.fromkeys(read(item) for item in trimmed if item)) or empty
        if values is None:
            raise ValueError("must list at least one")
        return values

    def from_toml(value: object) -> tuple[T, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError("must be a list of texts")
        return parse_items(value)

    return Parser(metavar, lambda text: parse_items(text.split(separator)), from_toml)


def _number_reader(read: Callable[[str], T], pattern: re.Pattern[str], low: T, high: T, what: str) -> Callable[[str], T]:
    def read_number(text: str) -> T:
        value = read(text) if pattern.fullmatch(text) else None
        # Both bounds are numbers of the type that was read.
        if value is None or not low <= value <= high:  # type: ignore[operator]
            raise ValueError(f"must be {what} from {low} to {high}, not {_quote_text(text)}")
        return value

    return read_number


def whole_number(low: int, high: int, metavar: str) -> Parser[int]:
    """Return a parser of whole numbers from ``low`` to ``high``, both included."""
    return _scalar_parser(metavar, _number_reader(int, _WHOLE, low, high, "a whole number"), "a whole number", int)


def decimal_number(low: float, high: float, metavar: str) -> Parser[float]:
    """Return a parser of numbers from ``low`` to ``high``, both included; fractions are written with a point."""
    return _scalar_parser(metavar, _number_reader(float, _DECIMAL, low, high, "a number"), "a number", int, float)


def decimal_or_off(low: float, high: float, metavar: str) -> Parser[float | None]:
    """Return a parser of numbers like :func:`decimal_number`'s, or of the word ``off``, which is read as ``None``."""
    number = _number_reader(float, _DECIMAL, low, high, "off, or a number")

    def read(text: str) -> float | None:
        return None if text.lower() == "off" else number(text)

    return _scalar_parser(metavar, read, 'a number or "off"', int, float, str)


def whole_or_auto(low: int, high: int, metavar: str) -> Parser[int | None]:
    """Return a parser of numbers like :func:`whole_number`'s, or of the word ``auto``, which is read as ``None``."""
    number = _number_reader(int, _WHOLE, low, high, "auto, or a whole number")

    def read(text: str) -> int | None:
        return None if text.lower() == "auto" else number(text)

    return _scalar_parser(metavar, read, 'a whole number or "auto"', int, str)


def _quote_text(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _word_reader(values: Mapping[str, T], known: str) -> Callable[[str], T]:
    def read_word(text: str) -> T:
        if text.lower() not in values:
            raise ValueError(f"must be {known}, not {_quote_text(text)}")
        return values[text.lower()]

    return read_word


def _toml_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false, without quotation marks")
    return value


def _read_text(text: str) -> str:
    if not text or "\x00" in text:
        raise ValueError("may not be empty, nor hold a NUL character")
    return text


def _read_path(text: str) -> Path:
    # Absolute at once: twistd changes the current directory before the server starts.
    return Path(os.path.abspath(os.path.expanduser(_read_text(text))))


def _read_audit_file(text: str) -> Path:
    return STANDARD_OUTPUT if text == str(STANDARD_OUTPUT) else _read_path(text)


def _read_account(text: str) -> str:
    if text == RESERVED_ACCOUNT:
        raise ValueError("is the name of the service's own account")
    try:
        return check_account_name(text)
    except InvalidName as refusal:
        raise ValueError(f"is no name for an account: {refusal.message}") from None


def _read_dialect(text: str) -> Dialect:
    try:
        return find_dialect(text)
    except ConfigurationInvalid as refusal:
        raise ValueError(refusal.message) from None


def choice_parser(*words: str) -> Parser[str]:
    """Return the parser of a setting that is one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be {', '.join(words[:-1])} or {words[-1]}, not {_quote_text(text)}")
        return text

    return _scalar_parser("|".join(words), read)


def _read_version(text: str) -> str:
    if not _VERSION.fullmatch(text):
        raise ValueError(f"must be a version such as 1.23.0, not {_quote_text(text)}")
    return text


def _read_network(text: str) -> Network:
    if "%" in text:
        raise ValueError(f"must list networks such as 10.0.0.0/8, without a zone, not {_quote_text(text)}")
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"must list networks such as 10.0.0.0/8: {error}") from None


def _or_none(parser: Parser[tuple[Network, ...]]) -> Parser[tuple[Network, ...]]:
    """Return a parser of lists that takes the word ``none`` for an empty one."""

    def check_items(items: list[str]) -> tuple[Network, ...]:
        items = [item.strip() for item in items if item.strip()]
        if len(items) > 1 and "none" in items:
            raise ValueError("must be none alone, which trusts nobody, or list networks")
        if wrong := next((item for item in items if item.lower() == "none" and item != "none"), None):
            raise ValueError(f"must be none in small letters where nobody is trusted, not {_quote_text(wrong)}")
        return () if items == ["none"] else parser.from_toml(items)

    def from_toml(value: object) -> tuple[Network, ...]:
        texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return check_items(value) if isinstance(value, list) and texts else parser.from_toml(value)

    return Parser(parser.metavar, lambda text: check_items(text.split(",")), from_toml)


def _read_authenticator(text: str) -> str:
    kind, _, service_id = text.partition("/")
    if text in _BARE_TYPES:
        return text
    if is_pattern(kind):
        raise ValueError(f"names {_quote_text(text)}, where a type is a pattern: write each type, such as authn-jwt/*")
    if kind in SINGLE_TYPES:
        raise ValueError(f"names {_quote_text(text)}; an account has one of that type, without a service id: {kind}")
    if kind in UNSERVED:
        raise ValueError(f"names {_quote_text(text)}, but {UNSERVED[kind]}")
    if kind not in SERVICE_TYPES:
        known = ", ".join((*_BARE_TYPES, *(f"{name}/<service id>" for name in SERVICE_TYPES)))
        raise ValueError(f"names an authenticator of unknown type, {_quote_text(text)}; known are {known}")
    try:
        check_identifier(service_id)
    except InvalidName:
        raise ValueError(f"names {_quote_text(text)}, which needs a service id: {kind}/<service id>") from None
    if is_pattern(service_id) and not is_sound_pattern(service_id):
        raise ValueError(
            f"names {_quote_text(text)}; a pattern has one *, at the end of a part between slashes: {kind}/*, {kind}/team-*"
        )
    return text


def _read_member(name: str, url: str, ca: str | None = None) -> ClusterMember:
    """Return another server of the cluster (HEALTH-18)."""
    if len(name) > HOST_LIMIT or not _HOST.fullmatch(name):
        raise ValueError(f"names {_quote_text(name)}, which is no name of a host")
    address = _URL.fullmatch(url) if len(url) <= _URL_LIMIT else None
    # The faulty part may be a password in the address, so it isn't repeated.
    if address is None or not 0 < int(address["port"] or 1) < 1 << 16 or not _is_host(address["host"]):
        raise ValueError(f"gives {name} no address of the form https://host[:port][/path], without user, query and fragment")
    secure = address["scheme"] == "https"
    if not secure and not _is_this_machine(address["host"]):
        raise ValueError(
            f"gives {name} an http address of another machine, whose answers anybody between could forge: use https"
        )
    if not secure and ca is not None:
        raise ValueError(f"gives {name} a ca, which is for https alone")
    return ClusterMember(name, url.rstrip("/"), None if ca is None else _read_path(ca))


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


def _read_region(text: str) -> str:
    if not _REGION.fullmatch(text):
        raise ValueError(f"must list regions such as eu-west-1, not {_quote_text(text)}")
    return text


def _read_http_address(text: str) -> str:
    address = _URL.fullmatch(text) if len(text) <= _URL_LIMIT else None
    if address is None or not 0 < int(address["port"] or 1) < 1 << 16 or not _is_host(address["host"]):
        raise ValueError(f"must be an address of the form https://host[:port][/path], not {_quote_text(text)}")
    return text


def _read_origin(text: str) -> str:
    """Return an address that browsers know, in the form of the header ``Origin``: no path, and no usual port."""
    scheme, slashes, rest = text.partition("://")
    address = _URL.fullmatch(f"{scheme.lower()}{slashes}{rest}") if len(text) <= _URL_LIMIT else None
    port = 0 if address is None else int(address["port"] or _USUAL_PORTS[address["scheme"]])
    if address is None or address["path"] or not 0 < port < 1 << 16 or not _is_host(address["host"]):
        raise ValueError(f"must be an address of the form https://host[:port], without a path, not {_quote_text(text)}")
    scheme, host = address["scheme"], address["host"].lower()
    if scheme == "http" and not _is_this_machine(host):
        raise ValueError("must be https: browsers keep no session of another machine without TLS")
    return f"{scheme}://{host}" if port == _USUAL_PORTS[scheme] else f"{scheme}://{host}:{port}"


def _read_token_file(text: str) -> tuple[str, Path]:
    """Return an origin as ``https://host:port``, and the file of its token (AUTH-69)."""
    origin, equals, path = text.partition("=")
    address = _URL.fullmatch(origin.strip()) if len(origin) <= _URL_LIMIT else None
    if not equals or address is None or address["scheme"] != "https" or address["path"] or not _is_host(address["host"]):
        raise ValueError(f"must list files as https://host[:port]=PATH, not {_quote_text(text)}")
    port = int(address["port"] or 443)
    if port not in range(1, 1 << 16):
        raise ValueError(f"names an impossible port: {_quote_text(text)}")
    return f"https://{address['host'].strip('[]').lower()}:{port}", _read_path(path.strip())


def _refuse_duplicates(parser: Parser[tuple[tuple[str, Path], ...]]) -> Parser[tuple[tuple[str, Path], ...]]:
    """Return a parser that refuses two files for one origin."""

    def check_files(files: tuple[tuple[str, Path], ...]) -> tuple[tuple[str, Path], ...]:
        if len(dict(files)) < len(files):
            raise ValueError("names two files for one address")
        return files

    return Parser(
        parser.metavar, lambda text: check_files(parser.from_text(text)), lambda value: check_files(parser.from_toml(value))
    )


def _unique_members(members: Iterable[ClusterMember]) -> tuple[ClusterMember, ...]:
    found: dict[str, ClusterMember] = {}
    for member in members:
        # Names of hosts that differ in case alone are the same.
        if found.setdefault(member.name.lower(), member) is not member:
            raise ValueError(f"names {member.name} twice")
    if len(found) > _MEMBERS_LIMIT:
        raise ValueError(f"names {len(found)} servers, more than {_MEMBERS_LIMIT}")
    return tuple(found.values())


def _parse_members_text(text: str) -> tuple[ClusterMember, ...]:
    def read_item(item: str) -> ClusterMember:
        name, equals, url = item.partition("=")
        if not equals:
            raise ValueError("must list servers as NAME=URL, such as b.example=https://b.example:8443")
        return _read_member(name.strip(), url.strip())

    return _unique_members(read_item(item.strip()) for item in text.split(",") if item.strip())


def _parse_members_toml(value: object) -> tuple[ClusterMember, ...]:
    def read_table(table: dict[str, object]) -> ClusterMember:
        unknown = sorted(table.keys() - {"name", "url", "ca"})
        if unknown:
            raise ValueError(f"has a table with {_quote_text(unknown[0])}; known are name, url and ca")
        name, url, ca = table.get("name"), table.get("url"), table.get("ca")
        if not isinstance(name, str) or not isinstance(url, str) or not isinstance(ca, str | None):
            raise ValueError("must give each server a name and a url, and may give it a ca, all of them texts")
        return _read_member(name, url, ca)

    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("must be written as tables, [[cluster]], each with name, url and perhaps ca")
    return _unique_members(map(read_table, value))


FLAG: Final = Parser(None, _word_reader(_FLAGS, "true or false"), _toml_flag)
SWITCH: Final = _scalar_parser("on|off", _word_reader(_SWITCHES, "on or off"), '"on" or "off"', str, bool)
TEXT: Final = _scalar_parser("TEXT", _read_text)
PATH: Final = _scalar_parser("PATH", _read_path)
DIALECT: Final = _scalar_parser("DIALECT", _read_dialect)
AUDIT_FILE: Final = _scalar_parser("PATH", _read_audit_file)
AUDIT_FAILURE: Final = choice_parser("refuse", "continue")
READ_FROM: Final = choice_parser(PRIMARY, STANDBY)
LOG_FORMAT: Final = choice_parser("text", "json")
LOG_LEVEL: Final = choice_parser("debug", "info", "warn", "error")
VERSION: Final = _scalar_parser("VERSION", _read_version)
ACCOUNT: Final = _scalar_parser("NAME", _read_account)
ADDRESS: Final = _scalar_parser("URL", _read_http_address)
ENDPOINT: Final = _scalar_parser("ENDPOINT", _read_text)
ENDPOINTS: Final = _list_parser("ENDPOINT", str, separator=None, empty=None)
TOKEN_FILES: Final = _refuse_duplicates(_list_parser("URL=PATH", _read_token_file))
REGIONS: Final = _list_parser("LIST", _read_region)
NETWORKS: Final = _list_parser("CIDRS", _read_network)
PROXIES: Final = _or_none(NETWORKS)
ORIGIN: Final = _scalar_parser("URL", _read_origin)
AUTHENTICATORS: Final = _list_parser("LIST", _read_authenticator, empty=(_BARE_TYPE,))
CLUSTER: Final = Parser("NAME=URL", _parse_members_text, _parse_members_toml)
