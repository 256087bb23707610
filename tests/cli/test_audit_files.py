"""Tests of ``svc.cli.audit`` and ``svc.cli.audit_files`` on files."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.record_files import RecordQuery
from svc.cli.audit_files import follow_file
from svc.cli.main import main
from svc.cli.options import parse_moment
from tests.audit.chained import Writer


class FilesTests(SynchronousTestCase):
    """A server's file."""

    def setUp(self) -> None:
        """Write it."""
        self.writer, self.path = Writer(), Path(self.mktemp())
        self.path.write_bytes(b"".join(self.writer.lines(3)))

    def run_search(self, *options: str) -> Result:
        """Search it."""
        return CliRunner().invoke(main, ["audit", "search", "-f", str(self.path), *options], env={})

    def test_search(self) -> None:
        """Files are searched without a server, by the same filters, to the same table and JSON (CLI-27, AUD-40)."""
        result = self.run_search("--who", "host:web", "--what", "variable:v1", "--outcome", "success")
        self.assertEqual((result.exit_code, result.stdout.count("\n")), (0, 1), result.output)
        self.assertIn("fetch fetch\tsuccess\t192.0.2.7\tr-1\tacme:host:web fetched acme:variable:v1", result.stdout)
        [event] = json.loads(self.run_search("--json", "--what", "variable:v1").stdout)
        self.assertEqual(event["sdata"]["subject@43868"], {"resource": "acme:variable:v1"})
        self.assertEqual(self.run_search("--outcome", "failure").stdout, "")
        more = self.path.with_suffix(".1")
        more.write_bytes(b"".join(Writer("vault2").lines(2)))
        self.assertEqual(self.run_search(str(more)).stdout.count("\n"), 5)

    def test_cut_list(self) -> None:
        """A list that isn't all says so, and how to go on (AUD-40)."""
        result = self.run_search("--limit", "2")
        self.assertEqual((result.stdout.count("\n"), result.stderr), (2, "There may be older ones: go on by --offset 2.\n"))
        result = self.run_search("--limit", "2", "--offset", "2")
        self.assertEqual((result.stdout.count("\n"), result.stderr), (1, ""))

    def test_times(self) -> None:
        """Moments are texts of RFC 3339, dates, and so long ago (AUD-40)."""
        for options, count in (
            (("--since", "2023-11-14"), 3),
            (("--since", "2023-11-15"), 0),
            (("--until", "2023-11-14"), 3),
            (("--until", "2023-11-13"), 0),
            (("--since", "2023-11-14T22:13:22+00:00", "--until", "2023-11-14T23:13:23.250+01:00"), 1),
            (("--since", "1h"), 0),
            (("--until", "7d"), 3),
        ):
            self.assertEqual(self.run_search(*options).stdout.count("\n"), count, options)
        self.assertEqual(parse_moment("2h", 10_000), 2800)
        for option, bad in (
            ("--since", "yesterday"),
            ("--until", "9999-12-31"),
            ("--since", "0001-01-01T00:00:00+23:59"),
            ("--since", "999999d"),
        ):
            result = self.run_search(option, bad)
            self.assertEqual((result.exit_code, "2h" in result.output), (2, True), bad)

    def test_no_file(self) -> None:
        """A file that can't be read is named; without one a server is asked for (AUD-40)."""
        result = CliRunner().invoke(main, ["audit", "search", "--file", "absent"])
        self.assertEqual((result.exit_code, "absent can't be read: No such file" in result.output), (1, True))
        result = CliRunner(env={"SVC_URL": None, "SVC_ACCOUNT": None}).invoke(main, ["audit", "search"])
        self.assertEqual((result.exit_code, "SVC_URL" in result.output), (2, True))
        result = CliRunner().invoke(main, ["audit", "tail", "-f", "absent"])
        self.assertEqual((result.exit_code, "absent can't be read" in result.output), (1, True))

    def test_follow(self) -> None:
        """The last records come first, the newest last, then each that comes, until Ctrl-C (AUD-41)."""
        shown: list[list[Any]] = []
        steps = iter([self.writer.lines(2), []])

        def pause() -> None:
            lines = next(steps, None)
            if lines is None:
                raise KeyboardInterrupt
            with self.path.open("ab") as file:
                file.write(b"".join(lines))

        query = RecordQuery(what="variable:v1")
        follow_file(self.path, query, 1, lambda events: shown.append([event["number"] for event in events]), pause)
        self.assertEqual(shown, [[2], [5], []])

    def test_tail(self) -> None:
        """The command shows them as lines (CLI-27, AUD-41)."""
        printed: list[str] = []
        self.patch(click, "echo", lambda text="", **_: printed.append(text))

        def interrupted(_: float) -> None:
            raise KeyboardInterrupt

        self.patch(time, "sleep", interrupted)
        CliRunner().invoke(main, ["audit", "tail", "-f", str(self.path), "--lines", "2"])
        self.assertEqual([line[-2:] for line in printed], ["v1", "v2"])
