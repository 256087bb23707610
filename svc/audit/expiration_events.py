"""The log and the audit events of values and tokens that expire or rotate by themselves, under the program's own name.

Changes of the database are recorded in the transaction of the change too; while the journal takes no records nothing is
rotated and nothing removed. Values expire all the same, at their time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twisted.logger import Logger
from zope.interface import implementer

from svc.model.events import AuditContext, Event, EventBatch, IJournal, Outcome
from svc.model.expiration import IExpirationEvents
from svc.model.host_factories import ExpiredToken
from svc.model.names import ResourceName
from svc.model.text import escape_unprintable

_ACTOR: Final = "svc"

#: Reasons of failures.
ROTATION_FAILED: Final = "rotation-failed"
ANNOTATIONS_UNUSABLE: Final = "annotations-unusable"


_log = Logger()


@implementer(IExpirationEvents)
class LoggedExpirations:
    """Logs expirations and rotations of values, and how many tokens of host factories have expired."""

    def require_available(self) -> None:
        """Return: the log takes everything."""

    def rotation_batch(self, variable: ResourceName, rotator: str) -> EventBatch | None:
        """Return nothing: the log needs no transaction."""

    def removal_batch(self, tokens: Sequence[ExpiredToken]) -> EventBatch | None:
        """Return nothing: the log needs no transaction."""

    async def record_expiration(self, variable: ResourceName, at: float) -> None:
        """Log that a value ended."""
        _log.info("The value of {variable} expired", variable=escape_unprintable(str(variable)), at=at)

    async def record_rotation(self, variable: ResourceName, rotator: str, version: int) -> None:
        """Log that a new value is in force."""
        sentence, shown = "{rotator} rotated {variable} to version {version}", escape_unprintable(str(variable))
        _log.info(sentence, rotator=rotator, variable=shown, version=version)

    async def record_failure(self, variable: ResourceName, rotator: str | None, why: str) -> None:
        """Log that a rotation failed."""
        shown, by = escape_unprintable(str(variable)), escape_unprintable(rotator or "-")
        _log.warn("{rotator} did not rotate {variable}: {why}", rotator=by, variable=shown, why=escape_unprintable(why))

    async def record_removal(self, tokens: Sequence[ExpiredToken]) -> None:
        """Log that tokens of host factories were removed."""
        _log.info("{count} tokens of host factories had expired and were removed", count=len(tokens))


@implementer(IExpirationEvents)
class AuditedExpirations:
    """Records the events that ``inner`` gets in the journal."""

    def __init__(self, inner: IExpirationEvents, journal: IJournal) -> None:
        self._inner, self._journal = inner, journal
        self._origin = AuditContext(journal.server, None, "-", "-")

    def require_available(self) -> None:
        """See ``IExpirationEvents``."""
        self._inner.require_available()
        self._journal.require_available()

    def rotation_batch(self, variable: ResourceName, rotator: str) -> EventBatch:
        """See ``IExpirationEvents``."""
        return EventBatch(self._origin, (_rotation_event(variable, rotator),))

    def removal_batch(self, tokens: Sequence[ExpiredToken]) -> EventBatch:
        """See ``IExpirationEvents``."""
        return EventBatch(self._origin, tuple(map(_removal_event, tokens)))

    async def record_expiration(self, variable: ResourceName, at: float) -> None:
        """See ``IExpirationEvents``."""
        await self._inner.record_expiration(variable, at)
        await self._record_events(_expiry_event(variable))

    async def record_rotation(self, variable: ResourceName, rotator: str, version: int) -> None:
        """See ``IExpirationEvents``."""
        await self._inner.record_rotation(variable, rotator, version)
        await self._record_events(_rotation_event(variable, rotator))

    async def record_failure(self, variable: ResourceName, rotator: str | None, why: str) -> None:
        """See ``IExpirationEvents``."""
        await self._inner.record_failure(variable, rotator, why)
        if rotator is None:
            await self._record_events(_expiry_event(variable, f" ({why})"), reason=ANNOTATIONS_UNUSABLE)
        else:
            await self._record_events(_rotation_event(variable, rotator, f" ({why})"), reason=ROTATION_FAILED)

    async def record_removal(self, tokens: Sequence[ExpiredToken]) -> None:
        """See ``IExpirationEvents``."""
        await self._inner.record_removal(tokens)
        await self._record_events(*map(_removal_event, tokens))

    async def _record_events(self, *events: Event, reason: str | None = None) -> None:
        await self._journal.record_events(self._origin, events, Outcome(reason))


def _expiry_event(variable: ResourceName, why: str = "") -> Event:
    words = f"the value of {variable} expire{why}"
    return Event("expiration", "expire", (("resource", str(variable)),), f"saw {words}", f"have {words}", user=_ACTOR)


def _rotation_event(variable: ResourceName, rotator: str, why: str = "") -> Event:
    words = f"{variable} by {rotator}{why}"
    subject = (("resource", str(variable)), ("rotator", rotator))
    return Event("expiration", "rotate", subject, f"rotated {words}", f"rotate {words}", user=_ACTOR)


def _removal_event(token: ExpiredToken) -> Event:
    words = f"the expired token {token.name} of {token.factory}"
    subject = (("resource", str(token.factory)), ("token", token.name))
    return Event("host-factory", "expire-token", subject, f"removed {words}", f"remove {words}", user=_ACTOR)
