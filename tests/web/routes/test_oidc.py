"""Signing in at a provider of OpenID Connect, over HTTP, in both dialects: honest people and hostile ones."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from twisted.logger import capturedLogs

from svc.authn.providers.oidc_endpoints import OFFERS_FRESH
from svc.authn.throttling import ADDRESS_FAILURES
from svc.model.dialect import CONJUR
from svc.model.oidc import OidcMetadata
from tests.signing import token
from tests.statuses import privilege_missing_status
from tests.web.oidc_world import CLIENT, ISSUER, POLICY
from tests.web.support import PEER, Answer
from tests.web.world import ADMIN, WorldCase

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "oidc.md"

CODES = {"client-secret": "the-secret", "claim-mapping": "name"}
TOKENS = {"id-token-user-property": "name"}


class OidcRouteCase(WorldCase):
    """An authenticator ``corp`` for codes, ``device`` for id tokens, and alice, who may log in at both."""

    def setUp(self) -> None:
        """Load the policies, and set their variables."""
        super().setUp()
        self.load("- !user alice\n- !user bob\n- !user near\n- !host app")
        self.define("corp", CODES)
        self.define("device", TOKENS)
        self.path = "/authn-oidc/corp/acme/authenticate"

    def define(self, service: str, values: dict[str, str], account: str = "acme", **more: str) -> None:
        """Declare an authenticator with these values beside the usual ones."""
        usual = {"provider-uri": ISSUER, "client-id": CLIENT, **values}
        usual.update({name.replace("_", "-"): value for name, value in more.items()})
        named = [name for name in usual if name not in {"provider-uri", "client-id"}]
        prefix = self.dialect.prefix
        policy = POLICY.format(prefix=prefix, service=service, more="\n    ".join(f"- !variable {name}" for name in named))
        permit = "- !permit {{ role: !user {}, privileges: [ authenticate ], resource: !webservice {}/authn-oidc/{} }}\n"
        self.load(policy + "".join(permit.format(who, prefix, service) for who in ("alice", "admin", "near")))
        for name, value in usual.items():
            self.set_value(f"{prefix}/authn-oidc/{service}/{name}", value.encode())

    def providers(self, account: str = "acme") -> Any:
        """The list of providers."""
        answer = self.client.get(f"/authn-oidc/{account}/providers")
        self.assertEqual(answer.status, 200)
        return answer.json()

    def begun(self) -> Any:
        """A login that a browser has begun at ``corp``, and its provider has answered: the entry, with a code."""
        (entry,) = [each for each in self.providers() if each["service_id"] == "corp"]
        code = f"code-of-{entry['nonce'][:8]}"
        self.oidc_provider.codes[code] = self.oidc_provider.claims(entry["nonce"])
        return {**entry, "code": code}

    def finish(self, login: Any, path: str | None = None, **changes: str | None) -> Answer:
        """Send the code, with what else the login has; changes that are ``None`` are left out."""
        given = {name: login[name] for name in ("code", "nonce", "code_verifier")} | changes
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in given.items() if value is not None)
        return self.client.get(f"{path or self.path}?{query}")

    def send(self, claims: Any, service: str = "device", **more: Any) -> Answer:
        """Send an id token."""
        evidence = claims if isinstance(claims, bytes) else token(claims)
        return self.client.post(f"/authn-oidc/{service}/acme/authenticate", b"id_token=" + evidence, **more)

    def payload(self, answer: Answer) -> Any:
        """What an access token says."""
        self.assertEqual(answer.status, 200, answer.body)
        return json.loads(base64.urlsafe_b64decode(json.loads(answer.body)["payload"]))

    def assert_refused(self, answer: Answer, status: int) -> None:
        """It is refused without a word."""
        self.assertEqual((answer.status, answer.body), (status, b""))
        self.assertNotIn("www-authenticate", answer.headers)

    @property
    def bad(self) -> int:
        """The status of a bad code."""
        return 400 if self.dialect.malformed_codes else 401


class ProviderListTests(OidcRouteCase):
    """``GET /authn-oidc/<account>/providers``."""

    def test_entry(self) -> None:
        """An entry has all that a browser needs to begin, in the form of the installed base (OIDC-8)."""
        self.define("away", CODES, redirect_uri="http://127.0.0.1:8888/callback", provider_scope="groups", name="Far & Away")
        found = {entry["service_id"]: entry for entry in self.providers()}
        entry = found["away"]
        self.assertEqual((entry["type"], entry["name"]), ("authn-oidc", "Far & Away"))
        self.assertEqual(found["corp"]["name"], "Corp")
        for name in ("nonce", "code_verifier"):
            self.assertRegex(entry[name], r"\A[0-9a-f]{50}\Z")
        digest = hashlib.sha256(entry["code_verifier"].encode()).digest()
        address, _, query = entry["redirect_uri"].partition("?")
        self.assertEqual(address, f"{ISSUER}/authorize")
        expected = [
            ("client_id", CLIENT),
            ("response_type", "code"),
            ("scope", "openid email profile groups"),
            ("nonce", entry["nonce"]),
            ("code_challenge", base64.urlsafe_b64encode(digest).decode().rstrip("=")),
            ("code_challenge_method", "S256"),
            ("redirect_uri", "http://127.0.0.1:8888/callback"),
        ]
        self.assertEqual(parse_qsl(query), expected)
        self.assertIn("&scope=openid%20email%20profile%20groups&", query)
        self.assertNotIn("redirect_uri", dict(parse_qsl(urlsplit(found["corp"]["redirect_uri"]).query)))
        self.assertNotIn("the-secret", json.dumps(found))

    def test_nothing_is_kept(self) -> None:
        """Each entry has a nonce and a verifier of its own, whenever it is asked for (OIDC-8)."""
        found = [
            entry[name]
            for _ in range(3)
            for entry in self.providers()
            for name in ("nonce", "code_verifier")
            if name in entry
        ]
        self.assertEqual(len(found), len({*found}))
        self.assertGreaterEqual(len(found), 6)

    def test_devices(self) -> None:
        """In ``native`` it has what clients need to get id tokens, and authenticators for these alone (OIDC-10)."""
        found = {entry["service_id"]: entry for entry in self.providers()}
        if self.dialect is CONJUR:
            self.assertEqual(set(found), {"corp"})
            six = {"service_id", "type", "name", "nonce", "code_verifier", "redirect_uri"}
            self.assertEqual(set(found["corp"]), six)
            return
        told = {"issuer": ISSUER, "client_id": CLIENT, "scope": "openid email profile"}
        device = {
            "service_id": "device",
            "type": "authn-oidc",
            "name": "Device",
            **told,
            "device_endpoint": f"{ISSUER}/device",
        }
        self.assertEqual(found["device"], device)
        self.assertEqual({name: found["corp"].get(name) for name in told}, told)
        self.assertNotIn("device_endpoint", found["corp"])

    def test_left_out(self) -> None:
        """Faulty ones, those whose provider is away and, in ``native``, those not enabled are left out (OIDC-8, OIDC-9)."""
        self.define("away", {**CODES, "token-ttl": "soon"})
        self.define("unlisted", CODES)
        services = {entry["service_id"] for entry in self.providers()}
        self.assertEqual(services, {"corp", "unlisted"} if self.dialect is CONJUR else {"corp", "device"})
        self.oidc_provider.down.add(ISSUER)
        self.clock.advance(OFFERS_FRESH)
        self.assertEqual(self.providers(), [])

    def test_odd_endpoints(self) -> None:
        """An authorization endpoint with a query keeps it."""
        self.oidc_provider.metadata_of[ISSUER] = OidcMetadata(f"{ISSUER}/a?realm=1", f"{ISSUER}/token")
        self.assertTrue(self.providers()[0]["redirect_uri"].startswith(f"{ISSUER}/a?realm=1&client_id="))

    def test_strangers(self) -> None:
        """However often strangers ask, the settings of an account are read once a second (OIDC-9)."""
        for seconds, asked in ((0, 2), (OFFERS_FRESH / 2, 2), (OFFERS_FRESH / 2, 4)):
            self.clock.advance(seconds)
            for _ in range(20):
                self.providers()
            self.assertEqual(self.oidc_provider.asked, asked if self.dialect is not CONJUR else asked // 2)

    def test_unknown_accounts(self) -> None:
        """An account that there isn't, or can't be, has no providers, and that is not said (OIDC-9)."""
        for account in ("nobody", "a%3Ab", "%20", "!"):
            self.assertEqual(self.providers(account), [])

    def test_first_twenty(self) -> None:
        """The first 20 are listed, and ``status`` webservices are none (OIDC-9)."""
        if self.dialect is not CONJUR:
            return
        for number in range(21):
            self.define(f"p{number:02}", CODES)
        found = [entry["service_id"] for entry in self.providers()]
        self.assertEqual(found, ["corp", *[f"p{number:02}" for number in range(18)]])


class ConjurProviderListTests(ProviderListTests):
    """The same in the other dialect."""

    dialect = CONJUR


class CodeTests(OidcRouteCase):
    """``GET …/authenticate``."""

    def test_signed_in(self) -> None:
        """A code, its nonce and its verifier are worth an access token of an hour, in either form (OIDC-11, OIDC-5)."""
        payload = self.payload(self.finish(self.begun()))
        self.assertEqual((payload["sub"], payload["exp"] - payload["iat"]), ("alice", 3600))
        login = self.begun()
        path = f"{self.path}?code={login['code']}&nonce={login['nonce']}&state=x&other"
        answer = self.client.get(path, headers=[("Accept-Encoding", "base64")])
        self.assertEqual(answer.headers["content-encoding"], "base64")
        self.assertEqual(self.payload(Answer(answer.status, {}, base64.b64decode(answer.body)))["sub"], "alice")

    def test_lifetime(self) -> None:
        """The access token lives as long as the variable says, and five hours at most (OIDC-5)."""
        self.define("away", {**CODES, "token-ttl": "PT6H"})
        login = self.begun()
        payload = self.payload(self.finish(login, "/authn-oidc/away/acme/authenticate"))
        self.assertEqual(payload["exp"] - payload["iat"], 5 * 3600)

    def test_incomplete(self) -> None:
        """Without a code or a nonce it is 400 with an empty body (FAIL-14)."""
        login = self.begun()
        for changes in ({"code": None}, {"code": ""}, {"nonce": None}, {"nonce": " "}, {"code": None, "nonce": None}):
            self.assert_refused(self.finish(login, **changes), 400)
        self.assertEqual(self.oidc_provider.exchanged, [])

    def test_refused(self) -> None:
        """All that proves nobody is refused alike, in ``native`` with one status (OIDC-20, FAIL-17)."""
        bad, login = self.bad, self.begun()
        wrong = self.oidc_provider.claims
        cases: list[tuple[int, dict[str, object]]] = [
            (bad, wrong(login["nonce"], iss="https://evil.example")),
            (bad, wrong(login["nonce"], aud="other-client")),
            (bad, wrong(login["nonce"], aud=[CLIENT, "other"], azp="other")),
            (bad, wrong("another-nonce")),
            (bad, wrong(login["nonce"], exp=1)),
            (bad, wrong(login["nonce"], name="nobody")),
            (401, wrong(login["nonce"], name=...)),
            (401, wrong(login["nonce"], name="admin")),
            (privilege_missing_status(self.dialect), wrong(login["nonce"], name="bob")),
        ]
        for number, (status, claims) in enumerate(cases):
            self.oidc_provider.codes[f"c{number}"] = claims
            with self.subTest(claims=claims):
                self.assert_refused(self.finish(login, code=f"c{number}"), status)
        self.assert_refused(self.finish(login, code="unknown"), bad)
        self.assert_refused(self.finish(login, "/authn-oidc/none/acme/authenticate"), bad)
        self.assert_refused(self.finish(login, "/authn-oidc/corp/nobody/authenticate"), bad)
        for path in ("/authn-oidc/acme/authenticate", "/authn-oidc/corp/acme/alice/authenticate"):
            self.assertEqual(self.finish(login, path).status, 404)

    def test_put_off(self) -> None:
        """While the provider or its keys are away it is 503 for everybody, with a time to come again (FAIL-13)."""
        login = self.begun()
        self.oidc_provider.down.add(ISSUER)
        for code in (login["code"], "unknown"):
            answer = self.finish(login, code=code)
            self.assert_refused(answer, 503)
            self.assertIn("retry-after", answer.headers)
        self.oidc_provider.down.clear()
        self.provider.down = True
        self.assert_refused(self.finish(login), 503)

    def test_restricted(self) -> None:
        """A user who may log in from elsewhere only is refused here (OIDC-28)."""
        self.load("- !user { id: near, restricted_to: [ 198.51.100.0/24 ] }", method="PATCH")
        login = self.begun()
        self.oidc_provider.codes[login["code"]] = self.oidc_provider.claims(login["nonce"], name="near")
        self.assert_refused(self.finish(login), 401)

    def test_failures(self) -> None:
        """An address with too many failures is refused before the provider is asked; others sign in (OIDC-29)."""
        for number in range(ADDRESS_FAILURES):
            self.assert_refused(self.client.get(f"{self.path}?code=guess-{number}&nonce=n"), self.bad)
        asked, login = len(self.oidc_provider.exchanged), self.begun()
        answer = self.finish(login)
        self.assert_refused(answer, 429)
        self.assertIn("retry-after", answer.headers)
        self.assertEqual(len(self.oidc_provider.exchanged), asked)
        self.clock.advance(60)
        self.payload(self.finish(self.begun()))

    def test_recorded(self) -> None:
        """The audit and the log tell who signed in and why others didn't, and no code, nonce, token or secret (FAIL-22)."""
        self.journal.told()
        with capturedLogs() as logs:
            login = self.begun()
            self.payload(self.finish(login))
            self.finish(login)
            self.oidc_provider.codes["late"] = self.oidc_provider.claims(login["nonce"], name="bob")
            self.finish(login, code="late")
        self.assertEqual(
            [(event.user, event.service, outcome.reason) for _, event, outcome in self.journal.taken],
            [
                ("acme:user:alice", "authn-oidc/corp", None),
                ("acme:user:USERNAME_MISSING", "authn-oidc/corp", "code-refused"),
                ("acme:user:bob", "authn-oidc/corp", "privilege-missing"),
            ],
        )
        self.assertEqual({origin.client_ip for origin, _, _ in self.journal.taken}, {PEER})
        for secret in (login["code"], login["nonce"], login["code_verifier"], "the-secret"):
            self.assertNotIn(secret, repr(self.journal.taken))
            self.assertNotIn(secret, str(logs))

    def test_methods(self) -> None:
        """A code is taken by ``GET`` alone, and what was exchanged for it isn't kept by anybody on the way."""
        answer = self.finish(self.begun())
        self.assertEqual(answer.headers["cache-control"], "no-store")


class ConjurCodeTests(CodeTests):
    """The same where bad codes are answered as malformed requests."""

    dialect = CONJUR


class IdTokenTests(OidcRouteCase):
    """``POST …/authenticate``."""

    def test_signed_in(self) -> None:
        """An id token is taken from a form of any content type, or from the header, for the usual time (OIDC-21)."""
        evidence = token(self.oidc_provider.claims("x"))
        headers = [("Authorization", f"Bearer {quote(evidence.decode(), safe='')}")]
        for answer in (
            self.send(evidence),
            self.send(evidence, headers=[("Content-Type", "text/plain")]),
            self.client.post("/authn-oidc/device/acme/authenticate", b"", headers=headers),
            self.client.post("/authn-oidc/device/acme/authenticate", b"other=x", headers=headers),
        ):
            payload = self.payload(answer)
            self.assertEqual((payload["sub"], payload["exp"] - payload["iat"]), ("alice", 480))

    def test_with_secrets(self) -> None:
        """It reads secrets in the same request, as every such login does (SEC-43)."""
        self.load("- !variable v\n- !permit { role: !user alice, privileges: [ read, execute ], resource: !variable v }")
        self.set_value("v", b"value")
        path = "/authn-oidc/device/acme/authenticate?secrets=acme:variable:v"
        for name, status in (("alice", 200), ("nobody", 401)):
            evidence = token(self.oidc_provider.claims("x", name=name))
            answer = self.client.post(path, b"id_token=" + evidence)
            self.assertEqual(answer.status, status)
            if status == 200:
                self.assertEqual(answer.json()["values"], {"acme:variable:v": "value"})

    def test_off(self) -> None:
        """An authenticator for codes takes no id tokens, whoever brings them (OIDC-3)."""
        self.assert_refused(self.send(self.oidc_provider.claims("x"), "corp"), 401)

    def test_refused(self) -> None:
        """What proves nobody is refused; a token for another client above all (OIDC-24)."""
        claims = self.oidc_provider.claims
        for status, evidence in (
            (401, claims("x", aud="other")),
            (401, claims("x", aud=...)),
            (401, claims("x", iss="https://evil.example")),
            (401, claims("x", iss=...)),
            (401, claims("x", scope="openid")),
            (401, claims("x", name="admin")),
            (401, claims("x", name="nobody")),
            (privilege_missing_status(self.dialect), claims("x", name="bob")),
            (401, b"no-token"),
            (400, b""),
            (413, b"x" * 20_000),
            (400, b"%zz"),
        ):
            with self.subTest(evidence=str(evidence)[:60]):
                self.assert_refused(self.send(evidence), status)

    def test_paths(self) -> None:
        """A path that names a user is no route (OIDC-21)."""
        path = "/authn-oidc/device/acme/alice/authenticate"
        self.assertEqual(self.client.post(path, b"id_token=x", role=ADMIN).status, 404)


class ConjurIdTokenTests(IdTokenTests):
    """The same in the other dialect."""

    dialect = CONJUR


class GuideTests(OidcRouteCase):
    """``docs/guides/oidc.md``."""

    def setUp(self) -> None:
        """Load the policies of the page alone, and set the variables that it sets."""
        WorldCase.setUp(self)
        self.path = "/authn-oidc/corp/acme/authenticate"
        page = GUIDE.read_text(encoding="utf-8")
        for policy in page.split("```yaml\n")[1:]:
            self.load(policy.partition("```")[0])
        values = dict(re.findall(r"printf %s (\S+) \| svc variable set svc/authn-oidc/corp/(\S+)", page))
        self.values = {name: value for value, name in values.items()} | {"provider-uri": ISSUER, "client-id": CLIENT}

    def test_codes(self) -> None:
        """The first policy of the page lets its user sign in with a code, once the variables are set."""
        for name, value in self.values.items():
            self.set_value(f"svc/authn-oidc/corp/{name}", value.encode())
        (login,) = self.providers()
        self.oidc_provider.codes["c"] = self.oidc_provider.claims(login["nonce"], preferred_username="alice")
        self.assertEqual(self.payload(self.finish({**login, "code": "c"}))["sub"], "alice")
        self.assertEqual(dict(parse_qsl(login["redirect_uri"]))["redirect_uri"], "http://127.0.0.1:8888/callback")

    def test_devices(self) -> None:
        """The second one takes id tokens of its client, from its user."""
        for name, value in {**self.values, "id-token-user-property": "preferred_username"}.items():
            if name in {"provider-uri", "client-id", "id-token-user-property"}:
                self.set_value(f"svc/authn-oidc/device/{name}", value.encode())
        claims = self.oidc_provider.claims("x", preferred_username="alice")
        self.assertEqual(self.payload(self.send(claims))["sub"], "alice")
        (entry,) = self.providers()
        self.assertEqual(entry["device_endpoint"], f"{ISSUER}/device")
