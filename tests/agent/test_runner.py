"""Tests of ``svc.agent.runner``, ``commands`` and ``child``: in a loop of asyncio, with processes, without a server."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from svc.agent.commands import OUTPUT_LIMIT, ValueRedactor
from svc.agent.configuration import AgentConfiguration, read_configuration
from svc.agent.faults import BadConfiguration, SourceFault
from svc.agent.reporting import AgentLog, Systemd
from svc.agent.runner import Agent, AgentContext
from svc.agent.source import VariableClient
from tests.agent.scene import HEAD, AgentCase, DayClock, ServerInMemory

#: Seconds that something may take on a busy machine.
PATIENCE = 20.0

OUT = "[[file]]\ndestination = 'DIR/out'\nvariable = 'a'\n"


class TellingServer(ServerInMemory):
    """A server in memory that tells of changes when ``change`` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: list[asyncio.Queue[None]] = []
        self.endless = False

    def change(self, values: Mapping[str, bytes]) -> None:
        """Have other values, and tell of it."""
        self.values = dict(values)
        for queue in self.queues:
            queue.put_nowait(None)

    async def read(self, ids: Sequence[str], tag: str | None) -> Any:
        """See ``VariableClient``; it may take for ever."""
        if self.endless:
            await asyncio.Event().wait()
        return await super().read(ids, tag)

    async def watch(self, ids: Sequence[str]) -> AsyncIterator[None]:
        """See ``VariableClient``."""
        queue: asyncio.Queue[None] = asyncio.Queue()
        self.queues.append(queue)
        while True:
            yield None
            await queue.get()
            if self.fault is not None:
                raise SourceFault(self.fault)


class RunnerCase(AgentCase):
    """A test that runs an agent in this process."""

    def setUp(self) -> None:
        """Have a server that tells."""
        super().setUp()
        self.server: TellingServer = TellingServer()
        self.server.values = {"a": b"one"}
        self.log = io.StringIO()
        self.opened = self.closed = 0

    def agent(self, text: str, **more: Any) -> Agent:
        """An agent with this configuration."""
        path = self.folder / "agent.toml"
        path.write_text(f"{HEAD}\n{text}".replace("DIR/", f"{self.folder}/"))
        path.chmod(0o644)

        @asynccontextmanager
        async def connect(configuration: AgentConfiguration) -> AsyncIterator[VariableClient]:
            if configuration.account == "nobody":
                raise BadConfiguration("there is no client for nobody")
            self.opened += 1
            yield self.server
            self.closed += 1

        systemd = Systemd({}, os.getpid())
        environment = {"PATH": os.environ["PATH"], "PLACE": str(self.folder)}
        log = AgentLog(self.log, DayClock(), journal=False)
        around = AgentContext(environment, log, DayClock(), systemd, self.folder / "status")
        return Agent(lambda: read_configuration(path, {}), connect, around, **more)

    def run_with(self, agent: Agent, work: Callable[[], Coroutine[Any, Any, None]]) -> int:
        """Run an agent until this work is done and it has ended, and return its exit code."""

        async def both() -> int:
            running = asyncio.ensure_future(agent.run())
            working = asyncio.ensure_future(work())
            await asyncio.wait([running, working], timeout=PATIENCE, return_when=asyncio.FIRST_EXCEPTION)
            if not working.done():
                working.cancel()
                running.cancel()
            await working
            return await running

        return asyncio.run(both())

    async def until(self, true: Callable[[], object]) -> None:
        """Wait until something is so."""
        ends = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < ends, self.log.getvalue()
            await asyncio.sleep(0.01)

    def holds(self, name: str, text: str) -> Callable[[], bool]:
        """Return what says whether a file in the folder holds this."""
        path = self.folder / name
        return lambda: path.exists() and path.read_text() == text

    def state(self) -> str:
        """What the status file says."""
        return str(json.loads((self.folder / "status").read_text())["state"])


class RunningTests(RunnerCase):
    """An agent, from its start to its end."""

    def test_change(self) -> None:
        """A file follows a change that the server tells of, and its command has run by then; SIGTERM ends the agent with 0,
        and connections are closed (AGT-16, AGT-27, AGT-32).
        """
        text = OUT + f"command = {json.dumps(['sh', '-c', 'cat $PLACE/out; echo >>$PLACE/ran'])}\n"
        agent = self.agent(text)

        async def work() -> None:
            await self.until(self.holds("ran", "\n"))
            await self.until(lambda: self.server.queues)
            self.server.change({"a": b"two"})
            await self.until(self.holds("out", "two"))
            await self.until(self.holds("ran", "\n\n"))
            await self.until(lambda: self.state() == "current")
            agent.handle_signal(signal.SIGTERM)

        self.assertEqual(self.run_with(agent, work), 0)
        self.assertEqual(self.closed, self.opened)
        said = self.log.getvalue()
        self.assertIn(f"wrote {self.folder}/out", said)
        self.assertIn("sh: ***", said)
        self.assertNotIn("two", said)

    def test_once(self) -> None:
        """``--once`` does one round, and its exit code says whether everything is up to date (AGT-32)."""
        self.assertEqual(asyncio.run(self.agent(OUT, once=True).run()), 0)
        self.assertEqual((self.text_of("out"), self.server.queues), ("one", []))
        self.server.forbidden = {"a"}
        self.assertEqual(asyncio.run(self.agent(OUT, once=True).run()), 1)
        self.server.fault = "away"
        self.assertEqual(asyncio.run(self.agent(OUT, once=True).run()), 1)
        self.assertEqual((self.text_of("out"), self.state()), ("one", "waiting"))

    def test_leftovers(self) -> None:
        """What a killed agent has left is removed at the start, and what it owed is done (AGT-25, AGT-28)."""
        for name, content in (
            ("out", b"one"),
            (".out.svc-agent-0123456789abcdef.tmp", b"o"),
            (".out.svc-agent-changed", b""),
        ):
            (self.folder / name).write_bytes(content)
        (self.folder / "out").chmod(0o600)
        agent = self.agent(OUT + "command = ['sh', '-c', 'echo >$PLACE/ran']", once=True)
        self.assertEqual(asyncio.run(agent.run()), 0)
        self.assertEqual(self.names(), {"out", "ran", "status"})
        self.assertIn("removed what a killed agent had left", self.log.getvalue())

    def test_end_in_the_middle(self) -> None:
        """SIGTERM ends an agent that waits for a server, or for a command, which is ended and owed (AGT-28, AGT-33)."""
        for text in (OUT, OUT + "command = ['sh', '-c', 'trap : TERM; echo >$PLACE/began; sleep 60; sleep 60']"):
            self.server.endless = "command" not in text
            agent = self.agent(text)

            async def work(agent: Agent = agent) -> None:
                began = self.folder / "began"
                await self.until(lambda: "keeping" in self.log.getvalue() if self.server.endless else began.exists())
                self.began = time.monotonic()
                agent.handle_signal(signal.SIGTERM)

            self.assertEqual(self.run_with(agent, work), 0)
            self.assertLess(time.monotonic() - self.began, 5)
        self.assertIn(".out.svc-agent-changed", self.names())

    def test_reloading(self) -> None:
        """SIGHUP has another configuration read; one that can't be used changes nothing (AGT-33)."""
        agent = self.agent(OUT)
        path = self.folder / "agent.toml"

        async def work() -> None:
            await self.until(self.holds("out", "one"))
            good = path.read_text()
            path.write_text("x")
            agent.handle_signal(signal.SIGHUP)
            await self.until(lambda: "the new configuration is not used" in self.log.getvalue())
            path.write_text(good.replace('"acme"', '"nobody"'))
            agent.handle_signal(signal.SIGHUP)
            await self.until(lambda: "there is no client for nobody" in self.log.getvalue())
            path.write_text(good.replace("/out", "/other"))
            agent.handle_signal(signal.SIGHUP)
            await self.until(self.holds("other", "one"))
            (self.folder / "out").unlink()
            agent.handle_signal(signal.SIGINT)

        self.assertEqual(self.run_with(agent, work), 0)
        self.assertEqual(self.names(), {"other", "status"})

    def test_no_configuration(self) -> None:
        """Without a configuration it doesn't begin (AGT-1)."""
        for text in ("x = 7", "[[file]]"):
            self.assertRaises(BadConfiguration, asyncio.run, self.agent(text).run())

    def test_outage(self) -> None:
        """A watch that breaks off and a server that is away stop nothing, and all goes on after it (AGT-18)."""
        agent = self.agent("interval = 1\n" + OUT)

        async def work() -> None:
            await self.until(self.holds("out", "one"))
            await self.until(lambda: self.server.queues)
            self.server.fault = "away"
            self.server.change({"a": b"two"})
            await self.until(lambda: self.state() == "stale")
            self.assertTrue(self.holds("out", "one")())
            self.server.fault = None
            await self.until(self.holds("out", "two"))
            await self.until(lambda: self.state() == "current")
            agent.handle_signal(signal.SIGTERM)

        self.assertEqual(self.run_with(agent, work), 0)

    def test_a_fault_of_its_own(self) -> None:
        """An agent that loses a part of itself ends, and says nothing of values (AGT-36)."""

        async def broken(ids: Sequence[str], tag: str | None) -> Any:
            raise KeyError("s3cr3t")

        self.server.read = broken  # type: ignore[method-assign]
        self.assertEqual(asyncio.run(self.agent(OUT).run()), 1)
        self.assertRegex(self.log.getvalue(), r"a fault of the agent, which ends: KeyError at .*test_runner.py:\d+")
        self.assertNotIn("s3cr3t", self.log.getvalue())


class CommandsTests(RunnerCase):
    """Commands after a change."""

    def run_command(self, *arguments: str, more: str = "") -> str:
        """Run a command after a change, and return the log."""
        asyncio.run(self.agent(OUT + f"command = {json.dumps(arguments)}\n{more}", once=True).run())
        return self.log.getvalue()

    def test_surroundings(self) -> None:
        """A command has no input, the folder ``/``, the environment that it was given, and no shell (AGT-27)."""
        program = "import json, os, sys; print(json.dumps([sys.stdin.read(), os.getcwd(), sys.argv[1], sorted(os.environ)]))"
        said = self.run_command(sys.executable, "-c", program, "$HOME;x")
        answer = json.loads(said.partition(f"{sys.executable}: ")[2].splitlines()[0])
        self.assertEqual(answer[:3], ["", "/", "$HOME;x"])
        self.assertEqual(set(answer[3]) - {"LC_CTYPE", "__CF_USER_TEXT_ENCODING"}, {"PATH", "PLACE"})

    def test_failures(self) -> None:
        """A command that fails, is killed, takes too long, or doesn't exist is told as what it is (AGT-27, AGT-28)."""
        for arguments, told in (
            (("sh", "-c", "exit 3"), "the command sh failed: exit code 3"),
            (("sh", "-c", "kill -KILL $$"), "the command sh failed: ended by SIGKILL"),
            (("sh", "-c", "sleep 60"), "the command sh failed: it took longer than 0.2 s"),
            (("/none/x",), "the command /none/x failed: it can't be started: No such file or directory"),
        ):
            self.assertIn(told, self.run_command(*arguments, more="command_timeout = 0.2\n"))
            (self.folder / "out").unlink()

    def test_output(self) -> None:
        """What it says is logged to a limit, each value in it blotted out (AGT-27, AGT-36)."""
        self.server.values = {"a": b"first line\nsecond"}
        said = self.run_command("sh", "-c", "echo first line; cat $PLACE/out; echo; echo seco; yes | head -c 99999")
        lines = [line.partition("sh: ")[2] for line in said.splitlines() if "sh: " in line]
        self.assertEqual(lines[:4], ["***", "***", "seco", "y"])
        self.assertLess(len(lines), 9000)

    def test_cut_off(self) -> None:
        """Of a line that doesn't end within the limit, or in time, nothing is logged: it may hold half a value (AGT-27)."""
        self.server.values = {"a": b"s3cr3t-s3cr3t"}
        for script in (
            f"echo one; head -c {OUTPUT_LIMIT - 10} /dev/zero | tr '\\0' x; cat $PLACE/out; echo",
            "echo one; printf s3cr3t-; exec sleep 3 2>&1 & exit 0",
        ):
            said = self.run_command("sh", "-c", script)
            self.assertIn("sh: one", said)
            self.assertNotIn("s3cr", said)
            (self.folder / "out").unlink()
        self.assertIn("sh: … and more, which is not logged", said)

    def test_group_ends(self) -> None:
        """When the time is up all that a command has started ends, what doesn't hear SIGTERM too (AGT-27)."""
        os.mkfifo(self.folder / "line")
        line = os.open(self.folder / "line", os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, line)
        script = f"(trap '' TERM; exec 9> {self.folder}/line; echo here >&9; exec sleep 60) & sleep 60"
        self.run_command("sh", "-c", script, more="command_timeout = 0.5\n")
        self.assertEqual([os.read(line, 99), os.read(line, 99)], [b"here\n", b""])

    def test_blotting(self) -> None:
        """The values of now and those before the change are blotted out, the longest first (AGT-27)."""
        blotting = ValueRedactor()
        blotting.update_values([b"one", b""])
        blotting.update_values([b"two", b"two and more"])
        self.assertEqual(blotting.redact_text("one, two and more, two, three"), "***, ***, ***, three")
        blotting.update_values([b"two", b"two and more"])
        self.assertEqual(blotting.redact_text("one"), "***")
        blotting.update_values([b"four"])
        self.assertEqual(blotting.redact_text("one two"), "one ***")
        blotting.update_values([b"four", b"five"])
        self.assertEqual(blotting.redact_text("two four five"), "*** *** ***")


#: A program that writes its environment to a file at each start, and the signals that it gets.
PROGRAM = """
import os, signal, sys, time
def note(text):
    with open(os.environ["PLACE"] + "/notes", "a") as file:
        file.write(text + "\\n")
def noted(number, frame):
    note(signal.Signals(number).name)
    if number == signal.SIGTERM:
        sys.exit(7)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, noted)
note(os.environ.get("A", ""))
while True:
    time.sleep(60)
"""


class ProgramTests(RunnerCase):
    """A program with values in its environment."""

    def program(self, text: str, *arguments: str) -> Agent:
        """An agent that runs a program."""
        return self.agent(text, program=arguments or (sys.executable, "-c", PROGRAM))

    def noted(self, *expected: str) -> Callable[[], bool]:
        """Return what says whether the program has noted exactly this."""
        return self.holds("notes", "".join(f"{each}\n" for each in expected))

    def test_restart(self) -> None:
        """The program starts when its value is there, is restarted when that changes, and ends with the agent, which has its
        exit code (AGT-29, AGT-30, AGT-31).
        """
        self.server.forbidden = {"a"}
        agent = self.program("interval = 1\n[environment]\nA = 'a'\n")

        async def work() -> None:
            await self.until(lambda: "the program is not started" in self.log.getvalue())
            self.server.forbidden = set()
            await self.until(self.noted("one"))
            agent.handle_signal(signal.SIGUSR1)
            await self.until(self.noted("one", "SIGUSR1"))
            await self.until(lambda: self.server.queues)
            self.server.change({"a": b"two"})
            await self.until(self.noted("one", "SIGUSR1", "SIGTERM", "two"))
            agent.handle_signal(signal.SIGTERM)

        self.assertEqual(self.run_with(agent, work), 7)
        self.assertTrue(self.noted("one", "SIGUSR1", "SIGTERM", "two", "SIGTERM")(), self.text_of("notes"))
        self.assertNotIn("two", self.log.getvalue())

    def test_signal(self) -> None:
        """With ``on_change`` a signal is sent instead, after the files have changed (AGT-30)."""
        agent = self.program(OUT + "[process]\non_change = 'SIGHUP'\n")

        async def work() -> None:
            await self.until(self.noted(""))
            await self.until(lambda: self.server.queues)
            self.server.change({"a": b"two"})
            await self.until(self.noted("", "SIGHUP"))
            self.assertTrue(self.holds("out", "two")())
            agent.handle_signal(signal.SIGTERM)

        self.assertEqual(self.run_with(agent, work), 7)

    def test_nothing(self) -> None:
        """Or nothing follows (AGT-30)."""
        agent = self.program(OUT + "[process]\non_change = 'nothing'\n")

        async def work() -> None:
            await self.until(self.noted(""))
            await self.until(lambda: self.server.queues)
            rounds = len(self.server.asked)
            self.server.change({"a": b"two"})
            await self.until(self.holds("out", "two"))
            await self.until(lambda: len(self.server.asked) > rounds)
            agent.handle_signal(signal.SIGTERM)

        self.assertEqual(self.run_with(agent, work), 7)
        self.assertTrue(self.noted("", "SIGTERM")(), self.text_of("notes"))

    def test_its_own_end(self) -> None:
        """When the program ends, so does the agent, with its exit code, as shells have it (AGT-31)."""
        for arguments, code in (
            (("sh", "-c", 'test "$A" = one && exit 5'), 5),
            (("true",), 0),
            (("sh", "-c", "kill -KILL $$"), 128 + signal.SIGKILL),
            (("/none/x",), 127),
            ((str(self.folder),), 126),
        ):
            agent = self.program("[environment]\nA = 'a'\n", *arguments)
            self.assertEqual(asyncio.run(agent.run()), code, self.log.getvalue())

    def test_killed(self) -> None:
        """A program that doesn't end in time is killed, and its processes with it (AGT-30)."""
        script = "trap '' TERM; while true; do echo >>$PLACE/ticks; sleep 0.05; done & wait; sleep 60"
        agent = self.program("[environment]\nA = 'a'\n[process]\nstop_timeout = 0.2\n", "sh", "-c", script)

        async def work() -> None:
            await self.until((self.folder / "ticks").exists)
            agent.handle_signal(signal.SIGTERM)

        self.assertEqual(self.run_with(agent, work), 128 + signal.SIGKILL)
        ticks = self.text_of("ticks")
        time.sleep(0.2)
        self.assertEqual(self.text_of("ticks"), ticks)
