"""Background work that is repeated while something is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Self

#: Does something until the event is set.
Work = Callable[[threading.Event], None]


class Meanwhile:
    """Runs ``works``, each in a thread, while a ``with`` block runs; a failure of one of them fails the block at its end."""

    def __init__(self, works: Iterable[Work]) -> None:
        self.failures: Final[list[Exception]] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(work,), daemon=True) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise SystemExit(f"what happens meanwhile failed: {self.failures[0]!r}")

    def _run(self, work: Work) -> None:
        try:
            work(self._ended)
        except Exception as failure:
            self.failures.append(failure)
