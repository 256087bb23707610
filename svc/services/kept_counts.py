"""The counts of reads that a server couldn't deliver before it stopped, in a file until it starts again (READ-7).

Note [Once]. The batch that was handed out keeps its source and number, so that it is added once if somebody has added it
unnoticed (``storage.readings``). The other counts have no number: so the file is removed before any of it is used, and
isn't used if that fails. The numbers of batches are kept for so many days in the database: an older batch is lost.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.logger import Logger

from svc.model.readings import DAYS_KEPT, CountedReads, ReaderKey, ReadingBatch

#: The file in the data directory, and the most bytes that it may have.
FILE: Final = "uncollected-reads"
MAX_BYTES: Final = 64 * 1024 * 1024

_log = Logger()


@attrs.frozen
class KeptCounts:
    """Counts that wait: a batch that was handed out, the others, and days on which reads were lost."""

    outgoing: ReadingBatch | None
    counts: Mapping[ReaderKey, Mapping[str, int]]
    lost_days: frozenset[int]


def encode_counts(kept: KeptCounts) -> bytes:
    """Return the contents of a file."""
    outgoing = None if kept.outgoing is None else attrs.astuple(kept.outgoing, recurse=False)
    counts = [[*key, reads] for key, reads in kept.counts.items() if reads]
    return json.dumps({"outgoing": outgoing, "counts": counts, "lost_days": sorted(kept.lost_days)}).encode("utf-8")


def decode_counts(contents: bytes, today: int) -> KeptCounts:
    """Return the counts of a file; ``ValueError`` when it is damaged."""
    try:
        found = json.loads(contents)
        counts = {
            ReaderKey(_text(role), _natural(creation), _natural(day)): {
                _text(name): _natural(number) for name, number in reads.items()
            }
            for role, creation, day, reads in found["counts"]
        }
        lost = frozenset(map(_natural, found["lost_days"]))
        if (given := found["outgoing"]) is None:
            return KeptCounts(None, counts, lost)
        source, sequence, day, rows, lost_there = given
        reads = tuple(CountedReads(_text(a), _natural(b), _text(c), _natural(d)) for a, b, c, d in rows)
        batch = ReadingBatch(_text(source), _natural(sequence), _natural(day), reads, tuple(map(_natural, lost_there)))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError("it isn't what a server writes") from error
    if batch.day <= today - DAYS_KEPT:
        return KeptCounts(None, counts, lost.union(batch.lost_days, [batch.day]))
    return KeptCounts(batch, counts, lost)


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    return value


def _natural(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError
    return value


@attrs.frozen
class CountsFile:
    """The file, of mode 0600."""

    path: Path

    def write(self, kept: KeptCounts) -> bool:
        """Write it in one step; return whether that could be done, which the log has otherwise."""
        name = None
        try:
            contents = encode_counts(kept)
            if len(contents) > MAX_BYTES:
                raise ValueError(f"there are more than {MAX_BYTES} bytes")
            # It has mode 0600.
            with tempfile.NamedTemporaryFile("wb", dir=self.path.parent, prefix=f"{FILE}.", delete=False) as new:
                name = new.name
                new.write(contents)
                new.flush()
                os.fsync(new.fileno())
            os.replace(name, self.path)
        except (OSError, ValueError) as error:
            _log.warn("Counts of reads can't be kept in {file}: {why}", file=FILE, why=str(error))
            if name is not None:
                with suppress(OSError):
                    os.unlink(name)
            return False
        return True

    def take(self, today: int) -> KeptCounts | None:
        """Return what the file has, and remove it; ``None`` if there is none, or it can't be used, which the log has."""
        try:
            with os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                contents = file.read(MAX_BYTES + 1)
            os.unlink(self.path)
            if len(contents) > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES} bytes")
            return decode_counts(contents, today)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warn("Counts of reads in {file} are ignored: {why}", file=FILE, why=str(error))
            return None
