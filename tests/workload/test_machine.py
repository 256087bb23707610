"""Tests of ``svc.workload.machine``."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.cloud_resource_id import ResourceId, ResourceIdMalformed
from svc.workload.faults import NoIdentity
from svc.workload.machine import RESOURCE, Machine

OID = "22222222-aaaa-4bbb-8ccc-000000000002"


def token(claims: object) -> str:
    """A token that says this, unsigned."""
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{payload}.c2ln"


def machine(resource_id: object, **more: object) -> Machine:
    """What a token with this resource id says."""
    return Machine.of(token({"xms_mirid": resource_id, "oid": OID, "iss": "https://sts.example/t/", "aud": "svc", **more}))


class MachineTests(SynchronousTestCase):
    """What an identity token says of a machine."""

    def test_system_assigned(self) -> None:
        """A machine's own identity is known by its object id; values stay as they are, keywords count in any case."""
        for start in (
            "/subscriptions/S-1/resourcegroups/",
            "subscriptions/S-1/resourceGroups/",
            "/SUBSCRIPTIONS/S-1/RESOURCEGROUPS/",
        ):
            found = machine(f"{start}My-Group/Providers/Microsoft.Compute/virtualMachines/web")
            self.assertEqual(
                found.annotations(),
                {"subscription-id": "S-1", "resource-group": "My-Group", "system-assigned-identity": OID},
            )
            self.assertEqual((found.issuer, found.audience), ("https://sts.example/t/", "svc"))

    def test_user_assigned(self) -> None:
        """A user-assigned identity is known by its name."""
        for namespace in ("Microsoft.ManagedIdentity", "microsoft.managedidentity"):
            found = machine(f"/subscriptions/s/resourcegroups/g/providers/{namespace}/userAssignedIdentities/Shop")
            self.assertEqual(
                found.annotations(), {"subscription-id": "s", "resource-group": "g", "user-assigned-identity": "Shop"}
            )

    def test_by_position(self) -> None:
        """A group that is called like a keyword is a group all the same."""
        for group in ("providers", "my-providers-rg", "subscriptions", "resourcegroups", "Microsoft.ManagedIdentity"):
            found = machine(f"/subscriptions/s/resourcegroups/{group}/providers/Microsoft.Web/sites/userAssignedIdentities")
            self.assertEqual((found.resource_group, found.user_assigned_identity), (group, None))

    def test_other_forms(self) -> None:
        """A resource id of another form, and a token without one, are faults that say so."""
        for resource_id in (
            "/subscriptions/s",
            "/subscriptions/s/resourcegroups/g/providers/Microsoft.Web/sites",
            "/subscriptions//resourcegroups/g/providers/Microsoft.Web/sites/x",
            "//subscriptions/s/resourcegroups/g/providers/Microsoft.Web/sites/x",
            "/subscription/s/resourcegroups/g/providers/Microsoft.Web/sites/x",
            "/subscriptions/s/resourcegroups/g/providers/Microsoft.Web/sites/x%2F..",
            "/subscriptions/s/resourcegroups/../providers/Microsoft.Web/sites/x",
        ):
            self.assertIn("is not of the form", str(self.assertRaises(NoIdentity, machine, resource_id)))
        for claims in ({}, {"oid": OID}, {"xms_mirid": 5, "oid": OID}, {"xms_mirid": "/", "oid": ""}):
            self.assertIn("names no machine", str(self.assertRaises(NoIdentity, Machine.of, token(claims))))

    def test_within_another(self) -> None:
        """A resource within another is no machine for the command either, as it is none for the server (AUTH-37)."""
        for rest in ("Web/sites/shop/slots/staging", "MachineLearningServices/workspaces/w/onlineEndpoints/e"):
            fault = self.assertRaises(NoIdentity, machine, f"/subscriptions/s/resourcegroups/g/providers/Microsoft.{rest}")
            self.assertIn("assign a user-assigned identity to it", str(fault))

    def test_own_audience(self) -> None:
        """A token for an audience of one's own names no machine, and the fault says so and names another (AUTH-38)."""
        for audience in ("api://svc.example", "9c6b-1", "https://svc.example/", "https://azure.com.example/"):
            fault = str(self.assertRaises(NoIdentity, Machine.of, token({"oid": "a", "aud": audience})))
            self.assertIn(audience, fault)
            self.assertIn("--resource https://management.azure.com/", fault)
        for audience in (RESOURCE, "https://vault.azure.net", "https://graph.microsoft.com"):
            fault = str(self.assertRaises(NoIdentity, Machine.of, token({"oid": "a", "aud": audience})))
            self.assertNotIn("--resource", fault)

    def test_nested(self) -> None:
        """A token that is nested too deeply is none."""
        nested = base64.urlsafe_b64encode(b"[" * 100_000).decode()
        self.assertIn("no JWT", str(self.assertRaises(NoIdentity, Machine.of, f"a.{nested}.b")))

    @given(st.text() | st.builds("{}.{}.{}".format, st.text(), st.text(), st.text()) | st.builds(token, st.lists(st.none())))
    def test_anything(self, text: str) -> None:
        """Whatever the platform gives, it is a machine or a fault."""
        self.assertRaises(NoIdentity, Machine.of, text)

    @given(st.text(), st.text(), st.text())
    def test_any_values(self, subscription: str, group: str, name: str) -> None:
        """Values are found as they are, or the resource id is refused, exactly as the server does it."""
        resource_id = f"/subscriptions/{subscription}/resourcegroups/{group}/providers/n/t/{name}"
        try:
            expected = ResourceId.parse(resource_id)
        except ResourceIdMalformed:
            self.assertRaises(NoIdentity, machine, resource_id)
        else:
            found = machine(resource_id)
            self.assertEqual((found.subscription_id, found.resource_group), (expected.subscription, expected.resource_group))
