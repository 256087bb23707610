"""The pages of authenticators."""

from __future__ import annotations

from typing import Final

from twisted.logger import capturedLogs

from svc.model.dialect import NATIVE
from svc.model.refusals import RefusedRequest
from svc.web.routes.authenticators import FederatedAuthenticators
from tests.signing import token
from tests.web.console.world import ConsoleCase, MemoryBrowser
from tests.web.support import NOW, Client
from tests.web.world import ADMIN, user

CI: Final = "/ui/authenticators/authn-jwt/ci"
CLOUD: Final = NATIVE.cloud
BRANCH: Final = f"{NATIVE.prefix}/authn-jwt/ci"
POLICY: Final = f"""
- !policy
  id: {BRANCH}
  body:
  - !webservice
  - !webservice status
  - !variable jwks-uri
  - !variable token-app-property
  - !variable issuer
  - !group apps
  - !permit {{ role: !group apps, privileges: [ read, authenticate ], resource: !webservice }}
- !policy
  id: {NATIVE.prefix}/{CLOUD}/prod
  body: [ !webservice , !webservice status ]
- !webservice {NATIVE.prefix}/authn-jwt/<b>odd</b>
- !host
  id: shop
  annotations: {{ authn-jwt/ci/project: acme/shop }}
- !grant {{ role: !group {BRANCH}/apps, member: !host shop }}
- !user alice
- !user olivia
- !permit {{ role: !user olivia, privileges: [ read ], resource: !webservice {BRANCH}/status }}
"""


class AuthenticatorsPagesCase(ConsoleCase):
    """An authenticator, Olivia who may read its status, and Alice who may not."""

    def setUp(self) -> None:
        """Load it."""
        super().setUp()
        loaded = self.load(POLICY)
        for name, value in (("jwks-uri", b"https://idp.example/jwks"), ("token-app-property", b"app"), ("issuer", b"idp")):
            self.set_value(f"{BRANCH}/{name}", value)
        keys = {name: self.api_key(loaded, f"acme:user:{name}") for name in ("alice", "olivia")}
        self.alice, self.olivia = (self.signed_in(name, keys[name]) for name in ("alice", "olivia"))
        self.admin = self.signed_in("admin", "1admin")
        self.journal.told()

    def evidence(self, **claims: object) -> str:
        """A token of the host's."""
        return token({"iss": "idp", "app": "shop", "project": "acme/shop", "exp": NOW + 60} | claims).decode()

    def explained(self, browser: MemoryBrowser, jwt: str, **fields: str) -> str:
        """What the page says of a token."""
        browser.get(CI)
        return browser.press("Show the checks", jwt=jwt, **fields).text


class AuthenticatorListTests(AuthenticatorsPagesCase):
    """The list."""

    def test_list(self) -> None:
        """It has every authenticator with whether it is on, escaped, and leads to those that have a page (CON-40)."""
        page = self.alice.get("/ui/authenticators")
        self.assertIn("authn-jwt/<b>odd</b>", page.text)
        self.assertNotIn("b", [tag for tag, _ in page.tags])
        self.assertIn(CI, page.links)
        self.assertNotIn("/ui/authenticators/authn", page.links)
        self.assertIn("Not enabled", page.text)
        self.assertIn("of these types there is none: ", page.text.lower())
        self.assertEqual(self.journal.told(), [])
        self.assertIn("/ui/authenticators", self.alice.get("/ui").links)

    def test_states(self) -> None:
        """A card says how many faults an authenticator has and how many keys, to who reads its status; no provider is asked
        (CON-40).
        """
        self.provider.down = True
        for browser, cards in ((self.olivia, 1), (self.alice, 0)):
            page = browser.get("/ui/authenticators")
            self.assertEqual(page.text.count("No keys are at hand"), cards)
            self.assertEqual(page.text.count("No faults"), cards)
            self.assertNotIn("in the last hour", page.text)
        self.load(f"- !delete {{ record: !variable {BRANCH}/jwks-uri }}\n", method="PATCH")
        self.assertIn("1 fault.", self.olivia.get("/ui/authenticators").text)
        self.journal.told()
        page = self.admin.get("/ui/authenticators")
        told = self.journal.told()
        self.assertEqual([each[:2] for each in told], [("authn", "validate-status"), ("refusals", "list")])
        self.assertEqual(told[0][2]["resource"], f"acme:webservice:{NATIVE.prefix}/{CLOUD}/prod")

    def test_refusals(self) -> None:
        """A card, and the page of an authenticator, have its refusals by reason, for who reads the whole audit (CON-40,
        CON-41).
        """
        for service in ("ci", "ci", "odd"):
            self.refusals.add_refusal(
                RefusedRequest(
                    NOW, "r", "192.0.2.1", "acme", "POST /", "token-expired", "late", "authn-jwt", service, "acme:host:shop"
                )
            )
        for path in ("/ui/authenticators", CI):
            page = self.admin.get(path)
            self.assertIn("token-expired", page.text)
            [link] = [each for each in page.links if "service=ci" in each]
            self.assertNotIn("token-expired", self.olivia.get(path).text)
        page = self.admin.get(link)
        self.assertEqual(page.text.count("authn-jwt/ci: late"), 2)
        self.assertNotIn("authn-jwt/odd: late", page.text)
        self.assertIn("It refused nothing", self.admin.get("/ui/authenticators").text)

    def test_gone(self) -> None:
        """Who is no more sees no list, though anybody may ask for it elsewhere (CON-9)."""
        self.load("- !delete { record: !user alice }\n", method="PATCH")
        self.assertEqual(self.alice.ask("GET", "/ui/authenticators").status, 303)


class AuthenticatorPageTests(AuthenticatorsPagesCase):
    """The page of one."""

    def test_state(self) -> None:
        """It has the faults, where keys come from and how old they are, for those who read the status (CON-41)."""
        page = self.olivia.get(CI)
        for text in ("Nothing is wrong with it", "https://idp.example/jwks", "no keys are at hand", "listed"):
            self.assertIn(text, page.text)
        self.load(f"- !delete {{ record: !variable {BRANCH}/jwks-uri }}\n", method="PATCH")
        self.assertNotIn("Nothing is wrong with it", self.olivia.get(CI).text)

    def test_refused(self) -> None:
        """Others are refused, what isn't there and what isn't a name are one page, and nothing is explained (CON-17)."""
        self.assertEqual(self.alice.get(CI).answer.status, 403)
        path, _, fields = self.olivia.get(CI).forms["Show the checks"]
        own = self.alice.get("/ui").forms["Sign out"][2]["token"]
        page = self.alice.send(path, {**fields, "token": own, "jwt": self.evidence()})
        self.assertEqual(page.answer.status, 403)
        self.assertNotIn("issuer", page.text)
        told = set()
        for name in (
            "authn-jwt/none",
            "authn-other/x",
            "authn-jwt/%E2%80%AE",
            "authn-jwt/" + "x" * 900,
        ):
            page = self.olivia.get(f"/ui/authenticators/{name}")
            told.add((page.answer.status, page.words))
        self.assertEqual({status for status, _ in told}, {404}, told)
        self.assertEqual(len(told), 1)

    def test_admitted(self) -> None:
        """A token that is pasted is judged check by check, and a good one issues nothing (CON-42)."""
        text = self.explained(self.olivia, self.evidence())
        self.assertIn("It would be admitted, as host shop", text)
        self.assertIn("passed", text)
        self.assertNotIn("failed", text)

    def test_not_admitted(self) -> None:
        """Where a check fails, it is named with its reason; words of the token are text (CON-14, CON-42)."""
        text = self.explained(self.olivia, self.evidence(exp=NOW - 600))
        self.assertIn("It would be refused", text)
        self.assertIn("(token-expired)", text)
        text = self.explained(self.olivia, self.evidence(app="<b>shop</b>", project="<i>x</i>"))
        self.assertIn("<b>shop</b>", text)
        self.assertFalse({"b", "i"} & {tag for tag, _ in self.olivia.page.tags})
        self.assertIn("It would be refused", self.explained(self.olivia, ""))
        self.assertIn("It would be refused", self.explained(self.olivia, self.evidence(), login="<b>nobody</b>"))

    def test_token_not_kept(self) -> None:
        """The token stands in no answer, log or record (CON-42)."""
        for jwt in (self.evidence(), self.evidence(exp=NOW - 600), "eyNonsense.secret.part3", "s3cret" * 3000):
            with capturedLogs() as logs:
                self.explained(self.olivia, jwt)
            for piece in jwt.split("."):
                self.assertNotIn(piece, self.olivia.page.answer.body.decode())
                self.assertNotIn(piece, repr(logs))
                self.assertNotIn(piece, repr(self.journal.told()))
        self.assertEqual(self.olivia.page.answer.status, 413)

    def test_foreign(self) -> None:
        """A form without the token of this browser is refused, and nothing is explained (CON-11)."""
        path, _, fields = self.olivia.get(CI).forms["Show the checks"]
        page = self.olivia.send(path, {**fields, "jwt": self.evidence(), "token": ""})
        self.assertEqual(page.answer.status, 403)
        self.assertIn("This form is not taken", page.text)

    def test_records(self) -> None:
        """Status and explanation leave the records of their routes, refusals and faults too (CON-18)."""
        routes = Client(
            *map(FederatedAuthenticators, self.authenticators.values()), journal=self.journal, dialect=self.dialect
        )
        form = self.olivia.get(CI).forms["Show the checks"][2]
        for browser, role in ((self.admin, ADMIN), (self.olivia, user("olivia")), (self.alice, user("alice"))):
            token_of = browser.get("/ui").forms["Sign out"][2]["token"]
            for name in (f"{CLOUD}/prod", "authn-jwt/ci", f"{CLOUD}/none"):
                self.journal.told()
                browser.get(f"/ui/authenticators/{name}")
                by_page = self.journal.told()
                if browser is self.admin and by_page and by_page[-1][:2] == ("refusals", "list"):
                    by_page.pop()  # as GET /refusals leaves it
                kind, _, service_id = name.partition("/")
                routes.get(f"/{kind}/{service_id}/acme/status", role=role)
                by_route = self.journal.told()
                # The route has statuses of its own for all that is wrong.
                self.assertEqual([told[:3] for told in by_page], [told[:3] for told in by_route], (name, role))
                browser.send(f"/ui/authenticators/{name}", {**form, "token": token_of, "jwt": "a.b.c"})
                by_page = self.journal.told()
                self.assertEqual([told[1] for told in by_page], ["explain"])
                routes.post(f"/{kind}/{service_id}/acme/explain", b"jwt=a.b.c", role=role)
                self.assertEqual(by_page, self.journal.told(), (name, role))
