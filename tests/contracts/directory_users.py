"""The suite of ``DirectoryUserStore``, and of what other stores keep for it."""

from __future__ import annotations

from collections.abc import Sequence

from svc.model.authentication import LoginRecord
from svc.model.events import EventBatch
from svc.model.ldap_directories import DirectoryUser, DirectoryUsersChange
from svc.model.names import RoleName
from svc.model.policy_loads import Changes, ResourceRow, Rows
from svc.model.query_results import Sealed
from tests.contracts import events
from tests.contracts.base import ADMIN, Contract, Draft, Stores, change, load, resource, role, scenario

CORP, OTHER = resource("webservice:corp"), resource("webservice:other")
ALICE, BOB = role("user:alice"), role("user:bob")


def trail(made: DirectoryUsersChange) -> EventBatch:
    """An event for each user."""
    refused = [events.event(operation="refuse", role=str(name), resource=str(where)) for name, where in made.disabled]
    admitted = [events.event(operation="admit", role=str(name), resource=str(where)) for name, where in made.enabled]
    return events.trail(*refused, *admitted)


class DirectoryUsersContract(Contract):
    """Users of directories, and those who are missing there."""

    async def _stores(self, *users: RoleName) -> Stores:
        stores = await self.stores_with_account()
        draft = Draft().define("user:alice", "user:bob", "webservice:corp", "webservice:other")
        await load(stores, draft, api_keys={str(ALICE): Sealed(b"a"), str(BOB): Sealed(b"b")})
        for user in users:
            await self.came(stores, user, str(CORP))
        return stores

    async def came(self, stores: Stores, user: RoleName, directory: str | None, day: int | None = None) -> None:
        """Have a user come by a directory."""
        creation = (await stores.credentials.read_credential(user)).creation
        self.assertEqual(list(await stores.last_logins.record_logins([LoginRecord(user, creation, day, directory)])), [])

    async def round(
        self, stores: Stores, missing: Sequence[RoleName] = (), found: Sequence[RoleName] = (), apart: float = 0.0
    ) -> DirectoryUsersChange:
        """Do a round."""
        (turn,) = await stores.directory_users.begin_rounds({CORP: 1000.0}, 0.0, apart)
        self.assertTrue(turn.due)
        return await stores.directory_users.record_findings(CORP, missing, found, apart, trail)

    async def missing(self, stores: Stores, *users: RoleName) -> list[str | None]:
        """The marks that are read with the users' credentials."""
        return [(await stores.credentials.read_credential(user)).missing_from for user in users or (ALICE, BOB)]

    @scenario
    async def test_where_users_came(self) -> None:
        """A user belongs to the directory of the last login; one by another authenticator ends that, an API key doesn't
        (LDAP-20).
        """
        stores = await self._stores()
        users = stores.directory_users
        self.assertEqual(list(await users.list_users(CORP, "", 10)), [])
        for directory, of_corp, of_other in (
            (str(CORP), [ALICE], []),
            (None, [ALICE], []),
            (str(OTHER), [], [ALICE]),
            (str(CORP), [ALICE], []),
            ("", [], []),
            (None, [], []),
        ):
            await self.came(stores, ALICE, directory, 100)
            for webservice, expected in ((CORP, of_corp), (OTHER, of_other)):
                self.assertEqual([user.role for user in await users.list_users(webservice, "", 10)], expected, directory)
        self.assertEqual((await stores.last_logins.read_last_login(ALICE)).day, 100)

    @scenario
    async def test_told_a_key(self) -> None:
        """A user who got an API key belongs to the directory, without a last login (LDAP-20, END-20)."""
        stores = await self._stores(ALICE)
        self.assertEqual(list(await stores.directory_users.list_users(CORP, "", 10)), [DirectoryUser(ALICE)])
        self.assertIsNone((await stores.last_logins.read_last_login(ALICE)).day)
        creation = (await stores.credentials.read_credential(BOB)).creation + 1
        await stores.last_logins.record_logins([LoginRecord(BOB, creation, None, str(CORP))])
        self.assertEqual(list(await stores.directory_users.list_users(CORP, str(ALICE), 10)), [])

    @scenario
    async def test_pages(self) -> None:
        """Users are listed in the order of their ids, some at a time."""
        stores = await self._stores(BOB, ALICE)
        users = stores.directory_users
        self.assertEqual([user.role for user in await users.list_users(CORP, "", 1)], [ALICE])
        self.assertEqual([user.role for user in await users.list_users(CORP, str(ALICE), 10)], [BOB])

    @scenario
    async def test_two_rounds(self) -> None:
        """A user who is missing in two rounds that are far enough apart is refused, loses tokens and sessions, and is in
        the audit; nobody else is (LDAP-21, LDAP-22).
        """
        stores = await self._stores(ALICE, BOB)
        before = [(await stores.credentials.read_credential(user)).epoch for user in (ALICE, BOB)]
        self.assertFalse(await self.round(stores, [ALICE]))
        self.assertEqual(await self.missing(stores), ["", None])
        self.assertFalse(await self.round(stores, [ALICE], apart=1000.0))
        self.assertEqual(await self.missing(stores), ["", None])
        self.assertEqual(await self.round(stores, [ALICE]), DirectoryUsersChange(((ALICE, CORP),)))
        self.assertEqual(await self.missing(stores), [str(CORP), None])
        after = [(await stores.credentials.read_credential(user)).epoch for user in (ALICE, BOB)]
        self.assertNotEqual(after[0], before[0])
        self.assertEqual(after[1], before[1])
        self.assertEqual(await events.operations(stores), ["refuse"])
        self.assertFalse(await self.round(stores, [ALICE]))
        self.assertEqual((await stores.credentials.read_credential(ALICE)).epoch, after[0])
        self.assertEqual(
            list(await stores.directory_users.list_users(CORP, "", 10)),
            [DirectoryUser(ALICE, missing=True, refused=True), DirectoryUser(BOB)],
        )

    @scenario
    async def test_back(self) -> None:
        """A user who is found again is refused no more, in a round or at a login; one who was missing once is
        as if never (LDAP-24).
        """
        stores = await self._stores(ALICE, BOB)
        for _ in range(2):
            await self.round(stores, [ALICE, BOB])
        self.assertEqual(await self.missing(stores), [str(CORP)] * 2)
        self.assertEqual(await self.round(stores, [], [ALICE]), DirectoryUsersChange(enabled=((ALICE, CORP),)))
        self.assertEqual(await self.missing(stores), [None, str(CORP)])
        self.assertEqual(await stores.directory_users.clear_mark(BOB, trail), DirectoryUsersChange(enabled=((BOB, CORP),)))
        self.assertEqual(await self.missing(stores), [None, None])
        self.assertFalse(await stores.directory_users.clear_mark(BOB, trail))
        await self.round(stores, [ALICE])
        self.assertFalse(await self.round(stores, [], [ALICE]))
        self.assertFalse(await self.round(stores, [ALICE]))
        self.assertEqual(await self.missing(stores), ["", None])
        self.assertEqual(await events.operations(stores), ["admit", "admit", "refuse", "refuse"])

    @scenario
    async def test_refused_users_stay(self) -> None:
        """A user who is refused stays with the directory that lacks the entry, whatever login comes after that (LDAP-24)."""
        stores = await self._stores(ALICE, BOB)
        for _ in range(2):
            await self.round(stores, [ALICE])
        await self.round(stores, [BOB])
        for directory in ("", str(OTHER)):
            for user in (ALICE, BOB):
                await self.came(stores, user, directory)
            self.assertEqual(await self.missing(stores), [str(CORP), None])
        self.assertEqual([user.role for user in await stores.directory_users.list_users(OTHER, "", 10)], [BOB])

    @scenario
    async def test_what_goes(self) -> None:
        """With the authenticator, and with the user, all of this goes, in the same moment (LDAP-27)."""
        stores = await self._stores(ALICE, BOB)
        for _ in range(2):
            await self.round(stores, [ALICE, BOB])
        await change(stores, Changes(delete=Rows(resources=(ResourceRow(str(BOB), str(ADMIN)),))))
        await load(stores, Draft().define("user:bob"), api_keys={str(BOB): Sealed(b"new")})
        self.assertEqual(await self.missing(stores), [str(CORP), None])
        await change(stores, Changes(delete=Rows(resources=(ResourceRow(str(CORP), str(ADMIN)),))))
        self.assertEqual(await self.missing(stores), [None, None])
        self.assertEqual(list(await stores.directory_users.begin_rounds({CORP: 1000.0}, 0.0, 0.0)), [])

    @scenario
    async def test_turns(self) -> None:
        """A round is due once in its interval, for one server, and earlier if somebody is missing; its fault is kept
        (LDAP-21, LDAP-25).
        """
        stores = await self._stores(ALICE)
        users, both = stores.directory_users, {OTHER: 1000.0, CORP: 1000.0}
        self.assertEqual([turn.due for turn in await users.begin_rounds(both, 1000.0, 0.0)], [True, True])
        self.assertEqual([turn.due for turn in await users.begin_rounds(both, 1000.0, 0.0)], [False, False])
        await users.record_findings(CORP, [ALICE], [], 0.0, trail)
        turns = await users.begin_rounds(both, 1000.0, 0.0)
        self.assertEqual([(turn.webservice, turn.due) for turn in turns], [(CORP, True), (OTHER, False)])
        self.assertEqual([turn.due for turn in await users.begin_rounds({CORP: 1000.0}, 1000.0, 1000.0)], [False])
        self.assertTrue(await users.record_findings(CORP, [ALICE], [], 0.0, trail))
        self.assertEqual([turn.due for turn in await users.begin_rounds({CORP: 1000.0}, 1000.0, 0.0)], [False])
        await users.record_fault(CORP, "why")
        self.assertEqual([turn.fault for turn in await users.begin_rounds(both, 1000.0, 0.0)], ["why", None])
        found = [await users.read_fault(webservice, 1000.0) for webservice in (CORP, OTHER)]
        self.assertEqual([*found, await users.read_fault(CORP, -10.0)], ["why", None, None])
        turns = await users.begin_rounds({CORP: -10.0, OTHER: -10.0}, 1000.0, 1000.0)
        self.assertEqual([(turn.due, turn.fault) for turn in turns], [(True, "why"), (False, None)])
        await users.record_fault(CORP, None)
        self.assertIsNone(await users.read_fault(CORP, 1000.0))

    @scenario
    async def test_lapse(self) -> None:
        """Refusals for which no server does rounds lapse (LDAP-26)."""
        stores = await self._stores(ALICE, BOB)
        for _ in range(2):
            await self.round(stores, [ALICE])
        await self.round(stores, [BOB])
        self.assertFalse(await stores.directory_users.clear_stale_marks(1000.0, trail))
        self.assertEqual(await self.missing(stores), [str(CORP), ""])
        self.assertEqual(
            await stores.directory_users.clear_stale_marks(-10.0, trail), DirectoryUsersChange(enabled=((ALICE, CORP),))
        )
        self.assertEqual(await self.missing(stores), [None, None])
