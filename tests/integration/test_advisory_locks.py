"""Locks on what people name, on PostgreSQL: no name can be chosen that has the lock of another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from svc.model.deleted_records import DEFAULT_RETENTION
from svc.model.errors import PolicyConflict
from svc.model.idempotency import RequestKey
from svc.model.names import ResourceName, RoleName
from svc.storage.driver.statements import Statement, Transaction
from svc.storage.idempotency import claim_request_key
from svc.storage.ldap_mappings import MappingTransaction
from svc.storage.sealed_columns import EXPIRATION_LOCK
from svc.storage.sql.advisory_locks import CONSTANTS
from tests.integration.stores import InPostgres
from tests.integration.test_upgrades import STATEMENTS

OTHERS: Final = RoleName("other", "policy", "root")
TEAM: Final = RoleName("acct", "policy", "team")
CALLER: Final = "acct:user:admin 17"

#: Names whose numbers are those of other locks by ``hashtextextended`` with the words of earlier programs.
LIKE_OTHERS: Final = RoleName("acct", "policy", "xxxxxVJv_VP5uinVrd7X-=93U")
LIKE_EXPIRATION: Final = RoleName("acct", "policy", "xxxxxlaYF09z+t5oe-LtitMO4")
KEYS: Final = ("xxxxx0kIkV9H2ld.vcmz3y_3y", "xxxxxM76+ZhectujJ4n~t5avV")
MAPPED: Final = ResourceName("other", "webservice", "svc/authn-ldap/corp")
LIKE_MAPPED: Final = ResourceName("acct", "webservice", "svc/authn-ldap/xxxRW61xBe.MifRJT6sid_g")

_TURN: Final = Statement("test_lock_turn", "SELECT pg_try_advisory_xact_lock($1::bigint)")
_HASHED: Final = Statement("test_lock_hashed", "SELECT hashtextextended($1::text, 0)")
_RELEASED: Final = Statement("test_lock_released", STATEMENTS["policy_lock"])


class AdvisoryLockTests(InPostgres):
    """Locks that are held in one transaction, and asked for in another."""

    async def number(self, text: str) -> int:
        """The number that an earlier program has for a text."""
        ((number,),) = await self.database.fetch(_HASHED, text)
        return int(number)

    async def beside(self, name: str) -> None:
        """Demand that locks of others are to be had while a transaction has one."""
        for number in range(CONSTANTS << 32, (CONSTANTS << 32) + 4):
            self.assertEqual(await self.database.transact(partial(_take, number)), [(True,)], (name, number))
        await self.database.transact(lambda it: _mappings(it).lock_policy(OTHERS))

    async def test_chosen_names(self) -> None:
        """A policy, a key and an authenticator whose names have the numbers of other locks, by PostgreSQL's hash, keep
        neither another account nor the program itself waiting (DATA-56).
        """
        others = await self.number(f"policy {OTHERS}")
        self.assertEqual(await self.number(f"policy {LIKE_OTHERS}"), others)
        self.assertEqual(await self.number(f"policy {LIKE_EXPIRATION}"), EXPIRATION_LOCK)
        numbers = [await self.number(f"kept answer {CALLER} {key}") for key in KEYS]
        self.assertEqual(numbers, [others, EXPIRATION_LOCK - 1])
        self.assertEqual(await self.number(f"ldap mappings {LIKE_MAPPED}"), await self.number(f"ldap mappings {MAPPED}"))

        async def policies(transaction: Transaction) -> None:
            for policy in (LIKE_OTHERS, LIKE_EXPIRATION):
                await _mappings(transaction).lock_policy(policy)
                await self.beside(str(policy))

        async def keys(transaction: Transaction) -> None:
            for key in KEYS:
                self.assertIsNone(await claim_request_key(transaction, RequestKey(key, "PUT /x", caller=CALLER)))
                await self.beside(key)

        async def mappings(transaction: Transaction) -> None:
            await _mappings(transaction).lock_mappings(LIKE_MAPPED)
            await self.database.transact(lambda it: _mappings(it).lock_mappings(MAPPED), statement_timeout=2)

        for work in (policies, keys, mappings):
            await self.database.transact(work)

    async def test_released(self) -> None:
        """A load here and one of the same policy by the last release's program, which runs during an upgrade, exclude
        each other (OPS-1, POL-50).
        """

        async def here(transaction: Transaction) -> None:
            await _mappings(transaction).lock_policy(TEAM)
            await _mappings(transaction).lock_policy(TEAM)
            self.assertEqual(await self.database.transact(lambda it: it.fetch(_RELEASED, str(TEAM))), [(False,)])
            with self.assertRaises(PolicyConflict):
                await self.database.transact(lambda it: _mappings(it).lock_policy(TEAM))

        async def there(transaction: Transaction) -> None:
            self.assertEqual(await transaction.fetch(_RELEASED, str(TEAM)), [(True,)])
            with self.assertRaises(PolicyConflict):
                await self.database.transact(lambda it: _mappings(it).lock_policy(TEAM))
            await self.database.transact(lambda it: _mappings(it).lock_policy(OTHERS))

        for work in (here, there):
            await self.database.transact(work)


async def _take(number: int, transaction: Transaction) -> Sequence[Sequence[object]]:
    return await transaction.fetch(_TURN, number)


def _mappings(transaction: Transaction) -> MappingTransaction:
    return MappingTransaction(transaction, DEFAULT_RETENTION)
