"""The suite of what every reading for a caller has in common: of which creation of its role it must be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from svc.model.errors import CallerReplaced, RecordNotFound
from svc.model.names import RoleName
from svc.model.policy_loads import Changes, ResourceRow, Rows
from svc.model.query_results import Caller, MembersQuery, ResourcesQuery
from svc.storage.policies import PolicyTransaction
from tests.contracts import events
from tests.contracts.base import ROOT, Contract, Draft, Stores, change, load, resource, role, scenario

ALICE, GROUP = role("user:alice"), role("group:g")
VARIABLE = resource("variable:v")
BRANCH = "svc/authn-jwt/ci"


class CallersContract(Contract):
    """A role that is deleted and made again, and tokens of its first creation."""

    async def made(self, stores: Stores) -> int:
        """Make Alice, who owns a variable and a group, and return her number, which both logins read."""
        await load(stores, Draft().define("user:alice").define("variable:v", "group:g", owner="user:alice"))
        credential = await stores.credentials.read_credential(ALICE)
        candidate = await stores.authenticators.read_candidate(ALICE, BRANCH, (), "authn-jwt")
        self.assertEqual(credential.creation, candidate.creation)
        return credential.creation

    async def remade(self, stores: Stores) -> tuple[Caller, Caller]:
        """Make Alice twice, and return the caller of either creation."""
        first = await self.made(stores)
        everything = tuple(ResourceRow(str(name), str(ALICE)) for name in (ALICE, GROUP, VARIABLE))
        await change(stores, Changes(delete=Rows(everything)))
        second = await self.made(stores)
        self.assertNotEqual(first, second)
        return Caller(ALICE, 0, first), Caller(ALICE, 0, second)

    @scenario
    async def test_every_reading(self) -> None:
        """Whatever is asked for a caller whose role was made again since is refused; for one of the new role it is not
        (ROLE-8, CLU-26).
        """
        stores = await self.stores_with_account()
        for caller, replaced in zip(await self.remade(stores), (True, False), strict=True):
            for name, ask in self.readings(stores, caller).items():
                try:
                    await ask()
                except CallerReplaced:
                    self.assertTrue(replaced, name)
                else:
                    self.assertFalse(replaced, name)

    def readings(self, stores: Stores, caller: Caller) -> dict[str, Callable[[], Awaitable[object]]]:
        """All that is asked for a caller."""

        async def access_facts(transaction: PolicyTransaction) -> object:
            return await transaction.access_facts(caller, ROOT)

        return {
            "standing": lambda: stores.roles.access_facts(caller, VARIABLE),
            "standing towards nothing": lambda: stores.roles.access_facts(caller, resource("variable:none")),
            "judged members": lambda: stores.roles.list_members_with_facts(caller, MembersQuery(GROUP)),
            "judged members of no kind": lambda: stores.roles.list_members_with_facts(
                caller, MembersQuery(GROUP, kinds=("none",))
            ),
            "remains": lambda: stores.roles.caller_exists(caller),
            "first page": lambda: stores.resources.read_first_page(caller, ResourcesQuery(caller.role, "acct")),
            "read": lambda: stores.secrets.read_value(caller, VARIABLE),
            "read a version": lambda: stores.secrets.read_value(caller, VARIABLE, 3),
            "read all": lambda: stores.secrets.read_newest_values(caller, [VARIABLE, VARIABLE], 100),
            "write": lambda: stores.secrets.write_value(caller, VARIABLE, lambda _: None),
            "clear": lambda: stores.expirations.clear_expirations(caller, VARIABLE, lambda _: None),
            "add": lambda: stores.roles.add_member(caller, GROUP, ALICE, lambda _: None),
            "remove": lambda: stores.roles.remove_member(caller, GROUP, ALICE, lambda _: None),
            "load": lambda: stores.policies.transact(access_facts),
        }

    @scenario
    async def test_revoked(self) -> None:
        """Whatever is asked for a caller whose tokens were revoked since, or those of the account, is refused; a login reads
        the number that isn't (TOK-36, TOK-38, TOK-39).
        """
        stores = await self.stores_with_account()
        creation = await self.made(stores)
        refused: list[Caller] = []
        for revoke in (
            None,
            lambda: stores.credentials.revoke_tokens(ALICE, events.trail(events.event(operation="revoke"))),
            lambda: stores.accounts.revoke_tokens(ALICE.account, events.trail(events.event(operation="revoke-tokens"))),
            lambda: stores.credentials.revoke_tokens(ALICE),
        ):
            if revoke is not None:
                await revoke()
            credential = await stores.credentials.read_credential(ALICE)
            candidate = await stores.authenticators.read_candidate(ALICE, BRANCH, (), "authn-jwt")
            self.assertEqual((credential.creation, candidate.creation), (creation, creation))
            self.assertEqual(credential.epoch, candidate.epoch)
            admitted = Caller(ALICE, 0, creation, credential.epoch)
            self.assertNotIn(admitted, refused)
            for name, ask in self.readings(stores, admitted).items():
                try:
                    await ask()
                except CallerReplaced:
                    self.fail(name)
            for caller in refused:
                for ask in self.readings(stores, caller).values():
                    with self.assertRaises(CallerReplaced):
                        await ask()
            refused.append(admitted)
        self.assertEqual(refused[0].epoch, 0)
        self.assertEqual(await events.operations(stores), ["revoke-tokens", "revoke"])
        for unknown in (stores.credentials.revoke_tokens(role("user:none")), stores.accounts.revoke_tokens("none")):
            with self.assertRaises(RecordNotFound):
                await unknown

    @scenario
    async def test_revoked_elsewhere(self) -> None:
        """Tokens of other roles, and of other accounts, stay (TOK-36, TOK-38)."""
        stores = await self.stores_with_account("other")
        admin = RoleName("other", "user", "admin")
        creation = (await stores.credentials.read_credential(admin)).creation
        await self.made(stores)
        await stores.credentials.revoke_tokens(ALICE)
        await stores.accounts.revoke_tokens(ALICE.account)
        self.assertTrue(await stores.roles.caller_exists(Caller(admin, 0, creation)))

    @scenario
    async def test_gone(self) -> None:
        """A caller whose role is gone is no other's: it is told that it doesn't exist, whatever its number (ROLE-8)."""
        stores = await self.stores_with_account()
        for creation in (0, await self.made(stores)):
            gone = Caller(role("user:nobody"), 0, creation)
            self.assertFalse((await stores.roles.access_facts(gone, VARIABLE)).caller_exists)
            self.assertFalse(await stores.roles.caller_exists(gone))

    @scenario
    async def test_the_same(self) -> None:
        """A role keeps its number whatever else becomes of it, and is known by its name alone where no token speaks."""
        stores = await self.stores_with_account()
        caller = Caller(ALICE, 0, await self.made(stores))
        await change(stores, Changes(update=Rows((ResourceRow(str(ALICE), f"{ALICE.account}:group:g"),))))
        self.assertTrue(await stores.roles.caller_exists(caller))
        for asker in (caller, ALICE):
            self.assertTrue((await stores.roles.access_facts(asker, VARIABLE)).owns)

    @scenario
    async def test_an_account(self) -> None:
        """The admin of an account that was deleted and made again is another one (NAME-25)."""
        stores = await self.stores_with_account("other")
        admin = RoleName("other", "user", "admin")
        first = (await stores.credentials.read_credential(admin)).creation
        await stores.accounts.delete_account("other")
        await self.add_account(stores, "other")
        with self.assertRaises(CallerReplaced):
            await stores.roles.caller_exists(Caller(admin, 0, first))
