"""The OpenAPI document and a real server: what the command prints, and what is answered to requests made up from it."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from pathlib import Path

from twisted.internet.threads import deferToThread
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SkipTest, TestCase

from svc.model.dialect import CONJUR
from svc.web.openapi.document import build_document
from svc.web.openapi.served_routes import routes_of_dialect
from tests.integration.client import Api
from tests.integration.openapi_fuzz import OPTIONS, Fuzz
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerTestCase
from tests.programs import require_programs

#: How many requests are made up at least, with how many variants of each; ``tests.integration.openapi_runs`` makes up more.
REQUESTS = 2500
VARIANTS = 25


#: What makes a client of a document, what it is made of, and what checks its types.
PACKAGES = ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3")
_SCRIPT = Path(__file__).with_name("openapi_client.ts")

POLICY = b"""
- !policy
  id: app
  body:
    - !host web
    - !variable password
    - !permit { role: !host web, privileges: [ read, execute ], resource: !variable password }
"""


async def generated(case: TestCase, document: str) -> tuple[str, Path]:
    """Make a client of a document, and return the program of Node.js and the folder with what is to be run in it.

    It gets what it needs from npm's registry, and skips the test, with the reason, where that can't be had.
    """
    node, npm = require_programs("node", "npm")
    folder = Path(tempfile.mkdtemp())
    case.addCleanup(shutil.rmtree, folder, ignore_errors=True)
    environment = {"PATH": f"{Path(npm).parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)}
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "svc.json").write_text(document)
    shutil.copy(_SCRIPT, folder / "client.ts")

    async def run(*command: str) -> tuple[str, int]:
        out, err, code = await getProcessOutputAndValue(command[0], command[1:], environment, str(folder))
        return (out + err).decode(), code

    options = ("--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--silent")
    said, code = await run(npm, "install", *options, *PACKAGES)
    programs = folder / "node_modules" / ".bin"
    if code or not (programs / "tsc").exists():
        raise SkipTest(f"npm can't get {', '.join(PACKAGES)}: {said[-300:]}")
    case.assertEqual((await run(str(programs / "openapi-typescript"), "svc.json", "--output", "svc.d.ts"))[1], 0)
    as_checked = ("--strict", "--noEmitOnError", "--target", "es2022", "--lib", "es2022,dom", "--module", "nodenext")
    said, code = await run(str(programs / "tsc"), *as_checked, "client.ts")
    case.assertEqual((said, code), ("", 0))
    return node, folder


class OpenapiServerTests(ServerTestCase, PostgresTestCase):
    """One server."""

    skip = unavailable()

    async def test_document(self) -> None:
        """OAS-1: a server's document is what the command prints for its dialect."""
        server = self.serve("--account=acme", "--dialect=conjur", database_url=await self.create_database(migrated=False))
        answer = await Api.of(self, await server.ready()).ask("GET", "/openapi.json")
        self.assertEqual(answer.json(), json.loads(json.dumps(build_document(routes_of_dialect(CONJUR), CONJUR))))

    async def test_generated_client(self) -> None:
        """OAS-2: a client in TypeScript that is generated from the document fits a program by its types, and this logs in
        with it and reads a secret.
        """
        server = self.serve("--account=acme", database_url=await self.create_database(migrated=False))
        api = Api.of(self, await server.ready())
        node, folder = await generated(self, (await api.ask("GET", "/openapi.json")).body.decode())
        admin = await api.authenticate("admin", server.admin_key())
        loaded = (await api.ask("POST", "/policies/acme/policy/root", POLICY, admin)).json()
        await api.ask("POST", api.variable("app/password"), b"s3cret", admin)
        key = loaded["created_roles"]["acme:host:app/web"]["api_key"]
        arguments = [str(folder / "client.js"), api.url, "host/app/web", key]
        out, err, code = await getProcessOutputAndValue(node, arguments, {"HOME": str(folder)}, str(folder))
        self.assertEqual(code, 0, (out, err))
        self.assertEqual(
            json.loads(out),
            {
                "secret": "s3cret",
                "missing": "not_found",
                "both": {"acme:variable:app/password": "s3cret"},
                "caller": "host/app/web",
            },
        )

    async def test_fuzzed(self) -> None:
        """OAS-6: the document tells of every answer to requests that keep to it and that do not; no answer is a fault of the
        program, and none takes long.
        """
        server = self.serve(*OPTIONS, database_url=await self.create_database(migrated=False))
        fuzz = Fuzz(await server.ready(), server.admin_key(), math.inf, variants=VARIANTS, at_most=REQUESTS)
        await deferToThread(fuzz.run, each=1)
        self.assertEqual(fuzz.faults, {}, fuzz.told())
        self.assertGreater(fuzz.findings.own, 5, fuzz.told())
        self.assertGreater(fuzz.findings.varied, 100, fuzz.told())
        self.assertGreater(fuzz.statuses[200], 10, fuzz.told())
