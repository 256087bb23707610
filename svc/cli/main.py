"""The ``svc`` command: administration of a server, and a client of its HTTP interface."""

from __future__ import annotations

import click

from svc._version import VERSION
from svc.cli.admin import account, data_key, migrate
from svc.cli.health import health
from svc.cli.login import authenticate, login, whoami
from svc.cli.policy import policy
from svc.cli.quickstart import quickstart
from svc.cli.role import role
from svc.cli.variable import variable


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="svc")
def main() -> None:
    """Keep secrets, and decide who may read them.

    The server itself is run by `twistd svc`; `svc quickstart` shows all of it in a minute. Commands that speak to a server
    take its address and account from SVC_URL and SVC_ACCOUNT.
    """


for command in (account, authenticate, data_key, health, login, migrate, policy, quickstart, role, variable, whoami):
    main.add_command(command)
