"""``svc agent`` as its users run it: a process beside a server, over TLS, through changes, outages and kills."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SkipTest

from tests.integration.client import Api, workload_token
from tests.integration.embedding import python_for, run_as
from tests.integration.process import ServerProcess, beat
from tests.integration.test_cli import Command
from tests.integration.test_workload import BINARY, WorkloadCase

NOBODY = 65534

FILES = """
[[file]]
destination = "{folder}/app.ini"
template = '''
[database]
password = {{{{ secret("apps/password") }}}}
'''
mode = "0640"
command = ["sh", "-c", "cat {folder}/app.ini >>{folder}/ran"]

[[file]]
destination = "{folder}/key"
variable = "apps/key"
"""


class AgentProcessCase(WorkloadCase):
    """A server that can be stopped and started again, and agents beside it."""

    async def prepare(self) -> None:
        """Start the server, and log the admin in."""
        await super().prepare()
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        for folder in (self.folder, self.folder.parent, self.ca_file.parent, self.ca_file.parent.parent):
            folder.chmod(0o755)  # other users go through them
        self.key_file = self.folder / "api-key"
        self.key_file.write_text(f"{self.api_key}\n")
        self.key_file.chmod(0o600)
        self.plain_url = (await self.process.urls())[0]
        self.api = Api.of(self, self.plain_url)
        self.admin = await self.api.authenticate("admin", self.process.admin_key())
        self.agents: list[Command] = []
        self.addCleanup(self.end_agents)

    def serve(self, *options: str, **more: Any) -> ServerProcess:
        """Start a server, as before, and remember how."""
        self.served = (options, more)
        return super().serve(*options, **more)

    async def serve_again(self) -> None:
        """Start the server again, at the same address."""
        options, more = self.served
        port = re.search(r":(\d+)\Z", self.url)
        assert port is not None
        again = tuple(each.replace("ssl:0:", f"ssl:{port[1]}:") for each in options if not each.startswith("--account"))
        self.process = self.serve(*again, **more)
        self.api = Api.of(self, (await self.process.urls())[0])

    async def end_agents(self) -> None:
        """Kill what a test has left."""
        for agent in self.agents:
            if not agent.ended.called:
                os.kill(self.pid(agent), signal.SIGKILL)
            await agent.ended

    def pid(self, agent: Command) -> int:
        """The process id of an agent."""
        pid = getattr(agent.transport, "pid", None)
        assert isinstance(pid, int)
        return pid

    def configure(self, text: str, login: str = "") -> Path:
        """Write a configuration; ``{folder}`` in it is that of the test."""
        login = login or f'kind = "api-key"\nhost = "host/apps/keyed"\napi_key_file = "{self.key_file}"'
        head = f'url = "{self.url}"\naccount = "acme"\nca_file = "{self.ca_file}"\ninterval = 2\n[login]\n{login}\n'
        path = self.folder / "agent.toml"
        path.write_text(head + text.format(folder=self.folder))
        path.chmod(0o644)
        return path

    def agent(self, config: Path, *more: str) -> Command:
        """Start an agent."""
        found = self.start(
            *("agent", "--config", str(config), "--status-file", str(self.folder / "status"), *more),
            environ={"PATH": os.environ["PATH"]},
        )
        self.agents.append(found)
        return found

    async def set_value(self, value: bytes, variable: str = "apps/password") -> None:
        """Set the value of a variable."""
        answer = await self.api.ask("POST", self.api.variable(variable), value, self.admin)
        self.assertEqual(answer.status, 201, answer)

    async def until(self, true: Callable[[], object], agent: Command) -> None:
        """Wait until something is so."""
        for _ in range(600):
            if true():
                return
            assert not agent.ended.called, agent.stderr.decode()
            await beat()
        self.fail(agent.stderr.decode())

    def holds(self, password: str) -> Callable[[], bool]:
        """Return what says whether the file is there, with this password."""
        path = self.folder / "app.ini"
        return lambda: path.exists() and path.read_text() == f"[database]\npassword = {password}\n"

    def state(self, state: str) -> Callable[[], bool]:
        """Return what says whether the status file has this state."""
        path = self.folder / "status"
        return lambda: path.exists() and json.loads(path.read_text())["state"] == state

    async def stop(self, agent: Command, code: int = 0) -> str:
        """End an agent that has begun, and return what it said; it said no value."""
        await self.until(lambda: b"keeping" in agent.stderr, agent)
        os.kill(self.pid(agent), signal.SIGTERM)
        outcome = await agent.ended
        self.assertEqual(outcome.exit_code, code, outcome)
        self.assertNotIn("Traceback", outcome.stderr)
        for value in ("s3cret", "another", self.api_key):
            self.assertNotIn(value, outcome.stderr)
        return outcome.stderr


class AgentTests(AgentProcessCase):
    """Files beside a server."""

    async def test_a_day_of_files(self) -> None:
        """Files are there byte for byte, follow changes, and survive an outage, in which another agent starts
        (AGT-16, AGT-18, AGT-20, AGT-27, AGT-35).
        """
        config = self.configure(FILES)
        agent = self.agent(config)
        await self.until(self.holds("s3cret"), agent)
        await self.until(self.state("current"), agent)
        self.assertEqual((self.folder / "key").read_bytes(), BINARY)
        modes = {name: stat.S_IMODE((self.folder / name).stat().st_mode) for name in ("app.ini", "key", "status")}
        self.assertEqual(modes, {"app.ini": 0o640, "key": 0o600, "status": 0o644})
        untouched = (self.folder / "key").stat()
        await self.set_value(b"another")
        await self.until(self.holds("another"), agent)
        await self.until(lambda: (self.folder / "ran").read_text().count("password = another") == 1, agent)
        self.assertEqual((self.folder / "key").stat(), untouched)
        await self.process.stop()
        await self.until(self.state("stale"), agent)
        self.assertTrue(self.holds("another")())
        self.assertIn("nothing can be read", await self.stop(agent))
        second = self.agent(config)
        await self.until(lambda: b"nothing can be read: cannot reach" in second.stderr, second)
        self.assertTrue(self.state("waiting")())
        await self.serve_again()
        await self.set_value(b"s3cret again")
        await self.until(self.holds("s3cret again"), second)
        await self.until(self.state("current"), second)
        self.assertIn("reading again", await self.stop(second))

    async def test_jwts_and_kills(self) -> None:
        """Tokens end and JWTs are replaced, and the agent goes on: the file is read for each login (AGT-3, AGT-18). However
        often it is killed the file is whole, and nothing is left beside it in the end (AGT-20, AGT-25, AGT-28).
        """
        token = self.folder / "token"
        token.write_bytes(workload_token())
        config = self.configure(FILES, f'kind = "jwt"\nservice_id = "ci"\njwt_file = "{token}"')
        agent = self.agent(config)
        await self.until(self.holds("s3cret"), agent)
        token.write_text("no token")
        await self.until(self.state("stale"), agent)
        self.assertTrue(self.holds("s3cret")())
        token.write_bytes(workload_token())
        long = "abcdefgh" * 8192
        await self.set_value(b"another" + long.encode())
        await self.until(self.holds(f"another{long}"), agent)
        await self.until(self.state("current"), agent)
        self.assertIn("refused this token", await self.stop(agent))
        agent = self.agent(config)
        for number in range(4):
            value = f"another{number}{long}"
            await self.set_value(value.encode())
            # The next one is killed while it writes, or a little before or after that.
            for _ in range(5 * number):
                await beat()
                read = (self.folder / "app.ini").read_text()
                self.assertRegex(read, rf"\A\[database\]\npassword = another[0-3]?{long}\n\Z")
            os.kill(self.pid(agent), signal.SIGKILL)
            await agent.ended
            agent = self.agent(config)
        await self.until(self.holds(value), agent)
        await self.until(lambda: f"password = {value}\n" in (self.folder / "ran").read_text(), agent)
        await self.until(self.state("current"), agent)
        # Both may be what the one before wrote; the command that it owed is this one's to run.
        await self.until(lambda: not any("svc-agent" in name for name in os.listdir(self.folder)), agent)
        await self.stop(agent)
        self.assertEqual([name for name in os.listdir(self.folder) if "svc-agent" in name], [])


class AgentCommandTests(AgentProcessCase):
    """One command after the other, on one server."""

    async def test_commands(self) -> None:
        """What the agent is asked to do once, and what it does with a program."""
        await self.refusals()
        await self.owners()
        await self.programs()
        await self.usage()

    async def refusals(self) -> None:
        """A variable that may not be read, and one that isn't there, leave their files, and the others are kept (AGT-17)."""
        more = '[[file]]\ndestination = "{folder}/seen"\nvariable = "apps/seen"\n'
        none = '[[file]]\ndestination = "{folder}/none"\nvariable = "apps/none"\non_forbidden = "remove"\n'
        (self.folder / "seen").write_text("old")
        (self.folder / "none").write_text("old")
        done = await self.svc("agent", "--config", str(self.configure(FILES + more + none)), "--once", code=1)
        self.assertTrue(self.holds("s3cret")())
        self.assertEqual((self.folder / "seen").read_text(), "old")
        self.assertFalse((self.folder / "none").exists())
        self.assertIn("apps/seen: the role may not read it; it stays as it is", done.stderr)
        self.assertIn("apps/none is empty or not found", done.stderr)

    async def owners(self) -> None:
        """As root the agent gives files to their owners; as another user it writes its own (AGT-5, AGT-21)."""
        if os.geteuid() != 0:
            return  # only root gives files to others, and becomes another user
        given = (
            '[[file]]\ndestination = "{folder}/given"\nvariable = "apps/key"\nowner = "1"\ngroup = "65534"\nmode = "440"\n'
        )
        await self.svc("agent", "--config", str(self.configure(given)), "--once")
        found = (self.folder / "given").stat()
        self.assertEqual((found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)), (1, NOBODY, 0o440))
        home = self.folder / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        os.chown(self.key_file, NOBODY, NOBODY)
        config = self.configure('[[file]]\ndestination = "{folder}/home/own"\nvariable = "apps/key"\n')

        def as_nobody() -> str | None:
            python = python_for(pwd.getpwuid(NOBODY))
            program = ("-c", "from svc.cli.main import main; main()", "agent", "--config", str(config), "--once")
            return None if python is None else run_as(NOBODY, NOBODY, python, *program)

        said = await deferToThread(as_nobody)
        if said is None:
            raise SkipTest("nobody can run no Python that finds svc and its libraries")
        self.assertTrue((home / "own").exists(), said)
        found = (home / "own").stat()
        self.assertEqual((found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)), (NOBODY, NOBODY, 0o600))
        os.chown(self.key_file, 0, 0)

    async def programs(self) -> None:
        """A program has its values and not the agent's keys, is restarted after a change, and its exit code is the agent's
        (AGT-29, AGT-30, AGT-31).
        """
        config = self.configure('[environment]\nPASSWORD = "apps/password"\n')
        note = f'echo "$PASSWORD,$SVC_API_KEY" >>{self.folder}/notes'
        script = f"trap 'exit 7' TERM; {note}; while true; do sleep 0.05; done"
        notes = self.folder / "notes"
        agent = self.agent(config, "--", "sh", "-c", script)
        await self.until(lambda: notes.exists() and notes.read_text() == "s3cret,\n", agent)
        await self.set_value(b"another")
        await self.until(lambda: notes.read_text() == "s3cret,\nanother,\n", agent)
        await self.stop(agent, 7)
        environ = {"PATH": os.defpath}
        ended = await self.svc("agent", "--config", str(config), "--", "sh", "-c", "exit 5", environ=environ, code=5)
        self.assertIn("ended with exit code 5", ended.stderr)

    async def usage(self) -> None:
        """A configuration that can't be used is an error of usage, and ``--check`` says what there is (AGT-1)."""
        config = self.configure(FILES)
        done = await self.svc("agent", "--config", str(config), "--check")
        self.assertEqual(done.stdout, f"{self.folder}/app.ini\tapps/password\n{self.folder}/key\tapps/key\n")
        config.write_text("url = 7")
        for more in ((), ("--check",)):
            refused = await self.svc("agent", "--config", str(config), *more, code=2)
            self.assertIn("url must be a text in quotes", refused.stderr)
