"""Read the settings from the command line, the environment and a TOML file, and refuse bad values."""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from svc.model.dialect import CLOUD_NAMES, NATIVE, REPORTED_CONJUR_VERSION, Dialect
from svc.model.errors import ConfigurationInvalid
from svc.settings.config import OPTIONS, Settings
from svc.settings.options import PREFIX, Option
from svc.settings.parsers import AUTHENTICATORS
from svc.settings.systemd import SystemdUnit

#: The most bytes of a file of settings.
MAX_FILE_BYTES: Final = 1024 * 1024


def read_settings(given: Mapping[str, str | bool | None], environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from ``given`` (the command line), the environment, and the file that one of these names.

    ``given`` maps fields of :class:`Settings` to texts, a flag's to true; ``None`` and false mean that it wasn't given.
    ``environ`` is the environment of the process when left out.

    :raises ConfigurationInvalid: a setting is unknown or has a bad value; ``key`` is its name as the user wrote it.
    """
    reader = _SettingsReader(given, os.environ if environ is None else environ)
    for option in OPTIONS:
        reader.read_option(option)
    settings = Settings(**reader.values, written=reader.written, unit=SystemdUnit.from_environ(reader.environ))
    if settings.ignore_missing_issuer and not settings.dialect.issuer_mandatory:
        key = settings.name_of("ignore_missing_issuer")
        raise ConfigurationInvalid(key, f"has no meaning in the dialect {settings.dialect.name}, where iss is optional")
    keys = [
        settings.name_of(field) for field in ("data_key", "data_key_file", "data_key_command") if field in reader.written
    ]
    if len(keys) > 1:
        raise ConfigurationInvalid(keys[1], f"is given, and so is {keys[0]}: the data key comes from one place")
    _check_cloud_names(settings.authenticators, settings.dialect, settings.name_of("authenticators"))
    return with_reported_version(settings)


def _check_cloud_names(authenticators: Sequence[str], dialect: Dialect, key: str) -> None:
    for name in authenticators:
        kind, _, service_id = name.partition("/")
        if kind in CLOUD_NAMES and kind != dialect.cloud:
            own = f"{dialect.cloud}/{service_id}"
            raise ConfigurationInvalid(key, f"names {name!r}, which is {own!r} in the dialect {dialect.name}")


def fixed_source(settings: Settings, field: str) -> str | None:
    """Return the option or variable that gave a setting; ``None`` where it is read from the file, if there is one."""
    written = settings.written.get(field)
    return None if written is None or written == field else written


def reread_authenticators(settings: Settings) -> tuple[str, ...]:
    """Return the authenticators that the file of these settings lists now, in the dialect of these settings (CFG-91).

    :raises ConfigurationInvalid: the file, or its list, can't be used.
    """
    field = "authenticators"
    document: Mapping[str, object] = {}
    if settings.config is not None:
        document = _read_file(settings.config, settings.name_of("config"))
    try:
        authenticators = AUTHENTICATORS.from_toml(document.get(field, []))
    except ValueError as error:
        raise ConfigurationInvalid(field, f"{error} (in {settings.config})") from None
    _check_cloud_names(authenticators, settings.dialect, field)
    return authenticators


def with_reported_version(settings: Settings) -> Settings:
    """Return the settings with the version that clients see."""
    if settings.conjur_version == REPORTED_CONJUR_VERSION:
        return settings
    if settings.dialect.reported_version is None:
        why = f"has no meaning in the dialect {settings.dialect.name}, which tells the program's own version"
        raise ConfigurationInvalid(settings.name_of("conjur_version"), why)
    return attrs.evolve(settings, dialect=attrs.evolve(settings.dialect, reported_version=settings.conjur_version))


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the ``SERVICE_…`` variables of the environment that name no setting, sorted.

    They are no reason not to start: a platform may describe a service named "service" to others by them.
    """
    known = {option.variable for option in OPTIONS}
    variables = os.environ if environ is None else environ
    return sorted(name for name in variables if name.startswith(PREFIX) and name not in known)


class _SettingsReader:
    """A reader of options in their order. ``config`` and ``dialect`` come first, since the others depend on them."""

    def __init__(self, given: Mapping[str, str | bool | None], environ: Mapping[str, str]) -> None:
        self.values: dict[str, Any] = {}
        self.written: dict[str, str] = {}
        self.environ, self._given = environ, given
        self._document: Mapping[str, object] = {}

    def read_option(self, option: Option) -> None:
        """Read one setting from the first source that gives it."""
        field, parser, variables = option.field, option.parser, (option.variable,)
        if field == "authenticators":
            variables = self.values.get("dialect", NATIVE).authenticators_environment
        variable = next(filter(self.environ.__contains__, variables), None)
        value = self._given.get(field)
        if option.on_command_line and value is not None and value is not False:
            self._store_value(field, f"--{option.name}", parser.from_text, "true" if value is True else value)
        elif variable is not None:
            self._store_value(field, variable, parser.from_text, self.environ[variable])
        elif field in self._document:
            self._store_value(field, field, parser.from_toml, self._document[field], f" (in {self.values['config']})")
        if field == "config" and field in self.values:
            self._document = _read_file(self.values[field], self.written[field])

    def _store_value(self, field: str, key: str, read: Callable[[Any], object], value: object, where: str = "") -> None:
        try:
            self.values[field] = read(value)
        except ValueError as error:
            raise ConfigurationInvalid(key, f"{error}{where}") from None
        self.written[field] = key


def _read_regular_file(path: Path) -> bytes:
    """Return the bytes of a file; a running server reads it too, which nothing may keep waiting (CFG-94).

    :raises OSError: it can't be read, is no regular file, or is too large.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    with open(descriptor, "rb") as file:
        if len(data := file.read(MAX_FILE_BYTES + 1)) > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MAX_FILE_BYTES} bytes")
    return data


def _read_file(path: Path, key: str) -> Mapping[str, object]:
    """Return the settings in a TOML file, refusing keys that are no settings or may not stand in one."""
    try:
        text = _read_regular_file(path).decode("utf-8-sig")
        document = tomllib.loads(text.replace("\r\n", "\n").replace("\r", "\n"))
    except OSError as error:
        raise ConfigurationInvalid(key, f"names a file that can't be read: {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationInvalid(key, f"names a file that isn't TOML: {path}: {error}") from None
    except RecursionError:
        raise ConfigurationInvalid(key, f"names a file whose values are nested too deeply: {path}") from None
    options = {option.field: option for option in OPTIONS}
    for name in document:
        if name not in options:
            similar = name.replace("-", "_")
            hint = f"; it is written {similar}" if similar in options else ""
            raise ConfigurationInvalid(name, f"is no setting{hint} (in {path})")
        if not options[name].in_file:
            raise ConfigurationInvalid(name, f"may not stand in a file (in {path}); {options[name].variable} may give it")
    return document
