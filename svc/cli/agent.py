"""``svc agent``: files, or the environment of a program, kept up to date."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import attrs
import click

from svc.agent.configuration import AgentConfiguration, read_configuration
from svc.agent.connection import open_client
from svc.agent.faults import BadConfiguration
from svc.agent.reporting import AgentLog, Systemd
from svc.agent.runner import FORWARDED_SIGNALS, STOP_SIGNALS, Agent, AgentContext
from svc.cli.connection import is_unencrypted
from svc.cli.options import FILE, VARIABLES
from svc.cli.table import print_table
from svc.model.clocks import MachineClock
from svc.workload.metadata import environment

#: Variables by which systemd speaks to the agent: its program and its commands shall not speak to systemd in its place.
_SYSTEMD = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "CREDENTIALS_DIRECTORY", "LISTEN_FDS", "LISTEN_PID"})


class _BadConfiguration(click.ClickException):
    """The configuration can't be used, which is an error of usage."""

    exit_code = 2


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--config", "-c", "path", type=FILE, required=True, help="The configuration, TOML; etc/agent.toml is a sample."
)
@click.option("--once", is_flag=True, help="Bring everything up to date, and end: with 0 if all of it is, with 1 if not.")
@click.option("--check", is_flag=True, help="Read the configuration and its templates, say what is wrong, and end.")
@click.option("--status-file", type=FILE, help="A file that always says how the agent stands, in JSON.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def agent(path: Path, status_file: Path | None, command: tuple[str, ...], *, once: bool, check: bool) -> None:
    """Keep files up to date with secrets, for programs that can't ask for them.

    The configuration says which files there are, whose they are, and from which templates they are made:

    \b
        url = "https://svc.example.org"
        account = "acme"
        [login]
        kind = "jwt"
        service_id = "ci"
        jwt_file = "/var/run/secrets/tokens/svc"
        [[file]]
        destination = "/run/shop/database.ini"
        template = 'password = {{ secret("shop/database/password") }}'
        command = ["systemctl", "reload", "shop"]

    A file is replaced as a whole, and only when its content changes. While the server is away, files stay as they are. The
    agent logs to standard error. SIGHUP reads the configuration again, and SIGTERM ends the agent.

    With a COMMAND the agent runs it, with the values of the table [environment] in its environment, restarts it when they
    change, passes signals on to it, and ends with its exit code:

    \b
        svc agent --config agent.toml -- ./serve --port 80

    Exit codes: 0 after SIGTERM or SIGINT; 1 if with --once something is not up to date; 2 if the configuration can't be
    used; with a COMMAND its own, 127 if it doesn't exist and 126 if it can't be started.
    """  # noqa: D301 (click's mark for lines that stay as they are is a backspace)
    if once and command:
        raise click.UsageError("--once and a COMMAND exclude each other")
    surroundings = environment()
    read = partial(_load_configuration, path, surroundings)
    try:
        if check:
            _print_configuration(read(), program=bool(command))
            return
        kept = {name: value for name, value in surroundings.items() if name not in VARIABLES | _SYSTEMD}
        wall = MachineClock()
        log = AgentLog.for_stream(sys.stderr, wall, surroundings)
        around = AgentContext(kept, log, wall, Systemd(surroundings, os.getpid()), status_file and status_file.absolute())
        code = asyncio.run(_run_agent(partial(Agent, read, open_client, around, program=command, once=once)))
    except BadConfiguration as fault:
        raise _BadConfiguration(str(fault)) from None
    raise click.exceptions.Exit(code)


def _load_configuration(path: Path, surroundings: Mapping[str, str]) -> AgentConfiguration:
    found = read_configuration(path, surroundings)
    if not is_unencrypted(found.url):
        return found
    warning = "the access token and all values go over http, and can be read on the way: use https"
    return attrs.evolve(found, warnings=(*found.warnings, warning))


def _print_configuration(configuration: AgentConfiguration, *, program: bool) -> None:
    for warning in configuration.warnings:
        click.echo(f"Warning: {warning}", err=True)
    rows = [(file.name, " ".join(sorted(file.variables))) for file in configuration.files]
    rows += [(f"${entry.name}", " ".join(sorted(entry.variables))) for entry in configuration.environment]
    print_table(("FILE", "VARIABLES"), rows, "The configuration names no file and no variable of the environment.")
    if configuration.environment and not program:
        click.echo("Warning: [environment] is for a COMMAND, and there is none", err=True)


async def _run_agent(make: partial[Agent]) -> int:
    made = make()
    loop = asyncio.get_running_loop()
    for number in (*STOP_SIGNALS, *FORWARDED_SIGNALS):
        loop.add_signal_handler(number, made.handle_signal, signal.Signals(number))
    return await made.run()
