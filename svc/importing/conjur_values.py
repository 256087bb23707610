"""Values of variables, read of a server with Conjur's interface.

Note [Batches]. A batch has the newest values alone, and is refused whole for one that isn't permitted or has no value
(MOVE-45). So it has variables of one version, at most as many as a query takes, and is asked for in base64, the only form in
which it gives every value. Variables of a refused batch are read one by one, and so are older versions, by their numbers.

Note [Whole]. A variable is given with all versions that its record names, or with a note: a version may have gone since.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

import attrs

from svc.importing.conjur_session import AGAIN, Server, bad_answer
from svc.importing.inventory import Note, NoteKind, Record, RecordId, Values, Version
from svc.importing.windows import run_window
from svc.workload.address import encode_path
from svc.workload.faults import TooLong
from svc.workload.replies import parse_json

#: Bytes of a query, and variables of a batch, at the most: Conjur refuses 10,240 bytes (MOVE-45).
QUERY: Final = 8000
BATCH: Final = 200

#: Batches, or variables, that are asked for at once.
WIDTH: Final = 4


@attrs.frozen
class ConjurValues:
    """Reads values; ``server`` is logged in as a role with ``execute``."""

    server: Server

    async def read_values(self, variables: Iterable[Record]) -> AsyncIterator[Values]:
        """Read the values of some variables; see ``svc.importing.inventory``."""
        single: list[Record] = []
        several: list[Record] = []
        for each in variables:
            (single if len(each.versions) == 1 and "," not in each.id.identifier else several).append(each)
        async for batch in run_window(self._cut(single), self._read_batch, WIDTH):
            for values in batch:
                yield values
        async for values in run_window(several, self._read_versions, WIDTH):
            yield values

    def _cut(self, variables: Sequence[Record]) -> Iterator[list[Record]]:
        piece: list[Record] = []
        size = 0
        for each in variables:
            more = len(quote(self._full_id(each.id), safe="")) + 3
            if piece and (size + more > QUERY or len(piece) == BATCH):
                yield piece
                piece, size = [], 0
            piece.append(each)
            size += more
        if piece:
            yield piece

    async def _read_batch(self, variables: list[Record]) -> list[Values]:
        if len(variables) == 1:
            return [await self._read_versions(variables[0])]
        ids = {self._full_id(each.id): each for each in variables}
        query = "%2C".join(quote(each, safe="") for each in ids)
        try:
            reply = await self.server.ask(f"/secrets?variable_ids={query}", Accept_Encoding="base64")
        except TooLong:
            return await self._read_halves(variables)
        if reply.status == 413:
            return await self._read_halves(variables)
        if reply.status == 200:
            try:
                texts = parse_json(reply.body)
                if not isinstance(texts, dict) or texts.keys() != ids.keys():
                    raise bad_answer(self.server.place, "a batch of values", reply.status)
                return [_single(ids[full], _decode(text)) for full, text in texts.items()]
            except ValueError:
                raise bad_answer(self.server.place, "a batch of values", reply.status) from None
        return [await self._read_versions(each) for each in variables]

    async def _read_halves(self, variables: list[Record]) -> list[Values]:
        """Read a batch that has too many bytes in two."""
        half = len(variables) // 2
        return [*await self._read_batch(variables[:half]), *await self._read_batch(variables[half:])]

    async def _read_versions(self, variable: Record) -> Values:
        """Read the versions of one variable, oldest first."""
        found: list[Version] = []
        notes: list[Note] = []
        path = encode_path("secrets", self.server.account, "variable", variable.id.identifier)
        for number in variable.versions:
            try:
                reply = await self.server.ask(f"{path}?version={number}")
            except TooLong as fault:
                notes.append(Note(NoteKind.UNSEEN, f"version {number} of {variable.id}", str(fault), "move it by hand"))
                continue
            if reply.status == 200:
                found.append(Version(number, reply.body))
            elif reply.status == 403:
                why = "the source's login may not read it (status 403)"
                notes.append(Note(NoteKind.UNSEEN, str(variable.id), why, "give it `execute` there, and " + AGAIN))
                return Values(variable.id, (), tuple(notes), complete=False)
            elif reply.status == 404:
                why = "the source gives it no more (status 404): it has expired there, or newer ones took its place"
                notes.append(Note(NoteKind.LEFT_OUT, f"version {number} of {variable.id}", why))
            else:
                raise bad_answer(self.server.place, f"version {number} of {variable.id}", reply.status)
        return Values(variable.id, tuple(found), tuple(notes), complete=not notes)

    def _full_id(self, name: RecordId) -> str:
        return f"{self.server.account}:{name}"


def _single(variable: Record, value: bytes) -> Values:
    return Values(variable.id, (Version(variable.versions[0], value),))


def _decode(text: object) -> bytes:
    """Return the bytes of base64 in lines (MOVE-45).

    :raises ValueError: it is something else.
    """
    if not isinstance(text, str):
        raise ValueError("no text")
    try:
        return b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None
