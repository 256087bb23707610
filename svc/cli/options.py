"""Options that several commands have."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from svc.model.clocks import iso_milliseconds
from svc.workload.aws import AwsCredentials
from svc.workload.evidence import AwsRole, CloudIdentity, Evidence, GoogleIdentity, Jwt
from svc.workload.google import GoogleMetadata
from svc.workload.kubernetes import TOKEN_FILE, ProjectedToken
from svc.workload.machine import RESOURCE
from svc.workload.metadata import DEADLINE, LINK_LOCAL, Metadata, environment
from svc.workload.platform_service import PlatformService
from svc.workload.requester import Requester

FILE: Final = click.Path(dir_okay=False, path_type=Path)
AS_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print the server's JSON.")


class RenamedOption(click.Option):
    """An option that is also taken by a name that it had before, which help and completion don't show."""

    def __init__(self, *arguments: Any, former: str, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.former = former

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add all names to the parser of a command line."""
        shown = self.opts
        self.opts = [*shown, self.former]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


#: The option for a JWT, and the name that it had with some commands; ``svc agent`` calls it ``jwt_file``.
JWT_OPTION: Final[dict[str, Any]] = {"cls": RenamedOption, "former": "--jwt"}
JWT_FILE: Final = click.option(
    "--jwt-file",
    type=click.File("rb"),
    default="-",
    help="File that holds the JWT; standard input by default.",
    **JWT_OPTION,
)
HOST_OF_JWT: Final = click.option("--host", help="Id of the host, such as host/ci/runner, when the token does not name it.")

#: The variables of the options that :func:`secret_option` makes.
API_KEY: Final = "SVC_API_KEY"
HOST_FACTORY_TOKEN: Final = "SVC_HOST_FACTORY_TOKEN"
SOURCE_API_KEY: Final = "CONJUR_AUTHN_API_KEY"

#: Every variable by which this program gets a secret, the server too; the address of a database may hold a password.
VARIABLES: Final = frozenset({API_KEY, HOST_FACTORY_TOKEN, "SERVICE_DATA_KEY", "SERVICE_DATABASE_URL"})

_SECONDS: Final = {"m": 60, "h": 3600, "d": 86400}

#: The platforms whose identities a workload can log in with.
AZURE: Final = "azure"
GOOGLE: Final = "google"
AWS: Final = "aws"
KUBERNETES: Final = "kubernetes"

_CLOUD: Final = (
    click.option(
        "--platform",
        type=click.Choice((AZURE, GOOGLE, AWS, KUBERNETES)),
        default=AZURE,
        show_default=True,
        help="The cloud: azure for authn-cloud/SERVICE_ID, google for authn-gcp, aws for authn-iam/SERVICE_ID, kubernetes"
        " for authn-jwt/SERVICE_ID.",
    ),
    click.option("--client-id", help="Client id of a user-assigned identity; by default the system-assigned one is used."),
    click.option(
        "--resource",
        default=RESOURCE,
        show_default=True,
        help="Whom the token is for: what the authenticator's variable audience says, if it has one.",
    ),
    click.option(
        "--metadata-url",
        help="Where the metadata service is. By default app services and functions know it from IDENTITY_ENDPOINT, "
        f"and all else asks at {LINK_LOCAL}.",
    ),
    click.option(
        "--token-file",
        type=FILE,
        default=TOKEN_FILE,
        show_default=True,
        help="For kubernetes: the file of the pod's projected token, which is read again for each login.",
    ),
)


_LOGIN: Final = (
    click.option(
        "--server-id",
        help="For aws: the authenticator's variable server-id. By default the host name in the server's address; empty where"
        " the authenticator has no such variable.",
    ),
    click.option("--region", help="For aws: the region to sign for, by default that of the machine."),
    click.option(
        "--audience-prefix",
        default="svc",
        show_default=True,
        help="For google: what the token's audience begins with, conjur in the conjur dialect.",
    ),
)


def secret_option(name: str, variable: str, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option for a secret, "an API key", that help doesn't show, and that the command line may not hold."""
    assert variable in VARIABLES or variable == SOURCE_API_KEY

    def from_environment_alone(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if context.get_parameter_source(f"{parameter.name}") is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{what} on the command line is seen by every user of the machine: set {variable}")
        return value

    return click.option(name, envvar=variable, hidden=True, callback=from_environment_alone)


def parse_lifetime(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:  # noqa: ARG001 (click's)
    """Return the seconds of ``30m``, ``12h`` or ``7d``, ``None`` without a value; the callback of an option."""
    if value is None:
        return None
    matched = re.fullmatch("([1-9][0-9]{0,5})([mhd])", value, re.ASCII)
    if matched is None:
        raise click.BadParameter("is written 30m, 12h or 7d: minutes, hours or days")
    return int(matched[1]) * _SECONDS[matched[2]]


def parse_moment(text: str, now: float, *, end: bool = False) -> float:
    """Return the moment that a text means, in seconds since 1970: RFC 3339, a date, or ``30m``, ``2h``, ``7d`` ago.

    ``end``: a date means the end of the day.

    :raises click.BadParameter: it means none.
    """
    try:
        if (ago := re.fullmatch("([1-9][0-9]{0,5})([mhd])", text, re.ASCII)) is not None:
            seconds = now - int(ago[1]) * _SECONDS[ago[2]]
        else:
            at = datetime.fromisoformat(text)
            at += timedelta(days=1 if end and len(text) == len("2026-11-22") else 0)
            seconds = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
        iso_milliseconds(seconds)  # Only a moment that can be written can be searched for.
    except (ValueError, OverflowError):
        raise click.BadParameter("is written 2026-11-22, 2026-11-22T09:30:00Z, or 30m, 2h or 7d for so long ago") from None
    return seconds


def cloud_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a machine's identity: those that :func:`azure_metadata` takes, and the platform."""
    for option in reversed(_CLOUD):
        command = option(command)
    return command


def cloud_login_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that :func:`cloud_evidence` takes."""
    for option in reversed((*_CLOUD, *_LOGIN)):
        command = option(command)
    return command


def google_metadata(requester: Requester, metadata_url: str | None, deadline: float = DEADLINE) -> GoogleMetadata:
    """Return the source of this workload's identity tokens on Google Cloud."""
    return GoogleMetadata(PlatformService(requester, deadline), environment(), base_url=metadata_url)


def aws_credentials(
    requester: Requester, metadata_url: str | None, region: str | None = None, deadline: float = DEADLINE
) -> AwsCredentials:
    """Return the source of this workload's credentials on AWS."""
    return AwsCredentials(PlatformService(requester, deadline), environment(), region=region, base_url=metadata_url)


def cloud_evidence(
    requester: Requester,
    url: str,
    service_id: str | None,
    host: str | None,
    *,
    platform: str,
    server_id: str | None,
    region: str | None,
    audience_prefix: str,
    **options: Any,
) -> Evidence:
    """Return the proof of identity that the platform gives to this workload, for the server at ``url``."""
    metadata_url, token_file = options["metadata_url"], options.pop("token_file")
    if platform == KUBERNETES:
        if not service_id:
            raise click.UsageError("say which authenticator to log in at: its service id")
        return Jwt(service_id, ProjectedToken(token_file), host)
    if not host:
        raise click.UsageError(
            "--host says which host to log in as: a cloud identity doesn't name one"
            " (in a pod of Kubernetes, --platform kubernetes takes the token that may)"
        )
    if platform == GOOGLE:
        if service_id:
            raise click.UsageError("authn-gcp has no service id: an account has one")
        return GoogleIdentity(host, google_metadata(requester, metadata_url), audience_prefix)
    if not service_id:
        raise click.UsageError("say which authenticator to log in at: its service id")
    if platform == AWS:
        name = urlsplit(url).hostname if server_id is None else server_id
        return AwsRole(service_id, host, aws_credentials(requester, metadata_url, region), name or None)
    return CloudIdentity(service_id, host, azure_metadata(requester, **options))


def azure_metadata(
    requester: Requester, *, client_id: str | None, resource: str, metadata_url: str | None, deadline: float = DEADLINE
) -> Metadata:
    """Return the source of this machine's identity tokens; the options go before the environment."""
    surroundings = environment() if metadata_url is None else {}
    base_url = LINK_LOCAL if metadata_url is None else metadata_url
    return Metadata(requester, surroundings, resource=resource, client_id=client_id, base_url=base_url, deadline=deadline)
