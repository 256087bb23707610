"""Rows of text for people and for programs."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import click

#: The sentence in place of an empty table that has none of its own.
NOTHING: Final = "Nothing was found."


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, terminal: bool) -> Iterator[str]:
    """Return the lines of a table: on a terminal under a header, in aligned columns; otherwise without it, parted by tabs.

    Characters that a terminal would obey, or that would break a line, are escaped; blanks at the end of lines are left out.
    """
    cells = [[escape_text(cell) for cell in row] for row in rows]
    if not terminal:
        yield from ("\t".join(row).rstrip("\t") for row in cells)
        return
    lines = [list(header), *cells]
    widths = [max(map(_display_width, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (cell + " " * (width - _display_width(cell)) for cell, width in zip(line, widths, strict=True))
        yield "  ".join(padded).rstrip()


def print_json(document: object) -> None:
    """Print a document as JSON."""
    click.echo(json.dumps(document, indent=2))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], empty: str = NOTHING) -> None:
    """Print a table, as standard output is a terminal or not; without rows, the sentence ``empty`` on standard error."""
    rows = list(rows)
    if not rows:
        click.echo(empty, err=True)
        return
    for line in format_table(header, rows, terminal=sys.stdout.isatty()):
        click.echo(line)


def print_result(
    as_json: bool, document: object, header: Sequence[str], rows: Iterable[Sequence[str]], empty: str = NOTHING
) -> None:
    """Print a document as JSON, or its rows as a table; without any, the sentence ``empty`` on standard error."""
    if as_json:
        print_json(document)
    else:
        print_table(header, rows, empty)


def escape_text(text: str) -> str:
    """Return a text with what is no print spelt out: names can't say things to the terminal, or begin lines of their own."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _display_width(text: str) -> int:
    """Return how many columns a terminal gives to a text."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
