"""Traefik in front of the server, with the samples ``etc/proxies/traefik.yaml`` and ``traefik-svc.yaml``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.neighbours.proxied import OPTIONS, Proxied, certificate, free_port, run_proxy, write_sample
from tests.neighbours.server import Server, wait_until
from tests.neighbours.table import Row
from tests.programs import find_program

SUMMARY = "Traefik 3.7.13 before the server; built from its Go module, or its program from its releases"


def missing() -> str | None:
    """Return what installs it."""
    if find_program("traefik"):
        return None
    return "tests/neighbours/build-traefik.sh /tmp/traefik, with go 1.26; then PATH=/tmp/traefik:$PATH"


def rows(stack: ExitStack, directory: Path) -> Iterator[Row]:
    """Start both, and yield the cases."""
    server, authorities, port = Server(stack, directory, *OPTIONS), certificate(directory), free_port()
    routes = {"http://127.0.0.1:8080": server.url, "/etc/traefik/": f"{directory}/"}
    write_sample("traefik-svc.yaml", directory / "svc.yaml", routes)
    places = {'":443"': f'"127.0.0.1:{port}"', "/etc/traefik/": f"{directory}/"}
    path = write_sample("traefik.yaml", directory / "traefik.yaml", places)
    url = run_proxy(stack, directory, port, find_program("traefik") or "traefik", f"--configFile={path}")
    proxied = Proxied(server, url, str(authorities), "traefik", cleans=True)

    def has_routes() -> bool:
        try:
            return proxied.ask("GET", "/health").status == 200
        except OSError:
            return False

    # It listens before it has read its routes and certificates.
    wait_until(has_routes, f"Traefik has no routes: {directory / 'proxy.log'}")
    yield from proxied.rows()
