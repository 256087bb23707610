"""Tests of ``svc.web.routes.revocation``, with real access tokens."""

from __future__ import annotations

from typing import Any

from tests.web.support import Answer
from tests.web.world import ADMIN, ADMIN_KEY, WorldCase, user

POLICY = """
- !user alice
- !user bob
- !user carol
- !host web
- !group ops
- !policy { id: apps, owner: !user bob }
- !permit { role: !user alice, privileges: [ update ], resource: !user bob }
- !permit { role: !user alice, privileges: [ update ], resource: !host web }
- !permit { role: !user alice, privileges: [ read ], resource: !user carol }
- !permit { role: !user alice, privileges: [ update ], resource: !group ops }
- !permit { role: !user bob, privileges: [ update ], resource: !policy root }
- !permit { role: !user carol, privileges: [ read ], resource: !policy root }
"""


class RevocationTests(WorldCase):
    """Roles with access tokens."""

    def setUp(self) -> None:
        """Load the policy, and log everybody in."""
        super().setUp()
        made = self.load(POLICY).json()["created_roles"]
        self.keys_of = {
            name.removeprefix("acme:user:").replace("acme:host:", "host/"): made[name]["api_key"] for name in made
        }
        self.keys_of["admin"] = ADMIN_KEY
        self.admitted = {login: self.log_in(login) for login in self.keys_of}

    def log_in(self, login: str) -> Any:
        """Log in, and return the caller that the access token proves."""
        path = f"/authn/acme/{login.replace('/', '%2F')}/authenticate"
        answer = self.client.post(path, self.keys_of[login].encode(), headers=[("Accept-Encoding", "base64")])
        self.assertEqual(answer.status, 200, answer.body)
        return self.result_of(self.tokens.find_caller(b'Token token="' + answer.body + b'"'))

    def ask(self, method: str, target: str, login: str) -> Answer:
        """Send a request with the token of the first login."""
        caller = self.admitted[login]
        header = f'Token token="{caller.role}|{caller.creation},{caller.epoch}"'
        return self.client.request(method, target, headers=[("Authorization", header)])

    def alive(self) -> set[str]:
        """The logins whose tokens are taken."""
        return {login for login in self.admitted if self.ask("GET", "/whoami", login).status == 200}

    def test_of_a_role(self) -> None:
        """All tokens of a role end, one's own or another's; the next login has a good one (TOK-36, TOK-37)."""
        everybody = set(self.admitted)
        for by, query, ended in (
            ("alice", "?role=host:web", "host/web"),
            ("alice", "?role=acme:user:bob", "bob"),
            ("carol", "?role=user:carol", "carol"),
            ("alice", "", "alice"),
        ):
            self.assertEqual(self.ask("DELETE", f"/authn/acme/tokens{query}", by).status, 204)
            self.assertEqual(self.alive(), everybody - {ended})
            answer = self.ask("GET", "/whoami", ended)
            self.assertEqual((answer.status, answer.body), (401, b"Unauthorized: Invalid token"))
            self.admitted[ended] = self.log_in(ended)
            self.assertNotEqual(self.admitted[ended].epoch, 0)
            self.assertEqual(self.alive(), everybody)

    def test_of_an_account(self) -> None:
        """All tokens of all roles of an account end, those of who asked for it too (TOK-38)."""
        self.assertEqual(self.ask("DELETE", "/accounts/acme/tokens", "bob").status, 204)
        self.assertEqual(self.alive(), set())
        self.admitted = {login: self.log_in(login) for login in self.keys_of}
        self.assertEqual(self.alive(), set(self.keys_of))
        self.assertEqual(self.ask("DELETE", "/authn/acme/tokens?role=user:bob", "alice").status, 204)
        self.assertEqual(self.ask("DELETE", "/accounts/acme/tokens", "admin").status, 204)
        self.assertEqual(self.alive(), set())
        self.admitted["bob"] = self.log_in("bob")
        self.assertEqual(self.alive(), {"bob"})

    def test_authority(self) -> None:
        """Without ``update`` nothing ends: 403 for what one sees, 404 for what one doesn't (TOK-37, TOK-38)."""
        for by, target, status in (
            ("alice", "/authn/acme/tokens?role=user:carol", 403),
            ("bob", "/authn/acme/tokens?role=user:alice", 404),
            ("alice", "/authn/acme/tokens?role=user:nobody", 404),
            ("alice", "/authn/acme/tokens?role=other:user:admin", 404),
            ("alice", "/authn/acme/tokens?role=group:ops", 405),
            ("alice", "/authn/acme/tokens?role=variable:v", 404),
            ("alice", "/authn/acme/tokens?role=alice", 422),
            ("carol", "/accounts/acme/tokens", 403),
            ("alice", "/accounts/acme/tokens", 404),
            ("bob", "/accounts/other/tokens", 404),
            ("bob", "/accounts/a%20b/tokens", 404),
        ):
            self.assertEqual(self.ask("DELETE", target, by).status, status, (by, target))
        self.memory.standby = True
        self.assertEqual(self.ask("DELETE", "/authn/acme/tokens", "alice").status, 405)
        self.memory.standby = False
        self.assertEqual(self.alive(), set(self.admitted))

    def test_recorded(self) -> None:
        """A revocation is recorded before it is answered, and in the store; a refused one too, with why (AUD-3)."""
        self.journal.told()
        before = max(self.memory.events)
        self.ask("DELETE", "/authn/acme/tokens?role=user:bob", "alice")
        self.ask("DELETE", "/authn/acme/tokens?role=user:carol", "alice")
        self.ask("DELETE", "/accounts/acme/tokens", "admin")
        expected = [
            ("token", "revoke", {"role": "acme:user:bob"}, None),
            ("token", "revoke", {"role": "acme:user:carol"}, "forbidden"),
            ("account", "revoke-tokens", {"account": "acme"}, None),
        ]
        self.assertEqual(self.journal.told(), expected)
        stored = [event.operation for number, (_, event) in sorted(self.memory.events.items()) if number > before]
        self.assertEqual(stored, ["revoke", "revoke-tokens"])

    def test_other_accounts(self) -> None:
        """The admin of another account revokes nothing here (TOK-38)."""
        self.result_of(self.create_account("other", "1other"))
        other = user("admin").__class__("other", "user", "admin")
        self.assertEqual(self.client.delete("/accounts/acme/tokens", role=other).status, 404)
        self.assertEqual(self.client.delete("/authn/other/tokens?role=acme:user:alice", role=other).status, 404)
        self.assertEqual(self.client.delete("/accounts/other/tokens", role=other).status, 204)
        self.assertEqual(self.alive(), set(self.admitted))
        self.assertEqual(self.admitted["admin"].role, ADMIN)
