"""Commands on a machine of a cloud platform."""

from __future__ import annotations

import json
import textwrap
from datetime import UTC, datetime
from typing import Any

import click
import yaml

from svc.cli.coroutines import react
from svc.cli.options import cloud_options, metadata
from svc.workload.machine import Machine


@click.group()
def cloud() -> None:
    """See this machine as its cloud platform identifies it."""


@cloud.command()
@cloud_options
@click.option(
    "--authenticator",
    default="authn-cloud",
    show_default=True,
    help="What the annotations begin with: authn-cloud/prod for that service alone, authn-azure in the conjur dialect.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=5, show_default=True, help="How long to ask for a token, in seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(authenticator: str, timeout: float, as_json: bool, **options: Any) -> None:
    """Show which annotations a host needs so that this machine can log in as it.

    Run it on the machine. It asks the platform's metadata service for an identity token, and prints what that says of the
    machine, as policy to paste; it sends nothing to the service, and doesn't print the token.

    Leave the identity's annotation out to let every machine of the resource group log in as the host.
    """

    async def work(reactor: Any) -> None:
        token = await metadata(reactor, deadline=timeout, **options).identity_token()
        click.echo(shown(Machine.of(token.text), authenticator, token.ends_at, as_json=as_json))

    react(work)


def shown(machine: Machine, authenticator: str, ends_at: float, *, as_json: bool) -> str:
    """Return what ``svc cloud inspect`` prints."""
    annotations = {f"{authenticator}/{name}": value for name, value in machine.annotations().items()}
    about = {
        "resource_id": machine.resource_id,
        "object_id": machine.object_id,
        "issuer": machine.issuer,
        "audience": machine.audience,
        "expires_at": datetime.fromtimestamp(ends_at, UTC).isoformat(timespec="seconds"),
    }
    if as_json:
        return json.dumps({**about, "annotations": annotations}, indent=2)
    comments = "".join(f"# {name}: {json.dumps(value)}\n" for name, value in about.items())
    policy = yaml.safe_dump(annotations, sort_keys=False, allow_unicode=True, width=1000).rstrip()
    return f"{comments}- !host\n  id: CHOOSE-A-NAME\n  annotations:\n{textwrap.indent(policy, ' ' * 4)}"
