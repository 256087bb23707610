"""Prompts for credentials: on a terminal, or else a line of standard input each."""

from __future__ import annotations

import sys
from typing import Any

import click

from svc.cli.connection import ApiConnection


def asked(what: str, **options: Any) -> str:
    """Return the answer; ``options`` are those of click's prompt.

    :raises click.ClickException: there is none.
    """
    answer: str = click.prompt(what, **options) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not answer:
        raise click.ClickException(f"no {what} given")
    return answer


def own_proof(connection: ApiConnection) -> tuple[str, str]:
    """Return the login and the API key or password of the user who runs the command: from the environment, or asked for."""
    login = connection.login or asked("Login", default="admin").strip()
    return login, connection.api_key or asked("API key or password", hide_input=True)
