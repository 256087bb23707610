"""Sessions of the console: how they begin, whom they admit, and how they end."""

from __future__ import annotations

import base64

import attrs

from svc.authn.throttling import ADDRESS_FAILURES
from svc.crypto.console_cookies import ConsoleCookies, ConsoleSession
from svc.crypto.vault import Vault, data_key_id
from svc.model.data_keys import StoredDataKey
from svc.model.names import RoleName
from svc.services.console_sessions import LONGEST
from tests.web.console.world import ConsoleCase
from tests.web.declared import declared_pages
from tests.web.support import PEER, token
from tests.web.world import ADMIN, ADMIN_KEY, user

POLICY = """
- !user alice
- !user { id: away, restricted_to: [ 203.0.113.0/24 ] }
- !host ci/runner
- !variable db
- !permit { role: !user alice, privileges: [ read, execute ], resources: !variable db }
"""
SESSION = "__Secure-svc-console"
PASSWORD = "SUperSecret!!1"


class SignInTests(ConsoleCase):
    """How a session begins."""

    def setUp(self) -> None:
        """Load users."""
        super().setUp()
        self.loaded = self.load(POLICY)
        self.alice_key = self.api_key(self.loaded, "acme:user:alice")
        self.journal.told()

    def test_where_it_was_wanted(self) -> None:
        """Who isn't signed in is asked to, and goes on to the page that was wanted (CON-2)."""
        first = self.browser.ask("GET", "/ui/resources/acme:variable:db")
        self.assertEqual((first.status, first.body), (303, b""))
        self.assertEqual(first.headers["location"], "/ui/sign-in?to=/ui/resources/acme%3Avariable%3Adb")
        page = self.browser.sign_in("alice", self.alice_key, path="/ui/resources/acme:variable:db")
        self.assertEqual((page.answer.status, page.path), (200, "/ui/resources/acme:variable:db"))
        self.assertIn("Signed in as alice", page.text)

    def test_evidence(self) -> None:
        """An API key and a password sign in, of users and hosts, as at the routes of logins (CON-3)."""
        headers = [("Authorization", "Basic " + base64.b64encode(f"alice:{self.alice_key}".encode()).decode())]
        self.assertEqual(self.client.put("/authn/acme/password", PASSWORD.encode(), headers=headers).status, 204)
        host_key = self.api_key(self.loaded, "acme:host:ci/runner")
        for login, evidence in (("alice", self.alice_key), ("alice", PASSWORD), ("host/ci/runner", host_key)):
            self.signed_in(login, evidence)

    def test_blanks(self) -> None:
        """A name or a password that begins or ends with blanks counts as it is written (CON-3, NAME-7)."""
        loaded = self.load('- !user " pat "\n', method="PATCH")
        key, password = self.api_key(loaded, "acme:user: pat "), f" {PASSWORD} "
        headers = [("Authorization", "Basic " + base64.b64encode(f" pat :{key}".encode()).decode())]
        self.assertEqual(self.client.put("/authn/acme/password", password.encode(), headers=headers).status, 204)
        for evidence in (key, password):
            self.signed_in(" pat ", evidence)
        page = self.new_browser().sign_in(" pat ", PASSWORD)
        self.assertEqual(page.answer.status, 401)
        self.assertEqual(page.forms["Sign in"][2]["login"], " pat ")
        self.assertEqual(self.new_browser().sign_in("alice ", self.alice_key).answer.status, 401)

    def test_without_api_keys(self) -> None:
        """Who has no API key by policy doesn't sign in by it, and the session of who had one ends (CON-3, TOK-52)."""
        browser = self.signed_in("alice", self.alice_key)
        self.load("- !user { id: alice, annotations: { authn/api-key: false } }", method="PATCH")
        self.assertEqual(self.new_browser().sign_in("alice", self.alice_key).answer.status, 401)
        self.assertEqual(browser.ask("GET", "/ui").status, 303)

    def test_last_login(self) -> None:
        """Signing in is a login, and a sign-in that is refused is none (END-20)."""
        self.signed_in("alice", self.alice_key)
        self.browser.sign_in("host/ci/runner", "wrong")
        self.result_of(self.notes.write_notes())
        self.assertEqual(list(self.memory.last_logins), ["acme:user:alice"])

    def test_recorded(self) -> None:
        """A sign-in leaves the records of a login and of the exchange of its API key, a failed one that of a login
        (CON-3).
        """
        self.browser.sign_in("alice", self.alice_key)
        role = {"role": "acme:user:alice"}
        told = self.journal.told()
        self.assertEqual(told[:2], [("authn", "login", role, None), ("authn", "authenticate", role, None)])
        self.assertEqual(told[2:], [("endings", "expiring", {}, None)], "the first page")
        self.new_browser().sign_in("alice", "wrong")
        self.new_browser().sign_in("nobody", "wrong")
        self.assertEqual(
            self.journal.told(),
            [
                ("authn", "login", role, "credentials-wrong"),
                ("authn", "login", {"role": "acme:user:nobody"}, "role-unknown"),
            ],
        )

    def test_request(self) -> None:
        """A page that refuses says the id of its request, as text, by which an operator finds it (CON-17)."""
        page = self.browser.sign_in("alice", "wrong")
        self.assertIn(f"Request {page.answer.headers['x-request-id']}, for an operator", page.text)
        self.assertNotIn("for an operator", self.new_browser().get("/ui/sign-in?out").text)
        browser = self.signed_in("alice", self.alice_key)
        self.assertNotIn("for an operator", browser.page.text)
        browser.headers = {"X-Request-Id": "<b>id&amp;"}
        for path in ("/ui/refusals", "/ui/resources/acme:variable:absent", "/ui/resources?offset=x"):
            page = browser.get(path)
            self.assertGreaterEqual(page.answer.status, 400)
            self.assertIn(f"Request {page.answer.headers['x-request-id']}, for an operator", page.text)
            self.assertNotIn("b", [tag for tag, _ in page.tags])

    def test_alike(self) -> None:
        """Failures look alike: a wrong key, an unknown login, an unknown account, an address from which a role may not come
        (CON-3).
        """
        away_key = self.api_key(self.loaded, "acme:user:away")
        seen = set()
        for account, login, evidence in (
            ("acme", "alice", "wrong"),
            ("acme", "nobody", "wrong"),
            ("none", "alice", "wrong"),
            ("a b", "alice", "wrong"),
            ("acme", "away", away_key),
            ("acme", "alice", "SUperSecret!!2"),
        ):
            browser = self.new_browser()
            page = browser.sign_in(login, evidence, account)
            self.assertNotIn(SESSION, browser.cookies)
            seen.add((page.answer.status, page.words, *(name for name in page.forms)))
        self.assertEqual(len(seen), 1, seen)
        self.assertEqual(page.answer.status, 401)
        self.assertIn("don't fit together", page.text)

    def test_throttled(self) -> None:
        """Failures are counted with those of the routes: an address with too many is refused, here as there (CON-3)."""
        for number in range(ADDRESS_FAILURES):
            self.client.post(f"/authn/acme/user-{number}/authenticate", b"wrong", peer="198.51.100.7")
        browser = self.new_browser(peer="198.51.100.7")
        page = browser.sign_in("alice", self.alice_key)
        self.assertEqual(page.answer.status, 429)
        self.assertIn("retry-after", page.answer.headers)
        self.assertIn("Wait a minute", page.text)
        self.signed_in("alice", self.alice_key)

    def test_kept_fields(self) -> None:
        """After a failure account and login stand there still, and the page that was wanted; the key doesn't (CON-3)."""
        page = self.browser.sign_in("alice", "wrong<key>", path="/ui/policies")
        _, _, fields = page.forms["Sign in"]
        self.assertEqual((fields["account"], fields["login"], fields["to"]), ("acme", "alice", "/ui/policies"))
        self.assertEqual(fields["evidence"], "")
        self.assertNotIn("wrong", page.answer.body.decode())
        self.assertEqual(self.browser.press("Sign in", evidence=self.alice_key).path, "/ui/policies")

    def test_cookie(self) -> None:
        """The session is in a cookie for the console alone, which no script reads, no other site sends, and nobody can
        read (CON-4).
        """
        self.browser.sign_in("alice", self.alice_key)
        cookie = self.browser.set_cookies[-1]
        self.assertTrue(cookie.startswith(f"{SESSION}="), cookie)
        self.assertTrue(cookie.endswith("; Path=/ui; Secure; HttpOnly; SameSite=Strict"), cookie)
        sealed = base64.urlsafe_b64decode(self.browser.cookies[SESSION] + "==")
        self.assertNotIn(b"alice", sealed)

    def test_loopback(self) -> None:
        """On this machine, without TLS, the names of cookies have no prefix, which needs TLS (CON-4)."""
        for host in ("localhost:8080", "127.0.0.1:8080", "[::1]:8080", "127.0.0.1"):
            browser = self.signed_in("alice", self.alice_key, host=host)
            self.assertEqual(set(browser.cookies), {"svc-console", "svc-console-form"}, host)
        for host in ("localhost.example", "127.0.0.1.example", "svc.example:8080"):
            self.assertIn(SESSION, self.signed_in("alice", self.alice_key, host=host).cookies, host)
        planted = self.new_browser()
        planted.cookies = {"svc-console": browser.cookies["svc-console"]}
        self.assertEqual(planted.get("/ui").path, "/ui/sign-in")

    def test_a_new_session_each_time(self) -> None:
        """A sign-in makes a new session: what the browser had before is worth nothing afterwards (CON-5)."""
        thief = self.signed_in("admin", ADMIN_KEY)
        for planted in ("", "x", thief.cookies[SESSION]):
            browser = self.new_browser()
            browser.cookies[SESSION] = planted
            browser.get("/ui/sign-in")
            browser.press("Sign in", account="acme", login="alice", evidence=self.alice_key)
            opened = self.cookies.open_session(browser.cookies[SESSION])
            before = self.cookies.open_session(planted)
            assert opened is not None
            self.assertEqual(opened.role, user("alice"))
            self.assertNotEqual(opened.id, before and before.id)
        first, second = (self.signed_in("alice", self.alice_key) for _ in range(2))
        tokens = [browser.page.forms["Sign out"][2]["token"] for browser in (first, second)]
        self.assertNotEqual(*tokens)

    def test_two_cookies(self) -> None:
        """Of two session cookies one was planted: neither counts (CON-5)."""
        mine, other = self.signed_in("alice", self.alice_key), self.signed_in("admin", ADMIN_KEY)
        pair = "; ".join(f"{SESSION}={browser.cookies[SESSION]}" for browser in (mine, other))
        mine.headers["Cookie"] = pair
        self.assertEqual(mine.ask("GET", "/ui").status, 303)


class SessionTests(ConsoleCase):
    """Whom a session admits, and how it ends."""

    def setUp(self) -> None:
        """Sign Alice in."""
        super().setUp()
        self.loaded = self.load(POLICY)
        self.alice_key = self.api_key(self.loaded, "acme:user:alice")
        self.alice = self.signed_in("alice", self.alice_key)
        self.journal.told()

    def admitted(self) -> bool:
        """Whether the session goes on."""
        answer = self.alice.ask("GET", "/ui/policies")
        self.assertIn(answer.status, {200, 303})
        return answer.status == 200

    def test_pages_alone(self) -> None:
        """A session admits to no route outside of the console, and no access token to a page (CON-6)."""
        cookie = [("Cookie", f"{SESSION}={self.alice.cookies[SESSION]}; svc-console={self.alice.cookies[SESSION]}")]
        for path in ("/whoami", "/secrets/acme/variable/db", "/resources/acme"):
            self.assertEqual(self.client.get(path, headers=cookie).status, 401, path)
        header = [("Authorization", token(user("alice")))]
        pages = 0
        for _, route in declared_pages():
            if route.method == "GET" and route.pattern.text != "/ui/sign-in":
                path = route.pattern.text.replace("<tail:name>", "acme:policy:root")
                answer = self.web.get(path, headers=header)
                self.assertEqual(answer.status, 303, path)
                self.assertTrue(answer.headers["location"].startswith("/ui/sign-in"))
                pages += 1
        self.assertGreater(pages, 4)
        self.assertEqual(self.journal.told(), [])

    def test_caller(self) -> None:
        """The records of a page name the role that signed in, and its address (CON-6)."""
        self.alice.get("/ui/resources/acme:variable:db")
        [(origin, event, _), *_] = self.journal.taken
        self.assertEqual((origin.user, origin.client_ip, event.operation), ("acme:user:alice", PEER, "show"))

    def test_idle(self) -> None:
        """It ends when it wasn't used for the time of the setting, which begins again with each page (CON-7)."""
        for _ in range(5):
            self.clock.advance(self.console_idle)
            self.assertTrue(self.admitted())
        self.clock.advance(self.console_idle + 1)
        self.assertFalse(self.admitted())

    def test_longest(self) -> None:
        """It ends after twelve hours, however much it is used (CON-7)."""
        for _ in range(LONGEST // self.console_idle):
            self.clock.advance(self.console_idle)
            self.assertTrue(self.admitted())
        self.clock.advance(1)
        self.assertFalse(self.admitted())

    def test_a_slow_clock(self) -> None:
        """A server whose clock is behind doesn't make it shorter (CON-7)."""
        ahead = self.clock.seconds() + 60
        session = self.cookies.open_session(self.alice.cookies[SESSION])
        assert session is not None
        later = attrs.evolve(session, began_at=int(ahead), used_at=int(ahead))
        self.alice.cookies[SESSION] = self.cookies.seal_session(later)
        self.assertTrue(self.admitted())

    def test_signed_out(self) -> None:
        """To sign out takes the cookie out of the browser, which is asked to sign in then (CON-8)."""
        self.alice.get("/ui")
        page = self.alice.press("Sign out")
        self.assertEqual(page.path, "/ui/sign-in?out")
        self.assertIn("You are signed out in this browser.", page.text)
        self.assertNotIn(SESSION, self.alice.cookies)
        self.assertFalse(self.admitted())

    def test_stolen(self) -> None:
        """A copy of the cookie outlives signing out in one browser, and ends with signing out everywhere (CON-8)."""
        thief = self.new_browser()
        thief.cookies = dict(self.alice.cookies)
        self.alice.get("/ui")
        self.alice.press("Sign out")
        self.assertEqual(thief.ask("GET", "/ui").status, 200)
        alice = self.signed_in("alice", self.alice_key)
        self.journal.told()
        page = alice.press("Sign out everywhere")
        self.assertEqual(page.path, "/ui/sign-in?out")
        self.assertEqual(self.journal.told(), [("token", "revoke", {"role": "acme:user:alice"}, None)])
        self.assertEqual(thief.ask("GET", "/ui").status, 303)

    def test_revoked(self) -> None:
        """It ends when the role's tokens are revoked, or those of its account (CON-9)."""
        self.assertTrue(self.admitted())
        self.client.delete("/authn/acme/tokens?role=user:alice", role=ADMIN)
        self.assertFalse(self.admitted())
        self.alice = self.signed_in("alice", self.alice_key)
        self.assertTrue(self.admitted())
        self.client.delete("/accounts/acme/tokens", role=ADMIN)
        self.assertFalse(self.admitted())

    def test_credential(self) -> None:
        """It ends when the role's API key or password is replaced (CON-9)."""
        headers = [("Authorization", "Basic " + base64.b64encode(f"alice:{self.alice_key}".encode()).decode())]
        self.client.put("/authn/acme/password", PASSWORD.encode(), headers=headers)
        self.assertFalse(self.admitted())
        self.alice = self.signed_in("alice", PASSWORD)
        self.assertTrue(self.admitted())
        self.client.put("/authn/acme/api_key?role=user:alice", role=ADMIN)
        self.assertFalse(self.admitted())

    def test_expired(self) -> None:
        """It ends when the role's API key has expired (CON-9)."""
        self.memory.key_expirations["acme:user:alice"] = self.clock.seconds() + 60
        self.assertTrue(self.admitted())
        self.clock.advance(61)
        self.assertFalse(self.admitted())

    def test_deleted(self) -> None:
        """It ends with its role, and isn't one of a role that is made again (CON-9)."""
        self.load("- !delete { record: !user alice }\n", method="PATCH")
        self.assertFalse(self.admitted())
        self.load("- !user alice\n", method="PATCH")
        self.assertFalse(self.admitted())

    def test_address(self) -> None:
        """It doesn't go on from an address from which its role may not log in (CON-9)."""
        self.assertTrue(self.admitted())
        self.memory.restrictions["acme:user:alice", "203.0.113.0/24"] = None
        self.assertFalse(self.admitted())

    def test_follower(self) -> None:
        """On a follower it goes on, one begins, and one is ended in a browser; what changes something is refused there
        (CON-10).
        """
        self.memory.standby = True
        self.assertTrue(self.admitted())
        self.signed_in("alice", self.alice_key)
        self.alice.get("/ui")
        page = self.alice.press("Sign out everywhere")
        self.assertEqual(page.answer.status, 405)
        self.assertIn("at the primary", page.text)
        self.alice.get("/ui")
        self.assertEqual(self.alice.press("Sign out").answer.status, 200)

    def test_not_stale(self) -> None:
        """Where the database can't be asked, nobody is admitted; the page says so (CON-10)."""
        self.memory.down = True
        answer = self.alice.ask("GET", "/ui/policies")
        self.assertEqual(answer.status, 503)
        self.assertIn("retry-after", answer.headers)
        self.assertIn(b"can&#39;t answer", answer.body)


class CookiesTests(ConsoleCase):
    """What is sealed in a browser."""

    def setUp(self) -> None:
        """Make a session."""
        super().setUp()
        self.session = ConsoleSession(RoleName("acme", "user", "zoë/" + "x" * 1000), 2**52, 2**53 - 1, 7, 10, 20)

    def test_opened(self) -> None:
        """What was sealed is opened by all who have the data key, and fits into a cookie (CON-4)."""
        text = self.cookies.seal_session(self.session)
        self.assertLess(len(text), 2048)
        self.assertEqual(ConsoleCookies(Vault(b"k" * 32)).open_session(text), self.session)
        self.assertNotEqual(self.cookies.seal_session(self.session), text)

    def test_forged(self) -> None:
        """Anything else is none: another key's, one that was changed in any place, cut, or no base64 (CON-4)."""
        text = self.cookies.seal_session(self.session)
        self.assertIsNone(ConsoleCookies(Vault(b"j" * 32)).open_session(text))
        for place in range(0, len(text), 7):
            other = "A" if text[place] != "A" else "B"
            self.assertIsNone(self.cookies.open_session(text[:place] + other + text[place + 1 :]), place)
            self.assertIsNone(self.cookies.open_session(text[:place]))
        for text in ("", "x", "=", "é", "a" * 5000, "\x00"):
            self.assertIsNone(self.cookies.open_session(text))

    def test_rotation(self) -> None:
        """While the data key is rotated, every server opens what any seals; with the old key sessions end (CON-4)."""
        old, new = b"o" * 32, b"n" * 32
        first, second = data_key_id(old), data_key_id(new)
        late, early = Vault(old), Vault(new, old)
        early.use_stored_keys([StoredDataKey(first, closed=True), StoredDataKey(second)])
        for one, other in ((late, early), (early, late)):
            self.assertEqual(
                ConsoleCookies(other).open_session(ConsoleCookies(one).seal_session(self.session)), self.session
            )
        sealed = ConsoleCookies(early).seal_session(self.session)
        early.use_stored_keys([StoredDataKey(first, closed=True, retired=True), StoredDataKey(second)])
        self.assertIsNone(ConsoleCookies(early).open_session(sealed))
        self.assertEqual(ConsoleCookies(early).open_session(ConsoleCookies(early).seal_session(self.session)), self.session)

    def test_forms(self) -> None:
        """A form's token is of one secret (CON-11)."""
        token = self.cookies.form_token("0" * 32)
        self.assertTrue(self.cookies.is_form_token("0" * 32, token))
        for secret, other in (("1" * 32, token), ("0" * 32, token[:-1]), ("0" * 32, ""), ("0" * 32, "é" * 64)):
            self.assertFalse(self.cookies.is_form_token(secret, other))
