"""The suite of ``AccountStore``."""

from __future__ import annotations

import attrs

from svc.model.credentials import Credential
from svc.model.errors import Conflict, RecordNotFound
from svc.model.host_factories import FactoryToken
from svc.model.names import ACCOUNTS_WEBSERVICE, RESERVED_ACCOUNT, admin_of, root_policy
from svc.model.policy_loads import EffectivePolicyRows, EffectiveQuery
from svc.model.query_results import AccessFacts, Membership, MembersQuery, Sealed
from tests.contracts.base import ACCOUNT, ADMIN, ROOT, Contract, Draft, load, resource, role, scenario, signing_key


class AccountsContract(Contract):
    """Accounts and their signing keys."""

    @scenario
    async def test_admin(self) -> None:
        """A new account has an admin that owns itself, with the key it was made with (NAME-16)."""
        stores = await self.stores()
        await stores.accounts.create_account(ACCOUNT, Sealed(b"\x00key\\"), signing_key(ACCOUNT, "k1"))
        self.assertEqual(await stores.credentials.read_credential(ADMIN), Credential(True, True, Sealed(b"\x00key\\"), "k1"))
        self.assertEqual(
            await stores.roles.access_facts(ADMIN, ADMIN.resource),
            AccessFacts(caller_exists=True, exists=True, owns=True, holds=True),
        )
        self.assertEqual(
            await stores.roles.list_members(MembersQuery(ADMIN)), [Membership(str(ADMIN), str(ADMIN), True, True, None)]
        )

    @scenario
    async def test_root_policy(self) -> None:
        """A new account has a root policy, owned by its admin and recorded by no policy (NAME-16)."""
        stores = await self.stores_with_account()
        self.assertEqual(
            await stores.roles.access_facts(ADMIN, ROOT.resource),
            AccessFacts(caller_exists=True, exists=True, owns=True, holds=True),
        )
        self.assertEqual(
            await stores.roles.list_members(MembersQuery(ROOT)), [Membership(str(ROOT), str(ADMIN), True, True, None)]
        )
        self.assertFalse((await stores.roles.access_facts(ROOT, ADMIN.resource)).holds)

    @scenario
    async def test_unannounced(self) -> None:
        """The key of an admin who was made by a start can be read until it is marked as announced, and no other one."""
        stores = await self.stores_with_account("other")
        await stores.accounts.create_account("new", Sealed(b"first"), signing_key("new", "k"), announced=False)
        keys = [await stores.accounts.read_unannounced_key(name) for name in ("new", "other", "missing")]
        self.assertEqual(keys, [Sealed(b"first"), None, None])
        await stores.accounts.mark_announced("new")
        self.assertIsNone(await stores.accounts.read_unannounced_key("new"))

    @scenario
    async def test_recovered(self) -> None:
        """The admin of a recovered account has the new key, and the recovery is listed; a missing account has none."""
        stores = await self.stores_with_account("other")
        await stores.accounts.recover_account(ACCOUNT, Sealed(b"recovered"))
        credential = await stores.credentials.read_credential(ADMIN)
        self.assertEqual((credential.api_key, credential.version), (b"recovered", 1))
        self.assertEqual([name for name, _ in await stores.accounts.list_recovered(60.0)], [ACCOUNT])
        with self.assertRaises(RecordNotFound):
            await stores.accounts.recover_account("missing", Sealed(b"key"))

    @scenario
    async def test_conflict(self) -> None:
        """An account is not made twice, and the attempt changes nothing (NAME-22)."""
        stores = await self.stores_with_account()
        with self.assertRaises(Conflict) as caught:
            await stores.accounts.create_account(ACCOUNT, Sealed(b"other"), signing_key(ACCOUNT, "other"))
        expected = Conflict("account", ACCOUNT, 'account "acct" already exists')
        self.assertEqual(attrs.astuple(caught.exception), attrs.astuple(expected))
        self.assertEqual((await stores.credentials.read_credential(ADMIN)).api_key, b"key of admin")
        self.assertEqual([key.key_id for key in await stores.accounts.list_signing_keys(ACCOUNT)], ["acct-1"])

    @scenario
    async def test_reserved(self) -> None:
        """The service's own account is made once, with what privileges on accounts are held on, and is not listed
        (NAME-2).
        """
        stores = await self.stores_with_account(RESERVED_ACCOUNT)
        admin = admin_of(RESERVED_ACCOUNT)
        self.assertTrue((await stores.roles.access_facts(admin, ACCOUNTS_WEBSERVICE)).owns)
        self.assertFalse((await stores.roles.access_facts(ADMIN, ACCOUNTS_WEBSERVICE)).owns)
        query = EffectiveQuery(root_policy(RESERVED_ACCOUNT), (), None, 100, "@", ())
        effective = await stores.effective.read_effective_policy(query)
        assert isinstance(effective, EffectivePolicyRows)
        held = [row.resource for row in effective.rows.resources]
        self.assertEqual(sorted(held), ["!:policy:root", "!:user:admin", "!:webservice:accounts"])
        self.assertEqual((await stores.credentials.read_credential(admin)).api_key, b"key of admin")
        self.assertEqual(await stores.accounts.list_accounts(), [ACCOUNT])
        self.assertEqual(
            [name for name, _ in await stores.accounts.list_newest_signing_keys("", 9)], [RESERVED_ACCOUNT, ACCOUNT]
        )
        with self.assertRaises(Conflict):
            await stores.accounts.create_account(RESERVED_ACCOUNT, Sealed(b"key"), signing_key(RESERVED_ACCOUNT, "k"))

    @scenario
    async def test_no_reserved(self) -> None:
        """Until it is made, nobody has a privilege on accounts (NAME-19)."""
        stores = await self.stores_with_account()
        self.assertFalse((await stores.roles.access_facts(ADMIN, ACCOUNTS_WEBSERVICE)).exists)

    @scenario
    async def test_delete(self) -> None:
        """With an account goes all that it holds, and nothing of an account that is called alike (NAME-24)."""
        stores = await self.stores_with_account("acct2", "acc")
        names = [ACCOUNT, "acct2"]
        hosts = [f"host:h{number}" for number in range(2500)]
        for account in names:
            draft = Draft(account).define("policy:p", "user:u", "layer:l", "variable:v", "public_key:user/u/k", *hosts)
            draft.define("host_factory:f", "webservice:w", "group:g0", "group:empty", owner="policy:p")
            draft.define("job:j", "zoo:z", owner="policy:p").define("food:x", owner="job:j")
            for number in range(1, 1500):
                draft.define(f"group:g{number}", owner=f"group:g{number - 1}")
            draft.grant("layer:l", *hosts[:5], "host_factory:f").permit("variable:v", "host:h1", "read", "execute")
            draft.annotate("variable:v", {"a": "b"}).restrict("host:h1", "10.0.0.0/8")
            keys = {f"{account}:host:h1": Sealed(b"key"), f"{account}:user:u": Sealed(b"key")}
            await load(stores, draft, root_policy(account), keys)
            factory = role("host_factory:f", account)
            await stores.factories.add_tokens([account.encode()], FactoryToken(factory, 1.0))
            await stores.factories.create_host(account.encode(), role("host:made", account), {"a": "b"}, Sealed(b"key"))
            await stores.secrets.write_value(admin_of(account), resource("variable:v", account), lambda _: Sealed(b"value"))
        await stores.accounts.delete_account(ACCOUNT)
        self.assertEqual(await stores.accounts.list_accounts(), ["acc", "acct2"])
        self.assertEqual(await stores.accounts.list_signing_keys(ACCOUNT), [])
        self.assertIsNone(await stores.factories.read_token(ACCOUNT.encode()))
        for account, there in ((ACCOUNT, False), ("acct2", True)):
            for name in ("user:admin", "policy:root", "policy:p", "user:u", "host:h1", "host:made", "group:g1499"):
                self.assertIs(await stores.has_role(role(name, account)), there, name)
                self.assertIs((await stores.roles.access_facts(ADMIN, resource(name, account))).exists, there, name)
            reading = await stores.secrets.read_value(admin_of(account), resource("variable:v", account))
            self.assertEqual(reading.sealed, b"value" if there else None)
            self.assertIs((await stores.credentials.read_credential(role("host:h1", account))).api_key is not None, there)
        await stores.accounts.delete_account("acct2")
        await stores.accounts.create_account(ACCOUNT, Sealed(b"new"), signing_key(ACCOUNT, "new"))
        owned = [Membership(str(name), str(ADMIN), True, True, None) for name in (ROOT, ADMIN)]
        self.assertEqual(await stores.roles.list_memberships(MembersQuery(ADMIN)), owned)

    @scenario
    async def test_delete_nothing(self) -> None:
        """An account that doesn't exist can't be deleted (NAME-26)."""
        stores = await self.stores_with_account()
        for account in ("nobody", "acc", "%", ""):
            with self.assertRaises(RecordNotFound):
                await stores.accounts.delete_account(account)
        self.assertTrue(await stores.has_role(ADMIN))

    @scenario
    async def test_names(self) -> None:
        """Accounts are listed in the order of their bytes (NAME-15)."""
        stores = await self.stores()
        names = ["zoo", "Zoo", "a'b", "é", "a%", "~"]
        for name in names:
            await stores.accounts.create_account(name, Sealed(b"key"), signing_key(name, name))
        self.assertEqual(await stores.accounts.list_accounts(), sorted(names, key=str.encode))

    @scenario
    async def test_signing_keys(self) -> None:
        """Signing keys come back as they were stored, those of one account together, the newest last (NAME-17)."""
        stores = await self.stores_with_account("zoo")
        second = signing_key(ACCOUNT, "a second", 2000.5)
        await stores.accounts.rotate_signing_key(second, 2480.25)
        first = attrs.evolve(signing_key(ACCOUNT, "acct-1"), retires_at=2480.25)
        other = signing_key("zoo", "zoo-1")
        self.assertEqual(await stores.accounts.list_signing_keys(ACCOUNT), [first, second])
        self.assertEqual(await stores.accounts.list_signing_keys("zoo"), [other])
        self.assertEqual(await stores.accounts.list_signing_keys("nobody"), [])
        self.assertEqual(await stores.accounts.find_signing_keys(["a second", "another"]), [second])

    @scenario
    async def test_signers(self) -> None:
        """Accounts are told some at a time, in order, each with its newest key, unless that retires."""
        names = ["a'b", "b", "zoo", "é"]
        stores = await self.stores_with_account(*names)
        await stores.accounts.rotate_signing_key(signing_key("b", "b-2", 2000.5), 2480.25)
        told = {name: signing_key(name, f"{name}-1") for name in (*names, ACCOUNT)} | {"b": signing_key("b", "b-2", 2000.5)}
        expected = sorted(told.items(), key=lambda item: item[0].encode())
        self.assertEqual(await stores.accounts.list_newest_signing_keys("", 10), expected)
        self.assertEqual(await stores.accounts.list_newest_signing_keys(expected[1][0], 2), expected[2:4])
        self.assertEqual(await stores.accounts.list_newest_signing_keys("é", 10), [])

    @scenario
    async def test_signing_keys_named(self) -> None:
        """Keys are found by their ids, those that there are."""
        stores = await self.stores_with_account("zoo")
        found = await stores.accounts.find_signing_keys(["zoo-1", 'no "such', "acct-1"])
        self.assertEqual({key.key_id: key.account for key in found}, {"zoo-1": "zoo", "acct-1": ACCOUNT})
        self.assertEqual(await stores.accounts.find_signing_keys([]), [])

    @scenario
    async def test_rotation(self) -> None:
        """The newest key signs; a key that was to retire sooner still does (CLU-22)."""
        stores = await self.stores_with_account()
        await stores.accounts.rotate_signing_key(signing_key(ACCOUNT, "2"), 5000.0)
        await stores.accounts.rotate_signing_key(signing_key(ACCOUNT, "0"), 6000.0)
        self.assertEqual(
            [(key.key_id, key.retires_at) for key in await stores.accounts.list_signing_keys(ACCOUNT)],
            [("acct-1", 5000.0), ("2", 6000.0), ("0", None)],
        )
        self.assertEqual((await stores.credentials.read_credential(ADMIN)).signing_key, "0")
        await stores.accounts.rotate_signing_key(signing_key(ACCOUNT, "3"), 5500.0)
        self.assertEqual(
            [key.retires_at for key in await stores.accounts.list_signing_keys(ACCOUNT)], [5000.0, 5500.0, 5500.0, None]
        )

    @scenario
    async def test_rotation_of_nothing(self) -> None:
        """The key of an account that does not exist cannot be rotated."""
        stores = await self.stores_with_account()
        with self.assertRaises(RecordNotFound):
            await stores.accounts.rotate_signing_key(signing_key("nobody", "k"), 1.0)
        self.assertEqual(await stores.accounts.find_signing_keys(["k"]), [])

    @scenario
    async def test_apart(self) -> None:
        """The admin of one account has no standing in another (NAME-18)."""
        stores = await self.stores_with_account("other")
        for name in (admin_of("other"), root_policy("other")):
            self.assertEqual(
                await stores.roles.access_facts(ADMIN, name.resource), AccessFacts(caller_exists=True, exists=True)
            )
