"""Options that several commands have."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from svc.workload.exchange import Exchange, http_client
from svc.workload.metadata import ANSWER_LIMIT, DEADLINE, LINK_LOCAL, RESOURCE, Metadata, environment

FILE: Final = click.Path(dir_okay=False, path_type=Path)
AS_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print the server's JSON.")
JWT_FILE: Final = click.option(
    "--jwt", "jwt_file", type=click.File("rb"), default="-", help="File that holds the JWT; standard input by default."
)
HOST_OF_JWT: Final = click.option("--host", help="Id of the host, such as host/ci/runner, when the token does not name it.")

#: The variables of the options that :func:`secret_option` makes.
API_KEY: Final = "SVC_API_KEY"
HOST_FACTORY_TOKEN: Final = "SVC_HOST_FACTORY_TOKEN"

#: Every variable by which this program is told a secret, the server too; the address of a database may hold a password.
VARIABLES: Final = frozenset({API_KEY, HOST_FACTORY_TOKEN, "SERVICE_DATA_KEY", "SERVICE_DATABASE_URL"})

_SECONDS: Final = {"m": 60, "h": 3600, "d": 86400}

_CLOUD: Final = (
    click.option("--client-id", help="Client id of a user-assigned identity; by default the system-assigned one is used."),
    click.option(
        "--resource",
        default=RESOURCE,
        show_default=True,
        help="Whom the token is for: what the authenticator's variable audience says, if it has one.",
    ),
    click.option(
        "--metadata-url",
        help=f"Where the metadata service is. By default app services and functions know it from IDENTITY_ENDPOINT, "
        f"and all else asks at {LINK_LOCAL}.",
    ),
)


def secret_option(name: str, variable: str, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option for a secret, "an API key", that help doesn't show, and that the command line may not hold."""
    assert variable in VARIABLES

    def from_environment_alone(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if context.get_parameter_source(f"{parameter.name}") is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{what} on the command line is seen by every user of the machine: set {variable}")
        return value

    return click.option(name, envvar=variable, hidden=True, callback=from_environment_alone)


def lifetime(context: click.Context, parameter: click.Parameter, value: str) -> int:  # noqa: ARG001 (click's)
    """Return the seconds of ``30m``, ``12h`` or ``7d``; the callback of an option."""
    matched = re.fullmatch("([1-9][0-9]{0,5})([mhd])", value, re.ASCII)
    if matched is None:
        raise click.BadParameter("is written 30m, 12h or 7d: minutes, hours or days")
    return int(matched[1]) * _SECONDS[matched[2]]


def cloud_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that :func:`metadata` takes."""
    for option in reversed(_CLOUD):
        command = option(command)
    return command


def metadata(
    reactor: Any, *, client_id: str | None, resource: str, metadata_url: str | None, deadline: float = DEADLINE
) -> Metadata:
    """Return the source of this machine's identity tokens; the options go before the environment."""
    exchange = Exchange(http_client(reactor), reactor, ANSWER_LIMIT)
    surroundings = environment() if metadata_url is None else {}
    base_url = LINK_LOCAL if metadata_url is None else metadata_url
    return Metadata(exchange, surroundings, resource=resource, client_id=client_id, base_url=base_url, deadline=deadline)
