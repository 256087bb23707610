"""Which commands are installed: the client's are always, those that run a server only with the server's distribution."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

import click

#: The distribution that has the commands which run and administer a server.
SERVER = "svc"


def is_installed(module: str) -> bool:
    """Return whether a module of the commands is installed."""
    return find_spec(f"svc.cli.{module}") is not None


def import_command(module: str, command: str) -> ModuleType:
    """Return a module of the commands, imported.

    :raises click.UsageError: the distribution that has it isn't installed.
    """
    if not is_installed(module):
        raise click.UsageError(
            f"`{command}` is in the distribution {SERVER}, which runs and administers servers: only its client,"
            " svc-client, is installed here. Use it on the server's machine"
        )
    return importlib.import_module(f"svc.cli.{module}")
