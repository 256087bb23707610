"""Words that variants of requests are given, and bodies in which something is changed by chance."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import attrs

from tests.integration.openapi_values import BODIES, JSON_VALUES, NAMES, POLICY_WORDS, RAW, TEXTS

#: How many words of answers are remembered, and how many bodies of requests.
_LEARNED: Final = 400
_BODIES: Final = 200

#: A longer body isn't lent to others.
_LONG: Final = 20_000

#: An answer that is longer isn't read for words.
_READ: Final = 4000


def encoded(text: str, safe: str = "") -> str:
    """Return text as it is written in a path or a query, even if it is none that UTF-8 has."""
    return quote(text.encode("utf-8", "surrogatepass"), safe=safe)


@attrs.define
class Words:
    """Words of records, of answers, and others that nobody expects."""

    rng: random.Random
    _learned: deque[str] = attrs.field(factory=lambda: deque(maxlen=_LEARNED))

    def learn(self, headers: Mapping[str, str], body: bytes | None) -> None:
        """Remember some words of an answer."""
        self._learned.extend(headers[name] for name in ("etag", "svc-version") if name in headers)
        if body and len(body) < _READ and "json" in headers.get("content-type", ""):
            found = json.loads(body)
            while isinstance(found, dict | list) and found:
                found = self.rng.choice([*found.values()] if isinstance(found, dict) else found)
            if isinstance(found, str) and len(found) < _READ:
                self._learned.append(found)

    def word(self) -> str:
        """Return any of them."""
        number = self.rng.random()
        if number < 0.3:
            return self.rng.choice(self.rng.choice([*NAMES.values()]))
        if number < 0.55 and self._learned:
            return self.rng.choice(self._learned)
        return self.rng.choice(TEXTS)

    def bent(self, text: str) -> str:
        """Return encoded text with a piece of raw text somewhere in it, or without some of its own."""
        start = self.rng.randrange(len(text) + 1)
        if self.rng.random() < 0.3:
            return text[:start] + text[start + self.rng.choice((1, 1, 2, 3, 8)) :]
        return text[:start] + self.rng.choice(RAW) + text[start:]


@attrs.define
class Bodies:
    """Bodies with something in them changed, and others in place of them."""

    words: Words
    _kept: deque[bytes] = attrs.field(factory=lambda: deque(maxlen=_BODIES))

    @property
    def _rng(self) -> random.Random:
        return self.words.rng

    def keep(self, body: bytes) -> None:
        """Lend a body to other requests."""
        if body:
            self._kept.append(body[:_LONG])

    def changed(self, body: bytes) -> bytes:
        """Return a body in place of this one."""
        number = self._rng.random()
        if not body or number < 0.1:
            return self._rng.choice(self._kept if self._kept and number < 0.5 else BODIES)
        if number < 0.16:
            return body[: self._rng.randrange(len(body))]
        if number > 0.27:
            if body[:1] in b'{["' and (found := self._json(body)) is not None:
                return found
            if b"\n" in body or body.startswith(b"- "):
                return self._lines(body)
            if b"=" in body:
                return self._form(body)
        return self._bytes(body)

    def _word(self) -> bytes:
        return self.words.word().encode("utf-8", "surrogatepass")

    def _bytes(self, body: bytes) -> bytes:
        start = self._rng.randrange(len(body) + 1)
        match self._rng.randrange(3):
            case 0:
                return body[:start] + self._rng.randbytes(self._rng.randrange(1, 4)) + body[start + 1 :]
            case 1:
                return body[:start] + body[start + self._rng.randrange(1, 9) :]
            case _:
                return body[:start] + self._word() + body[start:]

    def _json(self, body: bytes) -> bytes | None:
        try:
            return json.dumps(self._value(json.loads(body), 6)).encode("ascii")
        except (ValueError, RecursionError):
            return None

    def _value(self, value: Any, depth: int) -> Any:
        """A value of JSON with something in it changed."""
        rng, number = self._rng, self._rng.random()
        if depth and isinstance(value, dict) and value and rng.random() < 0.9:
            name = rng.choice([*value])
            if number < 0.1:
                return {each: its for each, its in value.items() if each != name}
            if number < 0.2:
                return {**value, rng.choice((self.words.word(), rng.choice([*value]))): value[name]}
            return {**value, name: self._value(value[name], depth - 1)}
        if depth and isinstance(value, list) and value and rng.random() < 0.9:
            place = rng.randrange(len(value))
            if number < 0.2:
                return [*value[:place], *value[place + 1 :]]
            if number < 0.4:
                return [*value, value[place]]
            return [*value[:place], self._value(value[place], depth - 1), *value[place + 1 :]]
        if number < 0.5:
            return self.words.word()
        if number < 0.6:
            return [value] * rng.choice((1, 2, 50))
        return rng.choice(JSON_VALUES)

    def _form(self, body: bytes) -> bytes:
        pairs = body.split(b"&")
        place = self._rng.randrange(len(pairs))
        match self._rng.randrange(5):
            case 0:
                del pairs[place]
            case 1:
                pairs.append(pairs[place])
            case 2:
                pairs[place] = self.words.bent(pairs[place].decode("latin-1")).encode("latin-1")
            case _:
                pairs[place] = pairs[place].partition(b"=")[0] + b"=" + encoded(self.words.word()).encode("ascii")
        return b"&".join(pairs)

    def _lines(self, body: bytes) -> bytes:
        """Text in lines, such as a policy, with one of them dropped, doubled, moved, or with another word in it."""
        lines = body.split(b"\n")
        place = self._rng.randrange(len(lines))
        match self._rng.randrange(6):
            case 0:
                del lines[place]
            case 1:
                lines.insert(place, lines[place])
            case 2:
                lines[place] = b"  " + lines[place]
            case 3:
                lines.insert(self._rng.randrange(len(lines)), lines.pop(place))
            case number:
                words = lines[place].split(b" ")
                word = self._word() if number == 4 else self._rng.choice(POLICY_WORDS).encode("ascii")
                words[self._rng.randrange(len(words))] = word
                lines[place] = b" ".join(words)
        return b"\n".join(lines)
