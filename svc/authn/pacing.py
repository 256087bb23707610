"""Refused logins are answered at a steady pace, so that timing reveals nothing about the read cache.

Note [Steps]. Whether a role is cached decides how soon a login is refused, and one that logs in often is cached. So a
refusal is answered at the end of a step of ``step`` seconds since the request: the first, unless the database is slow,
whether the role is known, cached or neither (FAIL-18). A slow database, or one that reads wait for, takes longer: then a
refusal from the cache makes an empty query (``await_read``), which takes as long as a read, and fails as one. Admissions
aren't held: an admitted client knows that the role exists.

Where a directory is queried, steps are longer (``LDAP_STEP``): a bind follows only where it has an entry, and takes it tens
of milliseconds.

Note [No refusal from a stale cache]. While the database is unavailable, the read cache may admit (``--serve-stale``). It
refuses nobody: a key that fails may be a new one, and roles that aren't cached can't be verified (FAIL-12). So both get the
same answer, at the same pace. Where that query shows that the database is available again, it decides, as about roles that
aren't cached: at that moment, too, both get the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import attrs
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from svc.model.authentication import (
    Admitted,
    Explanation,
    ExplanationRequest,
    IAuthenticator,
    IKeyExplainer,
    ILogin,
    LoginRequest,
    Refused,
)
from svc.model.errors import StoreUnavailable
from svc.model.request_notes import request_notes

R = TypeVar("R", bound=LoginRequest)
T = TypeVar("T")

#: Seconds of a step: many times what a read of the database takes.
STEP: Final = 0.02

#: Seconds of a step where directories are queried: many times the duration of a bind.
LDAP_STEP: Final = 0.25


@attrs.frozen(eq=False)
class RefusalPace:
    """The pace of refusals.

    ``await_read`` returns when a read that begins now would have its answer, ``sleep`` when so many seconds have passed, and
    not even a fraction of a millisecond later (``svc/server/fine_timer.py``).
    """

    _clock: IReactorTime
    _await_read: Callable[[], Awaitable[None]]
    _sleep: Callable[[float], Awaitable[None]]
    step: float = STEP

    async def decide_paced(self, decide: Callable[[R], Awaitable[T | Refused]], request: R) -> T | Refused:
        """Return a decision, a refusal at the end of a step (Note [Steps]); raises as ``decide``, at the same pace."""
        began, unavailable, notes = self._clock.seconds(), None, request_notes()
        try:
            decision = await decide(request)
            if not isinstance(decision, Refused):
                return decision
            await self._await_read()
            if notes is not None and notes.stale is not None:
                # The database is available again.
                notes.stale, notes.may_outlive = None, False
                decision = await decide(request)
                if not isinstance(decision, Refused):
                    return decision
        except StoreUnavailable as error:
            unavailable = error
        if notes is not None and notes.stale is not None:
            # The answer reveals to nobody that the role is cached.
            notes.stale = None
            unavailable = StoreUnavailable("what is remembered admits nobody with this evidence, and may be out of date")
        await self._sleep(self.step - (self._clock.seconds() - began) % self.step)
        if unavailable is not None:
            raise unavailable
        return decision


@implementer(IAuthenticator)
@attrs.frozen(eq=False)
class PacedAuthenticator:
    """Answers the refusals of ``inner`` at the end of a step (Note [Steps])."""

    _inner: IAuthenticator
    _pace: RefusalPace

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """See ``IAuthenticator``."""
        return await self._pace.decide_paced(self._inner.authenticate, request)


@implementer(ILogin)
@attrs.frozen(eq=False)
class PacedLogin:
    """Answers the refusals of ``inner`` at the end of a step (Note [Steps])."""

    _inner: ILogin
    _pace: RefusalPace

    async def api_key(self, request: LoginRequest) -> bytes | Refused:
        """See ``ILogin``."""
        return await self._pace.decide_paced(self._inner.api_key, request)


@implementer(IKeyExplainer)
@attrs.frozen(eq=False)
class PacedExplainer:
    """Answers the refusals of ``inner`` at the end of a step (Note [Steps]): not every client may know which roles exist."""

    _inner: IKeyExplainer
    _pace: RefusalPace

    async def explain(self, request: ExplanationRequest) -> Explanation | Refused:
        """See ``IKeyExplainer``."""
        return await self._pace.decide_paced(self._inner.explain, request)
