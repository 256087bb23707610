"""Tests of ``svc.cli.deleted``: what is asked of the server, and what is said of its answers."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from click import ClickException, UsageError
from click.exceptions import Exit
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import deleted
from svc.cli.connection import ApiAnswer, ApiConnection
from svc.cli.deleted import _SKIP_REASONS, BATCH, PAGE
from svc.services.deleted_records import BATCH_MOST, RestoreObstacle


def record(number: int, name: str, *, overwritten: bool = False) -> dict[str, Any]:
    """A record as the server lists it."""
    versions = [1, 2] if ":variable:" in name else []
    times = {"deleted_at": "2023-11-14T22:13:20.250+00:00", "kept_until": "2023-11-21T22:13:20.250+00:00"}
    return {"number": number, "id": name, "owner": "a:user:x", "overwritten": overwritten, "versions": versions, **times}


class Server:
    """What a command sees of a connection: records of policies, of which all but those in ``left`` come back."""

    account = "a"
    encode_path = staticmethod(ApiConnection.encode_path)

    def __init__(self, left: dict[int, str] | None = None, **policies: list[dict[str, Any]]) -> None:
        self.policies = policies
        self.left = left or {}
        #: How many come back at once.
        self.most = BATCH
        self.asked: list[tuple[str, str, list[int]]] = []

    async def request_with_token(self, method: str, path: str, body: bytes | None = None, **headers: str) -> ApiAnswer:
        """Answer."""
        parts = urlsplit(path)
        policy, given = parts.path.rpartition("/")[2], parse_qs(parts.query)
        numbers = [int(number) for number in given.get("number", [])]
        self.asked.append((method, policy, numbers))
        if policy not in self.policies:
            return ApiAnswer(404, json.dumps({"error": {"code": "not_found", "message": f"{policy} not found"}}).encode())
        records = self.policies[policy]
        if method == "GET":
            offset = int(given["offset"][0])
            return ApiAnswer(200, json.dumps(records[offset : offset + int(given["limit"][0])]).encode())
        chosen = [one for one in records if one["number"] in numbers and one["number"] not in self.left]
        if method == "DELETE":
            return ApiAnswer(200, json.dumps({"purged": len(chosen if numbers else records)}).encode())
        left = [{"number": number, "reason": self.left[number]} for number in numbers if number in self.left]
        left += [{"number": one["number"], "reason": "too-much"} for one in chosen[self.most :]]
        chosen = chosen[: self.most]
        return ApiAnswer(200, json.dumps({"restored": chosen, "left": left, "rows_left_out": len(left)}).encode())


class DeletedTests(SynchronousTestCase):
    """The commands."""

    def run_command(self, name: str, server: Server, **options: Any) -> tuple[Deferred[None], str, str]:
        """Run a command; return its end, and what it said on both streams."""
        command: Any = getattr(deleted, name).callback
        body = next(cell.cell_contents for cell in command.__closure__ if callable(cell.cell_contents))
        said, aside = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(aside):
            done = Deferred.fromCoroutine(body(server, "root", **options))
        return done, said.getvalue(), aside.getvalue()

    def restore(self, server: Server, *numbers: int, **options: Any) -> tuple[Deferred[None], str, str]:
        """Run ``restore``."""
        return self.run_command(
            "restore", server, **{"numbers": numbers, "everything": False, "recursive": False, "as_json": False} | options
        )

    def test_list(self) -> None:
        """All pages are listed (DEL-27)."""
        server = Server(root=[record(number, "a:variable:v") for number in range(PAGE + 1, 0, -1)])
        done, said, _ = self.run_command("list_deleted", server, as_json=False)
        self.successResultOf(done)
        lines = said.splitlines()
        self.assertEqual(len(lines), PAGE + 1)
        self.assertEqual(lines[-1].split("\t")[:3] + lines[-1].split("\t")[5:], ["1", "a:variable:v", "1,2", "deleted"])

    def test_restore(self) -> None:
        """What comes back is printed; what doesn't is said with what to do, and the command fails (DEL-27)."""
        server = Server({2: "other-readers"}, root=[record(1, "a:variable:v\x1b"), record(2, "a:variable:w")])
        done, said, aside = self.restore(server, 1, 2)
        self.assertEqual(self.failureResultOf(done, Exit).value.exit_code, 1)
        self.assertEqual(said, "1\ta:variable:v\\x1b\t1,2\n")
        self.assertIn("2 is left: others than before may read the variable: deny them, restore,", aside)
        self.assertIn("1 restored, 1 left.", aside)
        self.assertIn("1 grants and permissions did not come back", aside)

    def test_restore_all(self) -> None:
        """The last of each record comes back, what others belong to first, in batches that the server takes (DEL-27)."""
        records = [record(9, "a:variable:v", overwritten=True), record(8, "a:variable:v"), record(7, "a:host:h")]
        records += [
            record(6, "a:variable:v"),
            record(5, "a:policy:p"),
            *(record(100 + n, f"a:variable:{n}") for n in range(150)),
        ]
        server = Server(root=records, p=[record(4, "a:layer:p/l")])
        done, _, _ = self.restore(server, everything=True)
        self.successResultOf(done)
        (_, first), (_, second) = [(policy, numbers) for method, policy, numbers in server.asked if method == "POST"]
        self.assertEqual((first[:2], len(first), len(second)), ([5, 7], BATCH, 53))
        self.assertEqual({6, 9} & {*first, *second}, set())
        server.asked.clear()
        done, said, _ = self.restore(server, everything=True, recursive=True, as_json=True)
        self.successResultOf(done)
        self.assertEqual(server.asked[-1], ("POST", "p", [4]))
        self.assertEqual(len(json.loads(said)["restored"]), 154)

    def test_restore_what_is_hidden(self) -> None:
        """A policy that comes back and can't be seen is named with the reason; those after it are gone through, and the
        command fails (DEL-27).
        """
        server = Server(root=[record(1, "a:policy:own"), record(2, "a:policy:p")], p=[record(3, "a:layer:p/l")])
        done, said, aside = self.restore(server, everything=True, recursive=True)
        self.assertEqual(self.failureResultOf(done, Exit).value.exit_code, 1)
        self.assertIn("3\ta:layer:p/l", said)
        self.assertIn("The records of policy own are left: not found, or not visible to this role (status 404)", aside)
        self.assertIn("3 restored, 1 left.", aside)
        done, _, _ = self.run_command("restore", Server(), numbers=(), everything=True, recursive=True, as_json=False)
        self.failureResultOf(done, ClickException)

    def test_too_much(self) -> None:
        """What is too much for one request is asked for again, with what was left besides (DEL-28)."""
        server = Server({4: "forbidden"}, root=[record(number, f"a:variable:{number}") for number in (1, 2, 3, 4)])
        server.most = 2
        done, said, _ = self.restore(server, 1, 2, 3, 4, as_json=True)
        self.failureResultOf(done, Exit)
        self.assertEqual([numbers for _, _, numbers in server.asked], [[1, 2, 3, 4], [3, 4]])
        told = json.loads(said)
        self.assertEqual([each["number"] for each in told["restored"]], [1, 2, 3])
        self.assertEqual(told["left"], [{"number": 4, "reason": "forbidden"}])

    def test_purge(self) -> None:
        """Numbers are purged, or all (DEL-27)."""
        server = Server(root=[record(1, "a:variable:v"), record(2, "a:variable:w")])
        for numbers, everything, count in (((2,), False, 1), ((), True, 2)):
            done, _, aside = self.run_command("purge", server, numbers=numbers, everything=everything)
            self.successResultOf(done)
            self.assertEqual((aside, server.asked[-1]), (f"{count} purged.\n", ("DELETE", "root", [*numbers])))

    def test_usage(self) -> None:
        """It has to be said what is meant: nothing is purged by a forgotten number (DEL-27)."""
        server = Server(root=[])
        for numbers, everything in (((), False), ((1,), True)):
            self.failureResultOf(self.restore(server, *numbers, everything=everything)[0], UsageError)
            done, _, _ = self.run_command("purge", server, numbers=numbers, everything=everything)
            self.failureResultOf(done, UsageError)
        self.failureResultOf(self.restore(server, 1, recursive=True)[0], UsageError)
        self.assertEqual(server.asked, [])

    def test_agrees(self) -> None:
        """The command knows what the server says and takes (DEL-13)."""
        self.assertEqual(set(_SKIP_REASONS), set(RestoreObstacle))
        self.assertEqual(BATCH, BATCH_MOST)
