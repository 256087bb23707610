"""Logging in by an LDAP directory, over HTTP."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

from svc.directories import DirectoryRefused, Security
from svc.ldap.filters import search_filter
from svc.reasons import Reason
from tests.authenticators.test_ldap import CA, PASSWORD, LdapCase
from tests.web.support import Answer
from tests.web.world import ADMIN, WorldCase

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "ldap.md"


class LdapRouteTests(LdapCase):
    """The routes, in the native dialect."""

    def login(self, login: str = "alice", password: bytes = PASSWORD, path: str = "/authn-ldap/corp/acme/login") -> Answer:
        """Ask for the API key."""
        credentials = base64.b64encode(login.encode() + b":" + password).decode()
        return self.client.get(path, headers=[("Authorization", f"Basic {credentials}")])

    def authenticate(self, login: str = "alice", evidence: bytes = PASSWORD, **more: object) -> Answer:
        """Ask for an access token."""
        return self.client.post(f"/authn-ldap/corp/acme/{login}/authenticate", evidence, **more)

    def assert_refused(self, answer: Answer) -> None:  # type: ignore[override] # here it is of answers
        """It is like any other refusal."""
        self.assertEqual((answer.status, answer.body), (401, b""))
        self.assertNotIn("www-authenticate", answer.headers)

    def test_login_and_authenticate(self) -> None:
        """The directory's password gives the API key, and this an access token for the user; so does the password."""
        told = self.login()
        self.assertEqual((told.status, told.body), (200, self.api_keys["alice"]))
        self.assertEqual(told.headers["content-type"], "text/plain; charset=utf-8")
        for evidence in (told.body, PASSWORD):
            answer = self.authenticate(evidence=evidence)
            self.assertEqual((answer.status, answer.headers["content-type"]), (200, "application/json"))
            claims = json.loads(base64.urlsafe_b64decode(json.loads(answer.body)["payload"]))
            self.assertEqual(claims["sub"], "alice")

    def test_base64(self) -> None:
        """The access token comes in base64 where the client accepts that."""
        answer = self.authenticate(headers=[("Accept-Encoding", "base64")])
        self.assertEqual(answer.headers["content-encoding"], "base64")
        self.assertIn("payload", json.loads(base64.b64decode(answer.body)))

    def test_refusals_are_alike(self) -> None:
        """Whoever is refused, for whatever reason, is answered the same."""
        answers = set()
        self.directory.passwords["bob"] = b"other"
        for login, password in (
            ("alice", b"wrong"),
            ("alice", b""),
            ("alice", b"\0"),
            ("bob", PASSWORD),
            ("mallory", PASSWORD),
            ("nobody", PASSWORD),
            ("stranger", PASSWORD),
            ("admin", PASSWORD),
            ("host/web", PASSWORD),
            ("*", PASSWORD),
            ("x" * 2000, PASSWORD),
        ):
            told = self.login(login, password)
            self.assert_refused(told)
            answers.add(frozenset((name, value) for name, value in told.headers.items() if name != "x-request-id"))
        self.directory.refused = DirectoryRefused(Reason.LDAP_UNAVAILABLE, "down")
        self.assert_refused(self.login())
        self.assert_refused(self.authenticate())
        self.assertEqual(len(answers), 1)

    def test_no_credentials(self) -> None:
        """Without HTTP Basic credentials nobody is told a key, not even with an access token."""
        path = "/authn-ldap/corp/acme/login"
        self.assert_refused(self.client.get(path))
        self.assert_refused(self.client.get(path, role=ADMIN))
        self.assert_refused(self.client.get(path, headers=[("Authorization", "Basic !")]))
        self.assertEqual(self.directory.asked, [])

    def test_passwords_are_octets(self) -> None:
        """A password is any octets: colons, blanks and line ends are a part of it."""
        for password in (b"a:b", b" x ", b"x\n", "пароль".encode(), b"\xff\xfe"):
            self.directory.passwords["alice"] = password
            self.assertEqual(self.login(password=password).status, 200)
            self.assertEqual(self.authenticate(evidence=password).status, 200)

    def test_other_places(self) -> None:
        """Another service or account is refused alike; another method is no route."""
        self.assert_refused(self.login(path="/authn-ldap/other/acme/login"))
        self.assert_refused(self.login(path="/authn-ldap/corp/nowhere/login"))
        self.assertEqual(self.client.get("/authn-ldap/corp/acme/alice/authenticate").status, 404)

    def test_status(self) -> None:
        """The type has no status, which is told as the installed base does."""
        answer = self.client.get("/authn-ldap/corp/acme/status", role=ADMIN)
        self.assertEqual(answer.status, 501)
        self.assertIn("CONJ00056E", answer.json()["error"])
        self.assertEqual(self.client.get("/authn-ldap/corp/acme/status").status, 401)

    def test_listing_and_switching(self) -> None:
        """The type is installed, the authenticator configured, and PATCH switches it off and on again."""
        told = self.client.get("/authenticators").json()
        self.assertIn("authn-ldap", told["installed"])
        self.assertIn("authn-ldap/corp", told["configured"])
        form = [("Content-Type", "application/x-www-form-urlencoded")]
        for value, status in ((b"enabled=false", 401), (b"enabled=true", 200)):
            switched = self.client.request("PATCH", "/authn-ldap/corp/acme", body=value, headers=form, role=ADMIN)
            self.assertEqual(switched.status, 204)
            self.assertEqual(self.login().status, status)


class DocumentTests(WorldCase):
    """``docs/ldap.md``."""

    def test_the_example(self) -> None:
        """The policy of the page loads, and lets its user log in once the variables are set."""
        self.load(DOCUMENT.read_text(encoding="utf-8").split("```yaml\n")[1].partition("```")[0])
        self.set_value("svc/authn-ldap/corp/bind-password", b"service password")
        self.set_value("svc/authn-ldap/corp/tls-ca-cert", CA.encode())
        self.directory.passwords["alice"] = PASSWORD
        answer = self.client.post("/authn-ldap/corp/acme/alice/authenticate", PASSWORD)
        self.assertEqual(answer.status, 200)
        ((server, _, _),) = self.directory.asked
        self.assertEqual((server.host, server.security, server.port), ("ldap.example.org", Security.START_TLS, 389))
        self.assertIsNotNone(search_filter(server.filter_template, "alice"))

    def test_filters(self) -> None:
        """Every filter that the page shows is one."""
        for template in re.findall(r"`(\([^`]*%s[^`]*\))`", DOCUMENT.read_text(encoding="utf-8")):
            self.assertIsNotNone(search_filter(template, "alice"))
