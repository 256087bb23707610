"""The suite of ``ICredentials``."""

from __future__ import annotations

from zope.interface.verify import verifyObject

from svc.authentication import Credential
from svc.interfaces import ICredentials
from svc.names import INTERNAL_ACCOUNT, RoleName
from svc.records import Sealed
from tests.contracts.base import ACCOUNT, ODD_IDENTIFIERS, ROOT, Contract, Draft, load, role, scenario


class CredentialsContract(Contract):
    """What roles prove themselves with."""

    @scenario
    async def test_provides(self) -> None:
        """It provides the interface."""
        verifyObject(ICredentials, (await self.stores()).credentials)

    @scenario
    async def test_actors(self) -> None:
        """Every user and host has the key that it was created with, whatever its identifier."""
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
                await stores.credentials.credential(RoleName.parse(name)), Credential(True, True, key, "acct-1")
            )

    @scenario
    async def test_none(self) -> None:
        """A group has no credential."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("group:ops"))
        self.assertEqual(await stores.credentials.credential(role("group:ops")), Credential(True, True, None, "acct-1"))

    @scenario
    async def test_unknown_role(self) -> None:
        """An unknown role has no credential, and so has a known one of another account."""
        stores = await self.stores_with_account("other")
        await load(stores, Draft().define("host:h"), ROOT, {f"{ACCOUNT}:host:h": Sealed(b"key")})
        self.assertEqual(
            await stores.credentials.credential(role("host:h", "other")), Credential(True, False, None, "other-1")
        )

    @scenario
    async def test_unknown_account(self) -> None:
        """An unknown account has no roles and no keys."""
        stores = await self.stores_with_account()
        self.assertEqual(
            await stores.credentials.credential(role("user:admin", "nobody")), Credential(False, False, None, None)
        )

    @scenario
    async def test_internal_account(self) -> None:
        """The program's own account is none, whatever roles it has."""
        stores = await self.stores_with_account()
        credential = await stores.credentials.credential(RoleName(INTERNAL_ACCOUNT, "user", "health"))
        self.assertFalse(credential.account_exists)
        self.assertIsNone(credential.api_key)
        self.assertIsNone(credential.signing_key)
