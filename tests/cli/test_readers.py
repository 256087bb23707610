"""Tests of ``svc.cli.readers``: the list of readers, and the warning of commands that change a secret."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import readers, variable
from svc.cli.connection import ApiAnswer
from svc.cli.policy import reader_sentences
from tests.cli.test_expiring import Server

KEPT = "2024-01-01T10:00:00.000+00:00"


def reader(name: str, *days: str, count: int = 1) -> dict[str, Any]:
    """A role that read it on these days."""
    return {"role": f"a:{name}", "last_read": days[0], "days": list(days), "count": count}


class Paths(Server):
    """A server that encodes paths, as a connection does."""

    account = "a"

    def encode_path(self, *parts: str) -> str:
        """A path."""
        return "/" + "/".join(parts)


class Rotating(Paths):
    """A server that answers a question about readers in its own way, and takes rotations."""

    def __init__(self, status: int, document: Any) -> None:
        super().__init__("readers", [])
        self.status, self.document, self.posted = status, document, list[str]()

    async def request_with_token(self, method: str, path: str, **_: Any) -> ApiAnswer:
        """Answer."""
        if method == "POST":
            self.posted.append(path)
            return ApiAnswer(201, b"")
        return ApiAnswer(self.status, json.dumps(self.document).encode())


class ReadersTests(SynchronousTestCase):
    """The command and the warning."""

    def run_command(self, command: Any, server: Server, **options: Any) -> tuple[str, str]:
        """Run a command; return what it printed on both streams."""
        body = next(cell.cell_contents for cell in command.callback.__closure__ if callable(cell.cell_contents))
        said, aside = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(aside):
            self.successResultOf(Deferred.fromCoroutine(body(server, **options)))
        return said.getvalue(), aside.getvalue()

    def test_listed(self) -> None:
        """Readers are printed with the last day, the number of days and of reads, page by page (READ-13)."""
        found = [reader("host:ci/1\x1b", "2024-02-03", "2024-02-01", count=7), reader("user:b", "2024-02-02")]
        options = {"identifier": "shop/db", "since": 5, "limit": 10, "everything": False}
        others = {"certain": True, "missing": [], "kept_since": KEPT}
        server = Paths("readers", found, **others)
        said, aside = self.run_command(readers.readers, server, **options, as_json=False)
        self.assertEqual(said.splitlines(), ["host:ci/1\\x1b\t2024-02-03\t2\t7", "user:b\t2024-02-02\t1\t1"])
        self.assertEqual(aside, "")
        self.assertEqual(server.asked[0], {"readers": ["true"], "since": ["5"], "limit": ["10"]})
        said, _ = self.run_command(readers.readers, server, **options, as_json=True)
        self.assertEqual(json.loads(said), {"readers": found, "after": None, **others})

    def test_uncertain(self) -> None:
        """Why there may be more readers is printed aside (READ-13)."""
        options = {"identifier": "db", "since": None, "limit": 1, "everything": False, "as_json": False}
        for missing, words in (([], "reads are known since 2024-01-01"), (["e\x1bast"], "servers are missing: e\\x1bast")):
            server = Paths("readers", [reader("user:b", "2024-02-02")] * 2, certain=False, missing=missing, kept_since=KEPT)
            _, aside = self.run_command(readers.readers, server, **options)
            self.assertIn(words, aside)
            self.assertIn("There are more", aside)

    def test_before_a_rotation(self) -> None:
        """A rotation says before who has read the variable in the last 30 days, if the caller may know (READ-13)."""
        hosts = [reader(f"host:{name}", "2024-02-02") for name in "abcd"]
        sure = {"certain": True, "missing": [], "kept_since": KEPT, "after": None}
        names = "host:a, host:b, host:c"
        for status, document, words in (
            (200, {"readers": [], **sure}, "Nobody has read it in the last 30 days.\n"),
            (200, {"readers": hosts[:1], **sure}, "1 role has read it in the last 30 days: host:a.\n"),
            (200, {"readers": hosts[:3], **sure}, f"3 roles have read it in the last 30 days: {names}.\n"),
            (200, {"readers": hosts, **sure}, f"4 roles have read it in the last 30 days: {names} and others.\n"),
            (
                200,
                {"readers": hosts, **sure, "after": "x"},
                f"4 or more roles have read it in the last 30 days: {names} and",
            ),
            (
                200,
                {"readers": [], **sure, "certain": False, "missing": ["b"]},
                "Nobody has read it in the last 30 days. That is",
            ),
            (200, {"id": "a:variable:db"}, ""),
            (403, {}, ""),
        ):
            with self.subTest(words=words):
                server = Rotating(status, document)
                said, aside = self.run_command(variable.variable.commands["rotate"], server, identifier="db")
                self.assertEqual(said, "")
                self.assertTrue(aside.startswith(f"{words}" if words else "db is due to be rotated."), aside)
                self.assertTrue(aside.endswith("db is due to be rotated.\n"))
                self.assertEqual(server.posted, ["/secrets/a/variable/db?rotation"])


class DeletionTests(SynchronousTestCase):
    """The sentences of a dry run."""

    def test_sentences(self) -> None:
        """A dry run says of each variable who has read it, and whether others may have (POL-112)."""
        read = {
            "variable": "acme:variable:shop/db",
            "readers": [{"role": "acme:host:web"}, {"role": "acme:host:ci"}],
            "more": False,
        }
        found = {"variables": [read], "complete": True, "certain": True, "missing": [], "kept_since": "2026-01-02T03:04:05Z"}
        first = "Before you delete shop/db: 2 roles have read it in the last 30 days: host:web, host:ci."
        uncertain = "them lately. That is uncertain: counts of these servers are missing: west."
        others = "Others that would be deleted may have been read, too: `svc readers VARIABLE` lists who did."
        of_these = "Of the variables that would be deleted:"
        many = first.replace("2 roles", "2 or more roles")
        missing = {"certain": False, "missing": ["west"]}
        for changes, expected in (
            ({}, [first]),
            ({"variables": []}, []),
            ({"variables": [{**read, "more": True}]}, [many]),
            ({"complete": False}, [first, others]),
            (missing, [first, f"{of_these} others may have read {uncertain}"]),
            (
                {"variables": [], **missing},
                [f"{of_these} nobody is known to have read {uncertain}"],
            ),
        ):
            self.assertEqual(reader_sentences({"readers": {**found, **changes}}), expected, changes)
        self.assertEqual(reader_sentences({}), [])
