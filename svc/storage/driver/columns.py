"""Many rows as the parameters of one statement: each column an array, in PostgreSQL's text form.

The driver would write a list as ``ARRAY['…', '…']``, which takes the server ten times as long to read as one literal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from svc.storage.driver.connection import Fetched
from svc.storage.driver.statements import Statement, Transaction

#: How many rows go into one statement: as many as the reactor can serialize in about 5 ms.
BATCH: Final = 5000
#: How many characters go into one statement, unless a single row has more: they are held several times over until sent.
TEXT: Final = 2_000_000


def to_array(values: Iterable[str | bytes | bool]) -> str:
    """Return the array of these values, for a parameter of type ``text[]``, ``bytea[]`` or ``boolean[]``."""
    given: tuple[Any, ...] = tuple(values)
    if not given or not isinstance(given[0], str):
        return "{" + ",".join(map(_array_element, given)) + "}"
    # The number of quotation marks between texts is known: only if there are more, or a backslash, is each text checked.
    joined = '","'.join(given)
    if "\\" in joined or joined.count('"') > 2 * (len(given) - 1):
        joined = '","'.join([text.replace("\\", "\\\\").replace('"', '\\"') for text in given])
    return '{"' + joined + '"}'


def rows_of(*types: str) -> str:
    """Return SQL for a ``FROM``: the rows whose columns are the parameters ``$1``, ``$2`` …, arrays of these types.

    PostgreSQL estimates an array at ten rows, and an unknown limit at a tenth of those: for a single row it plans a look-up.
    """
    columns = ", ".join(f"${number}::{element}[]" for number, element in enumerate(types, start=1))
    return f"(SELECT * FROM unnest({columns}) LIMIT cardinality($1))"


def column_batches(rows: Sequence[tuple[str | bytes | bool, ...]]) -> Iterator[list[str]]:
    """Return the columns of each batch of rows; no batch when there are no rows."""
    for start in range(0, len(rows), BATCH):
        yield from _split_rows(rows[start : start + BATCH])


async def fetch_for_rows(
    transaction: Transaction, statement: Statement, rows: Sequence[tuple[str | bytes | bool, ...]], *others: object
) -> Fetched:
    """Run a statement for all rows, a batch at a time, and return what it returns.

    Its first parameters are the columns of ``rows``, those after them are ``others``.
    """
    return [row for columns in column_batches(rows) for row in await transaction.fetch(statement, *columns, *others)]


def _split_rows(rows: Sequence[tuple[str | bytes | bool, ...]]) -> Iterator[list[str]]:
    """Return the columns of rows in halves, and these in halves, until each is within ``TEXT``."""
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True))
    if len(rows) > 1 and sum(sum(map(len, values)) for values in columns if not isinstance(values[0], bool)) > TEXT:
        half = len(rows) // 2
        yield from _split_rows(rows[:half])
        yield from _split_rows(rows[half:])
    else:
        yield list(map(to_array, columns))


def _array_element(value: bytes | bool) -> str:
    if isinstance(value, bytes):
        return '"\\\\x' + value.hex() + '"'
    return "t" if value else "f"
