"""Policy loads over HTTP, in their three modes, and dry runs, which report changes of access too (POL-82 to POL-88)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby, takewhile
from typing import Final

import attrs

from svc.model.errors import (
    Forbidden,
    InvalidParameter,
    LoadsUnavailable,
    PolicyConflict,
    PolicyInvalid,
    PreconditionFailed,
    RecordNotFound,
    WrongDataKey,
)
from svc.model.events import NOTICE, Event
from svc.model.names import RoleName
from svc.model.policy_loads import (
    AccessChange,
    Batches,
    DocumentFaults,
    DryRun,
    Item,
    LoadMode,
    LoadResult,
    NameSample,
    version_tag,
)
from svc.services.policy_loads import PolicyLoadService
from svc.web.http.declarations import Answer, Body, BodySize, Parameter, ParameterSource, PathName
from svc.web.http.messages import HeaderPairs, Json, Response, encode_elements, encode_object_start, join_chunks
from svc.web.http.preconditions import IF_MATCH, EntityTags, etag_header
from svc.web.http.refusal_responses import fault_json
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import BOOLEAN, INTEGER, TEXT, Shape, array_shape, mapping_shape, object_shape, string_shape
from svc.web.routes.access import PATH_SHAPE, steps_json
from svc.web.routes.idempotency import IDEMPOTENCY_ERRORS, IDEMPOTENCY_KEY, unless_repeated
from svc.web.routes.readers import READERS_OF_SEVERAL_SHAPE, readers_of_several_json


def _read_dry_run(source: ParameterSource) -> bool:
    """Read ``dryRun``: ``true`` or ``false``, in any case; bare or empty is true, absent is false."""
    if not source.query.has_flag("dryRun"):
        return False
    asked = (source.query.text("dryRun") or "true").strip().lower()
    if asked not in {"true", "false"}:
        raise InvalidParameter("dryRun", "must be 'true' or 'false'")
    return asked == "true"


DRY_RUN: Final = Parameter(
    "dryRun", _read_dry_run, BOOLEAN, "whether to return what a load would change, and change nothing", field="dry_run"
)


def _changes_shape(differs: str) -> Shape:
    names = object_shape({"kind": TEXT, "count": INTEGER, "first": array_shape(TEXT), differs: BOOLEAN})
    return array_shape(
        object_shape(
            {
                "roles": names,
                "resources": names,
                "privileges": array_shape(TEXT),
                "owner": BOOLEAN,
                "except": array_shape(TEXT),
                "through": TEXT.or_null(),
                "pairs": INTEGER,
                "way": PATH_SHAPE.or_null(),
            }
        )
    )


ACCESS_SHAPE: Final = object_shape(
    {
        "gains": _changes_shape("new"),
        "losses": _changes_shape("deleted"),
        "untold": object_shape({"gains": BOOLEAN, "new_gains": BOOLEAN, "losses": BOOLEAN}),
        "complete": BOOLEAN,
        "advice": TEXT.or_null(),
    }
)

_BY_PRIVILEGE: Final = mapping_shape(array_shape(TEXT))
_WARNINGS: Final = {"warnings": array_shape(TEXT)}
_COUNTED: Final = object_shape(
    {
        "records": array_shape(object_shape({"kind": TEXT, "count": INTEGER, "first": array_shape(TEXT)})),
        "grants": INTEGER,
        "permissions": INTEGER,
    }
)
_CHANGES: Final = object_shape(dict.fromkeys(("created", "changed", "deleted", "unchanged", "absent"), _COUNTED))
_LOADED: Final = object_shape(
    {"created_roles": mapping_shape(object_shape({"id": TEXT, "api_key": TEXT.or_null()})), "version": INTEGER},
    {"changes": _CHANGES, **_WARNINGS},
)
_ITEM: Final = object_shape(
    {"identifier": TEXT, "type": TEXT},
    {
        **dict.fromkeys(("id", "owner", "policy"), TEXT),
        **dict.fromkeys(("permitted", "permissions"), _BY_PRIVILEGE),
        "annotations": mapping_shape(TEXT),
        **dict.fromkeys(("members", "memberships", "restricted_to"), array_shape(TEXT)),
    },
)
_ITEMS: Final = object_shape({"items": array_shape(_ITEM)})
_UPDATED: Final = object_shape({"before": _ITEMS, "after": _ITEMS})
_DIFFERENCES: Final = object_shape(
    {
        "status": string_shape("Valid YAML"),
        "created": _ITEMS,
        "updated": _UPDATED,
        "deleted": _ITEMS,
        "access": ACCESS_SHAPE,
        "changes": _CHANGES,
    },
    {"readers": READERS_OF_SEVERAL_SHAPE, **_WARNINGS},
)
_CONTEXT: Final = object_shape({"policy_id": TEXT, "offending_lines": array_shape(INTEGER)})
_PLACE: Final = object_shape({"code": TEXT, "filename": TEXT, "line": INTEGER, "column": INTEGER})
_FAULT: Final = object_shape({"message": TEXT, "context": _CONTEXT}, {"line": INTEGER, "column": INTEGER})
_ANSWERS: Final = (
    Answer(201, "the API keys of new users and hosts, and the version", _LOADED, ("ETag",)),
    Answer(200, "the changes that the load would make, with dryRun", _DIFFERENCES),
    Answer(
        422,
        "the faults of the document, with dryRun",
        object_shape({"status": string_shape("Invalid YAML"), "errors": array_shape(_FAULT)}),
    ),
    Answer(
        422,
        "the faults of the document, the first of them also as the error",
        object_shape(
            {
                "error": object_shape({"code": TEXT, "message": TEXT}, {"innererror": _PLACE}),
                "errors": array_shape(_FAULT),
            }
        ),
    ),
)


def policy_loaded(call: Call) -> list[Event]:
    """A policy document was loaded, or tried; the rows that changed have events of their own."""
    name = call.audit_facts.get("policy") or call.path_full_id("policy")
    if call.audit_facts.get("dry_run"):
        words = f"a dry run of a load of {name}"
        return [Event("policy", "dry-run", (("policy", name),), f"made {words}", f"make {words}", severity=NOTICE)]
    return [Event("policy", "load", (("policy", name),), f"loaded {name}", f"load {name}", severity=NOTICE)]


@attrs.frozen
class Policies:
    """The routes of policies (POL-37 to POL-42)."""

    routes = Routes()
    _load_route = partial(
        routes.add,
        path="/policies/<flat:account>/policy/<tail:identifier>",
        name=PathName("policy", RoleName.from_parts, "policy"),
        caller=REQUIRED,
        query=(DRY_RUN,),
        headers=(IDEMPOTENCY_KEY, IF_MATCH),
        body=Body("a policy document", ("application/x-yaml",), size=BodySize.POLICY),
        answers=_ANSWERS,
        errors=(
            *IDEMPOTENCY_ERRORS,
            RecordNotFound,
            Forbidden,
            PolicyInvalid,
            PolicyConflict,
            PreconditionFailed,
            LoadsUnavailable,
            WrongDataKey,
        ),
        audit=unless_repeated(policy_loaded),
    )

    loads: PolicyLoadService

    @_load_route("POST", privileges="create on the policy; on what else the document disposes of, its owner's")
    async def append(
        self, call: Call, policy: RoleName, *, dry_run: bool, key: str | None, match: EntityTags | None
    ) -> Response:
        """Add what the document declares; change and delete nothing."""
        return await self._load_policy(call, policy, LoadMode.APPEND, dry_run, key, match)

    @_load_route("PATCH", privileges="update on the policy; on what else the document disposes of, its owner's")
    async def update(
        self, call: Call, policy: RoleName, *, dry_run: bool, key: str | None, match: EntityTags | None
    ) -> Response:
        """Add what the document declares, and change what is there to match; delete nothing."""
        return await self._load_policy(call, policy, LoadMode.UPDATE, dry_run, key, match)

    @_load_route(
        "PUT", privileges="update on the policy and all beneath it; on what else the document disposes of, its owner's"
    )
    async def replace(
        self, call: Call, policy: RoleName, *, dry_run: bool, key: str | None, match: EntityTags | None
    ) -> Response:
        """Make the policy what the document declares: add, change and delete."""
        return await self._load_policy(call, policy, LoadMode.REPLACE, dry_run, key, match)

    async def _load_policy(
        self, call: Call, policy: RoleName, mode: LoadMode, dry_run: bool, key: str | None, match: EntityTags | None
    ) -> Response:
        request = call.request_key(key)
        # A policy that isn't there is 404 whatever the tags, so that * permits every other.
        tags = None if match is None or match.anything else match.strong
        outcome = await self.loads.load_policy(
            call.invocation, policy, mode, call.body, dry_run=dry_run, request=request, match=tags
        )
        match outcome:
            case LoadResult() as loaded:
                return await _stream_response(_encode_loaded(loaded), 201, etag_header(version_tag(loaded.version)))
            case DryRun() as result:
                return await _stream_response(_encode_dry_run(result), 200)
            case DocumentFaults() as found:
                return await _stream_response(_encode_faults(found), 422)


async def _stream_response(chunks: Iterable[bytes], status: int, headers: HeaderPairs = ()) -> Response:
    async def pieces() -> AsyncGenerator[bytes, None]:
        for piece in join_chunks(chunks):
            yield piece

    return await Response.json_pieces(pieces(), headers, status=status)


def _encode_loaded(loaded: LoadResult) -> Iterator[bytes]:
    yield b'{"created_roles":{'
    comma = b""
    for batch in loaded.api_keys:
        yield comma + _encode_members({actor: {"id": actor, "api_key": key} for actor, key in batch})
        comma = b","
    changes: dict[str, Json] = {} if loaded.changes is None else {"changes": loaded.changes.as_json()}
    yield b"}," + _encode_members({"version": loaded.version, **changes, **_warnings_json(loaded.warnings)}) + b"}"


def _encode_dry_run(result: DryRun) -> Iterator[bytes]:
    yield b'{"status":"Valid YAML","created":{"items":['
    yield from _encode_items(result.created)
    yield b']},"updated":{"before":{"items":['
    yield from _encode_items(result.before)
    yield b']},"after":{"items":['
    yield from _encode_items(result.after)
    yield b']}},"deleted":{"items":['
    yield from _encode_items(result.deleted)
    yield b"]},"
    yield from access_changes_json(result)
    readers: dict[str, Json] = {} if result.readers is None else {"readers": readers_of_several_json(result.readers)}
    members = {"changes": result.changes.as_json(), **readers, **_warnings_json(result.warnings)}
    yield b"," + _encode_members(members) + b"}"


def _encode_faults(found: DocumentFaults) -> Iterator[bytes]:
    yield b'{"status":"Invalid YAML","errors":['
    comma = b""
    for batch in found.faults:
        yield comma
        yield from encode_elements([fault_json(fault) for fault in batch])
        comma = b","
    yield b"]}"


def _warnings_json(warnings: tuple[str, ...]) -> dict[str, Json]:
    return {"warnings": warnings} if warnings else {}


def _encode_items(batches: Batches[Item]) -> Iterator[bytes]:
    """Return the inside of an array of items, in chunks; parts of an item are put together."""
    comma, opened, closing = b"", list[bytes](), b""
    for batch in batches:
        for is_part, run in groupby(batch, lambda item: len(item) == 1):
            if not is_part:
                yield closing + comma
                yield from encode_elements(list(run))
                comma, opened, closing = b",", [], b""
                continue
            for part in run:
                written = b"{" + _encode_members(part) + b"}"
                chunk, opening = written.rstrip(b"]}"), _opening_brackets(part)
                same = takewhile(lambda pair: pair[0] == pair[1], zip(opened, opening, strict=False))
                shared = 0 if "identifier" in part else len(list(same))
                yield closing[: len(opened) - shared] + comma + chunk[sum(map(len, opening[:shared])) :]
                comma, opened, closing = b",", opening, written[len(chunk) :]
    yield closing


def _opening_brackets(part: Item) -> list[bytes]:
    """Return the brackets that the text of a part opens, each with the name before it."""
    opening = [b"{"]
    value: object = part
    while isinstance(value, dict) and value:
        ((name, value),) = value.items()
        bracket = b"{" if isinstance(value, dict) else b"["
        if isinstance(value, dict | list):
            opening.append(_encode_members({name: 0})[:-1] + bracket)
    return opening


def _encode_members(members: Mapping[str, Json]) -> bytes:
    """Return the inside of an object."""
    return encode_object_start(members)[1:]


def access_changes_json(result: DryRun) -> Iterator[bytes]:
    """Return the member of an object that lists changes of access, in chunks."""
    yield b'"access":{"gains":['
    yield from _encode_changes(result.gains, "new")
    yield b'],"losses":['
    yield from _encode_changes(result.losses, "deleted")
    unreported = result.unreported
    left_out: Json = {"gains": unreported.gains, "new_gains": unreported.new_gains, "losses": unreported.losses}
    yield (
        b"],"
        + encode_object_start({"untold": left_out, "complete": unreported.complete, "advice": unreported.advice})[1:]
        + b"}"
    )


def _encode_changes(changes: Batches[AccessChange], differs: str) -> Iterator[bytes]:
    comma = b""
    for batch in changes:
        yield comma
        yield from encode_elements([_change_json(change, differs) for change in batch])
        comma = b","


def _change_json(change: AccessChange, differs: str) -> Json:
    return {
        "roles": _names_json(change.roles, differs),
        "resources": _names_json(change.resources, differs),
        "privileges": change.privileges,
        "owner": change.owner,
        "except": change.excepted,
        "through": change.through,
        "pairs": change.pairs,
        "way": None if change.path is None else steps_json(change.path),
    }


def _names_json(names: NameSample, differs: str) -> Json:
    return {"kind": names.kind, "count": names.count, "first": names.first, differs: names.differs}
