"""Tests of ``svc.cli.audit``: what is asked of the server, and what is said of its answers."""

from __future__ import annotations

import json
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


class AuditTests(SynchronousTestCase):
    """The commands."""

    def run_command(self, name: str, server: Server, **options: Any) -> tuple[Deferred[None], list[str]]:
        """Begin a command; what it prints is in the list."""
        printed: list[str] = []
        self.patch(click, "echo", lambda text="", **_: printed.append(text))
        command: Any = getattr(audit, name).callback
        body = next(cell.cell_contents for cell in command.__closure__ if callable(cell.cell_contents))
        defaults: dict[str, Any] = {"as_json": False} | ({"limit": PAGE, "offset": 0} if name == "search" else {"lines": 10})
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
