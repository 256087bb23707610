"""Refused logins at a steady pace."""

from __future__ import annotations

from functools import partial

import attrs
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.throttling import LDAP_STEP, STEP, RefusalPace
from svc.model.authentication import Admitted, Authenticate, LoginRequest, Refused
from svc.model.errors import StoreUnavailable
from svc.model.names import RoleName
from svc.model.reasons import Reason
from svc.model.request_notes import begin_notes, request_notes

REQUEST = LoginRequest("acme", "host/web", b"evidence", "192.0.2.1")
ADMITTED = Admitted(RoleName("acme", "host", "web"), "key")
REFUSED = Refused(Reason.ROLE_UNKNOWN, "there is none")


@attrs.frozen
class Deciding:
    """Decides after some seconds."""

    clock: Clock
    seconds: float
    decision: Admitted | Refused | None
    stale: bool = False

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """Decide."""
        await deferLater(self.clock, self.seconds)
        if self.decision is None:
            raise StoreUnavailable("it is away")
        if self.stale:
            notes = request_notes()
            assert notes is not None
            notes.stale = 3.0
        return self.decision

    async def api_key(self, request: LoginRequest) -> bytes | Refused:
        """Decide in the same way."""
        decision = await self.authenticate(request)
        return decision if isinstance(decision, Refused) else b"key"


@attrs.frozen
class Recovering:
    """Decides by stale memory as long as that may outlive the database, then by that."""

    decisions: list[Admitted | Refused]

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """Decide."""
        notes = request_notes()
        assert notes is not None
        if notes.may_serve_stale:
            notes.stale = 3.0
        return self.decisions.pop(0)


def pace(clock: Clock, turn: Deferred[None] | None = None) -> RefusalPace:
    """Return a pace at which readings are answered at once, or with ``turn``."""

    async def turned() -> None:
        if turn is not None:
            await turn

    return RefusalPace(clock, turned, partial(deferLater, clock))


def asked(authenticate: Authenticate) -> Deferred[Admitted | Refused]:
    """Ask as a request does, which has notes in a context of its own."""

    async def request() -> Admitted | Refused:
        notes = begin_notes()
        notes.may_serve_stale = True
        try:
            decision: Admitted | Refused = await authenticate(REQUEST)
        except StoreUnavailable:
            assert notes.stale is None, "the answer would tell that the role is remembered"
            raise
        return decision

    return Deferred.fromCoroutine(request())


class PacingTests(SynchronousTestCase):
    """The moments at which logins are answered."""

    def taken(self, seconds: float, decision: Admitted | Refused, *, login: bool = False) -> float:
        """Return after how many seconds a login is answered that is decided after some."""
        clock, moments = Clock(), list[float]()
        inner = Deciding(clock, seconds, decision)
        if login:
            answer: Deferred[object] = Deferred.fromCoroutine(pace(clock).pace_refusals(inner.api_key)(REQUEST))
        else:
            answer = Deferred.fromCoroutine(pace(clock).pace_refusals(inner.authenticate)(REQUEST))
        answer.addCallback(lambda _: moments.append(clock.seconds()))
        clock.pump([0.0005] * 200)
        self.successResultOf(answer)
        return round(moments[0], 6)

    def test_refusals(self) -> None:
        """A refusal comes at the end of a step, however soon it was decided within that (FAIL-18)."""
        for seconds, expected in ((0.0, STEP), (0.0005, STEP), (0.003, STEP), (0.019, STEP), (0.021, 2 * STEP)):
            for login in (False, True):
                self.assertAlmostEqual(self.taken(seconds, REFUSED, login=login), expected, delta=0.0006)

    def test_directories(self) -> None:
        """Where directories are asked a step is so long that a bind, or none, makes no difference (FAIL-18)."""
        for seconds in (0.02, 0.045, 0.105, 0.24):
            clock = Clock()
            paced = attrs.evolve(pace(clock), step=LDAP_STEP).pace_refusals(Deciding(clock, seconds, REFUSED).authenticate)
            answer = Deferred.fromCoroutine(paced(REQUEST))
            clock.pump([0.001] * 249)
            self.assertNoResult(answer)
            clock.pump([0.001] * 2)
            self.successResultOf(answer)

    def test_unavailable(self) -> None:
        """That the store can't be asked is told at the same pace, and so is a refusal from stale memory (FAIL-12,
        CLU-37).
        """
        for inner_decision, stale in ((None, False), (REFUSED, True)):
            clock = Clock()
            turn = fail(StoreUnavailable("it is away")) if stale else None
            answer = asked(pace(clock, turn).pace_refusals(Deciding(clock, 0.003, inner_decision, stale).authenticate))
            clock.advance(0.004)
            self.assertNoResult(answer)
            clock.advance(STEP)
            self.failureResultOf(answer, StoreUnavailable)

    def test_back(self) -> None:
        """When a refusal from stale memory has its turn and the database can be asked, that decides: what is remembered gets
        the answer that is given for what is not (CLU-37).
        """
        for decision in (REFUSED, ADMITTED):
            clock = Clock()
            answer = asked(pace(clock).pace_refusals(Recovering([REFUSED, decision]).authenticate))
            clock.advance(STEP)
            self.assertEqual(self.successResultOf(answer), decision)

    def test_turn(self) -> None:
        """Where readings wait for the database, a refusal waits for its turn, and fails as they do; an admission doesn't
        (FAIL-18).
        """
        for inner_decision, fault in ((REFUSED, None), (REFUSED, StoreUnavailable("it is away")), (ADMITTED, None)):
            clock, turn = Clock(), Deferred[None]()
            answer = asked(pace(clock, turn).pace_refusals(Deciding(clock, 0.0, inner_decision).authenticate))
            clock.pump([STEP / 2] * 10)
            if inner_decision is ADMITTED:
                self.assertEqual(self.successResultOf(answer), ADMITTED)
                continue
            self.assertNoResult(answer)
            if fault is None:
                turn.callback(None)
            else:
                turn.errback(fault)
            self.assertNoResult(answer)
            clock.advance(STEP)
            if fault is None:
                self.assertEqual(self.successResultOf(answer), REFUSED)
            else:
                self.failureResultOf(answer, StoreUnavailable)

    def test_stale_admission(self) -> None:
        """Stale memory admits (CLU-37)."""
        clock = Clock()
        answer = asked(pace(clock).pace_refusals(Deciding(clock, 0.0, ADMITTED, True).authenticate))
        clock.advance(0.0)
        self.assertEqual(self.successResultOf(answer), ADMITTED)

    def test_admissions(self) -> None:
        """An admission isn't held."""
        self.assertAlmostEqual(self.taken(0.003, ADMITTED), 0.003, delta=0.0006)
        self.assertAlmostEqual(self.taken(0.003, ADMITTED, login=True), 0.003, delta=0.0006)
