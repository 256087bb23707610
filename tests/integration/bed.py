"""What faults are tried on: a primary and a follower, each a server on a PostgreSQL of its own, with all that stands around.

The two list each other as members of their cluster, and a third member beside (``bystanders.py``). Both record audit in a
file on a small disk and to a receiver of syslog, and both ask one LDAP directory. Health is judged every second.

There is one bed for each test process, made on first use: :func:`the_bed`. Nothing of it hangs on the reactor, so that it
goes on from test to test. A shell watches, and removes it when the process ends, however it ends.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from treq.client import HTTPClient
from twisted.internet import reactor as installed_reactor
from twisted.internet.task import deferLater
from twisted.web.client import Agent

import svc
from tests.integration import slapd
from tests.integration.bystanders import Member, Receiver
from tests.integration.client import Api
from tests.integration.postgres import PATIENCE, Server
from tests.integration.process import DATA_KEY
from tests.integration.replication import CONFLICT_SETTINGS, SETTINGS, Pair
from tests.integration.slapd import BASE, SERVICE, SERVICE_PASSWORD, Slapd

reactor: Any = installed_reactor

#: Seconds from one round of health checks to the next.
INTERVAL: Final = 1.0

#: The database, and whom the servers connect as, who is no superuser.
DATABASE: Final = "svc"
ROLE: Final = "service"

#: The third member of the cluster.
THIRD: Final = "third"

#: Sessions of PostgreSQL's, few, so that they can all be taken.
CONNECTIONS: Final = 40

#: Little log is kept, only what the standby lacks, so that a small disk has room for it: megabytes.
_DISK: Final = 256
_SLOT: Final = "standby"
_LITTLE_LOG: Final = {
    "max_connections": str(CONNECTIONS),
    "wal_keep_size": "0",
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    "wal_recycle": "off",
}

#: Waits for the end of the test process, then ends what it left behind.
_WATCH: Final = """
cat >/dev/null
for pid in $(cat "$1/pids"); do kill -CONT "$pid"; kill -KILL "$pid"; done 2>/dev/null
sleep 3
for disk in "$1"/disks/*; do umount -l "$disk"; done 2>/dev/null
rm -rf "$1"
"""

_POLICY: Final = """
- !variable password
"""

#: Loaded where there is a directory. Without it the authenticator is listed, and the health check has nothing to bind to.
_DIRECTORY_POLICY: Final = f"""
- !group people
- !policy
  id: svc/authn-ldap/corp
  body:
    - !webservice
      annotations:
        ldap-authn/base_dn: {BASE}
        ldap-authn/bind_dn: {SERVICE}
        ldap-authn/uri: "ldap://127.0.0.1:{{port}}"
    - !variable bind-password
    - !variable tls-ca-cert
    - !permit {{{{ role: !group /people, privileges: [ read, authenticate ], resource: !webservice }}}}
"""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def may_mount() -> bool:
    """Whether this process may mount a disk."""
    with tempfile.TemporaryDirectory(prefix="svc-mount-", dir="/tmp") as place:
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], capture_output=True, check=False).returncode:
            return False
        subprocess.run(["umount", "-l", place], check=True)
        return True


class Disk:
    """A small disk, that can be filled; where none may be mounted it is a folder that can't."""

    def __init__(self, place: Path, megabytes: int) -> None:
        self.place = place
        place.mkdir(parents=True)
        self.mounted = may_mount()
        if self.mounted:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)], check=True)

    def fill(self) -> None:
        """Leave no byte of room."""
        with (self.place / "filler").open("ab", buffering=0) as filler:
            for size in (1 << 20, 1 << 12, 1):
                while True:
                    try:
                        filler.write(b"\0" * size)
                    except OSError:
                        break

    def clear(self) -> None:
        """Take that back."""
        (self.place / "filler").unlink(missing_ok=True)

    def remove(self) -> None:
        """Unmount it."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.place)], check=False)


class Side:
    """One server, its PostgreSQL, and what only it has. ``disk`` holds PostgreSQL's log, ``audit_disk`` the audit file."""

    def __init__(self, name: str, postgres: Server, directory: Path) -> None:
        self.name = name
        self.postgres = postgres
        self.directory = directory / name
        self.directory.mkdir()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.disk = Disk(directory / "disks" / f"{name}-log", _DISK)
        self.audit_disk = Disk(directory / "disks" / f"{name}-audit", 64)
        self.receiver = Receiver()
        #: By how many seconds the server's clock is before ours.
        self.clock = 0.0
        self._offset = self.directory / "offset"
        self.set_clock(0)
        self._pids = directory / "pids"
        self._command: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._move_log()

    def _move_log(self) -> None:
        """Have PostgreSQL, which doesn't run yet, keep its log on the disk."""
        log = self.postgres.directory / "data" / "pg_wal"
        owner = log.stat()
        place = self.disk.place / "pg_wal"
        shutil.copytree(log, place)
        shutil.rmtree(log)
        log.symlink_to(place)
        for each in (place, *place.rglob("*")):
            os.chown(each, owner.st_uid, owner.st_gid)
            each.chmod(0o700 if each.is_dir() else 0o600)

    @property
    def log(self) -> str:
        """What the server has said."""
        path = self.directory / "log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def command(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask its PostgreSQL, in the servers' database, as the superuser."""
        return self.postgres.command(sql, DATABASE)

    def launch(self, *options: str) -> None:
        """Start the server, with the options that it was started with before unless there are some."""
        if options:
            twistd = str(Path(sys.executable).with_name("twistd"))
            dsn = f"host={self.postgres.directory} user={ROLE} dbname={DATABASE}"
            self._command = [
                *(twistd, "-n", "--pidfile=", "svc"),
                *("--data-dir", str(self.directory / "home"), "--listen", f"tcp:{self.port}:interface=127.0.0.1"),
                *("--database-url", dsn, *options),
            ]
        source = Path(svc.__file__).resolve().parent.parent
        environ = {
            "PYTHONPATH": f"{Path(__file__).resolve().parent / 'shifted'}:{source}",
            "TESTS_CLOCK_OFFSET": str(self._offset),
            "PATH": os.defpath,
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "SERVICE_DATA_KEY": DATA_KEY,
        }
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, cwd=self.directory
            )
        with self._pids.open("a") as pids:
            pids.write(f"{self._process.pid}\n")

    async def ready(self) -> None:
        """Wait until the server says that it is ready."""
        for _ in range(int(PATIENCE / 0.05)):
            if "svc ready: " in self.log:
                return
            assert self._process is not None and self._process.poll() is None, f"it ended: {self.log}"
            await deferLater(reactor, 0.05)
        raise AssertionError(f"{self.name} isn't ready: {self.log}")

    def signal(self, number: signal.Signals) -> None:
        """Send the server a signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """``kill -9``, in whatever state it is."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def set_clock(self, seconds: float) -> None:
        """Have the server's clock go so much before ours."""
        fresh = self._offset.with_suffix(".new")
        fresh.write_text(f"{seconds}")
        fresh.replace(self._offset)
        self.clock = seconds


class Bed:
    """All of it; ``primary`` and ``follower`` are the two sides."""

    primary: Side
    follower: Side
    pair: Pair

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="svc-bed-", dir="/tmp"))
        self.directory.chmod(0o755)
        (self.directory / "pids").touch()
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "watch", str(self.directory)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._ends: list[Callable[[], object]] = []
        #: What injecting a fault kept for its undoing.
        self.kept: list[Any] = []
        self.member = Member(self.directory)
        self._ends.append(self.member.end)
        self.slapd = None if slapd.unavailable() else Slapd(self.directory / "slapd", {"alice": "alice's"}, "twice")
        atexit.register(self.destroy)

    async def start(self) -> None:
        """Start everything, which takes some seconds."""
        if self.slapd is not None:
            await self.slapd.start()
            self._ends.append(self.slapd.kill)
        self.primary = self._side("primary", Server(settings={**SETTINGS, **_LITTLE_LOG}))
        await self.primary.postgres.start()
        self.primary.postgres.command(f"CREATE ROLE {ROLE} LOGIN")
        self.primary.postgres.command(f"CREATE DATABASE {DATABASE} OWNER {ROLE} TEMPLATE template0")
        self.primary.postgres.command(f"SELECT pg_create_physical_replication_slot('{_SLOT}', true)")
        settings = {**SETTINGS, **CONFLICT_SETTINGS, **_LITTLE_LOG, "primary_slot_name": _SLOT}
        self.follower = self._side("follower", Server(origin=self.primary.postgres, settings=settings))
        await self.follower.postgres.start()
        self.pair = Pair(self.primary.postgres, self.follower.postgres)
        self._ends.append(lambda: self.pair.link.unlink(missing_ok=True))
        # Each names the other, so both are made before one is started.
        self.primary.launch(*self._options(self.primary, self.follower))
        await self.primary.ready()
        await self._load()
        await self.pair.caught_up()
        self.follower.launch(*self._options(self.follower, self.primary))
        await self.follower.ready()

    def _side(self, name: str, postgres: Server) -> Side:
        self._ends.append(postgres.destroy)
        side = Side(name, postgres, self.directory)
        self._ends += [side.disk.remove, side.audit_disk.remove, side.receiver.end, side.kill]
        return side

    def _options(self, side: Side, other: Side) -> list[str]:
        return [
            "--account=acme",
            "--authenticators=authn,authn-ldap/corp",
            "--allow-private-providers=127.0.0.0/8",
            f"--health-interval={INTERVAL:g}",
            f"--expiration-interval={INTERVAL:g}",
            "--statement-timeout=2",
            "--login-throttle=off",
            "--user-token-ttl=18000",
            f"--cluster={other.name}={other.url},{THIRD}={self.member.url}",
            f"--cluster-ca={self.member.authority}",
            f"--audit-file={side.audit_disk.place / 'audit'}",
            f"--audit-syslog=tcp:127.0.0.1:{side.receiver.port}",
        ]

    async def _load(self) -> None:
        """Load policy and set variables, on the primary."""
        line = self.primary.log.partition("API key for admin: ")[2]
        api = Api(self.primary.url, "acme", HTTPClient(Agent(reactor)))
        #: What asks the primary with the rights of its admin.
        token = await api.authenticate("admin", line.split()[0])
        self.api, self.admin = api, token
        await self._load_policy(_POLICY)
        if self.slapd is None:
            return
        await self._load_policy(_DIRECTORY_POLICY.format(port=self.slapd.port))
        for name, value in (("bind-password", SERVICE_PASSWORD), ("tls-ca-cert", self.slapd.authority.pem)):
            await self.set_variable(f"svc/authn-ldap/corp/{name}", value)

    async def _load_policy(self, text: str) -> None:
        answer = await self.api.ask("POST", "/policies/acme/policy/root", text.encode(), self.admin)
        assert answer.status == 201, answer

    async def set_variable(self, name: str, value: str) -> None:
        """Give a variable a value."""
        answer = await self.api.ask("POST", self.api.variable(name), value.encode(), self.admin)
        assert answer.status == 201, answer

    async def fed(self) -> None:
        """Wait until the standby has all that the primary has written by now."""
        await self.pair.caught_up()

    def destroy(self) -> None:
        """Remove it all; blocks until that is done."""
        atexit.unregister(self.destroy)
        while self._ends:
            self._ends.pop()()
        assert self._watch.stdin is not None
        (self.directory / "pids").write_text("")
        self._watch.stdin.close()
        shutil.rmtree(self.directory, ignore_errors=True)


_beds: list[Bed] = []


async def the_bed() -> Bed:
    """The bed of this test process, made if there is none."""
    if not _beds:
        bed = Bed()
        try:
            await bed.start()
        except BaseException:
            bed.destroy()
            raise
        _beds.append(bed)
    return _beds[0]


def discard() -> None:
    """Remove the bed; who wants one next makes another."""
    while _beds:
        _beds.pop().destroy()
