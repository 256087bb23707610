"""Tests of ``svc.cli.cluster``: what is printed of a cluster, and the exit code."""

from __future__ import annotations

import json
from typing import Any, Final

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import connection
from svc.cli.main import main
from tests.cli.completing import complete
from tests.cli.test_health import GONE, HERE, URL, B
from tests.cli.test_hostfactory import Server

STANDBY: Final = {"name": "two", "state": "streaming", "sync": "sync", "lag_bytes": 0, "lag_seconds": None, "since": 60.0}
NODE: Final = {"version": "1.2", "schema": 15, "release": "18.1", "timeline": 3, "since": 3600.0}
PRIMARY: Final = HERE | NODE | {"standbys": [STANDBY]}
FOLLOWER: Final = B | NODE | {"version": "1.3", "standbys": None}


class ClusterStatusTests(SynchronousTestCase):
    """``svc cluster status``."""

    def run_command(self, document: Any, *arguments: str, code: int = 0) -> Result:
        """Run the command, which must end with this exit code."""
        server = Server(200, document)
        self.patch(connection, "run_asyncio", complete)
        self.patch(connection, "ApiConnection", lambda *_: server)
        server.url = URL  # type: ignore[attr-defined] # what Connection has
        outcome = CliRunner().invoke(main, ["cluster", "status", *arguments, "--url", URL])
        self.assertEqual(outcome.exit_code, code, outcome.output)
        return outcome

    def test_all(self) -> None:
        """Each server is a line, each standby is one, and sentences tell who would take over and what differs (OPS-7)."""
        document = {
            "servers": [PRIMARY, FOLLOWER],
            "successor": {"name": "two", "complete": True},
            "versions": {"svc": ["1.2", "1.3"]},
        }
        self.assertEqual(
            self.run_command(document).stdout.splitlines(),
            [
                "this server\tok\t1970-01-01T00:00:01Z\tprimary\t1970-01-01T01:00:00Z\t3\t\t1.2\t15\t18.1",
                "b\tok\t1970-01-01T00:00:01Z\tfollower\t1970-01-01T01:00:00Z\t3\t0.5 s, 96 bytes\t1.3\t15\t18.1",
                "",
                "two\tstreaming\tsync\t1970-01-01T00:01:00Z\t0 bytes",
                "",
                "If the primary were lost, two would take over, which has every confirmed change.",
                "Versions of svc differ: 1.2, 1.3",
            ],
        )
        self.assertEqual(json.loads(self.run_command(document, "--json").stdout), document)

    def test_not_well(self) -> None:
        """With a server that isn't well the exit code is 1; what isn't told, or can't be, is unknown (OPS-7)."""
        strange = GONE | {"changed": True, "since": 1e300, "standbys": 7, "name": "x\x1b[2J", "timeline": ["\x1b"]}
        outcome = self.run_command({"servers": [HERE, strange]}, code=1)
        self.assertIn("x\\x1b[2J\tunreachable\tunknown\tunknown\tunknown\tunknown", outcome.stdout)
        self.assertIn("nobody could take over", outcome.stdout)
        self.assertIn("not healthy: x\\x1b[2J", outcome.stderr)
        document = {"servers": [PRIMARY], "successor": {"name": "\x1b", "complete": False}, "versions": ["x"]}
        self.assertIn("\\x1b would take over, which may lack", self.run_command(document).stdout)
