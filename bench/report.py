"""The results of a part of the bench: figures beside the promised ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import attrs


@attrs.frozen
class Figure:
    """One figure, the most or the least that it may be, if that was promised, and what it was computed from."""

    name: str
    value: float
    unit: str
    most: float | None = None
    origin: str = ""
    least: float | None = None

    @property
    def kept(self) -> bool:
        """Whether it is as promised."""
        return (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)

    def row(self) -> str:
        """A line of a table."""
        bounds = (("at most", self.most), ("at least", self.least))
        promised = " and ".join(f"{word} {bound:g} {self.unit}" for word, bound in bounds if bound is not None)
        kept = "" if not promised else "yes" if self.kept else "**no**"
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
        """Return the part with these figures; ``details`` are what they were made from."""
        lines = ["| figure | measured | promised | kept | made from |", "|---|---|---|---|---|"]
        table = "\n".join([*lines, *(figure.row() for figure in figures)])
        shown = [attrs.asdict(figure) | {"kept": figure.kept} for figure in figures]
        return cls(table, all(figure.kept for figure in figures), {"figures": shown, **details})
