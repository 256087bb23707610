"""Tests of ``svc.web.routes.credentials``, and of logging in with what it changes."""

from __future__ import annotations

import base64
from typing import Any

from svc.authn.throttling import ADDRESS_FAILURES
from svc.crypto.passwords import MAX_REFUSAL_DELAY
from svc.model.dialect import CONJUR
from tests.web.support import Answer, Connection
from tests.web.world import ADMIN, WorldCase, user

PASSWORD = "My-Password-1"
OTHER = "Another-Password-2"

POLICY = """
- !user alice
- !user bob
- !user carol
- !host web
- !group ops
- !permit { role: !user alice, privileges: [ read, update ], resource: !user bob }
- !permit { role: !user alice, privileges: [ read, update ], resource: !host web }
- !permit { role: !user alice, privileges: [ read ], resource: !user carol }
- !permit { role: !user alice, privileges: [ read ], resource: !group ops }
- !permit { role: !user bob, privileges: [ update ], resource: !group ops }
"""

ALICE = user("alice")

Headers = list[tuple[str, str]]


def basic(login: str, password: str) -> Headers:
    """The header of HTTP Basic credentials."""
    return [("Authorization", "Basic " + base64.b64encode(f"{login}:{password}".encode()).decode())]


class CredentialsCase(WorldCase):
    """Alice, who may update Bob and a host, sees Carol and a group, and doesn't see the admin."""

    def setUp(self) -> None:
        """Load the policy."""
        super().setUp()
        made = self.load(POLICY).json()["created_roles"]
        self.api_keys = {name.removeprefix("acme:"): each["api_key"] for name, each in made.items()}
        self.alice = basic("alice", self.api_keys["user:alice"])

    def change(self, password: str | bytes, query: str = "", **more: Any) -> Answer:
        """Change a password, by default as Alice with her API key."""
        body = password.encode() if isinstance(password, str) else password
        more = more if more.keys() & {"headers", "role"} else {**more, "headers": self.alice}
        return self.client.put(f"/authn/acme/password{query}", body, **more)

    def rotate(self, query: str = "", method: str = "PUT", **more: Any) -> Answer:
        """Rotate an API key, or ask when it was."""
        return self.client.request(method, f"/authn/acme/api_key{query}", **more)

    def log_in(self, login: str, password: str, **more: Any) -> Answer:
        """Log in."""
        return self.client.get("/authn/acme/login", headers=basic(login, password), **more)

    def assert_empty(self, answer: Answer, status: int) -> None:
        """The answer has this status, and no body."""
        self.assertEqual((answer.status, answer.body), (status, b""))

    def assert_insufficient(self, answer: Answer) -> None:
        """A token is not enough, and the answer says so."""
        self.assertEqual(self.error(answer, 401, "unauthorized"), "Credential strength is insufficient")


class PasswordTests(CredentialsCase):
    """``PUT …/password``."""

    def test_changed(self) -> None:
        """A password is changed by Basic, with the API key or the present password, and is good for the next login
        (TOK-14).
        """
        self.assert_empty(self.change(PASSWORD), 204)
        key = self.api_keys["user:alice"].encode()
        for secret in (PASSWORD, key.decode()):
            answer = self.log_in("alice", secret)
            self.assertEqual((answer.status, answer.body, answer.headers["content-type"][:10]), (200, key, "text/plain"))
        self.assert_empty(self.change(OTHER, headers=basic("alice", PASSWORD)), 204)
        self.assert_empty(self.log_in("alice", PASSWORD), 401)
        self.assertEqual(self.log_in("alice", OTHER).body, key)
        self.assertEqual(self.log_in("user/alice", OTHER).body, key)

    def test_sealed(self) -> None:
        """Of a password the store has a hash, sealed under the name of its role: another's opens for nobody (TOK-16)."""
        self.change(PASSWORD)
        stored = self.memory.passwords["acme:user:alice"]
        self.assertNotIn(PASSWORD.encode(), stored)
        self.assertTrue(self.vault.open("password/acme:user:alice", stored).startswith(b"$argon2id$"))
        self.memory.passwords["acme:user:bob"] = stored
        self.assert_empty(self.log_in("bob", PASSWORD), 401)

    def test_no_access_token_for_a_password(self) -> None:
        """A password doesn't authenticate, nor does an access token: the API key alone does (TOK-4)."""
        self.change(PASSWORD)
        self.assert_empty(self.client.post("/authn/acme/alice/authenticate", PASSWORD.encode()), 401)

    def test_too_weak(self) -> None:
        """A password that breaks a rule, or none at all, is 422 with the rules, and the old one stays (TOK-15)."""
        self.change(PASSWORD)
        for body in (b"", b"short", b"x" * 200, b"\xff" * 20, PASSWORD.encode() + b"\n"):
            answer = self.change(body)
            message = self.error(answer, 422, "validation_failed")
            told = self.worded("CONJ00046E A password has 12 to 128 characters, ")
            self.assertTrue(message.startswith(f"password {told}"), message)
            [detail] = answer.json()["error"]["details"]
            self.assertEqual(detail["code"], "validation_failed")
            self.assertEqual(detail["target"], "password")
            self.assertEqual(f"password {detail['message']}", message)
        self.assertEqual(self.log_in("alice", PASSWORD).status, 200)

    def test_nobody(self) -> None:
        """Without credentials, with wrong ones, and for roles and accounts that aren't there, it is 401, empty."""
        for headers in ([], basic("alice", "wrong"), basic("alice", OTHER), basic("nobody", PASSWORD), basic("", "x")):
            self.assert_empty(self.change(PASSWORD, headers=headers), 401)
        key = self.api_keys["user:alice"]
        self.assert_empty(self.client.put("/authn/other/password", PASSWORD.encode(), headers=basic("alice", key)), 401)

    def test_by_token(self) -> None:
        """An access token is not strong enough for one's own password, and does nothing for another's (TOK-14)."""
        self.assert_insufficient(self.change(PASSWORD, role=ALICE))
        self.assert_insufficient(self.change(PASSWORD, "?role=user:alice", role=ALICE))
        self.assert_empty(self.change(PASSWORD, "?role=user:alice", role=ADMIN), 401)
        self.assert_empty(self.change(PASSWORD, role=user("gone")), 403)
        self.assertEqual(self.memory.passwords, {})

    def test_of_others(self) -> None:
        """Nobody changes another's password, with any privileges (TOK-14)."""
        self.assert_empty(self.change(PASSWORD, "?role=user:bob"), 401)
        self.assert_empty(self.change(PASSWORD, "?role=acme:user:bob"), 401)
        self.assert_empty(self.change(PASSWORD, "?role=user:alice"), 204)
        self.assertEqual(self.memory.passwords.keys(), {"acme:user:alice"})

    def test_of_hosts(self) -> None:
        """A host has no password (403) (TOK-14)."""
        self.assert_empty(self.change(PASSWORD, headers=basic("host/web", self.api_keys["host:web"])), 403)

    def test_in_a_full_queue(self) -> None:
        """While too many passwords wait it is 503 with ``Retry-After``, at logins after a moment; API keys' go on
        (TOK-18).
        """
        self.change(PASSWORD)
        self.threads.busy = True

        def log_in(login: str) -> Connection:
            return self.client.begin("GET", "/authn/acme/login", headers=basic(login, PASSWORD))

        waiting = [log_in("alice") for _ in range(5)]
        changing = self.client.begin("PUT", "/authn/acme/password", body=OTHER.encode(), headers=self.alice)
        refused = [log_in("alice"), log_in("nobody"), changing]
        self.threads.advance(MAX_REFUSAL_DELAY)
        for answer in [connection.answer() for connection in refused]:
            self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "2"))
        self.assertEqual(self.log_in("alice", self.api_keys["user:alice"]).status, 200)
        self.assertEqual(self.client.get("/whoami", role=ALICE).status, 200)
        self.threads.run()
        self.assertEqual([connection.answer().status for connection in waiting], [200] * 5)

    def test_a_storm_stays_off_the_reactor(self) -> None:
        """However many log in with passwords, nothing is hashed on the reactor, which answers others meanwhile (TOK-18)."""
        self.change(PASSWORD)
        self.threads.busy, self.threads.done = True, 0
        for number in range(50):
            self.client.begin("GET", "/authn/acme/login", headers=basic(f"user{number}", PASSWORD))
        self.assertEqual((self.threads.done, len(self.threads.work)), (0, 5))
        self.assertEqual(self.client.get("/whoami", role=ADMIN).status, 200)

    def test_on_a_standby(self) -> None:
        """On a standby a password can't be changed (405), and still logs in (TOK-19)."""
        self.change(PASSWORD)
        self.memory.standby = True
        self.assertEqual(self.change(OTHER).json()["error"]["code"], 405)
        self.assertEqual(self.log_in("alice", PASSWORD).status, 200)

    def test_other_methods(self) -> None:
        """There is no other way to it."""
        for method in ("GET", "POST", "DELETE", "PATCH"):
            self.assertEqual(self.client.request(method, "/authn/acme/password", headers=self.alice).status, 404)


class ConjurPasswordTests(PasswordTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class RotationTests(CredentialsCase):
    """``PUT`` and ``GET …/api_key``."""

    def test_ones_own(self) -> None:
        """One's own key is rotated by Basic, with the key or the password; the old key is worth nothing then (TOK-9)."""
        self.change(PASSWORD)
        old = self.api_keys["user:alice"]
        for secret in (old, PASSWORD):
            answer = self.rotate(headers=basic("alice", secret))
            self.assertEqual((answer.status, answer.headers["content-type"][:10]), (200, "text/plain"))
            self.assertRegex(answer.body.decode(), r"\A[0-9a-z]{40,56}\Z")
            new = answer.body.decode()
            self.assertEqual(self.client.post("/authn/acme/alice/authenticate", answer.body).status, 200)
            self.assert_empty(self.client.post("/authn/acme/alice/authenticate", old.encode()), 401)
            self.assert_empty(self.log_in("alice", old), 401)
            old = new

    def test_ones_own_by_name(self) -> None:
        """Naming oneself, in full or not, or nobody, is naming nobody; a host rotates its own key in the same way
        (TOK-10).
        """
        for query in ("?role=user:alice", "?role=acme:user:alice", "?role=user%3Aalice", "?role="):
            key = self.rotate(query, headers=self.alice)
            self.assertEqual(key.status, 200, query)
            self.alice = basic("alice", key.body.decode())
        self.assertEqual(self.rotate(headers=basic("host/web", self.api_keys["host:web"])).status, 200)

    def test_ones_own_by_token(self) -> None:
        """A token is not strong enough for one's own key, named or not; a caller who is gone is 403 (TOK-9)."""
        for query in ("", "?role=user:alice", "?role=acme:user:alice"):
            for method in ("PUT", "GET"):
                self.assert_insufficient(self.rotate(query, method, role=ALICE))
        self.assert_empty(self.rotate(role=user("gone")), 403)
        self.assert_empty(self.rotate("?role=user:bob", role=user("gone")), 403)

    def test_of_another(self) -> None:
        """Who has ``update`` on a user or host rotates its key, with a token (TOK-10)."""
        for query, login, kind in (("?role=user:bob", "bob", "user:bob"), ("?role=acme:host:web", "host%2Fweb", "host:web")):
            answer = self.rotate(query, role=ALICE)
            self.assertEqual(answer.status, 200)
            self.assertEqual(self.client.post(f"/authn/acme/{login}/authenticate", answer.body).status, 200)
            old = self.api_keys[kind].encode()
            self.assert_empty(self.client.post(f"/authn/acme/{login}/authenticate", old), 401)

    def test_of_another_by_basic(self) -> None:
        """An API key or password rotates nobody else's key, whatever its role may (401) (TOK-10)."""
        for method in ("PUT", "GET"):
            self.assert_empty(self.rotate("?role=user:bob", method, headers=self.alice), 401)

    def test_unknown_and_invisible(self) -> None:
        """A role that isn't there, or isn't seen, is 404 for a token and for Basic, in the same words (FAIL-20, TOK-11)."""
        for query in (
            "user:nobody",
            "user:admin",
            "foo:bar",
            "variable:x",
            "other:user:bob",
            "acme:variable:bob",
            "user:a:b",
        ):
            for more in ({"role": ALICE}, {"headers": self.alice}):
                for method in ("PUT", "GET"):
                    answer = self.rotate(f"?role={query}", method, **more)
                    full = query if query.count(":") == 2 and not query.startswith("user:") else f"acme:{query}"
                    told = self.worded(f"CONJ00123E Role {full} is not found")
                    self.assertEqual(self.error(answer, 404, "not_found"), told)
                    self.assertEqual(answer.json()["error"].keys(), {"code", "message"})

    def test_without_update(self) -> None:
        """A role that is seen, and may not be updated, is 403, whether it could have a key or not (TOK-11)."""
        for query in ("?role=user:carol", "?role=group:ops"):
            for method in ("PUT", "GET"):
                self.assert_empty(self.rotate(query, method, role=ALICE), 403)

    def test_no_key_to_rotate(self) -> None:
        """A role of a kind that has no key is 405 for who may update it (TOK-11)."""
        for role in (ADMIN, user("bob")):
            answer = self.rotate("?role=group:ops", role=role)
            told = "CONJ00126E acme:group:ops has no API key and no access tokens: users and hosts have them"
            self.assertEqual(self.error(answer, 405, "method_not_allowed"), self.worded(told))
        self.assertEqual(self.rotate("?role=group:ops", "GET", role=ADMIN).status, 405)

    def test_nobody(self) -> None:
        """Without credentials, or with wrong ones, it is 401, for any role that is named; a bad token says so."""
        for headers in ([], basic("alice", "wrong"), basic("nobody", "x")):
            for query in ("", "?role=user:alice", "?role=user:nobody"):
                self.assert_empty(self.rotate(query, headers=headers), 401)
        answer = self.rotate(headers=[("Authorization", 'Token token="x')])
        self.assertEqual((answer.status, answer.body), (401, b"Unauthorized: Invalid token"))

    def test_no_name(self) -> None:
        """What is no name of a role is 422, and names the parameter (TOK-11)."""
        for query in ("bob", "user:", ":user:bob", "user:%00", "user:" + "x" * 1025):
            self.assertIn("role", self.error(self.rotate(f"?role={query}", role=ALICE), 422, "argument_error"))
        self.assertEqual(self.rotate("?role=user:bob&role=user:carol", role=ALICE).status, 422)

    def test_when(self) -> None:
        """The last rotation is told in UTC to who may rotate, with an empty text when there was none (WIRE-38, TOK-12)."""
        told = {"role": "acme:user:alice", "timestamp": ""}
        self.assertEqual(self.rotate(method="GET", headers=self.alice).json(), told)
        key = self.rotate(headers=self.alice).body.decode()
        answer = self.rotate(method="GET", headers=basic("alice", key))
        self.assertEqual((answer.status, answer.json()), (200, {**told, "timestamp": "2023-11-14T22:13:20Z"}))
        self.rotate("?role=user:bob", role=ALICE)
        answer = self.rotate("?role=user:bob", "GET", role=ALICE)
        self.assertEqual(answer.json(), {"role": "acme:user:bob", "timestamp": "2023-11-14T22:13:20Z"})

    def test_a_key_that_does_not_open(self) -> None:
        """A key that was sealed under another data key can be replaced by who may; its role can't log in before."""
        self.memory.credentials["acme:user:bob"] = self.vault.seal("other", b"x")
        self.assert_empty(self.log_in("bob", self.api_keys["user:bob"]), 401)
        self.assertEqual(self.rotate("?role=user:bob", role=ALICE).status, 200)

    def test_expired(self) -> None:
        """A key that has expired proves nothing, and another has the same end; a password logs in all the same (TOK-13)."""
        self.change(PASSWORD)
        key = self.api_keys["user:alice"].encode()
        self.memory.key_expirations["acme:user:alice"] = self.clock.seconds() + 1
        self.assertEqual(self.client.post("/authn/acme/alice/authenticate", key).status, 200)
        self.clock.advance(1)
        self.assert_empty(self.client.post("/authn/acme/alice/authenticate", key), 401)
        self.assert_empty(self.log_in("alice", key.decode()), 401)
        self.assert_empty(self.rotate(headers=self.alice), 401)
        self.assertEqual(self.log_in("alice", PASSWORD).status, 200)
        new = self.rotate(headers=basic("alice", PASSWORD)).body
        self.assert_empty(self.client.post("/authn/acme/alice/authenticate", new), 401)

    def test_other_methods_and_a_standby(self) -> None:
        """There is no other method; on a standby nothing is rotated (TOK-19)."""
        for method in ("POST", "DELETE", "PATCH"):
            self.assertEqual(self.rotate(method=method, headers=self.alice).status, 404)
        self.assertEqual(self.rotate(method="HEAD", headers=self.alice).status, 200)
        self.memory.standby = True
        self.assertEqual(self.rotate(headers=self.alice).json()["error"]["code"], 405)


class ConjurRotationTests(RotationTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class OriginTests(CredentialsCase):
    """``restricted_to``, and who may say where a request comes from (TOK-20 and WIRE-32)."""

    def test_authenticating(self) -> None:
        """A restricted role authenticates from where it may, which no header of a stranger's changes (TOK-20)."""
        self.load("- !user { id: dora, restricted_to: [ 198.51.100.0/24, '2001:db8::/32' ] }\n")
        key = self.rotate("?role=user:dora", role=ADMIN).body
        inside = [("X-Forwarded-For", "198.51.100.9")]
        spoofed = [("X-Forwarded-For", "198.51.100.9, 203.0.113.5")]
        for peer, headers, status in (
            ("198.51.100.9", [], 200),
            ("2001:db8::7", [], 200),
            ("::ffff:198.51.100.9", [], 200),
            ("192.0.2.7", [], 401),
            ("192.0.2.7", inside, 401),
            ("192.0.2.7", [("Forwarded", "for=198.51.100.9"), ("X-Real-Ip", "198.51.100.9")], 401),
            ("127.0.0.1", inside, 200),
            ("::1", inside, 200),
            ("127.0.0.1", spoofed, 401),
            ("127.0.0.1", [*inside, ("X-Forwarded-For", "203.0.113.5")], 401),
            ("127.0.0.1", [("X-Forwarded-For", "203.0.113.5, 198.51.100.9")], 200),
            ("127.0.0.1", [("X-Forwarded-For", "198.51.100.9, unknown")], 401),
            ("198.51.100.9", [("X-Forwarded-For", "203.0.113.5")], 200),
        ):
            answer = self.client.post("/authn/acme/dora/authenticate", key, peer=peer, headers=headers)
            self.assertEqual(answer.status, status, (peer, headers))
            if status == 401:
                self.assertEqual(answer.body, b"")

    def test_logging_in(self) -> None:
        """Logging in is not restricted (TOK-3)."""
        self.load("- !user { id: dora, restricted_to: 198.51.100.0/24 }\n")
        key = self.rotate("?role=user:dora", role=ADMIN).body
        self.assertEqual(self.log_in("dora", key.decode()).body, key)


class ThrottleTests(CredentialsCase):
    """Guessing, over HTTP."""

    def test_every_way_to_guess(self) -> None:
        """Ten failures, by whatever way, have further ones wait, on each of the ways; the right key doesn't wait
        (TOK-23).
        """
        wrong = basic("alice", "wrong")
        ways: tuple[tuple[str, str, Headers, bytes], ...] = (
            ("GET", "/authn/acme/login", wrong, b""),
            ("PUT", "/authn/acme/password", wrong, PASSWORD.encode()),
            ("PUT", "/authn/acme/api_key", wrong, b""),
            ("GET", "/authn/acme/api_key", wrong, b""),
            ("POST", "/authn/acme/alice/authenticate", [], b"wrong"),
        )
        for _ in range(2):
            for method, path, headers, body in ways:
                self.assert_empty(self.client.request(method, path, headers=headers, body=body), 401)
        slow = [self.client.begin(method, path, headers=headers, body=body) for method, path, headers, body in ways]
        self.assertEqual([connection.received() for connection in slow], [b""] * 5)
        self.assertEqual(self.log_in("alice", self.api_keys["user:alice"]).status, 200)
        self.clock.advance(16)
        for connection in slow:
            self.assert_empty(connection.answer(), 401)

    def test_who_leaves(self) -> None:
        """A client that doesn't wait for the late answer leaves no timer behind."""
        for _ in range(10):
            self.log_in("alice", "wrong")
        connection = self.client.begin("GET", "/authn/acme/login", headers=basic("alice", "wrong"))
        self.assertEqual(len(self.clock.getDelayedCalls()), 2)  # the other one is the deadline of the connection
        connection.leave()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_addresses(self) -> None:
        """An address that fails too often is told to come again (429); its password isn't hashed, nor are tokens refused
        (FAIL-14, TOK-22).
        """
        for number in range(ADDRESS_FAILURES):
            self.log_in(f"user{number}", "wrong", peer="203.0.113.5")
        done = self.threads.done
        for answer in (
            self.log_in("alice", PASSWORD, peer="203.0.113.5"),
            self.change(PASSWORD, peer="203.0.113.5"),
            self.rotate(headers=self.alice, peer="203.0.113.5"),
            self.client.post("/authn/acme/alice/authenticate", b"x", peer="203.0.113.5"),
        ):
            self.assertEqual((answer.status, answer.body, answer.headers["retry-after"]), (429, b"", "60"))
        self.assertEqual(self.threads.done, done)
        self.assertEqual(self.client.get("/whoami", role=ALICE, peer="203.0.113.5").status, 200)
        self.assertEqual(self.log_in("alice", self.api_keys["user:alice"]).status, 200)

    def test_forged_addresses(self) -> None:
        """A client that claims another's login is counted under its own address."""
        forged = [("X-Forwarded-For", "198.51.100.1")]
        for number in range(ADDRESS_FAILURES):
            headers = [*basic(f"user{number}", "wrong"), ("X-Forwarded-For", f"198.51.{number % 250}.9")]
            self.client.get("/authn/acme/login", headers=headers, peer="203.0.113.5")
        answer = self.client.get("/authn/acme/login", headers=[*self.alice, *forged], peer="203.0.113.5")
        self.assertEqual(answer.status, 429)
        self.assertEqual(self.log_in("alice", self.api_keys["user:alice"], peer="198.51.100.1").status, 200)

    def test_roles_of_hosts(self) -> None:
        """A host that is a stranger to the server is as slow as one that is known."""
        for name in ("host/web", "host/none"):
            for _ in range(10):
                self.assert_empty(self.log_in(name, "wrong", peer=f"192.0.2.{len(name)}"), 401)
            connection = self.client.begin("GET", "/authn/acme/login", headers=basic(name, "wrong"))
            self.assertEqual(connection.received(), b"")
            self.clock.advance(1)
            self.assert_empty(connection.answer(), 401)
