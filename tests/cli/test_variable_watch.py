"""Tests of ``svc variable watch``: what it prints of what the server tells, and what ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import saved_login
from svc.cli.coroutines import Network
from svc.cli.main import main
from svc.cli.saved_login import SavedSession, load_saved_session, save_login
from svc.model import clocks
from tests.client.small import Answers, Pieces, SmallService, WaitlessAsync, token

URL, ACCOUNT = "https://svc.example", "acme"
KEYED = {"SVC_URL": URL, "SVC_ACCOUNT": ACCOUNT, "SVC_LOGIN": "host/shop", "SVC_API_KEY": "the-api-key"}

#: What the clock shows, and how lines say it.
NOW, TIME = 1_700_000_000.0, "2023-11-14T22:13:20Z"

#: What ends a watch in tests.
FORBIDDEN = httpx.Response(403, headers={"x-request-id": "r-9"})

#: Prints a first line, waits until nobody reads any more, and is told of a change.
UNREAD = """
import os, sys
import httpx
from svc.cli.coroutines import Network
from svc.cli.main import main
from tests.cli.test_variable_watch import stream, versions
from tests.client.small import Pieces, SmallService, WaitlessAsync

class Slowly(Pieces):
    async def __aiter__(self):
        yield versions(a=1)
        sys.stdin.read()
        yield versions(a=2)

service = SmallService([httpx.Response(200, stream=Slowly([]))])
Network.make_requester = lambda *_: WaitlessAsync(httpx.MockTransport(service.answer), 1000)
main(["variable", "watch", "a"])
"""


def told(name: str, data: object, mark: str = "m") -> bytes:
    """An event as the server writes it."""
    return f"id: {mark}\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode()


def versions(**numbers: int | None) -> bytes:
    """An event with these versions."""
    return told("versions", {f"acme:variable:{name}": number for name, number in numbers.items()})


def gone(*names: str) -> bytes:
    """An event of variables that can't be read any more."""
    return told("gone", [f"acme:variable:{name}" for name in names])


def stream(*pieces: bytes | Exception) -> httpx.Response:
    """A watch to which these pieces come, and which then breaks off."""
    return httpx.Response(200, stream=Pieces(pieces))


class WatchTests(SynchronousTestCase):
    """The command, from its command line to what it prints."""

    def setUp(self) -> None:
        """Keep logins in a folder of the test's, and stop the clock."""
        self.path = Path(self.mktemp()) / "state" / "tokens.json"
        self.patch(saved_login, "token_file", lambda: self.path)
        self.patch(clocks.MachineClock, "seconds", lambda _: NOW)

    def watch(
        self,
        *answers: httpx.Response | Exception | Answers,
        arguments: tuple[str, ...] = ("a", "b"),
        environ: dict[str, str] = KEYED,
        code: int = 1,
    ) -> Result:
        """Watch at a server with these answers; the command must end with this exit code."""
        self.service = SmallService([*answers])
        self.slept: list[float] = []
        exchange = WaitlessAsync(httpx.MockTransport(self.service.answer), 100_000)
        object.__setattr__(exchange, "slept", self.slept)
        self.patch(Network, "make_requester", lambda *_: exchange)
        ended = CliRunner().invoke(main, ["variable", "watch", *arguments], env=environ)
        self.assertEqual(ended.exit_code, code, ended.output)
        return ended

    def test_lines(self) -> None:
        """The versions that are there come first, then a line for each news: time, variable, version (CLI-47)."""
        ended = self.watch(
            stream(versions(a=1, b=None), b":\n\n", versions(b=1), versions(a=2, b=2), gone("a"), versions(a=2)), FORBIDDEN
        )
        lines = [line.split("\t") for line in ended.stdout.splitlines()]
        self.assertEqual({line[0] for line in lines}, {TIME})
        wanted = ["a 1", "b none", "b 1", "a 2", "b 2", "a gone", "a 2"]
        self.assertEqual([" ".join(line[1:]) for line in lines], wanted)

    def test_kinds(self) -> None:
        """Ids may have their kind before them; the lines have them without (CLI-61)."""
        ended = self.watch(stream(versions(a=1, b=2)), FORBIDDEN, arguments=("variable:a", "b"))
        self.assertEqual([line.split("\t")[1] for line in ended.stdout.splitlines()], ["a", "b"])

    def test_json(self) -> None:
        """With ``--json`` each line is an object (CLI-47)."""
        shown = self.watch(stream(versions(a=7, b=None), gone("b")), FORBIDDEN, arguments=("--json", "a", "b")).stdout
        objects = [json.loads(line) for line in shown.splitlines()]
        self.assertEqual(objects[0], {"time": TIME, "variable": "a", "version": 7, "gone": False})
        self.assertEqual([(each["version"], each["gone"]) for each in objects], [(7, False), (None, False), (None, True)])

    def test_names(self) -> None:
        """A name can't begin a line or a column of its own (CLI-3)."""
        name = "a\tb\n\x1b[2J"
        shown = self.watch(stream(told("versions", {f"acme:variable:{name}": 1})), FORBIDDEN, arguments=(name,)).stdout
        self.assertEqual(shown, f"{TIME}\ta\\tb\\n\\x1b[2J\t1\n")

    def test_once(self) -> None:
        """With ``--once`` the first change ends it, with 0; what is told again after an outage is none (CLI-47, CLI-48)."""
        begun, again = versions(a=1, b=1), versions(a=1, b=1)
        answers = (stream(begun), stream(again, versions(b=2), versions(b=3)))
        shown = self.watch(*answers, arguments=("--once", "a", "b"), code=0).stdout
        self.assertEqual([line.split("\t")[1:] for line in shown.splitlines()], [["a", "1"], ["b", "1"], ["b", "2"]])

    def test_in_front(self) -> None:
        """A page instead of the stream is said to be that of something in front of the server, and ends a beginning watch
        with 1; later it is an outage (CLI-48, LIB-12).
        """
        page = httpx.Response(200, text="<html>login</html>", headers={"content-type": "text/html"})
        ended = self.watch(page)
        self.assertIn("something in front of https://svc.example answered (status 200)", ended.stderr)
        ended = self.watch(stream(versions(a=1)), page, page, stream(versions(a=2)), FORBIDDEN)
        self.assertEqual([line.split("\t")[2] for line in ended.stdout.splitlines()], ["1", "2"])
        self.assertEqual(ended.stderr.count("The watch is interrupted"), 2)

    def test_outages(self) -> None:
        """It goes on through outages from where it was, and says once when one begins and when it ends (CLI-48)."""
        ended = self.watch(
            httpx.ConnectError("refused"),
            httpx.Response(503, headers={"retry-after": "40"}),
            httpx.Response(502),
            stream(versions(a=1, b=1), told("end", {"reason": "drain"})),
            stream(b":\n\n", httpx.ReadError("broke")),
            httpx.ConnectError("refused"),
            stream(b":\n\n", versions(a=2), httpx.ReadError("broke")),
            FORBIDDEN,
        )
        self.assertEqual([line.split("\t")[1:] for line in ended.stdout.splitlines()], [["a", "1"], ["b", "1"], ["a", "2"]])
        begin, end = "The watch is interrupted, and goes on as soon as it can: ", "The watch goes on."
        said = ended.stderr.splitlines()
        self.assertEqual(
            [line.removeprefix(begin)[:18] for line in said[:3]], ["cannot reach https", end, "no answer from htt"]
        )
        self.assertEqual([line == end for line in said], [False, True, False, True, False, False])
        marks = [request.headers.get("last-event-id") for request in self.service.requests]
        self.assertEqual(marks, [None] * 4 + ["m"] * 4)
        self.assertIn(40.0, self.slept)

    def test_refused(self) -> None:
        """A variable that may not be read, or isn't there, ends it with 1 and says so, as for any other command (CLI-47)."""
        missing = httpx.Response(404, json={"error": {"message": "Variable 'a' not found"}})
        for answer, said in ((FORBIDDEN, "lacks the privilege execute"), (missing, "Variable 'a' not found")):
            ended = self.watch(answer, arguments=("a",))
            self.assertEqual(ended.stdout, "")
            self.assertIn(said, f"{ended.stderr}")
            self.assertTrue(ended.stderr.startswith("Error: "), ended.stderr)
        self.assertEqual(self.watch(arguments=(), code=2).stdout, "")

    def test_renewed_login(self) -> None:
        """With an API key it logs in again when its token has ended (CLI-48)."""
        self.watch(stream(versions(a=1), told("end", {"reason": "token"})), stream(), FORBIDDEN, arguments=("a",))
        self.assertEqual(self.service.logins, 2)
        self.assertNotIn("the-api-key", repr(self.service.asked()))

    def test_renewed_session(self) -> None:
        """With a kept session it renews that, also where the server can't do so at once (CLI-29, CLI-48)."""
        save_login(URL, ACCOUNT, self.living(1), SavedSession("alice", "r1"))
        opened = {"access_token": self.living(2), "refresh_token": "r2"}
        ended = self.watch(
            stream(versions(a=1), told("end", {"reason": "token"})),
            httpx.Response(503, headers={"retry-after": "7"}),
            httpx.Response(200, json=opened),
            stream(versions(a=2)),
            FORBIDDEN,
            arguments=("a",),
            environ=self.kept(),
        )
        self.assertEqual([line.split("\t")[2] for line in ended.stdout.splitlines()], ["1", "2"])
        paths = [asked.partition("?")[0] for asked in self.service.asked()]
        watched, renewed = "GET /secrets/watch", "POST /authn/acme/alice/renew"
        self.assertEqual(paths, [watched, renewed, renewed, watched, watched])
        self.assertEqual(load_saved_session(URL, ACCOUNT), SavedSession("alice", "r2"))
        self.assertIn(7.0, self.slept)
        self.assertIn("cannot serve now (status 503)", ended.stderr)

    def test_ended_login(self) -> None:
        """What can't be renewed ends it, and the message says what to do; another login meanwhile is taken (CLI-48)."""
        ending = told("end", {"reason": "token"})
        save_login(URL, ACCOUNT, self.living(1))
        ended = self.watch(stream(versions(a=1), ending), arguments=("a",), environ=self.kept())
        self.assertIn("run `svc login`", ended.stderr)

        def log_in(_: httpx.Request) -> httpx.Response:
            save_login(URL, ACCOUNT, self.living(2))
            return stream(versions(a=1), ending)

        self.watch(log_in, FORBIDDEN, arguments=("a",), environ=self.kept())
        self.assertEqual(
            [request.headers["authorization"] for request in self.service.requests],
            [f'Token token="{self.living(number)}"' for number in (1, 2)],
        )
        save_login(URL, ACCOUNT, self.living(3), SavedSession("alice", "r1"))
        ended = self.watch(stream(ending), httpx.Response(401), arguments=("a",), environ=self.kept())
        self.assertIn("the session of alice in account acme at https://svc.example has ended", ended.stderr)
        self.path.unlink()
        self.assertIn("not logged in", self.watch(arguments=("a",), environ=self.kept()).stderr)

    def test_unread(self) -> None:
        """When nobody reads its lines any more it ends with 1, at the next one, and says nothing (CLI-1)."""
        # It finds these tests where they were found here.
        places = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        environ = {**os.environ, **KEYED, "HOME": str(self.path.parent.parent), "PYTHONPATH": places}
        pipe: Any = subprocess.PIPE
        with subprocess.Popen([sys.executable, "-c", UNREAD], stdin=pipe, stdout=pipe, stderr=pipe, env=environ) as command:
            assert command.stdin is not None
            assert command.stdout is not None
            assert command.stderr is not None
            # It is there before anything else comes: lines are flushed.
            self.assertTrue(command.stdout.readline().endswith(b"\ta\t1\n"))
            command.stdout.close()
            command.stdin.close()
            self.assertEqual((command.wait(30), command.stderr.read()), (1, b""))

    @staticmethod
    def living(number: int) -> str:
        """A token that hasn't ended."""
        return token(number, int(NOW))

    @staticmethod
    def kept() -> dict[str, str]:
        """The environment of somebody who has logged in by ``svc login``."""
        return {"SVC_URL": URL, "SVC_ACCOUNT": ACCOUNT}
