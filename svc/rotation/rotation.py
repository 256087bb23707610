"""Rotations: a new value made, put in force where it is used, and stored, in an order that survives every crash.

Note [Crash points]. Two systems can't commit as one. So the new value is kept, sealed, before anything else happens
(*staged*), then put in force (*rotated*), then made the newest value (*promoted*). What was broken off

* before it was staged, left nothing behind;
* between staging and rotating, or during the latter, left a value of which nobody knows whether it is in force. The next
  attempt takes the same value and not another one. A rotator tries the value that is stored, and when that is refused
  the one that was staged: so it finds out;
* between rotating and promoting, left the value in force and not stored. Readers get the old one until the next attempt,
  which finds the staged one in force and promotes it. Promoting twice does nothing the second time.

No value becomes the newest that is not in force. A staged value is never thrown away, be it that somebody sets a value by
hand meanwhile, since it may be the only one that opens the door. While an attempt is under way the variable isn't due
(*lease*), and after a server has died it is again.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.crypto.vault import Vault
from svc.model.errors import WrongDataKey
from svc.model.expiration import Due, IExpirationEvents, IExpirations, IRotator, Rotation, RotationFailed
from svc.model.names import ResourceName
from svc.model.query_results import Sealed
from svc.rotation.plans import Rotates

T = TypeVar("T")

#: How long a rotator may take, in seconds.
DEADLINE: Final = 10.0

#: For how long after it was staged a variable is not due, in seconds: longer than everything after that takes.
LEASE: Final = 60.0

#: The pause after a failure, in seconds; it doubles with each further one, up to the longest.
FIRST_PAUSE: Final = 10.0
LONGEST_PAUSE: Final = 3600.0

_log = Logger()


def pause_after(failures: int) -> float:
    """Return the seconds until the next attempt, after so many failures before this one."""
    return float(min(FIRST_PAUSE * 2 ** min(failures, 16), LONGEST_PAUSE))


@attrs.define
class Rotations:
    """Rotate variables, many at a time; :meth:`stop` cancels rotations that are under way."""

    _store: IExpirations
    _vault: Vault
    _clock: IReactorTime
    _events: IExpirationEvents
    _running: set[Deferred[Any]] = attrs.field(factory=set, init=False)

    async def rotate(self, due: Due, plan: Rotates) -> None:
        """Make one attempt, and record its result (Note [Crash points])."""
        rotator = plan.rotator
        try:
            staged = await self._put_in_force(due, rotator)
        except RotationFailed as failed:
            await self._events.failed(due.variable, rotator.name, failed.why)
            await self._store.fail(due, pause_after(due.failures), failed.why)
            return
        if staged is None:
            return
        trail = self._events.rotation(due.variable, rotator.name)
        version = await self._store.promote(due.variable, staged, plan.interval, trail)
        if version is not None:
            await self._events.rotated(due.variable, rotator.name, version)

    def stop(self) -> None:
        """Cancel the rotations that are under way."""
        for running in tuple(self._running):
            running.cancel()

    async def _put_in_force(self, due: Due, rotator: IRotator) -> Sealed | None:
        """Stage a value and put it in force; ``None`` when the variable is gone."""
        if due.value is None:
            raise RotationFailed("it has no value yet: set the one that is in force, from which rotation goes on")
        name = str(due.variable)
        current = self._opened(name, due.value)
        siblings = await self._siblings(due.variable, rotator)
        new = self._vault.seal(name, rotator.new_value(due.annotations))
        staged = await self._store.stage(due.variable, new, LEASE)
        if staged is None:
            return None
        rotation = Rotation(current, self._opened(name, staged), siblings, due.annotations)
        await self._bounded(rotator.rotate(rotation))
        return staged

    async def _siblings(self, variable: ResourceName, rotator: IRotator) -> dict[str, str]:
        branch = variable.identifier.rpartition("/")[0]
        if not branch:
            raise RotationFailed(f"it must stand in a policy, beside {_listed(rotator.siblings)}")
        wanted = (*rotator.siblings, *rotator.optional)
        names = {sibling: ResourceName(variable.account, "variable", f"{branch}/{sibling}") for sibling in wanted}
        found = await self._store.values(tuple(names.values()))
        missing = [sibling for sibling in rotator.siblings if str(names[sibling]) not in found]
        if missing:
            raise RotationFailed(f"it needs a value of {_listed(missing)} beside it")
        values = {sibling: str(name) for sibling, name in names.items() if str(name) in found}
        try:
            return {sibling: self._opened(name, found[name]).decode("utf-8") for sibling, name in values.items()}
        except UnicodeDecodeError:
            raise RotationFailed(f"the values of {_listed(wanted)} must be text in UTF-8") from None

    def _opened(self, name: str, sealed: Sealed) -> bytes:
        try:
            return self._vault.open(name, sealed)
        except WrongDataKey:
            raise RotationFailed("a value does not open under the server's data key") from None

    def _bounded(self, work: Coroutine[Deferred[Any], Any, T]) -> Deferred[T]:
        """Wait for a rotator no longer than the deadline, whether it heeds its cancellation or not."""

        def broken_off(waiting: Deferred[T]) -> None:
            end(waiting, "the server stopped meanwhile")

        def late() -> None:
            end(outer, f"it took longer than {DEADLINE:g} seconds")

        def end(waiting: Deferred[T], why: str) -> None:
            if timer.active():
                timer.cancel()
            waiting.errback(RotationFailed(why))
            running.cancel()

        def ended(result: Any) -> None:
            if not outer.called:
                timer.cancel()
                outer.callback(result)

        outer: Deferred[T] = Deferred(broken_off)
        self._running.add(outer)
        timer = self._clock.callLater(DEADLINE, late)
        running = Deferred.fromCoroutine(work)
        running.addBoth(ended)

        def gone(result: Any) -> Any:
            self._running.discard(outer)
            return result

        return outer.addBoth(gone)


def _listed(names: Any) -> str:
    return ", ".join(names)
