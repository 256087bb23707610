"""Rotations: a new value is made, put in force where it is used, and stored, in an order that survives every crash.

The rotators of a server are listed in ``server/foundation.py`` (``rotators``).

Note [Crash points]. Two systems can't commit as one. So the new value is first kept, sealed (*staged*), then put in force
(*rotated*), then made the newest value (*promoted*). An attempt that was broken off

* before it was staged, left nothing behind;
* before the end of the rotation, left a value that may be in force. The next attempt takes the same value: a rotator tries
  the stored one, and when that is refused the staged one;
* before it was promoted, left the value in force and not stored. Readers get the old one until the next attempt, which finds
  the staged one in force and promotes it. Promoting twice does nothing the second time.

No value becomes the newest that is not in force. A staged value is never thrown away, even if somebody sets a value by hand
meanwhile, since it may be the only valid one. During an attempt the variable isn't due (*lease*); after the death of its
server it is again.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final, NoReturn

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from svc.crypto.vault import Vault
from svc.model.errors import WrongDataKey
from svc.model.expiration import DueVariable, IExpirationEvents, IRotator, Rotation, RotationFailed
from svc.model.names import ResourceName
from svc.model.query_results import Sealed
from svc.rotation.plans import RotationPlan
from svc.storage.expirations import ExpirationStore

#: The seconds that a rotator may take, and those after staging for which a variable is not due: longer than the rest takes.
DEADLINE: Final = 10.0
LEASE_SECONDS: Final = 60.0

#: The pause after a failure, in seconds; it doubles with each further one.
FIRST_PAUSE: Final = 10.0
LONGEST_PAUSE: Final = 3600.0


def pause_after(failures: int) -> float:
    """Return the seconds until the next attempt, after ``failures`` before this one."""
    return float(min(FIRST_PAUSE * 2 ** min(failures, 16), LONGEST_PAUSE))


@attrs.define
class RotationRunner:
    """Rotations of variables, many at a time."""

    _store: ExpirationStore
    _vault: Vault
    _clock: IReactorTime
    _events: IExpirationEvents
    _running: set[Deferred[Any]] = attrs.field(factory=set, init=False)

    async def attempt_rotation(self, due: DueVariable, plan: RotationPlan) -> None:
        """Make one attempt, and record its result (Note [Crash points])."""
        rotator = plan.rotator
        try:
            staged = await self._put_in_force(due, rotator)
        except RotationFailed as failed:
            await self._events.record_failure(due.variable, rotator.name, failed.why)
            await self._store.record_failure(due, pause_after(due.failures), failed.why)
            return
        if staged is None:
            return
        trail = self._events.rotation_batch(due.variable, rotator.name)
        version = await self._store.promote_value(due.variable, staged, plan.interval, trail)
        if version is not None:
            await self._events.record_rotation(due.variable, rotator.name, version)

    def stop(self) -> None:
        """Cancel the rotations that are under way."""
        for running in tuple(self._running):
            running.cancel()

    async def _put_in_force(self, due: DueVariable, rotator: IRotator) -> Sealed | None:
        """Stage a value and put it in force; ``None`` when the variable is gone."""
        if due.value is None:
            raise RotationFailed("it has no value yet: set the one that is in force, from which rotation goes on")
        name = str(due.variable)
        current = self._open_value(name, due.value)
        siblings = await self._read_siblings(due.variable, rotator)
        new = self._vault.seal(name, rotator.new_value(due.annotations))
        staged = await self._store.stage_value(due.variable, new, LEASE_SECONDS)
        if staged is None:
            return None
        rotation = Rotation(current, self._open_value(name, staged), siblings, due.annotations)
        await self._run_bounded(rotator.rotate(rotation))
        return staged

    async def _read_siblings(self, variable: ResourceName, rotator: IRotator) -> dict[str, str]:
        branch = variable.identifier.rpartition("/")[0]
        if not branch:
            raise RotationFailed(f"it must stand in a policy, beside {', '.join(rotator.siblings)}")
        wanted = (*rotator.siblings, *rotator.optional)
        names = {sibling: ResourceName(variable.account, "variable", f"{branch}/{sibling}") for sibling in wanted}
        found = await self._store.read_unexpired_values(tuple(names.values()))
        missing = [sibling for sibling in rotator.siblings if str(names[sibling]) not in found]
        if missing:
            raise RotationFailed(f"it needs a value of {', '.join(missing)} beside it")
        there = ((sibling, str(name)) for sibling, name in names.items() if str(name) in found)
        try:
            return {sibling: self._open_value(name, found[name]).decode("utf-8") for sibling, name in there}
        except UnicodeDecodeError:
            raise RotationFailed(f"the values of {', '.join(wanted)} must be text in UTF-8") from None

    def _open_value(self, name: str, sealed: Sealed) -> bytes:
        try:
            return self._vault.open(name, sealed)
        except WrongDataKey:
            raise RotationFailed("a value does not open under the server's data key") from None

    def _run_bounded(self, work: Coroutine[Deferred[Any], Any, None]) -> Deferred[None]:
        """Wait for a rotator until the deadline, even if it doesn't heed its cancellation."""

        def cancel_running(waiting: Deferred[None]) -> None:
            waiting.errback(RotationFailed("the server stopped meanwhile"))
            running.cancel()

        def raise_timeout(_: object, seconds: float) -> NoReturn:
            raise RotationFailed(f"it took longer than {seconds:g} seconds")

        def pass_result(result: Any) -> None:
            if not outer.called:
                outer.callback(result)

        def forget_running(result: Any) -> Any:
            self._running.discard(outer)
            return result

        outer: Deferred[None] = Deferred(cancel_running)
        self._running.add(outer)
        outer.addTimeout(DEADLINE, self._clock, raise_timeout)
        running = Deferred.fromCoroutine(work)
        running.addBoth(pass_result)
        return outer.addBoth(forget_running)
