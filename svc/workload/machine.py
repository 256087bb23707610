"""A machine as its platform identifies it: what an identity token says of it, unverified."""

from __future__ import annotations

import base64
from typing import Final

import attrs

from svc.workload.faults import NoIdentity
from svc.workload.replies import parsed

#: The namespace and type of user-assigned identities, in lower case.
_USER_ASSIGNED: Final = ("microsoft.managedidentity", "userassignedidentities")

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
        if not resource_id or not object_id:
            raise NoIdentity("the identity token names no machine: it lacks xms_mirid or oid", _REMEDY)
        match resource_id.removeprefix("/").split("/"):
            case [first, subscription, second, group, third, namespace, kind, name, *rest] if [
                first.lower(),
                second.lower(),
                third.lower(),
            ] == ["subscriptions", "resourcegroups", "providers"] and all(
                (subscription, group, namespace, kind, name, *rest)
            ):
                user_assigned = name if (namespace.lower(), kind.lower()) == _USER_ASSIGNED else None
                told = texts.get("iss", ""), texts.get("aud", "")
                return cls(resource_id, subscription, group, user_assigned, object_id, *told)
        raise NoIdentity(f"the identity token's resource id has an unknown form: {resource_id[:300]!r}", _REMEDY)

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
        claims = parsed(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, IndexError):
        claims = None
    if not isinstance(claims, dict):
        raise NoIdentity("the platform gave something that is no JWT", _REMEDY)
    return claims
