"""Engines of key and value: which there are, their folders and secrets, and the versions of one secret.

Note [Names of keys]. A name in a list that ends with a slash is a folder, and a secret may have the same name without it.
Lists are sorted here: SCAN isn't there, and nothing promises the order of a list.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import attrs

from svc.importing.vault_http import Absent, Found, Locked, Refused, VaultConnection
from svc.importing.vault_json import Json, integer_of, object_of

#: How many versions are moved.
VERSIONS: Final = 20

#: How many versions are kept there where nobody says otherwise.
_VERSIONS_THERE: Final = 10

#: How deep folders are walked, and how many names of an engine: a source without an end is no Vault.
DEEPEST: Final = 100
NAMES_MOST: Final = 5_000_000

_KV: Final = frozenset({"kv", "generic"})
#: Engines of which every server has one, and that hold nothing to move.
_OWN: Final = frozenset({"system", "ns_system", "identity", "ns_identity", "cubbyhole", "ns_cubbyhole", "token", "ns_token"})


@attrs.frozen(order=True)
class Mount:
    """An engine, by its namespace and path, which both end with a slash unless they are empty."""

    namespace: str
    path: str
    type: str = "kv"
    version: int = 1

    @property
    def is_kv(self) -> bool:
        """Return whether it holds keys and values."""
        return self.type in _KV

    @property
    def is_every_servers(self) -> bool:
        """Return whether there is one in each namespace, by itself."""
        return self.type in _OWN

    @property
    def name(self) -> str:
        """Return the namespace and the path."""
        return self.namespace + self.path

    def path_of(self, key: str, part: str = "data") -> str:
        """Return the path of a secret without its namespace; in version 2 ``part`` is the part of the engine."""
        return f"{self.path}{part}/{key}" if self.version == 2 else f"{self.path}{key}"


def read_mounts(data: Mapping[str, Json], namespace: str) -> Iterator[Mount]:
    """Return the engines that an answer of ``sys/mounts`` or ``sys/auth`` names.

    :raises ValueError: it has another shape.
    """
    for path, described in sorted(data.items()):
        if not path.endswith("/"):
            continue
        yield read_mount(object_of(described), namespace, path)


def read_mount(described: Mapping[str, Json], namespace: str, path: str) -> Mount:
    """Return one engine. Of version 2 is one alone whose option ``version`` is the text "2".

    :raises ValueError: it has another shape.
    """
    kind = described.get("type")
    if not isinstance(kind, str):
        raise ValueError("no type")
    version = object_of(described.get("options")).get("version")
    return Mount(namespace, path, kind.removeprefix("ns_") if kind not in _OWN else kind, 2 if version == "2" else 1)


@attrs.frozen
class Level:
    """One folder: its secrets and folders, or that it couldn't be listed."""

    folder: str
    secrets: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    is_seen: bool = True
    #: The bound at which the walk ended here, for a person; empty: at none.
    bound: str = ""


async def walk_mount(connection: VaultConnection, mount: Mount) -> AsyncIterator[Level]:
    """Yield each folder of an engine, the outermost first; paths are those of keys, and folders end with a slash.

    A folder that can't be listed is scanned, with all below it; one for which neither is permitted isn't seen. Beyond the
    depth nothing is walked, and after the most names, nothing at all.
    """
    count = 0
    async for level in _walk_without_count(connection, mount):
        count += len(level.secrets) + len(level.folders)
        yield level
        if count >= NAMES_MOST:
            bound = f"{NAMES_MOST:,} names of an engine are read, and what comes after them isn't"
            yield Level(level.folder, is_seen=False, bound=bound)
            return


async def _walk_without_count(connection: VaultConnection, mount: Mount) -> AsyncIterator[Level]:
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        names = await connection.list_names(mount.path_of(folder, "metadata"), mount.namespace)
        if isinstance(names, tuple):
            near = [name for name in names if not _is_too_deep(folder, name)]
            if len(near) < len(names):
                yield Level(folder, is_seen=False, bound=_TOO_DEEP)
            secrets = tuple(f"{folder}{name}" for name in near if not name.endswith("/"))
            folders = tuple(f"{folder}{name}" for name in near if name.endswith("/"))
            waiting += reversed(folders)
            yield Level(folder, secrets, folders)
        elif isinstance(names, Refused):
            async for level in _scan(connection, mount, folder):
                yield level
        else:
            yield Level(folder, is_seen=False)


_TOO_DEEP: Final = f"what is deeper than {DEEPEST} folders isn't read"


def _is_too_deep(folder: str, name: str) -> bool:
    return folder.count("/") + name.count("/") > DEEPEST


async def _scan(connection: VaultConnection, mount: Mount, folder: str) -> AsyncIterator[Level]:
    path = mount.path_of(folder, "metadata")
    found = await connection.read(path, mount.namespace, method="SCAN")
    if not isinstance(found, Found):
        yield Level(folder, is_seen=False)
        return
    levels: dict[str, tuple[set[str], set[str]]] = {folder: (set(), set())}
    names = connection.names_in(found, path)
    near = [name for name in names if not _is_too_deep(folder, name)]
    if len(near) < len(names):
        yield Level(folder, is_seen=False, bound=_TOO_DEEP)
    for name in near:
        whole = f"{folder}{name}"
        inside = re.findall("[^/]*/", name)
        at = folder
        for part in inside:
            levels.setdefault(at, (set(), set()))[1].add(at + part)
            at += part
            levels.setdefault(at, (set(), set()))
        if not whole.endswith("/"):
            levels[at][0].add(whole)
    for at, (secrets, folders) in sorted(levels.items()):
        yield Level(at, tuple(sorted(secrets)), tuple(sorted(folders)))


@attrs.frozen
class KeptVersion:
    """A version as the metadata of its secret have it."""

    number: int
    destroyed: bool
    #: When it was deleted, or will be; empty: never.
    deletion_time: str

    def is_deleted(self, now: float) -> bool:
        """Return whether it is deleted at a moment by the clock of the server, in seconds since 1970."""
        return bool(self.deletion_time) and parse_time(self.deletion_time) <= now


@attrs.frozen
class Limits:
    """The limits on a secret's versions: its own, or its mount's."""

    max_versions: int = 0
    cas_required: bool = False
    #: Nanoseconds; 0: never.
    delete_after: int = 0

    @classmethod
    def read(cls, data: Mapping[str, Json]) -> Limits:
        """Read them where they are declared.

        :raises ValueError: they have another shape.
        """
        after = data.get("delete_version_after") or "0s"
        if not isinstance(after, str):
            raise ValueError("no duration")
        return cls(integer_of(data.get("max_versions")), data.get("cas_required") is True, parse_duration(after))

    def within(self, mount: Limits) -> Limits:
        """Return those of a secret as they take effect in its mount."""
        after = [each for each in (self.delete_after, mount.delete_after) if each > 0]
        return Limits(
            self.max_versions or mount.max_versions or _VERSIONS_THERE,
            self.cas_required or mount.cas_required,
            min(after, default=0),
        )


@attrs.frozen
class Metadata:
    """The metadata of a secret of KV version 2, or of one of version 1, which has none."""

    versions: tuple[KeptVersion, ...] = ()
    current: int = 0
    oldest: int = 0
    custom: Mapping[str, str] = attrs.field(factory=dict)
    limits: Limits = attrs.field(factory=Limits)
    #: The server's time of the answer.
    now: float = 0.0

    @classmethod
    def of_newest(cls, number: int) -> Metadata:
        """Return the metadata of a secret of which nothing is known but its newest version."""
        return cls((KeptVersion(number, False, ""),), number)

    def readable(self) -> tuple[int, ...]:
        """Return the numbers of the newest versions that have a value, oldest first."""
        numbers = [each.number for each in self.versions if not each.destroyed and not each.is_deleted(self.now)]
        return tuple(numbers[-VERSIONS:])


def read_metadata(found: Found, now: float) -> Metadata:
    """Return the metadata that an answer has; ``now`` is this machine's time, where the server sends none.

    :raises ValueError: they have another shape.
    """
    data = found.data
    versions = []
    for number, described in object_of(data.get("versions")).items():
        each = object_of(described)
        ends = each.get("deletion_time") or ""
        if not re.fullmatch("[1-9][0-9]{0,17}", number, re.ASCII) or not isinstance(ends, str):
            raise ValueError("a version of another shape")
        if ends:
            parse_time(ends)
        versions.append(KeptVersion(int(number), each.get("destroyed") is True, ends))
    custom = object_of(data.get("custom_metadata"))
    return Metadata(
        tuple(sorted(versions, key=lambda version: version.number)),
        integer_of(data.get("current_version")),
        integer_of(data.get("oldest_version")),
        {name: value for name, value in sorted(custom.items()) if isinstance(value, str)},
        Limits.read(data),
        now if found.at is None else found.at,
    )


_TIME: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")


def parse_time(text: str) -> float:
    """Return the moment of an RFC 3339 time, whose fraction has up to nine digits, in seconds since 1970.

    :raises ValueError: it is none.
    """
    matched = _TIME.fullmatch(text)
    if matched is None:
        raise ValueError("not a time")
    at = datetime.fromisoformat(matched[1] + ("+00:00" if matched[3] == "Z" else matched[3]))
    try:
        return at.astimezone(UTC).timestamp() + float(f"0{matched[2] or '.0'}")
    except OverflowError:
        raise ValueError("not a time of any calendar") from None


_UNITS: Final = {"ns": 1, "us": 10**3, "\u00b5s": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?(ns|us|\u00b5s|ms|s|m|h)")


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a duration as Go writes it, ``1h30m0s``; a negative one is 0, as there.

    :raises ValueError: it is none.
    """
    if re.fullmatch(rf"-?({_DURATION.pattern})+|0", text, re.ASCII) is None and "\u00b5" not in text:
        raise ValueError("not a duration")
    if text.startswith("-"):
        return 0
    total = 0
    for whole, fraction, unit in _DURATION.findall(text):
        total += int(whole) * _UNITS[unit] + int(fraction or "0") * _UNITS[unit] // 10 ** len(fraction)
    return total


@attrs.frozen
class Secret:
    """One version of a secret: its number, and its data as they came."""

    number: int
    data: Json = attrs.field(repr=False)


async def read_secret(connection: VaultConnection, mount: Mount, key: str, number: int | None) -> Secret | None:
    """Return the value of a version by its number, or of the newest; ``None``: there is none, or no right to it.

    :raises SourceStopped: the answer is of another version, or has another shape.
    """
    path = mount.path_of(key)
    query = f"?version={number}" if number is not None and mount.version == 2 else ""
    found = await connection.read(path, mount.namespace, query=query)
    if not isinstance(found, Found):
        return None
    if mount.version == 1:
        return Secret(1, found.data)
    try:
        described = object_of(found.data.get("metadata"))
        came = integer_of(described.get("version"))
        data = found.data.get("data")
        if not isinstance(data, dict | None):
            raise ValueError
    except ValueError:
        raise connection.strange(path, "the value has another shape") from None
    if number is not None and came != number:
        raise connection.strange(path, f"version {number} was asked for, and another came")
    return Secret(came, data)


async def find_metadata(
    connection: VaultConnection, mount: Mount, key: str, now: float
) -> Metadata | Refused | Absent | Locked:
    """Return the metadata of a secret; one of version 1 has a single version."""
    if mount.version == 1:
        return Metadata((KeptVersion(1, False, ""),), 1, now=now)
    path = mount.path_of(key, "metadata")
    found = await connection.read(path, mount.namespace)
    if not isinstance(found, Found):
        return found
    try:
        return read_metadata(found, now)
    except ValueError as fault:
        raise connection.strange(path, str(fault)) from None
