"""Versions of the database's state, as writes return them and reads require them (CLU-27); notifications of changes.

A version is a position in the log of one PostgreSQL system, on one of its timelines, taken when a change was committed. A
state is at least as new when it has all of the log up to there. Positions are of one history alone: they are compared on one
timeline of one system.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Self

import attrs

from svc.model.errors import InvalidParameter

#: The header of a response with a version, and that of a request with the versions that its answer must include.
VERSION_HEADER: Final = "Svc-Version"
AT_LEAST_HEADER: Final = "Svc-At-Least"

#: How many versions a request may name.
MAX_VERSIONS: Final = 4

#: Three numbers in hexadecimal, of 8, 4 and 8 bytes, none of them 0, each in its one form.
_TEXT: Final = re.compile(r"([1-9a-f][0-9a-f]{0,15})\.([1-9a-f][0-9a-f]{0,7})\.([1-9a-f][0-9a-f]{0,15})")


@attrs.frozen
class StateVersion:
    """A state of a database: ``position`` in the log, in bytes, on the ``timeline`` of the PostgreSQL ``system``."""

    system: int
    timeline: int
    position: int

    @classmethod
    def parse_or_none(cls, text: str) -> Self | None:
        """Read a version; ``None`` when the text is none."""
        found = _TEXT.fullmatch(text)
        return None if found is None else cls(*(int(part, 16) for part in found.groups()))

    def __str__(self) -> str:
        return f"{self.system:x}.{self.timeline:x}.{self.position:x}"


def parse_versions(header: str) -> tuple[StateVersion, ...]:
    """Read the value of ``Svc-At-Least``: versions parted by commas (CLU-28).

    :raises InvalidParameter: they are more than ``MAX_VERSIONS``, or one is none.
    """
    texts = header.split(",", MAX_VERSIONS)
    versions = [version for text in texts if (version := StateVersion.parse_or_none(text.strip(" \t"))) is not None]
    if len(versions) < len(texts) or len(texts) > MAX_VERSIONS:
        raise InvalidParameter(
            AT_LEAST_HEADER, f"{AT_LEAST_HEADER} must be one to {MAX_VERSIONS} values of {VERSION_HEADER}, parted by commas"
        )
    return tuple(versions)


@attrs.frozen
class TouchedRecords:
    """The records and values that were changed, by their full ids; or all of some accounts; or everything."""

    ids: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    everything: bool = False


#: Calls a function soon after each change in the database, no matter who makes it, until the returned function is called.
#: The function's reads of the store are at least as new as the change.
FollowChanges = Callable[[Callable[[TouchedRecords], None]], Callable[[], None]]
