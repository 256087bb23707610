"""The page that says how a login by an API key or a password would be judged."""

from __future__ import annotations

from tests.web.console.test_pages import PagesCase
from tests.web.world import user

PATH = "/ui/explain-login"


class LoginExplainedTests(PagesCase):
    """Why one can't log in."""

    def asked(self, browser: str = "admin", **fields: str) -> str:
        """What the page says of a login."""
        shown = getattr(self, browser)
        shown.get(PATH)
        return str(shown.press("Show the checks", **fields).text)

    def test_checks(self) -> None:
        """It has each check with its outcome; the key is neither shown again nor in the log's or the audit's records
        (CON-50).
        """
        text = self.asked(login="bob", evidence=self.keys_of["bob"])
        self.assertIn("It would be admitted, as user bob", text)
        text = self.asked(login="bob", evidence="1x-wrong")
        self.assertIn("It would be refused", text)
        self.assertIn("credentials-wrong", text)
        self.assertNotIn("1x-wrong", self.admin.page.answer.body.decode())
        self.assertNotIn("1x-wrong", str(self.journal.told()))
        text = self.asked(login="bob", address="192.0.2.7")
        self.assertIn("wasn\u2019t tried, is in the way", text)
        self.assertIn("not tried", text)
        self.assertEqual(self.admin.page.forms["Show the checks"][2]["address"], "192.0.2.7")
        self.assertIn(f"{PATH}?login=bob", self.admin.get("/ui/roles/acme:user:bob").links)
        self.assertEqual(self.admin.get(f"{PATH}?login=bob").forms["Show the checks"][2]["login"], "bob")
        self.assertIn(PATH, self.admin.get("/ui/authenticators").links)

    def test_blanks(self) -> None:
        """A login and a key count as they are written, blanks at their ends included (CON-50)."""
        key = self.load('- !user " pat "\n').json()["created_roles"]["acme:user: pat "]["api_key"]
        self.assertIn("It would be admitted", self.asked(login=" pat ", evidence=key))
        self.assertIn("It would be refused", self.asked(login=" pat ", evidence=f"{key} "))
        self.assertIn("It would be refused", self.asked(login="bob ", evidence=self.keys_of["bob"]))

    def test_counted(self) -> None:
        """A key that is tried counts as a login, is logged and recorded as one, and so guesses are refused in the end
        (CON-50, REF-14).
        """
        self.asked(login="bob", evidence="guess")
        [event] = self.journal.told()
        self.assertEqual(event[:2], ("authn", "explain"))
        self.assertEqual(
            (event[2]["login"], event[2]["tried"], event[2]["reason"]), ("acme:user:bob", "yes", "credentials-wrong")
        )
        for number in range(300):
            self.admin.press("Show the checks", login=f"bob{number}", evidence="guess")
            if self.admin.page.answer.status != 200:
                break
        self.assertEqual(self.admin.page.answer.status, 429)
        self.assertIn("Too often", self.admin.page.text)

    def test_as_by_the_route(self) -> None:
        """It tells and records what the route does, to the same callers: an auditor and a stranger are refused, whether the
        role exists or not (CON-18, CON-50, REF-11).
        """
        self.load("- !permit { role: !user alice, privilege: inspect, resource: !policy root }\n")
        for login in ("bob", "nobody", "alice"):
            for browser, role in (("admin", user("admin")), ("alice", user("alice")), ("bob", user("bob"))):
                for evidence in ("", "x"):
                    self.journal.told()
                    self.asked(browser, login=login, evidence=evidence)
                    status, by_page = getattr(self, browser).page.answer.status, self.journal.told()
                    body = f"evidence={evidence}".encode() if evidence else b""
                    answer = self.client.post(f"/authn/acme/{login}/explain", body, role=role)
                    self.assertEqual(status, answer.status, (login, browser, evidence))
                    self.assertEqual(by_page, self.journal.told(), (login, browser, evidence))

    def test_bad_input(self) -> None:
        """What is no address or no login is refused in words (CON-17)."""
        self.asked(login="bob", address="x")
        self.assertEqual(self.admin.page.answer.status, 422)
        self.assertIn("'address' is an IP address", self.admin.page.text)
        self.asked(login="")
        self.assertEqual(self.admin.page.answer.status, 422)
