"""Tests of ``svc.importing.conjur_session``: tokens, pauses, and how a session stops."""

from __future__ import annotations

import httpx

from svc.importing.conjur_session import PATIENCE
from tests.importing.conjur_stand_in import TOKEN_LIFE
from tests.importing.moving import ImportCase


class SessionTests(ImportCase):
    """One question at a time."""

    def ask(self) -> int:
        """Ask a question, and return the status of the answer."""
        return self.run_import(self.session.ask("/resources/myorg?count=true")).status

    def test_renewed(self) -> None:
        """A token is renewed by time, before it ends (MOVE-57, IMP-6)."""
        for _ in range(20):
            self.assertEqual(self.ask(), 200)
            self.now += TOKEN_LIFE / 3
        self.assertEqual(self.source.logins, 10)
        self.assertEqual(len(self.source.requests), 30)

    def test_renewed_after_refusal(self) -> None:
        """A refused token is renewed once more, and a second refusal in a row stops (MOVE-57, IMP-6)."""
        self.ask()
        refused = [httpx.Response(401, text="x")]
        self.source.intruders.append(lambda request: refused.pop() if refused and "resources" in request.url.path else None)
        self.assertEqual((self.ask(), self.source.logins), (200, 2))
        refused += [httpx.Response(401, text="x")] * 2
        self.assertIn("refuses a fresh access token of admin", str(self.stopped(self.ask)))

    def test_refused_login(self) -> None:
        """A refused API key stops, and isn't sent again (IMP-6)."""
        self.session = self.make_session(api_key="another")
        fault = self.stopped(self.ask)
        self.assertIn("refuses the API key of admin", str(fault))
        self.assertIn("not a password", fault.remedy)
        self.assertEqual(len(self.source.requests), 1)
        self.assertNotIn("another", repr(self.session))

    def test_logins(self) -> None:
        """A login is encoded whole, and is that of a user or host (MOVE-53)."""
        for login, path, role in (
            ("admin", "admin", "user:admin"),
            ("host/a/b", "host%2Fa%2Fb", "host:a/b"),
            ("bob@a-b", "bob%40a-b", "user:bob@a-b"),
            ("x/y", "x%2Fy", "user:x/y"),
        ):
            self.session = self.make_session(login)
            self.ask()
            self.assertIn(f"/authn/myorg/{path}/authenticate", self.source.asked("/authn/"))
            self.assertEqual(self.session.role, f"myorg:{role}")

    def test_busy(self) -> None:
        """A busy server is asked again after growing pauses, or the time that it names (IMP-8)."""
        self.ask()
        troubles: list[httpx.Response | Exception] = [
            httpx.Response(429),
            httpx.Response(429, headers={"retry-after": "7"}),
            httpx.Response(503),
            httpx.ConnectError("refused"),
            httpx.ReadError("broken off"),
        ]

        def trouble(request: httpx.Request) -> httpx.Response | None:
            if not troubles:
                return None
            found = troubles.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        self.source.intruders.append(trouble)
        self.assertEqual(self.ask(), 200)
        self.assertEqual(self.slept, [1, 7, 4, 8, 16])

    def test_busy_for_long(self) -> None:
        """One that stays busy stops the import after a bound (IMP-8)."""
        self.ask()
        self.source.intruders.append(lambda _: httpx.Response(429))
        fault = self.stopped(self.ask)
        self.assertIn("status 429", str(fault))
        self.assertIn("run the same command again", fault.remedy)
        self.assertLessEqual(sum(self.slept), PATIENCE)
        self.assertGreater(sum(self.slept), PATIENCE / 2)

    def test_elsewhere(self) -> None:
        """No login is sent to another address: a redirect stops (IMP-8)."""
        self.source.intruders.append(lambda _: httpx.Response(307, headers={"location": "https://elsewhere.example/x"}))
        self.assertIn("redirects to https://elsewhere.example/x", str(self.stopped(self.ask)))

    def test_page_instead(self) -> None:
        """A page in place of a token stops (IMP-8)."""
        self.source.intruders.append(lambda _: httpx.Response(200, text="<html>"))
        self.assertIn("in another way than Conjur does", str(self.stopped(self.ask)))
