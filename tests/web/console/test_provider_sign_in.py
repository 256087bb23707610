"""Signing in to the console at a provider of OpenID Connect: there, back, and what others may try."""

from __future__ import annotations

import html
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from svc.authn.throttling import ADDRESS_FAILURES, ROLE_FAILURES
from svc.crypto.console_cookies import PendingSignIn
from svc.model.oidc import ClientRefusal, OidcMetadata
from svc.model.text import escape_unprintable, quote_text
from svc.web.console.provider_sign_in import SIGN_IN_SECONDS
from tests.web.console.world import ConsoleCase, MemoryBrowser, Page
from tests.web.oidc_world import CLIENT, ISSUER, POLICY
from tests.web.support import Answer
from tests.web.world import ADMIN_KEY

CALLBACK = "/ui/sign-in/callback"
COOKIE = "__Secure-svc-console-provider"
SESSION = "__Secure-svc-console"


class ProviderSignInTests(ConsoleCase):
    """A person, a provider, and hostile pages."""

    def setUp(self) -> None:
        """Declare the provider, and who may sign in there."""
        super().setUp()
        more = "- !variable client-secret\n    - !variable claim-mapping\n    - !variable name"
        permit = "- !permit { role: !user alice, privileges: [ authenticate ], resource: !webservice svc/authn-oidc/corp }\n"
        users = "- !user alice\n- !user bob\n"
        self.load(users + POLICY.format(prefix="svc", service="corp", more=more) + permit)
        for name, value in {
            "provider-uri": ISSUER,
            "client-id": CLIENT,
            "client-secret": "the-secret",
            "claim-mapping": "name",
            "name": "Corp <b>",
        }.items():
            self.set_value(f"svc/authn-oidc/corp/{name}", value.encode())
        self.admin_browser = self.signed_in("admin", ADMIN_KEY)
        self.journal.told()

    def begin(self, browser: MemoryBrowser | None = None, path: str = "/ui/policies") -> dict[str, str]:
        """Press the button of the provider; return what its address says, when the provider has a code for Alice."""
        browser = browser or self.browser
        browser.get(path)
        browser.press("Show providers", account="acme")
        page = browser.press("Go to Corp <b>")
        return self.led(page)

    def led(self, page: Page) -> dict[str, str]:
        """The query of the address that a page leads to, with a code there."""
        (refresh,) = [given["content"] for tag, given in page.tags if tag == "meta" and given.get("http-equiv") == "refresh"]
        (link,) = [given["href"] for tag, given in page.tags if tag == "a" and (given.get("href") or "").startswith("http")]
        self.assertEqual(refresh, f"0;url={link}")
        address, _, query = (link or "").partition("?")
        self.assertEqual(address, f"{ISSUER}/authorize")
        given = dict(parse_qsl(query))
        given["code"] = f"code-{given['nonce'][:8]}"
        self.oidc_provider.codes[given["code"]] = self.oidc_provider.claims(given["nonce"])
        return given

    def come_back(self, begun: dict[str, str], browser: MemoryBrowser | None = None, **changes: str | None) -> Answer:
        """Come back from the provider: no strict cookie comes along."""
        browser = browser or self.browser
        given = {"code": begun["code"], "state": begun["state"], **changes}
        query = urlencode({name: value for name, value in given.items() if value is not None})
        kept, browser.cookies = browser.cookies, {k: v for k, v in browser.cookies.items() if k.endswith("provider")}
        browser.headers = {"Sec-Fetch-Site": "cross-site"}
        answer = browser.ask("GET", f"{CALLBACK}?{query}")
        browser.headers, browser.cookies = {}, {**kept, **browser.cookies}
        return answer

    def test_signed_in(self) -> None:
        """A press leads to the provider, and the way back begins a session, on the page that was wanted (CON-60, CON-62)."""
        begun = self.begin()
        self.assertEqual(begun["redirect_uri"], f"https://svc.example{CALLBACK}")
        self.assertEqual((begun["client_id"], begun["code_challenge_method"]), (CLIENT, "S256"))
        answer = self.come_back(begun)
        self.assertEqual(answer.status, 200)
        self.assertIn(b'content="0;url=/ui/policies"', answer.body)
        cookie = answer.headers["set-cookie"]
        self.assertTrue(cookie.startswith(f"{SESSION}=") and cookie.endswith("SameSite=Strict"), cookie)
        page = self.browser.get("/ui/policies")
        self.assertEqual((page.answer.status, page.path), (200, "/ui/policies"))
        self.assertIn("Signed in as alice", page.text)
        client, login = self.oidc_provider.exchanged[-1]
        self.assertEqual((client.redirect_uri, login.nonce), (begun["redirect_uri"], begun["nonce"]))
        told = [(operation, subject, reason) for _, operation, subject, reason in self.journal.told()]
        self.assertIn(("authenticate", {"role": "acme:user:alice"}, None), told)

    def test_loopback(self) -> None:
        """On this machine, without TLS, the way back is by http, and the cookie has no prefix (CON-60, CON-61)."""
        browser = self.new_browser(host="127.0.0.1:8080")
        begun = self.begin(browser)
        self.assertEqual(begun["redirect_uri"], f"http://127.0.0.1:8080{CALLBACK}")
        self.assertIn("svc-console-provider", browser.cookies)
        self.assertEqual(self.come_back(begun, browser).status, 200)

    def test_behind_a_proxy(self) -> None:
        """The way back and the cookies are those of public_url, whatever Host a proxy sends (CON-4, CON-60, CFG-49)."""
        self.public_url = "https://svc.example"
        self.setUp()
        for host in ("127.0.0.1:8080", "svc_backend"):
            browser = self.new_browser(host=host)
            begun = self.begin(browser)
            self.assertEqual(begun["redirect_uri"], f"https://svc.example{CALLBACK}")
            self.assertEqual(self.come_back(begun, browser).status, 200)
            self.assertEqual(sorted(browser.cookies), [SESSION, "__Secure-svc-console-form", COOKIE])

    def test_cookie(self) -> None:
        """What was begun is sealed, and is no session: it admits to no page, and a session doesn't stand for it (CON-61)."""
        begun = self.begin()
        text = self.browser.cookies[COOKIE]
        for secret in (begun["state"], begun["nonce"], "corp"):
            self.assertNotIn(secret, text)
        self.assertIsNone(self.cookies.open_session(text))
        opened = self.cookies.open_sign_in(text)
        assert isinstance(opened, PendingSignIn)
        self.assertEqual((opened.account, opened.service_id, opened.return_to), ("acme", "corp", "/ui/policies"))
        self.assertNotIn(begun["state"], repr(opened))
        stranger = self.new_browser()
        stranger.cookies[SESSION] = text
        self.assertEqual(stranger.get("/ui/policies").path.partition("?")[0], "/ui/sign-in")
        self.come_back(begun)
        self.assertIsNone(self.cookies.open_sign_in(self.browser.cookies[SESSION]))
        for broken in ("", "x", text[:-2], text[:-1] + "A" + text[-1:], "\u00e4"):
            self.assertIsNone(self.cookies.open_sign_in(broken))

    def test_login_csrf(self) -> None:
        """A link to the way back signs nobody in who hasn't begun with its state, and leaves no record (CON-62)."""
        attacker = self.new_browser()
        begun = self.begin(attacker)
        self.journal.told()
        for browser in (self.new_browser(), self.browser):
            if browser is self.browser:
                self.begin()
            answer = self.come_back(begun, browser)
            self.assertEqual((answer.status, answer.headers.get("location")), (303, "/ui/sign-in"))
            self.assertNotIn(SESSION, browser.cookies)
        self.assertEqual(self.journal.told(), [])
        for changes in ({"state": None}, {"state": ""}, {"state": begun["state"] + "x"}):
            self.assertEqual(self.come_back(begun, attacker, **changes).status, 303)
        self.assertEqual(self.come_back(begun, attacker).status, 200)

    def test_begin_takes_a_form(self) -> None:
        """To begin takes a form of this browser's: a page of another site can't (CON-11)."""
        self.browser.get("/ui/sign-in?account=acme")
        path, _, fields = self.browser.page.forms["Go to Corp <b>"]
        self.browser.headers = {"Sec-Fetch-Site": "cross-site"}
        self.assertEqual(self.browser.send(path, fields).answer.status, 403)
        self.browser.headers = {}
        self.assertEqual(self.browser.send(path, {**fields, "token": "x"}).answer.status, 403)
        self.assertEqual(self.browser.send(path, {**fields, "service_id": "other"}).answer.status, 404)
        self.assertEqual(self.browser.send(path, {**fields, "account": "other"}).answer.status, 404)
        self.assertNotIn(COOKIE, self.browser.cookies)
        elsewhere = self.browser.send(path, {**fields, "to": "https://evil.example/"})
        self.assertIn(b'content="0;url=/ui"', self.come_back(self.led(elsewhere)).body)

    def assert_not_signed_in(self, answer: Answer, status: int) -> None:
        """It is the page to sign in, and there is no session."""
        self.assertEqual(answer.status, status)
        self.assertIn(b"You have not been signed in.", answer.body)
        self.assertNotIn(SESSION, self.browser.cookies)

    def test_refused(self) -> None:
        """Who isn't one of ours gets the page to sign in, with one sentence, and a record with the reason (CON-63)."""
        cases: list[tuple[dict[str, object], str]] = [
            ({"name": "bob"}, "privilege-missing"),
            ({"name": "mallory"}, "role-unknown"),
            ({"name": "admin"}, "oidc-role-refused"),
            ({"nonce": "another"}, "nonce-wrong"),
            ({"aud": "other"}, "audience-wrong"),
        ]
        for changes, reason in cases:
            begun = self.begin()
            self.oidc_provider.codes[begun["code"]] = {**self.oidc_provider.claims(begun["nonce"]), **changes}
            self.journal.told()
            answer = self.come_back(begun)
            self.assert_not_signed_in(answer, 401)
            self.assertIn(b"Nobody here goes by the name", answer.body)
            self.assertEqual([event.service for _, event, _ in self.journal.taken], ["authn-oidc/corp"])
            self.assertEqual([why for *_, why in self.journal.told()], [reason])
            page = self.admin_browser.get(f"/ui/refusals?request={answer.headers['x-request-id']}")
            self.assertIn("at authn-oidc/corp: ", page.text)
            self.assertIn(reason, page.text)
            self.journal.told()

    def test_answers_of_the_provider(self) -> None:
        """No code, and an answer that another provider gave, prove nobody (CON-62)."""
        changes: list[tuple[dict[str, str | None], str]] = [
            ({"code": None}, "code-missing"),
            ({"code": "", "error": ""}, "code-missing"),
            ({"iss": "https://evil.example"}, "issuer-wrong"),
            ({"iss": f"{ISSUER}/"}, "issuer-wrong"),
        ]
        for changed, reason in changes:
            begun = self.begin()
            self.journal.told()
            answer = self.come_back(begun, None, **changed)
            self.assert_not_signed_in(answer, 401)
            self.assertEqual([why for *_, why in self.journal.told()], [reason])
            self.assertEqual(b"calls itself by another name" in answer.body, reason == "issuer-wrong")
            self.assertNotIn(b"evil", answer.body)
        self.assertEqual(self.come_back(self.begin(), iss=ISSUER).status, 200)
        self.browser = self.new_browser()
        self.oidc_provider.metadata_of[ISSUER] = OidcMetadata(f"{ISSUER}/authorize", f"{ISSUER}/token", names_issuer=True)
        self.clock.advance(2)
        self.assert_not_signed_in(self.come_back(self.begin()), 401)
        self.assertEqual(self.come_back(self.begin(), iss=ISSUER).status, 200)

    def test_errors_of_the_provider(self) -> None:
        """An error in the place of a code stands on the page and in the refusal, quoted and shortened; one that is the
        provider's own fault is 503 (CON-63).
        """
        cases: list[tuple[str, int, str, str]] = [
            ("access_denied", 401, "oidc-sign-in-refused", "The sign-in was cancelled, or denied, at the provider"),
            ("invalid_scope", 401, "oidc-sign-in-refused", "The sign-in was refused at the provider"),
            ("<b>\u202e" + "x" * 500, 401, "oidc-sign-in-refused", "which answers '<b>\\u202e" + "x" * 96 + "…'."),
            ("server_error", 503, "oidc-unavailable", "The provider, or this server's settings for it, are at fault"),
            ("temporarily_unavailable", 503, "oidc-unavailable", "The provider answers 'temporarily_unavailable'."),
        ]
        for error, status, reason, sentence in cases:
            begun = self.begin()
            self.journal.told()
            answer = self.come_back(begun, error=error, error_description="authentication_expired")
            self.assert_not_signed_in(answer, status)
            text = answer.body.decode()
            self.assertIn(sentence, html.unescape(text))
            self.assertIn(html.escape(quote_text(error), quote=False).replace("'", "&#39;"), text)
            self.assertNotIn("<b>", text)
            self.assertEqual("retry-after" in answer.headers, status == 503)
            self.assertEqual([why for *_, why in self.journal.told()], [reason])
            page = self.admin_browser.get(f"/ui/refusals?request={answer.headers['x-request-id']}")
            detail = f"the error {quote_text(error)}: 'authentication_expired'"
            self.assertIn(escape_unprintable(detail), page.text)
            self.journal.told()
        answer = self.come_back(self.begin(), code=None, error="access_denied", state="x")
        self.assertEqual((answer.status, answer.headers.get("location")), (303, "/ui/sign-in"))

    def test_throttled(self) -> None:
        """A callback without a code, or with an error in its place, counts as a refused login; a fault of the provider's
        doesn't (CON-63).
        """
        changes: list[dict[str, str | None]] = [
            {"code": None},
            {"code": None, "error": "access_denied"},
            {"iss": "https://evil.example"},
        ]
        for number in range(ADDRESS_FAILURES):
            if number % ROLE_FAILURES == 0:
                begun = self.begin()
                self.assert_not_signed_in(self.come_back(begun, error="server_error"), 503)
            self.assert_not_signed_in(self.come_back(begun, None, **changes[number % 3]), 401)
        self.assertEqual(self.come_back(self.begin()).status, 429)

    def test_late(self) -> None:
        """A sign-in that took more than five minutes is over; a code is good once (CON-62)."""
        begun = self.begin()
        self.clock.advance(SIGN_IN_SECONDS + 1)
        self.assert_not_signed_in(self.come_back(begun), 401)
        self.clock.advance(-1)
        begun = self.begin()
        self.assertEqual(self.come_back(begun).status, 200)
        self.browser.cookies.pop(SESSION)
        self.assert_not_signed_in(self.come_back(begun), 401)

    def test_provider_away(self) -> None:
        """While the provider is away, or refuses this service as its client, nobody is judged: 503, with a time to come
        again, and it is said who is at fault (CON-63).
        """
        self.oidc_provider.client_refused = ClientRefusal(0.0, "the answer is 'invalid_client'")
        for reason in ("oidc-client-refused", "oidc-unavailable"):
            begun = self.begin()
            self.journal.told()
            if reason == "oidc-unavailable":
                self.oidc_provider.down.add(ISSUER)
            answer = self.come_back(begun)
            self.assert_not_signed_in(answer, 503)
            self.assertIn("retry-after", answer.headers)
            self.assertIn(
                "The provider, or this server's settings for it, are at fault", html.unescape(answer.body.decode())
            )
            self.assertEqual([why for *_, why in self.journal.told()], [reason])

    def test_revoked(self) -> None:
        """Such a session ends as others do: when the user's tokens are revoked, or the user is deleted (CON-62, CON-9)."""
        self.assertEqual(self.come_back(self.begin()).status, 200)
        self.assertEqual(self.browser.get("/ui/policies").path, "/ui/policies")
        self.load("- !delete { record: !user alice }", method="PATCH")
        self.assertEqual(self.browser.get("/ui/policies").path.partition("?")[0], "/ui/sign-in")

    def test_no_providers(self) -> None:
        """An account without providers, and one that there isn't, look alike (CON-60)."""
        self.oidc_provider.down.add(ISSUER)
        pages: set[Any] = set()
        for account in ("acme", "other"):
            page = self.browser.get(f"/ui/sign-in?account={account}")
            pages.add(page.text.replace(account, ""))
            self.assertIn("has no provider", page.text)
        self.assertEqual(len(pages), 1)
        self.assertEqual(urlsplit(self.browser.page.path).path, "/ui/sign-in")
