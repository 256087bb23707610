"""Tables of cases: what is done, and the status and sentence that are right."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator

import attrs


@attrs.frozen
class Answer:
    """The outcome of a case: an HTTP status or an exit code, and the text that came with it."""

    status: int
    text: str = ""


@attrs.frozen
class Row:
    """One case. It is right when the status is equal and the expected text is a part of the one received."""

    name: str
    expected: Answer
    ask: Callable[[], Answer]


@attrs.frozen
class Deviation:
    """A case that came out otherwise; ``received`` is a traceback where the case raised."""

    row: Row
    received: Answer | str


def run_rows(rows: Iterable[Row], notify: Callable[[str], None]) -> Iterator[Deviation]:
    """Run the cases in their order, notify of each by a line, and yield those that deviate."""
    for row in rows:
        received: Answer | str
        try:
            received = row.ask()
        except Exception:
            received = traceback.format_exc()
        if isinstance(received, Answer) and _is_right(row.expected, received):
            notify(f"right      {row.name}")
            continue
        notify(f"DEVIATION  {row.name}\n  expected {row.expected}\n  received {received}")
        yield Deviation(row, received)


def _is_right(expected: Answer, received: Answer) -> bool:
    return expected.status == received.status and expected.text in received.text
