"""Two groups of one account, one with ``MANY`` members and one with ``FEW``, laid straight into the service's database.

The members are hosts, as a policy would have recorded them but for their API keys. ``MATCHES`` of each group, spread over
it, have an annotation with a word of their own. Search documents are made by the schema's own view.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final

import attrs
import psycopg2

from bench import settings
from bench.client import Client
from bench.server import ACCOUNT, Server, say
from svc.storage.embedded.cluster import SUPERUSER

_POLICY: Final = "- !policy\n  id: {name}\n  body:\n  - !group all\n"

#: The hosts ``%(begin)s`` and after, before ``%(end)s``; their resources, their owner's memberships, the group's.
_HOSTS: Final = """
    CREATE TEMPORARY TABLE hosts ON COMMIT DROP AS
    SELECT n, %(account)s || ':host:' || %(name)s || '/app-' || lpad(n::text, 7, '0') AS host,
        %(account)s || ':policy:' || %(name)s AS policy
    FROM generate_series(%(begin)s, %(end)s - 1) AS numbers (n)
"""
_ROWS: Final = (
    "INSERT INTO roles (role_id, policy_id) SELECT host, policy FROM hosts ORDER BY n",
    "INSERT INTO resources (resource_id, owner_id, policy_id) SELECT host, policy, policy FROM hosts ORDER BY n",
    """
    INSERT INTO memberships (role_id, member_id, ownership, admin_option, policy_id)
    SELECT host, policy, true, true, policy FROM hosts ORDER BY n
    """,
    """
    INSERT INTO memberships (role_id, member_id, ownership, admin_option, policy_id)
    SELECT %(account)s || ':group:' || %(name)s || '/all', host, false, false, policy FROM hosts ORDER BY n
    """,
    """
    INSERT INTO annotations (resource_id, name, value, policy_id)
    SELECT host, 'description', 'the one made of ' || %(word)s, policy FROM hosts WHERE n %% %(stride)s = 0 ORDER BY n
    """,
    """
    INSERT INTO documents (resource_id, split, plain)
    SELECT resource_id, split, plain FROM searchable
    WHERE resource_id >= (SELECT min(host) FROM hosts) AND resource_id <= (SELECT max(host) FROM hosts)
    """,
)
_BATCH: Final = 100_000


@attrs.frozen
class Group:
    """One of the groups: its policy's name, how many members it has without its owner, and the word of some of them."""

    name: str
    size: int
    word: str

    @property
    def role(self) -> str:
        """Its full id."""
        return f"{ACCOUNT}:group:{self.name}/all"

    def members(self, parameters: str = "") -> str:
        """The path of its list of members."""
        return f"/roles/{ACCOUNT}/group/{self.name}%2Fall?members{parameters}"


def gathered(server: Server, admin: Client) -> tuple[Group, Group]:
    """Make the two groups; the large one comes first."""
    groups = Group("multitude", settings.MANY, "quartz"), Group("handful", settings.FEW, "basalt")
    with closing(psycopg2.connect(server.database, user=SUPERUSER)) as connection:
        # The inserted data is consistent; no trigger needs to check each row.
        with connection, connection.cursor() as cursor:
            cursor.execute("SET session_replication_role = replica")
        for group in groups:
            admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", _POLICY.format(name=group.name).encode())
            for begin in range(0, group.size, _BATCH):
                say(f"growth: laying in {group.name}, {begin} of {group.size}")
                _lay(connection, group, begin, min(begin + _BATCH, group.size))
        connection.autocommit = True
        with connection.cursor() as cursor:
            # As PostgreSQL would have done by itself a little later.
            cursor.execute("VACUUM ANALYZE")
    return groups


def _lay(connection: Any, group: Group, begin: int, end: int) -> None:
    stride = group.size // settings.MATCHES
    asked = {"account": ACCOUNT, "name": group.name, "word": group.word, "begin": begin, "end": end, "stride": stride}
    with connection, connection.cursor() as cursor:
        cursor.execute(_HOSTS, asked)
        for statement in _ROWS:
            cursor.execute(statement, asked)
