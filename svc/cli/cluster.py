"""The commands that ask for a server's health and that of all servers that it knows, and show its cluster: each server's
role, since when, and which would take over.
"""

from __future__ import annotations

from typing import Any

import click

from svc.cli.connection import ApiAnswer, ApiConnection, anonymous_command
from svc.cli.table import escape_text, print_json, print_result, print_table
from svc.model.clocks import iso_seconds

_SERVERS = ("SERVER", "STATE", "CHANGED", "ROLE", "SINCE", "TIMELINE", "LAG", "SVC", "SCHEMA", "POSTGRESQL")
_STANDBYS = ("STANDBY", "STATE", "SYNC", "CONNECTED", "LAG")


@click.group()
def cluster() -> None:
    """See the servers of a cluster."""


@cluster.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@anonymous_command
async def status(connection: ApiConnection, as_json: bool) -> None:
    """Print the servers of a cluster: roles, timelines, lag and versions, and since when each is as it is.

    A second table has the standbys as the primary sees them, and sentences say who would take over if the primary were lost,
    and which versions differ. Times are UTC. The exit code is 0 when all is well, and 1 when it is not.

    Example: svc cluster status --url https://a.example:8443
    """
    answer = (await connection.request("GET", "/ui/health", Accept="application/json")).expect(200)
    servers, document = parse_servers(answer), answer.json()
    if as_json:
        print_json(document)
    else:
        _print_cluster(servers, document)
    ill = [escape_text(str(server["name"])) for server in servers if server["ok"] is not True]
    if ill:
        raise click.ClickException(f"not healthy: {', '.join(ill)}")


def _print_cluster(servers: list[dict[str, Any]], document: dict[str, Any]) -> None:
    print_table(_SERVERS, map(_server, servers))
    lists = (server.get("standbys") for server in servers)
    standbys = [each for found in lists if isinstance(found, list) for each in found if isinstance(each, dict)]
    if standbys:
        click.echo()
        print_table(_STANDBYS, map(_standby_row, standbys))
    click.echo()
    first, versions = document.get("successor"), document.get("versions")
    if not isinstance(first, dict):
        click.echo("If the primary were lost, nobody could take over.")
    else:
        has = "has every confirmed change" if first.get("complete") is True else "may lack the last changes"
        click.echo(f"If the primary were lost, {escape_text(str(first.get('name')))} would take over, which {has}.")
    for kind, found in (versions if isinstance(versions, dict) else {}).items():
        click.echo(escape_text(f"Versions of {kind} differ: {', '.join(map(str, found))}"))


def _server(server: dict[str, Any]) -> tuple[str, ...]:
    texts = (_format_text(server.get(name)) for name in ("version", "schema", "release"))
    return (
        *(str(server["name"]), _format_text(server.get("word")), _format_moment(server.get("changed"))),
        *(
            _format_text(server.get("role")),
            _format_moment(server.get("since")),
            _format_text(server.get("timeline")),
            format_lag(server),
            *texts,
        ),
    )


def _standby_row(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        *(_format_text(each.get(name)) for name in ("name", "state", "sync")),
        _format_moment(each.get("since")),
        format_lag(each),
    )


def _format_text(value: object) -> str:
    return str(value) if isinstance(value, str | int | float) and value != "" else "unknown"


def _format_moment(value: object) -> str:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 36
    return iso_seconds(value) if known else "unknown"  # type: ignore[arg-type] # a number, then


@click.command()
@click.option("--all", "everywhere", is_flag=True, help="Ask about all servers of its cluster too, and print a table.")
@click.option("--json", "as_json", is_flag=True, help="With --all, print JSON instead of a table.")
@anonymous_command
async def health(connection: ApiConnection, everywhere: bool, as_json: bool) -> None:
    """Print a server's health report; exit code 0 when all is well, 1 when it is not.

    With --all the server shows each server that its setting "cluster" lists, and all must be well.

    Example: svc health --all --url https://a.example:8443
    """
    if as_json and not everywhere:
        raise click.UsageError("--json goes with --all: without it the report is JSON anyway")
    if not everywhere:
        answer = (await connection.request("GET", "/health")).expect(200, 502)
        print_json(answer.json())
        if answer.status != 200:
            raise click.ClickException(f"{connection.url} is not healthy")
        return
    answer = (await connection.request("GET", "/ui/health", Accept="application/json")).expect(200)
    servers = parse_servers(answer)
    header = ("SERVER", "STATE", "ROLE", "DATABASE", "LAG", "NOT OK")
    print_result(as_json, answer.json(), header, map(_server_row, servers))
    ill = [escape_text(str(server["name"])) for server in servers if server["ok"] is not True]
    if ill:
        raise click.ClickException(f"not healthy: {', '.join(ill)}")


def parse_servers(answer: ApiAnswer) -> list[dict[str, Any]]:
    """Return the servers that a page of health in JSON lists."""
    document = answer.json()
    servers = document.get("servers") if isinstance(document, dict) else None
    if not isinstance(servers, list) or not all(
        isinstance(each, dict) and {"name", "ok"} <= each.keys() for each in servers
    ):
        raise click.ClickException("the answer lists no servers; is this the address of the service?")
    return servers


def _server_row(server: dict[str, Any]) -> tuple[str, ...]:
    services = server.get("services")
    services = services if isinstance(services, dict) else {}
    failing = [f"{name} {word}" for name, word in services.items() if word != "ok"]
    if str(primaries := server.get("primaries") or "ok") != "ok":
        failing.append(f"primaries {primaries}")
    texts = (server["name"], server.get("word"), server.get("role") or "unknown", server.get("database") or "unknown")
    return (*map(str, texts), format_lag(server), ", ".join(failing))


def format_lag(status: dict[str, Any]) -> str:
    """Return the lag of a server or of a standby in words; nothing where there is none, or it isn't known."""
    lags = (("lag_seconds", "s"), ("lag_bytes", "bytes"))
    return ", ".join(f"{status[name]} {unit}" for name, unit in lags if status.get(name) is not None)
