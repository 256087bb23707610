"""``svc server``: the server in the foreground, as containers run it."""

from __future__ import annotations

import sys

import click

from svc.model.interrupts import install_interrupt_handler


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def server(options: tuple[str, ...]) -> None:
    """Run the server in the foreground, until Ctrl-C.

    It keeps its state in --data-dir, and is what `twistd --nodaemon --pidfile= svc` is. `svc server --help` lists the
    settings.

    Example: svc server --account acme
    """
    install_interrupt_handler()
    # Twistd reads the command line itself. It is imported here since completion imports this module.
    from twisted.scripts.twistd import run  # noqa: PLC0415

    sys.argv = ["twistd", "--nodaemon", "--pidfile=", "svc", *options]
    run()
