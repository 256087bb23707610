"""A machine as its platform identifies it: the claims of an identity token, unverified."""

from __future__ import annotations

import base64
from typing import Final

import attrs

from svc.model.cloud_resource_id import ResourceId, ResourceIdMalformed, is_microsoft_audience
from svc.model.text import quote_text
from svc.workload.faults import NoIdentity
from svc.workload.replies import parse_json

#: The default audience of tokens, for which they say which machine has them.
RESOURCE: Final = "https://management.azure.com/"

_NESTED_REMEDY: Final = "this is a resource within another: assign a user-assigned identity to it, and name its client id"
_REMEDY: Final = "use the platform's managed identity of a machine, an app service, a function or a container instance"


@attrs.frozen
class Machine:
    """The claims that a cloud authenticator compares with a host's annotations (AUTH-38), as the token has them."""

    resource_id: str
    subscription_id: str
    resource_group: str
    user_assigned_identity: str | None  # without one, the object id counts
    object_id: str
    issuer: str
    audience: str

    @classmethod
    def of(cls, token: str) -> Machine:
        """Read an identity token.

        :raises NoIdentity: it doesn't say which machine has it.
        """
        claims = claims_within(token)
        texts = {name: value for name in ("xms_mirid", "oid", "iss", "aud") if isinstance(value := claims.get(name), str)}
        resource_id, object_id = texts.get("xms_mirid"), texts.get("oid")
        audience = texts.get("aud", "")
        if not resource_id and object_id and not is_microsoft_audience(audience):
            raise NoIdentity(
                f"the identity token names no machine: it is for the audience {quote_text(audience)}, which is none of"
                " Microsoft's own, and only tokens for those have xms_mirid",
                f"ask for a token for --resource {RESOURCE}, and set the authenticator's variable audience to that",
            )
        if not resource_id or not object_id:
            raise NoIdentity("the identity token names no machine: it lacks xms_mirid or oid", _REMEDY)
        try:
            resource = ResourceId.parse(resource_id)
        except ResourceIdMalformed as malformed:
            remedy = _NESTED_REMEDY if malformed.nested else _REMEDY
            raise NoIdentity(f"no server admits a machine with this identity: {malformed}", remedy) from None
        user_assigned = resource.name if resource.is_shared_identity else None
        issuer = texts.get("iss", "")
        return cls(resource_id, resource.subscription, resource.resource_group, user_assigned, object_id, issuer, audience)

    def annotations(self) -> dict[str, str]:
        """Return the annotations, without their prefix, of a host that only this machine's identity can log in as."""
        name = self.user_assigned_identity
        identity = {"system-assigned-identity": self.object_id} if name is None else {"user-assigned-identity": name}
        return {"subscription-id": self.subscription_id, "resource-group": self.resource_group, **identity}


def claims_within(token: str) -> dict[str, object]:
    """Return the claims of an identity token, unverified.

    :raises NoIdentity: it is no JWT.
    """
    try:
        payload = token.split(".")[1]
        claims = parse_json(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, IndexError):
        claims = None
    if not isinstance(claims, dict):
        raise NoIdentity("the platform gave something that is no JWT", _REMEDY)
    return claims
