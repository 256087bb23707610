"""Tests of logins that read secrets in the same request."""

from __future__ import annotations

import base64
import json
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svc.model.authentication import Admitted, LoginRequest, Refused
from svc.model.dialect import CONJUR
from svc.model.errors import AuthenticationRefused
from svc.model.reasons import RefusalKind
from svc.services.invocation import NullRecorder
from svc.services.secret_batches import WITH_LOGIN, BatchService, login_and_read
from tests.authn.ldap.test_authenticator import PASSWORD as LDAP_PASSWORD
from tests.authn.ldap.test_authenticator import LdapCase
from tests.memory import MemorySecrets
from tests.memory_reads import uncounted
from tests.signing import token
from tests.web.routes.test_authn import POLICY
from tests.web.support import NOW, Answer
from tests.web.world import WorldCase

SECRETS: Final = """
- !variable app/password
- !variable app/empty
- !variable app/hidden
- !variable app/seen
- !permit { role: !host shop, privileges: [ read, execute ], resources: [ !variable app/password, !variable app/empty ] }
- !permit { role: !host shop, privileges: [ read ], resource: !variable app/seen }
"""

HOST: Final = "acme:host:shop"
FULL_PASSWORD, EMPTY, HIDDEN, SEEN = (f"acme:variable:app/{name}" for name in ("password", "empty", "hidden", "seen"))
MISSING: Final = "acme:variable:app/missing"


class LoginAndReadTests(WorldCase):
    """Logins by API key and by JWT."""

    def setUp(self) -> None:
        """Load a policy with an authenticator, a host and variables."""
        super().setUp()
        prefix = self.dialect.prefix
        created = self.load(POLICY.replace("{prefix}", prefix)).json()["created_roles"]
        self.key = created[HOST]["api_key"].encode()
        self.load(SECRETS)
        for name, value in (("jwks-uri", b"https://idp.example/jwks"), ("token-app-property", b"app"), ("issuer", b"idp")):
            self.set_value(f"{prefix}/authn-jwt/ci/{name}", value)
        for name in ("password", "hidden", "seen"):
            self.set_value(f"app/{name}", f"the {name}".encode())
        self.journal.told()

    def by_key(self, query: str, key: bytes | None = None, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
        """Log in by API key."""
        return self.client.post(f"/authn/acme/host%2Fshop/authenticate?{query}", key or self.key, headers=headers)

    def by_jwt(self, query: str, **claims: object) -> Answer:
        """Log in by JWT."""
        evidence = token({"iss": "idp", "app": "shop", "project": "acme/shop", "exp": NOW + 60} | claims)
        return self.client.post(f"/authn-jwt/ci/acme/authenticate?{query}", b"jwt=" + evidence)

    def test_both(self) -> None:
        """One request answers the token, as it stands in a header, and the values by their full ids (SEC-43)."""
        escaped = FULL_PASSWORD.replace(":", "%3A").replace("/", "%2F")
        for answer in (self.by_key(f"secrets={FULL_PASSWORD}"), self.by_jwt(f"secrets={escaped},{FULL_PASSWORD},")):
            told = answer.json()
            self.assertEqual(told["values"], {FULL_PASSWORD: "the password"})
            self.assertEqual(set(told), {"token", "values"})
            parts = json.loads(base64.b64decode(told["token"], validate=True))
            self.assertEqual(json.loads(base64.b64decode(parts["payload"]))["sub"], "host/shop")
            self.assertEqual(answer.headers["cache-control"], "no-store")

    def test_base64(self) -> None:
        """Values that are no text are answered in base64 where that is asked for, and refused where not (SEC-43, SEC-15)."""
        self.set_value("app/password", b"\xff")
        self.assertEqual(self.error(self.by_key(f"secrets={FULL_PASSWORD}"), 406, "not_acceptable").count(FULL_PASSWORD), 1)
        answer = self.by_key(f"secrets={FULL_PASSWORD}", headers=(("Accept-Encoding", "base64"),))
        self.assertEqual(base64.b64decode(answer.json()["values"][FULL_PASSWORD]), b"\xff")
        self.assertEqual(answer.headers["content-encoding"], "base64")
        self.assertIn("payload", json.loads(base64.b64decode(answer.json()["token"], validate=True)))

    def test_bad_lists(self) -> None:
        """A list that is none, or too long, is 422, whatever the login is like (SEC-43)."""
        long = ",".join(f"acme:variable:{number}" for number in range(WITH_LOGIN.ids + 1))
        wrong = ("secrets", "secrets=", "secrets=,", "secrets=a,,b", f"secrets={long}", "secrets=a&secrets=b", "secrets=%00")
        for secrets in (*wrong, "secrets[]=a", "secrets[0]=a", "secrets=a&secrets[]=b"):
            told = {self.by_key(secrets, key).body for key in (self.key, b"wrong")}
            told |= {self.by_jwt(secrets).body, self.by_jwt(secrets, project="other").body}
            [body] = told
            self.assertIn("secrets", json.loads(body)["error"]["message"])
        self.assertIn("partial", self.error(self.by_key("secrets=a&partial=x"), 422, "argument_error"))

    def test_refused_logins(self) -> None:
        """A refused login is answered as without secrets, whatever these are, and nothing is looked for (SEC-44)."""
        for query in (*(f"secrets={full}" for full in (FULL_PASSWORD, HIDDEN, MISSING)), f"secrets={SEEN}&partial=true", ""):
            for answer in (self.by_key(query, b"wrong"), self.by_jwt(query, project="other"), self.by_jwt(query, exp=NOW)):
                self.assertEqual((answer.status, answer.body), (401, b""))
        self.assertEqual({told[0] for told in self.journal.told()}, {"authn"})

    def test_refused_secrets(self) -> None:
        """A secret that can't be read has all refused, in the words of a batch, and no token is told (SEC-45)."""
        for ask in (self.by_key, self.by_jwt):
            answer = ask(f"secrets={FULL_PASSWORD},{MISSING},{SEEN}")
            self.assertEqual((answer.status, answer.body), (403, b""))
            for full in (HIDDEN, MISSING, EMPTY, "x"):
                message = self.error(ask(f"secrets={FULL_PASSWORD},{full}"), 404, "not_found")
                self.assertEqual(message, self.worded(f"CONJ00076E Variable {full} is empty or not found."))

    def test_partial(self) -> None:
        """For partial results there is a token with what can be read, and why the rest can't (SEC-45)."""
        for ask in (self.by_key, self.by_jwt):
            told = ask(f"secrets={FULL_PASSWORD},{SEEN},{HIDDEN},{MISSING},{EMPTY}&partial=true").json()
            self.assertEqual(told["values"], {FULL_PASSWORD: "the password"})
            codes = {full: error["code"] for full, error in told["errors"].items()}
            self.assertEqual(codes, {SEEN: "forbidden", HIDDEN: "not_found", MISSING: "not_found", EMPTY: "not_found"})
            self.assertIn("payload", json.loads(base64.b64decode(told["token"])))
        self.assertEqual(self.by_key(f"secrets={FULL_PASSWORD}&partial").json()["errors"], {})

    def told(self) -> list[tuple[str, str | None, str, str | None]]:
        """What was recorded: operation, user, resource, and why it failed."""
        taken, self.journal.taken = self.journal.taken, []
        return [
            (event.operation, event.user, dict(event.subject).get("resource", "-"), event.reason or outcome.reason)
            for _, event, outcome in taken
        ]

    def test_audit(self) -> None:
        """The login has a record, and so has each secret, by the role that logged in; where the secrets are refused both
        are; and a refused login has none of secrets (SEC-46).
        """
        for ask in (self.by_key, self.by_jwt):
            ask(f"secrets={FULL_PASSWORD}")
            login = ("authenticate", HOST, "-", None)
            self.assertEqual(self.told(), [login, ("fetch", HOST, FULL_PASSWORD, None)])
            ask(f"secrets={FULL_PASSWORD},{HIDDEN}")
            refused = [("fetch", HOST, full, "forbidden") for full in (FULL_PASSWORD, HIDDEN)]
            self.assertEqual(self.told(), [("authenticate", HOST, "-", "forbidden"), *refused])
            ask(f"secrets={FULL_PASSWORD},{HIDDEN}&partial=true")
            reads = [("fetch", HOST, FULL_PASSWORD, None), ("fetch", HOST, HIDDEN, "forbidden")]
            self.assertEqual(self.told(), [login, *reads])
        self.by_key(f"secrets={FULL_PASSWORD}", b"wrong")
        self.assertEqual([(told[0], told[2]) for told in self.told()], [("authenticate", "-")])

    def test_deleted_meanwhile(self) -> None:
        """A role that was deleted and made again while it logged in is refused like any login (SEC-44, ROLE-8)."""
        memory, decide = self.memory, self.login_service.decide

        async def decide_late(request: LoginRequest) -> Admitted | Refused:
            decision = await decide(request)
            memory.creations[HOST] = memory.creations.get(HOST, 0) + 1
            return decision

        login = attrs.evolve(self.login_service, decide=decide_late)
        batches = BatchService(MemorySecrets(memory), self.vault, Clock(), uncounted())
        request = LoginRequest("acme", "host/shop", self.key, "192.0.2.7")
        reading = login_and_read(login, batches, request, NullRecorder(), [FULL_PASSWORD], partial=False, texts=True)
        refused = self.failureResultOf(Deferred.fromCoroutine(reading), AuthenticationRefused)
        self.assertEqual(refused.value.kind, RefusalKind.UNPROVEN)


class ConjurLoginAndReadTests(LoginAndReadTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class LdapLoginAndReadTests(LdapCase):
    """Logins with a directory's passwords."""

    def test_both(self) -> None:
        """They read secrets too (SEC-43)."""
        self.load("- !variable v\n- !permit { role: !user alice, privileges: [ read, execute ], resource: !variable v }\n")
        self.set_value("v", b"the value")
        path = "/authn-ldap/corp/acme/alice/authenticate?secrets=acme:variable:v"
        told = self.client.post(path, LDAP_PASSWORD).json()
        self.assertEqual(told["values"], {"acme:variable:v": "the value"})
        answer = self.client.post(path, b"wrong")
        self.assertEqual((answer.status, answer.body), (401, b""))
