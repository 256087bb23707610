"""What operators do with an authenticator, on a whole server with a provider on real sockets."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.integration.client import Answer, Api, KeySetSite, workload_token
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerTestCase, beat

#: What :data:`tests.integration.client.POLICY` has not: operators, and one of them.
OPERATORS = b"""
- !user olivia
- !user eve
- !webservice svc/authn-jwt/ci/status
- !permit { role: !user olivia, privileges: [ read ], resource: !webservice svc/authn-jwt/ci/status }
- !permit { role: !user olivia, privileges: [ read, update ], resource: !webservice svc/authn-jwt/ci }
"""

PATH = "/authn-jwt/ci/acme"


class OperatorTests(PostgresTestCase, ServerTestCase):
    """An operator, and the workloads that feel what the operator does."""

    skip = unavailable()
    timeout = 300

    async def prepare(self) -> None:
        """Start a server with an authenticator, whose operator is Olivia."""
        await super().prepare()
        self.provider = KeySetSite(self)
        server = self.serve(
            "--account=acme",
            "--authenticators=authn,authn-jwt/ci",
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            database_url=await self.create_database(migrated=False),
        )
        self.api = Api.of(self, await server.ready())
        self.admin = await self.api.set_up(server.admin_key(), self.provider.uri)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", OPERATORS, self.admin)
        keys = {role: made["api_key"] for role, made in loaded.json()["created_roles"].items()}
        self.olivia = await self.api.authenticate("olivia", keys["acme:user:olivia"])
        self.eve = await self.api.authenticate("eve", keys["acme:user:eve"])

    async def ask(self, method: str, rest: str, body: bytes | None = None, status: int = 200, token: str = "") -> Answer:
        """Ask as the operator, or with another token; the answer must have this status."""
        answer = await self.api.ask(method, f"{PATH}{rest}", body, token or self.olivia)
        self.assertEqual(answer.status, status, answer)
        return answer

    async def log_in(self, status: int) -> None:
        """Have the workload log in; the answer must have this status."""
        self.assertEqual((await self.api.present(workload_token())).status, status)

    async def explained(self, **claims: Any) -> Any:
        """How a token is judged."""
        token = workload_token(**claims)
        answer = await self.ask("POST", "/explain", urlencode({"jwt": token}).encode())
        signature = token.rpartition(b".")[2]
        self.assertNotIn(signature, answer.body)
        return answer.json()

    async def test_an_operators_day(self) -> None:
        """Status, explanations, switches, distrusted and refreshed keys do what they say, each at once (AUTH-3)."""
        found = (await self.api.ask("GET", "/authenticators")).json()
        self.assertEqual(found["enabled"], ["authn", "authn-jwt/ci"])
        self.assertIn("authn-jwt/ci", found["configured"])
        await self._explanations()
        await self._status()
        await self._switches()
        await self._distrust()
        await self._refreshes()
        await self._strangers()

    async def _explanations(self) -> None:
        admitted = await self.explained()
        self.assertEqual((admitted["admitted"], admitted["role"]), (True, "acme:host:apps/shop"))
        self.assertEqual({step["outcome"] for step in admitted["steps"]}, {"passed"})
        refused = await self.explained(branch="other")
        self.assertFalse(refused["admitted"])
        failed = [step for step in refused["steps"] if step["outcome"] == "failed"]
        self.assertEqual([step["reason"] for step in failed], ["claim-mismatch"])
        self.assertEqual((await self.explained(exp=1))["steps"][-1]["outcome"], "not reached")
        too_large = urlencode({"jwt": "x" * 20_000}).encode()
        await self.ask("POST", "/explain", too_large, 413)

    async def _status(self) -> None:
        status = (await self.ask("GET", "/status")).json()
        self.assertEqual((status["status"], status["problems"]), ("ok", []))
        keys = status["keys"]
        self.assertEqual((keys["source"], keys["uri"]), ("jwks-uri", self.provider.uri))
        self.assertEqual((keys["last_fetch"]["outcome"], keys["count"]), ("ok", len(keys["ids"])))
        self.assertIn("k1", keys["ids"])
        self.assertLess(keys["age"], 300)

    async def _switches(self) -> None:
        await self.log_in(200)
        await self.ask("PATCH", "", b"enabled=false", 204)
        await self.log_in(401)
        self.assertEqual((await self.api.ask("GET", "/authenticators")).json()["enabled"], ["authn"])
        self.assertEqual((await self.ask("GET", "/status", status=500)).json()["status"], "error")
        await self.ask("PATCH", "", b"enabled=true", 204)
        await self.log_in(200)

    async def _distrust(self) -> None:
        await self.ask("PUT", "/distrusted-keys/k1", status=204)
        await self.log_in(401)
        reasons = [step["reason"] for step in (await self.explained())["steps"]]
        self.assertIn("key-distrusted", reasons)
        # No key is left, which is a fault.
        [distrusted] = (await self.ask("GET", "/status", status=500)).json()["distrusted"]
        self.assertEqual((distrusted["key"], distrusted["by"]), ("k1", "acme:user:olivia"))
        await self.ask("DELETE", "/distrusted-keys/k1", status=204)
        await self.ask("DELETE", "/distrusted-keys/k1", status=404)
        await self.log_in(200)

    async def _refreshes(self) -> None:
        before = self.provider.asked
        keys = (await self.ask("POST", "/refresh-keys")).json()["keys"]
        self.assertEqual((keys["last_fetch"]["outcome"], self.provider.asked), ("ok", before + 1))
        await self.log_in(200)
        self.assertEqual(self.provider.asked, before + 1)

    async def _strangers(self) -> None:
        for method, rest, status in (
            ("GET", "/status", 403),
            ("POST", "/explain", 403),
            ("POST", "/refresh-keys", 403),
            ("PATCH", "", 403),
            ("PUT", "/distrusted-keys/k1", 404),
        ):
            await self.ask(method, rest, b"", status, self.eve)
        self.assertEqual((await self.api.ask("GET", f"{PATH}/status")).status, 401)


class ListTests(PostgresTestCase, ServerTestCase):
    """A server of several processes whose file of settings lists no authenticator at first."""

    skip = unavailable()
    timeout = 300

    async def test_read_again(self) -> None:
        """After ``SIGHUP`` all processes admit at an authenticator that a pattern of the file permits, and after another
        one with a file that is no TOML they still do; the start names what nothing lists (CFG-90, CFG-91, CFG-92).
        """
        provider, path = KeySetSite(self), Path(self.mktemp()).resolve()
        path.write_text("allow_http_providers = true\n")
        database_url = await self.create_database(migrated=False)
        options = ("--account=acme", f"--config={path}", "--allow-private-providers=127.0.0.0/8", "--processes=2")
        server = self.serve(*options, database_url=database_url)
        api = Api.of(self, await server.ready())
        await api.set_up(server.admin_key(), provider.uri)
        self.assertEqual((await api.present(workload_token())).status, 401)
        self.assertNotIn("doesn't list", server.said)

        path.write_text('allow_http_providers = true\nauthenticators = ["authn", "authn-jwt/*"]\n')
        server.signal(signal.SIGHUP)
        await server.says("it also has authn-jwt/*")
        while (await api.ask("GET", "/authenticators")).json()["enabled"] == ["authn"]:
            await beat()
        admitted = 0
        while admitted < 20:  # in a row, by whichever process
            admitted = admitted + 1 if (await api.present(workload_token())).status == 200 else 0

        path.write_text("authenticators = [")
        server.signal(signal.SIGHUP)
        await server.says("the one before stays")
        for _ in range(10):
            self.assertEqual((await api.present(workload_token())).status, 200)
        await server.stop()

        path.write_text("allow_http_providers = true\n")
        again = self.serve(*options, database_url=database_url)
        await again.ready()
        await again.says("Policy defines authn-jwt/ci, which the setting authenticators doesn't list")
