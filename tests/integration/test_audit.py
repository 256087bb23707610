"""The audit of a server as its users run it: files, a receiver of syslog, and what becomes of requests when these fail."""

from __future__ import annotations

import re
import resource
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IAddress, IReactorSocket
from twisted.internet.protocol import Protocol, ServerFactory

from tests.audit.parsing import Parsed, parse
from tests.integration.client import Api
from tests.integration.postgres import unavailable
from tests.integration.process import ServerProcess, ServerTestCase, beat

POLICY = b"- !variable db\n- !host app\n- !permit {role: !host app, privileges: [read, execute], resources: !variable db}\n"
DB = "/secrets/acme/variable/db"
VALUE = b"the secret value"

#: So many values are asked for at once where many records are wanted.
MANY = 1000


class Receiver(ServerFactory):
    """A receiver of syslog that can stop reading; ``records`` are those that have arrived."""

    noisy = False

    def __init__(self) -> None:
        self.received = b""
        self.connections: list[Protocol] = []
        self.reads = True

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        """Take a connection."""
        factory = self

        class Connection(Protocol):
            def connectionMade(self) -> None:
                factory.connections.append(self)
                if not factory.reads:
                    self.transport.pauseProducing()  # type: ignore[union-attr]

            def dataReceived(self, data: bytes) -> None:
                factory.received += data

        return Connection()

    def hold(self) -> None:
        """Read nothing any more."""
        self.reads = False
        for connection in self.connections:
            connection.transport.pauseProducing()  # type: ignore[union-attr]

    def read(self) -> None:
        """Read again."""
        self.reads = True
        for connection in self.connections:
            connection.transport.resumeProducing()  # type: ignore[union-attr]

    @property
    def records(self) -> list[Parsed]:
        """What has arrived whole, but for what tries the audit."""
        found, rest = [], self.received
        while matched := re.match(rb"([1-9][0-9]*) ", rest):
            start, end = matched.end(), matched.end() + int(matched[1])
            if len(rest) < end:
                break
            found.append(parse(rest[start:end]))
            rest = rest[end:]
        return besides_health(found)


def besides_health(records: list[Parsed]) -> list[Parsed]:
    """The records without those by which a server tries its audit, whenever it has nothing else to record."""
    return [record for record in records if record.msgid != "health"]


class AuditCase(ServerTestCase):
    """A server that has a secret."""

    skip = unavailable()

    async def begin(self, *options: str) -> ServerProcess:
        """Start a server with an audit file, and set a secret."""
        self.audit = Path(self.mktemp()).resolve()
        process = self.serve("--account=acme", f"--audit-file={self.audit}", *options)
        self.api = Api.of(self, await process.ready())
        self.admin_key = process.admin_key()
        self.admin = await self.api.authenticate("admin", self.admin_key)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", POLICY, self.admin)
        self.host_key = loaded.json()["created_roles"]["acme:host:app"]["api_key"]
        self.assertEqual((await self.api.ask("POST", DB, VALUE, self.admin)).status, 201)
        return process

    def records(self, *more: Path) -> list[Parsed]:
        """Every record in the audit file, and in others, but for those that try the audit: each line is one."""
        lines = [line for path in (*more, self.audit) for line in path.read_bytes().splitlines(keepends=True)]
        self.assertEqual([line for line in lines if not line.endswith(b"\n")], [])
        return besides_health([parse(line[:-1]) for line in lines])

    async def ask_for_many(self) -> int:
        """Ask for values that there aren't; the status."""
        ids = ",".join(f"acme:variable:v{number}" for number in range(MANY))
        return (await self.api.ask("GET", f"/secrets?variable_ids={quote(ids, safe=':,')}", token=self.admin)).status


class RecordsTests(AuditCase):
    """The records."""

    async def test_a_day(self) -> None:
        """A login, a load, a write and a reading are in the file when they are answered; changes are told over HTTP too
        (AUD-24).
        """
        process = await self.begin()
        answer = await self.api.ask("GET", DB, token=self.admin, X_Request_Id="r-42")
        self.assertEqual((answer.status, answer.body), (200, VALUE))
        records = self.records()
        last = records[-1]
        self.assertEqual((last.priority, last.appname, last.procid, last.msgid), (86, "svc", "r-42", "fetch"))
        self.assertEqual(last.message, "acme:user:admin fetched acme:variable:db")
        self.assertEqual(last.data["client@43868"], {"ip": "127.0.0.1"})
        kinds = {(record.msgid, record.data["action@43868"]["operation"]) for record in records}
        for expected in (("authn", "authenticate"), ("policy", "add"), ("policy", "load"), ("update", "update")):
            self.assertIn(expected, kinds)
        self.assertEqual(len([record for record in records if record.priority == 85]), 7)
        text = self.audit.read_bytes()
        for secret in (VALUE, self.admin_key.encode(), self.host_key.encode(), self.admin.encode()):
            self.assertNotIn(secret, text)
        listed = (await self.api.ask("GET", "/audit/resources/acme:variable:db", token=self.admin)).json()
        self.assertEqual([event["msgid"] for event in listed], ["update", "policy", "policy", "policy"])
        self.assertEqual(self.audit.stat().st_mode & 0o777, 0o600)
        self.assertEqual(await process.stop(), 0)

    async def test_standard_output(self) -> None:
        """Without a setting, records are lines of standard output, beside the log, each at the beginning of its line
        (AUD-15).
        """
        process = self.serve("--account=acme")
        api = Api.of(self, await process.ready())
        await api.authenticate("admin", process.admin_key())
        await process.says("successfully authenticated")
        [line] = [line for line in process.stdout.splitlines() if b"successfully authenticated" in line]
        self.assertEqual(parse(line).msgid, "authn")
        self.assertEqual(await process.stop(), 0)

    async def test_a_large_load(self) -> None:
        """A load that another process does has its rows recorded as any other, before it is answered (AUD-5)."""
        await self.begin()
        policy = b"".join(b"- !variable many/%d\n" % number for number in range(3000))
        answer = await self.api.ask("POST", "/policies/acme/policy/root", policy, self.admin)
        self.assertEqual(answer.status, 201)
        added = {record.data["subject@43868"]["resource"] for record in self.records() if "many/" in record.message}
        self.assertEqual(len(added), 3000)


class FaultTests(AuditCase):
    """Files that can't be written, or are replaced."""

    def allow(self, process: ServerProcess, size: int) -> None:
        """Let the server's files have so many bytes at most, as when a disk is full."""
        for pid in (process.pid, *process.workers()):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    async def test_full_disk(self) -> None:
        """While the disk is full nothing secret is answered; when there is room again it is, and no line is torn (AUD-16,
        AUD-20).
        """
        await self.fill_disk()

    async def test_full_disk_of_several_processes(self) -> None:
        """It is the same where several processes write to the file (CFG-37)."""
        await self.fill_disk("--processes=2")

    async def fill_disk(self, *options: str) -> None:
        """Fill the disk of a server, and make room again."""
        process = await self.begin("--health-interval=0.5", *options)
        self.allow(process, self.audit.stat().st_size + 20)
        for path in (DB, "/secrets?variable_ids=acme:variable:db"):
            answer = await self.api.ask("GET", path, token=self.admin)
            self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "1"))
            self.assertNotIn(VALUE, answer.body)
        login = await self.api.ask("POST", "/authn/acme/admin/authenticate", self.admin_key.encode())
        self.assertEqual(login.status, 503)
        self.assertEqual((await self.api.ask("POST", DB, b"another", self.admin)).status, 503)
        self.assertEqual((await self.api.ask("GET", "/authenticators")).status, 200)
        while (await self.api.ask("GET", "/readyz")).status == 200:
            await beat()
        self.allow(process, resource.RLIM_INFINITY)
        while (answer := await self.api.ask("GET", DB, token=self.admin)).status == 503:
            await beat()
        self.assertEqual((answer.status, answer.body), (200, VALUE))
        self.assertEqual([record.msgid for record in self.records()][-2:], ["fetch", "fetch"])
        await process.says("Audit records can't go to")
        await process.says("again")

    async def test_full_disk_and_going_on(self) -> None:
        """Where operators prefer that, requests are answered while the disk is full, and recorded when there is room
        (AUD-21).
        """
        process = await self.begin("--audit-failure=continue", "--health-interval=0.5")
        self.allow(process, self.audit.stat().st_size + 20)
        for _ in range(3):
            self.assertEqual((await self.api.ask("GET", DB, token=self.admin)).body, VALUE)
        while (await self.api.ask("GET", "/health")).status == 200:
            await beat()
        # On a busy machine a round of checks may be late, and the server unready for so long.
        while (await self.api.ask("GET", "/readyz")).status != 200:
            await beat()
        self.allow(process, resource.RLIM_INFINITY)
        while self.audit.read_bytes().count(b" fetched acme:variable:db\n") < 3:
            await beat()
        self.assertEqual([record.msgid for record in self.records()][-3:], ["fetch"] * 3)

    async def test_a_pipe_that_nobody_reads(self) -> None:
        """When nobody reads standard output, requests that are audited are refused, others answered; then all goes on
        (AUD-18).
        """
        process = self.serve("--account=acme")
        self.api = Api.of(self, await process.ready())
        self.admin = await self.api.authenticate("admin", process.admin_key())
        output: Any = process.transport.pipes[1]  # type: ignore[union-attr] # Twisted's
        output.pauseProducing()
        while await self.ask_for_many() != 503:
            await beat()
        for _ in range(300):
            self.assertEqual((await self.api.ask("GET", "/whoami", token=self.admin)).status, 503)
        self.assertEqual((await self.api.ask("GET", "/authenticators")).status, 200)
        output.resumeProducing()
        while (await self.api.ask("GET", "/whoami", token=self.admin)).status == 503:
            await beat()
        self.assertEqual(await process.stop(), 0)
        for line in process.stdout.splitlines():
            if line.startswith(b"<"):
                parse(line)

    async def test_rotation_under_load(self) -> None:
        """An operator who moves the file away under load and sends SIGHUP loses no record (AUD-17)."""
        process = await self.begin()
        answered, rotated = [0], list[Path]()

        async def ask() -> None:
            while len(rotated) < 5:
                self.assertEqual((await self.api.ask("GET", "/whoami", token=self.admin)).status, 200)
                answered[0] += 1

        asking = gatherResults([Deferred.fromCoroutine(ask()) for _ in range(4)], consumeErrors=True)
        while len(rotated) < 5:
            path = self.audit.with_suffix(f".{len(rotated)}")
            self.audit.rename(path)
            rotated.append(path)
            process.signal(signal.SIGHUP)
            while not self.audit.exists():
                await beat()
            await beat()
        await asking
        checks = [record for record in self.records(*rotated) if record.msgid == "identity-check"]
        self.assertEqual(len(checks), answered[0])

    async def test_kill(self) -> None:
        """A server that is killed leaves whole lines, and a record of everything that it answered (AUD-1)."""
        process = await self.begin()
        answered = list[str]()

        async def ask(number: int) -> None:
            for turn in range(10_000):
                name = f"r-{number}-{turn}"
                await self.api.ask("GET", DB, token=self.admin, X_Request_Id=name)
                answered.append(name)

        asking = [Deferred.fromCoroutine(ask(number)) for number in range(4)]
        for each in asking:
            each.addErrback(lambda _: None)
        while len(answered) < 100:
            await beat()
        await process.kill()
        await gatherResults(asking)
        self.assertEqual(set(answered) - {record.procid for record in self.records()}, set())


class SyslogTests(AuditCase):
    """A receiver of syslog."""

    def listen(self) -> tuple[Receiver, str]:
        """Start a receiver, with little room in its socket, and return its endpoint."""
        listener, receiver = socket.socket(), Receiver()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        port = IReactorSocket(installed_reactor).adoptStreamPort(listener.fileno(), socket.AF_INET, receiver)
        number = listener.getsockname()[1]
        listener.close()
        self.addCleanup(port.stopListening)
        return receiver, f"tcp:127.0.0.1:{number}"

    async def test_records_arrive(self) -> None:
        """Records go to the receiver as they go to the file; when it comes back after a while, they go there again (AUD-15,
        AUD-19).
        """
        receiver, endpoint = self.listen()
        process = await self.begin(f"--audit-syslog={endpoint}")
        while len(receiver.records) < len(self.records()):
            await beat()
        self.assertEqual([record.procid for record in receiver.records], [record.procid for record in self.records()])
        receiver.connections[0].transport.abortConnection()  # type: ignore[union-attr]
        while len(receiver.connections) < 2:
            await beat()
        receiver.received = b""
        while (await self.api.ask("GET", DB, token=self.admin)).status == 503:
            await beat()
        while not receiver.records:
            await beat()
        self.assertEqual(receiver.records[-1].msgid, "fetch")
        self.assertEqual(await process.stop(), 0)

    async def test_a_receiver_that_blocks(self) -> None:
        """While the receiver reads nothing, requests wait, are refused, and hold up nobody else; then all goes on."""
        receiver, endpoint = self.listen()
        await self.begin(f"--audit-syslog={endpoint}")
        receiver.hold()
        statuses = []
        while 503 not in statuses:
            statuses.append(await self.ask_for_many())
            self.assertLess(len(statuses), 200)
        self.assertEqual((await self.api.ask("GET", DB, token=self.admin)).status, 503)
        self.assertEqual((await self.api.ask("GET", "/authenticators")).status, 200)
        receiver.read()
        while (await self.api.ask("GET", DB, token=self.admin)).status == 503:
            await beat()
        self.assertEqual((await self.api.ask("GET", DB, token=self.admin)).body, VALUE)
        while len(receiver.records) < len(self.records()):
            await beat()
