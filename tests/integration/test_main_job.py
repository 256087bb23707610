"""A workload with a JWT gets its secret, and nobody else does: the whole way, over sockets, in both dialects."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import jwt
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from svc.model.dialect import CONJUR, NATIVE, Dialect
from tests.integration.client import CLAIMS, Answer, Api, KeySetSite, now, workload_token
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerProcess, ServerTestCase
from tests.signing import base64url, jwk, jwks, private_key
from tests.statuses import privilege_missing_status

OPTIONS = (
    "--account=acme",
    "--authenticators=authn,authn-jwt/ci,authn-jwt/nowhere",
    "--allow-http-providers",
    "--allow-private-providers=127.0.0.0/8",
    "--jwks-refetch-interval=0",
)


HS256 = b'{"alg":"HS256","kid":"k1"}'


class _MainJob(PostgresTestCase, ServerTestCase):
    """One server with a policy, and a provider beside it."""

    dialect: Dialect = NATIVE
    skip = unavailable()

    async def prepare(self) -> None:
        """Start both."""
        await super().prepare()
        self.provider = KeySetSite(self)
        url = await self.create_database(migrated=False)
        self.process: ServerProcess = self.serve(*OPTIONS, f"--dialect={self.dialect.name}", database_url=url)
        self.api = Api.of(self, await self.process.ready())
        self.admin_key = self.process.admin_key()
        self.admin = await self.api.set_up(self.admin_key, self.provider.uri, self.dialect.prefix)

    async def turned_away(self, token: bytes | str, reason: str, status: int = 401, **more: str) -> Answer:
        """Present a token and assert that the client learns nothing of its refusal, and the log the reason."""
        said = len(self.process.stdout)
        answer = await self.api.present(token, **more)
        self.assertEqual((answer.status, answer.body), (status, b""))
        await self.process.says(f": {reason} (", said)
        return answer


class MainJobTests(_MainJob):
    """What works, and what every kind of bad input is answered. A server is dear to start, so a test does much."""

    async def test_a_workload_gets_its_secret(self) -> None:
        """A JWT becomes a token that reads the secret; the routes around tell what they should to those who may know it."""
        await self._the_secret()
        await self._access_tokens_verify_with_a_jose_library()
        await self._the_members_of_the_role()
        await self._the_id_may_be_left_out_in_both_ways()
        await self._paths()
        await self._login_tells_the_api_key()
        await self._older_versions()
        await self._values_take_effect_at_once()

    async def test_bad_input_is_refused(self) -> None:
        """Bad input changes nothing and gets its refusal; who shows a bad token learns nothing, and the log the reason."""
        await self._times()
        await self._issuer_and_audience()
        await self._signatures()
        await self._a_wrong_kid()
        await self._hosts()
        await self._authenticators_that_are_not_there()
        await self._forms()
        await self._policy_errors_change_nothing()
        await self._replacing_takes_update()

    async def _the_secret(self) -> None:
        """A JWT becomes an access token, and the access token reads the secret that policy grants."""
        answer = await self.api.present(workload_token())
        self.assertEqual((answer.status, answer.headers["content-encoding"]), (200, "base64"))
        secret = await self.api.ask("GET", self.api.variable("apps/password"), token=answer.body.decode())
        self.assertEqual((secret.status, secret.body), (200, b"s3cret"))
        me = await self.api.ask("GET", "/whoami", token=answer.body.decode())
        self.assertEqual(me.json()["username"], "host/apps/shop")

    async def _access_tokens_verify_with_a_jose_library(self) -> None:
        """Stripped of padding and joined by dots, an access token is a JWS that the account's published key set verifies."""
        answer = await self.api.present(workload_token())
        token = json.loads(base64.b64decode(answer.body))
        compact = ".".join(token[part].rstrip("=") for part in ("protected", "payload", "signature"))
        keys = (await self.api.ask("GET", "/authn/acme/.well-known/jwks.json")).json()["keys"]
        claims = jwt.decode(compact, jwt.PyJWK(keys[0]), algorithms=["ES256"])
        self.assertEqual(list(claims), ["iat", "sub", "exp", "creation"])
        self.assertEqual(claims["sub"], "host/apps/shop")

    async def _the_members_of_the_role(self) -> None:
        """The members of a role are listed, paged and counted."""
        path = "/roles/acme/group/apps%2Fall?members"
        listed = (await self.api.ask("GET", path, token=self.admin)).json()
        members = ["acme:host:apps/bare", "acme:host:apps/shop", "acme:policy:apps"]
        self.assertEqual([row["member"] for row in listed], members)
        paged = (await self.api.ask("GET", f"{path}&limit=1&offset=1", token=self.admin)).json()
        self.assertEqual([row["member"] for row in paged], members[1:2])
        self.assertEqual((await self.api.ask("GET", f"{path}&count=true", token=self.admin)).json(), {"count": 3})

    async def _times(self) -> None:
        """A token without expiry, one that has expired, and one that is not valid yet are refused."""
        await self.turned_away(workload_token(exp=None), "expiry-missing")
        await self.turned_away(workload_token(exp=int(now()) - 1), "token-expired")
        await self.turned_away(workload_token(nbf=int(now()) + 60), "token-not-yet-valid")
        await self.turned_away(workload_token(iat=int(now()) + 60), "token-not-yet-valid")

    async def _issuer_and_audience(self) -> None:
        """A token of another issuer or for another audience is refused."""
        await self.turned_away(workload_token(iss="https://evil.example"), "issuer-wrong")
        await self.turned_away(workload_token(aud="another"), "audience-wrong")

    async def _signatures(self) -> None:
        """A token that is unsigned, signed with the public key as an HMAC secret, or by an unknown key is refused."""
        claims = base64url(json.dumps({**CLAIMS, "exp": int(now()) + 60}).encode())
        none = base64url(b'{"alg":"none","kid":"k1"}')
        await self.turned_away(f"{none}.{claims}.", "token-unsigned")
        await self.turned_away(f"{none}.{claims}.AAAA", "token-unsigned")
        pem = private_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        signing_input = f"{base64url(HS256)}.{claims}"
        forged = base64url(hmac.digest(pem, signing_input.encode(), hashlib.sha256))
        await self.turned_away(f"{signing_input}.{forged}", "algorithm-refused")
        await self.turned_away(workload_token(key="k2"), "key-unknown")

    async def _a_wrong_kid(self) -> None:
        """A token that names one known key and is signed with another is refused."""
        self.provider.document = jwks(jwk(), jwk("k3"))
        head, _, rest = workload_token(key="k3").partition(b".")
        renamed = base64url(base64.urlsafe_b64decode(head + b"==").replace(b'"k3"', b'"k1"')).encode()
        await self.turned_away(renamed + b"." + rest, "signature-wrong")

    async def _hosts(self) -> None:
        """A claim that differs, a host without annotations, one outside ``apps`` and one that isn't there look alike."""
        await self.turned_away(workload_token(branch="evil"), "claim-mismatch")
        await self.turned_away(workload_token(app="bare"), "annotations-missing")
        await self.turned_away(workload_token(app="nobody"), "role-unknown")
        status = privilege_missing_status(self.dialect)
        await self.turned_away(workload_token(app="outsider"), "privilege-missing", status)

    async def _authenticators_that_are_not_there(self) -> None:
        """An authenticator that isn't listed, and a service id that nobody knows, are refused."""
        await self.turned_away(workload_token(), "authenticator-not-enabled", service_id="cd")
        await self.turned_away(workload_token(), "webservice-unknown", service_id="nowhere")

    async def _forms(self) -> None:
        """A malformed form and one without a token are 400; a token that is too large is 413."""
        path = "/authn-jwt/ci/acme/authenticate"
        self.assertEqual((await self.api.ask("POST", path, b"jwt=%zz")).status, 400)
        self.assertEqual((await self.api.ask("POST", path, b"token=x")).status, 400)
        self.assertEqual((await self.api.ask("POST", path, b"jwt=" + b"x" * 20_000)).status, 413)
        self.assertEqual((await self.api.ask("POST", path, b"jwt=" + b"x" * 1024 * 1024)).status, 413)

    async def _the_id_may_be_left_out_in_both_ways(self) -> None:
        """The id may be left out of the path with its slash or without, and a trailing slash is dropped."""
        for path in (
            "/authn-jwt/ci/acme/authenticate",
            "/authn-jwt/ci/acme//authenticate",
            "/authn-jwt/ci/acme/authenticate/",
        ):
            answer = await self.api.ask("POST", path, b"jwt=" + workload_token())
            self.assertEqual(answer.status, 200, path)

    async def _policy_errors_change_nothing(self) -> None:
        """A refused load says where and why, and changes nothing, not even the version."""
        path = "/policies/acme/policy/root"
        good = b"- !variable fresh\n"
        for text, line, column in ((b"- !user: [\n", 2, 1), (b"- !variable fresh\n- !gruop x\n", 2, 3)):
            answer = await self.api.ask("POST", path, text, self.admin)
            error = answer.json()["error"]
            self.assertEqual((answer.status, error["code"]), (422, "policy_invalid"))
            self.assertEqual((error["innererror"]["line"], error["innererror"]["column"]), (line, column), error)
        unknown = await self.api.ask("POST", path, good + b"- !grant { role: !group no, member: !user alice }\n", self.admin)
        self.assertEqual(unknown.status, 422)
        self.assertEqual(unknown.json()["error"]["message"], "Group 'no' not found in account 'acme'")
        self.assertEqual((await self.api.ask("GET", self.api.variable("fresh"), token=self.admin)).status, 404)
        loaded = await self.api.ask("POST", path, good, self.admin)
        made = loaded.json()
        self.assertEqual((loaded.status, made["created_roles"], made["version"]), (201, {}, 2))
        self.assertEqual(
            made["changes"]["created"]["records"], [{"kind": "variable", "count": 1, "first": ["acme:variable:fresh"]}]
        )

    async def _replacing_takes_update(self) -> None:
        """A role that may not update a policy may not replace it: 404 where it doesn't see it, 403 where it does."""
        made = (await self.api.ask("POST", "/policies/acme/policy/root", b"- !user bob\n", self.admin)).json()
        bob = await self.api.authenticate("bob", made["created_roles"]["acme:user:bob"]["api_key"])
        path = "/policies/acme/policy/apps"
        self.assertEqual((await self.api.ask("PUT", path, b"[]", bob)).status, 404)
        permit = b"- !permit { role: !user bob, privilege: read, resource: !policy apps }\n"
        self.assertEqual((await self.api.ask("POST", "/policies/acme/policy/root", permit, self.admin)).status, 201)
        self.assertEqual((await self.api.ask("PUT", path, b"[]", bob)).status, 403)
        self.assertEqual((await self.api.ask("GET", self.api.variable("apps/password"), token=self.admin)).body, b"s3cret")

    async def _paths(self) -> None:
        """Invalid UTF-8 in a path is 422; an encoded slash belongs to the name, a raw one too where the name comes last."""
        answer = await self.api.ask("GET", "/secrets/acme/variable/%ff", token=self.admin)
        self.assertEqual((answer.status, answer.json()["error"]["code"]), (422, "argument_error"))
        for path in ("/secrets/acme/variable/apps%2Fpassword", "/secrets/acme/variable/apps/password"):
            self.assertEqual((await self.api.ask("GET", path, token=self.admin)).body, b"s3cret")
        self.assertEqual((await self.api.ask("GET", "/secrets/ac%2Fme/variable/x", token=self.admin)).status, 404)

    async def _login_tells_the_api_key(self) -> None:
        """``GET /authn/<account>/login`` tells an API key to a client that shows it by HTTP Basic, and nothing to others."""
        for password, expected in ((self.admin_key, (200, self.admin_key.encode())), ("wrong", (401, b""))):
            basic = base64.b64encode(f"admin:{password}".encode()).decode()
            answer = await self.api.ask("GET", "/authn/acme/login", Authorization=f"Basic {basic}")
            self.assertEqual((answer.status, answer.body), expected)

    async def _values_take_effect_at_once(self) -> None:
        """A variable of the authenticator that is set decides the very next login; so does a new key of the provider's."""
        self.assertEqual((await self.api.present(workload_token())).status, 200)
        name = f"{self.dialect.prefix}/authn-jwt/ci/audience"
        await self.api.ask("POST", self.api.variable(name), b"elsewhere", self.admin)
        await self.turned_away(workload_token(), "audience-wrong")
        self.assertEqual((await self.api.present(workload_token(aud="elsewhere"))).status, 200)
        self.provider.document = jwks(jwk("k2"))
        self.assertEqual((await self.api.present(workload_token("k2", aud="elsewhere"))).status, 200)

    async def _older_versions(self) -> None:
        """Secrets keep their older versions, and ``version`` reads them."""
        path = self.api.variable("apps/password")
        await self.api.ask("POST", path, b"\x00newer\xff", self.admin)
        self.assertEqual((await self.api.ask("GET", path, token=self.admin)).body, b"\x00newer\xff")
        self.assertEqual((await self.api.ask("GET", f"{path}?version=1", token=self.admin)).body, b"s3cret")
        self.assertEqual((await self.api.ask("GET", f"{path}?version=3", token=self.admin)).status, 404)


class ConjurMainJobTests(MainJobTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR
