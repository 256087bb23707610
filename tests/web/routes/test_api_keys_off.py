"""Users and hosts that have no API key by policy (TOK-52 to TOK-57), over HTTP."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote, urlencode

from hypothesis import given
from hypothesis import strategies as st

from svc.authn.throttling import FAILURE_WINDOW
from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from svc.model.reasons import Reason
from tests.signing import token as jwt
from tests.web.support import NOW, Answer
from tests.web.world import ADMIN, WorldCase, user

POLICY = """
- !policy
  id: {prefix}/authn-jwt/ci
  body:
    - !webservice
    - !variable jwks-uri
    - !variable issuer
    - !group apps
    - !permit {{ role: !group apps, privileges: [ read, authenticate ], resource: !webservice }}
- !policy
  id: {prefix}/authn-ldap/corp
  body:
    - !webservice {{ annotations: {{ ldap-authn/uri: "ldap://ldap.example", ldap-authn/base_dn: "dc=example" }} }}
    - !group users
    - !permit {{ role: !group users, privileges: [ read, authenticate ], resource: !webservice }}
- !host {{ id: job, annotations: {{ authn/api-key: false, authn-jwt/ci/sub: job }} }}
- !host plain
- !user {{ id: alice, annotations: {{ authn/api-key: false }} }}
- !user bob
- !user eve
- !layer web
- !host-factory {{ id: fleet, layers: [ !layer web ] }}
- !grant {{ role: !group {prefix}/authn-jwt/ci/apps, member: !host job }}
- !grant {{ role: !group {prefix}/authn-ldap/corp/users, members: [ !user alice, !user bob ] }}
"""

PASSWORD = "SUperSecret!!1"
BOB, EVE = user("bob"), user("eve")


def basic(login: str, password: str) -> list[tuple[str, str]]:
    """The header of HTTP Basic."""
    return [("Authorization", "Basic " + base64.b64encode(f"{login}:{password}".encode()).decode())]


class ApiKeysOffTests(WorldCase):
    """Roles with the annotation and without."""

    def setUp(self) -> None:
        """Load the policy."""
        super().setUp()
        self.created: dict[str, Any] = self.load(POLICY.format(prefix=self.dialect.prefix)).json()["created_roles"]
        self.set_value(f"{self.dialect.prefix}/authn-jwt/ci/jwks-uri", b"https://ci.example/jwks")
        self.set_value(f"{self.dialect.prefix}/authn-jwt/ci/issuer", b"https://ci.example")
        self.directory.passwords = {"alice": b"of the directory", "bob": b"of the directory"}

    def annotate(self, record: str, value: str, method: str = "PATCH") -> Answer:
        """Give a record, a tag and an id, the annotation."""
        tag, identifier = record.split(" ")
        text = f"- {tag} {{ id: {identifier}, annotations: {{ authn/api-key: {value} }} }}"
        return self.load(text, method=method)

    def key(self, name: str) -> str:
        """The API key with which a role was created."""
        return str(self.created[f"acme:{name}"]["api_key"])

    def authenticate(self, login: str, key: str) -> Answer:
        """Ask for an access token."""
        return self.client.post(f"/authn/acme/{quote(login, safe='')}/authenticate", key.encode())

    def rotate(self, role: str, by: RoleName = ADMIN) -> Answer:
        """Rotate the API key of a role."""
        return self.client.put(f"/authn/acme/api_key?role={role}", role=by)

    def reason(self, login: str, evidence: str, role: RoleName = ADMIN) -> tuple[str, str, str]:
        """The check of an explanation that failed, its detail and its reason."""
        body = urlencode({"evidence": evidence}).encode()
        answer = self.client.post(f"/authn/acme/{quote(login, safe='')}/explain", body, role=role)
        self.assertEqual(answer.status, 200, answer.body)
        (step,) = (step for step in answer.json()["steps"] if step["outcome"] == "failed")
        return step["check"], step["detail"], step["reason"]

    def test_no_key(self) -> None:
        """A load makes no key of such a role, and says so; of others it does (TOK-53)."""
        self.assertEqual(self.created["acme:host:job"], {"id": "acme:host:job", "api_key": None})
        self.assertEqual(self.created["acme:user:alice"], {"id": "acme:user:alice", "api_key": None})
        self.assertEqual({*self.memory.credentials} & {"acme:host:job", "acme:user:alice"}, set())
        self.assertEqual(self.authenticate("host/plain", self.key("host:plain")).status, 200)

    def test_other_ways(self) -> None:
        """Such a role logs in by other authenticators as ever (TOK-52)."""
        token = jwt({"sub": "job", "iss": "https://ci.example", "exp": NOW + 600})
        answer = self.client.post("/authn-jwt/ci/acme/host%2Fjob/authenticate", b"jwt=" + token)
        self.assertEqual(answer.status, 200, answer.body)
        answer = self.client.post("/authn-ldap/corp/acme/alice/authenticate", b"of the directory")
        self.assertEqual(answer.status, 200, answer.body)

    def test_switched_off_and_on(self) -> None:
        """The annotation decides at each login: as soon as policy says so the key, and the password, log nobody in, and
        later they do again (TOK-52).
        """
        key = self.key("user:bob")
        self.assertEqual(self.client.put("/authn/acme/password", PASSWORD.encode(), headers=basic("bob", key)).status, 204)
        session = self.client.post("/authn/acme/bob/sessions", key.encode()).json()
        for value, admitted in (("false", False), ("true", True), ('" FALSE "', False), ("maybe", True), ("no", False)):
            self.annotate("!user bob", value)
            self.clock.advance(2 * FAILURE_WINDOW)  # failures are forgotten
            self.assertEqual(self.authenticate("bob", key).status, 200 if admitted else 401, value)
            for evidence in (key, PASSWORD):
                answer = self.client.get("/authn/acme/login", headers=basic("bob", evidence))
                self.assertEqual((answer.status, answer.body), (200, key.encode()) if admitted else (401, b""), value)
            answer = self.client.put("/authn/acme/password", b"SUperSecret!!2", headers=basic("bob", "SUperSecret!!2"))
            self.assertEqual(answer.status, 401)
            listed = self.client.get("/authn/acme/sessions", role=BOB).json()
            self.assertEqual(len(listed), 1 if admitted else 0)
            if not admitted:
                for path in ("sessions", "renew"):
                    evidence = key if path == "sessions" else session["refresh_token"]
                    answer = self.client.post(f"/authn/acme/bob/{path}", evidence.encode())
                    self.assertEqual((answer.status, answer.body), (401, b""))
        self.load("- !user bob", method="PATCH")
        self.load(POLICY.format(prefix=self.dialect.prefix), method="PUT")
        self.assertEqual(self.authenticate("bob", key).status, 200)

    def test_alike(self) -> None:
        """A client can't tell such a role from one that isn't there, whatever it sends (TOK-52, FAIL-18)."""
        self.annotate("!user bob", "false")
        answers = {
            (answer.status, answer.body, tuple(sorted(answer.headers)))
            for login in ("bob", "alice", "nobody", "host/job")
            for evidence in (self.key("user:bob"), "wrong", PASSWORD, "")
            for answer in (
                self.authenticate(login, evidence),
                self.client.get("/authn/acme/login", headers=basic(login, evidence)),
            )
        }
        self.assertEqual(len(answers), 1, answers)

    def test_explained(self) -> None:
        """An explanation says so to who sees the role, and to others what it says of any (TOK-55)."""
        self.annotate("!user bob", "false")
        check, detail, reason = self.reason("bob", self.key("user:bob"))
        self.assertEqual((check, reason), ("annotation", Reason.API_KEY_OFF))
        self.assertIn("authn/api-key", detail)
        self.assertEqual(self.reason("bob", "wrong")[2], Reason.API_KEY_OFF)
        self.assertEqual(self.reason("nobody", "wrong")[2], Reason.ROLE_UNKNOWN)
        self.load(
            f"- !policy {{ id: {self.dialect.prefix}/authn, body: [ !webservice status,"
            " !permit { role: !user /eve, privilege: read, resource: !webservice status } ] }"
        )
        for login in ("bob", "nobody"):
            self.assertEqual(self.reason(login, self.key("user:bob"), EVE)[2], Reason.CREDENTIALS_WRONG)
        self.annotate("!user bob", "true")
        answer = self.client.post("/authn/acme/bob/explain", b"", role=ADMIN)
        self.assertIn("annotation", [step["check"] for step in answer.json()["steps"] if step["outcome"] == "passed"])

    def test_rotation(self) -> None:
        """The API key of such a role isn't rotated; of one that may have one again it is, and makes the first (TOK-54)."""
        message = self.error(self.rotate("host:job"), 405, "method_not_allowed")
        self.assertEqual(
            message, self.worded("CONJ00126E acme:host:job has no API key: its annotation authn/api-key is false")
        )
        self.assertEqual(self.rotate("host:job", EVE).status, 404)
        self.annotate("!user bob", "false")
        self.assertEqual(self.rotate("user:bob").status, 405)
        self.assertEqual(self.client.put("/authn/acme/api_key", headers=basic("bob", self.key("user:bob"))).status, 401)
        for record, role, login in (("!host job", "host:job", "host/job"), ("!user bob", "user:bob", "bob")):
            self.annotate(record, "true")
            answer = self.rotate(role)
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual(self.authenticate(login, answer.body.decode()).status, 200)

    def test_ldap(self) -> None:
        """A user's own key logs it in by LDAP no longer, and none is told for the directory's password (TOK-52)."""
        key = self.key("user:bob")
        path = "/authn-ldap/corp/acme/bob/authenticate"
        self.assertEqual(self.client.post(path, key.encode()).status, 200)
        self.annotate("!user bob", "false")
        self.assertEqual(self.client.post(path, key.encode()).status, 401)
        self.assertEqual(self.client.post(path, b"of the directory").status, 200)
        told = self.client.get("/authn-ldap/corp/acme/login", headers=basic("bob", "of the directory"))
        self.assertEqual((told.status, told.body), (401, b""))

    def test_host_factory(self) -> None:
        """A host that a factory makes with the annotation has no key, also when it is made again (TOK-53)."""
        asked = b"host_factory=acme:host_factory:fleet&expiration=2999-01-01"
        [token] = self.client.post("/host_factory_tokens", asked, role=ADMIN).json()
        headers = [("Authorization", f'Token token="{token["token"]}"')]

        def make(name: str, annotations: str = "") -> Any:
            answer = self.client.post("/host_factories/hosts", f"id={name}{annotations}".encode(), headers=headers)
            self.assertEqual(answer.status, 201, answer.body)
            return answer.json()

        off = make("web-1", "&annotations%5Bauthn%2Fapi-key%5D=False")
        self.assertIsNone(off["api_key"])
        self.assertNotIn("acme:host:web-1", self.memory.credentials)
        self.assertIsNone(make("web-1")["api_key"])
        self.assertEqual(self.authenticate("host/web-2", make("web-2")["api_key"]).status, 200)

    def test_warnings(self) -> None:
        """A value that is neither true nor false, and a record that can't log in, draw a warning, as they have no effect
        (TOK-56).
        """
        for record, value, warning in (
            (
                "!user carol",
                "flase",
                "The annotation 'authn/api-key' of User 'carol' is neither true nor false: it has no effect.",
            ),
            ("!group ops", "false", "Group 'ops' has an annotation 'authn/api-key', which is for users and hosts."),
        ):
            self.assertEqual(self.annotate(record, value, "POST").json()["warnings"], [warning])
        for value in ("true", "false", "no", '" TRUE"'):
            self.assertNotIn("warnings", self.annotate("!host plain", value).json())

    def test_admin(self) -> None:
        """The annotation counts for the admin, too (TOK-57)."""
        self.assertEqual(self.authenticate("admin", "1admin").status, 200)
        self.load("- !user { id: admin, annotations: { authn/api-key: false } }", method="PATCH")
        self.assertEqual(self.authenticate("admin", "1admin").status, 401)

    def test_one_meaning(self) -> None:
        """Whatever stands in the annotation, a login and a load take it for the same (TOK-52, TOK-53)."""
        number = iter(range(1000))

        @given(st.text(alphabet="falseFALSE \t01", max_size=7) | st.sampled_from(["false", " false", "False\t", "no", "0"]))
        def same(value: str) -> None:
            name = f"h{next(number)}"
            answer = self.client.post(
                "/policies/acme/policy/root",
                f"- !host {{ id: {name}, annotations: {{ authn/api-key: {value!r} }} }}".replace("\\t", " ").encode(),
                role=ADMIN,
            )
            self.assertEqual(answer.status, 201, answer.body)
            key = answer.json()["created_roles"][f"acme:host:{name}"]["api_key"]
            off = self.memory.api_key_off(f"acme:host:{name}")
            self.assertIs(key is None, off, value)

        same()


class ConjurApiKeysOffTests(ApiKeysOffTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR
