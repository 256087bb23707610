"""The quickstart: a server, a JWT provider beside it, and the main job done with the two."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, Final

import click
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.logger import (
    FileLogObserver,
    ILogObserver,
    LogEvent,
    formatEvent,
    formatEventAsClassicLogText,
    globalLogBeginner,
)
from twisted.web.client import Agent
from twisted.web.server import Site
from zope.interface import implementer

from svc.cli.connection import Connection
from svc.cli.provider import Provider
from svc.cli.running import react
from svc.cli.tour import SERVICE_ID, Tour
from svc.config import read_settings
from svc.errors import Refusal
from svc.keyfiles import admin_key_file
from svc.startup import reason_of
from svc.tap import build

#: The account that the quickstart makes.
ACCOUNT: Final = "quickstart"

_LOOPBACK: Final = "127.0.0.1"


@click.command()
@click.option("--once", is_flag=True, help="Stop after the steps; exit code 0 if every answer was the expected one.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to keep the state for the next time; a temporary directory by default.",
)
def quickstart(once: bool, data_dir: Path | None) -> None:
    """See the service at work: start one, and do its main job step by step.

    Starts a server on a free loopback port, with its own PostgreSQL, and a JWT provider beside it. A workload exchanges a
    JWT for an access token and reads a secret; another is refused. Then the server goes on serving until Ctrl-C.
    """
    folder = data_dir.absolute() if data_dir else Path(tempfile.mkdtemp(prefix="svc-quickstart-"))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        wrong = _run(folder, once)
    except OSError as error:
        raise click.ClickException(str(error)) from None
    if wrong:
        # What was made stays: its log tells why.
        raise SystemExit(1)
    if data_dir is None:
        shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path, once: bool) -> bool:
    """Run the reactor until all is done; return whether anything was not as expected."""
    refusals: list[str] = []
    wrong: list[int] = []
    log_file = folder / "server.log"

    @implementer(ILogObserver)
    def remember(event: LogEvent) -> None:
        if event.get("log_namespace") == "svc.audit":
            refusals.append(formatEvent(event))

    async def work(reactor: Any) -> None:
        try:
            wrong.append(await _show(reactor, folder, once, lambda: list(refusals)))
        except Refusal as refusal:
            raise click.ClickException(reason_of(refusal)) from None

    with log_file.open("a", encoding="utf-8") as log:
        observer = FileLogObserver(log, formatEventAsClassicLogText)
        globalLogBeginner.beginLoggingTo([observer, remember], redirectStandardIO=False)
        try:
            react(work)
        except click.ClickException as fault:
            raise click.ClickException(f"{fault.message} (the server's log is {log_file})") from None
    return any(wrong)


async def _show(reactor: Any, folder: Path, once: bool, refusals: Callable[[], list[str]]) -> int:
    """Start everything and take the steps; return how many answers were not the expected ones."""
    click.echo(f"Starting PostgreSQL and the server; their state and log are in {folder} …")
    server_folder = folder / "server"
    settings = read_settings(
        {
            "data_dir": str(server_folder),
            "listen": f"tcp:0:interface={_LOOPBACK}",
            "account": ACCOUNT,
            "authenticators": f"authn,authn-jwt/{SERVICE_ID}",
            # The provider of the quickstart is on this machine, which a server by default takes no keys from.
            "allow_http_providers": True,
            "allow_private_providers": "127.0.0.0/8",
        },
        {},
    )
    server = build(reactor, settings, None)
    server.startService()
    reactor.addSystemEventTrigger("before", "shutdown", server.stopService)
    [url] = await server.ready()
    admin_key = admin_key_file(server_folder, ACCOUNT).read_text().strip()

    provider = Provider.kept_at(folder / "provider.pem", "https://provider.quickstart.example")
    site = Site(provider.site().resource())
    port = await TCP4ServerEndpoint(reactor, 0, interface=_LOOPBACK).listen(site)
    keys_uri = f"http://{_LOOPBACK}:{port.getHost().port}/.well-known/jwks.json"
    click.echo(f"svc ready: {url}")
    click.echo(f"JWT provider: {keys_uri}")
    click.echo(f"ADMIN_KEY={admin_key}")

    connection = Connection(url, ACCOUNT, None, None, HTTPClient(Agent(reactor, connectTimeout=10)), reactor)
    policy = resources.files("svc.cli") / "sample" / "policy.yml"
    tour = Tour(connection, provider, keys_uri, admin_key, policy.read_bytes(), str(policy), refusals)
    await tour.walk()
    click.echo()
    if tour.wrong:
        click.secho(f"{tour.wrong} answers were not the expected ones.", fg="red")
    else:
        click.secho("Every answer was the expected one.", fg="green")
    if not once:
        click.echo(f"The server goes on serving at {url}; Ctrl-C stops it.")
        await Deferred()
    return tour.wrong
