"""Resources as they are told in JSON (wire facts, core 3.2); a record that no policy made has no "policy" (core 0.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from svc.records import Expiration, RecordedVersion, Resource


def described(resource: Resource) -> dict[str, object]:
    """All that the route of a resource tells."""
    kind = resource.id.split(":", 2)[1]
    special = _SPECIAL.get(kind)
    return {
        "created_at": _moment(resource.created_at),
        "id": resource.id,
        "owner": resource.owner,
        **_recorded(resource.policy),
        "permissions": [
            {"privilege": permission.privilege, "role": permission.role, **_recorded(permission.policy)}
            for permission in resource.permissions
        ],
        "annotations": [
            {"name": annotation.name, "value": annotation.value, **_recorded(annotation.policy)}
            for annotation in resource.annotations
        ],
        **(special(resource) if special else {}),
    }


def expiration(seconds: float) -> str:
    """When a host factory's token expires, in whole seconds (wire facts, core 5)."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _recorded(policy: str | None) -> dict[str, str]:
    return {} if policy is None else {"policy": policy}


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _secrets(variable: Resource) -> dict[str, object]:
    return {
        "secrets": [
            {"version": version.number, "expires_at": _perhaps(version.expires_at)} for version in variable.secret_versions
        ],
        **({} if variable.expiration is None else {"expiration": _expiration(variable.expiration)}),
    }


def _expiration(expiration: Expiration) -> dict[str, object]:
    return {"due_at": _perhaps(expiration.due_at), "failures": expiration.failures, "fault": expiration.fault}


def _perhaps(seconds: float | None) -> str | None:
    return None if seconds is None else _moment(seconds)


def _policy_versions(policy: Resource) -> dict[str, object]:
    return {"policy_versions": [_policy_version(policy.id, version) for version in policy.history]}


def _policy_version(policy: str, version: RecordedVersion) -> dict[str, object]:
    # A load happens all at once: it is finished when it begins to be there.
    moment = _moment(version.created_at)
    return {
        "version": version.number,
        "created_at": moment,
        **({} if version.text is None else {"policy_text": version.text}),
        "policy_sha256": version.sha256,
        "finished_at": moment,
        "client_ip": version.client_ip,
        "id": policy,
        "role": version.loaded_by,
    }


def _restricted_to(actor: Resource) -> dict[str, object]:
    return {"restricted_to": list(actor.restrictions)}


def _factory(host_factory: Resource) -> dict[str, object]:
    # Their texts are known to nobody but those who were given them.
    tokens = [{"expiration": expiration(token.expires_at), "cidr": list(token.networks)} for token in host_factory.tokens]
    return {"tokens": tokens, "layers": list(host_factory.layers)}


#: What resources of some kinds have besides.
_SPECIAL: Final[Mapping[str, Callable[[Resource], dict[str, object]]]] = {
    "variable": _secrets,
    "policy": _policy_versions,
    "host_factory": _factory,
    "user": _restricted_to,
    "host": _restricted_to,
}
