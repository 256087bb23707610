"""Parameters that requests have in the query, in a form, or in JSON (HF-4, HF-11, NAME-20).

The body counts before the query. A content type that isn't JSON's is taken for a form's: clients send none, or any. A body
that is no form is refused, so that no parameter in it is ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

import attrs

from svc.model.errors import BadRequest, InvalidParameter, TooLarge
from svc.model.strict_json import Malformed, parse_json_object
from svc.model.text import quote_text
from svc.web.http.query import FORM_LIMIT, PARAMETERS_LIMIT, Form, Pairs, Query, several_values, single_value

_BRACKETED_KEY: Final = re.compile(r"\[([^\]]+)\]")


@attrs.frozen
class Parameters:
    """The parameters of a request; ``name[]`` is one of several values of ``name``, ``name[key]`` its value for a key."""

    _body: Pairs = attrs.field(repr=False)
    _query: Pairs = attrs.field(repr=False)

    @classmethod
    def parse(cls, content_type: str | None, body: bytes, query: Query) -> Parameters:
        """Read the query and the body.

        :raises BadRequest: the body can't be read.
        :raises TooLarge: it is longer than forms are.
        :raises InvalidParameter: a value in JSON is no text, whole number or boolean, nor a list or an object of these.
        """
        media_type = (content_type or "").partition(";")[0].strip().lower()
        pairs = _json_pairs(body) if media_type == "application/json" else Form.parse(body).pairs
        return cls(pairs, query.pairs)

    def text(self, name: str) -> str | None:
        """Return the value of a parameter that may be given once; ``None`` when it is absent or empty."""
        in_query = single_value(self._query, name)[1]
        return single_value(self._body, name)[1] or in_query or None

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the values of a parameter that may be repeated, as ``name`` or ``name[]``; empty ones don't count."""
        in_query, in_body = (tuple(filter(None, several_values(pairs, name))) for pairs in (self._query, self._body))
        return in_body or in_query

    def texts_by_key(self, name: str) -> dict[str, str]:
        """Return the values of a parameter by their keys, ``name[key]``; the last of equal keys counts."""
        found = {}
        for key, value in (*self._query, *self._body):
            if key == name or key.startswith(f"{name}["):
                matched = _BRACKETED_KEY.fullmatch(key, len(name))
                if matched is None:
                    raise InvalidParameter(name, f"'{name}' is written '{name}[key]=value'")
                found[matched[1]] = value or ""
        return found


def _json_pairs(body: bytes) -> Pairs:
    """Return the members of a JSON object, written as a form would have them."""
    if not body:
        return ()
    if len(body) > FORM_LIMIT:
        raise TooLarge("the body", FORM_LIMIT)
    try:
        pairs = tuple(pair for name, value in parse_json_object(body).items() for pair in _flatten_value(name, value))
    except Malformed as error:
        raise BadRequest(f"the body can't be read as JSON: {error}") from None
    if len(pairs) > PARAMETERS_LIMIT:
        raise BadRequest(f"the body has more than {PARAMETERS_LIMIT} values")
    return pairs


def _flatten_value(name: str, value: object) -> Iterator[tuple[str, str | None]]:
    match value:
        case None:
            return
        case list():
            yield from ((f"{name}[]", _value_text(name, item)) for item in value)
        case dict():
            yield from ((f"{name}[{_value_text(name, key)}]", _value_text(name, item)) for key, item in value.items())
        case _:
            yield name, _value_text(name, value)


def _value_text(name: str, value: object) -> str:
    """Return a text, or a whole number or a boolean as JSON writes it; refuse the rest, NUL and halves of surrogates."""
    if not isinstance(value, str | int):
        raise InvalidParameter(name, f"{quote_text(name)} must be a text, a whole number, true or false")
    text = value if isinstance(value, str) else json.dumps(value)
    if "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise InvalidParameter(name, f"{quote_text(name)} has a value that is no text")
    return text
