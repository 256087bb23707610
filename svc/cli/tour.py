"""The quickstart's steps: the service's main job, over HTTP alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

import attrs
import click

from svc.cli.connection import ApiAnswer
from svc.cli.provider import Provider
from svc.cli.steps import Steps, Token

#: The ``<service-id>`` of the sample policies' authenticators.
SERVICE_ID: Final = "quickstart"

#: The ``aud`` that their tokens must carry.
AUDIENCE: Final = "svc-quickstart"

#: The variable that workloads read, and its value.
SECRET: Final = "workloads/database/password"
VALUE: Final = "correct horse battery staple"

_AUTHENTICATOR: Final = f"svc/authn-jwt/{SERVICE_ID}"


@attrs.frozen
class Tour:
    """A workload with a JWT gets its secret; ``policy`` is in the file ``policy_path``."""

    steps: Steps
    provider: Provider
    keys_uri: str
    admin_key: str = attrs.field(repr=False)
    policy: bytes
    policy_path: str

    async def walk(self) -> Token:
        """Take all steps; return the admin's access token."""
        admin = await self._admin_logs_in()
        await self._policy_is_loaded(admin)
        await self._variables_are_set(admin)
        token = await self._workload_logs_in()
        await self._workload_reads_the_secret(token)
        await self._another_is_refused()
        await self._health_is_asked()
        await self._members_are_listed(admin)
        return admin

    async def _admin_logs_in(self) -> Token:
        self.steps.say("The account's admin exchanges his API key for an access token, which lives for some minutes")
        path = f"/authn/{self.steps.connection.account}/admin/authenticate"
        answer = await self.steps.send("POST", path, self.admin_key.encode(), body_as='"$ADMIN_KEY"', kept_as="ADMIN_TOKEN")
        self.steps.expect(answer, 200)
        return Token("ADMIN_TOKEN", answer.body.decode("ascii", "replace"))

    async def _policy_is_loaded(self, token: Token) -> None:
        self.steps.say("The admin loads a policy: an authenticator, two workloads, a secret, and who may do what")
        await self.steps.load(self.policy, self.policy_path, token)

    async def _variables_are_set(self, token: Token) -> None:
        self.steps.say("The admin says where the JWT provider's keys are and what its tokens must say, and sets the secret")
        values = {
            f"{_AUTHENTICATOR}/jwks-uri": self.keys_uri,
            f"{_AUTHENTICATOR}/issuer": self.provider.issuer,
            f"{_AUTHENTICATOR}/audience": AUDIENCE,
            f"{_AUTHENTICATOR}/token-app-property": "workload",
            f"{_AUTHENTICATOR}/identity-path": "workloads",
            SECRET: VALUE,
        }
        await self.steps.set_variables(values, token)

    async def _workload_logs_in(self) -> Token:
        self.steps.say("The workload `billing` got a JWT from the provider, and exchanges it for an access token")
        answer = await self._present(
            {"workload": "billing", "repository": "acme/billing", "environment": "production"}, "JWT", "TOKEN"
        )
        self.steps.expect(answer, 200)
        return Token("TOKEN", answer.body.decode("ascii", "replace"))

    async def _workload_reads_the_secret(self, token: Token) -> None:
        self.steps.say("With the access token, the workload reads the secret")
        self.steps.expect(await self.steps.send("GET", self.steps.variable(SECRET), None, token), 200, VALUE)

    async def _another_is_refused(self) -> None:
        self.steps.say(
            "The workload `reporting` comes from `staging`, where its policy says `production`: it learns nothing but 401"
        )
        claims = {"workload": "reporting", "repository": "acme/reporting", "environment": "staging"}
        await self.steps.refused(self._present(claims, "OTHER_JWT", ""))

    async def _health_is_asked(self) -> None:
        self.steps.say("Monitoring asks for the server's health, without a login")
        self.steps.expect(await self.steps.send("GET", "/health", None), 200, '"ok"')

    async def _members_are_listed(self, token: Token) -> None:
        self.steps.say("An operator asks who may use the authenticator: the members of its group `apps`")
        group = self.steps.connection.segment(f"{_AUTHENTICATOR}/apps")
        path = f"/roles/{self.steps.connection.account}/group/{group}?members"
        self.steps.expect(await self.steps.send("GET", path, None, token), 200, "workloads/jwt-apps")

    async def _present(self, claims: Mapping[str, str], jwt_name: str, token_name: str) -> ApiAnswer:
        connection = self.steps.connection
        jwt = self.provider.token(claims, AUDIENCE, connection.wall.seconds())
        click.echo(f"  The JWT says {json.dumps(claims)}.")
        click.echo("  " + click.style(f"{jwt_name}={jwt}", fg="cyan"))
        path = f"/authn-jwt/{SERVICE_ID}/{connection.account}/authenticate"
        body = urlencode({"jwt": jwt}).encode()
        return await self.steps.send("POST", path, body, body_as=f'"jwt=${jwt_name}"', kept_as=token_name)
