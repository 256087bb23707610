"""Secrets of a Vault as variables: one for each field, or one of JSON for all of them, with the versions that can be read.

Note [Fields need values]. The names of fields stand in values alone, so that each value is read for the inventory, and again
for the load; none is kept meanwhile. With one variable of JSON the inventory reads no values.

Note [Never half a secret]. The source may change meanwhile. A version that metadata name and that isn't there is read again
with its metadata; if the second time it is missing, too, the variable has a note and none of its versions is given.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final

import attrs

from svc.importing.inventory import Note, NoteKind, Progress, Record, RecordId, Values, Version
from svc.importing.vault_http import Absent, Found, Locked, Refused, VaultConnection
from svc.importing.vault_json import Json, is_perhaps_rounded, write_json
from svc.importing.vault_kv import Limits, Metadata, Mount, Secret, find_metadata, read_secret, walk_mount
from svc.importing.vault_names import Records
from svc.model.clocks import WallClock
from svc.model.text import quote_text

#: Secrets that are read at once, and those whose versions are kept for the fields that come next.
WIDTH: Final = 8
KEPT: Final = 8

_UNDELETE: Final = "undelete it there first, if it is wanted"
_AGAIN: Final = "run the import again"


@attrs.frozen
class Place:
    """Where the versions of a variable come from; ``field`` is ``None`` for a variable of JSON."""

    mount: Mount
    key: str
    field: str | None

    @property
    def name(self) -> str:
        """Return the path of the secret there."""
        return f"{self.mount.name}{self.key}"


@attrs.frozen
class KeptSecret:
    """A secret that was found: its place, and the records that it became, for permissions."""

    mount: Mount
    key: str
    variables: tuple[RecordId, ...]
    #: Whether it has versions, readable or not: for one without any ``create`` is enough to write the first.
    has_versions: bool


@attrs.frozen
class Fields:
    """The fields of one version, as bytes, and the names of those that need a word."""

    values: Mapping[str, bytes] = attrs.field(repr=False)
    converted: tuple[str, ...] = ()
    null: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()
    rounded: bool = False


def split_fields(secret: Secret, mount: Mount) -> Fields:
    """Return the fields of a version: text as it is, and anything else as the JSON that came."""
    data = secret.data if isinstance(secret.data, dict) else {}
    values = {name: value_bytes(value) for name, value in data.items() if value is not None}
    return Fields(
        {name: value for name, value in values.items() if value.strip()},
        tuple(name for name, value in data.items() if not isinstance(value, str | None)),
        tuple(name for name, value in data.items() if value is None),
        tuple(name for name, value in values.items() if not value.strip()),
        mount.version == 2 and is_perhaps_rounded(data),
    )


def value_bytes(value: Json) -> bytes:
    """Return a value as bytes: text as it is, anything else as JSON."""
    return (value if isinstance(value, str) else write_json(value)).encode()


@attrs.define
class SecretReader:
    """Reads engines of one server, first for the inventory and then values."""

    connection: VaultConnection
    wall: WallClock
    records: Records
    as_json: bool = False
    secrets: list[KeptSecret] = attrs.field(factory=list, init=False)
    _places: dict[RecordId, Place] = attrs.field(factory=dict, init=False)
    _recent: OrderedDict[tuple[Mount, str], dict[int, Secret]] = attrs.field(factory=OrderedDict, init=False, repr=False)
    #: Keys without a right to their metadata, by engine.
    _unseen: dict[Mount, int] = attrs.field(factory=dict, init=False)

    def note(self, kind: NoteKind, what: str, why: str, remedy: str = "") -> None:
        """Add a line of the plan."""
        self.records.note(kind, what, why, remedy)

    async def read_mount(self, mount: Mount, progress: Progress) -> None:
        """Add all branches and variables of an engine."""
        self.records.add_branch(mount.name)
        limits = await self._read_limits(mount)
        waiting: list[str] = []
        done = 0
        async for level in walk_mount(self.connection, mount):
            if not level.is_seen:
                self.note(
                    NoteKind.UNSEEN,
                    f"{mount.name}{level.folder}",
                    level.bound or "it may not be listed",
                    "see whether this is a Vault" if level.bound else "give the token list or scan there",
                )
                continue
            for folder in level.folders:
                self.records.add_branch(f"{mount.name}{folder}")
            waiting += level.secrets
            while len(waiting) >= WIDTH:
                now, waiting = waiting[:WIDTH], waiting[WIDTH:]
                await self._read_keys(mount, now, limits)
                done += len(now)
                progress(f"secrets of {mount.name}", done, None)
        await self._read_keys(mount, waiting, limits)
        progress(f"secrets of {mount.name}", done + len(waiting), None)
        if count := self._unseen.get(mount):
            self.note(
                NoteKind.UNSEEN,
                f"older versions and metadata of {count} secrets of {mount.name}",
                "their metadata may not be read",
                f"give the token read on {mount.path_of('*', 'metadata')}",
            )

    async def _read_limits(self, mount: Mount) -> Limits:
        if mount.version == 1:
            return Limits()
        found = await self.connection.read(f"{mount.path}config", mount.namespace)
        if not isinstance(found, Found):
            return Limits()
        try:
            limits = Limits.read(found.data)
        except ValueError as fault:
            raise self.connection.strange(f"{mount.path}config", str(fault)) from None
        self._note_limits(mount.name, Limits().within(limits))
        return limits

    def _note_limits(self, what: str, limits: Limits) -> None:
        parts = [
            *([f"at most {limits.max_versions} versions"] if limits.max_versions != 10 else []),
            *(["writes only with cas"] if limits.cas_required else []),
            *([f"versions deleted after {limits.delete_after / 10**9:g} s"] if limits.delete_after else []),
        ]
        if parts:
            self.note(
                NoteKind.LEFT_OUT,
                f"limits of {what}",
                f"there they are: {', '.join(parts)}; here the newest 20 versions are kept",
                "ask writers for If-Match, and let values expire by annotations"
                if len(parts) > 1 or not limits.max_versions
                else "",
            )

    async def _read_keys(self, mount: Mount, keys: Sequence[str], limits: Limits) -> None:
        """Read secrets at once, and add them in their order."""
        read = await asyncio.gather(*(self._read_key(mount, key) for key in keys))
        for key, (metadata, versions) in zip(keys, read, strict=True):
            self._add_secret(mount, key, metadata, versions, limits)

    async def _read_key(self, mount: Mount, key: str) -> tuple[Metadata | None, tuple[Secret, ...]]:
        """Return the metadata of a secret and its versions; no metadata: it is gone."""
        for _ in range(2):
            metadata = await self._find_metadata(mount, key)
            if metadata is None:
                return None, ()
            if self.as_json and mount.version == 2:
                return metadata, ()
            versions = await self._read_versions(mount, key, metadata.readable())
            if len(versions) == len(metadata.readable()):
                return metadata, versions
        return metadata, versions

    async def _read_versions(self, mount: Mount, key: str, numbers: Iterable[int]) -> tuple[Secret, ...]:
        read = [await read_secret(self.connection, mount, key, number) for number in numbers]
        return tuple(each for each in read if each is not None)

    async def _find_metadata(self, mount: Mount, key: str) -> Metadata | None:
        """Return the metadata of a secret; where they may not be read, those of its newest version alone."""
        found = await find_metadata(self.connection, mount, key, self.wall.seconds())
        match found:
            case Metadata():
                return found
            case Absent() | Locked():
                return None
            case Refused():
                self._unseen[mount] = self._unseen.get(mount, 0) + 1
                newest = await read_secret(self.connection, mount, key, None)
                return Metadata() if newest is None else Metadata.of_newest(newest.number)

    def _add_secret(
        self, mount: Mount, key: str, metadata: Metadata | None, versions: tuple[Secret, ...], limits: Limits
    ) -> None:
        name = f"{mount.name}{key}"
        if metadata is None:
            self.note(NoteKind.LEFT_OUT, name, "it was in a list, and is gone by now", _AGAIN)
            return
        numbers = metadata.readable()
        if self.as_json:
            fields: dict[str | None, list[int]] = {None: list(numbers)}
        else:
            fields = self._collect_fields(name, mount, versions)
        if not self.as_json and len(versions) < len(numbers):
            lost = sorted(set(numbers).difference(each.number for each in versions))
            why = (
                f"versions {_listed(lost)} may not be read, or changed while they were"
                if mount.version == 2
                else "it may not be read"
            )
            self.note(NoteKind.UNSEEN, name, why, f"give the token read there, and {_AGAIN}")
        self._note_versions(name, metadata)
        effective = metadata.limits.within(limits)
        if effective != Limits().within(limits) and mount.version == 2:
            self._note_limits(name, effective)
        variables = []
        for field, held in sorted(fields.items(), key=lambda item: item[0] or ""):
            variable = self._add_variable(Place(mount, key, field), metadata, held)
            variables += [] if variable is None else [variable]
        self.secrets.append(KeptSecret(mount, key, tuple(variables), bool(metadata.versions)))

    def _add_variable(self, place: Place, metadata: Metadata, numbers: list[int]) -> RecordId | None:
        above, _, last = place.key.rpartition("/")
        folder = f"{place.mount.name}{above}/" if above else place.mount.name
        last = last if place.field is None else f"{last}/{place.field}"
        origin = place.name if place.field is None else f"field {quote_text(place.field)} of {place.name}"
        annotations = dict(metadata.custom)
        if place.field is None and self.as_json:
            annotations["conjur/mime_type"] = "application/json"
        variable = self.records.add("variable", folder, last, origin, annotations=annotations, versions=tuple(numbers))
        if variable is not None:
            self._places[variable] = place
        return variable

    def _collect_fields(self, name: str, mount: Mount, versions: Sequence[Secret]) -> dict[str | None, list[int]]:
        """Return the numbers of the versions that have each field; of a secret without any, itself without a value."""
        fields: dict[str | None, list[int]] = {}
        odd: dict[tuple[str, str], list[int]] = {}
        for secret in versions:
            split = split_fields(secret, mount)
            for field in split.values:
                if field:
                    fields.setdefault(field, []).append(secret.number)
            for why, names in (("converted", split.converted), ("null", split.null), ("blank", split.blank)):
                for field in names:
                    odd.setdefault((field, why), []).append(secret.number)
            if "" in split.values:
                odd.setdefault(("", "unnamed"), []).append(secret.number)
            if not split.values and not split.null and not split.blank:
                odd.setdefault(("", "empty"), []).append(secret.number)
            if split.rounded:
                odd.setdefault(("", "rounded"), []).append(secret.number)
        for (odd_field, why), odd_numbers in sorted(odd.items()):
            self._note_field(name, odd_field, why, odd_numbers)
        for held_field, held_numbers in fields.items():
            if held_numbers[-1] != versions[-1].number:
                self.note(
                    NoteKind.CHANGED,
                    f"field {quote_text(held_field or '')} of {name}",
                    f"version {versions[-1].number} hasn't got it, and the variable has the values of older ones",
                    "delete the variable here, if nobody wants them",
                )
        return fields or {None: []}

    def _note_field(self, name: str, field: str, why: str, numbers: Sequence[int]) -> None:
        what = f"field {quote_text(field)} of {name}, versions {_listed(numbers)}"
        whole = f"{name}, versions {_listed(numbers)}"
        match why:
            case "converted":
                self.note(NoteKind.CHANGED, what, "it is no text", "the value here is its JSON")
            case "null":
                self.note(NoteKind.LEFT_OUT, what, "it is null, which is no value here", "--as-json keeps it")
            case "blank":
                self.note(NoteKind.LEFT_OUT, what, "it is blank, which no value here can be", "--as-json keeps it")
            case "unnamed":
                self.note(NoteKind.LEFT_OUT, what, "a field without a name can't be a variable", "--as-json keeps it")
            case "empty":
                self.note(NoteKind.LEFT_OUT, whole, "they have no fields", "--as-json keeps them")
            case "rounded":
                self.records.notes.append(_rounded_note(whole))

    def _note_versions(self, name: str, metadata: Metadata) -> None:
        numbers = metadata.readable()
        for each in metadata.versions:
            if each.destroyed:
                self.note(NoteKind.LEFT_OUT, f"version {each.number} of {name}", "it is destroyed")
            elif each.is_deleted(metadata.now):
                why = f"it was deleted at {each.deletion_time}"
                self.note(NoteKind.LEFT_OUT, f"version {each.number} of {name}", why, _UNDELETE)
            elif each.deletion_time and each.number in numbers:
                why = f"it ends there at {each.deletion_time}, and doesn't here"
                self.note(
                    NoteKind.CHANGED, f"version {each.number} of {name}", why, "delete it then, or set when it expires"
                )
        older = [each.number for each in metadata.versions if not each.destroyed and not each.is_deleted(metadata.now)]
        if len(older) > len(numbers):
            cut = older[: len(older) - len(numbers)]
            self.note(NoteKind.LEFT_OUT, f"versions {_listed(cut)} of {name}", "the newest 20 are moved")
        if metadata.oldest > 1:
            self.note(NoteKind.LEFT_OUT, f"versions below {metadata.oldest} of {name}", "they are pruned there")
        if numbers and metadata.current > numbers[-1]:
            why = f"its newest version has no value there, and the one that is read here is version {numbers[-1]}"
            self.note(NoteKind.CHANGED, name, why, "delete the variable here, if nobody shall read it")
        if not numbers:
            self.note(NoteKind.TO_KNOW, name, "none of its versions can be read", "its variable has no value")
        elif numbers != tuple(range(1, len(numbers) + 1)):
            self.note(
                NoteKind.CHANGED, f"versions {_listed(numbers)} of {name}", "they are numbered from 1 here, in this order"
            )

    # Values

    async def read_values(self, variables: Iterable[Record]) -> AsyncIterator[Values]:
        """Yield the versions of variables."""
        for record in variables:
            place = self._places.get(record.id)
            if place is None or not record.versions:
                yield Values(record.id, ())
                continue
            held = await self._held_versions(place.mount, place.key, record.versions)
            found = [self._version_of(place, held.get(number), number) for number in record.versions]
            versions = tuple(each for each in found if each is not None)
            if len(versions) == len(record.versions):
                yield Values(record.id, versions, self._rounded_notes(place, held, record.versions))
                continue
            why = "the secret changed while it was read, or may no longer be read"
            yield Values(record.id, (), (Note(NoteKind.LEFT_OUT, place.name, why, _AGAIN),), complete=False)

    def _rounded_notes(self, place: Place, held: Mapping[int, Secret], numbers: Iterable[int]) -> tuple[Note, ...]:
        """Return what the inventory said already of secrets whose values it read."""
        if place.field is not None or place.mount.version == 1:
            return ()
        rounded = [number for number in numbers if is_perhaps_rounded(held[number].data)]
        return (_rounded_note(f"{place.name}, versions {_listed(rounded)}"),) if rounded else ()

    async def _held_versions(self, mount: Mount, key: str, numbers: Iterable[int]) -> dict[int, Secret]:
        """Return the versions of a secret that its variables need, which are kept while the next ones may need them."""
        held = self._recent.pop((mount, key), {})
        for number in numbers:
            if number not in held and (secret := await read_secret(self.connection, mount, key, number)) is not None:
                held[number] = secret
        self._recent[mount, key] = held
        while len(self._recent) > KEPT:
            self._recent.popitem(last=False)
        return held

    def _version_of(self, place: Place, secret: Secret | None, number: int) -> Version | None:
        if secret is None:
            return None
        if place.field is None:
            return Version(number, write_json(secret.data).encode())
        value = split_fields(secret, place.mount).values.get(place.field)
        return None if value is None else Version(number, value)


def _rounded_note(what: str) -> Note:
    why = "they have numbers of 16 digits or more, which KV version 2 may have rounded when they were written"
    return Note(NoteKind.TO_KNOW, what, why, "write them again there, as text")


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)
