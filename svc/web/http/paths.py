"""The paths of requests as they stand on the wire, and the patterns that routes have.

Note [Raw paths]: ``%2F`` belongs to a name, ``/`` separates. So a path is matched undecoded, and each value is decoded after
it was cut out, strictly (``query``, Note [Strict decoding]); ``/%68ealth`` is not ``/health``. A ``+`` is a ``+``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import attrs
from werkzeug.routing import BaseConverter, Map

from svc.model.errors import InvalidName
from svc.web.http.query import percent_decoded

_ABSOLUTE_ORIGIN: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")
_VARIABLE: Final = re.compile("<(?:([a-z]+):)?([a-z_]+)>")
_OPTIONAL: Final = re.compile("/<optional:([a-z_]+)>")
_ABSENT: Final = re.compile("/<absent:([a-z_]+)>")

#: A slash that may be encoded, in a pattern, and how it may be written in a path.
_EITHER_SLASH: Final = "{/}"
_SLASHES: Final = ("/", "%2F", "%2f")


class _Flat(BaseConverter):
    """One segment that may not hold a slash, not even an encoded one."""

    regex = "(?:[^/%]|%(?!2[Ff]))+"
    part_isolating = True


class _Tail(BaseConverter):
    """One segment or more."""

    regex = ".+"
    part_isolating = False
    weight = 200


class _Raw(BaseConverter):
    """One segment as it stands on the wire."""

    part_isolating = True


class _Optional(BaseConverter):
    """Any number of segments, none included."""

    regex = ".*"
    part_isolating = False
    weight = 200


class _Mapped(BaseConverter):
    """One segment, other than the words that paths of logins end with; encoded, these are names too."""

    regex = r"(?!(?:authenticate|explain)\Z)[^/]+"
    part_isolating = True


_CONVERTERS: Final = {"flat": _Flat, "tail": _Tail, "raw": _Raw, "optional": _Optional, "mapped": _Mapped}


def configure_map(routes: Map) -> None:
    """Teach a map the converters of :class:`Pattern`, and keep it from rewriting paths."""
    routes.converters.update(_CONVERTERS)
    routes.merge_slashes = False
    routes.redirect_defaults = False


def split_target(target: str) -> tuple[str, str]:
    """Cut a request's target into its raw path, less one trailing slash (WIRE-8), and its raw query.

    An absolute target (``http://host/path``), which servers must take (RFC 9112 3.2.2), is read without its origin.
    """
    if not target.startswith("/") and (origin := _ABSOLUTE_ORIGIN.match(target)) is not None:
        rest = target[origin.end() :]
        target = rest if rest.startswith("/") else f"/{rest}"
    path, _, query = target.partition("?")
    return path if path == "/" else path.removesuffix("/"), query


def rule_expression(rule: str) -> re.Pattern[str]:
    """Return the regular expression of the paths without empty segments that fit a rule, with its values by their names."""
    pieces, end = [], 0
    for variable in _VARIABLE.finditer(rule):
        regex = _CONVERTERS[variable[1]].regex if variable[1] else BaseConverter.regex
        pieces += [re.escape(rule[end : variable.start()]), f"(?P<{variable[2]}>{regex})"]
        end = variable.end()
    return re.compile("".join([*pieces, re.escape(rule[end:])]))


@attrs.frozen
class Pattern:
    """The pattern of a route's path.

    ``<name>`` is one segment, ``%2F`` allowed; ``<flat:name>`` one without a slash, encoded or not; ``<mapped:name>`` one
    that no login's path ends with; ``<tail:name>`` one or more, where ``/`` and ``%2F`` are one; ``<optional:name>`` may be
    absent too, with its slash or without (WIRE-14), and is then ``None``; ``<absent:name>`` always is, with its slash.
    ``<raw:name>``, which has no other beside it, is one segment that isn't decoded, of any length. ``{/}`` is a slash,
    encoded or not.
    """

    text: str
    _undecoded: bool = attrs.field(init=False, repr=False, eq=False)

    @_undecoded.default
    def _has_raw(self) -> bool:
        return "<raw:" in self.text

    def __str__(self) -> str:
        return _ABSENT.sub("", self.text).replace(_EITHER_SLASH, "/")

    @property
    def value_names(self) -> tuple[str, ...]:
        """The names of the values, in order."""
        return tuple(name for _, name in _VARIABLE.findall(self.text))

    def with_prefix(self, name: str, absent: Collection[str]) -> Pattern:
        """Return the pattern with the segment ``name`` before it, in which the values of the names ``absent`` are absent."""
        text = _VARIABLE.sub(lambda found: f"<absent:{found[2]}>" if found[2] in absent else found[0], self.text)
        return Pattern(f"/{name}{text}")

    def format_path(self, values: Mapping[str, str | None]) -> str:
        """Return the path that has these values, decoded, for messages."""
        return _VARIABLE.sub(lambda variable: values[variable[2]] or "", str(self))

    def werkzeug_rules(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Return the rules that make it up, each with the values that it presupposes."""
        for slash in _SLASHES if _EITHER_SLASH in self.text else ("/",):
            text = _ABSENT.sub("", self.text.replace(_EITHER_SLASH, slash))
            absent = dict.fromkeys(_ABSENT.findall(self.text), "")
            yield text, absent
            shorter, found = _OPTIONAL.subn("", text)
            if found:
                yield shorter, absent | dict.fromkeys(_OPTIONAL.findall(text), "")

    def anonymous_rules(self) -> set[str]:
        """Return the rules without the names of their values, which are equal for patterns that match the same paths."""
        return {_VARIABLE.sub(r"<\1>", rule) for rule, _ in self.werkzeug_rules()}

    def decode_values(self, raw: Mapping[str, str], limit: int) -> dict[str, str | None]:
        """Decode the values that were cut out of a path; each may have at most ``limit`` bytes.

        :raises InvalidName: one doesn't decode, or is too long.
        """
        if self._undecoded:
            return dict(raw)
        values: dict[str, str | None] = {}
        for name, text in raw.items():
            # A byte takes three characters at most.
            try:
                value = percent_decoded(text) if "%" in text and len(text) <= 3 * limit else text
            except ValueError as error:
                raise InvalidName(name, f"the {name} in the path {error}") from None
            if len(text) > limit and len(value.encode("utf-8")) > limit:
                raise InvalidName(name, f"the {name} in the path is longer than {limit} bytes")
            values[name] = value or None
        return values
