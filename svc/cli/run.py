"""``svc run``: a command with secrets in its environment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from svc.cli.connection import ApiConnection, authenticated_command
from svc.cli.mapping import environment_with, read_mapping
from svc.cli.options import FILE, GOOGLE, VARIABLES, cloud_evidence, cloud_login_options
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
@click.option("--jwt-file", type=FILE, help="Log in with the JWT in this file, at authn-jwt/SERVICE_ID.")
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
