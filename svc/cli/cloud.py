"""Commands on a machine of a cloud platform."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import yaml

from svc.cli.connection import ELSEWHERE_LIMIT
from svc.cli.coroutines import Network, run_asyncio
from svc.cli.options import AWS, GOOGLE, KUBERNETES, aws_credentials, azure_metadata, cloud_options, google_metadata
from svc.workload.faults import NoIdentity
from svc.workload.google import annotations_of
from svc.workload.kubernetes import Pod, ProjectedToken
from svc.workload.machine import Machine


@click.group()
def cloud() -> None:
    """See this machine as its cloud platform identifies it."""


@cloud.command()
@cloud_options
@click.option(
    "--authenticator",
    help="What the annotations begin with. For azure: authn-cloud if nothing is said, authn-cloud/prod for that service"
    " alone, authn-azure in the conjur dialect. For kubernetes: authn-jwt/k8s if nothing is said.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=5, show_default=True, help="How long to ask for a token, in seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(
    authenticator: str | None, timeout: float, as_json: bool, platform: str, token_file: Path, **options: Any
) -> None:
    """Show which annotations, or on AWS which id, a host needs so that this machine can log in as it.

    Run it on the machine. It asks the platform's metadata service for an identity token, and prints what that says of the
    machine, as policy to paste; it sends nothing to the service, and doesn't print the token. On AWS it asks the Security
    Token Service who the machine is. In a pod it reads the projected token.

    Leave the identity's annotation out to let every machine of the resource group, or of the project, log in as the host.

    Example: svc cloud inspect --platform kubernetes
    """

    async def inspect_machine(network: Network) -> None:
        if platform == KUBERNETES:
            click.echo(format_pod(ProjectedToken(token_file)(), authenticator or "authn-jwt/k8s", as_json=as_json))
            return
        requester = network.make_requester(ELSEWHERE_LIMIT)
        if platform == GOOGLE:
            token = await google_metadata(requester, options["metadata_url"], timeout).token("svc-cloud-inspect")
            click.echo(format_google(token, as_json=as_json))
            return
        if platform == AWS:
            caller = await aws_credentials(requester, options["metadata_url"], deadline=timeout).caller()
            click.echo(format_aws(caller.arn, caller.account, caller.assumed_role, as_json=as_json))
            return
        identity = await azure_metadata(requester, deadline=timeout, **options).identity_token()
        click.echo(
            format_azure(Machine.of(identity.text), authenticator or "authn-cloud", identity.ends_at, as_json=as_json)
        )

    run_asyncio(inspect_machine)


def format_azure(machine: Machine, authenticator: str, ends_at: float, *, as_json: bool) -> str:
    """Return what ``svc cloud inspect`` prints."""
    annotations = {f"{authenticator}/{name}": value for name, value in machine.annotations().items()}
    about = {
        "resource_id": machine.resource_id,
        "object_id": machine.object_id,
        "issuer": machine.issuer,
        "audience": machine.audience,
        "expires_at": datetime.fromtimestamp(ends_at, UTC).isoformat(timespec="seconds"),
    }
    return _format_host(about, annotations, as_json=as_json)


def format_google(token: str, *, as_json: bool) -> str:
    """Return what ``svc cloud inspect`` prints of an identity token of Google."""
    return _format_host({}, {f"authn-gcp/{name}": value for name, value in annotations_of(token).items()}, as_json=as_json)


def format_pod(token: str, authenticator: str, *, as_json: bool) -> str:
    """Return what ``svc cloud inspect`` prints of a pod's token.

    :raises NoIdentity: it names no service account.
    """
    pod = Pod.of(token)
    return _format_host(pod.about, {f"{authenticator}/sub": pod.subject}, pod.subject, as_json=as_json)


def format_aws(arn: str, account: str, role: str | None, *, as_json: bool) -> str:
    """Return what ``svc cloud inspect`` prints of a caller of AWS.

    :raises NoIdentity: it has no role.
    """
    if role is None:
        raise NoIdentity(f"{arn} has assumed no role", "run this with the credentials of a role: users of AWS can't log in")
    if as_json:
        return json.dumps({"arn": arn, "host": f"{account}/{role}"}, indent=2)
    host = f"- !host\n  id: {account}/{role}\n  annotations:\n    authn/api-key: false"
    return f"# arn: {json.dumps(arn)}\n{host}"


def _format_host(
    about: Mapping[str, str], annotations: Mapping[str, str], host: str = "CHOOSE-A-NAME", *, as_json: bool
) -> str:
    if as_json:
        return json.dumps({**about, "annotations": annotations}, indent=2)
    comments = "".join(f"# {name}: {json.dumps(value)}\n" for name, value in about.items())
    # A host that logs in by the machine's identity needs no API key.
    declared = {"authn/api-key": False, **annotations}
    policy = yaml.safe_dump(declared, sort_keys=False, allow_unicode=True, width=1000).rstrip()
    return f"{comments}- !host\n  id: {host}\n  annotations:\n{textwrap.indent(policy, ' ' * 4)}"
