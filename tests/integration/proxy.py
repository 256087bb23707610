"""HAProxy with the file that the sources ship, in which addresses, certificates and its user alone are replaced."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from treq.client import HTTPClient
from twisted.internet import reactor as installed_reactor
from twisted.internet.ssl import trustRootFromCertificates
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, BrowserLikePolicyForHTTPS, HTTPConnectionPool

from tests.authn.providers.authority import Authority
from tests.integration.bed import free_port
from tests.integration.client import Api
from tests.integration.postgres import PATIENCE
from tests.programs import explain_missing, find_program

reactor: Any = installed_reactor

SAMPLE: Final = Path(__file__).resolve().parent.parent.parent / "etc" / "haproxy.cfg"

#: How the log tells which backend had a request, and which request that was.
_LOGGED: Final = re.compile(r" svc~? (\S+)/\S+ .* \"(\S+ \S+) [^\"]*\"?$")


def unavailable() -> str | None:
    """Why tests with a proxy are skipped, ``None`` when they are not."""
    return explain_missing("haproxy")


class Proxy:
    """A proxy before two servers that listen on these ports, with certificates of ``authority``; it ends with the test.

    ``more`` are further places of the sample, and what stands there instead.
    """

    def __init__(
        self, case: TestCase, authority: Authority, one: int, two: int, more: Mapping[str, str] | None = None
    ) -> None:
        place = Path(case.mktemp()).resolve()
        place.mkdir(parents=True)
        self.port = free_port()
        self.authority = authority
        (place / "ca.pem").write_text(authority.pem)
        certificate_file(place / "svc.pem", authority)
        self.text = _replaced(
            SAMPLE.read_text(encoding="utf-8"),
            {
                "bind :443 ": f"bind 127.0.0.1:{self.port} ",
                "/etc/svc/ca.pem": f"{place / 'ca.pem'}",
                "/etc/haproxy/svc.pem": f"{place / 'svc.pem'}",
                "    user haproxy\n    group haproxy\n": "",
                "10.0.0.1:8443": f"127.0.0.1:{one}",
                "10.0.0.2:8443": f"127.0.0.1:{two}",
                **(more or {}),
            },
        )
        path = place / "haproxy.cfg"
        path.write_text(self.text)
        self._log = place / "log"
        with self._log.open("wb") as log:
            command = [find_program("haproxy") or "haproxy", "-f", str(path)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        case.addCleanup(self._end)
        self._case = case

    @property
    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    async def listens(self) -> None:
        """Wait until it takes connections."""
        for _ in range(int(PATIENCE / 0.05)):
            assert self._process.poll() is None, self.log
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            await deferLater(reactor, 0.05)
        raise AssertionError(f"the proxy doesn't listen: {self.log}")

    def api(self) -> Api:
        """A client of it."""
        policy = BrowserLikePolicyForHTTPS(trustRoot=trustRootFromCertificates([self.authority.certificate]))
        pool = HTTPConnectionPool(reactor)
        pool.maxPersistentPerHost = 16
        self._case.addCleanup(pool.closeCachedConnections)
        return Api(f"https://127.0.0.1:{self.port}", "acme", HTTPClient(Agent(reactor, policy, pool=pool)))

    def send(self, request: bytes) -> bytes:
        """Send this as it stands, and return the beginning of the answer; blocks."""
        context = ssl.create_default_context(cadata=self.authority.pem)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # of what a test's certificates lack
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as line,
        ):
            line.sendall(request)
            return line.recv(4096)

    def routed(self) -> list[tuple[str, str]]:
        """Each request's method and target, and the backend that had it; several threads write the log, so not in order."""
        found = (_LOGGED.search(line) for line in self.log.splitlines())
        return [(match[2], match[1]) for match in found if match is not None]

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)


def certificate_file(path: Path, authority: Authority) -> Path:
    """Write a certificate for 127.0.0.1, with its key, as HAProxy and Twisted's endpoints read them."""
    certificate = authority.issue("127.0.0.1")
    path.write_bytes(certificate.dumpPEM() + certificate.privateKey.dump(1))  # 1: PEM
    return path


def _replaced(text: str, places: Mapping[str, str]) -> str:
    for place, ours in places.items():
        assert place in text, f"the sample has no {place}"
        text = text.replace(place, ours)
    return text
