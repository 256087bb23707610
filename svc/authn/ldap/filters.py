"""Search filters (RFC 4515): a template from policy, and the login that is put into it, or the name of a person's entry.

Note [Structure first]. The template is parsed, and the login then becomes part of a comparison's value. So nothing in a
login could be taken for a parenthesis, an asterisk or an escape. Within a distinguished name, which has a structure of its
own, it is escaped as RFC 4514 says. The name of an entry is a whole value by itself, as the directory wrote it.
``ldaptor.ldapfilter`` isn't used: it takes the escape of an octet above 127 for two octets and exceeds Python's stack on a
template of 300 parentheses.
"""

from __future__ import annotations

import re
from typing import Final

from ldaptor.protocols import pureldap

from svc.model.ldap_directories import ENTRY_PLACEHOLDER, PLACEHOLDER, escape_dn_value

#: The longest template, in characters, and how deep its parentheses may be nested.
TEMPLATE_LIMIT: Final = 2048
_DEPTH: Final = 16

_ATTRIBUTE: Final = r"[A-Za-z0-9][A-Za-z0-9.-]*(?:;[A-Za-z0-9-]+)*"
_COMPARISON: Final = re.compile(
    rf"(?P<attribute>{_ATTRIBUTE})?(?P<dn>:dn)?(?::(?P<rule>[A-Za-z0-9][A-Za-z0-9.-]*))?(?P<sign>:=|~=|>=|<=|=)"
    rf"(?P<value>[^()\0]*)",
    re.ASCII,
)
_ESCAPE: Final = re.compile(rb"\\([0-9A-Fa-f]{2})")
_SIGNS: Final = {
    "=": pureldap.LDAPFilter_equalityMatch,
    "~=": pureldap.LDAPFilter_approxMatch,
    ">=": pureldap.LDAPFilter_greaterOrEqual,
    "<=": pureldap.LDAPFilter_lessOrEqual,
}
#: The comparisons that may hold the login: they find one entry by one value.
_SELECTIVE: Final = ("=", "~=", ":=")

_EXACT: Final = ("=", ":=")


class InvalidTemplate(ValueError):
    """A text is no usable template; the message says why."""


def search_filter(template: str, login: str) -> pureldap.LDAPFilter:
    """Read a template, with the login in the place of each ``%s`` (Note [Structure first]).

    ``%s`` must stand somewhere, and in nothing but the values of ``=``, ``~=`` and ``:=`` that have no asterisk.

    :raises InvalidTemplate: it is no filter, or has the login elsewhere, or nowhere.
    """
    if PLACEHOLDER not in template:
        raise InvalidTemplate(f"it has no {PLACEHOLDER} where the login is to stand")
    return _parse_template(template, login, None)


def group_filter(template: str, login: str, dn: bytes) -> pureldap.LDAPFilter:
    """Read a template for the groups of a person, with the name of the person's entry in the place of each ``%d``.

    ``%d`` is the whole value of a ``=`` or ``:=``. ``%s`` is as in ``search_filter``; one of them must stand somewhere.

    :raises InvalidTemplate: as ``search_filter``.
    """
    if PLACEHOLDER not in template and ENTRY_PLACEHOLDER not in template:
        raise InvalidTemplate(f"it has no {ENTRY_PLACEHOLDER} where the person's entry is to stand, nor {PLACEHOLDER}")
    return _parse_template(template, login, dn)


def _parse_template(template: str, login: str, dn: bytes | None) -> pureldap.LDAPFilter:
    if len(template) > TEMPLATE_LIMIT:
        raise InvalidTemplate(f"it has more than {TEMPLATE_LIMIT} characters")
    parser = _FilterParser(template, login, dn)
    found = parser.parse_filter(_DEPTH)
    if parser.offset != len(template):
        raise InvalidTemplate(f"something follows its last parenthesis, at character {parser.offset + 1}")
    return found


class _FilterParser:
    """The parser of a template; ``offset`` is the offset that it has reached."""

    def __init__(self, text: str, login: str, dn: bytes | None) -> None:
        self.offset = 0
        self._text = text
        self._login = login
        self._dn = dn

    def parse_filter(self, depth: int) -> pureldap.LDAPFilter:
        """Read a filter, from its parenthesis to the one that closes it."""
        if depth == 0:
            raise InvalidTemplate(f"its parentheses are nested deeper than {_DEPTH}")
        self._expect_character("(")
        match self._text[self.offset : self.offset + 1]:
            case "&":
                found = pureldap.LDAPFilter_and(self._parse_filters(depth))
            case "|":
                found = pureldap.LDAPFilter_or(self._parse_filters(depth))
            case "!":
                self.offset += 1
                found = pureldap.LDAPFilter_not(self.parse_filter(depth - 1))
            case _:
                found = self._parse_comparison()
        self._expect_character(")")
        return found

    def _parse_filters(self, depth: int) -> list[pureldap.LDAPFilter]:
        self.offset += 1
        found = [self.parse_filter(depth - 1)]
        while self._text.startswith("(", self.offset):
            found.append(self.parse_filter(depth - 1))
        return found

    def _expect_character(self, character: str) -> None:
        if not self._text.startswith(character, self.offset):
            raise InvalidTemplate(f"there must be a {character!r} at character {self.offset + 1}")
        self.offset += 1

    def _parse_comparison(self) -> pureldap.LDAPFilter:
        match = _COMPARISON.match(self._text, self.offset)
        if match is None:
            raise InvalidTemplate(f"there is no comparison, such as uid={PLACEHOLDER}, at character {self.offset + 1}")
        self.offset = match.end()
        attribute, dn, rule, sign, value = match.group("attribute", "dn", "rule", "sign", "value")
        if sign == ":=" and not (attribute or rule):
            raise InvalidTemplate("a comparison with := needs an attribute or a rule")
        if sign != ":=" and (attribute is None or dn or rule):
            raise InvalidTemplate(f"a comparison with {sign} needs an attribute, and nothing else before the sign")
        if PLACEHOLDER in value and (sign not in _SELECTIVE or "*" in value):
            raise InvalidTemplate(f"{PLACEHOLDER} may stand only in the value of =, ~= or :=, without an asterisk")
        if self._dn is not None and ENTRY_PLACEHOLDER in value and (value != ENTRY_PLACEHOLDER or sign not in _EXACT):
            raise InvalidTemplate(f"{ENTRY_PLACEHOLDER} may be nothing but the whole value of = or :=")
        if sign == "=" and value == "*":
            return pureldap.LDAPFilter_present(attribute)
        if sign == "=" and "*" in value:
            return self._parse_substrings(attribute, value)
        if "*" in value:
            raise InvalidTemplate(f"a comparison with {sign} can't have an asterisk")
        asked = self._fill_value(value)
        if sign == ":=":
            return pureldap.LDAPFilter_extensibleMatch(rule, attribute, asked, dnAttributes=bool(dn))
        return _SIGNS[sign](pureldap.LDAPAttributeDescription(attribute), pureldap.LDAPAssertionValue(asked))

    def _parse_substrings(self, attribute: str, value: str) -> pureldap.LDAPFilter:
        first, *middle, last = value.split("*")
        parts = [pureldap.LDAPFilter_substrings_any(_unescape_value(part)) for part in middle if part]
        if first:
            parts.insert(0, pureldap.LDAPFilter_substrings_initial(_unescape_value(first)))
        if last:
            parts.append(pureldap.LDAPFilter_substrings_final(_unescape_value(last)))
        if not parts:
            raise InvalidTemplate("a comparison has nothing but asterisks")
        return pureldap.LDAPFilter_substrings(type=attribute, substrings=parts)

    def _fill_value(self, value: str) -> bytes:
        """Return the octets of a value with the login in it: as it is or, in a distinguished name, escaped."""
        if self._dn is not None and value == ENTRY_PLACEHOLDER:
            return self._dn
        parts = value.split(PLACEHOLDER)
        login = escape_dn_value(self._login) if "=" in parts[0] else self._login
        return login.encode("utf-8").join(map(_unescape_value, parts))


def _unescape_value(text: str) -> bytes:
    r"""Return the octets of a value, in which ``\2a`` is the octet 2a."""
    octets = text.encode("utf-8")
    if octets.count(b"\\") != len(_ESCAPE.findall(octets)):
        raise InvalidTemplate(r"a backslash must be followed by two hexadecimal digits, as in \2a")
    return _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode("ascii")), octets)
