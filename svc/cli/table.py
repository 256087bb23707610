"""Answers as tables, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from click import unstyle


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay rows out in columns as wide as their widest text, under headings in capitals, two blanks apart.

    What a terminal would take for a command is left out, since names are made by others: each line stays one line. The last
    line has no line end; without rows, the headings stand alone.
    """
    lines = [[heading.upper() for heading in headings], *([_plain(text) for text in row] for row in rows)]
    widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in unstyle(text))
