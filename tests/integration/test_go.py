"""``conjur-api-go`` against a server of the dialect ``conjur``, as ``docs/guides/go.md`` shows it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SkipTest

from tests.integration.client import CLAIMS, KeySetSite
from tests.integration.postgres import PostgresTestCase
from tests.integration.test_cli import CommandTestCase
from tests.programs import find_program

MODULE: Final = "github.com/cyberark/conjur-api-go@v0.15.7"
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "guides" / "go.md"
ADMINISTRATION: Final = Path(__file__).with_name("go_admin.go")

POLICY: Final = """
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

#: No token is kept on this machine.
UNKEPT: Final = {"CONJUR_CREDENTIAL_STORAGE": "none"}

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


class GoTests(CommandTestCase, PostgresTestCase):
    """One server, and programs that are compiled here."""

    async def prepare(self) -> None:
        """Get the library, before anything is started."""
        await super().prepare()
        go = find_program("go")
        if go is None:
            raise SkipTest("there is no go to compile with: go.dev has it, in version 1.25 or later")
        self.go, self.folder = go, Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        await self.run_go("mod", "init", "example.org/admin")
        try:
            await self.run_go("get", MODULE)
        except AssertionError as error:
            raise SkipTest(f"go can't get {MODULE}: {error}") from None

    async def run_go(self, *arguments: str, **environment: str) -> str:
        """Run go in the folder of the program; return its output."""
        surroundings = {**os.environ, "GOFLAGS": "-modcacherw -buildvcs=false", **environment}
        out, err, code = await getProcessOutputAndValue(self.go, arguments, surroundings, str(self.folder))
        self.assertEqual(code, 0, err.decode()[-1000:])
        text: str = out.decode()
        return text

    async def test_administration(self) -> None:
        """A program administers a server, branches, members and authenticators included (NEWER-1)."""
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
        shutil.copy(ADMINISTRATION, self.folder / "main.go")
        await self.run_go("mod", "tidy")
        policy = self.folder / "policy.yml"
        policy.write_text(POLICY)
        given = (str(policy), provider.uri, str(CLAIMS["iss"]), str(CLAIMS["aud"]))
        caller = {"CONJUR_AUTHN_LOGIN": "admin", "CONJUR_AUTHN_API_KEY": server.admin_key(), **UNKEPT}
        said = await self.run_go("run", ".", *given, **address, **caller)
        self.assertEqual(said, SAID)

    async def test_the_page(self) -> None:
        """What the page tells to do leads from an empty account to a program that logs in by JWT and reads a batch of
        secrets (CFG-26, SEC-13).
        """
        page = PAGE.read_text()
        provider = self.start("provider", "serve", "--port", "0", awaited=b"issuer: ")

        async def end() -> None:
            assert provider.transport is not None
            os.kill(provider.transport.pid, signal.SIGINT)
            await provider.ended

        self.addCleanup(lambda: Deferred.fromCoroutine(end()))
        await provider.on_output
        issuer = re.findall(r"^issuer: (\S+)$", provider.stdout.decode(), re.M)[0]
        server = self.serve(
            "--account=acme",
            "--dialect=conjur",
            "--authenticators=authn,authn-jwt/ci",
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            database_url=await self.create_database(migrated=False),
        )
        url = await server.ready()
        operator = {"SVC_URL": url, "SVC_ACCOUNT": "acme", "SVC_LOGIN": "admin", "SVC_API_KEY": server.admin_key()}
        (policy,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
        await self.svc("policy", "load", "root", "-", given=policy.encode(), environ=operator)
        values = re.findall(r"^printf %s (\S+) +\| svc variable set (\S+)$", page, re.M)
        self.assertEqual(len(values), 6)
        for value, name in values:
            given = value.replace("http://127.0.0.1:8089", issuer).encode()
            await self.svc("variable", "set", name, given=given, environ=operator)
        (claims,) = re.findall(r"^svc provider token (.*) > token ", page, re.M)
        token = await self.svc("provider", "token", "--issuer", issuer, *claims.split())

        (program,) = re.findall(r"^```go\n(.*?)^```$", page, re.M | re.S)
        (self.folder / "main.go").write_text(program)
        (self.folder / "token").write_text(token.stdout)
        for name in ("go.mod", "go.sum"):
            (self.folder / name).unlink()
        login = {"CONJUR_AUTHN_TYPE": "jwt", "CONJUR_SERVICE_ID": "ci", "JWT_TOKEN_PATH": "token", **UNKEPT}
        address = {"CONJUR_APPLIANCE_URL": url, "CONJUR_ACCOUNT": "acme"}
        (line,) = re.findall(r"^\$ (go mod init .*)$", page, re.M)
        for command in line.split(" && "):
            said = await self.run_go(*command.split()[1:], **address, **login)
            if command.startswith("go mod init"):
                # The page takes the newest.
                await self.run_go("mod", "edit", f"-require={MODULE}")
        self.assertEqual(said, "shop logs in with a password of 6 bytes\n")
        self.assertIn(said, page)
