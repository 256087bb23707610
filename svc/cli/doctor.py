"""The command that reports the risks of a running installation; its checks are in ``health/doctor_checks.py``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import click

from svc.cli.admin import with_server_options
from svc.cli.connection import check_url
from svc.cli.reactor import run_reactor
from svc.cli.saved_login import token_file
from svc.cli.table import escape_text, print_json
from svc.health.doctor_checks import Risk, ServerFacts, find_risks
from svc.model.errors import Refusal
from svc.server.doctor_facts import collect_facts
from svc.server.effective_settings import choose_settings
from svc.server.endpoints import parse_port
from svc.server.startup import describe_refusal
from svc.settings.config import Settings
from svc.settings.reading import read_settings
from svc.telemetry.exposition import parse_samples
from svc.workload.exchange import Exchange, http_client
from svc.workload.faults import Fault
from svc.workload.replies import Reply

#: Seconds that an answer of the server may take, and its bytes.
_DEADLINE: Final = 10.0
_LIMIT: Final = 8 * 1024 * 1024


@click.command()
@click.option("--url", envvar="SVC_URL", metavar="URL", callback=check_url, help="Where the server is. [env var: SVC_URL]")
@click.option(
    "--ca-file",
    "--ca",
    "ca",
    envvar="SVC_CA_FILE",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The authorities of its certificate, in PEM. [env var: SVC_CA_FILE]",
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects: name, severe, found, action.")
@with_server_options
def doctor(given: dict[str, Any], url: str | None, ca: Path | None, as_json: bool) -> None:
    """Say what is risky about the server of this machine, and what to do about each finding.

    It checks the settings, files, certificates and database of the server, and asks the running server for its health and
    its counters. Nothing is changed. The settings are those that the server which runs on the data directory has left there;
    otherwise, and for the database's password, those that are given. So give it the options or the environment that the
    server has, as its user or as root; all options of `svc server` are taken, also those that aren't listed here.

    The exit code is 0 when nothing is risky, and 1 otherwise; notes, which are worth a thought, don't count.

    Example: svc doctor --config /etc/svc/svc.toml
    """

    async def examine_server(reactor: Any) -> None:
        try:
            chosen = choose_settings(read_settings(given))
            click.echo(f"{escape_text(chosen.source)}.", err=True)
            exchange, known = Exchange(http_client(reactor, ca), reactor, _LIMIT), url or find_plain_url(chosen.urls)
            server = await ServerInspector(exchange, chosen.settings, known).fetch_facts()
            found = find_risks(await collect_facts(reactor, chosen, server, tokens=token_file()))
        except Refusal as refusal:
            raise click.ClickException(describe_refusal(refusal)) from None
        _print_risks(found, as_json)
        if any(risk.severe for risk in found):
            raise click.exceptions.Exit(1)

    run_reactor(examine_server)


def _print_risks(found: Sequence[Risk], as_json: bool) -> None:
    if as_json:
        print_json([attrs.asdict(risk) for risk in found])
        return
    for risk in found:
        click.echo(f"{'RISK' if risk.severe else 'note'} {risk.name}: {escape_text(risk.found)}")
        click.echo(f"     {escape_text(risk.action)}")
    severe = sum(risk.severe for risk in found)
    click.echo(f"{severe} risk{'s' * (severe != 1)}, {len(found) - severe} note{'s' * (len(found) - severe != 1)}")


@attrs.frozen
class ServerInspector:
    """Questions to the running server, at ``url`` or else at a port without TLS of its settings."""

    exchange: Exchange
    settings: Settings
    url: str | None

    async def fetch_facts(self) -> ServerFacts | None:
        """Return its report; ``None`` where no address is known."""
        url = self.url or next(filter(None, map(loopback_url, self.settings.listen)), None)
        if url is None:
            return None
        try:
            servers = _parse_json(await self._get_url(f"{url}/ui/health"))["servers"]
            here = next(each for each in servers if each["here"])
            version = here.get("version")
            lags = [
                (str(each["name"]), float(each["lag_seconds"])) for each in servers if each.get("lag_seconds") is not None
            ]
        except Fault as fault:
            return ServerFacts(fault=str(fault))
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
            return ServerFacts(fault=f"what answers at {url} isn't svc")
        failing = [f"{name} {word}" for name, word in (here.get("services") or {}).items() if word != "ok"]
        if here.get("database") != "ok":
            failing.append(f"database {here.get('database')}")
        counters = await self._fetch_counters()
        return ServerFacts(
            version=version if isinstance(version, str) and version else None,
            failing=failing,
            lags=[(name, lag) for name, lag in lags if name != here["name"]],
            evicted=counters.get("svc_memory_evicted_total", 0.0),
            misses=counters.get("svc_memory_misses_total", 0.0),
            has_metrics=self.settings.metrics_listen is not None,
        )

    async def _fetch_counters(self) -> dict[str, float]:
        """Return the counters, none where they can't be read."""
        url = None if self.settings.metrics_listen is None else loopback_url(self.settings.metrics_listen)
        if url is None:
            return {}
        try:
            return parse_samples((await self._get_url(f"{url}/metrics", "text/plain")).body.decode("utf-8", "replace"))
        except (Fault, ValueError):
            return {}

    async def _get_url(self, url: str, accepted: str = "application/json") -> Reply:
        return await self.exchange.ask("GET", url, headers={"Accept": accepted}, within=_DEADLINE)


def _parse_json(reply: Reply) -> Any:
    return json.loads(reply.body)


def find_plain_url(urls: Sequence[str]) -> str | None:
    """Return the first URL on this machine that needs no TLS; ``None`` for none."""
    return next((url for url in urls if url.startswith(("http://127.", "http://[::1]", "http://localhost"))), None)


def loopback_url(text: str) -> str | None:
    """Return the URL of a port without TLS on this machine; ``None`` for any other endpoint, and one that wants a header."""
    place = parse_port(text)
    if place is None or place.tls or place.has_proxy_header or not place.port:
        return None
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(place.host, place.host)  # noqa: S104 - it is compared
    return f"http://[{host}]:{place.port}" if ":" in host else f"http://{host}:{place.port}"
