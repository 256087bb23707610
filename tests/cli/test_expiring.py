"""Tests of ``svc.cli.expiring``: what is asked of the server, and what is said of its answers."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import expiring
from svc.cli.connection import ApiAnswer
from svc.cli.expiring import _VERBS, PAGE
from svc.model.expiration import ExpirationKind


class Server:
    """What a command sees of a connection: a list, and what else the answers say."""

    def __init__(self, field: str, found: list[dict[str, Any]], **others: Any) -> None:
        self.field, self.found, self.others = field, found, others
        self.asked: list[dict[str, list[str]]] = []

    async def request_with_token(self, method: str, path: str) -> ApiAnswer:
        """Answer with a page, after an empty one."""
        given = parse_qs(urlsplit(path).query)
        self.asked.append(given)
        if "after" not in given:
            return ApiAnswer(200, json.dumps({self.field: [], "after": "0", **self.others}).encode())
        start = int(given["after"][0])
        end = start + int(given["limit"][0])
        after = str(end) if end < len(self.found) else None
        return ApiAnswer(200, json.dumps({self.field: self.found[start:end], "after": after, **self.others}).encode())


def idle(name: str, last: str | None = None, *, certain: bool = True) -> dict[str, Any]:
    """A role that isn't used."""
    made = "2023-11-14T22:13:20.250+00:00"
    return {"role": f"a:{name}", "created_at": made, "last_login": last, "idle_since": "2024-01-01", "certain": certain}


class ExpiringTests(SynchronousTestCase):
    """The commands."""

    def run_command(self, name: str, server: Server, **options: Any) -> tuple[str, str]:
        """Run a command; return what it said on both streams."""
        command: Any = getattr(expiring, name).callback
        body = next(cell.cell_contents for cell in command.__closure__ if callable(cell.cell_contents))
        said, aside = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(aside):
            self.successResultOf(Deferred.fromCoroutine(body(server, **options)))
        return said.getvalue(), aside.getvalue()

    def test_expiring(self) -> None:
        """What ends is printed with when and why, as the server's names say it (END-10)."""
        common = {"at": "2023-11-15T22:13:20.000+00:00", "by_age": False}
        found = [
            {**common, "kind": "certificate", "id": "listen", "part": "port 8443"},
            {**common, "kind": "rotation", "id": "a:variable:db\x1b", "failures": 2, "fault": "it is away"},
            {**common, "kind": "api-key", "id": "a:user:x", "since": "2022-11-15T22:13:20.000+00:00", "by_age": True},
        ]
        server = Server("expiring", found)
        asked = {"within": 86400, "age": 5, "kind": ("rotation",), "limit": PAGE, "everything": False}
        said, aside = self.run_command("expiring", server, **asked, as_json=False)
        self.assertEqual(
            said.splitlines(),
            [
                "2023-11-15T22:13:20Z\tcertificate\tlisten (port 8443)\texpires",
                "2023-11-15T22:13:20Z\trotation\tvariable:db\\x1b\tis rotated, after 2 failures: it is away",
                "2023-11-15T22:13:20Z\tapi-key\tuser:x\told: since 2022-11-15",
            ],
        )
        self.assertEqual(aside, "")
        given = {"within": ["86400"], "age": ["5"], "kind": ["rotation"], "limit": ["1000"]}
        self.assertEqual(server.asked, [given, {**given, "after": ["0"]}])
        said, _ = self.run_command("expiring", server, **asked, as_json=True)
        self.assertEqual(json.loads(said), {"expiring": found, "after": None})
        self.assertEqual(_VERBS.keys(), {kind.value for kind in ExpirationKind})

    def test_pages(self) -> None:
        """So many are printed as were asked for, with a word that there are more; or all of them (END-10, END-27)."""
        server = Server("unused", [idle(f"host:h{n}") for n in range(2 * PAGE + 1)], followers=[], kept_since="2023-01-01")
        for limit, everything, count, more in ((PAGE + 5, False, PAGE + 5, True), (1, True, 2 * PAGE + 1, False)):
            said, aside = self.run_command(
                "unused", server, since=5, secrets=False, limit=limit, everything=everything, as_json=False
            )
            self.assertEqual((len(said.splitlines()), "There are more" in aside), (count, more))

    def test_unused(self) -> None:
        """Roles are printed with their last login; what isn't known of them, and of followers, is said aside (END-27)."""
        server = Server(
            "unused",
            [idle("host:a"), idle("user:b", "2023-12-01"), idle("host:c", certain=False)],
            followers=["two", "th\x1bree"],
            kept_since="2024-01-01T10:00:00.000+00:00",
        )
        said, aside = self.run_command("unused", server, since=5, secrets=False, limit=10, everything=False, as_json=False)
        self.assertEqual(
            said.splitlines(),
            [
                "host:a\tnone\t2023-11-14",
                "user:b\t2023-12-01\t2023-11-14",
                "host:c\tnone\t2023-11-14\tnot known before 2024-01-01",
            ],
        )
        self.assertIn("Last logins are kept since 2024-01-01", aside)
        self.assertIn("Logins at followers aren't counted: two, th\\x1bree.", aside)

    def test_unread(self) -> None:
        """With --secrets variables are printed with their last read, and aside what makes that uncertain (READ-14)."""
        made = "2023-11-14T22:13:20.250+00:00"
        found: list[dict[str, Any]] = [
            {
                "variable": "a:variable:db\x1b",
                "created_at": made,
                "last_read": None,
                "unread_since": "2024-01-01",
                "certain": False,
            },
            {
                "variable": "a:variable:k:1",
                "created_at": made,
                "last_read": "2024-02-01",
                "unread_since": "2024-02-01",
                "certain": True,
            },
        ]
        options = {"since": 5, "secrets": True, "limit": 10, "everything": False, "as_json": False}
        for missing, words in (
            ([], "reads are known since 2024-01-01"),
            (["w\x1b"], "counts of these servers are missing: w\\x1b"),
        ):
            server = Server("unused", found, missing=missing, kept_since="2024-01-01T10:00:00.000+00:00")
            said, aside = self.run_command("unused", server, **options)
            self.assertEqual(
                said.splitlines(),
                ["db\\x1b\tnone\t2023-11-14\tnot known before 2024-01-01", "k:1\t2024-02-01\t2023-11-14"],
            )
            self.assertIn(words, aside)
            self.assertEqual(server.asked[0], {"secrets": ["true"], "since": ["5"], "limit": ["10"]})
        server = Server("unused", found[1:], missing=[], kept_since="2024-01-01T10:00:00.000+00:00")
        self.assertEqual(self.run_command("unused", server, **options)[1], "")
