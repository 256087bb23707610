"""SIGINT at moments all over a start: what was made is gone, and what was there before isn't."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from twisted.internet import reactor as installed_reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater

from svc.storage.embedded.directory import DataDirectory
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import ServerProcess, ServerTestCase
from tests.integration.test_cli import Command, CommandTestCase

reactor: Any = installed_reactor

#: The functions of ours in a traceback.
OURS: Final = re.compile(r'/svc/[a-z_/]+\.py", line [0-9]+, in (\S+)')

#: Seconds from a start to the signal. ``SVC_INTERRUPTS`` names others, for a look at many.
DELAYS: Final = tuple(map(float, os.environ.get("SVC_INTERRUPTS", "0.4 1 1.7 2.5 4 7").split()))

#: The lines on standard error: while modules are read, and afterwards.
LINES: Final = {b"svc was interrupted before it began\n", b"svc was stopped before it was ready\n"}


def standing(place: Path) -> set[Path]:
    """All that is below a folder."""
    return set(place.rglob("*"))


def users(place: Path) -> list[str]:
    """The processes whose arguments or working directory are in a folder (Linux)."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
            if os.fsencode(place) in words or os.readlink(process / "cwd").startswith(str(place)):
                found.append(words.replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


class InterruptTests(CommandTestCase, ServerTestCase, PostgresTestCase):
    """Starts that are interrupted (CFG-14)."""

    async def prepare(self) -> None:
        """Have a folder, to which PostgreSQL's user may pass."""
        await super().prepare()
        self.scratch = Path(tempfile.mkdtemp(prefix="svc-test-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.scratch)
        self.scratch.chmod(0o755)

    def starting(self, *options: str, **environ: str) -> Command:
        """Start ``svc server``."""
        listen = ["--listen", "tcp:0:interface=127.0.0.1", "--account", "acme"]
        return self.start("server", *listen, *options, environ={"TMPDIR": str(self.scratch), **environ})

    async def interrupt(self, command: Command, delay: float) -> bool:
        """Interrupt a command; return whether it was ready. Before that it ends with 130, in one line."""
        transport: Any = command.transport
        await deferLater(reactor, delay)
        ready = b"svc ready" in command.stdout
        os.kill(transport.pid, signal.SIGINT)
        outcome = await command.ended
        ready = ready or b"svc ready" in command.stdout
        if ready:
            self.assertEqual(outcome.exit_code, 0, outcome)
        elif "KeyboardInterrupt" not in outcome.stderr or set(OURS.findall(outcome.stderr)) - {"<module>"}:
            # Python says it in its own way before our first function is called.
            self.assertEqual(outcome.exit_code, 130, outcome)
            self.assertIn(command.stderr, LINES)
        return ready

    async def everywhere(self, start: Callable[[], Command], after: Sequence[float] = DELAYS) -> None:
        """Interrupt starts at several moments: nothing is left that wasn't there, on the disk or as a process."""
        before = standing(self.scratch)
        for delay in after:
            if await self.interrupt(start(), delay):
                return
            self.assertEqual(standing(self.scratch), before, delay)
            self.assertEqual(users(self.scratch), [], delay)

    async def test_embedded(self) -> None:
        """A first start with the embedded database leaves nothing, by one process or several (CFG-14)."""
        await self.everywhere(lambda: self.starting("--data-dir", str(self.scratch / "deep" / "data")))
        many = ("--processes", "2", "--data-dir", str(self.scratch / "data"))
        await self.everywhere(lambda: self.starting(*many), DELAYS[-2:])

    async def test_present(self) -> None:
        """A start on what was there before leaves that, and it works (CFG-14)."""
        data = self.scratch / "data"
        made = await self.svc("account", "create", "other", "--data-dir", str(data))
        self.assertIn("API key", made.stdout)
        key = (data / "data-key").read_bytes()
        for delay in DELAYS[-3:]:
            if await self.interrupt(self.starting("--data-dir", str(data)), delay):
                break
            self.assertEqual((data / "data-key").read_bytes(), key)
        listed = await self.svc("account", "list", "--data-dir", str(data))
        self.assertIn("other", listed.stdout)

    async def test_waited(self) -> None:
        """A start that waited for a command leaves what the command has made meanwhile, and that works (CFG-14)."""
        made, data = self.scratch / "made", DataDirectory(self.scratch / "data")
        await self.svc("account", "create", "other", "--data-dir", str(made))
        data.make_directory()
        self.assertIsNone(data.take_lock(serving=False))
        socket = self.scratch / "socket"
        command = self.starting("--data-dir", str(data.path), "--listen", f"unix:{socket}")
        transport: Any = command.transport
        while not socket.exists():  # it is bound before the lock is asked for
            await deferLater(reactor, 0.05)
        await deferLater(reactor, 0.5)
        for name in ("cluster", "data-key"):
            shutil.move(made / name, data.path / name)
        data.release()
        while b"server" not in (data.path / "lock").read_bytes():
            await deferLater(reactor, 0.01)
        os.kill(transport.pid, signal.SIGINT)
        outcome = await command.ended
        self.assertEqual(outcome.exit_code, 130, outcome)
        listed = await self.svc("account", "list", "--data-dir", str(data.path))
        self.assertIn("other", listed.stdout)

    async def test_verify(self) -> None:
        """A verification of a backup leaves no folder and no process (CLI-52)."""
        data, dump = self.scratch / "data", self.scratch / "a.dump"
        await self.svc("account", "create", "other", "--data-dir", str(data))
        await self.svc("backup", "create", str(dump), "--data-dir", str(data))
        before = standing(self.scratch)
        for number in (signal.SIGINT, signal.SIGTERM):
            command = self.start(
                "backup", "verify", str(dump), "--data-dir", str(data), environ={"TMPDIR": str(self.scratch)}
            )
            while not list(self.scratch.glob("svc-backup-*/data/cluster/postmaster.pid")):
                await deferLater(reactor, 0.02)
            transport: Any = command.transport
            os.kill(transport.pid, number)
            outcome = await command.ended
            self.assertEqual((outcome.exit_code, command.stderr), (128 + number, b""), outcome)
            self.assertEqual(standing(self.scratch), before)
            self.assertEqual(users(self.scratch), [])

    async def test_quickstart(self) -> None:
        """So does a quickstart; and the next one removes what one left that was killed, never what is in use, or a folder
        that --data-dir named (CFG-14).
        """
        quickstart = {"TMPDIR": str(self.scratch)}
        await self.everywhere(lambda: self.start("quickstart", environ=quickstart))
        command = self.start("quickstart", environ=quickstart, awaited=b"svc ready")
        await command.on_output
        [left] = self.scratch.glob("svc-quickstart-*")
        second = self.start("quickstart", environ=quickstart, awaited=b"svc ready")
        await second.on_output
        self.assertTrue((left / "server" / "cluster").exists())
        for each in (command, second):
            transport: Any = each.transport
            os.kill(transport.pid, signal.SIGKILL)
            await each.ended
        (self.scratch / "svc-quickstart-kept").mkdir()
        (self.scratch / "svc-quickstart-kept" / "lock").touch()
        await self.svc("quickstart", "--once", environ=quickstart)
        self.assertEqual([folder.name for folder in self.scratch.glob("svc-*")], ["svc-quickstart-kept"])
        self.assertEqual(users(self.scratch), [])


class FirstTests(ServerTestCase, PostgresTestCase):
    """What comes before anything is made, and what is said until a server is ready."""

    async def test_port_first(self) -> None:
        """A port that is taken is found before a data directory, a schema, an account or a key is made (CFG-16)."""
        port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(Factory.forProtocol(Protocol))
        self.addCleanup(port.stopListening)
        taken = f"tcp:{port.getHost().port}:interface=127.0.0.1"
        dsn = await self.create_database(migrated=False)
        for options, given in ((("--account", "acme"), {}), (("--metrics-listen", taken), {"listen": "tcp:0"})):
            for processes in ("1", "2"):
                for url in (None, dsn):
                    where: dict[str, Any] = {"listen": taken, "database_url": url, **given}
                    server = self.serve("--processes", processes, *options, **where)
                    self.assertIn(f"it cannot listen at {taken}", await self.refused(server))
                    self.assertFalse(server.data_dir.exists())
        tables = self.server.command("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", dsn.rpartition("=")[2])
        self.assertEqual(tables, [(0,)])

    async def keys(self, dsn: str, *ends: Callable[[ServerProcess], Any]) -> list[str]:
        """Start servers one after the other, each ended in its way once it has printed its key; return the keys."""
        found = []
        for end in ends:
            server = self.serve("--account", "acme", database_url=dsn)
            await end(server)
            found += [line for line in server.stdout.decode().splitlines() if line.startswith("API key for admin: ")]
        return found

    async def test_key_until_ready(self) -> None:
        """The admin's key is printed by each start until one has written the ready line (CFG-20)."""
        dsn = await self.create_database(migrated=False)

        async def kill(server: ServerProcess) -> None:
            await server.says("API key for admin: ")
            await server.kill()

        async def stop(server: ServerProcess) -> None:
            await server.ready()
            self.assertEqual(await server.stop(), 0)

        keys = await self.keys(dsn, kill, kill, stop, stop)
        self.assertEqual((len(keys), len(set(keys))), (3, 1), keys)
