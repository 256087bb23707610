"""The settings that a running server really uses, in a file of its data directory: for ``svc doctor`` (CFG-93).

Note [While it runs]. The server holds a lock on the file for as long as it runs, and the system releases it however the
server ends. So a file without a lock was left by a server that was killed. A new file is written beside the old one, locked,
and takes its place: nobody sees half of it, nor one without its lock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.application.service import Service
from twisted.logger import Logger

from svc._version import VERSION
from svc.model.clocks import WallClock, iso_seconds
from svc.model.errors import ConfigurationInvalid
from svc.model.listed_authenticators import ListedAuthenticators
from svc.model.strict_json import format_json, parse_json_object
from svc.settings.config import Settings
from svc.settings.parsers import STANDARD_OUTPUT
from svc.settings.plain import parse_plain_settings, plain_settings
from svc.storage.driver.location import without_secrets

#: Bytes of a file that are read.
_LIMIT: Final = 1024 * 1024

log = Logger()


def effective_settings_file(data_dir: Path) -> Path:
    """Return the file."""
    return data_dir / "effective-settings.json"


class EffectiveSettingsFile(Service):
    """The file of a server that runs. It is written at the start and anew at each change, and removed at the end.

    ``audit_path`` returns the file of the audit, ``None`` for standard output. A server without a file serves all the same.
    """

    name = "effective settings"

    def __init__(
        self, settings: Settings, listed: ListedAuthenticators, wall: WallClock, audit_path: Callable[[], Path | None]
    ) -> None:
        self._settings, self._listed, self._audit_path = settings, listed, audit_path
        self._path = effective_settings_file(settings.data_dir)
        self._since = iso_seconds(wall.seconds())
        self._urls: Sequence[str] = ()
        self._file: int | None = None
        self._made_directory = False

    def startService(self) -> None:
        """Write the file."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        self.write()

    def stopService(self) -> None:
        """Remove the file, unless another server's has taken its place."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        file, self._file = self._file, None
        if file is None:
            return
        with suppress(OSError):
            if os.path.samestat(os.fstat(file), self._path.lstat()):
                self._path.unlink()
                if self._made_directory:
                    self._path.parent.rmdir()  # if nothing else is there
        os.close(file)

    def note_urls(self, urls: Sequence[str]) -> None:
        """Write the file with the addresses at which the server is ready."""
        self._urls = urls
        self.write()

    def write(self) -> None:
        """Write the file with the settings that are in force now."""
        if not self.running:
            return
        try:
            if not self._path.parent.exists():
                self._path.parent.mkdir(mode=0o700, parents=True)
                self._made_directory = True
            file = _write_locked(self._path, format_json(self._describe()))
        except OSError as error:
            why = error.strerror or str(error)
            log.info("The effective settings can't be written to {path}: {why}", path=str(self._path), why=why)
            return
        self._file, old = file, self._file
        if old is not None:
            os.close(old)

    def _describe(self) -> Mapping[str, Any]:
        settings, url = self._settings, self._settings.database_url
        audit = self._audit_path()
        in_force = attrs.evolve(
            settings,
            authenticators=self._listed.items,
            audit_file=STANDARD_OUTPUT if audit is None else audit,
        )
        return {
            "version": VERSION,
            "process": os.getpid(),
            "since": self._since,
            "urls": list(self._urls),
            "database": None if url is None else without_secrets(url),
            "settings": plain_settings(in_force),
            "written": dict(settings.written),
        }


def _write_locked(path: Path, text: str) -> int:
    """Put a new file of mode 0600 in the place of another, and return it, locked (Note [While it runs])."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.fdopen(os.dup(file), "w", encoding="utf-8") as stream:
            stream.write(f"{text}\n")
        draft.replace(path)
    except BaseException:
        os.close(file)
        draft.unlink(missing_ok=True)
        raise
    return file


@attrs.frozen
class EffectiveSettings:
    """The settings of the server that wrote a file; ``running``: it hasn't ended.

    ``database`` is the DSN without secrets, ``None`` for the embedded database. ``urls`` are its addresses.
    """

    settings: Settings
    running: bool
    process: int
    since: str
    urls: Sequence[str]
    database: str | None


def read_effective_settings(data_dir: Path) -> EffectiveSettings | None:
    """Return what the file in a data directory says; ``None`` where there is none.

    :raises ConfigurationInvalid: it isn't such a file, or one of another version.
    :raises OSError: it can't be read.
    """
    path = effective_settings_file(data_dir)
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        text, running = os.read(file, _LIMIT), False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            running = True
    finally:
        os.close(file)
    try:
        found: Any = parse_json_object(text)
        return EffectiveSettings(
            parse_plain_settings(found["settings"], found["written"]),
            running,
            int(found["process"]),
            str(found["since"]),
            [str(url) for url in found["urls"]],
            None if found["database"] is None else str(found["database"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationInvalid(str(path), f"isn't a file of this version of svc: {error}") from None


@attrs.frozen
class ChosenSettings:
    """The settings that the doctor evaluates: those in force where a server runs, otherwise the given ones.

    ``source`` is a sentence about where they come from. ``urls`` are the addresses of the running server. ``differing`` are
    the names of given settings that the running server hasn't, and ``fault`` says why its settings aren't known.
    """

    settings: Settings
    source: str
    urls: Sequence[str] = ()
    differing: Sequence[str] = ()
    fault: str | None = None


def choose_settings(given: Settings) -> ChosenSettings:
    """Return the settings of the server that runs on the data directory of these, or these."""
    path = effective_settings_file(given.data_dir)
    try:
        found = read_effective_settings(given.data_dir)
    except (ConfigurationInvalid, OSError) as error:
        why = f"{path} {error.message}" if isinstance(error, ConfigurationInvalid) else f"{path}: {error.strerror}"
        return ChosenSettings(given, f"Evaluated are the given settings: {why}", fault=why)
    if found is None:
        return ChosenSettings(given, f"Evaluated are the given settings: no server that runs has left its own in {path}")
    if not found.running:
        ended = f"the server that wrote {path} (process {found.process}, since {found.since}) was killed"
        return ChosenSettings(given, f"Evaluated are the given settings: {ended}")
    source = f"Evaluated are the settings of the running server (process {found.process}, since {found.since}), from {path}"
    here, there = plain_settings(given), plain_settings(found.settings)
    differing = [
        name for field, name in given.written.items() if field != "config" and field in here and here[field] != there[field]
    ]
    url = given.database_url
    if url is not None and (found.database is None or without_secrets(url) != found.database):
        differing.append(given.name_of("database_url"))
        url = None
    # A secret is no part of the file: where the given database is the server's, its password is known.
    written = {**found.settings.written, **({"database_url": given.name_of("database_url")} if url is not None else {})}
    database = found.database if url is None else url
    return ChosenSettings(
        attrs.evolve(found.settings, database_url=database, written=written), source, found.urls, differing
    )
