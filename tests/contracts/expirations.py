"""The suite of ``ExpirationStore``."""

from __future__ import annotations

from collections.abc import Mapping

from svc.model.errors import Forbidden
from svc.model.expiration import DueVariable, Duration, RoundOwner
from svc.model.policy_loads import AnnotationRow, Changes, ResourceRow, Rows
from svc.model.query_results import AccessFacts, Sealed, SecretVersion
from tests.contracts import events
from tests.contracts.base import ACCOUNT, ADMIN, Contract, Draft, Stores, change, described, load, resource, scenario
from tests.contracts.secrets import OWNED, always

VARIABLE = resource("variable:v")
LIFETIME = {"expiration/ttl": "P1D"}
ROTATION = {"rotation/rotator": "postgresql/password", "rotation/ttl": "P1D"}
DAY = Duration(days=1)
PAST = Duration(seconds=-1)


class ExpirationsContract(Contract):
    """What is due, and what becomes of it. Here values end a second before they were set, or days after."""

    async def annotated(self, *annotations: dict[str, str], value: bytes | None = b"value") -> Stores:
        """A store with variables that have these annotations; the first is ``VARIABLE``, and has a value."""
        stores = await self.stores_with_account()
        names = [f"variable:{name}" for name, _ in zip("vwxyz", annotations, strict=False)]
        draft = Draft().define(*names)
        for name, given in zip(names, annotations, strict=True):
            draft.annotate(name, given)
        await load(stores, draft)
        if value is not None:
            await stores.secrets.write_value(ADMIN, VARIABLE, always(value))
        return stores

    async def one(self, stores: Stores) -> DueVariable:
        """The one variable that is due."""
        [due] = await stores.expirations.list_due(10)
        return due

    async def ends(self, stores: Stores) -> tuple[float | None, ...]:
        """When the values of ``VARIABLE`` end."""
        [told] = await described(stores, [str(VARIABLE)])
        return tuple(version.expires_at for version in told.secret_versions)

    @scenario
    async def test_turns(self) -> None:
        """The turn is one's while the work takes, and nobody else's (SEC-29)."""
        expirations = (await self.stores()).expirations
        inner: list[RoundOwner] = []

        async def nothing() -> None:
            self.fail("it was another's turn")

        async def work() -> None:
            inner.append(await expirations.run_exclusively(nothing))

        self.assertEqual(await expirations.run_exclusively(work), RoundOwner.OURS)
        self.assertEqual(inner, [RoundOwner.OTHERS])

    @scenario
    async def test_a_turn_that_fails(self) -> None:
        """What the work raises ends the turn."""
        expirations = (await self.stores()).expirations
        done: list[int] = []

        async def fail() -> None:
            raise Forbidden("no")

        async def work() -> None:
            done.append(1)

        with self.assertRaises(Forbidden):
            await expirations.run_exclusively(fail)
        self.assertEqual((await expirations.run_exclusively(work), done), (RoundOwner.OURS, [1]))

    @scenario
    async def test_what_is_due(self) -> None:
        """Variables are due whose annotations say how long values live or that they are rotated, and nothing else is."""
        stores = await self.annotated(LIFETIME, ROTATION, {"name": "x"}, {})
        await load(stores, Draft().define("host:h").annotate("host:h", {**LIFETIME, **ROTATION}))
        due = sorted(await stores.expirations.list_due(10), key=lambda each: str(each.variable))
        self.assertEqual([str(each.variable) for each in due], ["acct:variable:v", "acct:variable:w"])
        self.assertEqual([each.annotations for each in due], [LIFETIME, ROTATION])
        self.assertEqual([each.changed for each in due], [True, True])
        self.assertEqual([each.rotator_name for each in due], [None, "postgresql/password"])
        self.assertEqual((due[0].value, due[0].has_expired, due[0].failures), (b"value", False, 0))
        self.assertEqual((due[1].value, due[1].expires_at), (None, None))
        self.assertEqual(len(await stores.expirations.list_due(1)), 1)

    @scenario
    async def test_lives(self) -> None:
        """A value that is set while the annotation stands ends so long after, and older ones at their own time (SEC-21)."""
        stores = await self.annotated(LIFETIME)
        await stores.expirations.set_lifetime(await self.one(stores), DAY)
        first = await self.ends(stores)
        await stores.secrets.write_value(ADMIN, VARIABLE, always(b"new"))
        ends = await self.ends(stores)
        self.assertEqual(ends[:1], first)
        self.assertGreaterEqual((ends[1] or 0), (ends[0] or 0))
        self.assertEqual(await stores.expirations.list_due(10), [])
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE)).sealed, b"new")

    @scenario
    async def test_a_lifetime_that_cannot_be_read(self) -> None:
        """A value that is set under an annotation that is no duration doesn't end."""
        stores = await self.annotated({"expiration/ttl": "soon"})
        self.assertEqual(await self.ends(stores), (None,))

    @scenario
    async def test_ended(self) -> None:
        """A value that has ended isn't told, its moment is, by itself and among several; a new one takes its place
        (SEC-22).
        """
        stores = await self.annotated(LIFETIME)
        await stores.expirations.set_lifetime(await self.one(stores), PAST)
        (end,) = await self.ends(stores)
        reading = await stores.secrets.read_value(ADMIN, VARIABLE)
        self.assertEqual((reading.sealed, reading.version, reading.expired_at), (None, 1, end))
        self.assertEqual(await stores.secrets.read_newest_values(ADMIN, [VARIABLE], 1000), [reading])
        self.assertEqual(await stores.secrets.read_value(ADMIN, VARIABLE, 1), reading)
        self.assertEqual(await stores.expirations.read_unexpired_values([VARIABLE]), {})
        due = await self.one(stores)
        self.assertEqual((due.changed, due.has_expired, due.expires_at), (False, True, end))
        await stores.expirations.mark_handled(due)
        self.assertEqual(await stores.expirations.list_due(10), [])
        await stores.secrets.write_value(ADMIN, VARIABLE, always(b"new"))
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE)).sealed, b"new")
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE, 1)).expired_at, end)

    @scenario
    async def test_ended_settings(self) -> None:
        """An authenticator is told nothing of a value that has ended, and learns that its settings have changed."""
        stores = await self.annotated(LIFETIME)
        variable = resource("variable:svc/authn-jwt/ci/issuer")
        await load(
            stores, Draft().define("variable:svc/authn-jwt/ci/issuer").annotate("variable:svc/authn-jwt/ci/issuer", LIFETIME)
        )
        await stores.secrets.write_value(ADMIN, variable, always(b"issuer"))
        before = await stores.authenticators.read_settings(ACCOUNT, "svc/authn-jwt/ci", ["issuer"])
        [due] = [each for each in await stores.expirations.list_due(10) if each.variable == variable]
        await stores.expirations.set_lifetime(due, PAST)
        after = await stores.authenticators.read_settings(ACCOUNT, "svc/authn-jwt/ci", ["issuer"])
        self.assertEqual((before.values, after.values), ({"issuer": b"issuer"}, {"issuer": None}))
        self.assertNotEqual(before.etag, after.etag)

    @scenario
    async def test_rotated_values_stay(self) -> None:
        """The value of a variable that is rotated stays until there is another, however late that is (SEC-28)."""
        stores = await self.annotated({**ROTATION, **LIFETIME})
        self.assertEqual(await self.ends(stores), (None,))
        candidate = await stores.expirations.stage_value(VARIABLE, Sealed(b"new"), 60.0)
        assert candidate is not None
        self.assertEqual(await stores.expirations.promote_value(VARIABLE, candidate, PAST), 2)
        reading = await stores.secrets.read_value(ADMIN, VARIABLE)
        self.assertEqual((reading.sealed, reading.version, reading.expired_at), (b"new", 2, None))
        self.assertEqual(await stores.expirations.read_unexpired_values([VARIABLE]), {str(VARIABLE): b"new"})

    @scenario
    async def test_no_lifetime_any_more(self) -> None:
        """When the annotation is taken back, values don't end any more; ended ones are there again (SEC-24)."""
        stores = await self.annotated(LIFETIME)
        await stores.expirations.set_lifetime(await self.one(stores), PAST)
        gone = AnnotationRow(str(VARIABLE), "expiration/ttl", "P1D")
        await change(stores, Changes(delete=Rows(annotations=(gone,))))
        due = await self.one(stores)
        self.assertEqual((due.annotations, due.changed), ({}, True))
        await stores.expirations.set_lifetime(due, None)
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE)).sealed, b"value")
        self.assertEqual(await stores.expirations.list_due(10), [])
        [told] = await described(stores, [str(VARIABLE)])
        self.assertIsNone(told.expiration)

    @scenario
    async def test_intervals(self) -> None:
        """A value that was never to be replaced is due at once; one that is, when the new interval says."""
        stores = await self.annotated(ROTATION)
        await stores.expirations.set_interval(await self.one(stores), DAY)
        due = await self.one(stores)
        self.assertEqual((due.changed, due.expires_at), (False, None))
        await stores.expirations.stage_value(VARIABLE, Sealed(b"new"), 60.0)
        await stores.expirations.promote_value(VARIABLE, Sealed(b"new"), PAST)
        due = await self.one(stores)
        self.assertTrue(due.has_expired)
        await stores.expirations.set_interval(due, DAY)
        self.assertEqual(await stores.expirations.list_due(10), [])
        first, second = await self.ends(stores)
        self.assertIsNone(first)
        self.assertIsNotNone(second)

    @scenario
    async def test_staged(self) -> None:
        """A value that is kept stays until it is promoted, whatever else is offered; nobody reads it before (SEC-31)."""
        stores = await self.annotated(ROTATION)
        expirations = stores.expirations
        await expirations.set_interval(await self.one(stores), DAY)
        self.assertEqual(await expirations.stage_value(VARIABLE, Sealed(b"one"), 60.0), b"one")
        self.assertEqual(await expirations.list_due(10), [])
        self.assertEqual(await expirations.stage_value(VARIABLE, Sealed(b"two"), 0.0), b"one")
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE)).version, 1)
        self.assertIsNone(await expirations.promote_value(VARIABLE, Sealed(b"two"), DAY))
        trail = events.trail(events.event(operation="rotate", resource=str(VARIABLE)))
        self.assertEqual(await expirations.promote_value(VARIABLE, Sealed(b"one"), DAY, trail), 2)
        self.assertIsNone(await expirations.promote_value(VARIABLE, Sealed(b"one"), DAY, trail))
        self.assertEqual(await events.operations(stores), ["rotate"])
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE)).sealed, b"one")
        [told] = await described(stores, [str(VARIABLE)])
        self.assertEqual(told.secret_versions[0], SecretVersion(1))
        assert told.expiration is not None
        self.assertEqual(told.expiration.due_at, told.secret_versions[1].expires_at)

    @scenario
    async def test_staged_for_nothing(self) -> None:
        """For a variable that is gone nothing is kept, and nothing is promoted."""
        stores = await self.annotated(ROTATION)
        await stores.expirations.stage_value(VARIABLE, Sealed(b"new"), 60.0)
        await change(stores, Changes(delete=Rows(resources=(ResourceRow(str(VARIABLE), str(ADMIN)),))))
        self.assertIsNone(await stores.expirations.stage_value(VARIABLE, Sealed(b"new"), 60.0))
        self.assertIsNone(await stores.expirations.promote_value(VARIABLE, Sealed(b"new"), DAY))
        self.assertEqual(await stores.expirations.list_due(10), [])

    @scenario
    async def test_failures(self) -> None:
        """Failures are counted, and told with the fault and the next moment; a value that is set begins again (SEC-30)."""
        stores = await self.annotated(ROTATION)
        for count in (1, 2):
            due = await self.one(stores)
            await stores.expirations.record_failure(due, 0.0 if count == 1 else 3600.0, "no route")
            [told] = await described(stores, [str(VARIABLE)])
            assert told.expiration is not None
            self.assertEqual((told.expiration.failures, told.expiration.fault), (count, "no route"))
            self.assertIsNotNone(told.expiration.due_at)
        self.assertEqual(await stores.expirations.list_due(10), [])
        await stores.secrets.write_value(ADMIN, VARIABLE, always(b"by hand"))
        [told] = await described(stores, [str(VARIABLE)])
        assert told.expiration is not None
        self.assertEqual((told.expiration.failures, told.expiration.fault), (0, None))
        self.assertEqual((await self.one(stores)).failures, 0)

    @scenario
    async def test_faults(self) -> None:
        """A fault is told while the variable rests, until its annotations change (SEC-26)."""
        stores = await self.annotated({"expiration/ttl": "soon"})
        await stores.expirations.mark_handled(await self.one(stores), "expiration/ttl is no duration")
        [told] = await described(stores, [str(VARIABLE)])
        assert told.expiration is not None
        self.assertEqual((told.expiration.due_at, told.expiration.fault), (None, "expiration/ttl is no duration"))
        self.assertEqual(await stores.expirations.list_due(10), [])

    @scenario
    async def test_out_of_date(self) -> None:
        """What was decided before a value was set, or expirations were cleared, is dropped."""
        stores = await self.annotated(LIFETIME)
        stale = await self.one(stores)
        await stores.secrets.write_value(ADMIN, VARIABLE, always(b"new"))
        await stores.expirations.set_lifetime(stale, PAST)
        await stores.expirations.mark_handled(stale)
        await stores.expirations.record_failure(stale, 3600.0, "no")
        self.assertTrue((await self.one(stores)).changed)
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE)).sealed, b"new")

    @scenario
    async def test_cleared(self) -> None:
        """Cleared, no value ends any more, ended ones are there again, and what is rotated is due (SEC-25)."""
        stores = await self.annotated(LIFETIME, ROTATION)
        [due] = [each for each in await stores.expirations.list_due(10) if each.variable == VARIABLE]
        await stores.expirations.set_lifetime(due, PAST)
        seen: list[AccessFacts] = []
        trail = events.trail(events.event(operation="clear", resource=str(VARIABLE)))
        await stores.expirations.clear_expirations(ADMIN, VARIABLE, seen.append, trail)
        self.assertEqual(await events.operations(stores), ["clear"])
        self.assertEqual(seen, [OWNED])
        self.assertEqual(await self.ends(stores), (None,))
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE)).sealed, b"value")
        rotated = resource("variable:w")
        await stores.expirations.stage_value(rotated, Sealed(b"one"), 60.0)
        await stores.expirations.promote_value(rotated, Sealed(b"one"), DAY)
        await stores.expirations.clear_expirations(ADMIN, rotated, seen.append)
        self.assertEqual((await self.one(stores)).variable, rotated)

    @scenario
    async def test_clearing_refused(self) -> None:
        """A refusal to clear passes through, and nothing is cleared; what isn't there is judged as such."""
        stores = await self.annotated(LIFETIME)
        await stores.expirations.set_lifetime(await self.one(stores), PAST)

        def refuse(access_facts: AccessFacts) -> None:
            raise Forbidden(str(access_facts.exists))

        for variable, exists in ((VARIABLE, True), (resource("variable:no"), False)):
            with self.assertRaises(Forbidden) as caught:
                await stores.expirations.clear_expirations(ADMIN, variable, refuse, events.trail(events.event()))
            self.assertEqual(caught.exception.why, str(exists))
        self.assertIsNotNone((await stores.secrets.read_value(ADMIN, VARIABLE)).expired_at)
        self.assertEqual(await events.operations(stores), [])

    @scenario
    async def test_annotations_checked(self) -> None:
        """The annotations about expiration are checked after the caller's rights, and may refuse that anything is cleared
        (SEC-25).
        """
        stores = await self.annotated({**LIFETIME, "description": "short"})
        await stores.expirations.set_lifetime(await self.one(stores), PAST)
        seen: list[object] = []

        def refuse(annotations: Mapping[str, str]) -> None:
            seen.append(annotations)
            raise Forbidden("no")

        trail = events.trail(events.event())
        with self.assertRaises(Forbidden):
            await stores.expirations.clear_expirations(ADMIN, VARIABLE, seen.append, trail, refuse)
        self.assertEqual(seen, [OWNED, LIFETIME])
        self.assertIsNotNone((await stores.secrets.read_value(ADMIN, VARIABLE)).expired_at)
        self.assertEqual(await events.operations(stores), [])
