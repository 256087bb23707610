"""What smugglers send, over sockets: to a server, and to HAProxy and nginx before it, which see the same requests."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from svc.model.limits import Limits
from svc.web.http.client_address import TrustedProxies
from svc.web.http.messages import HttpConfig, IncomingRequest, Response
from svc.web.http.site import Site
from tests.integration.bed import free_port
from tests.integration.postgres import PATIENCE
from tests.programs import find_program, require_programs
from tests.web.http.smuggling import CASES
from tests.web.support import read_answers

reactor: Any = installed_reactor

#: How a proxy logs what it passed on: a method, a target, and the status with which it was answered.
_LOGGED: Final = re.compile(r"^(\S+) (\S+) (\S+)$", re.MULTILINE)

#: Few connections to the server are kept, so that each request shares one with another client's.
_HAPROXY: Final = """\
global
    log stdout format raw local0
    nbthread 1
defaults
    mode http
    log global
    log-format "%HM %HU %ST"
    timeout connect 5s
    timeout client 1s
    timeout server 5s
    timeout http-request 1s
    http-reuse always
listen proxy
    bind 127.0.0.1:{port}
    {more}
    server svc 127.0.0.1:{server} maxconn 1 pool-max-conn 1
"""

_NGINX: Final = """\
daemon off;
master_process off;
pid {place}/pid;
events {{}}
http {{
    log_format passed "$request_method $request_uri $upstream_status";
    access_log {place}/log passed;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    client_header_timeout 1s;
    client_body_timeout 1s;
    upstream svc {{
        server 127.0.0.1:{server};
        keepalive 1;
    }}
    server {{
        listen 127.0.0.1:{port};
        {more}
        location / {{
            proxy_pass http://svc;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_next_upstream off;
            proxy_ignore_client_abort on;
        }}
    }}
}}
"""


def exchange(port: int, sent: bytes) -> bytes:
    """Send this, and return everything that is answered until the other side closes; blocks."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        try:
            connection.sendall(sent)
            while chunk := connection.recv(1 << 16):
                received += chunk
        except ConnectionError:
            pass  # A proxy that refuses may reset.
    return received


def asked(path: str) -> bytes:
    """A request that is the last on its connection."""
    return f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode()


def _path(target: str) -> str:
    return re.sub("^http://[^/]*", "", target)


def _parts(requests: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """The requests before each question of a victim."""
    parts: list[list[tuple[str, str]]] = [[]]
    for method, target in requests:
        if target.startswith("/victim-"):
            parts.append([])
        else:
            parts[-1].append((method, target))
    return parts[:-1]


class SmugglingTests(TestCase):
    """A server that tells what it read."""

    timeout = 300

    def setUp(self) -> None:
        """Serve."""
        self.seen: list[tuple[str, str]] = []
        site = Site(
            HttpConfig(
                respond=lambda incoming: Deferred.fromCoroutine(self.respond(incoming)),
                limits=Limits(),
                clock=reactor,
                wall=reactor,
                new_id=lambda: "id",
                proxies=TrustedProxies(),
            )
        )
        port = reactor.listenTCP(0, site, interface="127.0.0.1")
        self.port = port.getHost().port
        self.addCleanup(lambda: Deferred.fromCoroutine(site.drain(0.1)))
        self.addCleanup(port.stopListening)

    async def respond(self, incoming: IncomingRequest) -> Response:
        """Tell the target and the body."""
        if incoming.size > incoming.limit:
            return Response.empty(413)
        body = await incoming.read_body()
        self.seen.append((incoming.method, _path(incoming.target)))
        return Response.json([_path(incoming.target), body.decode("latin-1")])

    async def test_directly(self) -> None:
        """Each case is read as the table says, and what follows it is read as another request or not at all (WIRE-2)."""
        for name, case in CASES.items():
            self.seen.clear()
            received = await deferToThread(exchange, self.port, case.sent + asked("/marker"))
            answers = read_answers(received.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b""))
            told = [json.loads(each.body)[1].encode("latin-1") if each.status == 200 else each.status for each in answers]
            self.assertEqual(told, [*case.answers, *([] if case.closes else [b""])], name)
            self.assertNotIn(("GET", "/smuggled"), self.seen, name)

    async def test_haproxy(self) -> None:
        """HAProxy, as it is and as lenient as it can be, and the server see the same requests, whatever is sent (WIRE-2)."""
        for more in ("", "option accept-invalid-http-request"):
            await self.passed("haproxy", _HAPROXY, more)

    async def test_nginx(self) -> None:
        """nginx, which hands bodies on as they come or whole, and the server see the same requests (WIRE-2)."""
        for more in ("", "proxy_request_buffering off; ignore_invalid_headers off; underscores_in_headers on;"):
            await self.passed("nginx", _NGINX, more)

    async def passed(self, name: str, text: str, more: str) -> None:
        """Send all cases through a proxy, and after each of them ask as another client, who must get an answer of his own.

        What the proxy says to have passed on between two such questions is what the server has read.
        """
        require_programs(name)
        port, log = await self.started(name, text, more)
        self.seen.clear()
        for number, case in enumerate(CASES.values()):
            await deferToThread(exchange, port, case.sent + asked(f"/marker-{number}"))
            [answer] = read_answers(await deferToThread(exchange, port, asked(f"/victim-{number}")))
            self.assertEqual((answer.status, answer.json()), (200, [f"/victim-{number}", ""]), [*CASES][number])
        last = f"/victim-{len(CASES) - 1} "
        for _ in range(int(PATIENCE / 0.05)):
            if last in log.read_text():
                break
            await deferLater(reactor, 0.05)
        logged = [(found[1], _path(found[2])) for found in _LOGGED.finditer(log.read_text()) if found[3] == "200"]
        for case_name, ours, theirs in zip(CASES, _parts(self.seen), _parts(logged), strict=True):
            self.assertEqual(ours, theirs, case_name)

    async def started(self, name: str, text: str, more: str) -> tuple[int, Path]:
        """Start a proxy; return its port, and the file of its log."""
        place = Path(self.mktemp()).resolve()
        place.mkdir(parents=True)
        port = free_port()
        (place / "conf").write_text(text.format(port=port, server=self.port, place=place, more=more))
        flags = ["-f", f"{place}/conf"] if name == "haproxy" else ["-c", f"{place}/conf", "-e", f"{place}/errors"]
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                [find_program(name) or name, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        for _ in range(int(PATIENCE / 0.05)):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return port, place / "log"
            await deferLater(reactor, 0.05)
        raise AssertionError(f"{name} doesn't listen: {(place / 'log').read_text()}")
