"""The store of the users of directories on PostgreSQL.

Note [Rounds]. Several servers may have the same primary. One statement says whether a round is due, and that it has begun,
so that one of them does it. Each server that is configured to do rounds records that every few minutes, whether or not one
is due: once no server does, the findings of rounds lapse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from svc.model.ldap_directories import DirectoryEventsOf, DirectoryUser, DirectoryUsersChange, ScheduledRound
from svc.model.names import ResourceName, RoleName
from svc.storage.credentials import REVOKE
from svc.storage.driver.columns import to_array
from svc.storage.driver.connection import Fetched
from svc.storage.driver.statements import Statement, Statements, Transaction
from svc.storage.events import record_events

#: Seconds after which a server records again that it does rounds.
_TOUCH_AFTER: Final = 300

_DUE: Final = """
    directory_rounds.begun_at <= now() - make_interval(secs => $2::double precision)
    OR directory_rounds.fault IS NOT NULL AND directory_rounds.begun_at <= now() - make_interval(secs => (
        SELECT again FROM given WHERE given.webservice_id = directory_rounds.webservice_id
    ))
    OR directory_rounds.begun_at <= now() - make_interval(secs => $3::double precision) AND EXISTS (
        SELECT FROM directory_users
        WHERE directory_users.webservice_id = directory_rounds.webservice_id AND NOT refused
            AND missing_since <= now() - make_interval(secs => $3)
        OFFSET 0
    )
"""
_BEGIN: Final = Statement.with_name("directory_begin")(f"""
    WITH given (webservice_id, again) AS MATERIALIZED (
        SELECT resource.resource_id, named.again
        FROM unnest($1::text[], $4::double precision[]) AS named (id, again), LATERAL (
            SELECT resource_id FROM resources WHERE resources.resource_id = named.id FOR KEY SHARE SKIP LOCKED
        ) AS resource
    ),
    written AS (
        INSERT INTO directory_rounds (webservice_id, begun_at, kept_at)
        SELECT webservice_id, now(), now() FROM given ORDER BY webservice_id
        ON CONFLICT (webservice_id) DO UPDATE SET
            begun_at = CASE WHEN {_DUE} THEN now() ELSE directory_rounds.begun_at END, kept_at = now()
        WHERE directory_rounds.kept_at < now() - make_interval(secs => {_TOUCH_AFTER}) OR {_DUE}
        RETURNING webservice_id, begun_at = now() AS due
    )
    SELECT webservice_id, coalesce(due, false), (
        SELECT fault FROM directory_rounds WHERE directory_rounds.webservice_id = given.webservice_id
    )
    FROM given LEFT JOIN written USING (webservice_id) ORDER BY webservice_id
""")
_USERS: Final = Statement.with_name("directory_users")("""
    SELECT role_id, missing_since IS NOT NULL, refused FROM directory_users
    WHERE webservice_id = $1::text AND role_id > $2::text ORDER BY role_id LIMIT $3::bigint
""")
_MISS: Final = Statement.with_name("directory_miss")("""
    UPDATE directory_users SET missing_since = clock_timestamp()
    WHERE role_id = ANY ($1::text[]) AND webservice_id = $2::text AND missing_since IS NULL
""")
_REFUSE: Final = Statement.with_name("directory_refuse")("""
    UPDATE directory_users SET refused = true
    WHERE role_id = ANY ($1::text[]) AND webservice_id = $2::text AND NOT refused AND missing_since <= (
        SELECT begun_at FROM directory_rounds WHERE directory_rounds.webservice_id = $2
    ) - make_interval(secs => $3::double precision)
    RETURNING role_id, webservice_id
""")


def _clear_statement(name: str, former: str) -> Statement:
    """Return the statement that clears the mark ``missing`` of some rows; it returns the users who were refused."""
    return Statement.with_name(name)(f"""
        WITH former AS MATERIALIZED (
            SELECT role_id, webservice_id, missing_since, refused FROM directory_users
            WHERE {former} ORDER BY role_id FOR UPDATE
        ),
        written AS (
            UPDATE directory_users SET missing_since = NULL, refused = false
            WHERE role_id = ANY (ARRAY(SELECT role_id FROM former WHERE missing_since IS NOT NULL))
        )
        SELECT role_id, webservice_id FROM former WHERE refused ORDER BY role_id
    """)


_FIND: Final = _clear_statement("directory_find", "role_id = ANY ($1::text[]) AND webservice_id = $2::text")
_ADMIT: Final = _clear_statement("directory_admit", "role_id = $1::text")
_LAPSE: Final = _clear_statement(
    "directory_lapse",
    """
    missing_since IS NOT NULL AND webservice_id = ANY (ARRAY(
        SELECT webservice_id FROM directory_rounds WHERE kept_at < now() - make_interval(secs => $1::double precision)
    ))
    """,
)
_CONCLUDE: Final = Statement.with_name("directory_conclude")("""
    UPDATE directory_rounds SET fault = $2::text WHERE webservice_id = $1::text AND fault IS DISTINCT FROM $2
""")
_FAULT: Final = Statement.with_name("directory_fault")("""
    SELECT fault FROM directory_rounds
    WHERE webservice_id = $1::text AND kept_at >= now() - make_interval(secs => $2::double precision)
""")


@attrs.frozen
class DirectoryUserStore:
    """The users of directories. ``LastLoginStore`` records where a user logged in."""

    _database: Statements

    async def begin_rounds(
        self, webservices: Mapping[ResourceName, float], every: float, apart: float
    ) -> Sequence[ScheduledRound]:
        """Begin the due rounds of authenticators, each on one server alone; those that are gone have none (Note [Rounds]).

        One is due ``every`` so many seconds, ``apart`` seconds after a round that found somebody missing, and after one that
        changed nothing, when the authenticator's own seconds are over.
        """
        names, again = to_array(map(str, webservices)), to_array(map(str, webservices.values()))
        rows = await self._database.change(_BEGIN, names, every, apart, again)
        return [ScheduledRound(ResourceName.parse(name), due, fault) for name, due, fault in rows]

    async def list_users(self, webservice: ResourceName, after: str, most: int) -> Sequence[DirectoryUser]:
        """Return so many users of an authenticator, in the order of their full ids, from the one after ``after`` on."""
        rows = await self._database.fetch(_USERS, str(webservice), after, most)
        return [DirectoryUser(RoleName.parse(role), missing, refused) for role, missing, refused in rows]

    async def record_findings(
        self,
        webservice: ResourceName,
        missing: Sequence[RoleName],
        found: Sequence[RoleName],
        apart: float,
        trail: DirectoryEventsOf,
    ) -> DirectoryUsersChange:
        """Record the findings of the round that began last, in one transaction, and return what changes by them.

        A user who is ``missing``, and was so already ``apart`` seconds before the round began, is refused, and loses
        tokens and sessions. Users who are ``found`` aren't missing any more.
        """
        gone, back = to_array(sorted(map(str, missing))), to_array(sorted(map(str, found)))

        async def apply_change(transaction: Transaction) -> DirectoryUsersChange:
            admitted = await transaction.fetch(_FIND, back, str(webservice))
            refused = sorted(await transaction.fetch(_REFUSE, gone, str(webservice), apart))
            await transaction.fetch(_MISS, gone, str(webservice))
            for role, _ in refused:
                await transaction.fetch(REVOKE, role)
            return await _record_change(
                transaction, DirectoryUsersChange(_parse_names(refused), _parse_names(admitted)), trail
            )

        return await self._database.transact(apply_change)

    async def record_fault(self, webservice: ResourceName, fault: str | None) -> None:
        """Keep why a round changed nothing; ``None`` where it did its work."""
        await self._database.change(_CONCLUDE, str(webservice), fault)

    async def clear_mark(self, role: RoleName, trail: DirectoryEventsOf) -> DirectoryUsersChange:
        """Record that the entry of a user was found, and return what changes by it."""
        return await self._clear_marks(_ADMIT, str(role), trail)

    async def clear_stale_marks(self, seconds: float, trail: DirectoryEventsOf) -> DirectoryUsersChange:
        """Clear the marks of missing users of authenticators for which no server began a turn for so long."""
        return await self._clear_marks(_LAPSE, seconds, trail)

    async def read_fault(self, webservice: ResourceName, seconds: float) -> str | None:
        """Return why the last round of an authenticator changed nothing, unless no server began a turn for so long."""
        rows = await self._database.fetch(_FAULT, str(webservice), seconds)
        return rows[0][0] if rows else None

    async def _clear_marks(self, statement: Statement, whose: object, trail: DirectoryEventsOf) -> DirectoryUsersChange:
        async def apply_change(transaction: Transaction) -> DirectoryUsersChange:
            change = DirectoryUsersChange(enabled=_parse_names(await transaction.fetch(statement, whose)))
            return await _record_change(transaction, change, trail)

        return await self._database.transact(apply_change)


async def _record_change(
    transaction: Transaction, change: DirectoryUsersChange, trail: DirectoryEventsOf
) -> DirectoryUsersChange:
    if change:
        await record_events(transaction, trail(change))
    return change


def _parse_names(rows: Fetched) -> tuple[tuple[RoleName, ResourceName], ...]:
    return tuple((RoleName.parse(role), ResourceName.parse(webservice)) for role, webservice in rows)
