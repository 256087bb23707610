"""What ``xms_mirid`` is for each kind of workload, as the platform has it.

The platform's documentation writes resource ids with ``resourceGroups``; in tokens the keyword is in lower case. A workload
with an identity of its own (*system-assigned*) is named by its own resource id, one that uses an identity which was assigned
to it (*user-assigned*) by that of the identity. Instances of a uniform scale set share the set's identity; those of a
flexible one are virtual machines, named after the set, and what the set itself assigns is user-assigned.
"""

from __future__ import annotations

from typing import Final

import attrs

SUBSCRIPTION: Final = "11111111-2222-3333-4444-555555555555"
GROUP: Final = "production"

_UNDER: Final = f"/subscriptions/{SUBSCRIPTION}/resourcegroups/{GROUP}/providers"


@attrs.frozen
class Shape:
    """A kind of workload, whether its identity is one that may be shared, and the resource id in its token."""

    workload: str
    shared: bool
    text: str


def _sole(workload: str, resource: str) -> Shape:
    return Shape(workload, False, f"{_UNDER}/{resource}")


def _shared(workload: str, name: str) -> Shape:
    return Shape(workload, True, f"{_UNDER}/Microsoft.ManagedIdentity/userAssignedIdentities/{name}")


SHAPES: Final = (
    _sole("virtual machine", "Microsoft.Compute/virtualMachines/web-1"),
    _shared("virtual machine", "web"),
    _sole("instance of a uniform scale set", "Microsoft.Compute/virtualMachineScaleSets/workers"),
    _shared("instance of a uniform scale set", "workers"),
    _sole("instance of a flexible scale set", "Microsoft.Compute/virtualMachines/workers_1a2b3c4d"),
    _shared("instance of a flexible scale set", "workers"),
    _sole("app service", "Microsoft.Web/sites/shop"),
    _shared("app service", "shop"),
    _sole("function", "Microsoft.Web/sites/shop-orders"),
    _shared("function", "shop-orders"),
    _sole("container instance", "Microsoft.ContainerInstance/containerGroups/nightly"),
    _shared("container instance", "nightly"),
)

#: A slot of an app, which is a resource within another.
SLOT: Final = f"{_UNDER}/Microsoft.Web/sites/shop/slots/staging"
