"""The quickstart's steps for the cloud: a workload with nothing but the identity of its machine gets its secret."""

from __future__ import annotations

import json
import shlex
from typing import Final
from urllib.parse import urlencode

import attrs
import click

from svc.cli.connection import ApiAnswer
from svc.cli.platform import METADATA_PATH, Identity, Platform
from svc.cli.quickstart_steps import Steps, Token
from svc.cli.quickstart_tour import AUDIENCE, SECRET, SERVICE_ID, VALUE
from svc.workload.faults import Fault
from svc.workload.metadata import Metadata

#: The virtual machine of the sample policy's host ``shop``, on the stand-in for the platform.
MACHINE: Final = Identity(
    "/subscriptions/0a6fc1d2-0000-4000-8000-000000000001/resourcegroups/shop-production"
    "/providers/Microsoft.Compute/virtualMachines/shop-1",
    "7c1e42b9-0000-4000-8000-000000000002",
)

_AUTHENTICATOR: Final = f"svc/authn-cloud/{SERVICE_ID}"


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

    async def walk(self, admin: Token) -> None:
        """Take all steps."""
        self.steps.say("The admin loads another policy: a cloud authenticator, and two workloads by the resources they are")
        await self.steps.load(self.policy, self.policy_path, admin)
        self.steps.say("The admin says which tenant's tokens are accepted, and for whom they must be made")
        values = {f"{_AUTHENTICATOR}/provider-uri": self.platform.issuer(self.base), f"{_AUTHENTICATOR}/audience": AUDIENCE}
        await self.steps.set_variables(values, admin)
        self.steps.say("A virtual machine asks the metadata service of its platform for an identity token")
        query = urlencode({"api-version": "2018-02-01", "resource": AUDIENCE})
        asking = shlex.join(["curl", "-sS", "-H", "Metadata: true", f"{self.base}{METADATA_PATH}?{query}"])
        click.echo("  " + click.style(asking, fg="cyan"))
        try:
            identity = await self.metadata.token()
        except Fault as fault:
            self.steps.missed(f"expected a token: {fault}")
            return
        claims = {"xms_mirid": MACHINE.resource_id, "oid": MACHINE.object_id}
        click.echo(f"  Its field access_token is a JWT that says {json.dumps(claims)}.")
        click.echo("  " + click.style(f"IDENTITY={identity}", fg="cyan"))
        self.steps.say("The machine exchanges it for an access token, as the host `cloud-workloads/shop`")
        answer = await self._present(identity, "shop", "CLOUD_TOKEN")
        self.steps.expect(answer, 200)
        token = Token("CLOUD_TOKEN", answer.body.decode("ascii", "replace"))
        self.steps.say("With the access token, the machine reads the secret")
        self.steps.expect(await self.steps.send("GET", self.steps.variable(SECRET), None, token), 200, VALUE)
        self.steps.say("As the host `warehouse`, which is of another resource group, it learns nothing but 401")
        await self.steps.refused(self._present(identity, "warehouse", ""))

    async def _present(self, identity: str, host: str, kept_as: str) -> ApiAnswer:
        account = self.steps.connection.account
        path = f"/authn-cloud/{SERVICE_ID}/{account}/host%2Fcloud-workloads%2F{host}/authenticate"
        body = urlencode({"jwt": identity}).encode()
        return await self.steps.send("POST", path, body, body_as='"jwt=$IDENTITY"', kept_as=kept_as)
