"""Variants of requests that were made up from the OpenAPI document: the same request, with something about it changed.

Each change is small and by chance: a value in the path, in the query, in a header or in the body becomes that of a record
that there is, of another request, of an answer, or one that nobody expects; a parameter is dropped, given twice, or
called as another one is; bytes are changed, added and left out; another method, media type, body or caller is tried. Many
variants are of an example of the operation, or of an earlier request that did what it asked for: these come far.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import attrs

from svc.web.http.refusal_responses import V2
from tests.integration.openapi_examples import FACTORY_TOKEN
from tests.integration.openapi_shots import MANNERS, Shot
from tests.integration.openapi_values import HEADERS, METHODS, NAMES, RECORDS, TYPES
from tests.integration.openapi_words import Bodies, Words, encoded

#: How many requests of each operation are remembered.
_KEPT: Final = 12

#: How many of tokens give way to the current one.
_RENEWED: Final = 0.9

_MEDIA: Final = ("Content-Type", "Accept")
_SUFFIXES: Final = ("[]", "%5B%5D", "[a]", "%00", ".")


@attrs.define
class Variants:
    """What variants are made of; ``proofs`` are values of ``Authorization``, the first of which proves the admin.

    ``parameters`` are names that queries have.
    """

    words: Words
    parameters: Sequence[str]
    #: Requests as the examples of operations say them.
    examples: Mapping[str, Sequence[Shot]]
    proofs: Sequence[str] = ()
    _shots: dict[str, deque[Shot]] = attrs.field(factory=dict)
    _good: dict[str, deque[Shot]] = attrs.field(factory=dict)
    _bodies: Bodies = attrs.field(init=False)
    _changes: Sequence[Callable[[str, Shot], Shot]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._bodies = Bodies(self.words)
        of_path = (self._name, self._name, self._name, self._value, self._path)
        of_query = (self._parameter, self._parameter, self._parameter, self._pairs, self._pairs)
        of_head = (self._header, self._proof, self._proof, self._media, self._method, self._manner)
        self._changes = (*of_path, *of_query, *of_head, *([self._body] * 4))

    @property
    def _rng(self) -> random.Random:
        return self.words.rng

    def keep(self, operation: str, shot: Shot) -> None:
        """Remember a request of an operation."""
        self._shots.setdefault(operation, deque(maxlen=_KEPT)).append(shot)
        self._bodies.keep(shot.body)

    def succeeded(self, operation: str, shot: Shot) -> None:
        """Remember a request that was answered with what was asked for."""
        self._good.setdefault(operation, deque(maxlen=_KEPT)).append(shot)

    def elsewhere(self) -> tuple[str, Shot]:
        """Return a request of any operation, with its name."""
        operation = self._rng.choice([*self._shots])
        return operation, self._rng.choice(self._shots[operation])

    def of(self, operation: str, shot: Shot) -> Shot:
        """Return a variant of a request of an operation."""
        number = self._rng.random()
        if earlier := (self._good if number < 0.35 else self.examples if number < 0.6 else {}).get(operation):
            shot = self._rng.choice(earlier)
        proof = shot.header("authorization")
        known = proof.startswith("Token token=") and FACTORY_TOKEN not in proof
        if self._rng.random() < (_RENEWED if known else 0.5 if not proof else 0):
            # Tokens are revoked, and expire; and without one few requests come far.
            shot = attrs.evolve(shot, headers=(*_without(shot, "authorization"), ("Authorization", self.proofs[0])))
        for _ in range(self._rng.choice((0, 1, 1, 1, 1, 2, 2, 3))):
            shot = self._rng.choice(self._changes)(operation, shot)
        return shot

    def _other(self, operation: str) -> Shot:
        """A request of this operation, or another one."""
        kept = self._shots[operation]
        return self._rng.choice(kept if self._rng.random() < 0.5 else self._rng.choice([*self._shots.values()]))

    # -- the path

    def _name(self, _: str, shot: Shot) -> Shot:
        """Have the path speak of a record that there is."""
        if {"kind", "identifier"} <= shot.values.keys():
            kind, identifier = self._rng.choice(RECORDS)
            return _with_value(_with_value(shot, "kind", kind), "identifier", encoded(identifier))
        known = [name for name in shot.values if name in NAMES]
        if not known:
            return shot
        name = self._rng.choice(known)
        return _with_value(shot, name, encoded(self._rng.choice(NAMES[name])))

    def _value(self, operation: str, shot: Shot) -> Shot:
        if not shot.values:
            return shot
        name, number = self._rng.choice([*shot.values]), self._rng.random()
        if number < 0.4:
            return _with_value(shot, name, encoded(self.words.word(), self._rng.choice(("", "/:", "/"))))
        if number < 0.7:
            return _with_value(shot, name, self._rng.choice([*self._other(operation).values.values(), "x"]))
        return _with_value(shot, name, self.words.bent(shot.values[name]))

    def _path(self, _: str, shot: Shot) -> Shot:
        """Have the path be made otherwise; it may then be one of no operation."""
        segments = shot.raw_path.split("/")
        place = self._rng.randrange(1, len(segments))
        match self._rng.randrange(6):
            case 0:
                segments.insert(place, segments[place])
            case 1:
                del segments[place]
            case 2:
                segments.append("")
            case 3:
                segments[place:] = ["%2F".join(segments[place:])]
            case 4:
                segments[place] = encoded(unquote(segments[place]), "/:@")
            case _:
                segments[place] = self.words.bent(segments[place])
        path = "/".join(segments)
        return attrs.evolve(shot, path=path if path.startswith("/") else f"/{path}", values={})

    # -- the query

    def _parameter(self, _: str, shot: Shot) -> Shot:
        """Have a parameter say something else, or have one more."""
        query, value = [*shot.query], encoded(self.words.word())
        if query and self._rng.random() < 0.6:
            place = self._rng.randrange(len(query))
            name, number = query[place][0], self._rng.random()
            if name in NAMES and number < 0.6:
                value = encoded(self._rng.choice(NAMES[name]))
            elif number > 0.8:
                value = self.words.bent(query[place][1])
            query[place] = (name, value)
        else:
            query.append((self._rng.choice(self.parameters), value))
        return attrs.evolve(shot, query=tuple(query))

    def _pairs(self, operation: str, shot: Shot) -> Shot:
        """Have parameters be dropped, given twice, called otherwise, or those of another request."""
        query = [*shot.query]
        if not query or self._rng.random() < 0.3:
            return attrs.evolve(shot, query=(*query, *self._other(operation).query))
        place = self._rng.randrange(len(query))
        name, value = query[place]
        match self._rng.randrange(4):
            case 0:
                del query[place]
            case 1:
                query.append((name, value))
            case 2:
                query[place] = (name + self._rng.choice(_SUFFIXES), value)
            case _:
                query[place] = (self._rng.choice(self.parameters), value)
        return attrs.evolve(shot, query=tuple(query))

    # -- the head and the body

    def _header(self, operation: str, shot: Shot) -> Shot:
        headers, number = [*shot.headers], self._rng.random()
        if headers and number < 0.2:
            del headers[self._rng.randrange(len(headers))]
        elif headers and number < 0.3:
            headers.append(self._rng.choice(headers))
        elif number < 0.5:
            headers += _without(self._other(operation), "authorization")
        else:
            name = self._rng.choice([*HEADERS])
            # A length that is longer than the body would be waited for.
            fixed = self._rng.random() < 0.7 or name == "Content-Length"
            value = self._rng.choice(HEADERS[name]) if fixed else self.words.word()
            headers.append((name, "".join(letter for letter in value if letter.isprintable())))
        return attrs.evolve(shot, headers=tuple(headers))

    def _proof(self, _: str, shot: Shot) -> Shot:
        """Have another caller, an unproven one, or none."""
        headers, number = _without(shot, "authorization"), self._rng.random()
        if self.proofs and number < 0.9:
            proof = self._rng.choice(self.proofs)
            headers.append(("Authorization", proof if number < 0.75 else self.words.bent(proof)))
        return attrs.evolve(shot, headers=tuple(headers))

    def _media(self, _: str, shot: Shot) -> Shot:
        name = self._rng.choice(_MEDIA)
        return attrs.evolve(shot, headers=(*_without(shot, name.lower()), (name, self._rng.choice((V2, *TYPES)))))

    def _method(self, _: str, shot: Shot) -> Shot:
        return attrs.evolve(shot, method=self._rng.choice(METHODS))

    def _manner(self, _: str, shot: Shot) -> Shot:
        return attrs.evolve(shot, manner=self._rng.choice(MANNERS))

    def _body(self, _: str, shot: Shot) -> Shot:
        return attrs.evolve(shot, body=self._bodies.changed(shot.body))


def _with_value(shot: Shot, name: str, value: str) -> Shot:
    return attrs.evolve(shot, values={**shot.values, name: value})


def _without(shot: Shot, header: str) -> list[tuple[str, str]]:
    return [pair for pair in shot.headers if pair[0].lower() != header]
