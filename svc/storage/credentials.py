"""The store of credentials on PostgreSQL."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from svc.model.authentication import RESTRICTIONS_LIMIT
from svc.model.background import run_in_background
from svc.model.credentials import Credential
from svc.model.errors import ReadOnlyStandby, RecordNotFound, StoreUnavailable
from svc.model.events import EventBatch
from svc.model.idempotency import Once
from svc.model.names import RoleName
from svc.model.query_results import Sealed
from svc.storage.driver.failures import ForeignKeyViolation
from svc.storage.driver.statements import Statement, Statements, Transaction
from svc.storage.events import change_and_record, record_events
from svc.storage.idempotency import transact_once
from svc.storage.sql.access_facts import LOGIN_NUMBERS, NEW_EPOCH
from svc.storage.sql.api_keys import API_KEY_OFF
from svc.storage.sql.dependencies import cached_statement, name_array

_CREDENTIAL: Final = cached_statement(
    "credential",
    lambda more: (
        f"""
    SELECT
        EXISTS (SELECT FROM accounts WHERE account = $2::text),
        (SELECT {LOGIN_NUMBERS} FROM roles WHERE roles.role_id = $1::text),
        stored.api_key,
        (SELECT key_id FROM signing_keys WHERE account = $2 ORDER BY serial DESC LIMIT 1),
        stored.password,
        stored.expires_at,
        ARRAY(SELECT cidr FROM restrictions WHERE role_id = $1 ORDER BY cidr LIMIT {RESTRICTIONS_LIMIT}),
        stored.edition, {API_KEY_OFF.format(role="$1")},
        (
            SELECT CASE WHEN refused THEN webservice_id WHEN missing_since IS NOT NULL THEN '' END
            FROM directory_users WHERE role_id = $1
        ){more}
    FROM (SELECT) AS always LEFT JOIN credentials AS stored ON stored.role_id = $1
"""
    ),
    name_array(("r", "$1"), ("c", "$1"), ("k", "$2")),
    known="EXISTS (SELECT FROM roles WHERE role_id = $1)",
)
_SET_API_KEY: Final = Statement.with_name("credential_set_api_key")("""
    INSERT INTO credentials (role_id, api_key, rotated_at)
    SELECT role_id, $2::bytea, now() FROM roles WHERE role_id = $1::text
    ON CONFLICT (role_id) DO UPDATE SET
        api_key = excluded.api_key, rotated_at = excluded.rotated_at, edition = credentials.edition + 1
    RETURNING role_id
""")
_ROTATED_AT: Final = Statement.with_name("credential_rotated_at")(
    "SELECT extract(epoch FROM rotated_at)::double precision FROM credentials WHERE role_id = $1::text"
)
_SET_PASSWORD: Final = Statement.with_name("credential_set_password")("""
    UPDATE credentials SET password = $2::bytea, edition = edition + CASE WHEN $3::bytea IS NULL THEN 1 ELSE 0 END
    WHERE role_id = $1::text AND ($3::bytea IS NULL OR password = $3) RETURNING role_id
""")
#: Gives a role another epoch.
REVOKE: Final = Statement.with_name("role_revoke_tokens")(
    f"UPDATE roles SET epoch = {NEW_EPOCH} WHERE role_id = $1::text RETURNING role_id"
)

_log = Logger()


@attrs.frozen
class CredentialStore:
    """The store of credentials, which users and hosts have from their beginning, unless policy says that they have no API
    key.
    """

    _database: Statements
    #: The renewal that is under way: one at a time, however many log in while PostgreSQL takes its time.
    _renewals: list[Deferred[None]] = attrs.field(factory=list, init=False)

    async def read_credential(self, role: RoleName) -> Credential:
        """Return the credential of a role; an unknown role or account has an empty one."""
        (row,) = await self._database.fetch(_CREDENTIAL, str(role), role.account)
        account_exists, numbers, api_key, signing_key, password, expires_at, networks, version, *others = row
        restrictions, known = tuple(map(ip_network, networks)), numbers is not None
        proof = (api_key, signing_key, password, expires_at, restrictions)
        creation, epoch = numbers or (0, 0)
        return Credential(account_exists, known, *proof, creation, epoch, version or 0, *others)

    async def set_api_key(
        self, role: RoleName, api_key: Sealed, trail: EventBatch | None = None, once: Once[None] | None = None
    ) -> None:
        """Replace the API key of a role, and note when; one that expires, expires when it did.

        :raises NotFound: the role is missing.
        :raises AnswerKept: ``once`` says that it was done before (``kept_answers``).
        """

        async def apply_change(transaction: Transaction) -> None:
            if not await transaction.fetch(_SET_API_KEY, str(role), api_key):
                raise RecordNotFound.for_name(role)
            await record_events(transaction, trail)

        try:
            await transact_once(self._database, once, apply_change)
        except ForeignKeyViolation:  # the role went meanwhile
            raise RecordNotFound.for_name(role) from None

    async def read_rotation_time(self, role: RoleName) -> float | None:
        """Return when the API key was last replaced, in seconds since the epoch; ``None`` when it never was."""
        rows = await self._database.fetch(_ROTATED_AT, str(role))
        return rows[0][0] if rows else None

    async def set_password(
        self, role: RoleName, password: Sealed, instead_of: Sealed | None = None, trail: EventBatch | None = None
    ) -> bool:
        """Set a role's hash, if it has an API key and its hash is ``instead_of``, where given; return whether it was set."""
        return bool(await change_and_record(self._database, trail, _SET_PASSWORD, str(role), password, instead_of))

    async def revoke_tokens(self, role: RoleName, trail: EventBatch | None = None) -> None:
        """Give a role another epoch, so that its access tokens and sessions end.

        :raises NotFound: the role is missing.
        """
        if not await change_and_record(self._database, trail, REVOKE, str(role)):
            raise RecordNotFound.for_name(role)

    def renew_password(self, role: RoleName, password: Sealed, instead_of: Sealed) -> None:
        """Begin to set a role's hash, as above, for a login, which doesn't wait; where that is impossible, do nothing."""
        if self._renewals:
            return
        failed = "The hash of a password could not be renewed"
        renewal = run_in_background(self._renew_password(role, password, instead_of), _log, failed)
        self._renewals.append(renewal)
        renewal.addCallback(lambda _: self._renewals.clear())

    async def _renew_password(self, role: RoleName, password: Sealed, instead_of: Sealed) -> None:
        try:
            await self.set_password(role, password, instead_of)
        except (ReadOnlyStandby, StoreUnavailable) as refusal:
            _log.debug("The hash of a password stays as it is: {why}", why=str(refusal))
