"""Branches over HTTP: policies in the newer interface (NEWER-10 to NEWER-17)."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from svc.model.names import RoleName, root_policy
from svc.services.branch_rules import (
    branch_around,
    id_within,
    is_root,
    path_of,
    refuse_faults,
    wrong_annotations,
)
from svc.services.branches import BranchEntries, BranchEntry
from svc.services.login import AccessTokenService
from svc.web.http.declarations import Answer
from svc.web.http.json_encoding import Json
from svc.web.http.preconditions import etag_header
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import INTEGER, TEXT, array_shape, object_shape
from svc.web.http.v2 import document_body, document_parameter, reshape_refusal, v2_response, v2_shape
from svc.web.routes import v2_events
from svc.web.routes.v2_requests import (
    ANNOTATIONS_SHAPE,
    CHANGE_ERRORS,
    CHANGE_HEADERS,
    ERRORS,
    HEADERS,
    LIMIT,
    OFFSET,
    OWNER_SHAPE,
    READ_ERRORS,
    READ_HEADERS,
    begin_request,
    check_members,
    is_unmodified,
    new_entry,
    page_bounds,
    parse_role,
    write_precondition,
    wrong_owner,
)

_BRANCH: Final = object_shape({"name": TEXT, "branch": TEXT, "owner": OWNER_SHAPE, "annotations": ANNOTATIONS_SHAPE})
_LIST: Final = object_shape({"branches": array_shape(_BRANCH), "count": INTEGER})

_GIVEN: Final = {"owner": OWNER_SHAPE, "annotations": ANNOTATIONS_SHAPE}
NEW: Final = document_parameter(object_shape({"name": TEXT, "branch": TEXT}, _GIVEN))
CHANGES: Final = document_parameter(object_shape({}, _GIVEN))

_BRANCHES_PATH: Final = "/branches/<flat:account>"


@attrs.frozen
class Branches:
    """The routes of branches."""

    routes = Routes()
    _add_route = partial(routes.add, caller=REQUIRED, reshape=reshape_refusal)
    _branch_route = partial(_add_route, path=f"{_BRANCHES_PATH}/<tail:identifier>")

    branches: BranchEntries
    tokens: AccessTokenService

    @_add_route(
        "POST",
        _BRANCHES_PATH,
        headers=HEADERS,
        body=document_body("the branch", NEW),
        answers=(Answer(201, "the branch is made", v2_shape(_BRANCH)),),
        errors=CHANGE_ERRORS,
        privileges="create on the branch around it",
        audit=v2_events.branch_created,
    )
    async def create(self, call: Call, account: str) -> Response:
        """Make a branch."""
        accept = await begin_request(call, self.tokens)
        given = check_members(call.read_late(NEW), ("name", "branch"), ("owner", "annotations"))
        new = new_entry(account, given)
        call.add_audit_facts(name=id_within(new.branch, new.name))
        return v2_response(accept, _branch_json(await self.branches.create_entry(call.invocation, new)), 201)

    @_add_route(
        "GET",
        _BRANCHES_PATH,
        query=(LIMIT, OFFSET),
        headers=HEADERS,
        answers=(Answer(200, "branches, ordered by id, and how many they are without a page", v2_shape(_LIST)),),
        errors=ERRORS,
        privileges="none; branches are those on which the caller has read, or that it inspects",
        audit=v2_events.branches_listed,
    )
    async def list(self, call: Call, account: str) -> Response:
        """List branches."""
        accept = await begin_request(call, self.tokens, ("limit", "offset"))
        found = await self.branches.read_page(call.invocation, account, *page_bounds(call))
        return v2_response(accept, {"branches": [_branch_json(each) async for each in found.entries], "count": found.count})

    @_branch_route(
        "GET",
        headers=READ_HEADERS,
        answers=(
            Answer(200, "the branch", v2_shape(_BRANCH), ("ETag",)),
            Answer(304, "the client has it", None, ("ETag",)),
        ),
        errors=READ_ERRORS,
        privileges="read on the branch, or inspects it",
        audit=v2_events.branch_read,
    )
    async def show(self, call: Call, account: str, identifier: str) -> Response:
        """Return a branch."""
        accept = await begin_request(call, self.tokens)
        found = await self.branches.read_entry(call.invocation, RoleName.from_parts(account, "policy", identifier))
        if is_unmodified(call, found.entity_tag):
            return Response.empty(304, etag_header(found.entity_tag))
        return v2_response(accept, _branch_json(found), headers=etag_header(found.entity_tag))

    @_branch_route(
        "PATCH",
        headers=CHANGE_HEADERS,
        body=document_body("what changes", CHANGES),
        answers=(Answer(200, "the branch as it is now", v2_shape(_BRANCH), ("ETag",)),),
        errors=CHANGE_ERRORS,
        privileges="read and update on the branch; for its owner, the branch's own owner",
        audit=v2_events.branch_updated,
    )
    async def update(self, call: Call, account: str, identifier: str) -> Response:
        """Set annotations, and the owner."""
        accept = await begin_request(call, self.tokens)
        given = check_members(call.read_late(CHANGES), (), ("owner", "annotations"))
        owner, annotations = given.get("owner"), given.get("annotations")
        refuse_faults(
            [
                *(wrong_owner(owner) if owner is not None else ()),
                *wrong_annotations({} if annotations is None else annotations),
            ]
        )
        given_annotations = annotations if isinstance(annotations, dict) else {}
        changed = await self.branches.update_entry(
            call.invocation,
            RoleName.from_parts(account, "policy", identifier),
            None if owner is None else parse_role(account, owner),
            given_annotations,
            write_precondition(call),
        )
        return v2_response(accept, _branch_json(changed), headers=etag_header(changed.entity_tag))

    @_branch_route(
        "DELETE",
        headers=CHANGE_HEADERS,
        answers=(Answer(204, "the branch and everything in it is gone"),),
        errors=CHANGE_ERRORS,
        privileges="update on the branch, and on everything that goes with it",
        audit=v2_events.branch_deleted,
    )
    async def delete(self, call: Call, account: str, identifier: str) -> Response:
        """Delete a branch with everything in it."""
        await begin_request(call, self.tokens)
        await self.branches.delete_entry(
            call.invocation, RoleName.from_parts(account, "policy", identifier), write_precondition(call)
        )
        return Response.empty()


def _branch_json(entry: BranchEntry) -> dict[str, Json]:
    name = entry.name
    place = root_policy(name.account) if is_root(name) else branch_around(name.account, name.identifier)
    return {
        "name": name.identifier.rpartition("/")[2],
        "branch": path_of(place),
        "owner": {"kind": entry.owner.kind, "id": entry.owner.identifier},
        "annotations": entry.annotations,
    }
