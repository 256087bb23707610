"""The store of authenticators on PostgreSQL: their settings, the facts for a login, and the changes that operators make."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Any, Final

import attrs

from svc.model.authentication import (
    ANNOTATIONS_BYTES,
    ANNOTATIONS_LIMIT,
    DISTRUSTED_LIMIT,
    RESTRICTIONS_LIMIT,
    ROLES_FOLLOWED,
    WEBSERVICES_LIMIT,
    WEBSERVICES_PER_ACCOUNT,
    AuthenticatorSettings,
    CandidateFacts,
    DistrustedKey,
)
from svc.model.errors import InvalidParameter, RecordNotFound
from svc.model.events import EventBatch
from svc.model.names import ResourceName, RoleName
from svc.storage.driver.columns import to_array
from svc.storage.driver.connection import SharedText
from svc.storage.driver.failures import ForeignKeyViolation
from svc.storage.driver.statements import Statement, Statements
from svc.storage.events import change_and_record
from svc.storage.secrets import ENDED_AT, LASTS
from svc.storage.sql.access_facts import HELD, LOGIN_NUMBERS
from svc.storage.sql.dependencies import HELD_NAMES, cached_statement, name_array

#: Rows ``(position, serial, sealed)``: those of the ``variables`` that are declared, by their place there, counted from 1,
#: each with its newest value, unless that has expired.
_DECLARED: Final = f"""
    SELECT
        array_position({{variables}}::text[], resource_id) AS position,
        CASE WHEN ended_at IS NULL THEN newest.serial END AS serial,
        CASE WHEN ended_at IS NULL THEN newest.sealed END AS sealed,
        CASE WHEN ended_at IS NULL THEN {LASTS.format(value="newest")} END AS lasts
    FROM resources LEFT JOIN LATERAL (
        SELECT serial, sealed, expires_at,
            {ENDED_AT.format(value="secrets", resource="resources.resource_id")} AS ended_at
        FROM secrets WHERE secrets.resource_id = resources.resource_id ORDER BY version DESC LIMIT 1
    ) AS newest ON true
    WHERE resource_id = ANY ({{variables}}::text[])
"""

#: Authenticators whose list of variables is cached as a statement's parameter; where the dialect takes any name from a path,
#: one may have 13 KB.
_CACHED_LISTS: Final = 100

#: One row: an authenticator's settings, preceded by their etag. No two values have the same serial; the text of a row is
#: unambiguous, and its digest is as good and short.
_SETTINGS_QUERY: Final = f"""
    SELECT
        encode(sha256(convert_to(ROW(serials, switched, distrusted, refreshes)::text, 'UTF8')), 'base64') AS etag, *
    FROM (
        SELECT
            string_agg(position || ':' || coalesce(serial, 0), ' ' ORDER BY position) AS serials,
            array_agg(position ORDER BY position) AS positions,
            array_agg(sealed ORDER BY position) AS sealed,
            min(lasts) AS lasts,
            (SELECT enabled FROM authenticator_switches WHERE resource_id = {{webservice}}) AS switched,
            ARRAY(SELECT key FROM distrusted_keys WHERE resource_id = {{webservice}} ORDER BY key) AS distrusted,
            coalesce((SELECT refreshes FROM key_refreshes WHERE resource_id = {{webservice}}), 0) AS refreshes
        FROM ({_DECLARED}) AS declared
    ) AS told
"""

_SETTINGS: Final = Statement.with_name("authenticator_settings")(f"""
    SELECT etag, positions, sealed, switched, distrusted, refreshes
    FROM ({_SETTINGS_QUERY.format(variables="$1", webservice="$2::text")}) AS settings
""")

# An unknown role is looked up in the same way: no condition here ends the search early for it. Policy decides how much there
# is to read of a role, and logins must stay cheap: a role that holds more roles than are followed lacks the privilege unless
# it is found among these, and more annotations than are read are reported as too many.
_CANDIDATE: Final = cached_statement(
    "login_candidate",
    lambda more: (
        f"""
    WITH RECURSIVE {HELD.format(caller="$1")},
    followed (role_id) AS (SELECT role_id FROM held LIMIT {ROLES_FOLLOWED}),
    annotated (size) AS MATERIALIZED (
        SELECT octet_length(value) FROM annotations
        WHERE resource_id = $1 AND name >= $4::text AND name < $5::text ORDER BY name LIMIT {ANNOTATIONS_LIMIT + 1}
    ),
    extent (too_many) AS MATERIALIZED (
        SELECT count(*) > {ANNOTATIONS_LIMIT} OR coalesce(sum(size), 0) > {ANNOTATIONS_BYTES} FROM annotated
    )
    SELECT
        settings.etag,
        EXISTS (SELECT FROM accounts WHERE account = $2::text),
        (SELECT {LOGIN_NUMBERS} FROM roles WHERE roles.role_id = $1),
        EXISTS (SELECT FROM resources WHERE resource_id = $3::text),
        EXISTS (SELECT FROM followed WHERE role_id = ANY (ARRAY(
            SELECT owner_id FROM resources WHERE resource_id = $3
            UNION ALL
            SELECT role_id FROM permissions WHERE resource_id = $3 AND privilege = 'authenticate'
        ))),
        CASE WHEN NOT (SELECT too_many FROM extent) THEN ARRAY(
            SELECT ARRAY[name, value] FROM annotations
            WHERE resource_id = $1 AND name >= $4 AND name < $5 ORDER BY name
        ) END,
        (SELECT key_id FROM signing_keys WHERE account = $2 ORDER BY serial DESC LIMIT 1),
        ARRAY(SELECT cidr FROM restrictions WHERE role_id = $1 ORDER BY cidr LIMIT {RESTRICTIONS_LIMIT}){more}
    FROM ({_SETTINGS_QUERY.format(variables="$6", webservice="$3")}) AS settings
    """
    ),
    HELD_NAMES,
    name_array(("r", "$1"), ("r", "$3"), ("c", "$1"), ("k", "$2"), ("w", "$3")),
    # Note [Folders] in svc/storage/cache/dependency_names.py.
    "ARRAY(SELECT DISTINCT '/:' || regexp_replace(variable, '/[^/]*$', '') FROM unnest($6::text[]) AS variable)",
    lasts="lasts",
    known="EXISTS (SELECT FROM roles WHERE role_id = $1)",
)
_ANNOTATIONS: Final = Statement.with_name("authenticator_annotations")(
    "SELECT name, left(value, $3::integer) FROM annotations WHERE resource_id = $1::text AND name = ANY ($2::text[])"
)

# "0" follows the slash in byte order.
_WEBSERVICES: Final = Statement.with_name("authenticator_webservices")("""
    SELECT resource_id, (SELECT enabled FROM authenticator_switches AS switch WHERE switch.resource_id = found.resource_id)
    FROM accounts, LATERAL (
        SELECT resource_id FROM resources
        WHERE resource_id >= account || ':webservice:' || $1::text || '/'
            AND resource_id < account || ':webservice:' || $1 || '0'
        OFFSET 0
    ) AS found
    ORDER BY resource_id LIMIT $2::integer
""")
_ACCOUNT_WEBSERVICES: Final = Statement.with_name("authenticator_account_webservices")("""
    SELECT resource_id, (SELECT enabled FROM authenticator_switches AS switch WHERE switch.resource_id = found.resource_id)
    FROM resources AS found
    WHERE resource_id >= $1::text || ':webservice:' || $2::text || '/'
        AND resource_id < $1 || ':webservice:' || $2 || '0'
    ORDER BY resource_id LIMIT $3::integer
""")
_SOME_WEBSERVICES: Final = Statement.with_name("authenticator_some_webservices")("""
    SELECT account, resource_id,
        (SELECT enabled FROM authenticator_switches AS switch WHERE switch.resource_id = found.resource_id)
    FROM (SELECT account FROM accounts WHERE account > $2::text ORDER BY account LIMIT $3::integer) AS next
    LEFT JOIN LATERAL (
        SELECT resource_id FROM resources
        WHERE resource_id >= account || ':webservice:' || $1::text || '/'
            AND resource_id < account || ':webservice:' || $1 || '0'
            AND NOT resource_id LIKE '%:webservice:' || $1 || '/%/status'
        ORDER BY resource_id LIMIT $4::integer
    ) AS found ON true
    ORDER BY account, resource_id
""")
_SWITCH: Final = Statement.with_name("authenticator_switch")("""
    INSERT INTO authenticator_switches (resource_id, enabled)
    SELECT resource_id, $2::boolean FROM resources WHERE resource_id = $1::text
    ON CONFLICT (resource_id) DO UPDATE SET enabled = EXCLUDED.enabled RETURNING resource_id
""")
# Of two concurrent requests the later one counts, in whatever order they are written.
_REFRESH: Final = Statement.with_name("authenticator_refresh")("""
    INSERT INTO key_refreshes (resource_id, refreshes)
    SELECT resource_id, nextval('key_refresh_numbers') FROM resources WHERE resource_id = $1::text
    ON CONFLICT (resource_id) DO UPDATE SET refreshes = greatest(key_refreshes.refreshes, EXCLUDED.refreshes)
    RETURNING refreshes
""")
_DISTRUST: Final = Statement.with_name("authenticator_distrust")("""
    WITH found AS (SELECT resource_id FROM resources WHERE resource_id = $1::text),
    others AS (SELECT count(*) AS count FROM distrusted_keys WHERE resource_id = $1 AND key <> $2::text),
    added AS (
        INSERT INTO distrusted_keys (resource_id, key, distrusted_by)
        SELECT resource_id, $2, $3::text FROM found, others WHERE others.count < $4::integer
        ON CONFLICT DO NOTHING
    )
    SELECT others.count < $4 FROM found, others
""")
_TRUST: Final = Statement.with_name("authenticator_trust")("""
    WITH removed AS (DELETE FROM distrusted_keys WHERE resource_id = $1::text AND key = $2::text RETURNING key)
    SELECT EXISTS (SELECT FROM removed) FROM resources WHERE resource_id = $1
""")
_DISTRUSTED: Final = Statement.with_name("authenticator_distrusted")("""
    SELECT key, extract(epoch FROM created_at)::double precision, distrusted_by
    FROM distrusted_keys WHERE resource_id = $1::text ORDER BY key
""")


@attrs.frozen
class AuthenticatorStore:
    """Readings of the store for authenticators with variables."""

    _database: Statements

    async def read_settings(self, account: str, branch: str, names: Sequence[str]) -> AuthenticatorSettings:
        """Read the variables ``<branch>/<name>``, and the settings of the webservice ``<branch>``: ``svc/authn-jwt/ci``."""
        variables, webservice = _variable_ids(account, branch, tuple(names)), f"{account}:webservice:{branch}"
        (row,) = await self._database.fetch(_SETTINGS, variables, webservice)
        etag, positions, sealed, switched, distrusted, refreshes = row
        values = {names[position - 1]: value for position, value in zip(positions or (), sealed or (), strict=True)}
        return AuthenticatorSettings(etag, values, switched, frozenset(distrusted), refreshes)

    async def read_candidate(
        self, role: RoleName, branch: str, names: Sequence[str], annotated: str, *, afresh: bool = False
    ) -> CandidateFacts:
        """Read a candidate for the webservice ``branch`` of its own account, with its annotations under ``<annotated>/``.

        One round trip. ``etag`` is that of ``read_settings`` for the same ``names``, which are never read from the cache.
        Unless ``afresh`` the candidate may come from the read cache (CLU-31).
        """
        account, webservice = role.account, f"{role.account}:webservice:{branch}"
        # Names under a branch are a range of the key: "0" follows the slash in byte order.
        asked = (
            role.full_id,
            account,
            webservice,
            f"{annotated}/",
            f"{annotated}0",
            _variable_ids(account, branch, tuple(names)),
        )
        fetch = self._database.fetch_uncached if afresh else self._database.fetch
        (row,) = await fetch(_CANDIDATE, *asked)
        etag, account_exists, numbers, exists, permitted, annotations, signing_key, cidrs = row
        known, networks = numbers is not None, tuple(map(ip_network, cidrs))
        described = None if annotations is None else dict(annotations)
        creation, epoch = numbers or (0, 0)
        return CandidateFacts(
            etag,
            account_exists,
            known,
            exists,
            may_authenticate=permitted,
            annotations=described,
            signing_key=signing_key,
            restrictions=networks,
            creation=creation,
            epoch=epoch,
        )

    async def read_annotations(self, webservice: ResourceName, names: Sequence[str], limit: int) -> Mapping[str, str]:
        """Read those annotations of a webservice that have these names, each as far as ``limit`` characters."""
        return dict(await self._database.fetch(_ANNOTATIONS, str(webservice), to_array(names), limit))

    async def list_webservices(self, prefix: str) -> list[tuple[ResourceName, bool | None]]:
        """Return the first ``WEBSERVICES_LIMIT`` webservices of all accounts under ``<prefix>/`` in order, with switches."""
        rows = await self._database.fetch(_WEBSERVICES, prefix, WEBSERVICES_LIMIT)
        return [(ResourceName.parse(name), switch) for name, switch in rows]

    async def list_account_webservices(
        self, account: str, prefix: str, limit: int
    ) -> list[tuple[ResourceName, bool | None]]:
        """Return the first so many ``list_webservices`` of one account."""
        rows = await self._database.fetch(_ACCOUNT_WEBSERVICES, account, prefix, limit)
        return [(ResourceName.parse(name), switch) for name, switch in rows]

    async def list_webservices_by_account(
        self, prefix: str, after: str, limit: int
    ) -> dict[str, list[tuple[ResourceName, bool | None]]]:
        """Return the next accounts in order after that name, each with its first ``WEBSERVICES_PER_ACCOUNT``
        ``list_webservices``.

        Those through which the status of an authenticator is read aren't among them.
        """
        seen: dict[str, list[tuple[ResourceName, bool | None]]] = {}
        for account, name, switch in await self._database.fetch(
            _SOME_WEBSERVICES, prefix, after, limit, WEBSERVICES_PER_ACCOUNT
        ):
            found = seen.setdefault(account, [])
            if name is not None:
                found.append((ResourceName.parse(name), switch))
        return seen

    async def switch_authenticator(self, webservice: ResourceName, on: bool, trail: EventBatch | None = None) -> None:
        """Switch an authenticator on or off.

        :raises NotFound: the webservice is missing; so do the next three.
        """
        await self._change_setting(trail, _SWITCH, webservice, on)

    async def request_key_refresh(self, webservice: ResourceName, trail: EventBatch | None = None) -> int:
        """Note that an operator wants newer keys, and return the number of the request (see ``AuthenticatorSettings``)."""
        return int(await self._change_setting(trail, _REFRESH, webservice))

    async def distrust_key(self, webservice: ResourceName, key: str, by: RoleName, trail: EventBatch | None = None) -> None:
        """Distrust a key, by its id or thumbprint; one that is distrusted already stays so, since when it was.

        :raises InvalidParameter: ``DISTRUSTED_LIMIT`` others are.
        """
        if not await self._change_setting(trail, _DISTRUST, webservice, key, str(by), DISTRUSTED_LIMIT):
            raise InvalidParameter("key", f"{DISTRUSTED_LIMIT} keys are distrusted already: trust some of them again first")

    async def trust_key(self, webservice: ResourceName, key: str, trail: EventBatch | None = None) -> bool:
        """Trust a key again, and return whether it was distrusted."""
        return bool(await self._change_setting(trail, _TRUST, webservice, key))

    async def list_distrusted_keys(self, webservice: ResourceName) -> tuple[DistrustedKey, ...]:
        """Return the keys that are distrusted, in the order of their names; none where there is no webservice."""
        return tuple(DistrustedKey(*row) for row in await self._database.fetch(_DISTRUSTED, str(webservice)))

    async def _change_setting(
        self, trail: EventBatch | None, statement: Statement, webservice: ResourceName, *more: str | bool | int
    ) -> Any:
        """Change a setting of a webservice, and return what the statement returns; false when that changed nothing.

        :raises NotFound: there is no such webservice.
        """
        try:
            rows = await change_and_record(self._database, trail, statement, str(webservice), *more)
        except ForeignKeyViolation:  # it went meanwhile
            rows = []
        if not rows:
            raise RecordNotFound.for_name(webservice)
        return rows[0][0]


@functools.lru_cache(_CACHED_LISTS)
def _variable_ids(account: str, branch: str, names: tuple[str, ...]) -> SharedText:
    """Return the full ids of an authenticator's variables; every login asks for those of the same few."""
    return SharedText(to_array(f"{account}:variable:{branch}/{name}" for name in names))
