"""The newer interface on one server, with ``svc`` as a real process, as a team uses it that moves over (NEWER-1)."""

from __future__ import annotations

import json
from typing import Any

from svc.web.http.refusal_responses import V2
from tests.integration.client import CLAIMS, Api, KeySetSite, workload_token
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerTestCase

HOST = """
- !host
  id: shop
  annotations: { authn-jwt/new/project: acme/shop }
- !variable password
- !permit { role: !group readers, privileges: [ read, execute ], resource: !variable password }
"""


class NewerInterfaceTests(ServerTestCase, PostgresTestCase):
    """One server of the dialect ``conjur``, whose clients are told a newer version."""

    skip = unavailable()

    async def prepare(self) -> None:
        """Start it, with a provider beside it."""
        await super().prepare()
        self.provider = KeySetSite(self)
        server = self.serve(
            "--account=acme",
            "--dialect=conjur",
            "--conjur-version=1.29.0",
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            "--jwks-refetch-interval=0",
            database_url=await self.create_database(migrated=False),
        )
        self.api = Api.of(self, await server.ready())
        self.admin = await self.api.authenticate("admin", server.admin_key())

    async def ask(self, status: int, method: str, path: str, document: object = None) -> Any:
        """Send a request of the newer interface, which must have this answer; return its document."""
        body = None if document is None else json.dumps(document).encode()
        answer = await self.api.ask(method, path, body, self.admin, Accept=V2)
        self.assertEqual(answer.status, status, (method, path, answer.body))
        return answer.json() if answer.body else None

    async def login(self, status: int) -> str:
        """Log in as the workload, which must have this answer, and return its access token."""
        answer = await self.api.present(workload_token(), "new")
        self.assertEqual(answer.status, status, answer)
        return answer.body.decode()

    async def test_moving_over(self) -> None:
        """A branch, groups, an authenticator and memberships are made, used, changed and deleted; logins and reads, which
        are remembered, follow each change at once (NEWER-6, CLU-31).
        """
        info = (await self.api.ask("GET", "/info", None, self.admin)).json()
        self.assertEqual(info["services"]["possum"]["version"], "1.29.0")
        answer = await self.api.ask("POST", "/policies/acme/policy/root", b"- !policy conjur/authn-jwt", self.admin)
        self.assertEqual(answer.status, 201, answer)
        await self.ask(201, "POST", "/branches/acme", {"name": "apps", "branch": "/", "annotations": {"team": "red"}})
        await self.ask(201, "POST", "/groups/acme", {"name": "readers", "branch": "apps"})
        answer = await self.api.ask("POST", "/policies/acme/policy/apps", HOST.encode(), self.admin)
        self.assertEqual(answer.status, 201, answer)
        answer = await self.api.ask("POST", self.api.variable("apps/password"), b"s3cret", self.admin)
        self.assertEqual(answer.status, 201, answer)
        identity = {"token_app_property": "app", "identity_path": "apps"}
        data = {"jwks_uri": self.provider.uri, "issuer": CLAIMS["iss"], "audience": CLAIMS["aud"], "identity": identity}
        made = await self.ask(201, "POST", "/authenticators/acme", {"type": "jwt", "name": "new", "data": data})
        self.assertEqual((made["data"], made["enabled"]), (data, True))

        member = {"kind": "host", "id": "apps/shop"}
        apps = "/groups/acme/conjur/authn-jwt/new/apps/members"
        await self.login(403)
        await self.ask(201, "POST", apps, member)
        token = await self.login(200)
        self.assertEqual((await self.api.ask("GET", self.api.variable("apps/password"), None, token)).status, 404)
        await self.ask(201, "POST", "/groups/acme/apps/readers/members", member)
        read = await self.api.ask("GET", self.api.variable("apps/password"), None, token)
        self.assertEqual((read.status, read.body), (200, b"s3cret"))
        await self.ask(204, "DELETE", "/groups/acme/apps/readers/members/host/apps/shop")
        self.assertEqual((await self.api.ask("GET", self.api.variable("apps/password"), None, token)).status, 404)

        await self.ask(200, "PATCH", "/authenticators/acme/jwt/new", {"enabled": False})
        await self.login(401)
        await self.ask(200, "PATCH", "/authenticators/acme/jwt/new", {"enabled": True})
        await self.login(200)
        await self.ask(200, "PATCH", "/branches/acme/apps", {"annotations": {"team": "blue"}})
        found = await self.ask(200, "GET", "/branches/acme?limit=1")
        self.assertEqual(
            (found["count"], found["branches"][0]["annotations"]),
            (2, {"team": "blue"}),
            "the authenticator's policy is a branch, too",
        )
        self.assertEqual(len((await self.ask(200, "GET", "/groups/acme"))["groups"]), 3)
        await self.ask(200, "GET", "/groups/acme/apps/readers/members")
        effective = await self.api.ask("GET", "/policies/acme/policy/root", None, self.admin)
        again = await self.api.ask("PATCH", "/policies/acme/policy/root", effective.body, self.admin)
        self.assertEqual((again.status, again.json()["created_roles"]), (201, {}))
        await self.login(200)

        await self.ask(204, "DELETE", "/authenticators/acme/jwt/new")
        await self.login(401)
        await self.ask(404, "GET", "/authenticators/acme/jwt/new")
        await self.ask(204, "DELETE", "/branches/acme/apps")
        self.assertEqual((await self.ask(200, "GET", "/branches/acme"))["count"], 0)
        whoami = await self.api.ask("GET", "/whoami", None, token)
        self.assertEqual(whoami.status, 403)
