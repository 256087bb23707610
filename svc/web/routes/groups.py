"""Groups over HTTP in the newer interface, and their members (NEWER-20 to NEWER-24, NEWER-40 to NEWER-45)."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from svc.model.clocks import iso_milliseconds
from svc.model.names import RoleName
from svc.services.branch_rules import (
    MEMBERS,
    branch_around,
    id_within,
    path_of,
    refuse_faults,
    wrong_annotations,
    wrong_role,
)
from svc.services.branches import BranchEntries, BranchEntry
from svc.services.group_members import GroupMemberService
from svc.services.login import AccessTokenService
from svc.web.http.declarations import Answer
from svc.web.http.json_encoding import Json
from svc.web.http.preconditions import etag_header
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import INTEGER, TEXT, array_shape, object_shape, string_shape
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
    READ_ERRORS,
    READ_HEADERS,
    begin_request,
    check_members,
    is_unmodified,
    new_entry,
    page_bounds,
    parse_role,
    write_precondition,
)

_MEMBER: Final = object_shape({"kind": string_shape(*MEMBERS), "id": TEXT})
NEW_MEMBER: Final = document_parameter(_MEMBER)

_MEMBERS_LIST: Final = object_shape({"members": array_shape(_MEMBER), "count": INTEGER})

_GROUP: Final = object_shape({"name": TEXT, "branch": TEXT, "annotations": ANNOTATIONS_SHAPE, "created_at": TEXT})
_LIST: Final = object_shape({"groups": array_shape(_GROUP), "count": INTEGER})

NEW: Final = document_parameter(object_shape({"name": TEXT, "branch": TEXT}, {"annotations": ANNOTATIONS_SHAPE}))
CHANGES: Final = document_parameter(object_shape({"annotations": ANNOTATIONS_SHAPE}))

_GROUPS_PATH: Final = "/groups/<flat:account>"
_GROUP_PATH: Final = f"{_GROUPS_PATH}/<tail:identifier>"
_MEMBERS_PATH: Final = f"{_GROUP_PATH}/members"


@attrs.frozen
class Groups:
    """The routes of groups."""

    routes = Routes()
    _add_route = partial(routes.add, caller=REQUIRED, reshape=reshape_refusal)
    _group_route = partial(_add_route, path=_GROUP_PATH)

    groups: BranchEntries
    tokens: AccessTokenService

    @_add_route(
        "POST",
        _GROUPS_PATH,
        headers=HEADERS,
        body=document_body("the group", NEW),
        answers=(Answer(201, "the group is made", v2_shape(_GROUP)),),
        errors=CHANGE_ERRORS,
        privileges="create on the branch around it",
        audit=v2_events.group_created,
    )
    async def create(self, call: Call, account: str) -> Response:
        """Make a group."""
        accept = await begin_request(call, self.tokens)
        given = check_members(call.read_late(NEW), ("name", "branch"), ("annotations",))
        new = new_entry(account, given)
        call.add_audit_facts(name=id_within(new.branch, new.name))
        return v2_response(accept, _group_json(await self.groups.create_entry(call.invocation, new)), 201)

    @_add_route(
        "GET",
        _GROUPS_PATH,
        query=(LIMIT, OFFSET),
        headers=HEADERS,
        answers=(Answer(200, "groups, ordered by id, and how many they are without a page", v2_shape(_LIST)),),
        errors=ERRORS,
        privileges="none; groups are those on which the caller has read, or that it inspects",
        audit=v2_events.groups_listed,
    )
    async def list(self, call: Call, account: str) -> Response:
        """List groups."""
        accept = await begin_request(call, self.tokens, ("limit", "offset"))
        found = await self.groups.read_page(call.invocation, account, *page_bounds(call))
        return v2_response(accept, {"groups": [_group_json(each) async for each in found.entries], "count": found.count})

    @_group_route(
        "GET",
        headers=READ_HEADERS,
        answers=(Answer(200, "the group", v2_shape(_GROUP), ("ETag",)), Answer(304, "the client has it", None, ("ETag",))),
        errors=READ_ERRORS,
        privileges="read on the group, or inspects it",
        audit=v2_events.group_read,
    )
    async def show(self, call: Call, account: str, identifier: str) -> Response:
        """Return a group."""
        accept = await begin_request(call, self.tokens)
        found = await self.groups.read_entry(call.invocation, RoleName.from_parts(account, "group", identifier))
        if is_unmodified(call, found.entity_tag):
            return Response.empty(304, etag_header(found.entity_tag))
        return v2_response(accept, _group_json(found), headers=etag_header(found.entity_tag))

    @_group_route(
        "PATCH",
        headers=CHANGE_HEADERS,
        body=document_body("what changes", CHANGES),
        answers=(Answer(200, "the group as it is now", v2_shape(_GROUP), ("ETag",)),),
        errors=CHANGE_ERRORS,
        privileges="read and update on the group",
        audit=v2_events.group_updated,
    )
    async def update(self, call: Call, account: str, identifier: str) -> Response:
        """Set annotations."""
        accept = await begin_request(call, self.tokens)
        annotations = check_members(call.read_late(CHANGES), (), ("annotations",)).get("annotations")
        refuse_faults(wrong_annotations({} if annotations is None else annotations))
        name = RoleName.from_parts(account, "group", identifier)
        given = annotations if isinstance(annotations, dict) else {}
        changed = await self.groups.update_entry(call.invocation, name, None, given, write_precondition(call))
        return v2_response(accept, _group_json(changed), headers=etag_header(changed.entity_tag))

    @_group_route(
        "DELETE",
        headers=CHANGE_HEADERS,
        answers=(Answer(204, "the group is gone"),),
        errors=CHANGE_ERRORS,
        privileges="update on the group, and on everything that goes with it",
        audit=v2_events.group_deleted,
    )
    async def delete(self, call: Call, account: str, identifier: str) -> Response:
        """Delete a group with all that it owns."""
        await begin_request(call, self.tokens)
        await self.groups.delete_entry(
            call.invocation, RoleName.from_parts(account, "group", identifier), write_precondition(call)
        )
        return Response.empty()

    @_add_route(
        "DELETE",
        f"{_GROUP_PATH}/annotations/<key>",
        headers=CHANGE_HEADERS,
        answers=(Answer(204, "the annotation is gone"),),
        errors=CHANGE_ERRORS,
        privileges="read and update on the group",
        audit=v2_events.group_updated,
    )
    async def remove_annotation(self, call: Call, account: str, identifier: str, key: str) -> Response:
        """Remove an annotation of a group."""
        await begin_request(call, self.tokens)
        name = RoleName.from_parts(account, "group", identifier)
        await self.groups.remove_annotation(call.invocation, name, key, write_precondition(call))
        return Response.empty()


@attrs.frozen
class GroupMembers:
    """The routes of members of groups."""

    routes = Routes()
    _add_route = partial(routes.add, caller=REQUIRED, reshape=reshape_refusal, headers=HEADERS, errors=CHANGE_ERRORS)

    members: GroupMemberService
    tokens: AccessTokenService

    @_add_route(
        "GET",
        _MEMBERS_PATH,
        query=(LIMIT, OFFSET),
        answers=(Answer(200, "members, ordered by id, and how many they are without a page", v2_shape(_MEMBERS_LIST)),),
        errors=READ_ERRORS,
        privileges="read on the group, or inspects it",
        audit=v2_events.members_listed,
    )
    async def list(self, call: Call, account: str, identifier: str) -> Response:
        """List members of a group; who owns it isn't one by that."""
        accept = await begin_request(call, self.tokens, ("limit", "offset"))
        group = RoleName.from_parts(account, "group", identifier)
        found = await self.members.read_page(call.invocation, group, *page_bounds(call))
        items = [{"id": member.identifier, "kind": member.kind} for member in found.members]
        return v2_response(accept, {"members": items, "count": found.count})

    @_add_route(
        "POST",
        _MEMBERS_PATH,
        body=document_body("the member", NEW_MEMBER),
        answers=(Answer(201, "it is a member now", v2_shape(_MEMBER)),),
        privileges="create on the branch that holds the group; on the group, its owner's, if that isn't the branch",
        audit=v2_events.member_added,
    )
    async def add(self, call: Call, account: str, identifier: str) -> Response:
        """Make a role a member of a group."""
        accept = await begin_request(call, self.tokens)
        given = check_members(call.read_late(NEW_MEMBER), ("kind", "id"))
        group = RoleName.from_parts(account, "group", identifier)
        member = await self.members.add_member(
            call.invocation, group, partial(_read_member, call, account, given["kind"], given["id"])
        )
        return v2_response(accept, {"kind": member.kind, "id": member.identifier}, 201)

    @_add_route(
        "DELETE",
        f"{_MEMBERS_PATH}/<kind>/<tail:member>",
        answers=(Answer(204, "it is no member any more"),),
        privileges="update on the branch that holds the group; on the group, its owner's, if that isn't the branch",
        audit=v2_events.member_removed,
    )
    async def remove(self, call: Call, account: str, identifier: str, kind: str, member: str) -> Response:
        """Remove a member of a group."""
        await begin_request(call, self.tokens)
        group = RoleName.from_parts(account, "group", identifier)
        await self.members.remove_member(call.invocation, group, partial(_read_member, call, account, kind, member))
        return Response.empty()


def _read_member(call: Call, account: str, kind: object, ident: object) -> RoleName:
    refuse_faults(wrong_role(kind, ident, MEMBERS, "member"))
    member = parse_role(account, {"kind": kind, "id": ident})
    call.add_audit_facts(member=str(member))
    return member


def _group_json(entry: BranchEntry) -> dict[str, Json]:
    name = entry.name
    return {
        "name": name.identifier.rpartition("/")[2],
        "branch": path_of(branch_around(name.account, name.identifier)),
        "annotations": entry.annotations,
        "created_at": iso_milliseconds(entry.created_at),
    }
