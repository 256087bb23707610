"""The suite of ``LastLoginStore``."""

from __future__ import annotations

from svc.model.authentication import IDLE_ROLES_START, IdleRolesCursor, LoginRecord
from svc.model.names import RoleName
from svc.model.policy_loads import Changes
from tests.contracts.base import ACCOUNT, ADMIN, Contract, Draft, Stores, change, load, role, scenario

#: Later than everything here.
LATE = 4e9


class LastLoginsContract(Contract):
    """Who logged in when."""

    async def noted(self, stores: Stores, name: RoleName, day: int) -> LoginRecord:
        """A login of the role that there is now."""
        return LoginRecord(name, (await stores.credentials.read_credential(name)).creation, day)

    async def all_idle(self, stores: Stores, day: int, most: int, account: str = ACCOUNT) -> list[tuple[str, int | None]]:
        """All roles that are idle, read a few at a time."""
        found: list[tuple[str, int | None]] = []
        after: IdleRolesCursor | None = IDLE_ROLES_START
        while after is not None:
            reading = await stores.last_logins.list_idle_roles(account, day, LATE, after, most)
            found += [(idle.role, idle.day) for idle in reading.roles]
            self.assertFalse(reading.last is not None and reading.last <= after)
            after = reading.last
        return found

    @scenario
    async def test_recorded(self) -> None:
        """The latest day of a role's logins is kept, and when that began is told (END-20)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("host:h"))
        host, last = role("host:h"), stores.last_logins
        self.assertIsNone((await last.read_last_login(host)).day)
        for given, kept in ((100, 100), (99, 100), (101, 101)):
            self.assertEqual(list(await last.record_logins([await self.noted(stores, host, given)])), [])
            self.assertEqual((await last.read_last_login(host)).day, kept)
        self.assertEqual((await last.read_last_login(host)).kept_since, await last.read_recording_start())
        self.assertIsNone((await last.read_last_login(role("host:none"))).day)

    @scenario
    async def test_the_next_of_a_name(self) -> None:
        """A login counts for the role that logged in, and not for the next of its name (END-20)."""
        stores = await self.stores_with_account()
        draft = Draft().define("host:h", "host:other")
        await load(stores, draft)
        host, other = role("host:h"), role("host:other")
        noted = await self.noted(stores, host, 100)
        await stores.last_logins.record_logins([noted])
        await change(stores, Changes(delete=draft.rows))
        self.assertEqual(list(await stores.last_logins.record_logins([noted])), [])
        await load(stores, draft)
        await stores.last_logins.record_logins([noted, await self.noted(stores, other, 100)])
        self.assertIsNone((await stores.last_logins.read_last_login(host)).day)
        self.assertEqual((await stores.last_logins.read_last_login(other)).day, 100)

    @scenario
    async def test_idle(self) -> None:
        """Idle are users and hosts that never logged in, first, then others by their day; groups don't log in (END-24)."""
        stores = await self.stores_with_account("other")
        await load(stores, Draft().define("host:a", "host:b", "host:c", "host:d", "user:u", "group:g"))
        last = stores.last_logins
        for name, day in (("host:a", 101), ("host:b", 100), ("host:c", 100), ("host:d", 200)):
            await last.record_logins([await self.noted(stores, role(name), day)])
        expected = [(100, "host:b"), (100, "host:c"), (101, "host:a")]
        for most in (1, 2, 3, 10):
            found = await self.all_idle(stores, 150, most)
            self.assertEqual(sorted(found[:2]), [(str(ADMIN), None), ("acct:user:u", None)])
            self.assertEqual(found[2:], [(f"acct:{name}", day) for day, name in expected])
        self.assertEqual(len(await self.all_idle(stores, 101, 10)), 4)
        self.assertEqual(await self.all_idle(stores, 150, 10, "other"), [("other:user:admin", None)])
        made = await stores.roles.read_role(ADMIN)
        assert made is not None
        reading = await last.list_idle_roles("acct", 1, made.created_at - 10.0, IDLE_ROLES_START, 10)
        self.assertEqual((reading.roles, reading.last), ([], None))

    @scenario
    async def test_visible(self) -> None:
        """A role is seen by those who see its resource (END-24)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("user:alice", "host:a", "host:b").permit("host:a", "user:alice", "read"))
        ids = ["acct:host:a", "acct:host:b"]
        self.assertEqual(await stores.last_logins.filter_visible(role("user:alice"), ids), {"acct:host:a"})
