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
    path_of,
    refuse_faults,
    wrong_role,
)
from svc.services.branches import BranchEntries, BranchEntry
from svc.services.group_members import GroupMemberService
from svc.services.login import AccessTokenService
from svc.web.http.declarations import Answer
from svc.web.http.messages import Json, Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import INTEGER, TEXT, array_shape, object_shape, string_shape
from svc.web.http.v2 import document_body, document_parameter, reshape_refusal, v2_response, v2_shape
from svc.web.routes.entries import EntryKind, entry_routes
from svc.web.routes.v2_requests import (
    ANNOTATIONS_SHAPE,
    CHANGE_ERRORS,
    CHANGE_HEADERS,
    HEADERS,
    LIMIT,
    OFFSET,
    READ_ERRORS,
    begin_request,
    check_members,
    entry_events,
    member_added,
    member_removed,
    members_listed,
    page_bounds,
    parse_role,
    write_precondition,
)

_MEMBER: Final = object_shape({"kind": string_shape(*MEMBERS), "id": TEXT})
NEW_MEMBER: Final = document_parameter(_MEMBER)

_MEMBERS_LIST: Final = object_shape({"members": array_shape(_MEMBER), "count": INTEGER})

_GIVEN: Final = {"annotations": ANNOTATIONS_SHAPE}

_GROUP_PATH: Final = "/groups/<flat:account>/<tail:identifier>"
_MEMBERS_PATH: Final = f"{_GROUP_PATH}/members"


def _group_json(entry: BranchEntry) -> dict[str, Json]:
    name = entry.name
    return {
        "name": name.identifier.rpartition("/")[2],
        "branch": path_of(branch_around(name.account, name.identifier)),
        "annotations": entry.annotations,
        "created_at": iso_milliseconds(entry.created_at),
    }


@attrs.frozen
class Groups:
    """The routes of groups."""

    routes = entry_routes(
        EntryKind(
            kind="group",
            label="group",
            plural="groups",
            shape=object_shape({"name": TEXT, "branch": TEXT, **_GIVEN, "created_at": TEXT}),
            optional=_GIVEN,
            changes=object_shape(_GIVEN),
            write_entry=_group_json,
            updating="Set annotations.",
            update_privileges="read and update on the group",
            deleting="Delete a group with all that it owns.",
            deleted="the group is gone",
        )
    )

    entries: BranchEntries
    tokens: AccessTokenService

    @routes.add(
        "DELETE",
        f"{_GROUP_PATH}/annotations/<key>",
        caller=REQUIRED,
        reshape=reshape_refusal,
        headers=CHANGE_HEADERS,
        answers=(Answer(204, "the annotation is gone"),),
        errors=CHANGE_ERRORS,
        privileges="read and update on the group",
        audit=entry_events("group", "update", "updated", "update"),
    )
    async def remove_annotation(self, call: Call, account: str, identifier: str, key: str) -> Response:
        """Remove an annotation of a group."""
        await begin_request(call, self.tokens)
        name = RoleName.from_parts(account, "group", identifier)
        await self.entries.remove_annotation(call.invocation, name, key, write_precondition(call))
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
        audit=members_listed,
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
        audit=member_added,
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
        audit=member_removed,
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
