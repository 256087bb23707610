"""A directory that locks accounts after three failures, and ``twistd -n svc`` with two processes before it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from svc.authn.throttling import LDAP_STEP
from tests.integration import slapd
from tests.integration.client import Answer, Api, now
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerTestCase
from tests.integration.slapd import BASE, SERVICE, SERVICE_PASSWORD, Slapd

reactor: Any = installed_reactor

#: How many of a person's refused logins are sent: fewer than lock an account.
SENT: Final = 2

POLICY: Final = """
- !user alice
- !user bob
- !user carol
- !user dave
- !policy
  id: svc/authn-ldap/corp
  body:
    - !webservice
      annotations:
        ldap-authn/uri: "ldap://127.0.0.1:{port}"
        ldap-authn/base_dn: {base}
        ldap-authn/bind_dn: {bind}
        ldap-authn/filter_template: "(|(uid=%s)(cn=%s@corp))"
    - !webservice status
    - !variable bind-password
    - !variable tls-ca-cert
    - !permit {{ role: !user /alice, privileges: [ read, authenticate ], resource: !webservice }}
    - !permit {{ role: !user /bob, privileges: [ read, authenticate ], resource: !webservice }}
    - !permit {{ role: !user /carol, privileges: [ read, authenticate ], resource: !webservice }}
    - !permit {{ role: !user /dave, privileges: [ read, authenticate ], resource: !webservice }}
"""

PEOPLE: Final = {"alice": "alice's password", "bob": "bob's password", "ceo": "ceo's password"}

_PERSON: Final = """
dn: uid={uid},ou=people,{base}
objectClass: inetOrgPerson
uid: {uid}
cn: {uid}
sn: {uid}
userPassword: {uid}'s password
{more}
"""


def person(uid: str) -> str:
    """The entry of a person."""
    return f"uid={uid},ou=people,{BASE}"


class LockoutTests(PostgresTestCase, ServerTestCase):
    """A directory that locks."""

    timeout = 300
    skip = unavailable() or slapd.unavailable()

    async def prepare(self) -> None:
        """Start both, load policy, and set variables."""
        await super().prepare()
        more = _PERSON.format(uid="carol", base=BASE, more="pwdReset: TRUE")
        more += _PERSON.format(uid="dave", base=BASE, more="pwdAccountLockedTime: 000001010000Z")
        folder = Path(self.mktemp()).absolute()
        self.directory = Slapd(folder, PEOPLE, "twice", more, locks=True)
        self.addCleanup(self.directory.kill)
        await self.directory.start()
        self.database_url = await self.create_database(migrated=False)
        self.data_dir = folder / "svc"
        await self.begin()
        self.admin = await self.api.authenticate("admin", self.process.admin_key())
        text = POLICY.format(port=self.directory.port, base=BASE, bind=SERVICE)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", text.encode(), self.admin)
        self.assertEqual(loaded.status, 201, loaded)
        self.api_keys = {
            name.rpartition(":")[2]: made["api_key"].encode() for name, made in loaded.json()["created_roles"].items()
        }
        await self.set_variable("tls-ca-cert", self.directory.authority.pem)
        await self.set_variable("bind-password", SERVICE_PASSWORD)

    async def begin(self, processes: int = 2) -> None:
        """Start the server."""
        self.process = self.serve(
            "--account=acme",
            "--authenticators=authn,authn-ldap/corp",
            "--allow-private-providers=127.0.0.0/8",
            "--health-interval=0.5",
            f"--processes={processes}",
            "--login-throttle=off",
            f"--ldap-failures={SENT}",
            database_url=self.database_url,
            data_dir=self.data_dir,
        )
        self.api = Api.of(self, await self.process.ready())

    async def set_variable(self, name: str, value: str) -> None:
        """Set a variable of the authenticator."""
        answer = await self.api.ask("POST", self.api.variable(f"svc/authn-ldap/corp/{name}"), value.encode(), self.admin)
        self.assertEqual(answer.status, 201)

    async def authenticate(self, login: str, evidence: bytes, at: str = "authn-ldap/corp", **headers: str) -> Answer:
        """Ask for an access token."""
        return await self.api.ask("POST", f"/{at}/acme/{login}/authenticate", evidence, **headers)

    async def assert_admitted(self, login: str = "alice") -> None:
        """The password admits."""
        answer = await self.authenticate(login, PEOPLE[login].encode())
        self.assertEqual(answer.status, 200, self.process.said)

    async def many(self, login: str, evidence: bytes, count: int = 20) -> list[Answer]:
        """Log in so often at once."""
        asked = [Deferred.fromCoroutine(self.authenticate(login, evidence)) for _ in range(count)]
        answers: list[Answer] = await gatherResults(asked, consumeErrors=True)
        return answers

    async def test_a_wrong_password_of_the_service(self) -> None:
        """A wrong password of the account that searches is one failure in the directory, after many health checks, logins
        and restarts: the account isn't locked, and the right password is taken at once (LOCK-1, LOCK-3 to LOCK-5).
        """
        await self.assert_admitted()
        await self.set_variable("bind-password", "mistyped\n")
        for answer in await self.many("alice", PEOPLE["alice"].encode()):
            self.assertEqual(answer.status, 503)
            self.assertIn(int(answer.headers["retry-after"]), range(3500, 3662))
        await deferLater(reactor, 5)
        self.assertEqual(self.directory.failures(SERVICE), (1, False))
        self.assertEqual((await self.api.ask("GET", "/health")).json()["services"]["ldap"], "failed")
        for _ in range(2):
            await self.process.stop()
            await self.begin(processes=1)
            self.assertEqual((await self.authenticate("alice", b"x")).status, 503)
            await deferLater(reactor, 1.5)
        self.assertEqual(self.directory.failures(SERVICE), (1, False))
        # An operator has it tried once; the status doesn't.
        path = "/authn-ldap/corp/acme"
        told = await self.api.ask("GET", f"{path}/status", token=self.admin)
        self.assertEqual((told.status, told.json()["bind"]["outcome"]), (500, "refused"))
        self.assertEqual(self.directory.failures(SERVICE), (1, False))
        self.assertEqual((await self.api.ask("POST", f"{path}/alice/explain", b"", self.admin)).status, 200)
        self.assertEqual(self.directory.failures(SERVICE), (2, False))
        await self.set_variable("bind-password", SERVICE_PASSWORD)
        await self.assert_admitted()
        told = await self.api.ask("GET", f"{path}/status", token=self.admin)
        self.assertEqual((told.status, told.json()["bind"]["outcome"]), (200, "ok"), told.body)

    async def test_guesses(self) -> None:
        """Twenty guesses at once, by two processes and two spellings, are as many failures in the directory as are allowed,
        of people with and without a user here; nobody is locked. The right password waits, the API key doesn't (LOCK-6,
        LOCK-7).
        """
        for login in ("alice", "ceo", "ALICE"):
            for answer in await self.many(login, b"wrong"):
                self.assertEqual((answer.status, answer.body), (401, b""))
        for login in ("alice", "ceo"):
            self.assertEqual(self.directory.failures(person(login)), (SENT, False))
        answer = await self.authenticate("alice", PEOPLE["alice"].encode(), X_Request_Id="too-many")
        self.assertEqual(answer.status, 401)
        await self.process.records("too-many", "ldap-failures-too-many")
        for at in ("authn", "authn-ldap/corp"):
            self.assertEqual((await self.authenticate("alice", self.api_keys["alice"], at)).status, 200)
        # Others aren't concerned, and twenty of one person are admitted at once.
        for answer in await self.many("bob", PEOPLE["bob"].encode()):
            self.assertEqual(answer.status, 200)

    async def test_time(self) -> None:
        """Whether the directory has an entry can't be told from the time of a refusal: both end with a step (FAIL-18)."""
        for login in ("alice", "nobody"):
            began = now()
            self.assertEqual((await self.authenticate(login, b"wrong")).status, 401)
            self.assertGreaterEqual(now() - began, LDAP_STEP - 0.005)

    async def test_old_keys(self) -> None:
        """A key that was replaced isn't sent to the directory, which counts no failure (LOCK-9)."""
        old = self.api_keys["bob"]
        basic = base64.b64encode(b"bob:" + old).decode()
        rotated = await self.api.ask("PUT", "/authn/acme/api_key", Authorization=f"Basic {basic}")
        self.assertEqual(rotated.status, 200)
        for _ in range(5):
            self.assertEqual((await self.authenticate("bob", old)).status, 401)
            self.assertEqual((await self.authenticate("bob", old + b"\n")).status, 401)
        self.assertEqual(self.directory.failures(person("bob")), (0, False))
        await self.assert_admitted("bob")

    async def test_qualified(self) -> None:
        """A password that has to be changed first is no login, and a locked account is said to be locked (LOCK-11)."""
        for login, words in (("carol", "has to be changed first"), ("dave", "the account is locked")):
            after = len(self.process.stdout)
            answer = await self.authenticate(login, f"{login}'s password".encode())
            self.assertEqual((answer.status, answer.body), (401, b""))
            await self.process.says(": ldap-entry-refused (", after)
            await self.process.says(words, after)
