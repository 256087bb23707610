"""The store of last logins on PostgreSQL.

Note [Nobody waits]. Logins are recorded while other transactions run. A role that a load is deleting is locked, perhaps for
a minute, and writing its day would wait for that. So a role that is locked is skipped, and returned to the caller, which
retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from svc.model.authentication import IdleRole, IdleRolesCursor, IdleRolesPage, LastLogin, LoginRecord
from svc.model.names import RoleName
from svc.storage.driver.columns import to_array
from svc.storage.driver.statements import Statement, Statements
from svc.storage.sql.impact import filter_visible

# Every process locks rows in this order. A role that another transaction has locked is among the rows returned.
_RECORD: Final = Statement.with_name("last_logins_record")("""
    WITH noted (role_id, day) AS MATERIALIZED (
        SELECT role.role_id, date '1970-01-01' + given.day
        FROM unnest($1::text[], $2::bigint[], $3::integer[]) AS given (role_id, creation, day), LATERAL (
            SELECT role_id FROM roles WHERE roles.role_id = given.role_id AND roles.creation = given.creation OFFSET 0
        ) AS role
        WHERE coalesce(
            (SELECT day FROM last_logins WHERE last_logins.role_id = given.role_id) < date '1970-01-01' + given.day, true
        )
    ),
    free (role_id, day) AS MATERIALIZED (
        SELECT role.role_id, noted.day FROM noted, LATERAL (
            SELECT role_id FROM roles WHERE roles.role_id = noted.role_id FOR KEY SHARE SKIP LOCKED
        ) AS role
    ),
    written AS (
        INSERT INTO last_logins (role_id, account, day)
        SELECT role_id, split_part(role_id, ':', 1), day FROM free ORDER BY role_id
        ON CONFLICT (role_id) DO UPDATE SET day = excluded.day WHERE last_logins.day < excluded.day
    )
    SELECT role_id FROM noted WHERE (role_id IN (SELECT role_id FROM free)) IS NOT TRUE
""")
# A user whose API key is refused stays assigned to the directory that has no entry for it (DirectoryUserStore).
_DIRECTORIES: Final = Statement.with_name("last_logins_directories")("""
    WITH noted (role_id, webservice_id) AS MATERIALIZED (
        SELECT role.role_id, nullif(given.webservice_id, '')
        FROM unnest($1::text[], $2::bigint[], $3::text[]) AS given (role_id, creation, webservice_id), LATERAL (
            SELECT role_id FROM roles WHERE roles.role_id = given.role_id AND roles.creation = given.creation OFFSET 0
        ) AS role
        WHERE (SELECT webservice_id FROM directory_users WHERE directory_users.role_id = given.role_id)
            IS DISTINCT FROM nullif(given.webservice_id, '')
    ),
    free (role_id, webservice_id) AS MATERIALIZED (
        SELECT role.role_id, noted.webservice_id FROM noted, LATERAL (
            SELECT role_id FROM roles WHERE roles.role_id = noted.role_id FOR KEY SHARE SKIP LOCKED
        ) AS role
    ),
    removed AS (
        DELETE FROM directory_users
        WHERE role_id = ANY (ARRAY(SELECT role_id FROM free WHERE webservice_id IS NULL)) AND NOT refused
    ),
    written AS (
        INSERT INTO directory_users (role_id, webservice_id)
        SELECT free.role_id, resource.resource_id FROM free, LATERAL (
            SELECT resource_id FROM resources
            WHERE resources.resource_id = free.webservice_id FOR KEY SHARE SKIP LOCKED
        ) AS resource
        ORDER BY free.role_id
        ON CONFLICT (role_id) DO UPDATE SET webservice_id = excluded.webservice_id, missing_since = NULL
        WHERE NOT directory_users.refused
    )
    SELECT role_id FROM noted WHERE (role_id IN (SELECT role_id FROM free)) IS NOT TRUE
""")
_LAST: Final = Statement.with_name("last_login")("""
    SELECT (SELECT day - date '1970-01-01' FROM last_logins WHERE role_id = $1::text),
        extract(epoch FROM since)::double precision
    FROM last_logins_kept WHERE single
""")
_SINCE: Final = Statement.with_name("last_logins_since")(
    "SELECT extract(epoch FROM since)::double precision FROM last_logins_kept WHERE single"
)
_NEVER: Final = Statement.with_name("last_logins_never")("""
    SELECT role_id, extract(epoch FROM created_at)::double precision,
        NOT EXISTS (SELECT FROM last_logins WHERE last_logins.role_id = role.role_id OFFSET 0)
    FROM (
        SELECT role_id, created_at FROM roles
        WHERE split_part(role_id, ':', 1) = $1::text AND split_part(role_id, ':', 2) IN ('user', 'host')
            AND (created_at, role_id) > (to_timestamp($2::double precision), $3::text)
            AND created_at < to_timestamp($4::double precision)
        ORDER BY created_at, role_id LIMIT $5::bigint
    ) AS role
    ORDER BY created_at, role_id
""")
_LONG_AGO: Final = Statement.with_name("last_logins_long_ago")("""
    SELECT role_id, extract(epoch FROM created_at)::double precision, day - date '1970-01-01'
    FROM (
        SELECT role_id, day FROM last_logins
        WHERE account = $1::text AND (day, role_id) > (date '1970-01-01' + $2::integer, $3::text)
            AND day < date '1970-01-01' + $4::integer
        ORDER BY day, role_id LIMIT $5::bigint
    ) AS login, LATERAL (SELECT created_at FROM roles WHERE roles.role_id = login.role_id OFFSET 0) AS role
    ORDER BY day, role_id
""")


@attrs.frozen
class LastLoginStore:
    """Last logins of users and hosts."""

    _database: Statements

    async def record_logins(self, logins: Sequence[LoginRecord]) -> Sequence[LoginRecord]:
        """Keep the day of each login, unless a day as late is kept, or the role isn't there any more; and its directory.

        Returns the logins whose role another transaction is changing: they are to be passed again (Note [Nobody
        waits]).
        """
        by_role = {str(login.role): login for login in logins}
        days = {role: str(login.day) for role, login in by_role.items() if login.day is not None}
        directories = {role: login.directory for role, login in by_role.items() if login.directory is not None}
        locked: set[str] = set()
        for statement, values in ((_RECORD, days), (_DIRECTORIES, directories)):
            if values:
                creations = [str(by_role[role].creation) for role in values]
                columns = to_array(values), to_array(creations), to_array(values.values())
                locked.update(role for (role,) in await self._database.change(statement, *columns))
        return [login for role, login in by_role.items() if role in locked]

    async def read_last_login(self, role: RoleName) -> LastLogin:
        """Return the day of a role's last login; none where there is no such role."""
        ((day, since),) = await self._database.fetch(_LAST, str(role))
        return LastLogin(day, since)

    async def read_recording_start(self) -> float:
        """Return since when last logins are kept, in epoch seconds."""
        ((since,),) = await self._database.fetch(_SINCE)
        return float(since)

    async def list_idle_roles(
        self, account: str, day: int, made_before: float, after: IdleRolesCursor, most: int
    ) -> IdleRolesPage:
        """Return roles whose last login was before that day; of those that never logged in, the ones made before that
        moment.

        The list continues after ``after``, and reads ``most`` roles, of which not all need to be idle.
        """
        found: list[IdleRole] = []
        last: IdleRolesCursor | None = None
        if not after.logged_in:
            rows = await self._database.fetch(_NEVER, account, after.at, after.role, made_before, most)
            found = [IdleRole(role, made, None) for role, made, never in rows if never]
            if len(rows) == most:
                return IdleRolesPage(found, IdleRolesCursor(False, rows[-1][1], rows[-1][0]))
            after, most = IdleRolesCursor(True, 0.0, ""), most - len(rows)
        rows = await self._database.fetch(_LONG_AGO, account, int(after.at), after.role, day, most)
        if len(rows) == most:
            last = IdleRolesCursor(True, float(rows[-1][2]), rows[-1][0])
        return IdleRolesPage([*found, *(IdleRole(role, made, seen) for role, made, seen in rows)], last)

    async def filter_visible(self, caller: RoleName, roles: Sequence[str]) -> frozenset[str]:
        """Return those of the full ids whose resources the caller sees (ROLE-4)."""
        return await self._database.transact_read_only(lambda transaction: filter_visible(transaction, caller, roles))
