"""The store of expirations of all kinds, on PostgreSQL: each kind is read by an index that has it in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import attrs

from svc.model.expiration import ROTATOR, ExpirationCursor, ExpirationKind, ExpirationsPage, UpcomingExpiration
from svc.model.host_factories import name_token
from svc.model.names import RoleName
from svc.storage.driver.statements import Statement, Statements
from svc.storage.sql.impact import filter_visible

#: Bytes of a digest, of which a token's name has the first (``name_token``).
_DIGEST: Final = 32
_NAME: Final = re.compile("sha256:([0-9a-f]{12})")

# A variable that is due at once, since its annotations were changed, gets its real due time within seconds.
_VARIABLES: Final = Statement.with_name("endings_variables")(f"""
    SELECT
        resource_id, extract(epoch FROM due_at)::double precision, extract(epoch FROM created_at)::double precision,
        EXISTS (SELECT FROM annotations WHERE annotations.resource_id = due.resource_id AND name = '{ROTATOR}' OFFSET 0),
        due_at > now(), failures, fault
    FROM (
        SELECT resource_id, due_at, failures, fault FROM expirations
        WHERE split_part(resource_id, ':', 1) = $1::text
            AND (due_at, resource_id) > (to_timestamp($2::double precision), $3::text)
            AND due_at <= to_timestamp($4::double precision)
        ORDER BY due_at, resource_id LIMIT $5::bigint
    ) AS due LEFT JOIN LATERAL (
        SELECT created_at FROM secrets WHERE secrets.resource_id = due.resource_id ORDER BY version DESC LIMIT 1
    ) AS newest ON true
    ORDER BY due_at, resource_id
""")
_TOKENS: Final = Statement.with_name("endings_factory_tokens")("""
    SELECT factory_id, digest, expires_at FROM host_factory_tokens
    WHERE split_part(factory_id, ':', 1) = $1::text
        AND (expires_at, factory_id, digest) > ($2::double precision, $3::text, $4::bytea)
        AND expires_at <= $5::double precision
    ORDER BY expires_at, factory_id, digest LIMIT $6::bigint
""")
_EXPIRING: Final = Statement.with_name("endings_api_keys")("""
    SELECT role_id, expires_at, extract(epoch FROM coalesce(rotated_at, created_at))::double precision
    FROM (
        SELECT role_id, expires_at, rotated_at FROM credentials
        WHERE split_part(role_id, ':', 1) = $1::text AND expires_at IS NOT NULL
            AND (expires_at, role_id) > ($2::double precision, $3::text) AND expires_at <= $4::double precision
        ORDER BY expires_at, role_id LIMIT $5::bigint
    ) AS ending, LATERAL (SELECT created_at FROM roles WHERE roles.role_id = ending.role_id OFFSET 0) AS role
    ORDER BY expires_at, role_id
""")
_ROTATED: Final = Statement.with_name("endings_rotated_api_keys")("""
    SELECT role_id, extract(epoch FROM rotated_at)::double precision, true FROM credentials
    WHERE split_part(role_id, ':', 1) = $1::text AND rotated_at IS NOT NULL AND expires_at IS NULL
        AND (rotated_at, role_id) > (to_timestamp($2::double precision), $3::text)
        AND rotated_at <= to_timestamp($4::double precision)
    ORDER BY rotated_at, role_id LIMIT $5::bigint
""")
_FIRST: Final = Statement.with_name("endings_first_api_keys")("""
    SELECT role_id, extract(epoch FROM created_at)::double precision, EXISTS (
        SELECT FROM credentials
        WHERE credentials.role_id = role.role_id AND rotated_at IS NULL AND expires_at IS NULL OFFSET 0
    )
    FROM (
        SELECT role_id, created_at FROM roles
        WHERE split_part(role_id, ':', 1) = $1::text AND split_part(role_id, ':', 2) IN ('user', 'host')
            AND (created_at, role_id) > (to_timestamp($2::double precision), $3::text)
            AND created_at <= to_timestamp($4::double precision)
        ORDER BY created_at, role_id LIMIT $5::bigint
    ) AS role
    ORDER BY created_at, role_id
""")


@attrs.frozen
class UpcomingExpirationStore:
    """The expirations that the store knows, of one account.

    Each method reads ``most`` rows after a place, up to the moment ``until``; rows that don't count are left out.
    """

    _database: Statements

    async def list_variables(self, account: str, after: ExpirationCursor, until: float, most: int) -> ExpirationsPage:
        """Return variables whose newest value expires, or is to be replaced; a failed rotation has the time of its retry.

        Values that have expired are left out.
        """
        at, name, _ = after.start_of_kind(ExpirationKind.VALUE)
        rows = await self._database.fetch(_VARIABLES, account, at, name, until, most)
        found = [
            UpcomingExpiration(
                ExpirationKind.ROTATION if rotated else ExpirationKind.VALUE, at, name, "", since, False, failures, fault
            )
            for name, at, since, rotated, to_come, failures, fault in rows
            if rotated or to_come
        ]
        return ExpirationsPage(
            found, None if len(rows) < most else _place_of(ExpirationKind.VALUE, rows[-1][1], rows[-1][0])
        )

    async def list_factory_tokens(self, account: str, after: ExpirationCursor, until: float, most: int) -> ExpirationsPage:
        """Return tokens of host factories, each under its name in logs."""
        at, name, part = after.start_of_kind(ExpirationKind.HOST_FACTORY_TOKEN)
        rows = await self._database.fetch(_TOKENS, account, at, name, _last_digest(part), until, most)
        found = [
            UpcomingExpiration(ExpirationKind.HOST_FACTORY_TOKEN, ends, factory, name_token(bytes(known)))
            for factory, known, ends in rows
        ]
        return ExpirationsPage(found, None if len(rows) < most else found[-1].cursor)

    async def list_expiring_api_keys(
        self, account: str, after: ExpirationCursor, until: float, most: int
    ) -> ExpirationsPage:
        """Return API keys that expire."""
        at, name, _ = after.start_of_kind(ExpirationKind.API_KEY)
        rows = await self._database.fetch(_EXPIRING, account, at, name, until, most)
        found = [UpcomingExpiration(ExpirationKind.API_KEY, ends, role, "", since) for role, ends, since in rows]
        return ExpirationsPage(found, None if len(rows) < most else found[-1].cursor)

    async def list_rotated_api_keys(
        self, account: str, after: ExpirationCursor, until: float, age: float, most: int
    ) -> ExpirationsPage:
        """Return API keys that don't expire and were rotated, as they reach an age in seconds."""
        return await self._list_aged(_ROTATED, account, after, until, age, most)

    async def list_unrotated_api_keys(
        self, account: str, after: ExpirationCursor, until: float, age: float, most: int
    ) -> ExpirationsPage:
        """Return API keys that don't expire and were never rotated, as they reach an age: they are as old as their roles."""
        return await self._list_aged(_FIRST, account, after, until, age, most)

    async def _list_aged(
        self, statement: Statement, account: str, after: ExpirationCursor, until: float, age: float, most: int
    ) -> ExpirationsPage:
        at, name, _ = after.start_of_kind(ExpirationKind.API_KEY)
        rows = await self._database.fetch(statement, account, at - age, name, until - age, most)
        found = [
            UpcomingExpiration(ExpirationKind.API_KEY, since + age, role, "", since, True)
            for role, since, counts in rows
            if counts
        ]
        return ExpirationsPage(
            found, None if len(rows) < most else _place_of(ExpirationKind.API_KEY, rows[-1][1] + age, rows[-1][0])
        )

    async def filter_visible(self, caller: RoleName, ids: Sequence[str]) -> frozenset[str]:
        """Return those of the full ids whose resources the caller sees (ROLE-4)."""
        return await self._database.transact_read_only(lambda transaction: filter_visible(transaction, caller, ids))


def _last_digest(part: str) -> bytes:
    """Return the last digest that has this name; an empty one for no name, and the last of all for any other text."""
    named = _NAME.fullmatch(part)
    return (bytes.fromhex(named[1]) if named else b"").ljust(_DIGEST, b"\xff") if part else b""


def _place_of(kind: ExpirationKind, at: float, name: str) -> ExpirationCursor:
    return UpcomingExpiration(kind, at, name).cursor
