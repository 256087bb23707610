"""Tests of ``svc.workload.machine``."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.workload.faults import NoIdentity
from svc.workload.machine import Machine

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
        ):
            self.assertIn("unknown form", str(self.assertRaises(NoIdentity, machine, resource_id)))
        for claims in ({}, {"oid": OID}, {"xms_mirid": 5, "oid": OID}, {"xms_mirid": "/", "oid": ""}):
            self.assertIn("names no machine", str(self.assertRaises(NoIdentity, Machine.of, token(claims))))

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
        """Values without a slash are found as they are, or are missing."""
        resource_id = f"/subscriptions/{subscription}/resourcegroups/{group}/providers/n/t/{name}"
        if all((subscription, group, name)) and "/" not in subscription + group + name:
            found = machine(resource_id)
            self.assertEqual((found.subscription_id, found.resource_group), (subscription, group))
