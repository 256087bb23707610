"""Versions of the service's state that a program received, for reads that must not be older.

A program that writes through one server, and reads through another, gives both the same :class:`Versions`. A client of this
library sends them by itself::

    versions = Versions(reactor.seconds)
    client = Client.of(reactor, "https://follower.example.org", "acme", evidence, versions=versions)
    versions.note(answer_to_a_write.headers.get("Svc-Version"))
    await client.secret("ci/database/password")  # is what was written, or newer

Note [Forgotten]. A version is required for an hour. By then it has arrived wherever anybody reads, and if it hasn't, as
after the restore of an old copy of the database's files, reads should not fail for it for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from svc.model.versions import MAX_VERSIONS, StateVersion

#: For how long a version is required, in seconds (Note [Forgotten]).
REQUIRED_SECONDS: Final = 3600.0


@attrs.frozen
class ReceivedVersion:
    """A version, and when it was received."""

    version: StateVersion
    received_at: float

    def is_newer_than(self, other: StateVersion) -> bool:
        """Return whether it is a later version than another of the same system."""
        mine = self.version
        return mine.system == other.system and (mine.timeline, mine.position) > (other.timeline, other.position)


class Versions:
    """The newest version of each of the last few systems; ``seconds`` is the clock by which they are dropped."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._received: dict[int, ReceivedVersion] = {}

    def note(self, text: str | None) -> None:
        """Note the value of ``Svc-Version`` in an answer; ``None``, and what is no version, are ignored."""
        version = StateVersion.parse_or_none(text or "")
        if version is not None:
            self.add(ReceivedVersion(version, self._seconds()))

    def add(self, told: ReceivedVersion) -> bool:
        """Take a version, unless it is too old already or not the newest of its system; return whether it was taken."""
        version = told.version
        former = self._received.get(version.system)
        newer = former is not None and self.remembers(former) and former.is_newer_than(version)
        if newer or not self.remembers(told):
            return False
        self._received.pop(version.system, None)
        self._received[version.system] = told
        while len(self._received) > MAX_VERSIONS:
            del self._received[min(self._received.values(), key=lambda each: each.received_at).version.system]
        return True

    def remembers(self, told: ReceivedVersion) -> bool:
        """Return whether a version is still required (Note [Forgotten])."""
        return abs(self._seconds() - told.received_at) < REQUIRED_SECONDS

    @property
    def wanted(self) -> str | None:
        """The value of ``Svc-At-Least`` in a request; ``None`` where there is nothing to require."""
        return ",".join(str(told.version) for told in self._received.values() if self.remembers(told)) or None
