"""A server of several processes, over real sockets: what holds for one process holds for all of them together."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import signal
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from urllib.parse import quote

from twisted.internet.threads import deferToThread

from tests.audit.parsing import parse
from tests.certificates import LEAF_KEY, chain, pem
from tests.integration.client import Api, KeySetSite, workload_token
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerProcess, ServerTestCase, beat
from tests.server.test_endpoints import key_pem
from tests.signing import jwk, jwks

#: The processes that serve.
COUNT = 2

#: Seconds in which a process that dies or hangs must have been replaced, and what a busy machine is granted beside.
DEAD, HUNG, GRANTED = 2.0, 5.0, 8.0

PATH = "/secrets/acme/variable/apps%2Fpassword"


class Line:
    """A connection of a client, in a thread that blocks."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        host, _, port = url.partition("://")[2].rpartition(":")
        self.connection = (
            http.client.HTTPConnection(host, int(port), timeout=30)
            if context is None
            else http.client.HTTPSConnection(host, int(port), timeout=30, context=context)
        )

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """Ask, and return the status and the body."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, body, named)
        with self.connection.getresponse() as answer:
            return answer.status, answer.read()

    def close(self) -> None:
        """Close it."""
        self.connection.close()


class Load:
    """Clients that read a secret again and again; ``answered`` are the ids of their requests, ``lost`` counts the others."""

    def __init__(self, url: str, token: str, clients: int = 8) -> None:
        self.answered: list[str] = []
        self.lost = 0
        self.bad: Counter[int] = Counter()
        self._url, self._token = url, token
        self._over = Event()
        self._threads = [Thread(target=self._run) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        line = Line(self._url)
        while not self._over.is_set():
            try:
                line.connection.request("GET", PATH, headers={"Authorization": f'Token token="{self._token}"'})
                with line.connection.getresponse() as answer:
                    answer.read()
                    request_id = answer.headers["X-Request-Id"]
            except (OSError, http.client.HTTPException):
                self.lost += 1
                line.close()
                line = Line(self._url)
                continue
            if answer.status == 200:
                self.answered.append(request_id)
            else:
                self.bad[answer.status] += 1
        line.close()

    def stop(self) -> None:
        """End, and wait for that."""
        self._over.set()
        for thread in self._threads:
            thread.join()


class ProcessesCase(PostgresTestCase, ServerTestCase):
    """A server of two processes that serve."""

    skip = unavailable()
    timeout = 240
    options: tuple[str, ...] = ()

    async def prepare(self) -> None:
        """Start it."""
        await super().prepare()
        self.process: ServerProcess = self.serve(
            "--account=acme",
            f"--processes={COUNT}",
            "--health-interval=1",
            *self.options,
            database_url=await self.create_database(migrated=False),
        )
        self.url = await self.process.ready()
        self.admin_key = self.process.admin_key()
        self.api = Api.of(self, self.url)

    async def until(self, check: Callable[[], bool], seconds: float) -> float:
        """Wait until something is so, no longer than this; how long it took."""
        began = time.monotonic()
        while not check():
            self.assertLess(time.monotonic() - began, seconds, self.process.said)
            await beat()
        return time.monotonic() - began

    async def lines(self, count: int, path: str) -> list[tuple[int, bytes]]:
        """Ask on so many connections, all open at once, so that every process has some."""

        def ask() -> list[tuple[int, bytes]]:
            opened = [Line(self.url) for _ in range(count)]
            answers = [line.ask("GET", path) for line in opened]
            for line in opened:
                line.close()
            return answers

        return await deferToThread(ask)


class LifeTests(ProcessesCase):
    """Deaths, hangs, signals, and what is kept through them."""

    async def prepare(self) -> None:
        """Start it with an audit file, counters, and a secret."""
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        self.audit = self.folder / "audit.log"
        self.options = (f"--audit-file={self.audit}", "--metrics-listen=tcp:0:interface=127.0.0.1")
        await super().prepare()
        self.token = await self.api.authenticate("admin", self.admin_key)
        policy = b"- !policy\n  id: apps\n  body:\n    - !variable password\n"
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", policy, self.token)
        self.assertEqual(loaded.status, 201)
        await self.api.ask("POST", self.api.variable("apps/password"), b"s3cret", self.token)
        said = self.process.stdout.decode()
        self.counters = "http://" + said.partition("Metrics are served at http://")[2].split()[0]

    async def counted(self) -> float:
        """How many readings of the secret all processes have counted."""

        def read() -> bytes:
            line = Line(self.counters)
            status, body = line.ask("GET", "/metrics")
            line.close()
            assert status == 200
            return body

        text = (await deferToThread(read)).decode()
        found = re.findall(r'(?m)^svc_requests_total\{operation="GET /secrets[^}]*status="200"\} (\S+)', text)
        return sum(map(float, found))

    async def test_life(self) -> None:
        """A process that is killed under load loses its own requests alone and is back within two seconds, and one that
        hangs is noticed within five (CFG-29). Meanwhile each answered request has one record, in a whole line, also after
        ``SIGHUP`` (CFG-31, CFG-37), counters don't run backwards (CFG-36), and ``SIGTERM`` lets requests end (CFG-31).
        """
        await self.until(lambda: len(self.process.workers()) == COUNT + 1, 30)
        load = Load(self.url, self.token)
        self.addCleanup(load.stop)
        await self.until(lambda: len(load.answered) > 200, 30)
        before = await self.counted()
        self.assertGreater(before, 100)

        said, victim = len(self.process.stdout), min(self.process.workers())
        os.kill(victim, signal.SIGKILL)
        await self.process.says("has died", said)
        await self.until(lambda: b" serves" in self.process.stdout[said:], DEAD + GRANTED)
        # Each client lost the request that it waited for, and no other.
        self.assertLessEqual(load.lost, 8)

        await self.until(lambda: len(self.process.workers()) == COUNT + 1, 30)
        said, lost = len(self.process.stdout), load.lost
        os.kill(self.busy(), signal.SIGSTOP)
        await self.until(lambda: b"hangs, and is killed" in self.process.stdout[said:], HUNG + GRANTED)
        await self.until(lambda: b" serves" in self.process.stdout[said:], GRANTED)
        self.assertLessEqual(load.lost - lost, 8)

        moved = self.folder / "moved.log"
        self.audit.rename(moved)
        self.process.signal(signal.SIGHUP)
        await self.until(lambda: self.audit.exists() and self.audit.stat().st_size > 100_000, 30)
        size = moved.stat().st_size
        self.assertGreaterEqual(await self.counted(), before)
        await self.until(lambda: self.audit.stat().st_size > 200_000, 30)
        self.assertEqual(moved.stat().st_size, size, "a process goes on in the file that was moved")
        await deferToThread(load.stop)

        self.assertEqual(load.bad, {})
        kept = Counter(
            record.procid
            for path in (moved, self.audit)
            for record in map(parse, path.read_bytes().splitlines())
            if record.msgid == "fetch"
        )
        answered = Counter(load.answered)
        self.assertEqual(max(answered.values()), 1)
        self.assertEqual([each for each in answered if kept[each] != 1], [])

        waiting = Line(self.url)
        waiting.connection.putrequest("POST", f"/authn/acme/{quote('admin')}/authenticate")
        waiting.connection.putheader("Content-Length", str(len(self.admin_key)))
        waiting.connection.endheaders(self.admin_key[:5].encode())
        await beat()
        self.process.signal(signal.SIGTERM)
        await self.process.says("Closed")
        for _ in range(10):
            await beat()
        waiting.connection.send(self.admin_key[5:].encode())
        status = await deferToThread(lambda: waiting.connection.getresponse().status)
        self.assertEqual(status, 200)
        waiting.close()
        self.assertEqual(await self.process.ended(), 0)

    def busy(self) -> int:
        """A process that serves."""
        return max(self.process.workers(), key=_ticks)

    async def test_orphans(self) -> None:
        """When the process that supervises is killed, the others end at once (CFG-29)."""
        found = await self.found()
        os.kill(self.process.pid, signal.SIGKILL)
        await self.process.ended()
        await self.until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in found), 10)

    async def found(self) -> set[int]:
        """All processes, once they are complete."""
        await self.until(lambda: len(self.process.workers()) == COUNT + 1, 30)
        return self.process.workers()


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


class OneServerTests(ProcessesCase):
    """What is counted for the server, whichever of its processes is asked."""

    options = (
        "--authenticators=authn,authn-jwt/ci",
        "--allow-http-providers",
        "--allow-private-providers=127.0.0.0/8",
        "--jwks-refetch-interval=600",
        "--connection-limit-per-address=200",
    )

    async def prepare(self) -> None:
        """Set up a provider beside it."""
        await super().prepare()
        self.provider = KeySetSite(self)
        await self.api.set_up(self.admin_key, self.provider.uri)

    async def test_one_server(self) -> None:
        """Health is the same from every process (CFG-35). Guesses count together, and so do failures of an address (CFG-32);
        a provider's keys are fetched once for all (CFG-33).
        """
        answers = await self.lines(12, "/health")
        while 502 in dict(answers):
            await beat()  # a check that a busy machine made too slow works in the next round
            answers = await self.lines(12, "/health")
        services = [json.loads(body)["services"] for _, body in answers]
        self.assertEqual({status for status, _ in answers}, {200})
        self.assertEqual(services, services[:1] * len(services))
        self.assertEqual(services[0]["workers"], "ok")

        await self.fetched_once()
        await self.guesses_together()
        await self.addresses_together()
        self.assertEqual(await self.process.stop(), 0)

    async def fetched_once(self) -> None:
        """Logins on many connections need one fetch; forged ones need one more, which nobody is owed for a long time."""
        body = b"jwt=" + workload_token()

        def log_in(body: bytes) -> list[int]:
            opened = [Line(self.url) for _ in range(12)]
            found = [line.ask("POST", "/authn-jwt/ci/acme/authenticate", body)[0] for line in opened]
            for line in opened:
                line.close()
            return found

        self.assertEqual(await deferToThread(log_in, body), [200] * 12)
        self.assertEqual(self.provider.asked, 1)
        self.provider.document = jwks(jwk("k1"), jwk("k2"))
        self.assertEqual(await deferToThread(log_in, b"jwt=" + workload_token("k2")), [200] * 12)
        self.assertEqual(self.provider.asked, 2)
        forged = await deferToThread(log_in, b"jwt=" + workload_token("k3"))
        self.assertNotIn(200, forged)
        self.assertEqual(self.provider.asked, 2)
        self.assertEqual(await deferToThread(log_in, body), [200] * 12)

    async def guesses_together(self) -> None:
        """Ten failures at once, the eleventh late, on whichever connections."""

        def guess(address: str, key: bytes = b"wrong") -> tuple[int, float]:
            line, began = Line(self.url), time.monotonic()
            status, _ = line.ask("POST", "/authn/acme/alice/authenticate", key, X_Forwarded_For=address)
            line.close()
            return status, time.monotonic() - began

        took = [await deferToThread(guess, f"192.0.2.{number}") for number in range(10)]
        self.assertEqual({status for status, _ in took}, {401})
        status, seconds = await deferToThread(guess, "192.0.2.99")
        self.assertEqual(status, 401)
        self.assertGreaterEqual(seconds, 1.0)
        status, seconds = await deferToThread(guess, "192.0.2.98")
        self.assertGreaterEqual(seconds, 2.0)

    async def addresses_together(self) -> None:
        """Three hundred failures from one address have all processes refuse it, and no other."""

        def guess(address: str, count: int) -> list[int]:
            opened = [Line(self.url) for _ in range(6)]
            found = [
                opened[number % 6].ask(
                    "POST", f"/authn/acme/nobody{number}/authenticate", b"wrong", X_Forwarded_For=address
                )[0]
                for number in range(count)
            ]
            for line in opened:
                line.close()
            return found

        found = await deferToThread(guess, "198.51.100.7", 310)
        self.assertEqual(Counter(found[:299]), {401: 299})
        self.assertEqual(Counter(found[302:]), {429: 8})
        self.assertEqual(await deferToThread(guess, "198.51.100.8", 6), [401] * 6)


class PlaceTests(PostgresTestCase, ServerTestCase):
    """Where such a server listens."""

    skip = unavailable()
    timeout = 240

    async def test_tls_and_unix(self) -> None:
        """All processes accept at ports with TLS, and at sockets in the file system, whose mode stays (CFG-28)."""
        folder = Path(self.mktemp()).resolve()
        folder.mkdir()
        certificate = chain("the host's name")
        (folder / "cert.pem").write_text(pem(*certificate.certificates))
        (folder / "key.pem").write_text(key_pem(LEAF_KEY))
        # The path of a socket may have a hundred bytes only.
        path = f"/tmp/svc-{os.getpid()}.socket"
        server = self.serve(
            "--processes=2",
            f"--listen=unix:{path}:mode=600",
            database_url=await self.create_database(migrated=False),
            listen=f"ssl:0:interface=127.0.0.1:privateKey={folder}/key.pem:certKey={folder}/cert.pem",
        )
        url, other = await server.urls()
        self.assertTrue(url.startswith("https://"))
        self.assertEqual(other, f"http+unix:{path}")

        def ask() -> set[int]:
            opened = [Line(url, ssl._create_unverified_context()) for _ in range(8)]
            found = {line.ask("GET", "/livez")[0] for line in opened}
            for line in opened:
                line.close()
            return found

        def ask_socket() -> bytes:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
                connection.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
                return connection.recv(1000)

        self.assertEqual(await deferToThread(ask), {200})
        self.assertIn(b"200 OK", await deferToThread(ask_socket))
        self.assertEqual(Path(path).stat().st_mode & 0o777, 0o600)
        self.assertEqual(await server.stop(), 0)
        self.assertFalse(Path(path).exists())

    async def test_port_in_use(self) -> None:
        """A start that can't succeed ends as that of one process does, and leaves none behind (CFG-13)."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            server = self.serve(
                "--processes=2",
                database_url=await self.create_database(migrated=False),
                listen=f"tcp:{port}:interface=127.0.0.1",
            )
            self.assertIn(f"it cannot listen at tcp:{port}", await self.refused(server))

    async def test_embedded(self) -> None:
        """The embedded database is that of all processes, and stops after them; its port may be one that systemd has opened
        (CFG-28).
        """
        with socket.socket() as opened:
            opened.bind(("127.0.0.1", 0))
            opened.listen()
            port = opened.getsockname()[1]
            server = self.activated(opened)
            url = await server.ready()
        self.assertEqual(url, f"http://127.0.0.1:{port}")
        api = Api.of(self, url)
        token = await api.authenticate("admin", server.admin_key())
        self.assertTrue(base64.b64decode(token))
        answers = [(await api.ask("GET", "/whoami", token=token)).status for _ in range(4)]
        self.assertEqual(answers, [200] * 4)
        self.assertEqual(await server.stop(), 0)

    def activated(self, opened: socket.socket) -> ServerProcess:
        """Start a server as systemd does, with a socket that is open."""
        kept = os.dup(opened.fileno())
        self.addCleanup(os.close, kept)
        shell = 'LISTEN_FDS=1 LISTEN_FDNAMES=svc LISTEN_PID=$$ exec "$@"'
        return self.serve(
            "--account=acme",
            "--processes=2",
            listen="systemd:domain=INET:index=0",
            wrapped=("/bin/sh", "-c", shell, "sh"),
            descriptors={0: 0, 1: "r", 2: "r", 3: kept},
        )
