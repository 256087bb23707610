"""Policy loads over HTTP, in their three modes, and dry runs, which tell of access too (POL-82 to POL-88)."""

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
    RecordNotFound,
    WrongDataKey,
)
from svc.model.names import RoleName
from svc.model.policy_loads import (
    AccessChange,
    Batches,
    DocumentFault,
    DocumentFaults,
    DryRun,
    Item,
    Loaded,
    LoadMode,
    NamesOf,
)
from svc.services.policy_loads import PolicyLoadService
from svc.web.http.declarations import Answer, Body, BodySize, Parameter, PathName, Source
from svc.web.http.json_bytes import Json, elements_of, gathered, members_of
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import BOOLEAN, INTEGER, TEXT, Shape, array, keyed, obj, text
from svc.web.routes import audit_events
from svc.web.routes.access import WAY_SHAPE, steps_json
from svc.web.routes.idempotency import IDEMPOTENCY_KEY, REPEATED


def _dry_run(source: Source) -> bool:
    """Read ``dryRun``: ``true`` or ``false``, in any case; bare or empty is true, absent is false."""
    if not source.query.flag("dryRun"):
        return False
    asked = (source.query.text("dryRun") or "true").strip().lower()
    if asked not in {"true", "false"}:
        raise InvalidParameter("dryRun", "must be 'true' or 'false'")
    return asked == "true"


DRY_RUN: Final = Parameter(
    "dryRun", _dry_run, BOOLEAN, "whether to return what a load would change, and change nothing", field="dry_run"
)


def _changes(differs: str) -> Shape:
    names = obj({"kind": TEXT, "count": INTEGER, "first": array(TEXT), differs: BOOLEAN})
    return array(
        obj(
            {
                "roles": names,
                "resources": names,
                "privileges": array(TEXT),
                "owner": BOOLEAN,
                "except": array(TEXT),
                "through": TEXT.or_null(),
                "pairs": INTEGER,
                "way": WAY_SHAPE.or_null(),
            }
        )
    )


ACCESS_SHAPE: Final = obj(
    {
        "gains": _changes("new"),
        "losses": _changes("deleted"),
        "untold": obj({"gains": BOOLEAN, "new_gains": BOOLEAN, "losses": BOOLEAN}),
        "complete": BOOLEAN,
        "advice": TEXT.or_null(),
    }
)

_BY_PRIVILEGE: Final = keyed(array(TEXT))
_WARNINGS: Final = {"warnings": array(TEXT)}
_LOADED: Final = obj({"created_roles": keyed(obj({"id": TEXT, "api_key": TEXT.or_null()})), "version": INTEGER}, _WARNINGS)
_ITEM: Final = obj(
    {"identifier": TEXT, "type": TEXT},
    {
        **dict.fromkeys(("id", "owner", "policy"), TEXT),
        **dict.fromkeys(("permitted", "permissions"), _BY_PRIVILEGE),
        "annotations": keyed(TEXT),
        **dict.fromkeys(("members", "memberships", "restricted_to"), array(TEXT)),
    },
)
_ITEMS: Final = obj({"items": array(_ITEM)})
_UPDATED: Final = obj({"before": _ITEMS, "after": _ITEMS})
_DIFFERENCES: Final = obj(
    {"status": text("Valid YAML"), "created": _ITEMS, "updated": _UPDATED, "deleted": _ITEMS, "access": ACCESS_SHAPE},
    _WARNINGS,
)
_CONTEXT: Final = obj({"policy_id": TEXT, "offending_lines": array(INTEGER)})
_FAULT: Final = obj({"message": TEXT, "context": _CONTEXT}, {"line": INTEGER, "column": INTEGER})
_ANSWERS: Final = (
    Answer(201, "the API keys of new users and hosts, and the version", _LOADED),
    Answer(200, "the changes that the load would make, with dryRun", _DIFFERENCES),
    Answer(422, "the faults of the document, with dryRun", obj({"status": text("Invalid YAML"), "errors": array(_FAULT)})),
)


@attrs.frozen
class Policies:
    """The routes of policies (POL-37 to POL-42)."""

    routes = Routes()
    _loading = partial(
        routes.add,
        path="/policies/<flat:account>/policy/<tail:identifier>",
        name=PathName("policy", RoleName.of, "policy"),
        caller=REQUIRED,
        query=(DRY_RUN,),
        headers=(IDEMPOTENCY_KEY,),
        body=Body("a policy document", ("application/x-yaml",), size=BodySize.POLICY),
        answers=_ANSWERS,
        errors=(*REPEATED, RecordNotFound, Forbidden, PolicyInvalid, PolicyConflict, LoadsUnavailable, WrongDataKey),
        audit=audit_events.or_repeated(audit_events.policy_loaded),
    )

    loads: PolicyLoadService

    @_loading("POST", privileges="create on the policy; on what else the document disposes of, its owner's")
    async def append(self, call: Call, policy: RoleName, *, dry_run: bool, key: str | None) -> Response:
        """Add what the document declares; change and delete nothing."""
        return await self._load(call, policy, LoadMode.APPEND, dry_run, key)

    @_loading("PATCH", privileges="update on the policy; on what else the document disposes of, its owner's")
    async def update(self, call: Call, policy: RoleName, *, dry_run: bool, key: str | None) -> Response:
        """Add what the document declares, and change what is there to match; delete nothing."""
        return await self._load(call, policy, LoadMode.UPDATE, dry_run, key)

    @_loading(
        "PUT", privileges="update on the policy and all beneath it; on what else the document disposes of, its owner's"
    )
    async def replace(self, call: Call, policy: RoleName, *, dry_run: bool, key: str | None) -> Response:
        """Make the policy what the document declares: add, change and delete."""
        return await self._load(call, policy, LoadMode.REPLACE, dry_run, key)

    async def _load(self, call: Call, policy: RoleName, mode: LoadMode, dry_run: bool, key: str | None) -> Response:
        request = call.request_key(key)
        match await self.loads.load_policy(call.invocation, policy, mode, call.body, dry_run=dry_run, request=request):
            case Loaded() as loaded:
                return await _response(_loaded(loaded), 201)
            case DryRun() as told:
                return await _response(_differences(told), 200)
            case DocumentFaults() as found:
                return await _response(_faults(policy, found), 422)


async def _response(chunks: Iterable[bytes], status: int) -> Response:
    async def pieces() -> AsyncGenerator[bytes, None]:
        for piece in gathered(chunks):
            yield piece

    return await Response.json_pieces(pieces(), status=status)


def _loaded(loaded: Loaded) -> Iterator[bytes]:
    yield b'{"created_roles":{'
    comma = b""
    for batch in loaded.api_keys:
        yield comma + _members({actor: {"id": actor, "api_key": key} for actor, key in batch})
        comma = b","
    yield b"}," + _members({"version": loaded.version} | _warnings(loaded.warnings)) + b"}"


def _differences(told: DryRun) -> Iterator[bytes]:
    yield b'{"status":"Valid YAML","created":{"items":['
    yield from _items(told.created)
    yield b']},"updated":{"before":{"items":['
    yield from _items(told.before)
    yield b']},"after":{"items":['
    yield from _items(told.after)
    yield b']}},"deleted":{"items":['
    yield from _items(told.deleted)
    yield b"]},"
    yield from access_json(told)
    warnings = _members(_warnings(told.warnings))
    yield (b"," + warnings if warnings else b"") + b"}"


def _faults(policy: RoleName, found: DocumentFaults) -> Iterator[bytes]:
    yield b'{"status":"Invalid YAML","errors":['
    comma = b""
    for batch in found.faults:
        yield comma
        yield from elements_of([_fault(policy, fault) for fault in batch])
        comma = b","
    yield b"]}"


def _fault(policy: RoleName, fault: DocumentFault) -> dict[str, Json]:
    place = {} if fault.line is None else {"line": fault.line, "column": fault.column}
    context: Json = {"policy_id": policy.identifier, "offending_lines": [] if fault.line is None else [fault.line]}
    return {**place, "message": f"{fault.message}\n{fault.advice}", "context": context}


def _warnings(warnings: tuple[str, ...]) -> dict[str, Json]:
    return {"warnings": warnings} if warnings else {}


def _items(batches: Batches[Item]) -> Iterator[bytes]:
    """Return the inside of an array of items, in chunks; parts of an item are put together."""
    comma, opened, closing = b"", list[bytes](), b""
    for batch in batches:
        for is_part, run in groupby(batch, lambda item: len(item) == 1):
            if not is_part:
                yield closing + comma
                yield from elements_of(list(run))
                comma, opened, closing = b",", [], b""
                continue
            for part in run:
                written = b"{" + _members(part) + b"}"
                chunk, opening = written.rstrip(b"]}"), _opening(part)
                same = takewhile(lambda pair: pair[0] == pair[1], zip(opened, opening, strict=False))
                shared = 0 if "identifier" in part else len(list(same))
                yield closing[: len(opened) - shared] + comma + chunk[sum(map(len, opening[:shared])) :]
                comma, opened, closing = b",", opening, written[len(chunk) :]
    yield closing


def _opening(part: Item) -> list[bytes]:
    """Return the brackets that the text of a part opens, each with the name before it."""
    opening = [b"{"]
    value: object = part
    while isinstance(value, dict) and value:
        ((name, value),) = value.items()
        bracket = b"{" if isinstance(value, dict) else b"["
        if isinstance(value, dict | list):
            opening.append(_members({name: 0})[:-1] + bracket)
    return opening


def _members(members: Mapping[str, Json]) -> bytes:
    """Return the inside of an object."""
    return members_of(members)[1:]


def access_json(told: DryRun) -> Iterator[bytes]:
    """Return the member of an object that tells of access, in chunks."""
    yield b'"access":{"gains":['
    yield from _written(told.gains, "new")
    yield b'],"losses":['
    yield from _written(told.losses, "deleted")
    untold = told.untold
    left_out: Json = {"gains": untold.gains, "new_gains": untold.new_gains, "losses": untold.losses}
    yield b"]," + members_of({"untold": left_out, "complete": untold.complete, "advice": untold.advice})[1:] + b"}"


def _written(changes: Batches[AccessChange], differs: str) -> Iterator[bytes]:
    comma = b""
    for batch in changes:
        yield comma
        yield from elements_of([_change(change, differs) for change in batch])
        comma = b","


def _change(change: AccessChange, differs: str) -> Json:
    return {
        "roles": _names(change.roles, differs),
        "resources": _names(change.resources, differs),
        "privileges": change.privileges,
        "owner": change.owner,
        "except": change.excepted,
        "through": change.through,
        "pairs": change.pairs,
        "way": None if change.way is None else steps_json(change.way),
    }


def _names(names: NamesOf, differs: str) -> Json:
    return {"kind": names.kind, "count": names.count, "first": names.first, differs: names.differs}
