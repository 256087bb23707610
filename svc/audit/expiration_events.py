"""Audit events of values and tokens that expire or rotate by themselves, recorded under the program's own name.

Changes of the database are recorded in the transaction of the change too; while the journal takes no records nothing is
rotated and nothing removed. Values expire all the same, at their time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zope.interface import implementer

from svc.model.events import Event, EventBatch, IJournal, Outcome
from svc.model.expiration import IExpirationEvents
from svc.model.host_factories import ExpiredToken
from svc.model.names import ResourceName

_ACTOR: Final = "svc"

#: Reasons of failures.
ROTATION_FAILED: Final = "rotation-failed"
ANNOTATIONS_UNUSABLE: Final = "annotations-unusable"


@implementer(IExpirationEvents)
class RecordedExpirations:
    """Records the events that ``inner`` gets in the journal."""

    def __init__(self, inner: IExpirationEvents, journal: IJournal) -> None:
        self._inner, self._journal = inner, journal
        self._origin = journal.origin(None, "-", "-")

    def admit(self) -> None:
        """See ``IExpirationEvents``."""
        self._inner.admit()
        self._journal.admit()

    def rotation(self, variable: ResourceName, rotator: str) -> EventBatch:
        """See ``IExpirationEvents``."""
        return EventBatch(self._origin, (_rotation(variable, rotator),))

    def removal(self, tokens: Sequence[ExpiredToken]) -> EventBatch:
        """See ``IExpirationEvents``."""
        return EventBatch(self._origin, tuple(map(_removal, tokens)))

    async def expired(self, variable: ResourceName, at: float) -> None:
        """See ``IExpirationEvents``."""
        await self._inner.expired(variable, at)
        await self._take(_expiry(variable))

    async def rotated(self, variable: ResourceName, rotator: str, version: int) -> None:
        """See ``IExpirationEvents``."""
        await self._inner.rotated(variable, rotator, version)
        await self._take(_rotation(variable, rotator))

    async def failed(self, variable: ResourceName, rotator: str | None, why: str) -> None:
        """See ``IExpirationEvents``."""
        await self._inner.failed(variable, rotator, why)
        if rotator is None:
            await self._take(_expiry(variable, f" ({why})"), reason=ANNOTATIONS_UNUSABLE)
        else:
            await self._take(_rotation(variable, rotator, f" ({why})"), reason=ROTATION_FAILED)

    async def removed(self, tokens: Sequence[ExpiredToken]) -> None:
        """See ``IExpirationEvents``."""
        await self._inner.removed(tokens)
        await self._take(*map(_removal, tokens))

    async def _take(self, *events: Event, reason: str | None = None) -> None:
        await self._journal.take(self._origin, events, Outcome(reason))


def _expiry(variable: ResourceName, why: str = "") -> Event:
    words = f"the value of {variable} expire{why}"
    return Event("expiration", "expire", (("resource", str(variable)),), f"saw {words}", f"have {words}", user=_ACTOR)


def _rotation(variable: ResourceName, rotator: str, why: str = "") -> Event:
    words = f"{variable} by {rotator}{why}"
    subject = (("resource", str(variable)), ("rotator", rotator))
    return Event("expiration", "rotate", subject, f"rotated {words}", f"rotate {words}", user=_ACTOR)


def _removal(token: ExpiredToken) -> Event:
    words = f"the expired token {token.name} of {token.factory}"
    subject = (("resource", str(token.factory)), ("token", token.name))
    return Event("host-factory", "expire-token", subject, f"removed {words}", f"remove {words}", user=_ACTOR)
