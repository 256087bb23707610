"""The picture of who can do what with a resource: roles to the left, what they are members of in the middle, the resource to
the right. It has no more than the tables beside it, and is made of shapes and text alone.

Note [Room for words]. Nobody knows here how wide a browser draws a text. Wide letters take two columns and marks none; what
has more columns than there is room for is cut, and the box cuts what is wider still. The words on an arrow stand where they
cover neither a box nor other words, if any place is free, and else not at all: the tables have them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import attrs

from svc.model.access import AccessPath, StepKind
from svc.web.console.rendering import mark_invisible

#: The most roles in one column, and columns of roles: farther roles are in the tables alone.
MAX_ROWS: Final = 12
MAX_COLUMNS: Final = 4

#: The size of a box, and how far the next one below is, in pixels.
WIDTH: Final = 190
HEIGHT: Final = 44
_ROW_HEIGHT: Final = 64

#: The columns of a text in a box, and on an arrow; the pixels that a column of the latter takes, a line of it, and what is
#: left free to the next column of boxes.
_MAX_LABEL_COLUMNS: Final = 22
_MAX_ARROW_COLUMNS: Final = 22
_COLUMN_WIDTH: Final = 7
_LINE_HEIGHT: Final = 14
_LABEL_MARGIN: Final = 24

#: Where on an arrow its words may stand, by how far from its beginning they begin.
_LABEL_POSITIONS: Final = (0.06, 0.2, 0.34, 0.48, 0.62, 0.76)
_HIDDEN_ROLES: Final = "roles that you don't see"


@attrs.frozen
class Box:
    """A role or the resource: its place, what is written in it, and its full id."""

    x: int
    y: int
    kind: str
    label: str
    name: str


@attrs.frozen
class Arrow:
    """An arrow from one box to another, its label, and where that begins; ``None`` where there is no room for it."""

    start: Box
    end: Box
    label: str
    place: tuple[int, int] | None


@attrs.frozen
class Picture:
    """Boxes and arrows, and the room that they take; ``is_cut`` if some roles found no place."""

    boxes: list[Box]
    arrows: list[Arrow]
    width: int
    height: int
    is_cut: bool


@attrs.define
class _AccessGraph:
    """Roles by how far they are from the resource, and what leads from one to the other: ``None`` is the resource."""

    columns: dict[str, int] = attrs.field(factory=dict)
    arrows: dict[tuple[str, str | None], list[str]] = attrs.field(factory=dict)
    is_cut: bool = False

    def add_path(self, privilege: str, way: AccessPath) -> None:
        """Add a way, unless there is no place for it."""
        names = [step.role or f"-::{_HIDDEN_ROLES}" for step in way]
        farther = {name: len(way) - number for number, name in enumerate(names)}
        columns = self.columns | {name: max(place, self.columns.get(name, 0)) for name, place in farther.items()}
        taken = list(columns.values())
        pairs = [*self.arrows, *pairwise([*names, None])]
        # By another privilege, a role may be nearer than one that is a member of it here.
        turned = any(columns[start] <= (0 if to is None else columns[to]) for start, to in pairs if start is not None)
        if turned or max(taken) > MAX_COLUMNS or max(map(taken.count, taken)) > MAX_ROWS:
            self.is_cut = True
            return
        self.columns = columns
        for number, (name, step) in enumerate(zip(names, way, strict=True)):
            last = number + 1 == len(names)
            word = "member of" if step.kind is StepKind.MEMBER else "owns" if step.kind is StepKind.OWNER else privilege
            words = self.arrows.setdefault((name, None if last else names[number + 1]), [])
            if word not in words:
                words.append(word)


def draw_picture(resource: str, ways: Iterable[tuple[str, AccessPath]]) -> Picture:
    """Return the picture of a resource, by its full id, with ways to privileges on it."""
    drawing = _AccessGraph()
    for privilege, way in ways:
        drawing.add_path(privilege, way)
    deepest = max(drawing.columns.values(), default=0)
    rows = dict.fromkeys(range(1, deepest + 1), 0)
    labels = {pair: shorten_middle(", ".join(words), _MAX_ARROW_COLUMNS) for pair, words in drawing.arrows.items()}
    across, place = dict[int, int](), 0
    for column in range(deepest, -1, -1):
        across[column] = place
        words = [_count_columns(label) for (start, _), label in labels.items() if drawing.columns[start] == column]
        place += WIDTH + _LABEL_MARGIN + max(words, default=0) * _COLUMN_WIDTH
    placed: dict[str, Box] = {}
    for name, column in drawing.columns.items():
        placed[name] = _make_box(name, across[column], rows[column] * _ROW_HEIGHT)
        rows[column] += 1
    most = max(rows.values(), default=1)
    end = _make_box(resource, across[0], (most - 1) * _ROW_HEIGHT // 2)
    boxes = [*placed.values(), end]
    taken = [(box.x, box.y, box.x + WIDTH, box.y + HEIGHT) for box in boxes]
    arrows = [
        _place_arrow(placed[start], end if to is None else placed[to], label, taken) for (start, to), label in labels.items()
    ]
    return Picture(boxes, arrows, end.x + WIDTH, (most - 1) * _ROW_HEIGHT + HEIGHT, drawing.is_cut)


def _make_box(full_id: str, x: int, y: int) -> Box:
    _, kind, identifier = full_id.split(":", 2)
    return Box(x, y, kind, shorten_middle(identifier, _MAX_LABEL_COLUMNS), identifier)


def _place_arrow(start: Box, end: Box, label: str, taken: list[tuple[int, int, int, int]]) -> Arrow:
    """Return an arrow, and add the place of its words to those that are taken (Note [Room for words])."""
    left, top, right, bottom = start.x + WIDTH, start.y + HEIGHT // 2, end.x, end.y + HEIGHT // 2
    for part in _LABEL_POSITIONS:
        x = int(left + (right - left) * part) + 4
        # Above the line: of one that rises, above where the words end.
        ends = min((x - left + _count_columns(label) * _COLUMN_WIDTH) / max(right - left, 1), 1.0)
        y = int(top + (bottom - top) * (ends if bottom < top else part)) - 4
        room = (x, y - _LINE_HEIGHT, x + _count_columns(label) * _COLUMN_WIDTH, y)
        if room[1] >= 0 and not any(_do_overlap(room, other) for other in taken):
            taken.append(room)
            return Arrow(start, end, label, (x, y))
    return Arrow(start, end, label, None)


def _do_overlap(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def shorten_middle(text: str, most: int) -> str:
    """Return a text, cut in the middle if it has more than so many columns: the ends of ids tell more than their middles."""
    if _count_columns(text) <= most:
        return text
    begin, end = _fitting_prefix(text, most // 3), _fitting_prefix(text[::-1], most - 1 - most // 3)[::-1]
    return f"{begin}…{end}"


def _fitting_prefix(text: str, most: int) -> str:
    """Return as much of the beginning of a text as has so many columns."""
    taken = 0
    for number, character in enumerate(text):
        taken += _count_columns(character)
        if taken > most:
            return text[:number]
    return text


def _count_columns(text: str) -> int:
    """Return how many columns a text takes; what isn't seen is shown by its code, which takes more."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for piece, _ in mark_invisible(text)
        for each in piece
    )
