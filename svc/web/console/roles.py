"""The page of one role: its logins and tokens, its members, what it is a member of, and what it reaches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import attrs

from svc.model.authentication import LastLogin
from svc.model.errors import CredentialImpossible, Forbidden, InvalidName, RecordNotFound
from svc.model.events import Event, EventsQuery, StoredEvent
from svc.model.names import ACTOR_KINDS, ResourceName, RoleName
from svc.model.query_results import ListingKey, Membership, MembersQuery
from svc.services.access import AccessService
from svc.services.audit_events import AuditService
from svc.services.inactive_roles import InactiveRoleService
from svc.services.revocation import RevocationService
from svc.services.roles import RoleService
from svc.web.console import links, pages
from svc.web.console.policies import enclosing_policies
from svc.web.console.rendering import PageRenderer
from svc.web.http.messages import Response
from svc.web.http.routing import Call, Routes
from svc.web.routes.access import AFTER_RESOURCE
from svc.web.routes.audit import audit_read_event
from svc.web.routes.cursors import encode_cursor, resource_cursor
from svc.web.routes.listing import CURSOR
from svc.web.routes.revocation import tokens_revoked
from svc.web.routes.roles import members_listed, role_read

#: How many of the resources that a role reaches are shown, but where that list is continued.
MAX_REACHED: Final = 20

REACHED_AFTER: Final = attrs.evolve(AFTER_RESOURCE, field="reached_after")


@attrs.frozen
class TokensView:
    """The logins and tokens of a user or host: ``revoked`` has their last revocation; ``None`` if the reader may not see it.

    ``followers`` are the servers whose logins aren't counted.
    """

    last_login: LastLogin
    followers: Sequence[str]
    revoked: Sequence[StoredEvent] | None
    is_own: bool
    may_revoke: bool


def role_events(call: Call) -> list[Event]:
    """The members of a role were listed, what it is a member of, and what it reaches; a user or host was shown."""
    name = call.values["name"]
    account, _, rest = name.partition(":")
    asked = (("account", account), ("kind", rest.partition(":")[0] or "-"), ("limit", str(pages.ROWS)))
    shown = [role_read(name, "show")] if call.audit_facts.get("tokens") else []
    shown += [audit_read_event(name)] if call.audit_facts.get("audit") else []
    reached = [role_read(name, "reach")] if call.audit_facts.get("reach") else []
    return [members_listed(name, asked), role_read(name, "memberships"), *shown, *reached]


@attrs.frozen
class RolePage:
    """The page of a role."""

    routes = Routes()

    renderer: PageRenderer
    roles: RoleService
    access: AccessService
    inactive_roles: InactiveRoleService
    audit: AuditService
    revocation: RevocationService

    @pages.declare_page(
        routes, "/ui/roles/<tail:name>", query=(CURSOR, REACHED_AFTER), privileges="sees the role", audit=role_events
    )
    async def show(self, call: Call, name: str, *, after: ListingKey | None, reached_after: str | None) -> Response:
        """Return the members of a role, what it is a member of, its logins, and what it reaches (CON-24, CON-26, CON-47)."""
        resource = pages.parse_full_id(name)
        role = _require_role(resource)
        try:
            page = await self.roles.list_members(call.invocation, MembersQuery(role, limit=pages.ROWS, after=after))
        except Forbidden:
            # By the routes of roles that is another answer than of a role that isn't there (ROLE-10).
            raise RecordNotFound.for_name(role, hidden=True) from None
        members = [member async for batch in page.batches for member in batch]
        memberships: list[Membership] = []
        async for batch in (await self.roles.list_memberships(call.invocation, MembersQuery(role), ())).batches:
            memberships += batch[: pages.ROWS + 1]
            break
        tokens = await self._tokens_view(call, role) if role.kind in ACTOR_KINDS else None
        call.add_audit_facts(reach=True)
        most = MAX_REACHED if reached_after is None else pages.ROWS
        reach = await self.access.list_reachable_resources(call.invocation, role, limit=most, after=reached_after)
        path = links.role(str(role))
        further = None if reach.after is None else links.with_query(path, (("after", resource_cursor(reach.after)),))
        return self.renderer.render_page(
            call.visit,
            "role.html",
            title=role.identifier,
            name=str(role),
            login=role.login,
            above=await enclosing_policies(self.access, call, resource),
            tokens=tokens,
            members=members,
            is_continued=after is not None,
            more=None if page.last is None else links.with_query(path, (("cursor", encode_cursor(page.last)),)),
            memberships=memberships[: pages.ROWS],
            is_cut=len(memberships) > pages.ROWS,
            reached=reach.resources,
            reaches_on=reached_after is not None,
            further=None if further is None else f"{further}#reach",
            most=pages.ROWS,
            path=path,
        )

    @pages.declare_form_post(
        routes,
        "/ui/roles/<tail:name>",
        answers=(pages.PAGE, pages.SEE_OTHER),
        errors=(Forbidden, RecordNotFound, CredentialImpossible),
        privileges="none for one's own; update on another role",
        audit=tokens_revoked,
    )
    async def revoke_tokens(self, call: Call, name: str) -> Response:
        """Revoke all access tokens and sessions of the role (CON-48)."""
        role = _require_role(pages.parse_full_id(name))
        await self.revocation.revoke_role_tokens(call.invocation, lambda: role)
        if role == call.caller.role:
            call.visit.ended = True
            return Response.empty(303, (("Location", f"{links.SIGN_IN}?out"),))
        return self.renderer.render_page(call.visit, "revoked.html", title="Tokens revoked", name=str(role))

    async def _tokens_view(self, call: Call, role: RoleName) -> TokensView:
        last_login = await self.roles.read_last_login(call.invocation, role)
        call.add_audit_facts(tokens=True)
        revoked: Sequence[StoredEvent] | None = None
        query = EventsQuery("", msgid="token", what="revoke", limit=1)
        with suppress(Forbidden):
            revoked = await self.audit.list_events_about(call.invocation, query, role.resource, "role")
            call.add_audit_facts(audit=True)
        is_own = role == call.caller.role
        may_revoke = not is_own and await self.revocation.may_revoke(call.caller, role)
        return TokensView(last_login, await self.inactive_roles.followers(), revoked, is_own, may_revoke)


def _require_role(name: ResourceName) -> RoleName:
    try:
        return name.role
    except InvalidName:
        raise RecordNotFound.for_name(name) from None
