"""Two loads in turns: their ratios remain valid on a machine that is slow or busy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Self

import attrs

from bench import settings
from bench.load import Figures
from bench.server import say


@attrs.frozen
class Turns:
    """Runs of one load, each of which came right after one of the other."""

    ours: Sequence[Figures]
    theirs: Sequence[Figures]

    @classmethod
    def taken(cls, name: str, ours: Callable[[], Figures], theirs: Callable[[], Figures]) -> Self:
        """Run both again and again."""
        pairs = []
        for number in range(settings.RUNS):
            say(f"{name}: run {number + 1} of {settings.RUNS}")
            before = theirs()
            pairs.append((ours(), before))
        return cls(*zip(*pairs, strict=True))

    def ratio(self, of: str = "rate") -> float:
        """The median of what one load has of something, in that of the other."""
        ratios: list[float] = [
            getattr(ours, of) / getattr(theirs, of) for ours, theirs in zip(self.ours, self.theirs, strict=True)
        ]
        return statistics.median(ratios)

    @property
    def median(self) -> Figures:
        """The medians of the one load."""
        return Figures.median(self.ours)

    @property
    def beside(self) -> Figures:
        """The medians of the other."""
        return Figures.median(self.theirs)
