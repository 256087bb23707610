"""The suite of ``CredentialStore``."""

from __future__ import annotations

from ipaddress import ip_network

from svc.model.credentials import Credential, forbids_api_key
from svc.model.errors import RecordNotFound
from svc.model.names import INTERNAL_ACCOUNT, RoleName
from svc.model.policy_loads import AnnotationRow, Changes, ResourceRow, Rows
from svc.model.query_results import Sealed
from tests.contracts import events
from tests.contracts.base import (
    ACCOUNT,
    ADMIN,
    ODD_IDENTIFIERS,
    ROOT,
    Contract,
    Draft,
    Stores,
    change,
    load,
    role,
    scenario,
)

ONE, TWO = role("host:one"), role("host:two")


class CredentialsContract(Contract):
    """What roles prove themselves with."""

    @scenario
    async def test_actors(self) -> None:
        """Every user and host has the key that it was created with, whatever its identifier (TOK-7)."""
        stores = await self.stores_with_account()
        keys = {
            str(RoleName(ACCOUNT, kind, identifier)): Sealed(f"{kind} {identifier} \x00\\".encode())
            for kind in ("user", "host")
            for identifier in ODD_IDENTIFIERS
        }
        draft = Draft().define(*(name.partition(":")[2] for name in keys))
        await load(stores, draft, ROOT, keys)
        for name, key in keys.items():
            self.assertEqual(
                await stores.credentials.read_credential(RoleName.parse(name)), Credential(True, True, key, "acct-1")
            )

    @scenario
    async def test_none(self) -> None:
        """A group has no credential."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("group:ops"))
        self.assertEqual(await stores.credentials.read_credential(role("group:ops")), Credential(True, True, None, "acct-1"))

    @scenario
    async def test_api_keys_off(self) -> None:
        """A role's annotation says that it has no API key, from the moment at which it is there; that of another doesn't,
        nor another annotation (TOK-52).
        """
        stores = await self._two_hosts()

        async def off() -> tuple[bool, ...]:
            found = [await stores.credentials.read_credential(name) for name in (ONE, TWO, role("host:none"))]
            self.assertEqual([credential.api_key for credential in found[:2]], [b"one", b"two"])
            return tuple(credential.api_key_off for credential in found)

        self.assertEqual(await off(), (False, False, False))
        await load(stores, Draft().annotate("host:two", {"authn/api-keys": "false", "api-key": "false"}))
        await load(stores, Draft().annotate("host:one", {"authn/api-key": "false"}))
        self.assertEqual(await off(), (True, False, False))
        for value in ("true", " FALSE\t\r\n", "", "false.", "False", "f alse", "ﬀalse", "0"):
            rows = Rows(annotations=(AnnotationRow(str(ONE), "authn/api-key", value),))
            await change(stores, Changes(update=rows))
            self.assertEqual(await off(), (forbids_api_key("authn/api-key", value), False, False), value)
        await change(stores, Changes(delete=Rows(annotations=(AnnotationRow(str(ONE), "authn/api-key", ""),))))
        self.assertEqual(await off(), (False, False, False))

    @scenario
    async def test_unknown_role(self) -> None:
        """An unknown role has no credential, and so has a known one of another account."""
        stores = await self.stores_with_account("other")
        await load(stores, Draft().define("host:h"), ROOT, {f"{ACCOUNT}:host:h": Sealed(b"key")})
        self.assertEqual(
            await stores.credentials.read_credential(role("host:h", "other")), Credential(True, False, None, "other-1")
        )

    @scenario
    async def test_unknown_account(self) -> None:
        """An unknown account has no roles and no keys."""
        stores = await self.stores_with_account()
        self.assertEqual(
            await stores.credentials.read_credential(role("user:admin", "nobody")), Credential(False, False, None, None)
        )

    @scenario
    async def test_internal_account(self) -> None:
        """The program's own account is none, whatever roles it has."""
        stores = await self.stores_with_account()
        credential = await stores.credentials.read_credential(RoleName(INTERNAL_ACCOUNT, "user", "health"))
        self.assertFalse(credential.account_exists)
        self.assertIsNone(credential.api_key)
        self.assertIsNone(credential.signing_key)

    @scenario
    async def test_new_api_keys(self) -> None:
        """A role's API key is replaced, which is noted; nobody else's is, and an unknown role gets none."""
        stores = await self._two_hosts()
        self.assertIsNone(await stores.credentials.read_rotation_time(ONE))
        await stores.credentials.set_api_key(ONE, Sealed(b"\x00new\\"), events.trail(events.event(operation="rotate")))
        self.assertEqual((await stores.credentials.read_credential(ONE)).api_key, b"\x00new\\")
        self.assertIsInstance(await stores.credentials.read_rotation_time(ONE), float)
        self.assertEqual((await stores.credentials.read_credential(TWO)).api_key, b"two")
        self.assertIsNone(await stores.credentials.read_rotation_time(TWO))
        for unknown in (role("host:none"), role("host:one", "other")):
            with self.assertRaises(RecordNotFound):
                await stores.credentials.set_api_key(unknown, Sealed(b"x"), events.trail(events.event()))
            self.assertIsNone(await stores.credentials.read_rotation_time(unknown))
        self.assertEqual(await events.operations(stores), ["rotate"])

    @scenario
    async def test_passwords(self) -> None:
        """A role's password is set, whatever its API key; an unknown role, and one without API key, can have none."""
        stores = await self._two_hosts()
        await load(stores, Draft().define("group:ops"))
        self.assertIs(await stores.credentials.set_password(ONE, Sealed(b"\x00first")), True)
        self.assertEqual((await stores.credentials.read_credential(ONE)).password, b"\x00first")
        await stores.credentials.set_api_key(ONE, Sealed(b"new"))
        self.assertEqual((await stores.credentials.read_credential(ONE)).password, b"\x00first")
        self.assertIsNone((await stores.credentials.read_credential(TWO)).password)
        for name in ("host:none", "group:ops"):
            self.assertIs(await stores.credentials.set_password(role(name), Sealed(b"x")), False)

    @scenario
    async def test_passwords_that_changed(self) -> None:
        """A password that is set instead of another is not when the role has a third by then, or none."""
        stores = await self._two_hosts()
        credentials = stores.credentials
        changed = events.trail(events.event(operation="change"))
        self.assertIs(await credentials.set_password(ONE, Sealed(b"b"), Sealed(b"a"), changed), False)
        await credentials.set_password(ONE, Sealed(b"a"))
        self.assertEqual(await events.operations(stores), [])
        self.assertIs(await credentials.set_password(ONE, Sealed(b"b"), Sealed(b"a"), changed), True)
        self.assertIs(await credentials.set_password(ONE, Sealed(b"c"), Sealed(b"a"), changed), False)
        self.assertEqual(await events.operations(stores), ["change"])
        self.assertEqual((await credentials.read_credential(ONE)).password, b"b")

    @scenario
    async def test_passwords_that_are_renewed(self) -> None:
        """A password is renewed some time, unless the role has another by then, or none; and nothing tells of that."""
        stores = await self._two_hosts()
        credentials = stores.credentials
        await credentials.set_password(ONE, Sealed(b"a"))
        while (await credentials.read_credential(ONE)).password != Sealed(b"b"):
            credentials.renew_password(ONE, Sealed(b"b"), Sealed(b"a"))  # a database that is busy gives up on one
            await credentials.set_password(TWO, Sealed(b"a"))  # what is remembered waits for nothing; a change does
        for name, former in ((ONE, b"a"), (TWO, b"a")):
            credentials.renew_password(name, Sealed(b"c"), Sealed(former))
        await credentials.set_password(TWO, Sealed(b"d"))
        found = [(await credentials.read_credential(name)).password for name in (ONE, TWO)]
        self.assertEqual(found, [b"b", b"d"])
        self.assertEqual(await events.operations(stores), [])

    @scenario
    async def test_restrictions(self) -> None:
        """From where a role may authenticate comes with its credential."""
        stores = await self.stores_with_account()
        draft = Draft().define("host:one").restrict("host:one", "10.0.0.0/8", "2001:db8::/32")
        await load(stores, draft, ROOT, {str(ONE): Sealed(b"one")})
        networks = (ip_network("10.0.0.0/8"), ip_network("2001:db8::/32"))
        self.assertEqual((await stores.credentials.read_credential(ONE)).restrictions, networks)

    @scenario
    async def test_deleted(self) -> None:
        """Anyone who is given the name of a deleted role has neither its password nor its history."""
        stores = await self._two_hosts()
        await stores.credentials.set_password(ONE, Sealed(b"old"))
        await stores.credentials.set_api_key(ONE, Sealed(b"old"))
        await change(stores, Changes(delete=Rows(resources=(ResourceRow(str(ONE), str(ADMIN)),))))
        await load(stores, Draft().define("host:one"), ROOT, {str(ONE): Sealed(b"new")})
        self.assertEqual(await stores.credentials.read_credential(ONE), Credential(True, True, Sealed(b"new"), "acct-1"))
        self.assertIsNone(await stores.credentials.read_rotation_time(ONE))

    async def _two_hosts(self) -> Stores:
        stores = await self.stores_with_account()
        keys = {str(ONE): Sealed(b"one"), str(TWO): Sealed(b"two")}
        await load(stores, Draft().define("host:one", "host:two"), ROOT, keys)
        return stores
