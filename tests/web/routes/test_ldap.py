"""Logging in by an LDAP directory, over HTTP."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from svc.authn.ldap.filters import search_filter
from svc.authn.throttling import FAILURE_WINDOW
from svc.model.authentication import Refused
from svc.model.dialect import CONJUR
from svc.model.ldap_directories import DirectoryRefused, Security
from svc.model.reasons import Reason
from tests.authn.ldap.test_authenticator import CA, PASSWORD, LdapCase
from tests.statuses import privilege_missing_status, refusal_status
from tests.web.support import Answer
from tests.web.world import ADMIN, WorldCase, user

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "guides" / "ldap.md"


#: What the client gets for each reason for which an LDAP login may be refused.
STATUSES = {
    Reason.LDAP_UNAVAILABLE: 503,
    Reason.LDAP_TLS_FAILED: 503,
    Reason.LDAP_ANSWER_MALFORMED: 503,
    Reason.LDAP_BIND_REFUSED: 503,
    Reason.LDAP_SEARCH_REFUSED: 503,
    Reason.LDAP_GROUPS_UNKNOWN: 503,
    Reason.LDAP_ROLES_UNWRITTEN: 503,
    Reason.CREDENTIALS_WRONG: 401,
    Reason.LDAP_ENTRY_UNKNOWN: 401,
    Reason.LDAP_ENTRY_AMBIGUOUS: 401,
    Reason.LDAP_ENTRY_REFUSED: 401,
    Reason.LDAP_ENTRY_GONE: 401,
    Reason.LDAP_FAILURES_TOO_MANY: 401,
    Reason.LDAP_ROLE_REFUSED: 401,
    Reason.CONFIGURATION_INVALID: 401,
}

#: Who sends a password, good or not, so that the directory is asked: people that policy and the directory know, one or none.
PEOPLE = ("alice", "bob", "near", "mallory", "nobody", "stranger", "*")


class RouteCase(LdapCase):
    """Logins over HTTP."""

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


class OutcomeTests(RouteCase):
    """Bad credentials, and those that can't be judged, in the native dialect."""

    def outcomes(self, login: str, password: bytes = PASSWORD) -> set[tuple[int, bytes, bool]]:
        """What both routes answer, and whether they say when to come again: in 2 to 4 seconds."""
        found = set()
        for answer in (self.login(login, password), self.authenticate(login, password)):
            again = answer.headers.get("retry-after")
            self.assertIn(again, {None, "2", "3", "4"})
            found.add((answer.status, answer.body, again is not None))
        return found

    def test_every_reason(self) -> None:
        """Each reason is decided, and the answer is the same for everybody: known, unknown or barred (FAIL-13, AUTH-57)."""
        self.assertEqual({reason for reason in Reason if reason.name.startswith("LDAP_")} - set(STATUSES), set())
        for reason, status in STATUSES.items():
            if reason is Reason.LDAP_FAILURES_TOO_MANY:
                continue  # the answer is late: see ``LateTests``
            self.directory.refused = DirectoryRefused(reason, "it says so")
            answers = set()
            for login in PEOPLE:
                self.directory.asked.clear()
                answers |= self.outcomes(login) | self.outcomes(login, b"wrong")
                self.assertEqual(len(self.directory.asked), 4, login)
            self.assertEqual(answers, {(status, b"", status == 503)}, reason)
            self.clock.advance(FAILURE_WINDOW)

    def test_the_page(self) -> None:
        """``docs/guides/ldap.md`` has a row for each reason, with the status that the client gets."""
        rows = re.findall(r"^\|.*\| (\d+) \| `([a-z-]+)` \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual({reason: int(status) for status, reason in rows}, {str(key): STATUSES[key] for key in STATUSES})

    def test_what_needs_no_directory(self) -> None:
        """While the directory is away nothing changes for those about whom it isn't asked."""
        self.directory.refused = DirectoryRefused(Reason.LDAP_UNAVAILABLE, "down")
        self.assertEqual(
            self.outcomes("near", self.api_keys["near"]), {(200, self.api_keys["near"], False), (401, b"", False)}
        )
        self.assertEqual(self.authenticate("alice", self.api_keys["alice"]).status, 200)
        for login, password in (
            ("admin", PASSWORD),
            ("host/web", PASSWORD),
            ("host/absent", PASSWORD),
            ("alice", b""),
            ("nobody", b""),
            ("alice", b"\0"),
        ):
            self.assertEqual(self.outcomes(login, password), {(401, b"", False)}, login)
        barred = privilege_missing_status(self.dialect)
        self.assertEqual({status for status, _, _ in self.outcomes("mallory", self.api_keys["mallory"])}, {barred})
        self.assertEqual(self.directory.asked, [])

    def test_when_it_is_back(self) -> None:
        """An outage leaves nobody slow, after any number of logins; then good passwords are taken and wrong ones refused."""
        for reason, status in STATUSES.items():
            if status == 503:
                self.directory.refused = DirectoryRefused(reason, "down")
                for _ in range(20):
                    self.assertEqual(self.outcomes("alice", b"wrong"), {(503, b"", True)})
        self.directory.refused = None
        for _ in range(5):
            self.assertEqual(self.outcomes("alice", b"wrong"), {(401, b"", False)})
        self.assertEqual({status for status, _, _ in self.outcomes("alice")}, {200})


class LateTests(RouteCase):
    """What isn't asked of a directory any more, and an account that was refused."""

    def test_late(self) -> None:
        """A login that has failed too often is refused 1 s late, then 2 s, from the first one on, for known and unknown
        users alike, with the right password too; the user's API key is taken at once (LOCK-6, LOCK-7, TOK-21).
        """
        self.directory.refused = DirectoryRefused(Reason.LDAP_FAILURES_TOO_MANY, "too many")
        credentials = self.memory.credentials
        credentials[str(user("bob"))] = credentials[str(user("alice"))]
        for login in ("alice", "bob", "mallory", "nobody", "stranger"):
            for seconds in (1, 2, 4):
                answering = Deferred.fromCoroutine(
                    self.throttle.throttle_failures(self.ldap.authenticate)(self.trying(login))
                )
                self.clock.advance(seconds - 0.01)
                self.assertNoResult(answering)
                self.clock.advance(0.01)
                refused = self.successResultOf(answering)
                assert isinstance(refused, Refused)
                self.assertEqual((refusal_status(refused), refused.retry_after), (401, None))
        self.assertEqual(self.authenticate("alice", self.api_keys["alice"]).status, 200)

    def test_come_again(self) -> None:
        """While the refusal of the account that searches is remembered, clients are told when it is tried again (LOCK-4)."""
        self.directory.refused = DirectoryRefused(Reason.LDAP_BIND_REFUSED, "49", 1800.0)
        for login in PEOPLE:
            for answer in (self.login(login), self.authenticate(login, b"wrong")):
                self.assertEqual(answer.status, 503)
                self.assertIn(int(answer.headers["retry-after"]), range(1800, 1862))


class StatusTests(RouteCase):
    """The status of an authenticator."""

    def setUp(self) -> None:
        """Let bob read it."""
        super().setUp()
        below = "- !webservice status\n- !permit { role: !user /bob, privileges: [ read ], resource: !webservice status }"
        self.load(below, self.branch)

    def reported(self, status: int = 200) -> dict[str, Any]:
        """What bob is told."""
        answer = self.client.get("/authn-ldap/corp/acme/status", role=user("bob"))
        self.assertEqual(answer.status, status, answer.body)
        told: dict[str, Any] = answer.json()
        return told

    def test_well(self) -> None:
        """Where all is well it has the account, the bind, and the entries that are found; nobody is looked for (AUTH-58)."""
        told = self.reported()
        self.assertEqual((told["status"], told["problems"], told["listed"]), ("ok", [], True))
        self.assertEqual(told["bind"], {"account": "cn=svc,dc=example", "outcome": "ok", "again": None})
        base = {"annotation": "ldap-authn/base_dn", "dn": "ou=people,dc=example", "fault": None}
        self.assertEqual((told["bases"], told["refusals"]), ([base], []))
        self.assertEqual((self.directory.asked, self.directory.by_operators), ([], [False]))

    def test_faults(self) -> None:
        """A faulty setting, a directory that refuses, a base that isn't there, and a switch that is off are problems, each
        with a remedy (AUTH-58, LOCK-2).
        """
        self.directory.base_fault = "the search for it ended with 32 (no such object)"
        told = self.reported(500)
        self.assertIn("32 (no such object)", told["error"])
        self.assertIn("ldap-authn/base_dn", told["problems"][0]["remedy"])
        for reason, outcome in ((Reason.LDAP_BIND_REFUSED, "refused"), (Reason.LDAP_TLS_FAILED, "failed")):
            self.directory.refused = DirectoryRefused(reason, "49", 1799.5)
            told = self.reported(500)
            self.assertEqual((told["bind"]["outcome"], told["bind"]["again"], told["bases"]), (outcome, 1800, []))
            self.assertIn(f"svc explain-reason {reason}", told["problems"][0]["remedy"])
        self.directory.refused = DirectoryRefused(
            Reason.LDAP_UNAVAILABLE, "Connection was refused: 111: Connection refused."
        )
        self.assertEqual(self.reported(500)["problems"][0]["what"], "Connection was refused: 111: Connection refused.")
        self.memory.switches[f"acme:webservice:{self.branch}"] = False
        if self.dialect is not CONJUR:
            self.assertEqual(self.reported(500)["bind"]["outcome"], "not asked")
        self.annotate(uri="nonsense")
        self.assertIn("ldap-authn/uri is not usable", self.reported(500)["error"])

    def test_refusals(self) -> None:
        """The last refusals of this authenticator are told, the newest first, without anybody's name (AUTH-58)."""
        self.authenticate("alice", b"wrong")
        self.authenticate("stranger", b"wrong")
        self.client.post("/authn/acme/alice/authenticate", b"wrong")
        refusals = self.reported()["refusals"]
        self.assertEqual([each["reason"] for each in refusals], ["role-unknown", "credentials-wrong"])
        self.assertNotIn("alice", json.dumps(refusals))

    def test_who_may(self) -> None:
        """It takes read on the webservice ``status``: others get 403, strangers 401, and an unknown one is 404 (AUTH-58)."""
        for path, role, status in (
            ("/authn-ldap/corp/acme/status", user("alice"), 403),
            ("/authn-ldap/corp/acme/status", None, 401),
            ("/authn-ldap/other/acme/status", user("bob"), 404),
            ("/authn-ldap/corp/nowhere/status", user("bob"), 404),
        ):
            self.assertEqual(self.client.get(path, role=role).status, status, path)
        self.assertEqual(self.directory.by_operators, [])

    def test_explain_asks(self) -> None:
        """What an operator has explained is asked for by an operator, a login isn't (LOCK-2)."""
        for evidence in (b"", b"&evidence=wrong"):
            answer = self.client.post(
                "/authn-ldap/corp/acme/alice/explain", b"address=10.0.0.1" + evidence, role=user("bob")
            )
            self.assertEqual(answer.status, 403 if not evidence else 200)
        self.client.post("/authn-ldap/corp/acme/alice/explain", b"", role=ADMIN)
        self.authenticate("alice")
        self.assertEqual(self.directory.by_operators, [True, True, False])


class ConjurOutcomeTests(OutcomeTests):
    """They are the same in the other dialect."""

    dialect = CONJUR


class LdapRouteTests(RouteCase):
    """The routes, in the native dialect."""

    def test_login_and_authenticate(self) -> None:
        """The directory's password gives the API key, and this an access token for the user; so does the password
        (AUTH-52).
        """
        told = self.login()
        self.assertEqual((told.status, told.body), (200, self.api_keys["alice"]))
        self.assertEqual(told.headers["content-type"], "text/plain; charset=utf-8")
        for evidence in (told.body, PASSWORD):
            answer = self.authenticate(evidence=evidence)
            self.assertEqual((answer.status, answer.headers["content-type"]), (200, "application/json"))
            claims = json.loads(base64.urlsafe_b64decode(json.loads(answer.body)["payload"]))
            self.assertEqual(claims["sub"], "alice")

    def test_base64(self) -> None:
        """The access token comes in base64 where the client accepts that (TOK-5)."""
        answer = self.authenticate(headers=[("Accept-Encoding", "base64")])
        self.assertEqual(answer.headers["content-encoding"], "base64")
        self.assertIn("payload", json.loads(base64.b64decode(answer.body)))

    def test_refusals_are_alike(self) -> None:
        """Refusals for all reasons are answered the same."""
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
        self.assertEqual(len(answers), 1)

    def test_guessing(self) -> None:
        """Guesses by a directory are slowed down with all others of that user; its owner's password is taken at once
        (TOK-23).
        """
        for _ in range(5):
            self.assert_refused(self.login(password=b"wrong"))
            self.assert_refused(self.authenticate(evidence=b"wrong"))
        guess = base64.b64encode(b"alice:wrong").decode()
        slow = [
            self.client.begin("GET", path, headers=[("Authorization", f"Basic {guess}")])
            for path in ("/authn-ldap/corp/acme/login", "/authn/acme/login")
        ]
        self.assertEqual([connection.received() for connection in slow], [b"", b""])
        self.assertEqual((self.login().status, self.authenticate().status), (200, 200))
        self.clock.advance(2)
        for connection in slow:
            self.assert_refused(connection.answer())

    def test_who_has_left(self) -> None:
        """A user who is gone from the directory goes on with the API key from before, until it is rotated."""
        key = self.login().body
        self.directory.passwords.clear()
        self.assert_refused(self.login())
        self.assertEqual(self.client.post("/authn/acme/alice/authenticate", key).status, 200)
        self.assertEqual(self.client.request("PUT", "/authn/acme/api_key?role=user:alice", role=ADMIN).status, 200)
        self.assert_refused(self.client.post("/authn/acme/alice/authenticate", key))
        self.assert_refused(self.authenticate(evidence=key))

    def test_no_credentials(self) -> None:
        """Without HTTP Basic credentials nobody is told a key, not even with an access token."""
        path = "/authn-ldap/corp/acme/login"
        self.assert_refused(self.client.get(path))
        self.assert_refused(self.client.get(path, role=ADMIN))
        self.assert_refused(self.client.get(path, headers=[("Authorization", "Basic !")]))
        self.assertEqual(self.directory.asked, [])

    def test_passwords_are_octets(self) -> None:
        """A password is any octets: colons, blanks and line ends are a part of it (WIRE-31)."""
        for password in (b"a:b", b" x ", b"x\n", "пароль".encode(), b"\xff\xfe"):
            self.directory.passwords["alice"] = password
            self.assertEqual(self.login(password=password).status, 200)
            self.assertEqual(self.authenticate(evidence=password).status, 200)

    def test_other_places(self) -> None:
        """Another service or account is refused alike; another method is no route."""
        self.assert_refused(self.login(path="/authn-ldap/other/acme/login"))
        self.assert_refused(self.login(path="/authn-ldap/corp/nowhere/login"))
        self.assertEqual(self.client.get("/authn-ldap/corp/acme/alice/authenticate").status, 404)

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
    """``docs/guides/ldap.md``."""

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
