"""Tests of ``svc.cli.audit``: what is asked of the server, and what is said of its answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click
from click import UsageError
from click.testing import CliRunner
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import audit
from svc.cli.audit import PAGE, POLL_INTERVAL
from svc.cli.connection import ApiAnswer, ApiConnection
from svc.cli.main import main
from svc.workload.faults import Fault
from tests.workload.wire import exchange_of


def event(number: int, message: str = "acme:user:admin updated x") -> dict[str, Any]:
    """An event as the server tells it."""
    return {
        "timestamp": "2023-11-14T22:13:20.250+00:00",
        "procid": "r-1",
        "msgid": "update",
        "sdata": {"client@43868": {"ip": "192.0.2.7"}, "action@43868": {"result": "success", "operation": "update"}},
        "message": message,
        "number": number,
    }


class Server:
    """What a command sees of a connection: it has ``events``, the newest first."""

    account = "acme"
    encode_path = staticmethod(ApiConnection.encode_path)

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = list(events)
        self.asked: list[str] = []
        self.reactor = Clock()
        self.requester = exchange_of(None, self.reactor)

    async def request_with_token(self, method: str, path: str, body: bytes | None = None, **headers: str) -> ApiAnswer:
        """Answer with a page."""
        self.asked.append(path)
        query = dict(pair.split("=") for pair in path.partition("?")[2].split("&"))
        offset = int(query["offset"])
        page = self.events[offset : offset + int(query["limit"])]
        return ApiAnswer(200 if page else 404, json.dumps(page).encode())


class Files(Server):
    """A server whose searches have these pages."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        super().__init__()
        self.pages = list(pages)

    async def request_with_token(self, method: str, path: str, body: bytes | None = None, **headers: str) -> ApiAnswer:
        """Answer with the next page."""
        self.asked.append(path)
        return ApiAnswer(200, json.dumps(self.pages.pop(0)).encode())


def page(numbers: Iterable[int], after: str | None) -> dict[str, Any]:
    """A page of records."""
    records = [event(number) | {"server": "vault2"} for number in numbers]
    return {"records": records, "after": after, "complete": True, "servers": []}


class AuditTests(SynchronousTestCase):
    """The commands."""

    def run_command(self, name: str, server: Server, **options: Any) -> tuple[Deferred[None], list[str]]:
        """Begin a command; what it prints is in the list."""
        printed: list[str] = []
        self.patch(click, "echo", lambda text="", **_: printed.append(text))
        command: Any = getattr(audit, name).callback
        body = next(cell.cell_contents for cell in command.__closure__ if callable(cell.cell_contents))
        defaults: dict[str, Any] = {"as_json": False} | (
            {"limit": PAGE, "offset": 0, "after": None, "changes": True} if name == "search" else {"lines": 10}
        )
        return Deferred.fromCoroutine(body(server, **(defaults | options))), printed

    def test_search(self) -> None:
        """Events are lines of a table, the newest first; what a name would do to a terminal is escaped (CLI-27)."""
        done, printed = self.run_command(
            "search", Server(event(2, "did \x1b[2J"), event(1)), procid="r-1", auth_user="a:b:c"
        )
        self.successResultOf(done)
        self.assertEqual(len(printed), 2)
        self.assertIn("update update\tsuccess\t192.0.2.7\tr-1\tdid \\x1b[2J", printed[0])

    def test_paths(self) -> None:
        """Resources, roles and whatever has an id are asked for by their full ids, in the account of the command."""
        for options, path in (
            ({}, "/audit?"),
            ({"resource": "variable:a/b"}, "/audit/resources/acme%3Avariable%3Aa%2Fb?"),
            ({"role": "other:user:x"}, "/audit/roles/other%3Auser%3Ax?"),
            ({"about": "user:x"}, "/audit/entities/acme%3Auser%3Ax?"),
        ):
            server = Server()
            done, printed = self.run_command("search", server, **options)
            self.successResultOf(done)
            self.assertTrue(server.asked[0].startswith(path), server.asked)
            self.assertEqual(printed, ["Nothing was found."])
        done, _ = self.run_command("search", Server(), resource="variable:a", role="user:x")
        self.failureResultOf(done, UsageError)

    def test_filters(self) -> None:
        """Filters go to the server under its names."""
        server = Server()
        done, _ = self.run_command("search", server, msgid="policy", action_operation="add", client_ip="::1")
        self.successResultOf(done)
        self.assertEqual(
            server.asked[0].partition("?")[2],
            "limit=100&offset=0&msgid=policy&action%4043868%2Foperation=add&client%4043868%2Fip=%3A%3A1",
        )

    def test_refused(self) -> None:
        """What the server refuses ends the command, also where it is not found."""

        class Refusing(Server):
            async def request_with_token(
                self, method: str, path: str, body: bytes | None = None, **headers: str
            ) -> ApiAnswer:
                return ApiAnswer(404, b'{"error":{"code":"not_found","message":"Variable not found"}}')

        done, _ = self.run_command("search", Refusing())
        failure = self.failureResultOf(done)
        self.assertTrue(isinstance(failure.value, Fault) or "not found" in str(failure.value), failure)

    def test_records(self) -> None:
        """Records of all servers are lines with the server's name, asked for page by page, and where to go on is printed
        (CLI-76).
        """
        server = Files(page(range(1500, 500, -1), "c1"), page(range(500, 0, -1), "c2"))
        done, printed = self.run_command(
            "search",
            server,
            changes=False,
            limit=1500,
            after="c0",
            what="login",
            auth_user="user:x",
            about="variable:y",
            procid="r",
            action_operation="o",
            since=0.0,
        )
        self.successResultOf(done)
        query = (
            "limit=1000&after=c0&what=login&user=acme%3Auser%3Ax&about=acme%3Avariable%3Ay&request=r&operation=o"
            "&since=1970-01-01T00%3A00%3A00.000%2B00%3A00"
        )
        self.assertEqual(
            [sorted(path.partition("?")[2].split("&")) for path in server.asked],
            [sorted(query.split("&")), sorted(query.replace("1000", "500").replace("c0", "c1").split("&"))],
        )
        self.assertEqual(len(printed), 1501)
        self.assertIn("\tvault2\tupdate update\tsuccess\t", printed[0])
        self.assertEqual(printed[-1], "There are older ones: go on by --after c2")

    def test_faults(self) -> None:
        """What a server couldn't search is printed after what was found, and the exit code is 1 (CLI-76)."""
        faults = [{"server": "vault1", "complete": False, "faults": ["it can't \x1b[2J be asked"]}]
        done, printed = self.run_command("search", Files(page([1], None) | {"servers": faults}), changes=False)
        self.assertEqual(self.failureResultOf(done, click.exceptions.Exit).value.exit_code, 1)
        self.assertEqual(printed[1], "vault1: it can't \\x1b[2J be asked")
        self.assertIn("--changes", printed[2])

    def test_older_server(self) -> None:
        """An older server, which has no such route, is named, with what it can do (CLI-76)."""

        class Older(Server):
            async def request_with_token(
                self, method: str, path: str, body: bytes | None = None, **headers: str
            ) -> ApiAnswer:
                return ApiAnswer(404, b'{"error":{"code":"not_found","message":"there is no route for this method and x"}}')

        done, _ = self.run_command("search", Older(), changes=False)
        self.assertIn("use --changes or --file", str(self.failureResultOf(done, click.ClickException).value))

    def test_places(self) -> None:
        """Options that belong to another place than the one that is searched are a usage error (CLI-77)."""
        for options in (
            {"changes": False, "offset": 1},
            {"changes": True, "after": "x"},
            {"changes": True, "limit": 1001},
            {"changes": True, "outcome": "failure"},
        ):
            done, _ = self.run_command("search", Server(), **options)
            self.failureResultOf(done, UsageError)
        for option in (["--changes"], ["--after", "x"]):
            found = CliRunner().invoke(main, ["audit", "search", "--file", __file__, *option], env={})
            self.assertEqual(found.exit_code, 2, found.output)

    def test_tail(self) -> None:
        """The last events come first, the newest last, and then each that comes, once (CLI-27)."""
        server = Server(event(3, "c"), event(2, "b"), event(1, "a"))
        following, printed = self.run_command("tail", server, lines=2)
        self.assertEqual([line[-1] for line in printed], ["b", "c"])
        server.reactor.advance(POLL_INTERVAL)
        self.assertEqual(len(printed), 2)
        server.events[:0] = [event(5, "e"), event(4, "d")]
        server.reactor.advance(POLL_INTERVAL)
        self.assertEqual([line[-1] for line in printed], ["b", "c", "d", "e"])
        server.reactor.advance(POLL_INTERVAL)
        self.assertEqual(len(printed), 4)
        following.addErrback(lambda _: None)
        following.cancel()

    def test_tail_of_much(self) -> None:
        """When more came than one answer has, all of it is shown."""
        server = Server(event(1, "a"))
        following, printed = self.run_command("tail", server, as_json=True)
        server.events[:0] = [event(number) for number in range(350, 1, -1)]
        server.reactor.advance(POLL_INTERVAL)
        self.assertEqual([json.loads(line)["number"] for line in printed], list(range(1, 351)))
        following.addErrback(lambda _: None)
        following.cancel()

    def test_help(self) -> None:
        """Help says who sees what, and gives an example."""
        shown = CliRunner().invoke(main, ["audit", "search", "--help"])
        self.assertEqual(shown.exit_code, 0, shown.output)
        self.assertIn("--resource", shown.output)
        self.assertIn("Example", shown.output)
        self.assertIn("root policy", CliRunner().invoke(main, ["audit", "--help"]).output)
