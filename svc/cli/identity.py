"""The options of all commands that ask a cloud platform for an identity token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from svc.workload.exchange import Exchange, http_client
from svc.workload.metadata import ANSWER_LIMIT, DEADLINE, LINK_LOCAL, RESOURCE, Metadata, environment

_OPTIONS: Final = (
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


def cloud_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that :func:`metadata` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def metadata(
    reactor: Any, *, client_id: str | None, resource: str, metadata_url: str | None, deadline: float = DEADLINE
) -> Metadata:
    """Return where this machine's identity tokens come from, as the options say, which go before the environment."""
    exchange = Exchange(http_client(reactor), reactor, ANSWER_LIMIT)
    surroundings = environment() if metadata_url is None else {}
    base_url = LINK_LOCAL if metadata_url is None else metadata_url
    return Metadata(exchange, surroundings, resource=resource, client_id=client_id, base_url=base_url, deadline=deadline)
