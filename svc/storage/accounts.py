"""Accounts and their signing keys, as PostgreSQL keeps them.

Note [Deleted in parts]. One statement that follows owners of owners recurses deeper than PostgreSQL can, and takes longer
than a statement may. So an account is deleted a thousand rows at a time, in one transaction: first the resources, whichever
role owns them, then the roles, owners last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from svc.model.credentials import API_KEY_ANNOTATION
from svc.model.errors import Conflict, RecordNotFound
from svc.model.events import EventBatch
from svc.model.idempotency import Once
from svc.model.names import ACCOUNTS_WEBSERVICE, RESERVED_ACCOUNT, admin_of, root_policy
from svc.model.query_results import Sealed, StoredSigningKey
from svc.storage.driver.columns import to_array
from svc.storage.driver.statements import Statement, Statements, Transaction
from svc.storage.events import change_and_record, record_events
from svc.storage.idempotency import transact_once
from svc.storage.sql.access_facts import NEW_EPOCH
from svc.storage.sql.search import index_documents

_CREATE: Final = Statement(
    "account_create", "INSERT INTO accounts (account) VALUES ($1::text) ON CONFLICT DO NOTHING RETURNING account"
)
_CREATE_ROLES: Final = Statement("account_create_roles", "INSERT INTO roles (role_id) VALUES ($1::text), ($2::text)")
_CREATE_RESOURCES: Final = Statement(
    "account_create_resources", "INSERT INTO resources (resource_id, owner_id) VALUES ($1::text, $1), ($2::text, $1)"
)
_CREATE_MEMBERSHIPS: Final = Statement.with_name("account_create_memberships")("""
    INSERT INTO memberships (role_id, member_id, ownership, admin_option)
    VALUES ($1::text, $1, true, true), ($2::text, $1, true, true)
""")
_CREATE_CREDENTIAL: Final = Statement(
    "account_create_credential", "INSERT INTO credentials (role_id, api_key) VALUES ($1::text, $2::bytea)"
)
_ADD_KEY: Final = Statement.with_name("signing_key_add")("""
    INSERT INTO signing_keys (account, key_id, sealed, created_at)
    VALUES ($1::text, $2::text, $3::bytea, $4::double precision)
""")
_RETIRE_KEYS: Final = Statement.with_name("signing_keys_retire")(
    "UPDATE signing_keys SET retires_at = least(retires_at, $2::double precision) WHERE account = $1::text"
)
_LOCK: Final = Statement("account_lock", "SELECT FROM accounts WHERE account = $1::text FOR NO KEY UPDATE")
_NAMES: Final = Statement("account_names", "SELECT account FROM accounts ORDER BY account")
_CREATE_WEBSERVICE: Final = Statement(
    "account_create_webservice", "INSERT INTO resources (resource_id, owner_id) VALUES ($1::text, $2::text)"
)

#: How many rows one statement deletes, so that none takes long.
DELETED_BATCH: Final = 1000

#: The kinds in the order in which roles are deleted, so that each deletion cascades to little: policies recorded the rest.
_KINDS: Final = ("host", "layer", "group", "host_factory", "user", "policy")

_SOME_RESOURCES: Final = Statement.with_name("account_some_resources")(f"""
    SELECT resource_id FROM resources WHERE resource_id > $1::text AND resource_id < $2::text
    ORDER BY resource_id LIMIT {DELETED_BATCH}
""")
_SOME_ROLES: Final = Statement.with_name("account_some_roles")(
    f"SELECT role_id FROM roles WHERE role_id > $1::text AND role_id < $2::text ORDER BY role_id LIMIT {DELETED_BATCH}"
)
# A role that no policy recorded stays when its resource goes, with what it owns.
_FREE_ROLES: Final = Statement("account_free_roles", "UPDATE roles SET policy_id = NULL WHERE role_id = ANY ($1::text[])")
_DELETE_RESOURCES: Final = Statement(
    "account_delete_resources", "DELETE FROM resources WHERE resource_id = ANY ($1::text[])"
)
_DELETE_ROLES: Final = Statement("account_delete_roles", "DELETE FROM roles WHERE role_id = ANY ($1::text[])")
_FORGET: Final = Statement.with_name("account_forget")(f"""
    DELETE FROM deleted_records WHERE number = ANY (ARRAY(
        SELECT number FROM deleted_records WHERE account = $1::text LIMIT {DELETED_BATCH}
    )) RETURNING number
""")
_DELETE: Final = Statement("account_delete", "DELETE FROM accounts WHERE account = $1::text")
# The recovery may be needed because the key expired, so the new one doesn't expire.
_RECOVER: Final = Statement.with_name("account_recover")("""
    INSERT INTO credentials (role_id, api_key, rotated_at)
    SELECT role_id, $2::bytea, now() FROM roles WHERE role_id = $1::text
    ON CONFLICT (role_id) DO UPDATE SET
        api_key = excluded.api_key, rotated_at = excluded.rotated_at, edition = credentials.edition + 1, expires_at = NULL
    RETURNING role_id
""")
_ALLOW_KEY: Final = Statement.with_name("account_allow_key")(
    f"DELETE FROM annotations WHERE resource_id = $1::text AND name = '{API_KEY_ANNOTATION}' RETURNING resource_id"
)
_RECORD_RECOVERY: Final = Statement.with_name("account_note_recovery")("""
    WITH removed AS (DELETE FROM recoveries WHERE recovered_at < now() - interval '1 day')
    INSERT INTO recoveries (account) VALUES ($1::text)
""")
_RECOVERED: Final = Statement.with_name("accounts_recovered")("""
    SELECT account, extract(epoch FROM recovered_at)::double precision FROM recoveries
    WHERE recovered_at > now() - make_interval(secs => $1::double precision) ORDER BY recovered_at
""")
_UNANNOUNCED: Final = Statement("account_unannounced", "INSERT INTO unannounced_accounts (account) VALUES ($1::text)")
_ANNOUNCED: Final = Statement("account_announced", "DELETE FROM unannounced_accounts WHERE account = $1::text")
_UNANNOUNCED_KEY: Final = Statement.with_name("account_unannounced_key")("""
    SELECT api_key FROM credentials
    WHERE role_id = $2::text AND EXISTS (SELECT FROM unannounced_accounts WHERE account = $1::text)
""")
_REVOKE: Final = Statement.with_name("account_revoke_tokens")(
    f"UPDATE accounts SET epoch = {NEW_EPOCH} WHERE account = $1::text RETURNING account"
)

_KEY_COLUMNS: Final = "SELECT account, key_id, sealed, created_at, retires_at FROM signing_keys"
_KEYS_OF: Final = Statement("signing_keys_of", f"{_KEY_COLUMNS} WHERE account = $1::text ORDER BY serial")
_KEYS_NAMED: Final = Statement("signing_keys_named", f"{_KEY_COLUMNS} WHERE key_id = ANY ($1::text[])")
_SIGNERS: Final = Statement.with_name("account_signers")("""
    SELECT account, key_id, sealed, created_at, retires_at
    FROM (SELECT account FROM accounts WHERE account > $1::text ORDER BY account LIMIT $2::integer) AS next
    LEFT JOIN LATERAL (
        SELECT key_id, sealed, created_at, retires_at FROM signing_keys
        WHERE signing_keys.account = next.account ORDER BY serial DESC LIMIT 1
    ) AS newest ON true
    ORDER BY account
""")


@attrs.frozen
class AccountStore:
    """Accounts and their signing keys."""

    _database: Statements

    async def create_account(
        self,
        account: str,
        admin_key: Sealed,
        signing_key: StoredSigningKey,
        trail: EventBatch | None = None,
        once: Once[None] | None = None,
        *,
        announced: bool = True,
    ) -> None:
        """Make an account with its ``admin`` user, root policy and first signing key.

        The service's own account gets ``ACCOUNTS_WEBSERVICE`` too, which its admin owns.

        ``announced``: the API key of the admin is known; else starts show it (``mark_announced``).

        :raises Conflict: an account of that name exists.
        :raises AnswerKept: ``once`` says that it was done before (``kept_answers``).
        """
        admin, root = str(admin_of(account)), str(root_policy(account))

        async def apply_change(transaction: Transaction) -> None:
            if not await transaction.fetch(_CREATE, account):
                raise Conflict("account", account, f'account "{account}" already exists')
            await transaction.fetch(_CREATE_ROLES, admin, root)
            await transaction.fetch(_CREATE_RESOURCES, admin, root)
            await transaction.fetch(_CREATE_MEMBERSHIPS, admin, root)
            await transaction.fetch(_CREATE_CREDENTIAL, admin, admin_key)
            await _add_key(transaction, account, signing_key)
            await index_documents(transaction, (admin, root))
            if not announced:
                await transaction.fetch(_UNANNOUNCED, account)
            if account == RESERVED_ACCOUNT:
                await transaction.fetch(_CREATE_WEBSERVICE, str(ACCOUNTS_WEBSERVICE), admin)
                await index_documents(transaction, (str(ACCOUNTS_WEBSERVICE),))
            await record_events(transaction, trail)

        await transact_once(self._database, once, apply_change)

    async def read_unannounced_key(self, account: str) -> Sealed | None:
        """Return the API key of the admin of an account that a start has made, while no server has been ready since."""
        rows = await self._database.fetch(_UNANNOUNCED_KEY, account, str(admin_of(account)))
        return next((Sealed(key) for (key,) in rows), None)

    async def mark_announced(self, account: str) -> None:
        """Note that the API key of an account's admin needn't be shown again."""
        await self._database.change(_ANNOUNCED, account)

    async def delete_account(self, account: str, trail: EventBatch | None = None) -> None:
        """Delete an account and all that it holds, in one transaction, however long that takes.

        Anything added meanwhile is deleted with its owner, or waits and then finds the owner gone.

        :raises NotFound: the account is missing.
        """

        async def apply_change(transaction: Transaction) -> None:
            if not await transaction.fetch(_LOCK, account):
                raise RecordNotFound(account, "account", account)
            await _delete_matching(transaction, _SOME_RESOURCES, account, (_FREE_ROLES, _DELETE_RESOURCES))
            for name in (*(f"{account}:{kind}" for kind in _KINDS), account):
                await _delete_matching(transaction, _SOME_ROLES, name, (_DELETE_ROLES,))
            while await transaction.fetch(_FORGET, account):
                pass
            await transaction.fetch(_DELETE, account)
            await record_events(transaction, trail)

        await self._database.transact(apply_change)

    async def list_accounts(self) -> list[str]:
        """Return every account but the service's own, in order."""
        return [account for (account,) in await self._database.fetch(_NAMES) if account != RESERVED_ACCOUNT]

    async def list_signing_keys(self, account: str) -> list[StoredSigningKey]:
        """Return the signing keys of an account, the newest last."""
        return [StoredSigningKey(*row) for row in await self._database.fetch(_KEYS_OF, account)]

    async def list_newest_signing_keys(self, after: str, limit: int) -> list[tuple[str, StoredSigningKey | None]]:
        """Return the next accounts after that name, each with its newest key unless that retires; fewer at the end."""
        rows = await self._database.fetch(_SIGNERS, after, limit)
        return [(row[0], None if row[1] is None or row[4] is not None else StoredSigningKey(*row)) for row in rows]

    async def find_signing_keys(self, key_ids: Sequence[str]) -> list[StoredSigningKey]:
        """Return those of the signing keys of these ids that there are."""
        return [StoredSigningKey(*row) for row in await self._database.fetch(_KEYS_NAMED, to_array(key_ids))]

    async def rotate_signing_key(self, new: StoredSigningKey, retire_at: float) -> None:
        """Add ``new`` as its account's newest key; those before it retire at ``retire_at`` (epoch seconds), or sooner.

        Rotations of one account take turns, so that each sees the keys of those before it.

        :raises NotFound: the account is missing.
        """

        async def apply_change(transaction: Transaction) -> None:
            if not await transaction.fetch(_LOCK, new.account):
                raise RecordNotFound(new.account, "account", new.account)
            await transaction.fetch(_RETIRE_KEYS, new.account, retire_at)
            await _add_key(transaction, new.account, new)

        await self._database.transact(apply_change)

    async def recover_account(self, account: str, admin_key: Sealed, trail: EventBatch | None = None) -> None:
        """Give the admin of an account another API key, which doesn't expire, and have servers report it.

        An annotation that forbade the admin an API key is removed (TOK-57).

        :raises NotFound: the account is missing, or has no admin any more.
        """
        admin = admin_of(account)

        async def apply_change(transaction: Transaction) -> None:
            if not await transaction.fetch(_LOCK, account):
                raise RecordNotFound(account, "account", account)
            if not await transaction.fetch(_RECOVER, str(admin), admin_key):
                raise RecordNotFound.for_name(admin)
            if await transaction.fetch(_ALLOW_KEY, str(admin)):
                await index_documents(transaction, [str(admin)])
            await transaction.fetch(_RECORD_RECOVERY, account)
            await record_events(transaction, trail)

        await self._database.transact(apply_change)

    async def list_recovered(self, seconds: float) -> list[tuple[str, float]]:
        """Return the accounts that were recovered in the last seconds, each with the moment in seconds since 1970."""
        return [(account, at) for account, at in await self._database.fetch(_RECOVERED, seconds)]

    async def revoke_tokens(self, account: str, trail: EventBatch | None = None) -> None:
        """Give an account another epoch, which revokes the access tokens and sessions of all its roles.

        :raises NotFound: the account is missing.
        """
        if not await change_and_record(self._database, trail, _REVOKE, account):
            raise RecordNotFound(account, "account", account)


async def _delete_matching(transaction: Transaction, some: Statement, name: str, deletions: Sequence[Statement]) -> None:
    """Delete all whose ids begin with a name and a colon, which ";" follows in byte order, some at a time.

    A single statement would have to follow owners of owners, deeper than PostgreSQL can, and within its time-out.
    """
    last = f"{name}:"
    while rows := await transaction.fetch(some, last, f"{name};"):
        ids = [row[0] for row in rows]
        for deletion in deletions:
            await transaction.fetch(deletion, to_array(ids))
        last = ids[-1]


async def _add_key(transaction: Transaction, account: str, key: StoredSigningKey) -> None:
    await transaction.fetch(_ADD_KEY, account, key.key_id, key.sealed, key.created_at)
