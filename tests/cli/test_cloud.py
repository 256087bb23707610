"""Tests of ``svc.cli.cloud``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import yaml
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.cloud import format_aws, format_azure, format_google, format_pod
from svc.cli.options import azure_metadata, cloud_evidence
from svc.cli.platform import Identity
from svc.workload.evidence import AwsRole, CloudIdentity, GoogleIdentity, Jwt
from svc.workload.faults import NoIdentity
from svc.workload.machine import Machine
from svc.workload.on_twisted import of_reactor
from tests.cloudplatform import MACHINE, SHARED, Unruly
from tests.workload.test_google import made
from tests.workload.test_kubernetes import CLAIMS
from tests.workload.test_machine import token

BASE = "http://platform.example"


def machine(identity: Identity) -> Machine:
    """A machine of the platform in small."""
    return Machine.of(Unruly(Clock()).sign_token(BASE, identity, "api://svc"))


class SourceTests(SynchronousTestCase):
    """Where identity tokens come from."""

    def test_what_goes_first(self) -> None:
        """``--metadata-url`` goes before the environment, whose header isn't sent there; else that goes first."""
        told = {"IDENTITY_ENDPOINT": "http://192.0.2.1:1/told", "IDENTITY_HEADER": "the-header"}
        usual, by_option, by_environment = b"169.254.169.254", b"192.0.2.2:2", b"192.0.2.1:1"
        for surroundings, url, place in (
            ({}, None, usual),
            (told, None, by_environment),
            ({}, "http://192.0.2.2:2", by_option),
            (told, "http://192.0.2.2:2", by_option),
        ):
            self.patch(os, "environ", surroundings)
            reactor: Any = MemoryReactorClock()
            source = azure_metadata(of_reactor(reactor, 1000), client_id=None, resource="api://svc", metadata_url=url)
            Deferred.fromCoroutine(source.token())
            [(_, _, factory, *_)] = reactor.tcpClients
            transport = StringTransport()
            factory.buildProtocol(None).makeConnection(transport)
            self.assertIn(b"Host: %s\r\n" % place, transport.value())
            self.assertEqual(b"the-header" in transport.value(), place == by_environment)


class InspectTests(SynchronousTestCase):
    """What ``svc cloud inspect`` prints."""

    def test_policy(self) -> None:
        """It is a host in policy, without an API key, ready to paste, under what the platform says of the machine
        (CLI-25).
        """
        text = format_azure(machine(MACHINE), "authn-cloud", 1_700_000_000, as_json=False)
        self.assertIn(f'# resource_id: "{MACHINE.resource_id}"\n', text)
        self.assertIn('# audience: "api://svc"\n# expires_at: "2023-11-14T22:13:20+00:00"\n- !host\n  id: ', text)
        self.assertEqual(
            yaml.safe_load(text.replace("!host", ""))[0]["annotations"],
            {
                "authn/api-key": False,
                "authn-cloud/subscription-id": "11111111-aaaa-4bbb-8ccc-000000000001",
                "authn-cloud/resource-group": "Shop-Production",
                "authn-cloud/system-assigned-identity": MACHINE.object_id,
            },
        )

    def test_user_assigned(self) -> None:
        """A user-assigned identity is named; the annotations begin as the authenticator's do."""
        for authenticator in ("authn-cloud/prod", "authn-azure"):
            text = format_azure(machine(SHARED), authenticator, 0, as_json=False)
            self.assertIn(f"    {authenticator}/user-assigned-identity: shop-backend", text)
            self.assertNotIn("system-assigned", text)

    def test_json(self) -> None:
        """For programs it is JSON (CLI-25)."""
        found = json.loads(format_azure(machine(SHARED), "authn-cloud", 0, as_json=True))
        self.assertEqual(found["object_id"], SHARED.object_id)
        self.assertEqual(found["issuer"], f"{BASE}/5d7a1c3e-0000-4000-8000-000000000001/")
        self.assertEqual(found["annotations"]["authn-cloud/resource-group"], "Shop-Production")

    def test_odd_values(self) -> None:
        """Values that YAML would take for something else, or that would end a line, are quoted."""
        for group in ("yes", "012", "a: b", "- x", "!user evil", "'"):
            odd = Identity(f"/subscriptions/s/resourcegroups/{group}/providers/n/t/x", "oid\n- !user evil")
            loaded = yaml.safe_load(format_azure(machine(odd), "authn-cloud", 0, as_json=False).replace("- !host", "-"))
            self.assertEqual(len(loaded), 1)
            self.assertEqual(loaded[0]["annotations"]["authn-cloud/resource-group"], group)


class OtherCloudsTests(SynchronousTestCase):
    """What it prints on other clouds, and how workloads log in there."""

    def test_google(self) -> None:
        """On Google Cloud it is a host with the annotations that the token matches (CLI-25)."""
        machine = {"compute_engine": {"project_id": "shop", "instance_name": "web-1"}}
        token = made("x", 1, email="a@b.example", google=machine)
        loaded = yaml.safe_load(format_google(token, as_json=False).replace("- !host", "-"))
        annotations = {
            "authn-gcp/service-account-id": "42",
            "authn-gcp/service-account-email": "a@b.example",
            "authn-gcp/project-id": "shop",
            "authn-gcp/instance-name": "web-1",
        }
        self.assertEqual(loaded[0]["annotations"], {"authn/api-key": False, **annotations})
        self.assertEqual(json.loads(format_google(token, as_json=True)), {"annotations": annotations})

    def test_aws(self) -> None:
        """On AWS it is a host whose id ends in account and role; a user can't be one (CLI-25)."""
        self.assertEqual(
            format_aws("arn:x", "1", "web", as_json=False),
            '# arn: "arn:x"\n- !host\n  id: 1/web\n  annotations:\n    authn/api-key: false',
        )
        self.assertEqual(json.loads(format_aws("arn:x", "1", "web", as_json=True)), {"arn": "arn:x", "host": "1/web"})
        self.assertIn("users of AWS", str(self.assertRaises(NoIdentity, format_aws, "arn:x", "1", None, as_json=False)))

    def test_kubernetes(self) -> None:
        """In a pod it is the host that the token names, under what the token says of the pod (CLI-25)."""
        text = format_pod(token(CLAIMS), "authn-jwt/prod", as_json=False)
        self.assertIn('# namespace: "shop"\n', text)
        [host] = yaml.safe_load(text.replace("- !host", "-"))
        self.assertEqual(host["id"], CLAIMS["sub"])
        self.assertEqual(host["annotations"], {"authn/api-key": False, "authn-jwt/prod/sub": CLAIMS["sub"]})
        self.assertEqual(json.loads(format_pod(token(CLAIMS), "x", as_json=True))["pod_name"], "billing-0")

    def test_evidence(self) -> None:
        """Each platform has its evidence; on AWS the server is named by its address unless an option says otherwise."""
        self.patch(os, "environ", {})
        reactor: Any = MemoryReactorClock()
        usual: dict[str, Any] = {"client_id": None, "resource": "x", "metadata_url": None, "region": None}
        usual["token_file"] = Path("/token")

        def evidence(
            platform: str,
            service_id: str | None,
            server_id: str | None = None,
            prefix: str = "svc",
            host: str | None = "host/x",
        ) -> Any:
            more = {**usual, "platform": platform, "server_id": server_id, "audience_prefix": prefix}
            return cloud_evidence(of_reactor(reactor, 1000), "https://svc.example.org:8443/x", service_id, host, **more)

        self.assertIsInstance(evidence("azure", "prod"), CloudIdentity)
        google = evidence("google", None, prefix="conjur")
        self.assertEqual((type(google), google.prefix), (GoogleIdentity, "conjur"))
        for server_id, named in ((None, "svc.example.org"), ("other", "other"), ("", None)):
            role = evidence("aws", "prod", server_id)
            self.assertEqual((type(role), role.server_id), (AwsRole, named))
        self.assertIsInstance(evidence("kubernetes", "k8s", host=None), Jwt)
        for platform, service_id in (("google", "prod"), ("aws", None), ("azure", None), ("kubernetes", None)):
            self.assertRaises(click.UsageError, evidence, platform, service_id)
        for platform, service_id in (("google", None), ("aws", "prod"), ("azure", "prod")):
            self.assertRaises(click.UsageError, evidence, platform, service_id, host=None)
