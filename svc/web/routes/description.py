"""Resources in JSON (RES-16 to RES-20); a record that no policy made has no "policy"."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from svc.model.clocks import iso_milliseconds, iso_seconds
from svc.model.query_results import OutstandingToken, Permission, RecordedVersion, Resource, ResourceAnnotation
from svc.web.http.json_bytes import Json, elements_of, gathered, members_of
from svc.web.http.shapes import INTEGER, TEXT, array, obj

_RECORDED: Final = {"policy": TEXT}
_SECRETS: Final = array(obj({"version": INTEGER, "expires_at": TEXT.or_null()}))
_EXPIRATION: Final = obj({"due_at": TEXT.or_null(), "failures": INTEGER, "fault": TEXT.or_null()})
_VERSION: Final = obj(
    {"version": INTEGER, **dict.fromkeys(("created_at", "policy_sha256", "finished_at", "client_ip", "id", "role"), TEXT)},
    {"policy_text": TEXT},
)

#: A token of a host factory: its text is shown once, when it is made (HF-8).
TOKEN_SHAPE: Final = obj({"id": TEXT, "expiration": TEXT, "cidr": array(TEXT)})

#: The fields that every resource has, and those that only some kinds have.
RESOURCE_SHAPE: Final = obj(
    {
        "created_at": TEXT,
        "id": TEXT,
        "owner": TEXT,
        "permissions": array(obj({"privilege": TEXT, "role": TEXT}, _RECORDED)),
        "annotations": array(obj({"name": TEXT, "value": TEXT}, _RECORDED)),
    },
    {
        **_RECORDED,
        "secrets": _SECRETS,
        "expiration": _EXPIRATION,
        "policy_versions": array(_VERSION),
        "restricted_to": array(TEXT),
        "tokens": array(TOKEN_SHAPE),
        "layers": array(TEXT),
    },
)


def token_json(token: OutstandingToken) -> dict[str, Json]:
    """Return a token of a host factory, without its text."""
    return {"id": token.name, "expiration": iso_seconds(token.expires_at), "cidr": list(token.networks)}


async def described(
    portions: AsyncIterator[Sequence[Resource]], more: Mapping[str, Json] | None = None
) -> AsyncGenerator[bytes, None]:
    """Return resources in JSON, each with ``more`` members, with commas between, in pieces that aren't empty."""
    writing = _Writing(more or {})
    async for portion in portions:
        for piece in gathered(writing.chunks(portion)):
            yield piece


@attrs.define
class _Writing:
    """Resources being written down. ``_section``: in what of the last one, when that was ``continued``."""

    _more: Mapping[str, Json]
    _comma: bytes = b""
    _section: str | None = None
    _inner: bytes = b""

    def chunks(self, portion: Sequence[Resource]) -> Iterator[bytes]:
        """Return the next portion: whole resources, or a part of one."""
        whole = self._section is None and not any(resource.continued for resource in portion)
        for resource in () if whole else portion:
            yield from self._part(resource)
        if whole and portion:
            yield self._comma
            yield from elements_of([{**_whole(resource), **self._more} for resource in portion])
            self._comma = b","

    def _part(self, resource: Resource) -> Iterator[bytes]:
        if self._section is None:
            yield self._comma + members_of(_head(resource)) + b',"permissions":['
            self._section, self._inner, self._comma = "permissions", b"", b","
        yield from self._listed(list(map(_permission, resource.permissions)))
        if self._section == "permissions" and (resource.annotations or not resource.continued):
            yield b'],"annotations":['
            self._section, self._inner = "annotations", b""
        yield from self._listed(list(map(_annotation, resource.annotations)))
        if not resource.continued:
            yield b"]"
            for name, value in {**_special(resource), **self._more}.items():
                yield b"," + members_of({name: value}).removeprefix(b"{")
            yield b"}"
            self._section = None

    def _listed(self, rows: Sequence[Json]) -> Iterator[bytes]:
        for chunk in elements_of(rows):
            yield self._inner + chunk
            self._inner = b""
        self._inner = b"," if rows else self._inner


def _whole(resource: Resource) -> dict[str, Json]:
    permissions = list(map(_permission, resource.permissions))
    annotations = list(map(_annotation, resource.annotations))
    return {**_head(resource), "permissions": permissions, "annotations": annotations, **_special(resource)}


def _head(resource: Resource) -> dict[str, Json]:
    created_at = iso_milliseconds(resource.created_at)
    return {"created_at": created_at, "id": resource.id, "owner": resource.owner, **_recorded(resource.policy)}


def _permission(permission: Permission) -> dict[str, Json]:
    return {"privilege": permission.privilege, "role": permission.role, **_recorded(permission.policy)}


def _annotation(annotation: ResourceAnnotation) -> dict[str, Json]:
    return {"name": annotation.name, "value": annotation.value, **_recorded(annotation.policy)}


def _special(resource: Resource) -> dict[str, Json]:
    special = _SPECIAL.get(resource.id.split(":", 2)[1])
    return special(resource) if special else {}


def _recorded(policy: str | None) -> dict[str, str]:
    return {} if policy is None else {"policy": policy}


def _secrets(variable: Resource) -> dict[str, Json]:
    versions = [{"version": each.number, "expires_at": _perhaps(each.expires_at)} for each in variable.secret_versions]
    if (due := variable.expiration) is None:
        return {"secrets": versions}
    expiration = {"due_at": _perhaps(due.due_at), "failures": due.failures, "fault": due.fault}
    return {"secrets": versions, "expiration": expiration}


def _perhaps(seconds: float | None) -> str | None:
    return None if seconds is None else iso_milliseconds(seconds)


def _policy_versions(policy: Resource) -> dict[str, Json]:
    return {"policy_versions": [_policy_version(policy.id, version) for version in policy.history]}


def _policy_version(policy: str, version: RecordedVersion) -> dict[str, Json]:
    # A load happens all at once: it is finished when it begins to be there.
    moment = iso_milliseconds(version.created_at)
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


def _factory(host_factory: Resource) -> dict[str, Json]:
    return {"tokens": list(map(token_json, host_factory.tokens)), "layers": list(host_factory.layers)}


_SPECIAL: Final[Mapping[str, Callable[[Resource], dict[str, Json]]]] = {
    "variable": _secrets,
    "policy": _policy_versions,
    "host_factory": _factory,
    **dict.fromkeys(("user", "host"), lambda actor: {"restricted_to": list(actor.restrictions)}),
}
