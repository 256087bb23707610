"""Tests of ``svc.web.routes.sessions``: users who stay logged in."""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted.logger import capturedLogs

from svc.authn.sessions import GRACE
from svc.authn.throttling import ADDRESS_FAILURES, ROLE_FAILURES
from svc.model.authentication import SESSIONS_PER_USER
from tests.memory_sessions import MemorySessions
from tests.web.support import NOW, PEER, Answer
from tests.web.world import ADMIN, WorldCase, user

POLICY = """
- !user alice
- !user { id: bob, restricted_to: [ 192.0.2.0/24 ] }
- !user carol
- !host web
- !group ops
- !permit { role: !user carol, privileges: [ update ], resource: !user alice }
- !permit { role: !user carol, privileges: [ read ], resource: !user bob }
- !permit { role: !user carol, privileges: [ update ], resource: !group ops }
- !permit { role: !user carol, privileges: [ update ], resource: !host web }
"""

ALICE, BOB, CAROL = user("alice"), user("bob"), user("carol")
HOUR = 3600

#: Another address of Bob's network.
ELSEWHERE = "192.0.2.99"


def claims(opened: Any) -> Any:
    """The claims of the access token of an open session."""
    token = json.loads(base64.b64decode(opened["access_token"]))
    return json.loads(base64.urlsafe_b64decode(token["payload"]))


class SessionsCase(WorldCase):
    """Alice, Bob and Carol, who may update Alice."""

    def setUp(self) -> None:
        """Load the policy."""
        super().setUp()
        made = self.load(POLICY).json()["created_roles"]
        self.api_keys = {name.removeprefix("acme:"): each["api_key"] for name, each in made.items()}

    def ask_to_open(self, login: str = "alice", query: str = "", key: str | None = None, **more: Any) -> Answer:
        """Open a session."""
        kind, _, name = login.rpartition("/")
        proof = self.api_keys[f"{kind or 'user'}:{name}"] if key is None else key
        path = f"/authn/acme/{login.replace('/', '%2F')}/sessions{query}"
        return self.client.post(path, proof.encode(), **more)

    def open(self, login: str = "alice", query: str = "", **more: Any) -> Any:
        """Open a session, and return what there is of it."""
        answer = self.ask_to_open(login, query, **more)
        self.assertEqual(answer.status, 201, answer.body)
        return answer.json()

    def ask_to_renew(self, token: str | bytes, login: str = "alice", **more: Any) -> Answer:
        """Renew a session."""
        body = token.encode() if isinstance(token, str) else token
        return self.client.post(f"/authn/acme/{login}/renew", body, **more)

    def renew(self, opened: Any, login: str = "alice", **more: Any) -> Any:
        """Renew a session, and return what there is of it."""
        answer = self.ask_to_renew(opened["refresh_token"], login, **more)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json()

    def refused(self, opened: Any, reason: str, login: str = "alice", **more: Any) -> None:
        """A renewal must be 401, empty, and recorded with a reason."""
        self.journal.told()
        answer = self.ask_to_renew(opened["refresh_token"], login, **more)
        self.assertEqual((answer.status, answer.body), (401, b""))
        [(msgid, operation, subject, why)] = self.journal.told()
        self.assertEqual((msgid, operation, why), ("session", "renew", reason))
        self.assertEqual(subject, {"role": f"acme:user:{login}"})

    def works(self, opened: Any) -> bool:
        """Whether the access token is taken."""
        shown = f'Token token="{opened["access_token"]}"'.encode()
        read = self.result_of(self.tokens.find_caller(shown))
        return self.memory.numbers(str(read.role)) == (read.creation, read.epoch)


class OpenTests(SessionsCase):
    """How a session begins, and how long it lasts."""

    def test_opened(self) -> None:
        """An API key opens a session, whose access token is an ordinary one (TOK-40, TOK-41)."""
        for query, seconds in (("", 43_200), ("?lifetime=43200", 43_200), ("?lifetime=60", 60)):
            opened = self.open(query=query)
            self.assertEqual(sorted(opened), ["access_token", "ends_at", "id", "refresh_token"])
            read = claims(opened)
            self.assertEqual(read, {"iat": NOW, "sub": "alice", "exp": NOW + min(480, seconds)})
            row = self.memory.sessions["acme:user:alice", opened["id"]]
            self.assertEqual(row.session.expires_at, NOW + seconds)
            self.assertTrue(self.works(opened))
        self.assertEqual(opened["ends_at"], "2023-11-14T22:14:20Z")

    def test_refused(self) -> None:
        """What proves no user opens none: 401, empty, as at ``authenticate``; a host gets 403 (TOK-40)."""
        for login, key in (("alice", "wrong"), ("alice", ""), ("nobody", "wrong"), ("web", "wrong")):
            answer = self.ask_to_open(login, key=key)
            self.assertEqual((answer.status, answer.body), (401, b""), (login, key))
        answer = self.ask_to_open("bob", headers=[("X-Forwarded-For", "x")], peer="198.51.100.7")
        self.assertEqual((answer.status, answer.body), (401, b""))
        self.assertIn("sessions are for users", self.error(self.ask_to_open("host/web"), 403, "forbidden"))
        self.assertEqual(self.memory.sessions, {})

    def test_lifetime(self) -> None:
        """A lifetime beyond the longest, or none at all, is 422, and says what may be (TOK-41)."""
        for text in ("43201", "0", "-1", "8h", ""):
            answer = self.ask_to_open(query=f"?lifetime={text}")
            self.assertEqual(answer.status, 422, text)
            self.assertIn("lifetime", answer.json()["error"]["message"])
        self.assertIn("43200 seconds at most", self.ask_to_open(query="?lifetime=43201").json()["error"]["message"])
        self.assertEqual(self.memory.sessions, {})

    def test_kept(self) -> None:
        """The store has neither a refresh token nor a part of it that nobody could guess (TOK-42, DATA-7)."""
        opened = self.renew(self.open())
        row = self.memory.sessions["acme:user:alice", opened["id"]]
        secret = base64.urlsafe_b64decode(opened["refresh_token"] + "==")[16:48]
        for kept in (row.token, row.used, row.seed):
            assert kept is not None
            self.assertNotIn(secret[:8], kept)
            self.assertNotIn(opened["refresh_token"].encode(), kept)

    def test_events(self) -> None:
        """A session that is opened, renewed, listed and revoked is recorded, each without a token; the store has the first
        and the last (AUD-3).
        """
        self.journal.told()
        before = max(self.memory.events)
        opened = self.open()
        self.renew(opened)
        self.client.get("/authn/acme/sessions", role=ALICE)
        self.client.delete(f"/authn/acme/sessions/{opened['id']}", role=ALICE)
        one = {"role": "acme:user:alice", "session": opened["id"]}
        expected = [
            ("session", "open", one, None),
            ("session", "renew", one, None),
            ("session", "list", {"role": "acme:user:alice"}, None),
            ("session", "revoke", one, None),
        ]
        self.assertEqual(self.journal.told(), expected)
        stored = [event.operation for number, (_, event) in sorted(self.memory.events.items()) if number > before]
        self.assertEqual(stored, ["open", "revoke"])

    def test_many(self) -> None:
        """One session more than a user may have takes the place of the one used longest ago (TOK-51)."""
        several = []
        for _ in range(SESSIONS_PER_USER + 1):
            self.clock.advance(1)
            several.append(self.open())
        self.refused(several[0], "session-ended")
        self.renew(several[1])


class RenewalTests(SessionsCase):
    """Refresh tokens."""

    def test_a_day(self) -> None:
        """Each renewal gives an access token and the next refresh token, until the time is over; no access token lives
        longer (TOK-41, TOK-43, TOK-45).
        """
        opened = self.open(query=f"?lifetime={8 * HOUR}")
        seen, last = {opened["refresh_token"]}, opened
        while self.clock.seconds() + 450 < NOW + 8 * HOUR:
            self.clock.advance(450)
            last = self.renew(last)
            self.assertEqual((last["id"], last["ends_at"]), (opened["id"], opened["ends_at"]))
            self.assertNotIn(last["refresh_token"], seen)
            seen.add(last["refresh_token"])
            self.assertEqual(claims(last)["exp"], min(self.clock.seconds() + 480, NOW + 8 * HOUR))
        self.clock.advance(NOW + 8 * HOUR - self.clock.seconds())
        self.refused(last, "session-ended")

    def test_used_twice(self) -> None:
        """A refresh token that is used again later ends the session for everybody, and the log says where it came from
        (TOK-43).
        """
        first = self.open()
        second = self.renew(first)
        third = self.renew(second)
        for again in (first, second):
            self.clock.advance(GRACE + 1)
            with capturedLogs() as events:
                self.refused(again, "refresh-token-reused" if again is first else "session-ended")
            warned = [event["client_ip"] for event in events if "used refresh token" in event["log_format"]]
            self.assertEqual(warned, [PEER] if again is first else [])
        self.refused(third, "session-ended")
        self.assertEqual(self.memory.sessions, {})

    def test_lost_answer(self) -> None:
        """The one used last is answered again with the same next one, soon and to the same address alone (TOK-44)."""
        first = self.open()
        second = self.renew(first)
        for seconds in (0, GRACE):
            self.clock.advance(seconds)
            again = self.renew(first)
            self.assertEqual(again["refresh_token"], second["refresh_token"])
            self.assertTrue(self.works(again))
        third = self.renew(again)
        self.refused(first, "refresh-token-reused")
        self.refused(third, "session-ended")

    def test_at_once(self) -> None:
        """Of two renewals with one token at the same moment, the one that comes later gets what the other got (TOK-44)."""
        first = self.open()
        turn, others = MemorySessions.rotate_token, list[Any]()

        async def overtaken(store: MemorySessions, *asked: Any) -> bool:
            if not others:
                others.append(None)
                others[0] = self.renew(first)
            return await turn(store, *asked)

        self.patch(MemorySessions, "rotate_token", overtaken)
        self.assertEqual(self.renew(first)["refresh_token"], others[0]["refresh_token"])

        async def never(store: MemorySessions, *asked: Any) -> bool:
            return False

        self.patch(MemorySessions, "rotate_token", never)
        self.assertEqual(self.ask_to_renew(others[0]["refresh_token"]).status, 503)

    def test_other_address(self) -> None:
        """From another address, or later, the one used last is one that was used (TOK-44)."""
        for seconds, address in ((0, ELSEWHERE), (GRACE + 0.1, PEER)):
            first = self.open()
            second = self.renew(first)
            self.clock.advance(seconds)
            self.refused(first, "refresh-token-reused", peer=address)
            self.refused(second, "session-ended")

    def test_moved(self) -> None:
        """The next one may come from another address, which is noted (TOK-49)."""
        self.renew(self.open(), peer=ELSEWHERE)
        [listed] = self.client.get("/authn/acme/sessions", role=ALICE).json()
        self.assertEqual(listed["used_from"], ELSEWHERE)

    def test_wrong(self) -> None:
        """What is no refresh token of the user is 401, empty, and ends nothing, be the user there or not (TOK-47)."""
        opened = self.open()
        bobs = self.open("bob")
        for token, login in (
            ("", "alice"),
            ("x" * 86, "alice"),
            (self.api_keys["user:alice"], "alice"),
            (opened["access_token"], "alice"),
            (bobs["refresh_token"], "alice"),
            (opened["refresh_token"], "bob"),
            (opened["refresh_token"], "nobody"),
            (opened["refresh_token"] + "\n", "alice"),
            (b"\xff" * 86, "alice"),
        ):
            answer = self.ask_to_renew(token, login)
            self.assertEqual((answer.status, answer.body), (401, b""), (token, login))
        self.renew(opened)
        self.renew(bobs, "bob")

    def test_guesses(self) -> None:
        """Refused renewals count: further ones of the user are answered late, of the address refused; the right one isn't
        held (TOK-47).
        """
        opened = self.open()
        for _ in range(ROLE_FAILURES):
            self.assertEqual(self.ask_to_renew("x" * 86).status, 401)
        held = self.client.begin("POST", "/authn/acme/alice/renew", body=b"x" * 86)
        self.assertEqual(held.received(), b"")
        opened = self.renew(opened)
        self.clock.advance(1)
        self.assertEqual(held.answer().status, 401)
        for number in range(ADDRESS_FAILURES - ROLE_FAILURES - 1):
            self.assertEqual(self.ask_to_renew("x" * 86, f"user-{number}").status, 401)
        self.assertEqual(self.ask_to_renew(opened["refresh_token"]).status, 429)

    def test_origin(self) -> None:
        """The role's networks bind each renewal, and a refused one uses nothing up (TOK-46)."""
        opened = self.open("bob")
        self.refused(opened, "origin-refused", "bob", peer="198.51.100.7")
        opened = self.renew(opened, "bob")
        self.memory.restrictions = {("acme:user:bob", "10.0.0.0/8"): None}
        self.refused(opened, "origin-refused", "bob")

    def test_ended_by(self) -> None:
        """A session ends with what it was opened with (TOK-45)."""
        alice = [("Authorization", "Basic " + base64.b64encode(f"alice:{self.api_keys['user:alice']}".encode()).decode())]
        for end in (
            lambda: self.client.delete("/authn/acme/sessions", role=ALICE),
            lambda: self.client.put("/authn/acme/password", b"My-Password-1", headers=alice),
            lambda: self.client.put("/authn/acme/api_key", headers=alice),
            lambda: self.client.delete("/authn/acme/tokens", role=ALICE),
            lambda: self.client.delete("/accounts/acme/tokens", role=ADMIN),
        ):
            opened = self.open()
            answer = end()
            self.assertIn(answer.status, {200, 204}, answer.body)
            self.api_keys["user:alice"] = answer.body.decode() or self.api_keys["user:alice"]
            self.refused(opened, "session-ended")
        opened = self.open()
        self.memory.key_expirations["acme:user:alice"] = self.clock.seconds() + 60.0
        opened = self.renew(opened)
        self.clock.advance(60)
        self.refused(opened, "session-ended")
        self.memory.key_expirations.clear()
        opened = self.open()
        self.result_of(self.keys.rotate_key("acme", 480))
        opened = self.renew(opened)
        self.clock.advance(480)
        self.refused(opened, "session-ended")
        opened = self.open()
        self.memory.delete_roles(["acme:user:alice"])
        self.refused(opened, "session-ended")

    def test_no_key(self) -> None:
        """While the account has no key to sign with, a renewal is put off, and uses nothing up (TOK-34)."""
        opened = self.open()
        keys = self.memory.accounts["acme"]
        reading = self.memory.newest_key
        self.patch(type(self.memory), "newest_key", lambda memory, account: None)
        self.assertEqual(self.ask_to_renew(opened["refresh_token"]).status, 503)
        self.patch(type(self.memory), "newest_key", lambda memory, account: keys[-1].key_id)
        self.assertIsNotNone(reading("acme"))
        self.renew(opened)

    def test_follower(self) -> None:
        """On a follower a renewal is 503 and says where to go, whatever the token; a session isn't opened (TOK-48)."""
        opened = self.open()
        self.memory.standby = True
        for token in (opened["refresh_token"], "x" * 86):
            answer = self.ask_to_renew(token)
            self.assertEqual(answer.status, 503)
            self.assertIn("retry-after", answer.headers)
            self.assertIn("ask the primary", answer.json()["error"]["message"])
        self.assertEqual(self.ask_to_open().status, 405)
        self.memory.standby = False
        self.renew(opened)


class ListTests(SessionsCase):
    """Where a user stays logged in."""

    def test_listed(self) -> None:
        """Sessions are listed to their user, and to who may update the user, the one used last first (TOK-49)."""
        first = self.open()
        self.clock.advance(60)
        second = self.open(query="?lifetime=600")
        self.clock.advance(60)
        self.renew(first, peer=ELSEWHERE)
        for query, role in (("", ALICE), ("?role=user:alice", CAROL), ("?role=acme:user:alice", ALICE)):
            found = self.client.get(f"/authn/acme/sessions{query}", role=role).json()
            self.assertEqual([session["id"] for session in found], [first["id"], second["id"]])
            self.assertEqual(
                found[0],
                {
                    "id": first["id"],
                    "created_at": "2023-11-14T22:13:20Z",
                    "ends_at": first["ends_at"],
                    "used_at": "2023-11-14T22:15:20Z",
                    "used_from": ELSEWHERE,
                },
            )
        self.assertEqual(self.client.get("/authn/acme/sessions", role=BOB).json(), [])
        self.clock.advance(600)
        self.assertEqual(len(self.client.get("/authn/acme/sessions", role=ALICE).json()), 1)

    def test_authority(self) -> None:
        """Others see and end nothing; what they don't see isn't there (TOK-37, TOK-49, TOK-50)."""
        opened = self.open()
        self.open("bob")
        for method, path in (
            ("GET", "/authn/acme/sessions"),
            ("DELETE", "/authn/acme/sessions"),
            ("DELETE", f"/authn/acme/sessions/{opened['id']}"),
        ):
            for role, query, status in (
                (BOB, "?role=user:alice", 404),
                (CAROL, "?role=user:bob", 403),
                (CAROL, "?role=user:nobody", 404),
                (CAROL, "?role=group:ops", 405),
                (CAROL, "?role=variable:x", 404),
                (CAROL, "?role=alice", 422),
                (user("gone"), "", 403),
            ):
                answer = self.client.request(method, path + query, role=role)
                self.assertEqual(answer.status, status, (method, role, query, answer.body))
            self.assertEqual(self.client.request(method, path).status, 401)
        self.assertEqual(len(self.memory.sessions), 2)

    def test_revoked(self) -> None:
        """A session that is revoked is renewed no more, though its access token lives on; one that isn't there is 404
        (TOK-50).
        """
        one, two = self.open(), self.open()
        path = f"/authn/acme/sessions/{one['id']}"
        self.assertEqual(self.client.delete(path, role=BOB).status, 404)
        self.assertEqual(self.client.delete(f"{path}?role=user:alice", role=CAROL).status, 204)
        self.assertEqual(self.client.delete(path, role=ALICE).status, 404)
        self.refused(one, "session-ended")
        self.assertTrue(self.works(one))
        self.renew(two)
        self.assertEqual(self.client.delete("/authn/acme/sessions", role=ALICE).status, 204)
        self.refused(two, "session-ended")


class ShortTests(SessionsCase):
    """A server whose sessions are short."""

    session_max = 600

    def test_shorter_by_then(self) -> None:
        """What was opened for longer ends when the longest time is over (TOK-45)."""
        opened = self.open()
        key = ("acme:user:alice", opened["id"])
        row = self.memory.sessions[key]
        longer = type(row.session)(opened["id"], NOW, NOW + 9999.0, NOW, PEER)
        self.memory.sessions[key] = type(row)(longer, row.admitted, row.token)
        self.clock.advance(300)
        opened = self.renew(opened)
        self.assertEqual(opened["ends_at"], "2023-11-14T22:23:20Z")
        self.clock.advance(299.5)
        self.refused(opened, "session-ended")


class OffTests(SessionsCase):
    """A server without sessions."""

    session_max = 0

    def test_off(self) -> None:
        """None is opened: 403, to those who have proven themselves; none is renewed (TOK-41)."""
        self.assertIn("--user-session-max is 0", self.error(self.ask_to_open(), 403, "forbidden"))
        self.assertEqual(self.ask_to_open(key="wrong").status, 401)
        token = self.refresh_tokens.first_token(ALICE, "0" * 32)
        self.refused({"refresh_token": token}, "session-ended")
