"""What a part of the bench found: figures beside what was promised of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import attrs


@attrs.frozen
class Figure:
    """One figure, the most that it may be, if that was promised, and what it was made from."""

    name: str
    value: float
    unit: str
    most: float | None = None
    origin: str = ""

    @property
    def kept(self) -> bool:
        """Whether it is as promised."""
        return self.most is None or self.value <= self.most

    def row(self) -> str:
        """A line of a table."""
        promised = "" if self.most is None else f"{self.most:g} {self.unit}"
        kept = "" if self.most is None else "yes" if self.kept else "**no**"
        value = f"{self.value:.0f}" if self.value >= 10 else f"{self.value:.2f}"
        return f"| {self.name} | **{value}** {self.unit} | {promised} | {kept} | {self.origin} |"


@attrs.frozen
class Part:
    """One part of the bench when it is done: its table, whether all promises were kept, and everything for JSON."""

    table: str
    kept: bool
    details: dict[str, Any]

    @classmethod
    def of(cls, figures: Sequence[Figure], details: dict[str, Any]) -> Self:
        """What these figures come to; ``details`` are what they were made from."""
        lines = ["| figure | measured | promised, at most | kept | made from |", "|---|---|---|---|---|"]
        table = "\n".join([*lines, *(figure.row() for figure in figures)])
        shown = [attrs.asdict(figure) | {"kept": figure.kept} for figure in figures]
        return cls(table, all(figure.kept for figure in figures), {"figures": shown, **details})
