"""The records that a sink has yet to take, and the interface between the journal and its sinks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from zope.interface import Attribute, Interface


class Backlog:
    """Records in order, each with its number, that a sink has been given and has not taken.

    ``changed`` is called when the sink reports on them, and ``written`` before that with those that it has taken, as it
    wrote them. ``failure`` says why it takes nothing at present, if that is so.
    """

    def __init__(
        self, changed: Callable[[], None], written: Callable[[Sequence[tuple[int, bytes]]], object] = lambda _: None
    ) -> None:
        self.failure: str | None = None
        self.size = 0
        self._on_change, self._on_delivered = changed, written
        self._records: deque[tuple[int, bytes]] = deque()
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def last_delivered(self) -> int:
        """Return the number up to which nothing is outstanding."""
        return self._records[0][0] - 1 if self._records else self._last_number

    @property
    def is_idle(self) -> bool:
        """Whether nothing is outstanding, and nothing is known to hinder the sink."""
        return self.size == 0 and self.failure is None

    def add_records(self, records: Sequence[tuple[int, bytes]]) -> None:
        """Give the sink more to take."""
        self._records.extend(records)
        self._last_number = records[-1][0]
        self.size += sum([len(record) for _, record in records])

    def skip_to(self, last: int) -> None:
        """Note that those up to this number don't wait here: the sink has taken them, or they are lost to it."""
        self._last_number = last

    def oldest_records(self, size: int) -> list[bytes]:
        """Return the oldest records, as far as :func:`take_up_to` goes."""
        return take_up_to((record for _, record in self._records), size)

    def records_after(self, number: int) -> list[tuple[int, bytes]]:
        """Return those that are numbered after this."""
        return [*takewhile(lambda record: record[0] > number, reversed(self._records))][::-1]

    def mark_delivered(self, count: int, lines: Sequence[bytes] | None = None) -> None:
        """Note that the sink has taken so many of the oldest; ``lines`` are these as it wrote them, if not as they were."""
        gone = [self._records.popleft() for _ in range(count)]
        self.size -= sum([len(record) for _, record in gone])
        self.failure = None
        if lines is not None:
            gone = [(number, line) for (number, _), line in zip(gone, lines, strict=True)]
        self._on_delivered(gone)
        self._on_change()

    def mark_failed(self, why: str) -> None:
        """Note that the sink takes nothing, and tries again by itself."""
        self.failure = why
        self._on_change()

    def mark_recovered(self) -> None:
        """Note that the sink can take records again."""
        self.failure = None
        self._on_change()


def take_up_to(records: Iterable[bytes], size: int) -> list[bytes]:
    """Return the first of the records, of ``size`` bytes together or little more; none when there are none."""
    found: list[bytes] = []
    for record in records:
        found.append(record)
        size -= len(record)
        if size <= 0:
            break
    return found


class ISink(Interface):
    """A destination of records. They are taken in the order in which they are given, and none is given again once taken."""

    name = Attribute("""Its name in the log.""")

    async def open(backlog: Backlog) -> None:
        """Begin to take what the backlog has, now and later.

        :raises StartRefused: the destination is missing, and will be.
        """

    def try_write(records: Sequence[bytes]) -> Sequence[bytes]:
        """Take what can be taken at once, calling nobody back, and return it as it was written; called when the backlog is
        empty.

        It fails with nothing: the rest is given to the backlog, and reported there.
        """

    def drain_backlog() -> None:
        """Take what the backlog has; called whenever there is more."""

    def is_ready() -> bool:
        """Return whether one more record would be taken, as far as that shows without one; called when the backlog is empty.

        Where something else is at the destination's place by now, that is opened.
        """

    def reopen() -> None:
        """Open again what is now at the same place."""

    async def close() -> None:
        """Take what can be taken at once, and let go."""
