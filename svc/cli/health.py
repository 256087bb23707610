"""The command that asks for a server's health, and for that of all servers that it knows."""

from __future__ import annotations

from typing import Any

import click

from svc.cli.connection import ApiAnswer, ApiConnection, anonymously
from svc.cli.table import plain, print_found, print_json


@click.command()
@click.option("--all", "everywhere", is_flag=True, help="Ask about all servers of its cluster too, and print a table.")
@click.option("--json", "as_json", is_flag=True, help="With --all, print JSON instead of a table.")
@anonymously
async def health(connection: ApiConnection, everywhere: bool, as_json: bool) -> None:
    """Print a server's health report; exit code 0 when all is well, 1 when it is not.

    With --all the server tells of each server that its setting "cluster" lists, and all must be well.

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
    servers = servers_of(answer)
    header = ("SERVER", "STATE", "ROLE", "DATABASE", "LAG", "NOT OK")
    print_found(as_json, answer.json(), header, map(_row, servers))
    ill = [plain(str(server["name"])) for server in servers if server["ok"] is not True]
    if ill:
        raise click.ClickException(f"not healthy: {', '.join(ill)}")


def servers_of(answer: ApiAnswer) -> list[dict[str, Any]]:
    """Return the servers that a page of health in JSON lists."""
    document = answer.json()
    servers = document.get("servers") if isinstance(document, dict) else None
    if not isinstance(servers, list) or not all(
        isinstance(each, dict) and {"name", "ok"} <= each.keys() for each in servers
    ):
        raise click.ClickException("the answer lists no servers; is this the address of the service?")
    return servers


def _row(server: dict[str, Any]) -> tuple[str, ...]:
    services = server.get("services")
    services = services if isinstance(services, dict) else {}
    failing = [f"{name} {word}" for name, word in services.items() if word != "ok"]
    if str(primaries := server.get("primaries") or "ok") != "ok":
        failing.append(f"primaries {primaries}")
    texts = (server["name"], server.get("word"), server.get("role") or "unknown", server.get("database") or "unknown")
    return (*map(str, texts), lag_of(server), ", ".join(failing))


def lag_of(told: dict[str, Any]) -> str:
    """Return the lag of a server or of a standby in words; nothing where there is none, or it isn't known."""
    lags = (("lag_seconds", "s"), ("lag_bytes", "bytes"))
    return ", ".join(f"{told[name]} {unit}" for name, unit in lags if told.get(name) is not None)
