"""The sealed columns of the database: the one table that both re-encryption and the verification of a backup go by.

A sealed column that is missing here, or has no trigger of ``guard_sealed_column`` (``schema/0012_data_keys.sql``), fails
``tests/integration/test_data_keys.py``. The canary isn't here: there is one, which a rotation begins with.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import attrs

from svc.model.errors import StartRefused
from svc.model.names import INTERNAL_ACCOUNT
from svc.model.query_results import Sealed
from svc.storage.driver.columns import rows_of
from svc.storage.driver.database import Database
from svc.storage.driver.migrations import read_applied
from svc.storage.driver.statements import Statement

#: The smallest value of each type.
_LEAST: Final[Mapping[str, str]] = {"text": "", "integer": "-2147483648", "bigint": "-9223372036854775808"}

#: The key of the advisory lock that rotations of values are made under, ``svc`` and a blank in ASCII, then 2.
EXPIRATION_LOCK: Final = 0x7376632000000002


@attrs.frozen
class SealedColumn:
    """A column of sealed values. ``key`` has the primary key's columns with their types.

    ``name`` is SQL for the name under which a row's value is sealed, and ``label`` for the name that operators use; ``kind``
    is what it counts as. ``lock``: the advisory lock that must be held to re-encrypt its values. ``guarded``: nothing sealed
    under a closed key enters it. Where it isn't, values are moved there from a column before it in order, in which they are
    locked: values that arrive in this column during a pass were met in that one, and another pass follows.
    """

    table: str
    column: str
    kind: str
    key: Mapping[str, str]
    name: str
    label: str
    lock: int | None = None
    guarded: bool = True

    def __str__(self) -> str:
        return f"{self.table}.{self.column}"

    @property
    def first_key(self) -> Sequence[str]:
        """The key before all others, as texts."""
        return [_LEAST[kind] for kind in self.key.values()]

    @property
    def _key_columns(self) -> str:
        return ", ".join(self.key)

    @property
    def _key_texts(self) -> str:
        return ", ".join(f"{column}::text" for column in self.key)

    def _after_condition(self, first: int) -> str:
        parameters = ", ".join(f"${number}::text::{kind}" for number, kind in enumerate(self.key.values(), first))
        return f"({self._key_columns}) > ({parameters})"

    def make_statement(self, what: str, sql: str) -> Statement:
        """Return a statement on this column."""
        return Statement(f"sealed_{self.table}_{self.column}_{what}", sql)

    def read_statement(self, batch: int) -> Statement:
        """Return the statement that reads the next values after a key, except the program's own: key, shown, name, value."""
        first = next(iter(self.key))
        return self.make_statement(
            "read",
            f"SELECT {self._key_texts}, {self.label}, {self.name}, {self.column} FROM {self.table}"
            f" WHERE {self._after_condition(1)} AND {self.column} IS NOT NULL"
            f" AND NOT starts_with({first}::text, '{INTERNAL_ACCOUNT}:')"
            f" ORDER BY {self._key_columns} LIMIT {batch}",
        )

    def count_statement(self) -> Statement:
        """Return the statement that counts the values that have this header."""
        return self.make_statement("count", f"SELECT count(*) FROM {self.table} WHERE {_sealed_under(self.column, 1)}")

    def scan_statement(self, window: int) -> Statement:
        """Return the statement that examines the next values after a key: key, whether it has a header, how long it is."""
        return self.make_statement(
            "look",
            f"SELECT {self._key_texts}, {_sealed_under(self.column, 1)}, octet_length({self.column}) FROM {self.table}"
            f" WHERE {self._after_condition(2)} AND {self.column} IS NOT NULL ORDER BY {self._key_columns} LIMIT {window}",
        )

    def lock_statement(self) -> Statement:
        """Return the statement that locks rows by their keys: key, shown, name, value. It waits for nobody: rows that others
        have locked are left out, as those without the header, the last parameter.
        """
        same = " AND ".join(f"{column} = wanted.{column}" for column in self.key)
        return self.make_statement(
            "lock",
            f"SELECT found.* FROM {rows_of(*self.key.values())} AS wanted ({self._key_columns}) CROSS JOIN LATERAL ("
            f"SELECT {self._key_texts}, {self.label}, {self.name}, {self.column} FROM {self.table}"
            f" WHERE {same} AND {_sealed_under(self.column, len(self.key) + 1)}"
            " OFFSET 0 FOR NO KEY UPDATE SKIP LOCKED) AS found",
        )

    def replace_statement(self) -> Statement:
        """Return the statement that replaces the value of a key, the last parameter."""
        parameters = enumerate(self.key.items(), 1)
        same = " AND ".join(f"{column} = ${number}::text::{kind}" for number, (column, kind) in parameters)
        return self.make_statement(
            "replace", f"UPDATE {self.table} SET {self.column} = ${len(self.key) + 1}::bytea WHERE {same}"
        )


def _sealed_under(column: str, parameter: int) -> str:
    """Return SQL for whether a value begins with a header, and so is sealed under that key."""
    return f"substring({column} FROM 1 FOR octet_length(${parameter}::bytea)) = ${parameter}::bytea"


#: All of them, in the order in which they are read and re-encrypted.
SEALED_COLUMNS: Final = (
    SealedColumn(
        "secrets",
        "sealed",
        "secrets",
        {"resource_id": "text", "version": "integer"},
        "resource_id",
        "resource_id || ' (version ' || version || ')'",
    ),
    SealedColumn(
        "expirations",
        "candidate",
        "secrets",
        {"resource_id": "text"},
        "resource_id",
        "resource_id || ' (of an unfinished rotation)'",
        EXPIRATION_LOCK,
    ),
    SealedColumn(
        "credentials",
        "api_key",
        "API keys",
        {"role_id": "text"},
        "'api-key/' || role_id",
        "'API key of ' || role_id",
    ),
    SealedColumn(
        "credentials",
        "password",
        "passwords",
        {"role_id": "text"},
        "'password/' || role_id",
        "'password of ' || role_id",
    ),
    SealedColumn(
        "signing_keys",
        "sealed",
        "signing keys",
        {"key_id": "text"},
        "'signing-key/' || account || '/' || key_id",
        "'signing key ' || key_id || ' of ' || account",
    ),
    SealedColumn(
        "deleted_values",
        "sealed",
        "secrets",
        {"record": "bigint", "version": "integer"},
        "(SELECT resource_id FROM deleted_records WHERE number = record)",
        "(SELECT resource_id FROM deleted_records WHERE number = record) || ' (version ' || version || ', deleted)'",
        guarded=False,
    ),
    SealedColumn("audit_keys", "sealed", "audit keys", {"number": "integer"}, "'audit-key/'", "'the audit key'"),
    SealedColumn(
        "kept_answers",
        "sealed",
        "kept answers",
        {"caller": "text", "key": "text", "piece": "integer"},
        "'kept-answer/' || caller || ' ' || key || ' ' || piece",
        "'answer ' || key || ' kept for ' || caller",
    ),
)


#: How many values are read at a time; each may be as long as a request's body.
BATCH: Final = 100

_STATEMENTS: Final = [(column, column.read_statement(BATCH)) for column in SEALED_COLUMNS]

#: Kinds of sealed values, in the order in which they are read.
KINDS: Final = tuple(dict.fromkeys(column.kind for column in SEALED_COLUMNS))


@attrs.frozen
class SealedValueStore:
    """The sealed values of a database, without those in the program's own account."""

    _database: Database

    async def read_schema_version(self) -> int:
        """Return the version of the schema.

        :raises StartRefused: there is none.
        """
        recorded = await self._database.transact_read_only(read_applied)
        if not recorded:
            raise StartRefused("it holds no database of this program")
        return recorded[-1][0]

    async def stream_values(self) -> AsyncIterator[tuple[str, str, str, Sealed]]:
        """Yield every value, after its kind, its name for operators, and the name that it is sealed under."""
        for column, statement in _STATEMENTS:
            after = column.first_key
            while rows := await self._database.fetch(statement, *after):
                for *_, shown, name, sealed in rows:
                    yield column.kind, shown, name, Sealed(sealed)
                after = rows[-1][: len(column.key)]
