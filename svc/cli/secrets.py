"""Secrets that commands take from the environment, and from there alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click
from click.core import ParameterSource

#: The variables of the options that :func:`secret_option` makes.
API_KEY: Final = "SVC_API_KEY"
HOST_FACTORY_TOKEN: Final = "SVC_HOST_FACTORY_TOKEN"

#: Every variable by which this program is told a secret, the server too; the address of a database may hold a password.
VARIABLES: Final = frozenset({API_KEY, HOST_FACTORY_TOKEN, "SERVICE_DATA_KEY", "SERVICE_DATABASE_URL"})


def secret_option(name: str, variable: str, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make an option whose value is a secret: help doesn't show it, and the command line may not hold it.

    ``what`` it is stands with its article: "an API key".
    """
    assert variable in VARIABLES

    def from_environment_alone(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if context.get_parameter_source(f"{parameter.name}") is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{what} on the command line is seen by every user of the machine: set {variable}")
        return value

    return click.option(name, envvar=variable, hidden=True, callback=from_environment_alone)
