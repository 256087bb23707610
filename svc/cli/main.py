"""The ``svc`` command: administration of a server, and a client of its HTTP interface.

Note [Commands on demand]. The commands that administer load the whole server, which takes a second. So a command's module is
imported when the command is used. They are of the server's distribution, and help lists them only where that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from keyword import iskeyword
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
    "import": ("import_", "Move what another server holds into this one, and compare both."),
    "list": ("resource", "List the resources that you see."),
    "login": ("login", "Log in with an API key or a password, for minutes or a working day."),
    "logout": ("login", "End your session, and remove the login that this machine keeps."),
    "man": ("manual", "Write the manual pages of all commands into a folder."),
    "migrate": ("migrate", "Bring the schema of the database up to date, or say what that would do."),
    "offboard": ("offboard", "End the logins and memberships of somebody who leaves."),
    "openapi": ("openapi", "Print the HTTP interface as an OpenAPI document."),
    "policy": ("policy", "Load policy: who there is, and who may do what."),
    "provider": ("provider", "Try JWT logins out with a JWT provider on this machine."),
    "quickstart": ("quickstart", "See the service at work: start one, and do its main job step by step."),
    "reach": ("access", "List what a role can read, execute or update, and why."),
    "readers": ("readers", "List who has read a secret, and when."),
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

#: The headings of help, each with its commands, in the order in which help, manual pages and completion have them.
GROUPS: Final = {
    "Secrets": ("variable", "readers", "run", "agent", "import", "expiring"),
    "Policy and access": ("policy", "can", "check", "who-can", "reach", "role", "deleted"),
    "People and sessions": ("login", "logout", "whoami", "sessions", "user", "unused", "offboard"),
    "Workloads": ("authenticate", "authenticator", "hostfactory", "cloud"),
    "Look around": ("list", "audit", "explain-request", "explain-reason", "health", "cluster"),
    "Run a server": ("server", "account", "data-key", "migrate", "backup", "follower", "doctor"),
    "Try it": ("quickstart", "provider", "openapi", "completion", "man"),
}


class CommandGroups(click.Group):
    """A group of commands (Note [Commands on demand])."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's)
        """Return the names of all commands that are installed, heading by heading."""
        return [name for _, names in self.headings() for name in names]

    @staticmethod
    def headings() -> Iterator[tuple[str, list[str]]]:
        """Yield each heading with its commands that are installed, unless it has none."""
        for heading, names in GROUPS.items():
            if there := [name for name in names if is_installed(COMMANDS[name][0])]:
                yield heading, there

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (click's)
        """Return the command of that name."""
        if cmd_name not in COMMANDS:
            return None
        with exiting_on_interrupt():
            module = import_command(COMMANDS[cmd_name][0], f"svc {cmd_name}")
        name = cmd_name.replace("-", "_")
        command = getattr(module, f"{name}_" if iskeyword(name) else name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant; a mistyped one is a usage error that suggests those like it.

        Groups below this one have their commands at hand, and click suggests for them.
        """
        name = args[0]
        like = [] if name.startswith("-") else get_close_matches(name, self.list_commands(ctx))
        if name in COMMANDS or ctx.resilient_parsing or not like:
            return super().resolve_command(ctx, args)
        suggestion = " or ".join(f"'svc {each}'" for each in like)
        raise click.UsageError(f"No such command {name!r}. Did you mean {suggestion}?", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without importing any (Note [Commands on demand])."""
        there = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        names = [CompletionItem(name, help=COMMANDS[name][1]) for name in there]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands under their headings, in one pair of columns, without importing them."""
        width = max(map(len, self.list_commands(ctx)))
        for heading, names in self.headings():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), COMMANDS[name][1]) for name in names])


@click.group(cls=CommandGroups, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="svc")
def main() -> None:
    """Keep secrets, and decide who may read them.

    `svc server` runs the server itself; `svc quickstart` shows all of it in a minute. Commands that speak to a server take
    its address and account from SVC_URL and SVC_ACCOUNT. `svc COMMAND --help` explains each, with an example.
    """
