"""The access changes that a dry run finds, as JSON (POL-82 to POL-88)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from svc.model.policy_loads import AccessChange, Batches, DryRun, NamesOf
from svc.web.http.json_bytes import Json, elements_of, members_of
from svc.web.http.shapes import BOOLEAN, INTEGER, TEXT, Shape, array, obj
from svc.web.routes.access import WAY_SHAPE, steps_json


def _changes(differs: str) -> Shape:
    names = obj({"kind": TEXT, "count": INTEGER, "first": array(TEXT), differs: BOOLEAN})
    return array(
        obj(
            {
                "roles": names,
                "resources": names,
                "privileges": array(TEXT),
                "owner": BOOLEAN,
                "except": array(TEXT),
                "through": TEXT.or_null(),
                "pairs": INTEGER,
                "way": WAY_SHAPE.or_null(),
            }
        )
    )


ACCESS_SHAPE: Final = obj(
    {
        "gains": _changes("new"),
        "losses": _changes("deleted"),
        "untold": obj({"gains": BOOLEAN, "new_gains": BOOLEAN, "losses": BOOLEAN}),
        "complete": BOOLEAN,
        "advice": TEXT.or_null(),
    }
)


def access_json(told: DryRun) -> Iterator[bytes]:
    """Return the member of an object that tells of access, in chunks."""
    yield b'"access":{"gains":['
    yield from _written(told.gains, "new")
    yield b'],"losses":['
    yield from _written(told.losses, "deleted")
    untold = told.untold
    left_out: Json = {"gains": untold.gains, "new_gains": untold.new_gains, "losses": untold.losses}
    yield b"]," + members_of({"untold": left_out, "complete": untold.complete, "advice": untold.advice})[1:] + b"}"


def _written(changes: Batches[AccessChange], differs: str) -> Iterator[bytes]:
    comma = b""
    for batch in changes:
        yield comma
        yield from elements_of([_change(change, differs) for change in batch])
        comma = b","


def _change(change: AccessChange, differs: str) -> Json:
    return {
        "roles": _names(change.roles, differs),
        "resources": _names(change.resources, differs),
        "privileges": change.privileges,
        "owner": change.owner,
        "except": change.excepted,
        "through": change.through,
        "pairs": change.pairs,
        "way": None if change.way is None else steps_json(change.way),
    }


def _names(names: NamesOf, differs: str) -> Json:
    return {"kind": names.kind, "count": names.count, "first": names.first, differs: names.differs}
