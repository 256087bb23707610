"""The store of host factories on PostgreSQL: their tokens, and the hosts that they make.

The host's role is inserted first: if two machines make the same host, one waits there for the other, and then finds it made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from svc.model.errors import Conflict, RecordNotFound
from svc.model.events import EventBatch
from svc.model.host_factories import CreatedHost, ExpiredToken, FactoryToken, RemovalEvents, name_token
from svc.model.idempotency import Once
from svc.model.names import INTERNAL_ACCOUNT, RoleName
from svc.model.query_results import OutstandingToken, Sealed
from svc.storage.driver.columns import fetch_for_rows, to_array
from svc.storage.driver.failures import Contention, ForeignKeyViolation, summarize_error
from svc.storage.driver.statements import Statement, Statements, Transaction
from svc.storage.events import change_and_record, record_events
from svc.storage.idempotency import transact_once
from svc.storage.sql.api_keys import API_KEY_OFF
from svc.storage.sql.owners import read_ownership
from svc.storage.sql.search import index_documents

#: How many expired tokens one statement removes.
EXPIRED_BATCH: Final = 1000

_ADD: Final = Statement.with_name("factory_tokens_add")("""
    INSERT INTO host_factory_tokens (digest, factory_id, expires_at, networks)
    SELECT digest, $2::text, $3::double precision, $4::text[] FROM unnest($1::bytea[]) AS added (digest)
""")
_TOKEN: Final = Statement(
    "factory_token", "SELECT factory_id, expires_at, networks FROM host_factory_tokens WHERE digest = $1::bytea"
)
_CALLED: Final = Statement.with_name("factory_token_called")("""
    SELECT digest FROM host_factory_tokens
    WHERE digest >= $2::bytea AND digest <= $3::bytea AND split_part(factory_id, ':', 1) = $1::text
    ORDER BY digest LIMIT 1
""")
_LISTED: Final = Statement.with_name("factory_tokens_listed")("""
    SELECT digest, expires_at, networks FROM host_factory_tokens WHERE factory_id = $1::text
    ORDER BY expires_at, digest LIMIT $2::bigint OFFSET $3::bigint
""")
_REMOVE: Final = Statement(
    "factory_token_remove", "DELETE FROM host_factory_tokens WHERE digest = $1::bytea RETURNING digest"
)
_REMOVE_EXPIRED: Final = Statement.with_name("factory_tokens_remove_expired")(f"""
    DELETE FROM host_factory_tokens WHERE digest = ANY (ARRAY(
        SELECT digest FROM host_factory_tokens WHERE expires_at <= $1::double precision LIMIT {EXPIRED_BATCH}
    ))
    RETURNING digest, factory_id
""")

# A second transaction waits here for the first to end, and then finds the role or doesn't.
_ADD_ROLE: Final = Statement(
    "factory_host_role", "INSERT INTO roles (role_id) VALUES ($1::text) ON CONFLICT DO NOTHING RETURNING creation"
)
_ADD_RESOURCE: Final = Statement.with_name("factory_host_resource")(
    "INSERT INTO resources (resource_id, owner_id) VALUES ($1::text, $2::text) ON CONFLICT DO NOTHING RETURNING resource_id"
)
_OWNER: Final = Statement.with_name("factory_host_owner")(
    "SELECT owner_id, creation FROM resources, roles WHERE resource_id = $1::text AND role_id = $1"
)
_ADD_MEMBERSHIPS: Final = Statement.with_name("factory_host_memberships")("""
    INSERT INTO memberships (role_id, member_id, ownership, admin_option)
    SELECT $1::text, $2::text, true, true
    UNION ALL
    SELECT role_id, $1, false, false
    FROM (SELECT role_id, ownership FROM memberships WHERE member_id = $2 OFFSET 0) AS granted
    WHERE NOT ownership AND split_part(role_id, ':', 2) = 'layer'
""")
_ANNOTATE: Final = Statement.with_name("factory_host_annotate")("""
    INSERT INTO annotations (resource_id, name, value)
    SELECT $3::text, name, value FROM unnest($1::text[], $2::text[]) AS added (name, value)
""")
_SET_KEY: Final = Statement.with_name("factory_host_key")(f"""
    INSERT INTO credentials (role_id, api_key)
    SELECT role_id, api_key FROM (VALUES ($1::text, $2::bytea)) AS given (role_id, api_key)
    WHERE NOT {API_KEY_OFF.format(role="given.role_id")}
    ON CONFLICT (role_id) DO UPDATE SET api_key = excluded.api_key, rotated_at = now()
    RETURNING role_id
""")

# The schema inserts the first one; nobody knows a text whose digest is either of them.
_KNOWN: Final = (1).to_bytes(32)
_UNKNOWN: Final = bytes(32)
_KNOWN_FACTORY: Final = RoleName(INTERNAL_ACCOUNT, "host", "1")


@attrs.frozen
class HostFactoryStore:
    """Tokens of host factories, each known by its ``digest_token``, and the hosts that they make."""

    _database: Statements

    async def add_tokens(
        self,
        digests: Sequence[bytes],
        token: FactoryToken,
        trail: EventBatch | None = None,
        once: Once[None] | None = None,
    ) -> None:
        """Add tokens that are alike.

        :raises NotFound: the factory is missing.
        :raises AnswerKept: ``once`` says that it was done before (``kept_answers``).
        """

        async def apply_change(transaction: Transaction) -> None:
            await transaction.fetch(_ADD, to_array(digests), str(token.factory), token.expires_at, to_array(token.networks))
            await record_events(transaction, trail)

        try:
            await transact_once(self._database, once, apply_change)
        except ForeignKeyViolation:
            raise RecordNotFound.for_name(token.factory) from None

    async def read_token(self, digest: bytes) -> FactoryToken | None:
        """Return the token, expired or not; ``None`` when there is none."""
        for factory, expires_at, networks in await self._database.fetch(_TOKEN, digest):
            return FactoryToken(RoleName(*factory.split(":", 2)), expires_at, tuple(networks))
        return None

    async def find_digest(self, account: str, name: str) -> bytes | None:
        """Return the digest of the account's token that is ``name_token`` so; ``None`` when there is none."""
        # A name has the first bytes of the digest.
        beginning = bytes.fromhex(name.removeprefix("sha256:"))
        rows = await self._database.fetch(_CALLED, account, beginning.ljust(32, b"\0"), beginning.ljust(32, b"\xff"))
        return bytes(rows[0][0]) if rows else None

    async def list_tokens(self, factory: RoleName, limit: int, offset: int) -> list[OutstandingToken]:
        """Return a factory's tokens, expired or not, those that expire first before others, then by their digests."""
        rows = await self._database.fetch(_LISTED, str(factory), limit, offset)
        return [OutstandingToken(name_token(digest), expires_at, tuple(networks)) for digest, expires_at, networks in rows]

    async def remove_token(self, digest: bytes, trail: EventBatch | None = None) -> bool:
        """Remove a token, and return whether there was one."""
        return bool(await change_and_record(self._database, trail, _REMOVE, digest))

    async def create_host(
        self,
        digest: bytes,
        host: RoleName,
        annotations: Mapping[str, str],
        api_key: Sealed,
        trail: EventBatch | None = None,
        once: Once[CreatedHost] | None = None,
    ) -> CreatedHost:
        """Make a host of the token's factory, or give the one that it has made another API key.

        The factory owns it, and it becomes a member of the factory's layers, both as recorded by no policy. One that is
        there keeps its annotations. Of several that make the same host at once, one makes it.

        :raises NotFound: the token is gone.
        :raises Conflict: the id belongs to another, or did; or it lies beneath a policy, and the factory isn't that policy's
            own (HF-17, HF-19).
        :raises AnswerKept: ``once`` says that it was done before (``kept_answers``).
        """

        async def apply_change(transaction: Transaction) -> CreatedHost:
            try:
                new, creation = await _make_host(transaction, digest, str(host), annotations)
                has_key = bool(await transaction.fetch(_SET_KEY, str(host), api_key))
                await record_events(transaction, trail)
            except ForeignKeyViolation as violation:
                # The factory, one of its layers or the host was deleted meanwhile: read again.
                raise Contention(summarize_error(violation)) from None
            return CreatedHost(new, has_key, creation)

        return await transact_once(self._database, once, apply_change)

    async def require_host(self, factory: RoleName, host: RoleName, creation: int) -> None:
        """Return if a host of the factory is still the one of this creation.

        :raises NotFound: it is gone, or was made again.
        :raises Conflict: the id belongs to another by now.
        """
        owned = await self._database.fetch(_OWNER, str(host))
        if not owned or _creation_of(str(host), str(factory), owned) != creation:
            raise RecordNotFound.for_name(host)

    async def remove_expired(self, now: float, recount: RemovalEvents) -> list[ExpiredToken]:
        """Remove some tokens that have expired at ``now``, return them, and write what ``recount`` returns."""

        async def apply_change(transaction: Transaction) -> list[ExpiredToken]:
            rows = await transaction.fetch(_REMOVE_EXPIRED, now)
            removed = [ExpiredToken(name_token(digest), RoleName(*factory.split(":", 2))) for digest, factory in rows]
            await record_events(transaction, recount(removed) if removed else None)
            return removed

        return await self._database.transact(apply_change)

    async def can_find_known_token(self) -> bool:
        """Look up a token that is always there, and one that never is; return whether both answers were right.

        It asks with the statement that real requests use.
        """
        known, unknown = await self.read_token(_KNOWN), await self.read_token(_UNKNOWN)
        return known is not None and known.factory == _KNOWN_FACTORY and unknown is None


async def _make_host(transaction: Transaction, digest: bytes, host: str, annotations: Mapping[str, str]) -> tuple[bool, int]:
    """Make a host unless it is there; return whether it was made, and its creation."""
    if not (rows := await transaction.fetch(_TOKEN, digest)):
        raise RecordNotFound(host.partition(":")[0], "host_factory_token", "given")
    factory = rows[0][0]
    if not (added := await transaction.fetch(_ADD_ROLE, host)):
        return False, _creation_of(host, factory, await transaction.fetch(_OWNER, host))
    if not await transaction.fetch(_ADD_RESOURCE, host, factory):
        raise _host_conflict(host)
    if not (await read_ownership(transaction, (factory,), (host, factory))).may_make(factory, host):
        raise Conflict("host", host.split(":", 2)[2], f"{host} lies beneath a policy that isn't the one of {factory}")
    await transaction.fetch(_ADD_MEMBERSHIPS, host, factory)
    await fetch_for_rows(transaction, _ANNOTATE, list(annotations.items()), host)
    await index_documents(transaction, (host,))
    return True, int(added[0][0])


def _creation_of(host: str, factory: str, owned: Sequence[Sequence[Any]]) -> int:
    """Return the creation of a host that belongs to a factory, from the rows of ``_OWNER``.

    :raises Conflict: it belongs to another.
    """
    if not owned or owned[0][0] != factory:
        raise _host_conflict(host)
    return int(owned[0][1])


def _host_conflict(host: str) -> Conflict:
    return Conflict("host", host.split(":", 2)[2], f"{host} was not made by this host factory")
