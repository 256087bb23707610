"""The samples of proxies, in the proxies, before a server: one table of cases for each (``tests.neighbours.proxied``)."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.authn.providers.authority import Authority
from tests.integration import postgres
from tests.integration.proxy import Proxy, certificate_file
from tests.neighbours.proxied import CLIENT, OPTIONS, Proxied, certificate, free_port, run_proxy, write_sample
from tests.neighbours.server import Server, wait_until
from tests.neighbours.table import Row, run_rows
from tests.programs import find_program

#: What stands around the sample of nginx on a machine.
_NGINX: Final = """\
daemon off;
master_process off;
pid {place}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    include {sample};
}}
"""

#: The same of Apache, as Debian builds it.
_APACHE: Final = """\
ServerRoot {place}
DefaultRuntimeDir {place}
PidFile {place}/pid
ErrorLog {place}/proxy.log
Listen 127.0.0.1:{port}
ServerName 127.0.0.1
{user}
{modules}
Include {sample}
"""
_MODULES: Final = Path("/usr/lib/apache2/modules")


class SamplesTests(SynchronousTestCase):
    """Each sample by itself, with everything that clients do."""

    skip = postgres.unavailable()

    def setUp(self) -> None:
        """Make a folder that PostgreSQL's user can pass."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.place = Path(tempfile.mkdtemp(prefix="svc-proxy-")).resolve()
        self.stack.callback(shutil.rmtree, self.place, ignore_errors=True)
        self.place.chmod(0o755)

    def program(self, name: str, package: str) -> str:
        """Return a proxy's program."""
        program = find_program(name)
        if program is None:
            raise SkipTest(f"{name} isn't installed (Debian's package {package})")
        return program

    def assert_right(self, rows: Iterable[Row]) -> None:
        """Fail unless every case comes out right."""
        told: list[str] = []
        self.assertEqual(list(run_rows(rows, told.append)), [], "\n".join(told))
        self.assertGreater(len(told), 30)

    def test_nginx(self) -> None:
        """What clients send arrives as it is through nginx with its sample, and clients' addresses can't be forged."""
        program = self.program("nginx", "nginx-light")
        server, authorities, port = Server(self.stack, self.place, *OPTIONS), certificate(self.place), free_port()
        places = {
            "listen 443 ": f"listen 127.0.0.1:{port} ",
            "/etc/nginx/": f"{self.place}/",
            "127.0.0.1:8080": server.url.partition("://")[2],
        }
        sample = write_sample("nginx.conf", self.place / "svc.conf", places)
        path = self.place / "nginx.conf"
        path.write_text(_NGINX.format(place=self.place, sample=sample))
        url = run_proxy(self.stack, self.place, port, program, "-c", str(path), "-e", "stderr")
        self.assert_right(Proxied(server, url, str(authorities), "nginx").rows())

    def test_apache(self) -> None:
        """What clients send arrives as it is through Apache with its sample, and clients' addresses can't be forged."""
        program = self.program("apache2", "apache2-bin")
        server, authorities, port = Server(self.stack, self.place, *OPTIONS), certificate(self.place), free_port()
        places = {
            "<VirtualHost *:443>": f"<VirtualHost 127.0.0.1:{port}>",
            "/etc/apache2/": f"{self.place}/",
            "127.0.0.1:8080": server.url.partition("://")[2],
        }
        sample = write_sample("apache.conf", self.place / "svc.conf", places)
        path = self.place / "apache2.conf"
        modules = ("mpm_event", "authz_core", "proxy", "proxy_http", "ssl", "headers", "env")
        path.write_text(
            _APACHE.format(
                place=self.place,
                port=port,
                user="User nobody\nGroup nogroup" if os.geteuid() == 0 else "",
                modules="\n".join(f"LoadModule {name}_module {_MODULES}/mod_{name}.so" for name in modules),
                sample=sample,
            )
        )
        url = run_proxy(self.stack, self.place, port, program, "-DFOREGROUND", "-f", str(path))
        self.assert_right(Proxied(server, url, str(authorities), "apache").rows())

    def before_tls(self, policy: str, listen: str, *more: str, places: dict[str, str]) -> Proxied:
        """Start a server with TLS, and HAProxy before it with these changes of its sample."""
        self.program("haproxy", "haproxy")
        authority = Authority()
        pem = certificate_file(self.place / "server.pem", authority)
        listens = f"{listen}:0:privateKey={pem}:certKey={pem}:interface=127.0.0.1"
        options = ("--listen=tcp:0:interface=127.0.0.1", f"--listen={listens}", *OPTIONS, *more)
        server = Server(self.stack, self.place, *options)
        second = re.search(r"^svc ready: \S+ https://127.0.0.1:(\d+)", server.log.read_text(), re.MULTILINE)
        assert second is not None, server.log.read_text()
        case: Any = self
        proxy = Proxy(case, authority, int(second[1]), free_port(), places)
        (self.place / "ca.pem").write_text(authority.pem)

        through = Proxied(server, f"https://127.0.0.1:{proxy.port}", str(self.place / "ca.pem"), policy)

        changes = 0

        def takes_changes() -> bool:
            nonlocal changes
            try:
                taken = through.ask("POST", "/policies/acme/policy/root").status == 401
            except OSError:
                return False
            # Until the first checks HAProxy takes every server for well.
            changes = changes + 1 if taken and "Server primary/two is DOWN" in proxy.log else 0
            return changes > 15

        wait_until(takes_changes, "the proxy takes no changes", 60)
        return through

    def test_haproxy(self) -> None:
        """What clients send arrives as it is through HAProxy with its sample, and clients' addresses can't be forged."""
        self.assert_right(self.before_tls("haproxy", "ssl", places={}).rows())

    def test_haproxy_with_headers(self) -> None:
        """The same where HAProxy names clients in PROXY headers before TLS, to several processes too (CFG-48, CFG-28)."""
        for version, more in (("", ()), ("-v2", ("--processes=2",))):
            places = {"tcp-ut 3s": f"send-proxy{version} tcp-ut 3s", "option forwardfor if-none": ""}
            through = self.before_tls("headed", "haproxy:ssl", *more, places=places)
            self.assert_right(through.rows())
            for _ in range(4):
                self.assertIn(f'"client_ip":"{CLIENT}"', through.whoami().text)
            self.stack.close()
            self.setUp()
