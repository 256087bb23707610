"""The cloud platform in small that ships with the product, and how it misbehaves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa
from twisted.internet.defer import Deferred
from twisted.web.server import Request

from svc.cli.platform import Identity, Platform, ResponseBody
from svc.model.clocks import WallClock

#: A virtual machine with an identity of its own.
MACHINE: Final = Identity(
    "/subscriptions/11111111-aaaa-4bbb-8ccc-000000000001/resourcegroups/Shop-Production/providers/"
    "Microsoft.Compute/virtualMachines/web-1",
    "22222222-aaaa-4bbb-8ccc-000000000002",
)

#: An identity that several machines have.
SHARED: Final = Identity(
    "/subscriptions/11111111-aaaa-4bbb-8ccc-000000000001/resourcegroups/Shop-Production/providers/"
    "Microsoft.ManagedIdentity/userAssignedIdentities/shop-backend",
    "33333333-aaaa-4bbb-8ccc-000000000003",
    "44444444-aaaa-4bbb-8ccc-000000000004",
)

#: Stands in ``troubles`` for an answer that never comes.
SILENCE: Final = 0


@functools.cache
def key() -> rsa.RSAPrivateKey:
    """The key that all of these platforms have."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Unruly(Platform):
    """A platform whose metadata services answer with what is in ``troubles`` first, a status or :data:`SILENCE` each.

    ``asked`` are the requests to them, ``words`` what comes with a status.
    """

    def __init__(self, wall: WallClock, identities: Sequence[Identity] = (MACHINE, SHARED), *, lifetime: int = 3600) -> None:
        super().__init__(key(), wall, identities, lifetime=lifetime)
        self.troubles: list[int] = []
        self.words = b'{"error": "trouble", "error_description": "as the test \\u001b wants"}'
        self.asked: list[Request] = []

    def rotate(self) -> None:
        """Sign with another key from now on, which has the former one's id."""
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def serve_metadata(self, request: Request) -> ResponseBody:
        """Misbehave, or answer."""
        return self._trouble(request, super().serve_metadata)

    def serve_app_service(self, request: Request) -> ResponseBody:
        """Misbehave, or answer."""
        return self._trouble(request, super().serve_app_service)

    def _trouble(self, request: Request, otherwise: Callable[[Request], ResponseBody]) -> ResponseBody:
        self.asked.append(request)
        if not self.troubles:
            return otherwise(request)
        status = self.troubles.pop(0)
        if status == SILENCE:
            return Deferred()
        request.setResponseCode(status)
        return self.words
