"""The log of a server that is flooded."""

from __future__ import annotations

import json
import re
from pathlib import Path

from svc.server.serverlog import AT_ONCE
from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import ServerTestCase

#: How many logins are refused.
COUNT = 300


class LogTests(ServerTestCase, PostgresTestCase):
    """A server whose log a test reads."""

    async def test_json(self) -> None:
        """Each line of a log in JSON is an object, that of a process that serves too, and names what refused a login
        (CFG-41).
        """
        server = self.serve(
            "--account=acme",
            "--processes=2",
            "--log-format=json",
            "--log-level=info",
            f"--audit-file={Path(self.mktemp()).resolve()}",
            database_url=await self.create_database(migrated=False),
        )
        api = Api.of(self, await server.ready())
        self.assertEqual((await api.ask("POST", "/authn/acme/nobody/authenticate", b"x" * 40)).status, 401)
        self.assertEqual(await server.stop(), 0)
        lines = [line for line in server.stdout.decode().splitlines() if not re.match("svc ready: |API key for ", line)]
        events = [json.loads(line) for line in lines]
        self.assertLessEqual({"time", "level", "logger", "message"}, set.intersection(*map(set, events)))
        self.assertTrue(any(event["message"].startswith("The server is ready at ") and event["urls"] for event in events))
        (refused,) = [event for event in events if event["message"].startswith("authn refused")]
        self.assertRegex(refused["process"], r"\Aworker [12]\Z")

    async def test_refusals_are_counted(self) -> None:
        """Of very many refused logins some are logged one by one, the rest in one line; the audit has each, with its id."""
        server = self.serve(
            "--account=acme", "--login-throttle=off", database_url=await self.create_database(migrated=False)
        )
        api = Api.of(self, await server.ready())
        for number in range(COUNT):
            answer = await api.ask("POST", "/authn/acme/nobody/authenticate", b"x" * 40, X_Request_Id=f"n-{number}")
            self.assertEqual(answer.status, 401)
        self.assertEqual(await server.stop(), 0)
        lines = [line for line in server.stdout.decode().splitlines() if "authn refused" in line]
        self.assertLessEqual(len(lines), 4 * (AT_ONCE + 1))
        counted = [int(count) for line in lines for count in re.findall(r"(\d+) more like this .* from 1 address;", line)]
        self.assertEqual(len(lines) - len(counted) + sum(counted), COUNT)
        recorded = set(re.findall(rb"(?m)^<\d+>1 \S+ \S+ svc (n-\d+) authn ", server.stdout))
        self.assertEqual(len(recorded), COUNT)
