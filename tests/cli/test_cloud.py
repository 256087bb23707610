"""Tests of ``svc.cli.cloud``."""

from __future__ import annotations

import json
import os
from typing import Any

import yaml
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.cloud import shown
from svc.cli.options import metadata
from svc.cli.platform import Identity
from svc.workload.machine import Machine
from tests.cloudplatform import MACHINE, SHARED, Unruly

BASE = "http://platform.example"


def machine(identity: Identity) -> Machine:
    """A machine of the platform in small."""
    return Machine.of(Unruly(Clock()).token(BASE, identity, "api://svc"))


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
            source = metadata(reactor, client_id=None, resource="api://svc", metadata_url=url)
            Deferred.fromCoroutine(source.token())
            [(_, _, factory, *_)] = reactor.tcpClients
            transport = StringTransport()
            factory.buildProtocol(None).makeConnection(transport)
            self.assertIn(b"Host: %s\r\n" % place, transport.value())
            self.assertEqual(b"the-header" in transport.value(), place == by_environment)


class InspectTests(SynchronousTestCase):
    """What ``svc cloud inspect`` prints."""

    def test_policy(self) -> None:
        """It is a host in policy, ready to paste, under what the platform says of the machine (CLI-25)."""
        text = shown(machine(MACHINE), "authn-cloud", 1_700_000_000, as_json=False)
        self.assertIn(f'# resource_id: "{MACHINE.resource_id}"\n', text)
        self.assertIn('# audience: "api://svc"\n# expires_at: "2023-11-14T22:13:20+00:00"\n- !host\n  id: ', text)
        self.assertEqual(
            yaml.safe_load(text.replace("!host", ""))[0]["annotations"],
            {
                "authn-cloud/subscription-id": "11111111-aaaa-4bbb-8ccc-000000000001",
                "authn-cloud/resource-group": "Shop-Production",
                "authn-cloud/system-assigned-identity": MACHINE.object_id,
            },
        )

    def test_user_assigned(self) -> None:
        """A user-assigned identity is named; the annotations begin as the authenticator's do."""
        for authenticator in ("authn-cloud/prod", "authn-azure"):
            text = shown(machine(SHARED), authenticator, 0, as_json=False)
            self.assertIn(f"    {authenticator}/user-assigned-identity: shop-backend", text)
            self.assertNotIn("system-assigned", text)

    def test_json(self) -> None:
        """For programs it is JSON (CLI-25)."""
        found = json.loads(shown(machine(SHARED), "authn-cloud", 0, as_json=True))
        self.assertEqual(found["object_id"], SHARED.object_id)
        self.assertEqual(found["issuer"], f"{BASE}/5d7a1c3e-0000-4000-8000-000000000001/")
        self.assertEqual(found["annotations"]["authn-cloud/resource-group"], "Shop-Production")

    def test_odd_values(self) -> None:
        """Values that YAML would take for something else, or that would end a line, are quoted."""
        for group in ("yes", "012", "a: b", "#x", "x\n- !user evil", "'"):
            odd = Identity(f"/subscriptions/s/resourcegroups/{group}/providers/n/t/x", "oid\n- !user evil")
            loaded = yaml.safe_load(shown(machine(odd), "authn-cloud", 0, as_json=False).replace("- !host", "-"))
            self.assertEqual(len(loaded), 1)
            self.assertEqual(loaded[0]["annotations"]["authn-cloud/resource-group"], group)
