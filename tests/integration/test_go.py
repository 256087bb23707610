"""``conjur-api-go`` against a server of the dialect ``conjur``, as ``docs/guides/go.md`` shows it."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SkipTest

from tests.integration.client import CLAIMS, KeySetSite, workload_token
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerTestCase

MODULE: Final = "github.com/cyberark/conjur-api-go@v0.15.7"
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "guides" / "go.md"
ADMINISTRATION: Final = Path(__file__).with_name("go_admin.go")

POLICY: Final = """
- !policy conjur/authn-jwt
- !policy
  id: apps
  body:
    - !variable db/user
    - !variable db/password
    - !group readers
    - !host
      id: shop
      annotations: { authn-jwt/ci/project: acme/shop, authn/api-key: true }
    - !permit
      role: !group readers
      privileges: [ read, execute ]
      resources: [ !variable db/user, !variable db/password ]
"""

#: What the administration says, line by line.
SAID: Final = """\
version 1.23.0
dry run Valid YAML
loaded 1
authenticator jwt ci true conjur/authn-jwt
authenticators 1
switched false
switched true
branch apps team map[color:red]
branch map[color:blue]
gone true
member conjur/authn-jwt/ci/apps host apps/shop
member apps/readers host apps/shop
members 2
memberships [acme:group:apps/readers acme:group:conjur/authn-jwt/ci/apps acme:host:apps/shop]
may true
hosts 1
reads s3cret
reads s3cret
refused true
policy true
"""


class GoTests(ServerTestCase, PostgresTestCase):
    """One server, and programs that are compiled here."""

    skip = unavailable()

    async def prepare(self) -> None:
        """Get the library, before anything is started."""
        await super().prepare()
        go = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
        if go is None:
            raise SkipTest("there is no go to compile with: go.dev has it, in version 1.25 or later")
        self.go, self.folder = go, Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        await self.run_go("mod", "init", "example.org/shop")
        try:
            await self.run_go("get", MODULE)
        except AssertionError as error:
            raise SkipTest(f"go can't get {MODULE}: {error}") from None

    async def run_go(self, *arguments: str, **environment: str) -> str:
        """Run go in the folder of the program; return its output."""
        surroundings = {**os.environ, "GOFLAGS": "-mod=mod -modcacherw -buildvcs=false", **environment}
        out, err, code = await getProcessOutputAndValue(self.go, arguments, surroundings, str(self.folder))
        self.assertEqual(code, 0, err.decode()[-1000:])
        text: str = out.decode()
        return text

    async def test_the_page(self) -> None:
        """A program administers a server, branches, members and authenticators included, and the page's program logs in by
        JWT and reads a batch of secrets (NEWER-1, CFG-26, SEC-13).
        """
        provider = KeySetSite(self)
        server = self.serve(
            "--account=acme",
            "--dialect=conjur",
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            "--jwks-refetch-interval=0",
            database_url=await self.create_database(migrated=False),
        )
        address = {"CONJUR_APPLIANCE_URL": await server.ready(), "CONJUR_ACCOUNT": "acme"}
        administration = self.folder / "admin"
        administration.mkdir()
        shutil.copy(ADMINISTRATION, administration / "main.go")
        policy = self.folder / "policy.yml"
        policy.write_text(POLICY)
        given = (str(policy), provider.uri, str(CLAIMS["iss"]), str(CLAIMS["aud"]))
        said = await self.run_go("run", "./admin", *given, **address, ADMIN_KEY=server.admin_key())
        self.assertEqual(said, SAID)

        (program,) = re.findall(r"^```go\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
        (self.folder / "main.go").write_text(program)
        token = self.folder / "token"
        token.write_bytes(workload_token())
        login = {"CONJUR_AUTHN_TYPE": "jwt", "CONJUR_SERVICE_ID": "ci", "JWT_TOKEN_PATH": str(token)}
        said = await self.run_go("run", ".", **address, **login)
        self.assertEqual(said, "shop logs in with a password of 6 bytes\n")
        self.assertIn(said, PAGE.read_text())
