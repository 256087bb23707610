"""Large loads, each of which waits for a turn that all processes of the server share."""

from __future__ import annotations

import attrs
from twisted.internet.defer import Deferred
from zope.interface import implementer

from svc.model.policy_loads import Load, LoadOutcome
from svc.model.ports import ILoads
from svc.model.turns import ITurns


@implementer(ILoads)
@attrs.frozen
class LoadsInTurn:
    """Passes loads on to ``inner``. A turn is given back when its load has ended, not when the client stops waiting."""

    _inner: ILoads
    _turns: ITurns

    async def load(self, load: Load) -> LoadOutcome:
        """See ``ILoads``."""
        give_back = await self._turns.take(str(load.caller.role))
        outcome: Deferred[LoadOutcome] = Deferred()

        def ended(result: object) -> None:
            give_back()
            outcome.callback(result)  # type: ignore[arg-type] # a failure is passed on as one; it goes nowhere when nobody waits

        Deferred.fromCoroutine(self._inner.load(load)).addBoth(ended)
        return await outcome
