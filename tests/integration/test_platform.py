"""The cloud platform in small, on sockets: a published client of the real one takes it for that, and ours does."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import treq
from twisted.internet import reactor as installed_reactor
from twisted.internet.interfaces import IReactorTCP, IReactorTime
from twisted.internet.protocol import Factory
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import TestCase
from twisted.web.resource import IResource
from twisted.web.server import Site

import svc
from svc.cli.platform import APP_SERVICE_PATH, IDENTITY_HEADER
from svc.crypto.jws import parse_compact, verify_token
from svc.crypto.key_sets import parse_key_set
from svc.workload.machine import Machine
from svc.workload.metadata import Metadata
from tests.cloudplatform import MACHINE, SHARED, Unruly
from tests.workload.wire import Identified, Service

RESOURCE: Final = "https://management.azure.com"

#: What gets a token by the published client, and prints it with its end.
PUBLISHED: Final = f"""
import json, sys
from azure.identity import ManagedIdentityCredential
options = {{"client_id": sys.argv[1]}} if sys.argv[1:] else {{}}
token = ManagedIdentityCredential(**options).get_token("{RESOURCE}/.default")
print(json.dumps([token.token, token.expires_on]))
"""


class Canary(Factory):
    """A proxy that nobody may use: it hangs up, and counts its ``visitors``."""

    noisy = False
    visitors = 0

    def buildProtocol(self, addr: object) -> None:
        """Hang up."""
        self.visitors += 1


class PlatformCase(TestCase):
    """A platform on a port of its own, and a proxy that nobody may use."""

    timeout = 600

    def setUp(self) -> None:
        """Start both."""
        self.platform = Unruly(IReactorTime(installed_reactor))
        self.base = self.serve(self.platform.build_app().resource())
        self.canary = Canary()
        self.proxy = f"http://127.0.0.1:{self.listen(self.canary)}"

    def serve(self, application: IResource) -> str:
        """Serve an application, and return its address."""
        site: Any = Site(application)
        site.noisy, site.log = False, lambda request: None
        return f"http://127.0.0.1:{self.listen(site)}"

    def listen(self, factory: Any) -> int:
        """Listen until the test ends; return the port."""
        port: Any = IReactorTCP(installed_reactor).listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        number: int = port.getHost().port
        return number

    @property
    def app_service(self) -> dict[str, str]:
        """The environment of an app service."""
        return {"IDENTITY_ENDPOINT": f"{self.base}{APP_SERVICE_PATH}", "IDENTITY_HEADER": IDENTITY_HEADER}

    async def python(self, *arguments: str, environ: Mapping[str, str]) -> tuple[str, str, int]:
        """Run Python; return its output, its errors and its exit code."""
        surroundings = {
            "PYTHONPATH": str(Path(svc.__file__).resolve().parent.parent),
            "PATH": os.defpath,
            "HOME": str(Path(self.mktemp()).resolve()),
            **environ,
        }
        out, err, code = await getProcessOutputAndValue(sys.executable, arguments, surroundings)
        return out.decode(), err.decode(), code


class PublishedClientTests(PlatformCase):
    """``azure-identity`` against the platform in small."""

    async def published(self, *arguments: str, environ: Mapping[str, str]) -> tuple[str, float]:
        """Get a token and its end."""
        out, err, code = await self.python("-c", PUBLISHED, *arguments, environ=environ)
        self.assertEqual(code, 0, err)
        token, ends_at = json.loads(out)
        return token, ends_at

    async def test_virtual_machines(self) -> None:
        """It gets tokens of both kinds of identity from the metadata service, throttled too, and their end is theirs."""
        at_machine = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": self.base}
        self.platform.troubles = [429, 500]
        token, ends_at = await self.published(environ=at_machine)
        self.assertEqual(Machine.of(token).resource_id, MACHINE.resource_id)
        self.assertApproximates(ends_at, IReactorTime(installed_reactor).seconds() + 3600, 300)
        token, _ = await self.published(str(SHARED.client_id), environ=at_machine)
        self.assertEqual(Machine.of(token).user_assigned_identity, "shop-backend")
        out, err, code = await self.python("-c", PUBLISHED, "none", environ=at_machine)
        self.assertEqual((out, code), ("", 1))
        self.assertIn("Identity not found", err)

    async def test_app_services(self) -> None:
        """It gets tokens of both kinds of identity from the endpoint that the environment names."""
        token, ends_at = await self.published(environ=self.app_service)
        self.assertEqual(Machine.of(token).resource_id, MACHINE.resource_id)
        self.assertApproximates(ends_at, IReactorTime(installed_reactor).seconds() + 3600, 300)
        token, _ = await self.published(str(SHARED.client_id), environ=self.app_service)
        self.assertEqual(Machine.of(token).user_assigned_identity, "shop-backend")
        self.assertEqual({request.path.decode() for request in self.platform.asked}, {APP_SERVICE_PATH})


class OwnClientTests(PlatformCase):
    """``svc.workload.metadata`` and ``svc cloud inspect`` against the platform in small."""

    async def test_tokens_verify_by_discovery(self) -> None:
        """A token verifies with the keys that its issuer's discovery document leads to."""
        source = Metadata.of(installed_reactor, resource="api://svc", base_url=self.base)
        token = await source.token()
        issuer = Machine.of(token).issuer
        document = await (await treq.get(f"{issuer}.well-known/openid-configuration", persistent=False)).json()
        self.assertEqual(document["issuer"], issuer)
        keys = await treq.content(await treq.get(document["jwks_uri"], persistent=False))
        claims = verify_token(parse_key_set(keys), parse_compact(token.encode()))
        self.assertEqual((claims["aud"], claims["oid"]), ("api://svc", MACHINE.object_id))

    async def test_inspect(self) -> None:
        """``svc cloud inspect`` asks no proxy, waits throttling out, and prints annotations but no token (CLI-25)."""
        proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), self.proxy)
        command = ("-c", "from svc.cli.main import main; main()", "cloud", "inspect")
        self.platform.troubles = [429, 404]
        out, err, code = await self.python(*command, "--metadata-url", self.base, environ=proxies)
        self.assertEqual(code, 0, err)
        self.assertIn("\n    authn-cloud/resource-group: Shop-Production\n", out)
        self.assertNotIn("eyJ", out + err)
        out, err, code = await self.python(
            *command, "--json", "--client-id", str(SHARED.client_id), environ={**proxies, **self.app_service}
        )
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["annotations"]["authn-cloud/user-assigned-identity"], "shop-backend")
        out, err, code = await self.python(*command, "--client-id=none", "--metadata-url", self.base, environ=proxies)
        self.assertEqual((out, code), ("", 1))
        self.assertRegex(err, r"\AError: identity none not found on this machine \(status 400: Identity not found\): ")
        out, err, code = await self.python(*command, "--timeout=1", "--metadata-url=http://127.0.0.1:1", environ=proxies)
        self.assertEqual((out, code), ("", 1))
        self.assertIn("is this a machine of the platform", err)
        self.assertEqual(self.canary.visitors, 0)

    async def test_logging_in(self) -> None:
        """``svc authenticate cloud`` and ``svc run --cloud`` present the machine's token, at the path of the host
        (CLI-11).
        """
        service = Service(IReactorTime(installed_reactor), {"acme:variable:apps/password": b"s3cret"})
        environ = {"SVC_URL": self.serve(Identified(service.site().resource())), "SVC_ACCOUNT": "acme", **self.app_service}
        command = ("-c", "from svc.cli.main import main; main()")
        who = ("--host", "host/apps/shop", "--resource", "api://svc")
        out, err, code = await self.python(*command, "authenticate", "cloud", "prod", *who, environ=environ)
        self.assertEqual((out.strip() in service.valid, code), (True, 0), err)
        mapping = Path(self.mktemp()).resolve()
        mapping.write_text("A: apps/password")
        as_shared = ("--cloud", "--service-id", "authn-azure/prod", "--client-id", str(SHARED.client_id), *who)
        out, err, code = await self.python(*command, "run", "-f", str(mapping), *as_shared, "printenv", "A", environ=environ)
        self.assertEqual((out, code), ("s3cret\n", 0), err)
        paths, bodies = zip(*service.logins, strict=True)
        end = "/prod/acme/host%2Fapps%2Fshop/authenticate"
        self.assertEqual(paths, (f"/authn-cloud{end}", f"/authn-azure{end}"))
        machines = [Machine.of(parse_qs(body.decode())["jwt"][0]) for body in bodies]
        self.assertEqual([machine.resource_id for machine in machines], [MACHINE.resource_id, SHARED.resource_id])
        self.assertEqual({machine.audience for machine in machines}, {"api://svc"})
