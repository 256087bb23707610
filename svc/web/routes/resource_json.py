"""Resources in JSON (RES-16 to RES-20); a record that no policy made has no "policy"."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from svc.model.clocks import iso_milliseconds, iso_seconds
from svc.model.query_results import OutstandingToken, Permission, RecordedVersion, Resource, ResourceAnnotation
from svc.web.http.messages import Json, encode_elements, encode_object_start, join_chunks
from svc.web.http.shapes import INTEGER, TEXT, array_shape, object_shape

_POLICY_MEMBER_SHAPE: Final = {"policy": TEXT}
_SECRETS: Final = array_shape(object_shape({"version": INTEGER, "expires_at": TEXT.or_null()}))
_EXPIRATION: Final = object_shape({"due_at": TEXT.or_null(), "failures": INTEGER, "fault": TEXT.or_null()})
_VERSION: Final = object_shape(
    {"version": INTEGER, **dict.fromkeys(("created_at", "policy_sha256", "finished_at", "client_ip", "id", "role"), TEXT)},
    {"policy_text": TEXT},
)

#: A token of a host factory: its text is shown once, when it is made (HF-8).
TOKEN_SHAPE: Final = object_shape({"id": TEXT, "expiration": TEXT, "cidr": array_shape(TEXT)})

#: The fields that every resource has, and those that only some kinds have.
RESOURCE_SHAPE: Final = object_shape(
    {
        "created_at": TEXT,
        "id": TEXT,
        "owner": TEXT,
        "permissions": array_shape(object_shape({"privilege": TEXT, "role": TEXT}, _POLICY_MEMBER_SHAPE)),
        "annotations": array_shape(object_shape({"name": TEXT, "value": TEXT}, _POLICY_MEMBER_SHAPE)),
    },
    {
        **_POLICY_MEMBER_SHAPE,
        "secrets": _SECRETS,
        "expiration": _EXPIRATION,
        "policy_versions": array_shape(_VERSION),
        "restricted_to": array_shape(TEXT),
        "tokens": array_shape(TOKEN_SHAPE),
        "layers": array_shape(TEXT),
    },
)


def token_json(token: OutstandingToken) -> dict[str, Json]:
    """Return a token of a host factory, without its text."""
    return {"id": token.name, "expiration": iso_seconds(token.expires_at), "cidr": list(token.networks)}


async def describe_resources(
    portions: AsyncIterator[Sequence[Resource]], more: Mapping[str, Json] | None = None
) -> AsyncGenerator[bytes, None]:
    """Return resources in JSON, each with ``more`` members, with commas between, in pieces that aren't empty."""
    writing = _ResourceWriter(more or {})
    async for portion in portions:
        for piece in join_chunks(writing.write_portion(portion)):
            yield piece


@attrs.define
class _ResourceWriter:
    """Resources being written down. ``_section``: in what of the last one, when that was ``continued``."""

    _more: Mapping[str, Json]
    _comma: bytes = b""
    _section: str | None = None
    _inner: bytes = b""

    def write_portion(self, portion: Sequence[Resource]) -> Iterator[bytes]:
        """Return the next portion: whole resources, or a part of one."""
        whole = self._section is None and not any(resource.continued for resource in portion)
        for resource in () if whole else portion:
            yield from self._write_part(resource)
        if whole and portion:
            yield self._comma
            yield from encode_elements([{**_resource_json(resource), **self._more} for resource in portion])
            self._comma = b","

    def _write_part(self, resource: Resource) -> Iterator[bytes]:
        if self._section is None:
            yield self._comma + encode_object_start(_head_json(resource)) + b',"permissions":['
            self._section, self._inner, self._comma = "permissions", b"", b","
        yield from self._write_rows(list(map(_permission_json, resource.permissions)))
        if self._section == "permissions" and (resource.annotations or not resource.continued):
            yield b'],"annotations":['
            self._section, self._inner = "annotations", b""
        yield from self._write_rows(list(map(_annotation_json, resource.annotations)))
        if not resource.continued:
            yield b"]"
            for name, value in {**_kind_members(resource), **self._more}.items():
                yield b"," + encode_object_start({name: value}).removeprefix(b"{")
            yield b"}"
            self._section = None

    def _write_rows(self, rows: Sequence[Json]) -> Iterator[bytes]:
        for chunk in encode_elements(rows):
            yield self._inner + chunk
            self._inner = b""
        self._inner = b"," if rows else self._inner


def _resource_json(resource: Resource) -> dict[str, Json]:
    permissions = list(map(_permission_json, resource.permissions))
    annotations = list(map(_annotation_json, resource.annotations))
    return {**_head_json(resource), "permissions": permissions, "annotations": annotations, **_kind_members(resource)}


def _head_json(resource: Resource) -> dict[str, Json]:
    created_at = iso_milliseconds(resource.created_at)
    return {"created_at": created_at, "id": resource.id, "owner": resource.owner, **_policy_member(resource.policy)}


def _permission_json(permission: Permission) -> dict[str, Json]:
    return {"privilege": permission.privilege, "role": permission.role, **_policy_member(permission.policy)}


def _annotation_json(annotation: ResourceAnnotation) -> dict[str, Json]:
    return {"name": annotation.name, "value": annotation.value, **_policy_member(annotation.policy)}


def _kind_members(resource: Resource) -> dict[str, Json]:
    special = _MEMBERS_BY_KIND.get(resource.id.split(":", 2)[1])
    return special(resource) if special else {}


def _policy_member(policy: str | None) -> dict[str, str]:
    return {} if policy is None else {"policy": policy}


def _variable_members(variable: Resource) -> dict[str, Json]:
    versions = [
        {"version": each.number, "expires_at": _optional_moment(each.expires_at)} for each in variable.secret_versions
    ]
    if (due := variable.expiration) is None:
        return {"secrets": versions}
    expiration = {"due_at": _optional_moment(due.due_at), "failures": due.failures, "fault": due.fault}
    return {"secrets": versions, "expiration": expiration}


def _optional_moment(seconds: float | None) -> str | None:
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


def _factory_members(host_factory: Resource) -> dict[str, Json]:
    return {"tokens": list(map(token_json, host_factory.tokens)), "layers": list(host_factory.layers)}


_MEMBERS_BY_KIND: Final[Mapping[str, Callable[[Resource], dict[str, Json]]]] = {
    "variable": _variable_members,
    "policy": _policy_versions,
    "host_factory": _factory_members,
    **dict.fromkeys(("user", "host"), lambda actor: {"restricted_to": list(actor.restrictions)}),
}
