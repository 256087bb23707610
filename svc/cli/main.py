"""The ``svc`` command: administration of a server, and a client of its HTTP interface.

Note [Commands on demand]. The commands that administer load the whole server, which takes a second. So a command's module is
imported when the command is used. They are of the server's distribution, and help lists them only where that is.
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import CompletionItem

from svc._version import VERSION
from svc.cli.distributions import import_command, is_installed
from svc.model.interrupts import exiting_on_interrupt

#: The module of each command, which has it under the command's name, and its line of help.
COMMANDS: Final = {
    "account": ("admin", "Create and list accounts, rotate their signing keys, and recover a lost admin key."),
    "agent": ("agent", "Keep files, or a program's environment, up to date with secrets."),
    "audit": ("audit", "See what was changed, by whom and when."),
    "authenticate": ("login", "Exchange a workload's proof of identity for an access token."),
    "authenticator": ("authenticator", "See how authenticators stand, and why one refuses a token."),
    "backup": ("backup", "Make backups of a server's database, try them, and restore them."),
    "can": ("access", "Say whether a role has a privilege on a resource, and why, or what is missing."),
    "check": ("resource", "Say whether you, or a role that you hold, have a privilege on a resource."),
    "cloud": ("cloud", "See this machine as its cloud platform identifies it."),
    "cluster": ("cluster", "See the servers of a cluster: roles, lag, versions, who would take over."),
    "completion": ("completion", "Print the script by which a shell completes these commands."),
    "data-key": ("admin", "Make and rotate the key under which everything of value is sealed."),
    "deleted": ("deleted", "See what policy deleted, have it back, or purge it."),
    "doctor": ("doctor", "Say what is risky about the server of this machine, and what to do."),
    "expiring": ("expiring", "List what ends soon: values, tokens, keys, certificates."),
    "explain-reason": ("reason", "Say what a reason for which something is refused means, and what to do."),
    "explain-request": ("explain_request", "Say which check refused a request, and what to do."),
    "follower": ("follower", "Add followers to a primary, and take them off."),
    "health": ("cluster", "Print a server's health report."),
    "hostfactory": ("hostfactory", "Make tokens with which machines make hosts of themselves, and those hosts."),
    "list": ("resource", "List the resources that you see."),
    "login": ("login", "Log in with an API key or a password, for minutes or a working day."),
    "man": ("manual", "Write the manual pages of all commands into a folder."),
    "migrate": ("migrate", "Bring the schema of the database up to date, or say what that would do."),
    "openapi": ("openapi", "Print the HTTP interface as an OpenAPI document."),
    "policy": ("policy", "Load policy: who there is, and who may do what."),
    "provider": ("provider", "Try JWT logins out with a JWT provider on this machine."),
    "quickstart": ("quickstart", "See the service at work: start one, and do its main job step by step."),
    "reach": ("access", "List what a role can read, execute or update, and why."),
    "role": ("role", "Ask who belongs to a role, and revoke access tokens."),
    "run": ("run", "Start a command with secrets in its environment."),
    "server": ("server", "Run the server in the foreground."),
    "sessions": ("sessions", "See where you stay logged in, and end that."),
    "unused": ("expiring", "List users and hosts that have not logged in for long."),
    "user": ("user", "Change your password, and rotate API keys."),
    "variable": ("variable", "Read and write the values of variables."),
    "who-can": ("access", "List who has a privilege on a resource, and why."),
    "whoami": ("login", "Say who the server takes you for."),
}


class _Commands(click.Group):
    """A group of commands (Note [Commands on demand])."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's)
        """Return the names of all commands that are installed, in order."""
        return sorted(name for name, (module, _) in COMMANDS.items() if is_installed(module))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (click's)
        """Return the command of that name."""
        if cmd_name not in COMMANDS:
            return None
        with exiting_on_interrupt():
            module = import_command(COMMANDS[cmd_name][0], f"svc {cmd_name}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without importing any (Note [Commands on demand])."""
        there = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        names = [CompletionItem(name, help=COMMANDS[name][1]) for name in there]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="svc")
def main() -> None:
    """Keep secrets, and decide who may read them.

    `svc server` runs the server itself, as `twistd svc` does; `svc quickstart` shows all of it in a minute. Commands that
    speak to a server take its address and account from SVC_URL and SVC_ACCOUNT.
    """
