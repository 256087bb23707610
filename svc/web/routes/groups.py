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
from svc.web.http.json_bytes import Json
from svc.web.http.preconditions import tagged
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import INTEGER, TEXT, array, obj, text
from svc.web.http.v2 import answer, body, document, reshaped, shaped
from svc.web.routes import v2_events
from svc.web.routes.v2_requests import (
    ANNOTATIONS_SHAPE,
    CHANGE_ERRORS,
    CHANGING,
    ERRORS,
    HEADERS,
    LIMIT,
    OFFSET,
    READ_ERRORS,
    READING,
    begin,
    fresh,
    members_of,
    new_entry,
    page,
    precondition,
    role_of,
)

_MEMBER: Final = obj({"kind": text(*MEMBERS), "id": TEXT})
NEW_MEMBER: Final = document(_MEMBER)

_MEMBERS_LIST: Final = obj({"members": array(_MEMBER), "count": INTEGER})

_GROUP: Final = obj({"name": TEXT, "branch": TEXT, "annotations": ANNOTATIONS_SHAPE, "created_at": TEXT})
_LIST: Final = obj({"groups": array(_GROUP), "count": INTEGER})

NEW: Final = document(obj({"name": TEXT, "branch": TEXT}, {"annotations": ANNOTATIONS_SHAPE}))
CHANGES: Final = document(obj({"annotations": ANNOTATIONS_SHAPE}))

_ALL: Final = "/groups/<flat:account>"
_ONE: Final = f"{_ALL}/<tail:identifier>"
_MEMBERS: Final = f"{_ONE}/members"


@attrs.frozen
class Groups:
    """The routes of groups."""

    routes = Routes()
    _adding = partial(routes.add, caller=REQUIRED, reshape=reshaped)
    _of_one = partial(_adding, path=_ONE)

    groups: BranchEntries
    tokens: AccessTokenService

    @_adding(
        "POST",
        _ALL,
        headers=HEADERS,
        body=body("the group", NEW),
        answers=(Answer(201, "the group is made", shaped(_GROUP)),),
        errors=CHANGE_ERRORS,
        privileges="create on the branch around it",
        audit=v2_events.group_created,
    )
    async def create(self, call: Call, account: str) -> Response:
        """Make a group."""
        accept = await begin(call, self.tokens)
        given = members_of(call.late(NEW), ("name", "branch"), ("annotations",))
        new = new_entry(account, given)
        call.add_audit_facts(name=id_within(new.branch, new.name))
        return answer(accept, _item(await self.groups.create_entry(call.invocation, new)), 201)

    @_adding(
        "GET",
        _ALL,
        query=(LIMIT, OFFSET),
        headers=HEADERS,
        answers=(Answer(200, "groups, ordered by id, and how many they are without a page", shaped(_LIST)),),
        errors=ERRORS,
        privileges="none; groups are those on which the caller has read, or that it inspects",
        audit=v2_events.groups_listed,
    )
    async def list(self, call: Call, account: str) -> Response:
        """List groups."""
        accept = await begin(call, self.tokens, ("limit", "offset"))
        found = await self.groups.read_page(call.invocation, account, *page(call))
        return answer(accept, {"groups": [_item(each) async for each in found.entries], "count": found.count})

    @_of_one(
        "GET",
        headers=READING,
        answers=(Answer(200, "the group", shaped(_GROUP), ("ETag",)), Answer(304, "the client has it", None, ("ETag",))),
        errors=READ_ERRORS,
        privileges="read on the group, or inspects it",
        audit=v2_events.group_read,
    )
    async def show(self, call: Call, account: str, identifier: str) -> Response:
        """Return a group."""
        accept = await begin(call, self.tokens)
        found = await self.groups.read_entry(call.invocation, RoleName.of(account, "group", identifier))
        if fresh(call, found.entity_tag):
            return Response.empty(304, tagged(found.entity_tag))
        return answer(accept, _item(found), headers=tagged(found.entity_tag))

    @_of_one(
        "PATCH",
        headers=CHANGING,
        body=body("what changes", CHANGES),
        answers=(Answer(200, "the group as it is now", shaped(_GROUP), ("ETag",)),),
        errors=CHANGE_ERRORS,
        privileges="read and update on the group",
        audit=v2_events.group_updated,
    )
    async def update(self, call: Call, account: str, identifier: str) -> Response:
        """Set annotations."""
        accept = await begin(call, self.tokens)
        said = members_of(call.late(CHANGES), (), ("annotations",)).get("annotations")
        refuse_faults(wrong_annotations({} if said is None else said))
        name = RoleName.of(account, "group", identifier)
        told = said if isinstance(said, dict) else {}
        changed = await self.groups.update_entry(call.invocation, name, None, told, precondition(call))
        return answer(accept, _item(changed), headers=tagged(changed.entity_tag))

    @_of_one(
        "DELETE",
        headers=CHANGING,
        answers=(Answer(204, "the group is gone"),),
        errors=CHANGE_ERRORS,
        privileges="update on the group, and on everything that goes with it",
        audit=v2_events.group_deleted,
    )
    async def delete(self, call: Call, account: str, identifier: str) -> Response:
        """Delete a group with all that it owns."""
        await begin(call, self.tokens)
        await self.groups.delete_entry(call.invocation, RoleName.of(account, "group", identifier), precondition(call))
        return Response.empty()

    @_adding(
        "DELETE",
        f"{_ONE}/annotations/<key>",
        headers=CHANGING,
        answers=(Answer(204, "the annotation is gone"),),
        errors=CHANGE_ERRORS,
        privileges="read and update on the group",
        audit=v2_events.group_updated,
    )
    async def remove_annotation(self, call: Call, account: str, identifier: str, key: str) -> Response:
        """Remove an annotation of a group."""
        await begin(call, self.tokens)
        name = RoleName.of(account, "group", identifier)
        await self.groups.remove_annotation(call.invocation, name, key, precondition(call))
        return Response.empty()


@attrs.frozen
class GroupMembers:
    """The routes of members of groups."""

    routes = Routes()
    _adding = partial(routes.add, caller=REQUIRED, reshape=reshaped, headers=HEADERS, errors=CHANGE_ERRORS)

    members: GroupMemberService
    tokens: AccessTokenService

    @_adding(
        "GET",
        _MEMBERS,
        query=(LIMIT, OFFSET),
        answers=(Answer(200, "members, ordered by id, and how many they are without a page", shaped(_MEMBERS_LIST)),),
        errors=READ_ERRORS,
        privileges="read on the group, or inspects it",
        audit=v2_events.members_listed,
    )
    async def list(self, call: Call, account: str, identifier: str) -> Response:
        """List members of a group; who owns it isn't one by that."""
        accept = await begin(call, self.tokens, ("limit", "offset"))
        group = RoleName.of(account, "group", identifier)
        found = await self.members.read_page(call.invocation, group, *page(call))
        items = [{"id": member.identifier, "kind": member.kind} for member in found.members]
        return answer(accept, {"members": items, "count": found.count})

    @_adding(
        "POST",
        _MEMBERS,
        body=body("the member", NEW_MEMBER),
        answers=(Answer(201, "it is a member now", shaped(_MEMBER)),),
        privileges="create on the branch that holds the group; on the group, its owner's, if that isn't the branch",
        audit=v2_events.member_added,
    )
    async def add(self, call: Call, account: str, identifier: str) -> Response:
        """Make a role a member of a group."""
        accept = await begin(call, self.tokens)
        given = members_of(call.late(NEW_MEMBER), ("kind", "id"))
        group = RoleName.of(account, "group", identifier)
        member = await self.members.add_member(
            call.invocation, group, partial(_named, call, account, given["kind"], given["id"])
        )
        return answer(accept, {"kind": member.kind, "id": member.identifier}, 201)

    @_adding(
        "DELETE",
        f"{_MEMBERS}/<kind>/<tail:member>",
        answers=(Answer(204, "it is no member any more"),),
        privileges="update on the branch that holds the group; on the group, its owner's, if that isn't the branch",
        audit=v2_events.member_removed,
    )
    async def remove(self, call: Call, account: str, identifier: str, kind: str, member: str) -> Response:
        """Remove a member of a group."""
        await begin(call, self.tokens)
        group = RoleName.of(account, "group", identifier)
        await self.members.remove_member(call.invocation, group, partial(_named, call, account, kind, member))
        return Response.empty()


def _named(call: Call, account: str, kind: object, ident: object) -> RoleName:
    refuse_faults(wrong_role(kind, ident, MEMBERS, "member"))
    member = role_of(account, {"kind": kind, "id": ident})
    call.add_audit_facts(member=str(member))
    return member


def _item(entry: BranchEntry) -> dict[str, Json]:
    name = entry.name
    return {
        "name": name.identifier.rpartition("/")[2],
        "branch": path_of(branch_around(name.account, name.identifier)),
        "annotations": entry.annotations,
        "created_at": iso_milliseconds(entry.created_at),
    }
