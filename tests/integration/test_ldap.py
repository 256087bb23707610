"""Logging in by a real LDAP directory: OpenLDAP's server, and ``twistd -n svc`` before it."""

from __future__ import annotations

import base64
import json
import signal
from itertools import count, cycle
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from svc.authn.ldap.client import MAX_PER_DIRECTORY
from svc.model.ldap_directories import DEADLINE
from tests.authn.providers.authority import Authority
from tests.integration import slapd
from tests.integration.client import Answer, Api, now
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerTestCase
from tests.integration.slapd import BASE, SERVICE, SERVICE_PASSWORD, Slapd

reactor: Any = installed_reactor

#: What authenticators differ in: annotations beside those of all.
SERVICES: Final = {
    "corp": 'ldap-authn/uri: "ldap://127.0.0.1:{port}"',
    "ldaps": 'ldap-authn/uri: "ldaps://127.0.0.1:{tls_port}"',
    "parts": 'ldap-authn/host: 127.0.0.1\n        ldap-authn/port: "{tls_port}"\n        ldap-authn/connect_type: ssl',
    "by-name": (
        'ldap-authn/uri: "ldap://127.0.0.1:{port}"\n        ldap-authn/filter_template: "(entryDN=uid=%s,ou=people,{base})"'
    ),
    "plain": 'ldap-authn/uri: "ldap://127.0.0.1:{port}"\n        ldap-authn/connect_type: plain',
    "wrong-ca": 'ldap-authn/uri: "ldap://127.0.0.1:{port}"',
    "wrong-port": 'ldap-authn/uri: "ldap://127.0.0.1:{tls_port}"',
    "ldaps-to-plain": 'ldap-authn/uri: "ldaps://127.0.0.1:{port}"',
    "third": 'ldap-authn/uri: "ldap://127.0.0.1:9, ldap://127.0.0.1:{tls_port} ldap://127.0.0.1:{port}"',
    "wrong-base": 'ldap-authn/uri: "ldap://127.0.0.1:{port}"',
}

POLICY: Final = """
- !policy
  id: svc/authn-ldap/{service}
  body:
    - !webservice
      annotations:
        ldap-authn/base_dn: {base}
        ldap-authn/bind_dn: {bind}
        {more}
    - !variable bind-password
    - !variable tls-ca-cert
    - !permit {{ role: !group /people, privileges: [ read, authenticate ], resource: !webservice }}
"""

#: Logins and passwords of people who can't log in: known to policy alone, to the directory alone, and to neither.
STRANGERS: Final = (("absent", "absent's"), ("stranger", "stranger's"), ("nobody", "nobody's"))

PEOPLE: Final = {"alice": "alice's password", "bob": "пароль", "o'brien (jr)*": "x", "a,b=c": "comma", "carol": "carol's"}


class LdapTests(PostgresTestCase, ServerTestCase):
    """A directory with a few people, and authenticators that ask it in every way."""

    timeout = 300
    skip = unavailable() or slapd.unavailable()

    async def prepare(self) -> None:
        """Start both, load policy, and set variables."""
        await super().prepare()
        self._numbers = count(1)
        self.directory = Slapd(Path(self.mktemp()).absolute(), {**PEOPLE, "stranger": "stranger's"}, "twice")
        self.addCleanup(self.directory.kill)
        await self.directory.start()
        self.process = self.serve(
            "--account=acme",
            "--authenticators=" + ",".join(["authn", *(f"authn-ldap/{service}" for service in SERVICES)]),
            "--allow-private-providers=127.0.0.0/8",
            "--ldap-failures=100",  # how many are sent is the subject of ``test_lockouts``
            database_url=await self.create_database(migrated=False),
        )
        self.api = Api.of(self, await self.process.ready())
        self.admin = await self.api.authenticate("admin", self.process.admin_key())
        users = "".join(f"- !user {json.dumps(login)}\n" for login in (*PEOPLE, "twice", "absent"))
        members = ", ".join(f"!user {json.dumps(login)}" for login in (*PEOPLE, "twice", "absent"))
        policy = f"{users}- !group people\n- !grant {{ role: !group people, members: [ {members} ] }}\n"
        for service, more in SERVICES.items():
            told = more.format(port=self.directory.port, tls_port=self.directory.tls_port, base=BASE)
            base = f"ou=absent,{BASE}" if service == "wrong-base" else BASE
            policy += POLICY.format(service=service, base=base, bind=SERVICE, more=told)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", policy.encode(), self.admin)
        self.assertEqual(loaded.status, 201, loaded)
        made = loaded.json()["created_roles"]
        self.api_keys = {login: made[f"acme:user:{login}"]["api_key"].encode() for login in PEOPLE}
        other = Authority().pem
        for service in SERVICES:
            ca = other if service == "wrong-ca" else self.directory.authority.pem
            for name, value in (("bind-password", SERVICE_PASSWORD), ("tls-ca-cert", ca)):
                path = self.api.variable(f"svc/authn-ldap/{service}/{name}")
                self.assertEqual((await self.api.ask("POST", path, value.encode(), self.admin)).status, 201)

    async def login(self, login: str, password: str, service: str = "corp", **headers: str) -> Answer:
        """Ask for the API key."""
        basic = base64.b64encode(f"{login}:{password}".encode()).decode()
        path = f"/authn-ldap/{service}/acme/login"
        return await self.api.ask("GET", path, None, Authorization=f"Basic {basic}", **headers)

    async def authenticate(self, login: str, evidence: bytes, service: str = "corp", **headers: str) -> Answer:
        """Ask for an access token."""
        path = f"/authn-ldap/{service}/acme/{quote(login, safe='')}/authenticate"
        return await self.api.ask("POST", path, evidence, **headers)

    async def assert_admitted(self, login: str, service: str = "corp") -> None:
        """The password gives the API key, and both give a token that names the user."""
        told = await self.login(login, PEOPLE[login], service)
        self.assertEqual((told.status, told.body), (200, self.api_keys[login]), self.process.said)
        for evidence in (told.body, PEOPLE[login].encode()):
            answer = await self.authenticate(login, evidence, service)
            self.assertEqual(answer.status, 200)
            who = await self.api.ask("GET", "/whoami", token=base64.b64encode(answer.body).decode())
            self.assertEqual(who.json()["username"], login)

    async def assert_refused(self, login: str, password: str, reason: str, service: str = "corp", status: int = 401) -> None:
        """Neither is given, which tells nothing but perhaps when to come again; the audit has the reason."""
        ids = [f"refused-{next(self._numbers)}" for _ in range(2)]
        asking = (
            self.login(login, password, service, X_Request_Id=ids[0]),
            self.authenticate(login, password.encode(), service, X_Request_Id=ids[1]),
        )
        for request_id, asked in zip(ids, asking, strict=True):
            answer = await asked
            self.assertEqual((answer.status, answer.body), (status, b""))
            self.assertEqual("retry-after" in answer.headers, status == 503)
            await self.process.records(request_id, reason)
        self.assertNotIn(password or "-password-", self.process.said.replace("take the password", ""))

    async def assert_put_off(self, reason: str, service: str = "corp") -> None:
        """For this reason nobody can be judged, with a good password or a wrong one, known or not."""
        for login, password in (("alice", PEOPLE["alice"]), ("alice", "wrong-password"), *STRANGERS):
            await self.assert_refused(login, password, reason, service, 503)

    async def assert_judged(self) -> None:
        """All is as it should be."""
        await self.assert_admitted("alice")
        await self.assert_refused("alice", "wrong-password", "credentials-wrong")
        for (login, password), reason in zip(STRANGERS, ("ldap-entry-unknown", "role-unknown", "role-unknown"), strict=True):
            await self.assert_refused(login, password, reason)

    async def test_logins(self) -> None:
        """People log in with their password, over StartTLS and LDAPS, whatever characters their logins have, and at the
        third host where the first refuses connections and the second fails TLS (NET-16).
        """
        for login in PEOPLE:
            await self.assert_admitted(login)
        for service in ("ldaps", "parts", "by-name", "third"):
            await self.assert_admitted("alice", service)
        for login in ("a,b=c", "o'brien (jr)*"):
            await self.assert_admitted(login, "by-name")
        listed = (await self.api.ask("GET", "/authenticators")).json()
        self.assertIn("authn-ldap", listed["installed"])
        self.assertIn("authn-ldap/corp", listed["enabled"])

    async def test_refusals(self) -> None:
        """Nobody else does: each for its own reason, which the client isn't told."""
        for login, password, reason in (
            ("alice", "wrong-password", "credentials-wrong"),
            ("alice", PEOPLE["bob"], "credentials-wrong"),
            ("alice", "", "credentials-missing"),
            ("absent", "some-password", "ldap-entry-unknown"),
            ("twice", "twice-password", "ldap-entry-ambiguous"),
            ("stranger", "stranger's", "role-unknown"),
            ("admin", "some-password", "ldap-role-refused"),
            ("alic*", "some-password", "role-unknown"),
        ):
            await self.assert_refused(login, password, reason)
        await self.assert_refused("carol", "carol's", "configuration-invalid", "plain")

    async def test_who_can_not_be_judged(self) -> None:
        """Nobody can be judged where the directory isn't trusted, speaks no LDAP, or refuses the search or who searches."""
        await self.assert_put_off("ldap-tls-failed", "wrong-ca")
        await self.assert_put_off("ldap-tls-failed", "wrong-port")
        await self.assert_put_off("ldap-tls-failed", "ldaps-to-plain")
        await self.assert_put_off("ldap-search-refused", "wrong-base")
        path = self.api.variable("svc/authn-ldap/corp/bind-password")
        self.assertEqual((await self.api.ask("POST", path, b"another", self.admin)).status, 201)
        await self.assert_put_off("ldap-bind-refused")
        self.assertEqual((await self.api.ask("POST", path, SERVICE_PASSWORD.encode(), self.admin)).status, 201)
        await self.assert_judged()

    async def test_a_directory_that_goes_and_comes_back(self) -> None:
        """While the directory is gone nobody's password is judged and API keys work; when it is back all is as before."""
        self.directory.kill()
        await self.assert_put_off("ldap-unavailable")
        self.assertEqual((await self.authenticate("alice", self.api_keys["alice"])).status, 200)
        await self.directory.start()
        await self.assert_judged()

    async def test_a_directory_that_hangs(self) -> None:
        """Logins by a directory that hangs end at their deadline; meanwhile others are let in, by API key, at once."""
        self.directory.signal(signal.SIGSTOP)
        began = now()
        trying = [("alice", PEOPLE["alice"]), ("alice", "wrong-password"), *STRANGERS]
        hanging = [
            Deferred.fromCoroutine(ask)
            for _, (login, password) in zip(range(MAX_PER_DIRECTORY), cycle(trying), strict=False)
            for ask in (self.login(login, password), self.authenticate(login, password.encode()))
        ]
        await deferLater(reactor, 0.5)
        for _ in range(10):
            asked = now()
            await self.api.authenticate("alice", self.api_keys["alice"].decode())
            self.assertEqual((await self.authenticate("bob", self.api_keys["bob"])).status, 200)
            self.assertLess(now() - asked, DEADLINE / 2)
        for answer in await gatherResults(hanging):
            self.assertEqual((answer.status, answer.body), (503, b""))
            self.assertIn(answer.headers["retry-after"], {"2", "3", "4"})
        self.assertGreaterEqual(now() - began, DEADLINE)
        self.assertLess(now() - began, DEADLINE * 2)
        self.directory.signal(signal.SIGCONT)
        await self.assert_judged()
