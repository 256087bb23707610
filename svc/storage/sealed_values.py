"""All sealed values, read by key in batches, for the check of a backup."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import attrs

from svc.model.errors import StartRefused
from svc.model.query_results import Sealed
from svc.storage.driver.database import Database
from svc.storage.driver.migrations import read_applied
from svc.storage.sealed_columns import SEALED_COLUMNS

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
