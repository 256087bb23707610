"""Recent refusals over HTTP."""

from __future__ import annotations

import base64
from typing import Any, Final

from svc.model.names import RoleName, admin_of
from tests.chronicle import Chronicle
from tests.signing import token
from tests.web.support import NOW, PEER
from tests.web.world import ADMIN, ADMIN_KEY, WorldCase, user

ALICE, BOB = user("alice"), user("bob")
OTHER: Final = admin_of("other")

POLICY: Final = """
- !user alice
- !user bob
- !variable seen
- !variable hidden
- !variable empty
- !permit { role: !user alice, privileges: [ read ], resource: !variable seen }
- !policy
  id: svc/authn-jwt/ci
  body:
    - !webservice
    - !variable jwks-uri
    - !variable issuer
"""

#: What nobody should find anywhere: a key, and a password that was typed in the wrong field.
KEY: Final = "1wrongkey1wrongkey"
PASSWORD: Final = "My-Password-1"


class RefusalsCase(WorldCase):
    """Alice sees one variable of two."""

    def setUp(self) -> None:
        """Load the policy, and make another account."""
        super().setUp()
        self.load(POLICY)
        self.result_of(self.create_account("other", "1other"))

    def found(self, query: str = "", role: RoleName = ADMIN) -> Any:
        """What the server tells."""
        answer = self.client.get(f"/refusals{query}", role=role)
        self.assertEqual(answer.status, 200, answer.body)
        for secret in (KEY, PASSWORD, ADMIN_KEY):
            self.assertNotIn(secret.encode(), answer.body)
        return answer.json()

    def reasons(self, query: str = "") -> list[str]:
        """The reasons, the newest first."""
        return [refused["reason"] for refused in self.found(query)["refusals"]]

    def log_in(self, login: str, evidence: str = KEY, *, account: str = "acme", peer: str = PEER) -> str:
        """Try a key, and return the id of the request that was refused."""
        answer = self.client.post(f"/authn/{account}/{login}/authenticate", evidence.encode(), peer=peer)
        self.assertGreaterEqual(answer.status, 400)
        return answer.headers["x-request-id"]


class WhoTests(RefusalsCase):
    """Who may look."""

    def test_operators_alone(self) -> None:
        """It takes the root policy; others are refused, which is kept like any refusal (REF-6)."""
        self.assertEqual(self.client.get("/refusals").status, 401)
        self.assertEqual(self.client.get("/refusals", role=ALICE).status, 403)
        self.assertEqual(self.reasons(), ["forbidden"])
        self.assertEqual(self.client.get("/refusals", role=user("deleted")).status, 403)

    def test_the_own_account(self) -> None:
        """Nobody sees those of another account, whatever is asked for (REF-3, REF-6)."""
        request = self.log_in("alice")
        self.assertEqual(len(self.found()["refusals"]), 1)
        for query in ("", f"?request={request}"):
            found = self.found(query, role=OTHER)
            self.assertEqual((found["refusals"], found["sums"]), ([], []))

    def test_recorded(self) -> None:
        """To read them is recorded (REF-6)."""
        self.found("?request=id-7")
        journal = self.client.journal
        assert isinstance(journal, Chronicle)
        self.assertEqual(journal.told()[-1], ("refusals", "list", {"request": "id-7"}, None))

    def test_on_a_follower(self) -> None:
        """A follower tells its own (REF-6)."""
        self.memory.standby = True
        self.log_in("alice")
        self.assertEqual(self.reasons(), ["credentials-wrong"])


class LoginTests(RefusalsCase):
    """Refused logins."""

    def test_a_wrong_key(self) -> None:
        """A login is kept with its reason, role, address, request and time, and never with the key (REF-1, REF-2)."""
        request = self.log_in("alice", peer="203.0.113.5")
        found = self.found(f"?request={request}")
        self.assertEqual(
            found["refusals"],
            [
                {
                    "at": "2023-11-14T22:13:20.000+00:00",
                    "request": request,
                    "client_ip": "203.0.113.5",
                    "route": "POST /authn/<account>/<login>/authenticate",
                    "reason": "credentials-wrong",
                    "detail": "the evidence is not the role's API key, nor, at a login, its password",
                    "authenticator": "authn",
                    "service": None,
                    "role": "acme:user:alice",
                }
            ],
        )
        self.assertEqual(
            found["sums"], [{"reason": "credentials-wrong", "authenticator": "authn", "service": None, "count": 1}]
        )
        self.assertEqual((found["server"], found["complete"]), ("machine", True))

    def test_a_password_as_a_name(self) -> None:
        """A name that no role has is nowhere: it may be a password in the wrong field (REF-2)."""
        self.directory.passwords = {}
        basic = base64.b64encode(f"{PASSWORD}:x".encode()).decode()
        for path in ("/authn/acme/login", "/authn-ldap/corp/acme/login"):
            self.client.get(path, headers=[("Authorization", f"Basic {basic}")])
        self.log_in(PASSWORD)
        self.client.post(f"/authn-ldap/corp/acme/{PASSWORD}/authenticate", b"x")
        self.client.post(f"/authn/acme/{PASSWORD}/renew", b"x")
        found = self.found()["refusals"]
        self.assertEqual({each["role"] for each in found}, {None})
        self.assertEqual(len(found), 5)
        self.assertEqual({each["authenticator"] for each in found}, {"authn", "authn-ldap", "session"})

    def test_after_many(self) -> None:
        """An address that is refused before anything is looked up leaves no name either (REF-2)."""
        for _ in range(300):
            begun = self.client.begin("POST", f"/authn/acme/{PASSWORD}/authenticate", body=b"x")
            begun.leave()
        self.log_in(PASSWORD)
        self.assertEqual(self.found("?limit=1")["refusals"][0]["reason"], "failures-too-many")

    def test_a_token_of_a_third_party(self) -> None:
        """A JWT is never kept, but what its check compared is, with the service id (REF-2)."""
        self.set_value("svc/authn-jwt/ci/jwks-uri", b"https://ci.example/jwks")
        self.set_value("svc/authn-jwt/ci/issuer", b"https://ci.example")
        jwt = token({"iss": "https://ci.example", "sub": "x", "exp": NOW - 60}).decode()
        answer = self.client.post("/authn-jwt/ci/acme/authenticate", f"jwt={jwt}".encode())
        self.assertEqual(answer.status, 401)
        (refused,) = self.found()["refusals"]
        self.assertEqual((refused["authenticator"], refused["service"], refused["role"]), ("authn-jwt", "ci", None))
        self.assertEqual(
            (refused["reason"], refused["detail"]),
            ("token-expired", "'exp' is 2023-11-14T22:12:20Z, the time here is 2023-11-14T22:13:20Z"),
        )
        self.assertNotIn(jwt.rpartition(".")[2], str(refused))

    def test_nobodys(self) -> None:
        """A machine without a token of a host factory is refused in no account, and kept in none (REF-3)."""
        self.client.post("/host_factories/hosts", b"id=x")
        self.assertEqual(self.reasons(), [])


class RequestTests(RefusalsCase):
    """Other requests that were refused for who asked."""

    def refused(self, method: str, path: str, role: RoleName | None = ALICE) -> Any:
        """The refusal of a request."""
        answer = self.client.request(method, path, role=role)
        (refused,) = self.found(f"?request={answer.headers['x-request-id']}")["refusals"]
        return refused

    def test_forbidden(self) -> None:
        """Which privilege was missing on what is told, who lacked it, and the path without patterns (REF-1, CLI-70)."""
        refused = self.refused("GET", "/secrets/acme/variable/seen")
        self.assertEqual((refused["reason"], refused["detail"]), ("forbidden", "lacks execute on acme:variable:seen"))
        self.assertEqual((refused["role"], refused["authenticator"]), ("acme:user:alice", None))
        self.assertEqual(refused["route"], "GET /secrets/<account>/variable/<identifier>")

    def test_hidden(self) -> None:
        """What is hidden is told apart from what is missing, though the caller's answers are alike (REF-1)."""
        for name, reason in (("hidden", "hidden"), ("missing", "not-found")):
            for path in (f"/secrets/acme/variable/{name}", f"/resources/acme/variable/{name}"):
                refused = self.refused("GET", path)
                self.assertEqual(refused["reason"], reason)
                self.assertEqual(refused["detail"], f"there is no acme:variable:{name} that the caller may see")

    def test_no_value(self) -> None:
        """A variable that the caller may read, and that has no value, is told apart from a missing one (REF-2)."""
        told = "acme:variable:empty, which the caller may read, has no value, or none of this version"
        for path in ("/secrets/acme/variable/empty", "/secrets?variable_ids=acme:variable:empty"):
            self.assertEqual(self.client.get(path, role=ADMIN).status, 404)
            refused = self.refused("GET", path, ADMIN)
            self.assertEqual((refused["reason"], refused["detail"]), ("not-found", told))

    def test_other_accounts(self) -> None:
        """Whether another account has a thing is never told (REF-3)."""
        for kind, name in (("policy", "root"), ("variable", "missing")):
            self.assertEqual(self.refused("GET", f"/resources/other/{kind}/{name}")["reason"], "not-found")
        self.assertEqual(self.found(role=OTHER)["refusals"], [])

    def test_tokens(self) -> None:
        """A request without a token, or with one that was revoked, is found by the account of its path or token (REF-1)."""
        self.assertEqual(self.refused("GET", "/secrets/acme/variable/seen", None)["reason"], "token-refused")
        self.memory.epochs[str(BOB)] = 7
        self.assertEqual(self.refused("GET", "/secrets/acme/variable/seen", BOB)["reason"], "token-outdated")
        self.assertEqual(self.client.get("/whoami").status, 401)
        self.assertEqual(len(self.reasons()), 2)

    def test_mistakes(self) -> None:
        """A request that is wrong in itself isn't kept, nor is one that can't be served (REF-1)."""
        self.client.get("/resources/acme?limit=x", role=ALICE)
        self.memory.standby = True
        self.client.post("/secrets/acme/variable/seen", b"x", role=ALICE)
        self.assertEqual(self.reasons(), [])

    def test_text_from_outside(self) -> None:
        """What a client sends is made visible, and cut (REF-2)."""
        refused = self.refused("GET", "/secrets/acme/variable/a%0A%1b[1A%E2%80%AE" + "x" * 600)
        self.assertTrue(refused["detail"].isprintable())
        self.assertLess(len(refused["detail"]), 400)

    def test_alike(self) -> None:
        """What is kept of a role, or thing, that exists and of another takes as many calls of the watch (REF-5)."""
        kept: list[Any] = []
        self.patch(self.refusals, "add_refusal", kept.append)
        for login in ("alice", "nobody"):
            self.log_in(login)
        for name in ("hidden", "missing"):
            self.client.get(f"/secrets/acme/variable/{name}", role=ALICE)
        self.assertEqual(len(kept), 4)

    def test_parameters(self) -> None:
        """``limit`` and ``after`` go through the list, and what they can't be is refused (REF-8)."""
        ids = [self.log_in("alice") for _ in range(5)]
        found = self.found("?limit=2")
        seen = [each["request"] for each in found["refusals"]]
        while found["after"] is not None:
            found = self.found(f"?limit=2&after={found['after']}")
            seen += [each["request"] for each in found["refusals"]]
        self.assertEqual(seen, ids[::-1])
        for query in ("limit=0", "limit=1001", "limit=x", "after=0", "after=x", "after=" + "9" * 30):
            self.assertEqual(self.client.get(f"/refusals?{query}", role=ADMIN).status, 422, query)
