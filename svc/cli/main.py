"""The ``svc`` command: administration of a server, and a client of its HTTP interface.

Note [Commands on demand]. The commands that administer load the whole server, which takes a second. So a command's module
is imported when the command is asked for.
"""

from __future__ import annotations

import importlib
from typing import Final

import click

from svc._version import VERSION

#: The module of each command, which has it under the command's name, and what help says of it.
_COMMANDS: Final = {
    "account": ("admin", "Create and list accounts, and rotate their signing keys."),
    "audit": ("audit", "See what was changed, by whom and when."),
    "authenticate": ("login", "Exchange a workload's proof of identity for an access token."),
    "authenticator": ("authenticator", "See how authenticators stand, and why one refuses a token."),
    "backup": ("backup", "Make backups of a server's database, and try them."),
    "check": ("resource", "Say whether you, or a role that you hold, have a privilege on a resource."),
    "cloud": ("cloud", "See this machine as its cloud platform identifies it."),
    "data-key": ("admin", "Make the key under which everything of value is sealed."),
    "explain-reason": ("reason", "Say what a reason for which a login is refused means, and what to do."),
    "health": ("health", "Print a server's health report."),
    "hostfactory": ("hostfactory", "Make tokens with which machines make hosts of themselves, and those hosts."),
    "list": ("resource", "List the resources that you see."),
    "login": ("login", "Log in with an API key or a password, and keep the access token."),
    "migrate": ("admin", "Bring the schema of the database up to date."),
    "policy": ("policy", "Load policy: who there is, and who may do what."),
    "provider": ("provider", "Try JWT logins out with a JWT provider on this machine."),
    "quickstart": ("quickstart", "See the service at work: start one, and do its main job step by step."),
    "role": ("role", "Ask who belongs to a role."),
    "run": ("run", "Start a command with secrets in its environment."),
    "user": ("user", "Change your password, and rotate API keys."),
    "variable": ("variable", "Read and write the values of variables."),
    "whoami": ("login", "Say who the server takes you for."),
}


class _Commands(click.Group):
    """A group of commands (Note [Commands on demand])."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's)
        """Return the names of all commands, in order."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (click's)
        """Return the command of that name."""
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"svc.cli.{_COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (click's)
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(_COMMANDS.items())])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="svc")
def main() -> None:
    """Keep secrets, and decide who may read them.

    The server itself is run by `twistd svc`; `svc quickstart` shows all of it in a minute. Commands that speak to a server
    take its address and account from SVC_URL and SVC_ACCOUNT.
    """
