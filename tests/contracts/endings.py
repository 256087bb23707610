"""The suite of ``UpcomingExpirationStore``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from svc.model.expiration import (
    EXPIRATIONS_START,
    LIFETIME,
    ROTATION_LIFETIME,
    ROTATOR,
    Duration,
    ExpirationCursor,
    ExpirationKind,
    ExpirationsPage,
    UpcomingExpiration,
)
from svc.model.host_factories import FactoryToken, name_token
from svc.model.query_results import Sealed, SecretReading
from tests.contracts.base import ACCOUNT, ADMIN, ROOT, Contract, Draft, Stores, load, resource, role, scenario

#: Later than everything here.
LATE: Final = 4e9
DAY: Final = 86_400.0

Read = Callable[[ExpirationCursor, float, int], Awaitable[ExpirationsPage]]


class EndingsContract(Contract):
    """What ends in an account."""

    async def all_of(self, read: Read, most: int = 2) -> list[UpcomingExpiration]:
        """All that a reading returns, a few at a time, in their order."""
        found: list[UpcomingExpiration] = []
        after: ExpirationCursor | None = EXPIRATIONS_START
        while after is not None:
            reading = await read(after, LATE, most)
            self.assertEqual(
                [each.cursor for each in reading.expirations], sorted(each.cursor for each in reading.expirations)
            )
            found += reading.expirations
            self.assertFalse(reading.last is not None and reading.last <= after)
            after = reading.last
        return found

    async def set_value(self, stores: Stores, name: str) -> None:
        """Give a variable a value."""

        def decide(_: SecretReading) -> Sealed:
            return Sealed(b"value")

        await stores.secrets.write_value(ADMIN, resource(name), decide)

    @scenario
    async def test_variables(self) -> None:
        """Values end, and others are rotated, by when they are due; what another account has isn't among them (END-2)."""
        stores = await self.stores_with_account("other")
        draft = Draft().define("variable:a", "variable:b", "variable:c", "variable:plain")
        for name, lifetime in (("a", "P3D"), ("b", "P2D")):
            draft.annotate(f"variable:{name}", {LIFETIME: lifetime})
        draft.annotate("variable:c", {ROTATOR: "postgresql/password", ROTATION_LIFETIME: "P1D"})
        await load(stores, draft)
        await load(
            stores,
            Draft("other").define("variable:x").annotate("variable:x", {LIFETIME: "P1D"}),
            role("policy:root", "other"),
        )
        for name in ("a", "b", "c", "plain"):
            await self.set_value(stores, f"variable:{name}")
        for due in await stores.expirations.list_due(10):
            if due.rotator_name:
                await stores.expirations.record_failure(due, 7 * DAY, "it is away")
            elif due.variable.account == ACCOUNT:
                await stores.expirations.set_lifetime(due, Duration.parse(due.annotations[LIFETIME]))

        async def read(after: ExpirationCursor, until: float, most: int) -> ExpirationsPage:
            return await stores.endings.list_variables(ACCOUNT, after, until, most)

        for most in (1, 2, 10):
            found = await self.all_of(read, most)
            self.assertEqual(
                [(each.kind, each.id, each.failures, each.fault) for each in found],
                [
                    (ExpirationKind.VALUE, "acct:variable:b", 0, None),
                    (ExpirationKind.VALUE, "acct:variable:a", 0, None),
                    (ExpirationKind.ROTATION, "acct:variable:c", 1, "it is away"),
                ],
            )
        b, a, _ = found
        self.assertIsNotNone(b.since)
        self.assertAlmostEqual(b.at - (b.since or 0.0), 2 * DAY, places=3)
        self.assertEqual((await read(EXPIRATIONS_START, b.at, 10)).expirations, [b])
        self.assertEqual((await read(b.cursor, a.at, 10)).expirations, [a])

    @scenario
    async def test_tokens(self) -> None:
        """Tokens of host factories are listed by their names, in the order in which they end (END-3)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("host_factory:f", "host_factory:g"))
        expected = []
        for factory, at, digests in (("f", 2e9, (b"\x02" * 32, b"\x01" * 32)), ("g", 1.9e9, (b"\x03" * 32,))):
            name = role(f"host_factory:{factory}")
            await stores.factories.add_tokens(digests, FactoryToken(name, at))
            expected += [
                UpcomingExpiration(ExpirationKind.HOST_FACTORY_TOKEN, at, str(name), name_token(digest))
                for digest in digests
            ]

        async def read(after: ExpirationCursor, until: float, most: int) -> ExpirationsPage:
            return await stores.endings.list_factory_tokens(ACCOUNT, after, until, most)

        for most in (1, 2, 10):
            self.assertEqual(await self.all_of(read, most), sorted(expected, key=lambda each: each.cursor))
        self.assertEqual(len((await read(EXPIRATIONS_START, 1.95e9, 10)).expirations), 1)
        odd = ExpirationCursor(2e9, expected[0].cursor.rank, str(role("host_factory:f")), "sha256:zz")
        self.assertEqual((await read(odd, LATE, 10)).expirations, [])

    @scenario
    async def test_api_keys(self) -> None:
        """API keys are as old as their roles, or as their last rotation (END-5)."""
        stores = await self.stores_with_account()
        keys = {f"acct:host:h{number}": Sealed(b"key") for number in range(3)}
        await load(stores, Draft().define(*(name.partition(":")[2] for name in keys)), ROOT, keys)
        rotated = role("host:h1")
        await stores.credentials.set_api_key(rotated, Sealed(b"other"))

        async def first(after: ExpirationCursor, until: float, most: int) -> ExpirationsPage:
            return await stores.endings.list_unrotated_api_keys(ACCOUNT, after, until, 100.0, most)

        async def later(after: ExpirationCursor, until: float, most: int) -> ExpirationsPage:
            return await stores.endings.list_rotated_api_keys(ACCOUNT, after, until, 100.0, most)

        for most in (1, 2, 10):
            found = await self.all_of(first, most)
            self.assertEqual({each.id for each in found}, {str(ADMIN), "acct:host:h0", "acct:host:h2"})
            for each in found:
                known = await stores.roles.read_role(role(each.id.partition(":")[2]))
                assert known is not None
                self.assertEqual((each.since, each.at, each.by_age), (known.created_at, known.created_at + 100.0, True))
            (again,) = await self.all_of(later, most)
            self.assertEqual((again.id, again.since), (str(rotated), await stores.credentials.read_rotation_time(rotated)))
        self.assertEqual((await first(EXPIRATIONS_START, found[0].at - 1.0, 10)).expirations, [])

    @scenario
    async def test_ending_api_keys(self) -> None:
        """A key that has an end is listed by that, and not by its age (END-5)."""
        stores = await self.stores_with_account()
        keys = {f"acct:host:h{number}": Sealed(b"key") for number in range(2)}
        await load(stores, Draft().define(*(name.partition(":")[2] for name in keys)), ROOT, keys)
        await self.end_key("acct:host:h1", 2e9)

        async def ending(after: ExpirationCursor, until: float, most: int) -> ExpirationsPage:
            return await stores.endings.list_expiring_api_keys(ACCOUNT, after, until, most)

        async def first(after: ExpirationCursor, until: float, most: int) -> ExpirationsPage:
            return await stores.endings.list_unrotated_api_keys(ACCOUNT, after, until, 100.0, most)

        (found,) = await self.all_of(ending)
        self.assertEqual((found.at, found.id, found.by_age), (2e9, "acct:host:h1", False))
        self.assertNotIn("acct:host:h1", {each.id for each in await self.all_of(first)})

    @scenario
    async def test_visible(self) -> None:
        """What a role sees is what it owns, or has a privilege on (END-8)."""
        stores = await self.stores_with_account()
        draft = Draft().define("user:alice", "variable:a", "variable:b").permit("variable:a", "user:alice", "read")
        await load(stores, draft)
        ids = ["acct:variable:a", "acct:variable:b", "acct:variable:none"]
        self.assertEqual(await stores.endings.filter_visible(role("user:alice"), ids), {"acct:variable:a"})
        self.assertEqual(await stores.endings.filter_visible(ADMIN, ids), {"acct:variable:a", "acct:variable:b"})

    async def end_key(self, role_id: str, at: float) -> None:
        """Have an API key end at a moment."""
        raise NotImplementedError
