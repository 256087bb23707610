"""The shapes of values in JSON, as routes declare them: those that a client may send, and those that it may rely on.

They describe and check nothing: a request is read by its route's parameters, and answers are held against their shapes by
the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Self

import attrs

Kind = Literal["object", "array", "string", "integer", "number", "boolean", "null", "any", "raw"]


@attrs.frozen
class Shape:
    """The form of a value, in the terms of JSON Schema.

    ``members``: the members of an object, of which those in ``optional`` may be absent. ``items``: what each element of an
    array is, or each value of an object whose keys are not known beforehand. ``minimum`` and ``maximum`` bound an integer,
    and ``choices`` are all that a string may be. ``media_type`` is for ``raw_shape``, which is no JSON.
    """

    kind: Kind
    members: Mapping[str, Shape] = attrs.field(factory=dict, hash=False)
    optional: frozenset[str] = frozenset()
    items: Shape | None = None
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    nullable: bool = False
    media_type: str = "application/json"

    def or_null(self) -> Self:
        """Return the shape of the same value, or null."""
        return attrs.evolve(self, nullable=True)


TEXT: Final = Shape("string")
INTEGER: Final = Shape("integer")
NUMBER: Final = Shape("number")
BOOLEAN: Final = Shape("boolean")

#: Any value in JSON.
ANY: Final = Shape("any")


def string_shape(*choices: str) -> Shape:
    """Return the shape of a string that is one of ``choices``."""
    return Shape("string", choices=choices)


def integer_shape(least: int | None = None, most: int | None = None) -> Shape:
    """Return the shape of an integer within bounds, both included."""
    return Shape("integer", minimum=least, maximum=most)


def array_shape(items: Shape) -> Shape:
    """Return the shape of an array whose elements have one shape."""
    return Shape("array", items=items)


def object_shape(members: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Shape:
    """Return the shape of an object that has all of ``members``, perhaps some of ``optional``, and no others."""
    optional = optional or {}
    return Shape("object", members={**members, **optional}, optional=frozenset(optional))


def mapping_shape(values: Shape) -> Shape:
    """Return the shape of an object with any keys, whose values have one shape."""
    return Shape("object", items=values)


def raw_shape(media_type: str) -> Shape:
    """Return the shape of a body that is no JSON; ``*/*`` stands for any media type."""
    return Shape("raw", media_type=media_type)
