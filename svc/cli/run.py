"""``svc run``: a command with secrets in its environment, by a file in YAML: ``VAR: variable-id``."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import yaml

from svc.cli.connection import ApiConnection, authenticated_command
from svc.cli.options import FILE, GOOGLE, JWT_OPTION, VARIABLES, cloud_evidence, cloud_login_options
from svc.workload.evidence import Evidence, Jwt
from svc.workload.metadata import environment

#: Signals that Python ignores, and a command expects not to be ignored.
_RESET_SIGNALS: Final = (signal.SIGPIPE, signal.SIGXFSZ)


class _NotStarted(click.ClickException):
    """A command can't be started."""

    exit_code = 126


class _NoCommand(_NotStarted):
    """The command to run doesn't exist."""

    exit_code = 127


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--mapping", "-f", type=FILE, required=True, help="YAML file that says which variables get which secrets.")
@click.option("--jwt-file", type=FILE, help="Log in with the JWT in this file, at authn-jwt/SERVICE_ID.", **JWT_OPTION)
@click.option("--cloud", is_flag=True, help="Log in with this machine's identity on --platform.")
@click.option("--service-id", help="Which authenticator of that kind; written with its name, authn-azure/prod, any other.")
@click.option("--host", help="Id of the host to be, such as host/apps/shop; a JWT may name it itself.")
@cloud_login_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@authenticated_command
async def run(connection: ApiConnection, mapping: Path, command: tuple[str, ...], **options: Any) -> Callable[[], None]:
    """Start COMMAND with secrets in its environment.

    The mapping file has a line for each variable of the environment, with the id of the variable whose value it gets:

    \b
        DB_PASSWORD: ci/database/password
        API_TOKEN: ci/partner/token

    All secrets are read before anything is started, with one request, and are never written to a file. COMMAND takes this
    process's place, so signals and the exit code are its own. It has the environment of `svc run`, but for the secrets of
    this program itself: SVC_API_KEY, SVC_HOST_FACTORY_TOKEN, SERVICE_DATA_KEY and SERVICE_DATABASE_URL.

    The login is that of other commands: SVC_LOGIN and SVC_API_KEY, or the token that `svc login` keeps. Workloads log in
    with a JWT from a file, or with the identity that the cloud gives to their machine:

    \b
        svc run -f secrets.yml -- ./serve --port 80
        svc run -f secrets.yml --jwt-file /run/token --service-id ci -- ./serve
        svc run -f secrets.yml --cloud --service-id prod --host host/apps/shop -- ./serve
        svc run -f secrets.yml --cloud --platform google --host host/apps/shop -- ./serve
        svc run -f secrets.yml --cloud --platform kubernetes --service-id k8s -- ./serve
    """  # noqa: D301 (click's mark for lines that stay as they are is a backspace)
    variables = read_mapping(mapping)
    client = await connection.workload_client(_choose_evidence(connection, **options))
    values = environment_with(await client.secrets(variables.values()), variables)
    return partial(exec_command, command, command_environment(environment(), values))


def _choose_evidence(
    connection: ApiConnection,
    *,
    jwt_file: Path | None,
    cloud: bool,
    service_id: str | None,
    host: str | None,
    **options: Any,
) -> Evidence | None:
    """Return the proof of identity that the options name; ``None`` where the login is that of other commands."""
    if jwt_file is None and not cloud:
        if service_id or host:
            raise click.UsageError("--service-id and --host belong to --jwt-file or --cloud")
        return None
    if jwt_file is not None and cloud:
        raise click.UsageError("--jwt-file and --cloud exclude each other")
    if not service_id and not (cloud and options["platform"] == GOOGLE):
        raise click.UsageError("--service-id says which authenticator to log in at")
    if jwt_file is not None and service_id:
        return Jwt(service_id, jwt_file, host)
    return cloud_evidence(connection.elsewhere or connection.requester, connection.url, service_id, host, **options)


def command_environment(surroundings: Mapping[str, str], secrets: Mapping[str, bytes]) -> dict[str, str]:
    """Return the environment of the command: this process's without what only this program needs, and its secrets."""
    kept = {name: value for name, value in surroundings.items() if name not in VARIABLES}
    return kept | {name: os.fsdecode(value) for name, value in secrets.items()}


def exec_command(command: tuple[str, ...], surroundings: Mapping[str, str]) -> None:
    """Put a command into this process's place.

    :raises click.ClickException: it can't be started, and the process is as it was; the exit code is that of shells, 127 for
        a command that doesn't exist and 126 otherwise.
    """
    ignored = {number: signal.signal(number, signal.SIG_DFL) for number in _RESET_SIGNALS}
    try:
        os.execvpe(command[0], command, surroundings)  # noqa: S606 (what this is for)
    except (OSError, ValueError) as error:
        for number, disposition in ignored.items():
            signal.signal(number, disposition)
        kind = _NoCommand if isinstance(error, FileNotFoundError) else _NotStarted
        raise kind(f"cannot start {command[0]}: {getattr(error, 'strerror', None) or error}") from None


#: The longest file that is read, in bytes.
LIMIT: Final = 1024 * 1024

#: The names of environment variables that every shell can read.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

#: Messages in which the parser quotes a name, which may be a part of an unquoted secret.
_QUOTED_NAME: Final = re.compile(r" (alias|tag handle) .*", re.DOTALL)


#: The tag of an id in files of other programs, which is ignored here.
_VARIABLE: Final = "!var"


def read_mapping(path: Path) -> dict[str, str]:
    """Read a file of ``VAR: variable-id``; names and ids are as written, whatever YAML thinks of ``NO`` or ``12``."""
    try:
        with path.open("rb") as file:
            contents = file.read(LIMIT + 1)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from None
    if len(contents) > LIMIT:
        raise click.ClickException(f"{path} is longer than {LIMIT} bytes")
    try:
        return parse_mapping(contents)
    except ValueError as error:
        raise click.ClickException(f"{path}: {error}") from None


def parse_mapping(contents: bytes) -> dict[str, str]:
    """Read the contents of a file of ``VAR: variable-id``.

    :raises ValueError: they say something else.
    """
    try:
        text = contents.decode("utf-8")
    except UnicodeDecodeError as error:
        line = contents.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is not UTF-8") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ValueError(_describe_error(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("it must be a mapping, with a line such as DB_PASSWORD: ci/database/password for each secret")
    found: dict[str, str] = {}
    for key, value in node.value:
        place = f"line {key.start_mark.line + 1}"
        name = _scalar_text(key)
        if name is None or not _NAME.fullmatch(name):
            raise ValueError(f"{place}: the name of a variable has letters, digits and _ alone, such as DB_PASSWORD")
        if name in found:
            raise ValueError(f"{place}: {name} stands there twice")
        if (refusal := _explain_unsupported(value)) is not None:
            raise ValueError(f"{place}: {name} {refusal}")
        variable = _scalar_text(value)
        if not variable:
            raise ValueError(f"{place}: {name} must be followed by the id of a variable, such as ci/database/password")
        found[name] = variable
    return found


def environment_with(values: Mapping[str, bytes], mapping: Mapping[str, str]) -> dict[str, bytes]:
    """Return the variables that a mapping names, with the values of their secrets, which can't hold a NUL byte."""
    for name, variable in mapping.items():
        if b"\0" in values[variable]:
            raise click.ClickException(
                f"the value of {variable} holds a NUL byte, which {name} cannot: let the command run `svc variable get`"
            )
    return {name: values[variable] for name, variable in mapping.items()}


def _explain_unsupported(node: yaml.Node) -> str | None:
    """Return what to say of a value that other programs take, and this file may not have."""
    if isinstance(node, yaml.MappingNode):
        return "has a section beneath it: a file is for one environment, so write one file for each"
    if not isinstance(node, yaml.ScalarNode) or not node.tag.startswith("!") or node.tag == _VARIABLE:
        return None
    if node.tag.startswith(f"{_VARIABLE}:"):
        modifiers = node.tag.split(":")
        if any(modifier.startswith("default") for modifier in modifiers):
            return "has a default: leave that out; a secret that is missing keeps the command from being started"
        files = "; `svc agent` writes secrets to files" if "file" in modifiers else ""
        return f"has !var with something behind it: leave that out{files}"
    return "has a value of its own: only ids of variables stand here, so set it where the command is started"


def _scalar_text(node: yaml.Node) -> str | None:
    """Return a scalar as it is written; ``None`` for anything else, or with a tag of its own other than ``!var``."""
    if not isinstance(node, yaml.ScalarNode) or not (node.tag.startswith("tag:yaml.org,2002:") or node.tag == _VARIABLE):
        return None
    return str(node.value)


def _describe_error(error: yaml.YAMLError) -> str:
    """Return what is wrong with the YAML, without a quotation of more than a character."""
    mark = getattr(error, "problem_mark", None)
    place = "it" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
    problem = _QUOTED_NAME.sub(r" \1", getattr(error, "problem", None) or "")
    return f"{place} is not YAML" + (f": {problem}" if problem else "")
