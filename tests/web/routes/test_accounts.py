"""Tests of ``svc.web.routes.accounts``."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from svc.model.dialect import CONJUR
from svc.model.errors import BearerRefused
from svc.model.names import RESERVED_ACCOUNT, RoleName, admin_of
from tests.web.support import Answer
from tests.web.world import ACCOUNT, ADMIN, WorldCase, user

OPERATOR = admin_of(RESERVED_ACCOUNT)
MAKER, READER, REMOVER, EVE = (RoleName(RESERVED_ACCOUNT, "user", name) for name in ("maker", "reader", "remover", "eve"))

POLICY = b"""
- !user maker
- !user reader
- !user remover
- !user eve
- !permit { role: !user maker, privilege: execute, resource: !webservice accounts }
- !permit { role: !user reader, privilege: read, resource: !webservice accounts }
- !permit { role: !user remover, privilege: update, resource: !webservice accounts }
"""


class AccountsTests(WorldCase):
    """Accounts, NAME-19 to NAME-28."""

    def setUp(self) -> None:
        """Make the service's own account, and let its users do a part each."""
        super().setUp()
        self.result_of(self.create_account(RESERVED_ACCOUNT, "1operator"))
        loaded = self.client.post("/policies/!/policy/root", POLICY, role=OPERATOR)
        self.assertEqual(loaded.status, 201, loaded.body)

    def make(self, name: str | None, role: RoleName | None = MAKER) -> Answer:
        """Ask for an account."""
        return self.client.post("/accounts", b"" if name is None else f"id={name}".encode(), role=role)

    def test_made(self) -> None:
        """A new account is told with the API key of its admin, who can log in with it and owns all of it (NAME-20)."""
        answer = self.make("new")
        self.assertEqual(answer.status, 201)
        self.assertEqual(answer.json()["id"], "new")
        key = answer.json()["api_key"]
        self.assertEqual(self.client.post("/authn/new/admin/authenticate", key.encode()).status, 200)
        self.assertEqual(self.client.post("/policies/new/policy/root", b"- !user x", role=admin_of("new")).status, 201)
        self.assertNotIn(key, repr(self.memory))

    def test_makers_hold_nothing_of_it(self) -> None:
        """The maker of an account has no other hold on it than the key in the answer (NAME-20)."""
        self.make("new", OPERATOR)
        for role in (OPERATOR, MAKER):
            self.assertEqual(self.client.get("/resources/new/policy/root", role=role).status, 404)
        self.assertEqual(self.client.get("/resources/new", role=OPERATOR).json(), [])

    def test_from_json(self) -> None:
        """The name may come in JSON, too (NAME-20)."""
        headers = [("Content-Type", "application/json")]
        answer = self.client.post("/accounts", json.dumps({"id": "new"}).encode(), headers=headers, role=MAKER)
        self.assertEqual(answer.json()["id"], "new")
        self.error(self.client.post("/accounts", b"{", headers=headers, role=MAKER), 400, "bad_request")

    def test_bad_names(self) -> None:
        """A name without a form, or none, is 422; what is wrong with it is told (NAME-21)."""
        for name, apart in (("test%3Abad", ":"), ("test%20bad", " "), ("a%2Fb", "/"), ("a%2Fb%3A+c", " :/")):
            message = self.error(self.make(name), 422, "argument_error")
            self.assertRegex(message, rf'\Aaccount name "[^"]+" contains invalid characters \({apart}\)\Z')
        self.assertEqual(self.error(self.make(None), 422, "argument_error"), "id")
        for name in ("", "%09", "x" * 129, "%C2%85"):
            self.assertIn("id", self.error(self.make(name), 422, "argument_error"))

    def test_twice(self) -> None:
        """An account that exists is 409, and so is the service's own, which isn't told from others (NAME-22)."""
        for name in (ACCOUNT, RESERVED_ACCOUNT):
            answer = self.make(name)
            self.assertEqual(self.error(answer, 409, "conflict"), f'account "{name}" already exists')
            self.assertEqual(answer.json()["error"]["target"], "account")

    def test_listed(self) -> None:
        """Accounts are listed in order, without the service's own (NAME-2, NAME-23)."""
        self.make("zoo")
        self.make("Zoo")
        self.assertEqual(self.client.get("/accounts", role=READER).json(), ["Zoo", "acme", "zoo"])

    def test_deleted(self) -> None:
        """With an account goes all that it holds, its tokens and keys too; others stay; it can be made again (NAME-24,
        NAME-25).
        """
        key = self.make("new").json()["api_key"]
        token = base64.b64encode(self.client.post("/authn/new/admin/authenticate", key.encode()).body)
        header = b'Token token="%s"' % token
        self.assertEqual(self.result_of(self.tokens.find_caller(header)).role, admin_of("new"))
        self.assertEqual(self.client.delete("/accounts/new", role=REMOVER).status, 204)
        self.assertEqual([name for name in self.memory.roles if name.startswith("new:")], [])
        self.assertEqual(self.client.get("/authn/new/.well-known/jwks.json").status, 404)
        self.assertEqual(self.client.post("/authn/new/admin/authenticate", key.encode()).status, 401)
        self.failureResultOf(Deferred.fromCoroutine(self.tokens.find_caller(header)), BearerRefused)
        self.assertEqual(self.client.delete("/accounts/new", role=REMOVER).status, 404)
        self.assertEqual(self.client.get("/accounts", role=READER).json(), ["acme"])
        self.assertEqual(self.make("new").status, 201)

    def test_not_deleted(self) -> None:
        """An account that doesn't exist is 404, and so is the service's own, whatever its admin may (NAME-2, NAME-26)."""
        for name in ("none", "a%2Fb", "%25", RESERVED_ACCOUNT):
            message = self.error(self.client.delete(f"/accounts/{name}", role=OPERATOR), 404, "not_found")
            self.assertIn("Account '", message)
        self.assertEqual(self.client.get("/accounts", role=OPERATOR).json(), ["acme"])

    def test_privileges(self) -> None:
        """Each request takes its own privilege; who lacks it, or is of another account, is 403, with an empty body
        (NAME-19).
        """
        requests: list[tuple[Callable[[RoleName | None], Answer], RoleName]] = [
            (lambda role: self.make(None, role), MAKER),
            (lambda role: self.client.get("/accounts", role=role), READER),
            (lambda role: self.client.delete("/accounts/none", role=role), REMOVER),
        ]
        for ask, allowed in requests:
            for role in (MAKER, READER, REMOVER, EVE, ADMIN, user("gone")):
                answer = ask(role)
                if role == allowed:
                    self.assertNotIn(answer.status, {401, 403})
                else:
                    self.assertEqual((answer.status, answer.body), (403, b""), role)
            self.assertNotIn(ask(OPERATOR).status, {401, 403})
            self.assertEqual(ask(None).status, 401)

    def test_logged(self) -> None:
        """Accounts that come and go are logged with who did it, and no key is (NAME-28)."""
        with capturedLogs() as events:
            key = self.make("new").json()["api_key"]
            self.client.delete("/accounts/new", role=REMOVER)
        told = [(event["role"], event["does"], event["account"]) for event in events if "does" in event]
        self.assertEqual(told, [("!:user:maker", "made", "new"), ("!:user:remover", "deleted", "new")])
        self.assertNotIn(key, repr(events))

    def test_standby(self) -> None:
        """A standby lists accounts, and neither makes nor deletes any (NAME-27)."""
        self.memory.standby = True
        self.assertEqual(self.client.get("/accounts", role=READER).status, 200)
        self.assertEqual(self.make("new").status, 405)
        self.assertEqual(self.client.delete("/accounts/acme", role=REMOVER).status, 405)


class ConjurAccountsTests(AccountsTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class NoOperatorsTests(WorldCase):
    """Where the service's own account was not made."""

    def test_nobody_may(self) -> None:
        """Nobody makes, lists or deletes accounts over HTTP (NAME-19)."""
        self.assertEqual(self.client.post("/accounts", b"id=new", role=ADMIN).status, 403)
        self.assertEqual(self.client.get("/accounts", role=ADMIN).status, 403)
        self.assertEqual(self.client.delete("/accounts/acme", role=ADMIN).status, 403)
