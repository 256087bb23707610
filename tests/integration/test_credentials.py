"""Passwords, API keys and guessing, on a whole server, over real sockets and from the command line."""

from __future__ import annotations

import base64
import time
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from tests.integration.client import Answer, Api
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerProcess
from tests.integration.test_cli import CommandTestCase

PASSWORD = "My-Password-1"
OTHER = "Another-Password-2"

POLICY = b"""
- !user alice
- !user bob
- !host { id: near, restricted_to: [ 127.0.0.1, 192.0.2.0/24 ] }
- !host { id: far, restricted_to: 192.0.2.0/24 }
- !permit { role: !user alice, privileges: [ read, update ], resource: !user bob }
"""


def basic(login: str, password: str) -> str:
    """The header of HTTP Basic credentials."""
    return "Basic " + base64.b64encode(f"{login}:{password}".encode()).decode()


class CredentialsTests(PostgresTestCase, CommandTestCase):
    """One server, and those who log in to it."""

    skip = unavailable()

    async def begin(self, *options: str) -> ServerProcess:
        """Start a server with the policy; ``keys`` are the API keys of its roles."""
        server = self.serve("--account=acme", *options, database_url=await self.create_database(migrated=False))
        self.api = Api.of(self, await server.ready())
        self.admin = await self.api.authenticate("admin", server.admin_key())
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", POLICY, self.admin)
        self.keys = {name.removeprefix("acme:"): made["api_key"] for name, made in loaded.json()["created_roles"].items()}
        return server

    async def ask(self, method: str, route: str, login: str, secret: str, body: bytes | None = None) -> Answer:
        """Ask with HTTP Basic credentials."""
        return await self.api.ask(method, f"/authn/acme/{route}", body, Authorization=basic(login, secret))

    def begun(self, *arguments: Any) -> Deferred[Answer]:
        """Begin to ask."""
        return Deferred.fromCoroutine(self.ask(*arguments))

    async def test_a_life_of_credentials(self) -> None:
        """A password is chosen, changed and used; keys are rotated by their owners and by who may; none is logged."""
        server = await self.begin()
        key = self.keys["user:alice"]
        self.assertEqual((await self.ask("PUT", "password", "alice", key, PASSWORD.encode())).status, 204)
        self.assertEqual((await self.ask("GET", "login", "alice", PASSWORD)).body, key.encode())
        weak = await self.ask("PUT", "password", "alice", PASSWORD, b"weak")
        self.assertEqual((weak.status, weak.json()["error"]["details"][0]["target"]), (422, "password"))
        self.assertEqual((await self.ask("PUT", "password", "alice", PASSWORD, OTHER.encode())).status, 204)
        self.assertEqual((await self.ask("GET", "login", "alice", PASSWORD)).status, 401)

        never = (await self.ask("GET", "api_key", "alice", OTHER)).json()
        self.assertEqual(never, {"role": "acme:user:alice", "timestamp": ""})
        new = (await self.ask("PUT", "api_key", "alice", OTHER)).body.decode()
        self.assertRegex((await self.ask("GET", "api_key", "alice", new)).json()["timestamp"], r"\A20[-0-9]{8}T[0-9:]{8}Z\Z")
        self.assertEqual((await self.ask("GET", "login", "alice", key)).status, 401)
        alice = await self.api.authenticate("alice", new)

        bobs = await self.api.ask("PUT", "/authn/acme/api_key?role=user:bob", None, alice)
        await self.api.authenticate("bob", bobs.body.decode())
        own = await self.api.ask("PUT", "/authn/acme/api_key", None, alice)
        self.assertEqual(own.json()["error"]["message"], "Credential strength is insufficient")
        unseen = await self.api.ask("PUT", "/authn/acme/api_key?role=user:admin", None, alice)
        self.assertEqual(unseen.status, 404)

        await self.api.authenticate("host/near", self.keys["host:near"])
        far = await self.api.ask("POST", "/authn/acme/host%2Ffar/authenticate", self.keys["host:far"].encode())
        self.assertEqual((far.status, far.body), (401, b""))
        await server.says("origin-refused")
        self.assertEqual((await self.ask("GET", "login", "host/far", self.keys["host:far"])).status, 200)
        for secret in (PASSWORD, OTHER, key, new, bobs.body.decode()):
            self.assertNotIn(secret, server.said)
        self.assertEqual(await server.stop(), 0)

    async def test_made_again(self) -> None:
        """A token of a role that was deleted and made again is 401 wherever it is shown; one of the new role is good
        (TOK-31).
        """
        await self.begin()
        policy, key = "/policies/acme/policy/root", self.keys["user:alice"]
        old = await self.api.authenticate("alice", key)
        self.assertEqual((await self.api.ask("GET", "/whoami", None, old)).status, 200)
        await self.api.ask("PATCH", policy, b"- !delete { record: !user alice }", self.admin)
        self.assertEqual((await self.api.ask("GET", "/whoami", None, old)).status, 403)
        made = await self.api.ask("PATCH", policy, POLICY, self.admin)
        new = await self.api.authenticate("alice", made.json()["created_roles"]["acme:user:alice"]["api_key"])
        for path, status in (("/whoami", 200), ("/resources/acme", 200), ("/secrets/acme/variable/none", 404)):
            refused = await self.api.ask("GET", path, None, old)
            self.assertEqual((refused.status, refused.body), (401, b"Unauthorized: Invalid token"))
            self.assertEqual((await self.api.ask("GET", path, None, new)).status, status)

    async def test_many_at_once(self) -> None:
        """Of many that log in with a password at once each is answered, or told to come again, and others go on."""
        server = await self.begin("--login-throttle=off")
        await self.ask("PUT", "password", "alice", self.keys["user:alice"], PASSWORD.encode())
        storm = [self.begun("GET", "login", name, PASSWORD) for name in ("alice", "nobody") * 40]
        self.assertEqual((await self.api.ask("GET", "/whoami", None, self.admin)).status, 200)
        answers = await gatherResults(storm)
        self.assertEqual({answer.status for answer in answers[::2]} | {200, 503}, {200, 503})
        self.assertEqual({answer.status for answer in answers[1::2]} | {401, 503}, {401, 503})
        self.assertIn(200, {answer.status for answer in answers})
        self.assertTrue(all(answer.headers["retry-after"] for answer in answers if answer.status == 503))
        self.assertEqual((await self.ask("GET", "login", "alice", PASSWORD)).status, 200)
        self.assertEqual(await server.stop(), 0)

    async def test_guessing(self) -> None:
        """Failures of a role become slow, but not its logins; a server that stops doesn't wait for those that it holds."""
        server = await self.begin()
        for _ in range(10):
            self.assertEqual((await self.ask("GET", "login", "alice", "wrong")).status, 401)
        held = [self.begun("GET", "login", "alice", "wrong") for _ in range(8)]
        self.assertEqual((await self.ask("GET", "login", "alice", self.keys["user:alice"])).status, 200)
        self.assertFalse(held[-1].called)
        for number in range(290):
            await self.ask("GET", "login", f"stranger-{number}", "wrong")
        refused = await self.ask("GET", "login", "alice", self.keys["user:alice"])
        self.assertEqual((refused.status, refused.body), (429, b""))
        self.assertGreater(int(refused.headers["retry-after"]), 0)
        self.assertEqual((await self.api.ask("GET", "/whoami", None, self.admin)).status, 200)
        header = basic("alice", self.keys["user:alice"])
        proxied = await self.api.ask("GET", "/authn/acme/login", Authorization=header, X_Forwarded_For="198.51.100.7")
        self.assertEqual(proxied.status, 200)
        began = time.monotonic()
        self.assertEqual(await server.stop(), 0)
        self.assertLess(time.monotonic() - began, 25)
        self.assertEqual({answer.status for answer in await gatherResults(held)}, {401})

    async def test_commands(self) -> None:
        """``svc user`` changes a password and rotates keys, and ``svc login`` takes either."""
        await self.begin()
        client = {"SVC_URL": self.api.url, "SVC_ACCOUNT": "acme"}
        alice = {**client, "SVC_LOGIN": "alice", "SVC_API_KEY": self.keys["user:alice"]}
        changed = await self.svc("user", "change-password", given=f"{PASSWORD}\n".encode(), environ=alice)
        self.assertEqual((changed.stdout, changed.stderr), ("", "The password of alice is changed.\n"))
        await self.svc("login", given=f"alice\n{PASSWORD}\n".encode(), environ=client)
        self.assertIn('"alice"', (await self.svc("whoami", environ=client)).stdout)

        file = self.home / "password"
        file.write_text(f"{OTHER}\n")
        line = ("user", "change-password", "--new-password-file", str(file))
        await self.svc(*line, given=f"alice\n{PASSWORD}\n".encode(), environ=client)
        old = await self.svc("login", given=f"alice\n{PASSWORD}\n".encode(), environ=client, code=1)
        self.assertIn("refused the API key or password of alice", old.stderr)
        weak = await self.svc("user", "change-password", given=b"weak\n", environ=alice, code=1)
        self.assertIn("password A password has 12 to 128 characters", weak.stderr)

        rotated = await self.svc("user", "rotate-api-key", given=f"alice\n{OTHER}\n".encode(), environ=client)
        await self.api.authenticate("alice", rotated.stdout.strip())
        self.assertIn("the old one works no more", rotated.stderr)
        bob = await self.svc("user", "rotate-api-key", "--role", "user:bob", environ=client)
        await self.api.authenticate("bob", bob.stdout.strip())
        own = await self.svc("user", "rotate-api-key", "--role", "user:alice", environ=client, code=1)
        self.assertIn("leave --role out", own.stderr)
        hidden = await self.svc("user", "rotate-api-key", "--role", "user:admin", environ=client, code=1)
        self.assertRegex(hidden.stderr, "Role [^ ]+:user:admin is not found")
        host = {**client, "SVC_LOGIN": "host/near", "SVC_API_KEY": self.keys["host:near"]}
        refused = await self.svc("user", "change-password", given=f"{PASSWORD}\n".encode(), environ=host, code=1)
        self.assertIn("only users have a password", refused.stderr)
