"""Names of people and groups in mappings, and the names that a directory has for them, as they are compared.

Note [One group by each name]. A name with an equals sign is a distinguished name (RFC 4514), and means that entry. Any
other name N is short for the entry ``cn=N`` right below ``group_base_dn``, and for no other: where groups of the same name
exist in several places, a person who may make groups in one of them can't make members of another. Logins are the ids of
users, and compared as these.

Note [Different to any directory]. Directories disagree about which names are equal: capitals beyond A to Z, letters that are
composed in two ways, repeated blanks, and characters that are like blanks. Where a directory distinguishes two names, a
person who may make groups could name one so that it is mistaken for another here. So only capitals from A to Z equal small
letters, as they do to all directories; names that differ otherwise are different, and give nothing.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from svc.model.ldap_mappings import GROUP, USER, DirectoryName

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
        assertions.append(_Assertion(attribute, _unescape_value(attribute, text)))
        place = found.end()
        end = name[place : place + 1]
        if end in {",", ""}:
            rdns.append(tuple(sorted(assertions)))
            assertions = []
        elif end != "+":
            raise InvalidDirectoryName(f"there is something at character {place + 1} that has to be escaped")
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
