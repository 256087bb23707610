"""Tests of ``svc.web.routes.authn``."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import attrs

from svc.model.dialect import CONJUR
from tests.signing import token
from tests.statuses import privilege_missing_status
from tests.web.support import NOW, Answer
from tests.web.world import ADMIN, ADMIN_KEY, WorldCase, user

POLICY = """
- !policy
  id: {prefix}/authn-jwt/ci
  body:
    - !webservice
    - !variable jwks-uri
    - !variable token-app-property
    - !variable issuer
    - !group apps
    - !permit { role: !group apps, privileges: [ read, authenticate ], resource: !webservice }
- !host
  id: shop
  annotations: { authn-jwt/ci/project: acme/shop }
- !grant { role: !group {prefix}/authn-jwt/ci/apps, member: !host shop }
"""

JWT_PATH = "/authn-jwt/ci/acme/authenticate"


class AuthnTests(WorldCase):
    """API keys, JWTs, and what is told about callers and keys."""

    def basic(self, login: str, password: str) -> list[tuple[str, str]]:
        """The header of HTTP Basic credentials."""
        return [("Authorization", "Basic " + base64.b64encode(f"{login}:{password}".encode()).decode())]

    def authenticate(self, login: str, key: str, **more: object) -> Answer:
        """Authenticate by API key."""
        return self.client.post(f"/authn/acme/{quote(login, safe='')}/authenticate", key.encode(), **more)

    def assert_refused(self, answer: Answer, status: int = 401) -> None:
        """An authenticate that fails has an empty body (FAIL-3)."""
        self.assertEqual((answer.status, answer.body), (status, b""))
        self.assertNotIn("www-authenticate", answer.headers)

    def test_tokens(self) -> None:
        """An API key becomes an access token: a JSON object of three texts (WIRE-23, TOK-4)."""
        answer = self.authenticate("admin", ADMIN_KEY)
        self.assertEqual((answer.status, answer.headers["content-type"]), (200, "application/json"))
        parts = json.loads(answer.body)
        self.assertEqual(list(parts), ["protected", "payload", "signature"])
        claims = json.loads(base64.b64decode(parts["payload"]))
        self.assertEqual(claims, {"iat": NOW, "sub": "admin", "exp": NOW + 480})
        self.assertEqual(list(claims), ["iat", "sub", "exp"])

    def test_spellings_of_logins(self) -> None:
        """``alice`` and ``user/alice`` are one; a raw slash in the path is as good as an encoded one (TOK-1)."""
        key = self.load("- !host a/b\n").json()["created_roles"]["acme:host:a/b"]["api_key"]
        for path in ("/authn/acme/host%2Fa%2Fb/authenticate", "/authn/acme/host/a/b/authenticate"):
            self.assertEqual(self.client.post(path, key.encode()).status, 200)
        self.assertEqual(self.authenticate("user/admin", ADMIN_KEY).status, 200)
        self.assert_refused(self.client.post("/authn/acme/admin%2F/authenticate", ADMIN_KEY.encode()))

    def test_base64(self) -> None:
        """An item ``base64`` of ``Accept-Encoding``, in any case, has the token come in base64 (TOK-5)."""
        for header in ("base64", "gzip , bASe64 ,br"):
            answer = self.authenticate("admin", ADMIN_KEY, headers=[("Accept-Encoding", header)])
            self.assertEqual(answer.headers["content-encoding"], "base64")
            self.assertTrue(answer.headers["content-type"].startswith("text/plain"))
            self.assertIn("payload", json.loads(base64.b64decode(answer.body, validate=True)))
        for header in ("gzip, deflate", "base64;q=1", ""):
            answer = self.authenticate("admin", ADMIN_KEY, headers=[("Accept-Encoding", header)])
            self.assertNotIn("content-encoding", answer.headers)

    def test_refused_keys(self) -> None:
        """A wrong key, an unknown role, a role without one and an unknown account look alike (FAIL-17)."""
        self.load("- !group ops\n")
        for login, key in (
            ("admin", "wrong"),
            ("nobody", ADMIN_KEY),
            ("admin", ADMIN_KEY + "\n"),
            ("admin", ""),
            ("x" * 1025, ""),
        ):
            answer = self.authenticate(login, key)
            self.assertIn((answer.status, answer.body[:9]), [(401, b""), (422, b'{"error":')])
        self.assert_refused(self.client.post("/authn/other/admin/authenticate", ADMIN_KEY.encode()))

    def test_only_posts(self) -> None:
        """``GET`` on the same path is 404."""
        self.assertEqual(self.client.get("/authn/acme/admin/authenticate").status, 404)

    def test_login(self) -> None:
        """HTTP Basic with a password or API key gets the API key, as plain text without a newline (TOK-2)."""
        answer = self.client.get("/authn/acme/login", headers=self.basic("admin", ADMIN_KEY))
        self.assertEqual((answer.status, answer.body), (200, ADMIN_KEY.encode()))
        self.assertTrue(answer.headers["content-type"].startswith("text/plain"))

    def test_refused_logins(self) -> None:
        """Anything but good Basic credentials is 401 without a body; a bearer token is none, though it must be valid
        (WIRE-31, FAIL-3, TOK-3).
        """
        for headers in (
            [],
            self.basic("admin", "wrong"),
            self.basic("", ADMIN_KEY),
            self.basic("nobody", ADMIN_KEY),
            [("Authorization", "Basic !!!")],
            [("Authorization", "Basic " + base64.b64encode(b"no colon").decode())],
            [("Authorization", "Basic " + base64.b64encode(b"\xff:x").decode())],
            [("Authorization", "Bearer x")],
        ):
            self.assert_refused(self.client.get("/authn/acme/login", headers=headers))
        self.assert_refused(self.client.get("/authn/acme/login", role=ADMIN))
        forged = self.client.get("/authn/acme/login", headers=[("Authorization", "Token token=x")])
        self.assertEqual((forged.status, forged.body), (401, b"Unauthorized: Invalid token"))

    def test_whoami(self) -> None:
        """The caller is told its name; a role that is gone is 403; nobody is 401 (WIRE-51)."""
        answer = self.client.get("/whoami", role=ADMIN, headers=[("User-Agent", "curl/8")])
        self.assertEqual(
            answer.json(),
            {
                "client_ip": "192.0.2.7",
                "user_agent": "curl/8",
                "account": "acme",
                "username": "admin",
                "token_issued_at": "2023-11-14T22:13:20.000+00:00",
            },
        )
        self.assertEqual(self.client.get("/whoami", role=user("gone")).status, 403)
        nobody = self.client.get("/whoami")
        self.assertEqual((nobody.status, nobody.body), (401, b"Authorization missing"))

    def test_unheard_of(self) -> None:
        """Headers and parameters that no route knows are passed over (WIRE-27)."""
        headers = [("X-Cybr-Telemetry", "aW49c2Rr"), ("X-Unheard-Of", "1")]
        answer = self.client.get("/whoami?unheard=of", role=ADMIN, headers=headers)
        self.assertEqual((answer.status, answer.json()["username"]), (200, "admin"))

    def test_key_sets(self) -> None:
        """An account's public keys are anybody's to read; an account that isn't there has none (TOK-33)."""
        answer = self.client.get("/authn/acme/.well-known/jwks.json")
        [key] = answer.json()["keys"]
        self.assertEqual((key["kty"], key["crv"], key["alg"], "d" in key), ("EC", "P-256", "ES256", False))
        for account in ("other", "%20", "a:b"):
            self.assertEqual(self.client.get(f"/authn/{account}/.well-known/jwks.json").status, 404)

    def test_a_signing_key_that_does_not_open(self) -> None:
        """When an account's signing key can't be opened, or is gone, the right API key is put off, a wrong one refused
        (TOK-34).
        """
        stored = self.memory.accounts["acme"]
        stored[:] = [attrs.evolve(key, sealed=self.vault.seal("other", b"x")) for key in stored]
        for _ in range(2):
            answer = self.authenticate("admin", ADMIN_KEY)
            self.assertEqual((answer.status, answer.body), (503, b""))
            self.assertIn(answer.headers["retry-after"], {"2", "3", "4"})
            self.assert_refused(self.authenticate("admin", "wrong"))
            stored.clear()

    def test_unavailable(self) -> None:
        """While the store is away, logins are 503 with ``Retry-After``, not refusals (FAIL-12, FAIL-16)."""
        self.memory.down = True
        answer = self.authenticate("admin", ADMIN_KEY)
        self.assertEqual((answer.status, "retry-after" in answer.headers), (503, True))


class JwtTests(WorldCase):
    """The JWT route."""

    def setUp(self) -> None:
        """Load a policy with an authenticator and a host."""
        super().setUp()
        prefix = self.dialect.prefix
        self.load(POLICY.replace("{prefix}", prefix))
        for name, value in (("jwks-uri", b"https://idp.example/jwks"), ("token-app-property", b"app"), ("issuer", b"idp")):
            self.set_value(f"{prefix}/authn-jwt/ci/{name}", value)

    def token(self, **claims: object) -> bytes:
        """A token of the host's."""
        return token({"iss": "idp", "app": "shop", "project": "acme/shop", "exp": NOW + 60} | claims)

    def present(self, jwt: bytes, path: str = JWT_PATH) -> Answer:
        """Present a token."""
        return self.client.post(path, b"jwt=" + jwt)

    def test_admitted(self) -> None:
        """A good token is exchanged for an access token of the host, whatever the content type, blanks around it or not
        (WIRE-23, AUTH-7).
        """
        for path in (JWT_PATH, "/authn-jwt/ci/acme//authenticate", JWT_PATH + "/"):
            parts = json.loads(self.present(self.token() + b"+", path).body)
            self.assertEqual(json.loads(base64.b64decode(parts["payload"]))["sub"], "host/shop")

    def test_privilege_missing(self) -> None:
        """A host outside of ``apps`` is refused with the status of the dialect, and an empty body (FAIL-14)."""
        self.load("- !host { id: stray, annotations: { authn-jwt/ci/project: acme/shop } }\n")
        answer = self.present(self.token(app="stray"))
        self.assertEqual((answer.status, answer.body), (privilege_missing_status(self.dialect), b""))

    def test_restricted(self) -> None:
        """A restricted host logs in from where it may, as its connection or a trusted proxy tells (TOK-20)."""
        self.load("- !host { id: shop, restricted_to: 198.51.100.0/24 }\n", method="PATCH")
        body = b"jwt=" + self.token()
        proxied = [("X-Forwarded-For", "198.51.100.9")]
        for peer, headers, status in (
            ("198.51.100.9", [], 200),
            ("192.0.2.7", [], 401),
            ("192.0.2.7", proxied, 401),
            ("127.0.0.1", proxied, 200),
        ):
            answer = self.client.post(JWT_PATH, body, peer=peer, headers=headers)
            self.assertEqual(answer.status, status, (peer, headers))

    def test_refused(self) -> None:
        """A refusal has an empty body; a missing token is 400, one that is too large 413 (FAIL-14)."""
        for body, status in (
            (b"jwt=" + self.token(project="other"), 401),
            (b"jwt=" + self.token(exp=NOW), 401),
            (b"jwt=x.y", 401),
            (b"", 400),
            (b"jwt=", 400),
            (b"jwt=%", 400),
            (b"jwt=" + b"x" * 16385, 413),
            (b"jwt=" + b"x" * 100_000, 413),
        ):
            answer = self.client.post(JWT_PATH, body)
            self.assertEqual((answer.status, answer.body), (status, b""), body[:20])

    def test_the_last_field_counts(self) -> None:
        """Of a repeated field the last one counts, and a semicolon separates nothing."""
        self.assertEqual(self.client.post(JWT_PATH, b"jwt=x&jwt=" + self.token()).status, 200)
        self.assertEqual(self.client.post(JWT_PATH, b"jwt=x;jwt=" + self.token()).status, 401)

    def test_identity_in_the_path(self) -> None:
        """Where a claim names the host, a host in the path is refused, even the same one (AUTH-30)."""
        self.assertEqual(self.present(self.token(), "/authn-jwt/ci/acme/host%2Fshop/authenticate").status, 401)

    def test_keys_unavailable(self) -> None:
        """While the provider's keys can't be had nobody is judged: 503, an empty body, and when to come again."""
        self.provider.down = True
        for evidence in (self.token(), self.token(project="other"), self.token(exp=NOW)):
            answer = self.present(evidence)
            self.assertEqual((answer.status, answer.body, answer.headers["retry-after"]), (503, b"", "3"))
        self.assertEqual(self.present(b"x.y").status, 401)

    def test_no_signing_key(self) -> None:
        """In an account without signing key everybody is put off alike, as nobody could be given a token (TOK-34)."""
        self.memory.accounts["acme"].clear()
        for evidence in (self.token(), self.token(app="absent"), self.token(exp=NOW), b"x.y"):
            answer = self.present(evidence)
            self.assertEqual((answer.status, answer.body), (503, b""))
            self.assertIn(answer.headers["retry-after"], {"2", "3", "4"})


class ConjurJwtTests(JwtTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


CLOUD_POLICY = """
- !policy
  id: {prefix}/{cloud}/prod
  body:
    - !webservice
    - !variable provider-uri
    - !group apps
    - !permit { role: !group apps, privileges: [ read, authenticate ], resource: !webservice }
- !policy
  id: {prefix}/{cloud}/test
  body:
    - !webservice
    - !variable provider-uri
    - !group apps
    - !permit { role: !group apps, privileges: [ read, authenticate ], resource: !webservice }
- !host
  id: web
  annotations:
    {cloud}/subscription-id: the-subscription
    {cloud}/resource-group: production
    {cloud}/test/resource-group: test
- !host
  id: stray
  annotations: { {cloud}/subscription-id: the-subscription, {cloud}/resource-group: production }
- !grant { role: !group {prefix}/{cloud}/prod/apps, member: !host web }
- !grant { role: !group {prefix}/{cloud}/test/apps, member: !host web }
"""


class CloudTests(WorldCase):
    """The route of the cloud authenticator, from policy to access token (AUTH-7 and AUTH-9)."""

    def setUp(self) -> None:
        """Load a policy with an authenticator for each of two tenants, and a host in both."""
        super().setUp()
        self.cloud = self.dialect.cloud
        self.load(CLOUD_POLICY.replace("{prefix}", self.dialect.prefix).replace("{cloud}", self.cloud))
        for service in ("prod", "test"):
            name = f"{self.dialect.prefix}/{self.cloud}/{service}/provider-uri"
            self.set_value(name, f"https://sts.example/{service}/".encode())

    def token(self, service: str = "prod", group: str = "production", **claims: object) -> bytes:
        """A token of a machine."""
        resource = f"/subscriptions/the-subscription/resourcegroups/{group}/providers/Microsoft.Compute/virtualMachines/vm"
        good = {"iss": f"https://sts.example/{service}/", "oid": "x", "xms_mirid": resource, "exp": NOW + 60}
        return token(good | claims)

    def present(self, jwt: bytes, host: str = "host%2Fweb", service: str = "prod", **more: object) -> Answer:
        """Present a token."""
        return self.client.post(f"/{self.cloud}/{service}/acme/{host}/authenticate", b"jwt=" + jwt, **more)

    def assert_refused(self, answer: Answer, status: int = 401) -> None:
        """An authenticate that fails has an empty body (FAIL-3)."""
        self.assertEqual((answer.status, answer.body), (status, b""))

    def test_admitted(self) -> None:
        """A good token is exchanged for an access token of the host, whose id may have its slash written out (AUTH-7)."""
        for host in ("host%2Fweb", "host/web", "host%2fweb"):
            answer = self.present(self.token(), host)
            self.assertEqual((answer.status, answer.headers["content-type"]), (200, "application/json"))
            self.assertEqual(json.loads(base64.b64decode(answer.json()["payload"]))["sub"], "host/web")

    def test_base64(self) -> None:
        """A client that accepts base64 gets it, ready for the Authorization header (TOK-5)."""
        answer = self.present(self.token(), headers=[("Accept-Encoding", "gzip , bASe64 ,br")])
        self.assertEqual(answer.headers["content-encoding"], "base64")
        self.assertEqual(json.loads(base64.b64decode(answer.body)).keys(), {"protected", "payload", "signature"})

    def test_several_services(self) -> None:
        """What is said for one service overrides what is said in general, and each has its own tenant."""
        self.assertEqual(self.present(self.token("test", "test"), service="test").status, 200)
        for jwt, service in (
            (self.token("test", "production"), "test"),
            (self.token("prod", "test"), "test"),
            (self.token("prod", "test"), "prod"),
            (self.token("test", "production"), "prod"),
        ):
            self.assert_refused(self.present(jwt, service=service))

    def test_refused(self) -> None:
        """A refusal has an empty body; a missing token is 400, one that is too large 413, for any host (FAIL-14)."""
        for host in ("host%2Fweb", "host%2Fnobody", "host%2Fstray"):
            bodies = {b"": 400, b"jwt=": 400, b"jwt=%": 400, b"jwt=" + b"x" * 16385: 413, b"jwt=x.y": 401}
            for body, status in bodies.items():
                answer = self.client.post(f"/{self.cloud}/prod/acme/{host}/authenticate", body)
                self.assert_refused(answer, status)
        for jwt in (self.token(exp=NOW), self.token(oid=None), self.token(group="Production"), self.token(iss="x")):
            self.assert_refused(self.present(jwt))
            self.assert_refused(self.present(jwt, "host%2Fnobody"))
        self.assert_refused(self.present(self.token(), "host%2Fnobody"))
        self.assert_refused(self.present(self.token(), service="none"))

    def test_privilege_missing(self) -> None:
        """A host outside of ``apps`` is refused with the status of the dialect (AUTH-12)."""
        self.assert_refused(self.present(self.token(), "host%2Fstray"), privilege_missing_status(self.dialect))

    def test_paths(self) -> None:
        """Without the host's id, or without the service's, nobody is admitted (AUTH-7)."""
        body = b"jwt=" + self.token()
        for path, status in (
            ("prod/acme", 401),
            ("prod/acme/", 401),
            ("acme/web", 401),
            ("acme/host%2Fweb", 404),
            ("acme", 404),
            ("prod/ac%2Fme/host%2Fweb", 404),
        ):
            self.assertEqual(self.client.post(f"/{self.cloud}/{path}/authenticate", body).status, status, path)
        self.assertEqual(self.client.get(f"/{self.cloud}/prod/acme/host%2Fweb/authenticate").status, 404)

    def test_restricted(self) -> None:
        """A restricted host logs in from where it may (TOK-20)."""
        self.load("- !host { id: web, restricted_to: 198.51.100.0/24 }\n", method="PATCH")
        self.assertEqual(self.present(self.token(), peer="198.51.100.9").status, 200)
        self.assert_refused(self.present(self.token()))

    def test_keys_unavailable(self) -> None:
        """While the provider's keys can't be had nobody is judged, whatever host the path names."""
        self.provider.down = True
        for host in ("host%2Fweb", "host%2Fstray", "host%2Fnobody"):
            answer = self.present(self.token(), host)
            self.assertEqual((answer.status, answer.body, answer.headers["retry-after"]), (503, b"", "3"))


class ConjurCloudTests(CloudTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR
