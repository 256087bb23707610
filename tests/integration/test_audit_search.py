"""The audit files of two servers, searched over HTTP and by the command."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path

from twisted.internet.defer import Deferred, gatherResults

from tests.integration.client import Answer, Api
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import beat
from tests.integration.test_cli import CommandTestCase


class SearchTests(PostgresTestCase, CommandTestCase):
    """Two servers on one database, of which one has two processes, and lists the other and one that isn't there."""

    skip = unavailable()
    timeout = 240

    async def prepare(self) -> None:
        """Start them."""
        await super().prepare()
        dsn = await self.create_database(migrated=False)
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()
        other = self.serve("--account=acme", f"--audit-file={self.folder}/b.log", database_url=dsn)
        self.other_url = await other.ready()
        self.admin_key = other.admin_key()
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            gone = unused.getsockname()[1]
        server = self.serve(
            "--processes=2",
            f"--audit-file={self.folder}/a.log",
            "--cluster",
            f"b={self.other_url},gone=http://127.0.0.1:{gone}",
            database_url=dsn,
        )
        self.url = await server.ready()
        self.api, self.other = Api.of(self, self.url), Api.of(self, self.other_url)
        self.token = await self.api.authenticate("admin", self.admin_key)

    async def search(self, query: str = "") -> Answer:
        """Search."""
        return await self.api.ask("GET", f"/audit/records{query}", token=self.token)

    async def test_cluster(self) -> None:
        """Logins, reads and refusals of both servers are found by time, in rotated and compressed files too; the member that
        isn't there is named (AUD-61, AUD-63, AUD-64, CLI-76).
        """
        policy = b"- !variable password\n"
        await self.api.ask("POST", "/policies/acme/policy/root", policy, self.token)
        await self.api.ask("POST", self.api.variable("password"), b"s3cret", self.token)
        await self.api.ask("GET", self.api.variable("password"), token=self.token)
        refused = await self.other.ask("POST", "/authn/acme/admin/authenticate", b"wrong")
        self.assertEqual(refused.status, 401)
        (self.folder / "b.log.1.gz").write_bytes(gzip.compress((self.folder / "b.log").read_bytes()))
        document = (await self.search()).json()
        found = [(each["server"], each["msgid"], each["sdata"]["action@43868"]["result"]) for each in document["records"]]
        self.assertEqual(found[0], ("b", "authn", "failure"))
        self.assertEqual([msgid for _, msgid, _ in found[1:3]], ["fetch", "update"])
        self.assertEqual(len({server for server, _, _ in found}), 2)
        stamps = [each["timestamp"] for each in document["records"]]
        self.assertEqual(stamps, sorted(stamps, reverse=True))
        keys = [json.dumps(each["sdata"]["chain@43868"]) for each in document["records"]]
        self.assertEqual(len(keys), len(set(keys)))
        faults = {each["server"]: each["faults"] for each in document["servers"]}
        self.assertEqual((document["complete"], faults["b"]), (False, []))
        self.assertIn("it can't be asked: no connection", faults["gone"][0])

        environ = {"SVC_URL": self.url, "SVC_ACCOUNT": "acme", "SVC_LOGIN": "admin", "SVC_API_KEY": self.admin_key}
        said = await self.svc("audit", "search", "--outcome", "failure", environ=environ, code=1)
        self.assertEqual(said.stdout.count("\n"), 1, said)
        self.assertIn("gone: it can't be asked", said.stderr)
        said = await self.svc("audit", "search", "--changes", "--what", "update", environ=environ)
        self.assertIn("variable:password", said.stdout)

    async def test_many_at_once(self) -> None:
        """Of many searches at once some are refused, whichever process has them; afterwards there is room again (AUD-62)."""
        answers = await gatherResults([Deferred.fromCoroutine(self.search("?what=absent")) for _ in range(12)])
        statuses = {answer.status for answer in answers}
        self.assertEqual(statuses, {200, 503}, statuses)
        for answer in answers:
            if answer.status == 503:
                self.assertIn("searches of the audit are under way", answer.body.decode())
        while (await self.search()).status != 200:
            await beat()
