"""The quickstart's steps: the service's main job, over HTTP alone; and those for the cloud, where a workload with
nothing but the identity of its machine gets its secret.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlencode

import attrs
import click

from svc.cli.connection import ApiAnswer
from svc.cli.platform import METADATA_PATH, Identity, Platform
from svc.cli.provider import Provider
from svc.cli.quickstart_steps import Steps, Token
from svc.workload.faults import Fault
from svc.workload.metadata import Metadata

#: The ``<service-id>`` of the sample policies' authenticators.
SERVICE_ID: Final = "quickstart"

#: The ``aud`` that their tokens must carry.
AUDIENCE: Final = "svc-quickstart"

#: The variable that workloads read, and its value.
SECRET: Final = "workloads/database/password"
VALUE: Final = "correct horse battery staple"

_AUTHENTICATOR: Final = f"svc/authn-jwt/{SERVICE_ID}"

#: The virtual machine of the sample policy's host ``shop``, on the stand-in for the platform.
MACHINE: Final = Identity(
    "/subscriptions/0a6fc1d2-0000-4000-8000-000000000001/resourcegroups/shop-production"
    "/providers/Microsoft.Compute/virtualMachines/shop-1",
    "7c1e42b9-0000-4000-8000-000000000002",
)

_CLOUD_AUTHENTICATOR: Final = f"svc/authn-cloud/{SERVICE_ID}"


@attrs.frozen
class Tour:
    """A workload with a JWT gets its secret; ``policy`` is in the file ``policy_path``.

    ``next_round`` waits until the server's checks have had another round.
    """

    steps: Steps
    provider: Provider
    keys_uri: str
    admin_key: str = attrs.field(repr=False)
    policy: bytes
    policy_path: str
    next_round: Callable[[], Awaitable[None]]

    async def run_steps(self) -> Token:
        """Take all steps; return the admin's access token."""
        steps, account = self.steps, self.steps.connection.account
        steps.begin_step("The account's admin exchanges the API key for an access token, which lives for some minutes")
        path, key = f"/authn/{account}/admin/authenticate", self.admin_key.encode()
        answer = await steps.send_request("POST", path, key, body_as='"$ADMIN_KEY"', kept_as="ADMIN_TOKEN")
        steps.expect_answer(answer, 200)
        admin = Token("ADMIN_TOKEN", answer.body.decode("ascii", "replace"))
        steps.begin_step("The admin loads a policy: an authenticator, two workloads, a secret, and who may do what")
        await steps.load_policy(self.policy, self.policy_path, admin)
        steps.begin_step(
            "The admin says where the JWT provider's keys are and what its tokens must say, and sets the secret"
        )
        values = {
            f"{_AUTHENTICATOR}/jwks-uri": self.keys_uri,
            f"{_AUTHENTICATOR}/issuer": self.provider.issuer,
            f"{_AUTHENTICATOR}/audience": AUDIENCE,
            f"{_AUTHENTICATOR}/token-app-property": "workload",
            f"{_AUTHENTICATOR}/identity-path": "workloads",
            SECRET: VALUE,
        }
        await steps.set_variables(values, admin)
        steps.begin_step("The workload `billing` got a JWT from the provider, and exchanges it for an access token")
        claims = {"workload": "billing", "repository": "acme/billing", "environment": "production"}
        answer = await self._present_jwt(claims, "JWT", "TOKEN")
        steps.expect_answer(answer, 200)
        token = Token("TOKEN", answer.body.decode("ascii", "replace"))
        steps.begin_step("With the access token, the workload reads the secret")
        steps.expect_answer(await steps.send_request("GET", steps.variable_path(SECRET), None, token), 200, VALUE)
        steps.begin_step(
            "The workload `reporting` comes from `staging`, where its policy says `production`: it learns nothing but 401"
        )
        claims = {"workload": "reporting", "repository": "acme/reporting", "environment": "staging"}
        await steps.expect_refusal(self._present_jwt(claims, "OTHER_JWT", ""))
        steps.begin_step("Monitoring asks for the server's health, without a login")
        health = await steps.send_request("GET", "/health", None)
        if health.status != 200:
            # On a machine that is busy a round of checks may have been late, which is no fault of the server.
            click.echo("  A check has failed, or was late: the next round is waited for, once.")
            await self.next_round()
            health = await steps.send_request("GET", "/health", None)
        steps.expect_answer(health, 200, '"ok"')
        steps.begin_step("An operator asks who may use the authenticator: the members of its group `apps`")
        path = steps.connection.encode_path("roles", account, "group", f"{_AUTHENTICATOR}/apps") + "?members"
        steps.expect_answer(await steps.send_request("GET", path, None, admin), 200, "workloads/jwt-apps")
        return admin

    async def _present_jwt(self, claims: Mapping[str, str], jwt_name: str, token_name: str) -> ApiAnswer:
        connection = self.steps.connection
        jwt = self.provider.sign_token(claims, AUDIENCE, connection.wall.seconds())
        click.echo(f"  The JWT says {json.dumps(claims)}.")
        click.echo("  " + click.style(f"{jwt_name}={jwt}", fg="cyan"))
        path, body = f"/authn-jwt/{SERVICE_ID}/{connection.account}/authenticate", urlencode({"jwt": jwt}).encode()
        return await self.steps.send_request("POST", path, body, body_as=f'"jwt=${jwt_name}"', kept_as=token_name)


@attrs.frozen
class CloudTour:
    """A virtual machine logs in; ``metadata`` is what it asks at the ``platform``, whose address is ``base``.

    ``policy`` is in the file ``policy_path``.
    """

    steps: Steps
    platform: Platform
    base: str
    metadata: Metadata
    policy: bytes
    policy_path: str

    async def run_steps(self, admin: Token) -> None:
        """Take all steps."""
        self.steps.begin_step(
            "The admin loads another policy: a cloud authenticator, and two workloads by the resources they are"
        )
        await self.steps.load_policy(self.policy, self.policy_path, admin)
        self.steps.begin_step("The admin says which tenant's tokens are accepted, and for whom they must be made")
        values = {
            f"{_CLOUD_AUTHENTICATOR}/provider-uri": self.platform.issuer_url(self.base),
            f"{_CLOUD_AUTHENTICATOR}/audience": AUDIENCE,
        }
        await self.steps.set_variables(values, admin)
        self.steps.begin_step("A virtual machine asks the metadata service of its platform for an identity token")
        query = urlencode({"api-version": "2018-02-01", "resource": AUDIENCE})
        asking = shlex.join(["curl", "-sS", "-H", "Metadata: true", f"{self.base}{METADATA_PATH}?{query}"])
        click.echo("  " + click.style(asking, fg="cyan"))
        try:
            identity = await self.metadata.token()
        except Fault as fault:
            self.steps.record_mismatch(f"expected a token: {fault}")
            return
        claims = {"xms_mirid": MACHINE.resource_id, "oid": MACHINE.object_id}
        click.echo(f"  Its field access_token is a JWT that says {json.dumps(claims)}.")
        click.echo("  " + click.style(f"IDENTITY={identity}", fg="cyan"))
        self.steps.begin_step("The machine exchanges it for an access token, as the host `cloud-workloads/shop`")
        answer = await self._present_identity(identity, "shop", "CLOUD_TOKEN")
        self.steps.expect_answer(answer, 200)
        token = Token("CLOUD_TOKEN", answer.body.decode("ascii", "replace"))
        self.steps.begin_step("With the access token, the machine reads the secret")
        self.steps.expect_answer(
            await self.steps.send_request("GET", self.steps.variable_path(SECRET), None, token), 200, VALUE
        )
        self.steps.begin_step("As the host `warehouse`, which is of another resource group, it learns nothing but 401")
        await self.steps.expect_refusal(self._present_identity(identity, "warehouse", ""))

    async def _present_identity(self, identity: str, host: str, kept_as: str) -> ApiAnswer:
        account = self.steps.connection.account
        path = f"/authn-cloud/{SERVICE_ID}/{account}/host%2Fcloud-workloads%2F{host}/authenticate"
        body = urlencode({"jwt": identity}).encode()
        return await self.steps.send_request("POST", path, body, body_as='"jwt=$IDENTITY"', kept_as=kept_as)
