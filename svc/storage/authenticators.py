"""What authenticators with variables ask PostgreSQL: their settings, and all that bears on an applicant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from zope.interface import implementer

from svc.interfaces import IAuthenticatorReadings
from svc.names import RoleName
from svc.records import Applicant, AuthenticatorSettings
from svc.storage.columns import column
from svc.storage.database import Database, Statement
from svc.storage.standing import HELD

#: Rows ``(position, serial, sealed)``: those of the ``variables`` that are declared, by their place there, counted from 1,
#: each with its newest value.
_DECLARED: Final = """
    SELECT array_position({variables}::text[], resource_id) AS position, newest.serial, newest.sealed
    FROM resources LEFT JOIN LATERAL (
        SELECT serial, sealed FROM secrets
        WHERE secrets.resource_id = resources.resource_id ORDER BY version DESC LIMIT 1
    ) AS newest ON true
    WHERE resource_id = ANY ({variables}::text[])
"""

#: No two values have the same serial, and 0 is none's.
_EDITION: Final = "coalesce(string_agg(position || ':' || coalesce(serial, 0), ' ' ORDER BY position), '')"

_SETTINGS: Final = Statement(
    "authenticator_settings",
    f"""
    SELECT {_EDITION}, array_agg(position ORDER BY position), array_agg(sealed ORDER BY position)
    FROM ({_DECLARED.format(variables="$1")}) AS declared
    """,
)

# Whom nobody knows is asked about in the same way: no condition here ends the search early for an unknown role.
_APPLICANT: Final = Statement(
    "authenticator_applicant",
    f"""
    WITH RECURSIVE {HELD.format(caller="$1")}
    SELECT
        (SELECT {_EDITION} FROM ({_DECLARED.format(variables="$6")}) AS declared),
        EXISTS (SELECT FROM accounts WHERE account = $2::text),
        EXISTS (SELECT FROM roles WHERE role_id = $1),
        EXISTS (SELECT FROM resources WHERE resource_id = $3::text),
        EXISTS (SELECT FROM held WHERE role_id = ANY (ARRAY(
            SELECT owner_id FROM resources WHERE resource_id = $3
            UNION ALL
            SELECT role_id FROM permissions WHERE resource_id = $3 AND privilege = 'authenticate'
        ))),
        ARRAY(SELECT ARRAY[name, value] FROM annotations WHERE resource_id = $1 AND name >= $4::text AND name < $5::text),
        (SELECT key_id FROM signing_keys WHERE account = $2 ORDER BY serial DESC LIMIT 1)
    """,
)


@implementer(IAuthenticatorReadings)
@attrs.frozen
class AuthenticatorStore:
    """Provides ``IAuthenticatorReadings`` on PostgreSQL."""

    _database: Database

    async def settings(self, account: str, branch: str, names: Sequence[str]) -> AuthenticatorSettings:
        """See ``IAuthenticatorReadings``."""
        ((edition, positions, sealed),) = await self._database.fetch(_SETTINGS, _variables(account, branch, names))
        values = {names[position - 1]: value for position, value in zip(positions or (), sealed or (), strict=True)}
        return AuthenticatorSettings(edition, values)

    async def applicant(self, role: RoleName, branch: str, names: Sequence[str]) -> Applicant:
        """See ``IAuthenticatorReadings``."""
        under = branch.partition("/")[2]
        (row,) = await self._database.fetch(
            _APPLICANT,
            str(role),
            role.account,
            f"{role.account}:webservice:{branch}",
            # Names under a branch are a range of the key: "0" follows the slash in byte order.
            f"{under}/",
            f"{under}0",
            _variables(role.account, branch, names),
        )
        edition, account_exists, role_exists, webservice_exists, may_authenticate, annotations, signing_key = row
        return Applicant(
            edition, account_exists, role_exists, webservice_exists, may_authenticate, dict(annotations), signing_key
        )


def _variables(account: str, branch: str, names: Sequence[str]) -> str:
    return column(f"{account}:variable:{branch}/{name}" for name in names)
