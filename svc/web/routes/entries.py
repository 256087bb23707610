"""The routes that branches and groups have in common, as both are entries of the newer interface (NEWER-10 to NEWER-24)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import attrs

from svc.model.names import RoleName
from svc.services.branch_rules import id_within, refuse_faults, wrong_annotations
from svc.services.branches import BranchEntries, BranchEntry
from svc.services.login import AccessTokenService
from svc.web.http.declarations import Answer
from svc.web.http.messages import Json, Response
from svc.web.http.preconditions import etag_header
from svc.web.http.routing import REQUIRED, Call, Handler, Routes
from svc.web.http.shapes import INTEGER, TEXT, Shape, array_shape, object_shape
from svc.web.http.v2 import document_body, document_parameter, reshape_refusal, v2_response, v2_shape
from svc.web.routes.v2_requests import (
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
    entry_events,
    is_unmodified,
    new_entry,
    page_bounds,
    parse_role,
    write_precondition,
    wrong_owner,
)


@attrs.frozen(kw_only=True)
class EntryKind:
    """A kind of entries: ``kind`` is that of the roles, and ``label`` and ``plural`` are its names in paths and texts.

    ``shape`` is that of an entry, ``optional`` has the members that clients may give, and ``changes`` is the shape of a
    change. ``write_entry`` returns an entry in JSON. ``updating`` and ``deleting`` are the docstrings of those routes,
    ``update_privileges`` what a change requires, and ``deleted`` the answer to a deletion.
    """

    kind: str
    label: str
    plural: str
    shape: Shape
    optional: Mapping[str, Shape]
    changes: Shape
    write_entry: Callable[[BranchEntry], dict[str, Json]]
    updating: str
    update_privileges: str
    deleting: str
    deleted: str


class _Entries(Protocol):
    """An object with the routes of a kind."""

    @property
    def entries(self) -> BranchEntries:
        """The use cases."""

    @property
    def tokens(self) -> AccessTokenService:
        """The use case that checks callers."""


def entry_routes(this: EntryKind) -> Routes:
    """Return the routes that make, list, return, change and delete entries of a kind."""
    routes, label, plural, entry_json = Routes(), this.label, this.plural, this.write_entry
    add = partial(routes.add, caller=REQUIRED, reshape=reshape_refusal)
    path = f"/{plural}/<flat:account>"
    entry_path = f"{path}/<tail:identifier>"
    new = document_parameter(object_shape({"name": TEXT, "branch": TEXT}, this.optional))
    changes = document_parameter(this.changes)
    shape, tag = v2_shape(this.shape), ("ETag",)

    def describe(name: str, text: str) -> Callable[[Handler], Handler]:
        """Return what gives a handler its name as a method of the noun, and its docstring."""

        def rename(handler: Handler) -> Handler:
            handler.__name__, handler.__qualname__, handler.__doc__ = name, f"{plural.capitalize()}.{name}", text
            return handler

        return rename

    @add(
        "POST",
        path,
        headers=HEADERS,
        body=document_body(f"the {label}", new),
        answers=(Answer(201, f"the {label} is made", shape),),
        errors=CHANGE_ERRORS,
        privileges="create on the branch around it",
        audit=entry_events(label, "create", "created", "create"),
    )
    @describe("create", f"Make a {label}.")
    async def create_entry(self: _Entries, call: Call, account: str) -> Response:
        accept = await begin_request(call, self.tokens)
        described = new_entry(account, check_members(call.read_late(new), ("name", "branch"), tuple(this.optional)))
        call.add_audit_facts(name=id_within(described.branch, described.name))
        return v2_response(accept, entry_json(await self.entries.create_entry(call.invocation, described)), 201)

    listed = v2_shape(object_shape({plural: array_shape(this.shape), "count": INTEGER}))

    @add(
        "GET",
        path,
        query=(LIMIT, OFFSET),
        headers=HEADERS,
        answers=(Answer(200, f"{plural}, ordered by id, and how many they are without a page", listed),),
        errors=ERRORS,
        privileges=f"none; {plural} are those on which the caller has read, or that it inspects",
        audit=entry_events(label, "list", "listed", "list"),
    )
    @describe("list", f"List {plural}.")
    async def list_page(self: _Entries, call: Call, account: str) -> Response:
        accept = await begin_request(call, self.tokens, ("limit", "offset"))
        found = await self.entries.read_page(call.invocation, account, *page_bounds(call))
        return v2_response(accept, {plural: [entry_json(each) async for each in found.entries], "count": found.count})

    @add(
        "GET",
        entry_path,
        headers=READ_HEADERS,
        answers=(Answer(200, f"the {label}", shape, tag), Answer(304, "the client has it", None, tag)),
        errors=READ_ERRORS,
        privileges=f"read on the {label}, or inspects it",
        audit=entry_events(label, "get", "retrieved", "retrieve"),
    )
    @describe("show", f"Return a {label}.")
    async def show_entry(self: _Entries, call: Call, account: str, identifier: str) -> Response:
        accept = await begin_request(call, self.tokens)
        found = await self.entries.read_entry(call.invocation, RoleName.from_parts(account, this.kind, identifier))
        if is_unmodified(call, found.entity_tag):
            return Response.empty(304, etag_header(found.entity_tag))
        return v2_response(accept, entry_json(found), headers=etag_header(found.entity_tag))

    @add(
        "PATCH",
        entry_path,
        headers=CHANGE_HEADERS,
        body=document_body("what changes", changes),
        answers=(Answer(200, f"the {label} as it is now", shape, tag),),
        errors=CHANGE_ERRORS,
        privileges=this.update_privileges,
        audit=entry_events(label, "update", "updated", "update"),
    )
    @describe("update", this.updating)
    async def update_entry(self: _Entries, call: Call, account: str, identifier: str) -> Response:
        accept = await begin_request(call, self.tokens)
        given = check_members(call.read_late(changes), (), tuple(this.optional))
        owner, annotations = given.get("owner"), given.get("annotations")
        faults = wrong_owner(owner) if owner is not None else []
        refuse_faults([*faults, *wrong_annotations({} if annotations is None else annotations)])
        name = RoleName.from_parts(account, this.kind, identifier)
        new_owner = None if owner is None else parse_role(account, owner)
        values = annotations if isinstance(annotations, dict) else {}
        changed = await self.entries.update_entry(call.invocation, name, new_owner, values, write_precondition(call))
        return v2_response(accept, entry_json(changed), headers=etag_header(changed.entity_tag))

    @add(
        "DELETE",
        entry_path,
        headers=CHANGE_HEADERS,
        answers=(Answer(204, this.deleted),),
        errors=CHANGE_ERRORS,
        privileges=f"update on the {label}, and on everything that goes with it",
        audit=entry_events(label, "delete", "removed", "remove"),
    )
    @describe("delete", this.deleting)
    async def delete_entry(self: _Entries, call: Call, account: str, identifier: str) -> Response:
        await begin_request(call, self.tokens)
        name = RoleName.from_parts(account, this.kind, identifier)
        await self.entries.delete_entry(call.invocation, name, write_precondition(call))
        return Response.empty()

    return routes
