"""The configuration of the agent: a file of TOML (AGT-1 to AGT-6).

Note [Who could write it]. The agent mostly runs as root, and its configuration names commands that it runs and files that it
writes. So the configuration, and the templates that it names, are refused where others than root and the agent's own user
could write them; a group may, unless the agent is root. Nor may a link on the way to them be somebody else's, who could
have a file of root's read as a template (``svc.agent.safe_paths``).
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import signal
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import attrs

from svc.agent.faults import BadConfiguration, FileFault, TemplateFault
from svc.agent.files import Destination
from svc.agent.safe_paths import open_checked
from svc.agent.templates import SecretTemplate
from svc.agent.toml_table import TomlTable
from svc.workload.address import check_address
from svc.workload.faults import BadAddress

#: The longest configuration or template that is read, in bytes.
CONFIGURATION_LIMIT: Final = 1024 * 1024

#: The most variables of one agent: as many as one batch may have (SEC-37).
MOST_VARIABLES: Final = 10_000

#: How an agent logs in.
API_KEY: Final = "api-key"
JWT: Final = "jwt"
CLOUDS: Final = ("azure", "google", "aws")

#: The names that entries of the environment may have (CLI-18).
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

#: Signals that a child may be sent after a change.
_SIGNALS: Final = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGQUIT")

#: The largest number of a user or a group: the next one has the system leave them as they are.
_LARGEST: Final = 2**32 - 2
_DIGITS: Final = len(str(_LARGEST))

_MODE: Final = re.compile("0?[0-7]{3}", re.ASCII)


@attrs.frozen
class LoginSettings:
    """How the agent proves who it is. ``kind`` is one of those above; what a kind doesn't need is ``None``."""

    kind: str
    host: str | None = None
    file: Path | None = None
    service_id: str | None = None
    client_id: str | None = None
    resource: str | None = None
    server_id: str | None = None
    region: str | None = None
    audience_prefix: str = "svc"
    metadata_url: str | None = None


@attrs.frozen
class Command:
    """A command that runs after a change: its arguments, and how many seconds it may take."""

    arguments: tuple[str, ...]
    timeout: float = 30.0


@attrs.frozen
class FileTarget:
    """A file that is kept: either a template or the value of one variable, as it is."""

    destination: Destination
    template: SecretTemplate | None
    variable: str | None
    command: Command | None
    removed_when_refused: bool = False

    @property
    def name(self) -> str:
        """The name of the file in messages."""
        return str(self.destination.path)

    @property
    def variables(self) -> frozenset[str]:
        """The ids that are known before anything is rendered."""
        return _variables_of(self.template, self.variable)


@attrs.frozen
class EnvironmentEntry:
    """An entry of the environment of a program that the agent runs."""

    name: str
    template: SecretTemplate | None
    variable: str | None

    @property
    def variables(self) -> frozenset[str]:
        """The ids that are known before anything is rendered."""
        return _variables_of(self.template, self.variable)


@attrs.frozen
class ProcessSettings:
    """The action on the program after a change: a restart, or a signal; ``None`` for neither.

    ``stop_timeout`` is how many seconds it has to end before it is killed.
    """

    restarts: bool = True
    signal: signal.Signals | None = None
    stop_timeout: float = 10.0


@attrs.frozen
class AgentConfiguration:
    """All of it. ``interval`` is in seconds; ``warnings`` are sentences about what is risky."""

    url: str
    account: str
    login: LoginSettings
    ca_file: Path | None
    interval: float
    watch: bool
    files: tuple[FileTarget, ...]
    environment: tuple[EnvironmentEntry, ...]
    process: ProcessSettings
    declared: frozenset[str]
    warnings: tuple[str, ...]

    @property
    def variables(self) -> frozenset[str]:
        """The ids that are known before anything is rendered."""
        return self.declared.union(
            *(file.variables for file in self.files), *(entry.variables for entry in self.environment)
        )


def _variables_of(template: SecretTemplate | None, variable: str | None) -> frozenset[str]:
    return template.variables if template is not None else frozenset(filter(None, (variable,)))


def read_configuration(path: Path, surroundings: Mapping[str, str]) -> AgentConfiguration:
    """Read a configuration, with the templates that it names. ``surroundings`` are the variables of the environment.

    :raises BadConfiguration: it can't be used.
    """
    try:
        text = _read_trusted_file(path).decode("utf-8")
        document = tomllib.loads(text)
    except UnicodeDecodeError:
        raise BadConfiguration(f"{path} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise BadConfiguration(f"{path}: {error}") from None
    try:
        return _parse_configuration(TomlTable(document, ""), path.resolve().parent, surroundings)
    except (BadConfiguration, TemplateFault) as fault:
        raise BadConfiguration(f"{path}: {fault}") from None


def _parse_configuration(table: TomlTable, folder: Path, surroundings: Mapping[str, str]) -> AgentConfiguration:
    warnings: list[str] = []
    url, account = table.require_text("url"), table.require_text("account")
    try:
        check_address(url, "url")
    except BadAddress as fault:
        raise BadConfiguration(str(fault)) from None
    ca_file = table.get_text("ca_file")
    interval = table.get_number("interval", 60, least=1)
    watch = table.get_flag("watch", default=True)
    declared = frozenset(table.get_texts("variables") or ())
    login = _parse_login(table.get_table("login"), folder, surroundings, warnings)
    files = tuple(_parse_file_target(each, folder, warnings) for each in table.get_tables("file"))
    environment = _parse_environment(table.get_table("environment"), folder)
    process = _parse_process(table.get_table("process"))
    table.refuse_unknown_keys()
    if not files and not environment:
        raise BadConfiguration("there is nothing to keep: add a [[file]], or an [environment] for a program")
    for index, file in enumerate(files):
        if any(file.destination.path == other.destination.path for other in files[:index]):
            raise BadConfiguration(f"{file.name} is the destination of two files")
    found = AgentConfiguration(
        url=url.rstrip("/"),
        account=account,
        login=login,
        ca_file=folder / ca_file if ca_file else None,
        interval=interval,
        watch=watch,
        files=files,
        environment=environment,
        process=process,
        declared=declared,
        warnings=tuple(warnings),
    )
    if len(found.variables) > MOST_VARIABLES:
        raise BadConfiguration(
            f"{len(found.variables)} variables are more than one agent can keep: {MOST_VARIABLES} at most"
        )
    return found


def _parse_login(table: TomlTable, folder: Path, surroundings: Mapping[str, str], warnings: list[str]) -> LoginSettings:
    kind = table.get_choice("kind", (API_KEY, JWT, *CLOUDS))
    host, service_id = table.get_text("host"), table.get_text("service_id")
    key = {API_KEY: "api_key_file", JWT: "jwt_file"}.get(kind)
    given = table.require_text(key) if key is not None else None
    more = {name: table.get_text(name) for name in ("client_id", "resource", "server_id", "region", "metadata_url")}
    prefix = table.get_text("audience_prefix")
    table.refuse_unknown_keys()
    if kind in {JWT, "azure", "aws"} and not service_id:
        raise BadConfiguration(f"login.service_id is missing: which authenticator to log in at, for kind = {kind!r}")
    if kind != JWT and not host:
        raise BadConfiguration('login.host is missing: who to be, such as "host/apps/shop"')
    file = None
    if given is not None:
        credentials = surroundings.get("CREDENTIALS_DIRECTORY")
        if "${CREDENTIALS_DIRECTORY}" in given and credentials is None:
            raise BadConfiguration(
                f"login.{key} is in ${{CREDENTIALS_DIRECTORY}}, which systemd sets for LoadCredential= alone"
            )
        file = folder / given.replace("${CREDENTIALS_DIRECTORY}", credentials or "")
        if kind == API_KEY and _has_mode_bit(file, stat.S_IROTH):
            warnings.append(f"everybody on this machine can read the API key in {file}: chmod o-r {file}")
    return LoginSettings(kind, host, file, service_id, **more, audience_prefix=prefix or "svc")


def _parse_file_target(table: TomlTable, folder: Path, warnings: list[str]) -> FileTarget:
    path = table.require_text("destination")
    template, variable = _parse_content(table, path, folder)
    arguments = table.get_texts("command")
    timeout = table.get_number("command_timeout", 30, least=0.1)
    command = None
    if arguments is not None:
        if not arguments:
            raise BadConfiguration(f'{table.prefix}command is empty: write its arguments, ["systemctl", "reload", "app"]')
        command = Command(arguments, timeout)
    removed = table.get_choice("on_forbidden", ("keep", "remove"), default="keep") == "remove"
    destination = parse_destination(table, Path(path), owes=command is not None)
    table.refuse_unknown_keys()
    if destination.mode & stat.S_IROTH:
        warnings.append(f"everybody on this machine can read {path}, by its mode {destination.mode:04o}")
    return FileTarget(destination, template, variable, command, removed)


def _parse_content(table: TomlTable, name: str, folder: Path) -> tuple[SecretTemplate | None, str | None]:
    """Return what a file or an entry holds: a template, or the id of the variable whose value it is."""
    given = {key: table.get_text(key) for key in ("template", "template_file", "variable")}
    named = [key for key, value in given.items() if value is not None]
    if len(named) != 1:
        raise BadConfiguration(f"{table.prefix or name}: give one of template, template_file and variable")
    if given["variable"] is not None:
        return None, given["variable"]
    if given["template"] is not None:
        return SecretTemplate.parse(f"the template of {name}", given["template"]), None
    path = folder / str(given["template_file"])
    try:
        return SecretTemplate.parse(str(path), _read_trusted_file(path).decode("utf-8")), None
    except UnicodeDecodeError:
        raise BadConfiguration(f"{path} is not UTF-8") from None


def _parse_environment(table: TomlTable, folder: Path) -> tuple[EnvironmentEntry, ...]:
    found = []
    for name in table.entry_names():
        if not _NAME.fullmatch(name):
            raise BadConfiguration(
                f"environment.{name}: a name has letters, digits and underscores, and begins with no digit"
            )
        if table.is_text(name):
            found.append(EnvironmentEntry(name, None, table.require_text(name)))
        else:
            inner = table.get_table(name)
            found.append(EnvironmentEntry(name, *_parse_content(inner, name, folder)))
            inner.refuse_unknown_keys()
    return tuple(found)


def _parse_process(table: TomlTable) -> ProcessSettings:
    action = table.get_choice("on_change", ("restart", "nothing", *_SIGNALS), default="restart")
    timeout = table.get_number("stop_timeout", 10, least=0)
    table.refuse_unknown_keys()
    sent = signal.Signals[action] if action in _SIGNALS else None
    return ProcessSettings(action == "restart", sent, timeout)


def _read_trusted_file(path: Path) -> bytes:
    """Read a configuration or a template (Note [Who could write it]).

    :raises BadConfiguration: it can't be read, or others could write it.
    """
    try:
        # Another user may have put a pipe there, on which opening would block.
        with open(open_checked(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            _check_permissions(path, os.fstat(file.fileno()))
            contents = file.read(CONFIGURATION_LIMIT + 1)
    except OSError as error:
        raise BadConfiguration(f"{path} can't be read: {error.strerror}") from None
    except FileFault as fault:
        raise BadConfiguration(str(fault)) from None
    if len(contents) > CONFIGURATION_LIMIT:
        raise BadConfiguration(f"{path} is longer than {CONFIGURATION_LIMIT} bytes")
    return contents


def _check_permissions(path: Path, found: os.stat_result) -> None:
    if found.st_mode & stat.S_IWOTH:
        raise BadConfiguration(f"everybody can write {path}: chmod o-w {path}")
    if os.geteuid() == 0 and found.st_mode & stat.S_IWGRP and found.st_gid != 0:
        raise BadConfiguration(f"the group {found.st_gid} can write {path}, and the agent is root: chmod g-w {path}")
    if found.st_uid not in {0, os.geteuid()}:
        raise BadConfiguration(f"{path} belongs to user {found.st_uid}, who could change it: chown root {path}")


def _has_mode_bit(path: Path, bit: int) -> bool:
    try:
        return bool(path.stat().st_mode & bit)
    except OSError:
        return False


def parse_destination(table: TomlTable, path: Path, *, owes: bool) -> Destination:
    """Return where a file goes, by ``owner``, ``group`` and ``mode`` of its table.

    :raises BadConfiguration: it can't be there, or be theirs.
    """
    if not path.is_absolute() or ".." in path.parts or not path.name:
        raise BadConfiguration(f"{table.prefix}destination must be a path that begins with /, without ..")
    uid, gid = os.geteuid(), os.getegid()
    owner, group = table.get_text("owner"), table.get_text("group")
    if owner is not None:
        uid = _resolve_id(table, "owner", owner, lambda name: pwd.getpwnam(name).pw_uid)
        if os.geteuid() not in {0, uid}:
            raise BadConfiguration(
                f"{table.prefix}owner is {owner}: only root gives files to others; run the agent as {owner}"
            )
        if group is None:
            gid = _primary_group_of(uid, gid)
    if group is not None:
        gid = _resolve_id(table, "group", group, lambda name: grp.getgrnam(name).gr_gid)
        if os.geteuid() != 0 and gid not in {os.getegid(), *os.getgroups()}:
            raise BadConfiguration(f"{table.prefix}group is {group}: the agent's user is no member of it")
    text = table.get_text("mode") or "0600"
    if not _MODE.fullmatch(text):
        raise BadConfiguration(f'{table.prefix}mode is written as for chmod, in three octal digits: "0640"')
    mode = int(text, 8)
    if mode & 0o002:
        raise BadConfiguration(f"{table.prefix}mode {text} lets everybody write the file")
    return Destination(path, uid, gid, mode, owes)


def _resolve_id(table: TomlTable, key: str, name: str, known: Callable[[str], int]) -> int:
    try:
        number = int(name) if name.isascii() and name.isdecimal() and len(name) <= _DIGITS else known(name)
    except KeyError:
        raise BadConfiguration(f"{table.prefix}{key}: this machine has no {name}") from None
    if number > _LARGEST:
        raise BadConfiguration(f"{table.prefix}{key}: {name} is larger than any number of a user or a group")
    return number


def _primary_group_of(uid: int, otherwise: int) -> int:
    """Return the group of a user, as a login has it."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return otherwise
