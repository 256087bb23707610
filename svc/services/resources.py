"""The use cases of resources: the list of those that a role sees, and the privileges on one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import attrs

from svc.model.authorization import Allowed, decide_privilege, decide_role_visibility, require_visible
from svc.model.dialect import Dialect
from svc.model.errors import Forbidden, InvalidName, InvalidParameter, RecordNotFound
from svc.model.names import ResourceName, RoleName, root_policy
from svc.model.query_results import Resource, ResourcesPage, ResourcesQuery, count_text_bytes
from svc.services.invocation import Invocation
from svc.services.membership_lists import USUAL, require_rows
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore

#: The most roles with a privilege that are listed; nobody reads more, and each request would keep them all in memory.
PERMITTED_MOST: Final = 100_000
#: The most bytes of policy texts that an answer has, newest versions of each policy first (RES-19).
TEXTS_MOST: Final = 1024 * 1024

#: Returns the id of the role whose resources are requested, ``None`` for those of all; it is called after the check that the
#: caller may act as the role that it names, and may raise ``InvalidParameter``.
Owner = Callable[[], str | None]


@attrs.frozen
class ResourceService:
    """The use cases of resources. ``acting_as`` is the full id of the role that the caller acts as, its own when ``None``.

    :raises Forbidden: by all methods: the caller's role is gone, or it doesn't hold the one that it acts as.
    :raises NotFound: by those of one resource: there is no such resource, or the caller may not see it.
    """

    store: ResourceStore
    roles: RoleStore
    dialect: Dialect

    async def list_resources(
        self, invocation: Invocation, query: ResourcesQuery, acting_as: str | None, owner: Owner
    ) -> AsyncIterator[Sequence[Resource]]:
        """Return the resources that the acting role sees, in portions.

        :param query: the request; its ``viewer`` and ``owner`` are set here.
        :param owner: an id ``kind:id`` or a full one: only resources that this role owns itself are listed.
        :raises InvalidParameter: ``owner`` has not the form of an id.
        :raises NotFound: ``owner`` is no role, or the caller may not see it.
        """
        if acting_as is None and _is_usual(query, owner):
            query = attrs.evolve(query, viewer=invocation.caller.role)
            page = await self.store.read_first_page(invocation.caller, query, self._texts_limit)
            _require_held(invocation.caller.role, invocation.caller.role, holds=page.caller_exists)
            return self._stream_page(page)
        query = await self._complete_query(invocation, query, acting_as, owner)
        return self.store.stream_described(await self.store.list_visible(query), self._texts_limit)

    async def count_resources(
        self, invocation: Invocation, query: ResourcesQuery, acting_as: str | None, owner: Owner
    ) -> int:
        """Return how many resources ``list_resources`` has, whatever ``limit`` and ``offset``; the same is raised."""
        return await self.store.count_visible(await self._complete_query(invocation, query, acting_as, owner))

    async def list_names(
        self, invocation: Invocation, query: ResourcesQuery, policy: ResourceName | None = None
    ) -> Sequence[str]:
        """Return the full ids of the resources that the caller sees, and nothing else about them.

        :param policy: only those beneath it are listed, of the one kind of the query: by their ids, or for users, whose ids
            don't show it, by their owners.
        :raises NotFound: ``policy`` is none, or the caller may not see it.
        """
        caller = await self._acting_role(invocation, None)
        query = attrs.evolve(query, viewer=caller)
        if policy is not None:
            require_visible(await self.roles.access_facts(invocation.caller, policy), policy)
            query = attrs.evolve(query, account=policy.account)
            if policy != root_policy(policy.account).resource:
                of_users = query.kinds == ("user",)
                query = attrs.evolve(query, owner=policy.role) if of_users else attrs.evolve(query, below=policy.identifier)
        return await self.store.list_visible(query)

    async def read_resource(
        self, invocation: Invocation, name: ResourceName, texts: int = TEXTS_MOST
    ) -> AsyncIterator[Sequence[Resource]]:
        """Return a resource, in parts where it is large; of a policy's texts the newest, ``texts`` bytes of them."""
        require_visible(await self.roles.access_facts(invocation.caller, name), name)
        return await require_rows(self.store.stream_described([str(name)], texts), name)

    async def has_privilege(self, invocation: Invocation, name: ResourceName, privilege: str, acting_as: str | None) -> bool:
        """Return whether the acting role has a privilege on a resource."""
        caller = invocation.caller.role
        role = caller if acting_as is None else await self._acting_role(invocation, acting_as)
        read = self.roles.cached_access_facts if acting_as is None else self.roles.access_facts
        access_facts = await read(invocation.caller, name)
        require_visible(access_facts, name)
        if role != caller:
            access_facts = await self.roles.access_facts(role, name)
        return decide_privilege(access_facts, privilege) == Allowed()

    async def list_permitted_roles(self, invocation: Invocation, name: ResourceName, privilege: str) -> Sequence[str]:
        """Return the full ids of the roles that have a privilege on a resource, in order.

        :raises TooManyRoles: they are more than ``PERMITTED_MOST``.
        """
        require_visible(await self.roles.access_facts(invocation.caller, name), name)
        return await self.store.list_permitted_roles(name, privilege, PERMITTED_MOST)

    async def _complete_query(
        self, invocation: Invocation, query: ResourcesQuery, acting_as: str | None, owner: Owner
    ) -> ResourcesQuery:
        viewer = await self._acting_role(invocation, acting_as)
        text = owner()
        named = None if text is None else await self._find_owner(text, query.account, viewer)
        return attrs.evolve(query, viewer=viewer, owner=named)

    async def _acting_role(self, invocation: Invocation, acting_as: str | None) -> RoleName:
        caller = invocation.caller.role
        try:
            role = caller if acting_as is None else RoleName.parse(acting_as)
        except InvalidName as refusal:
            raise Forbidden(f"{caller} may not act as what is no role: {refusal.message}") from None
        _require_held(caller, role, holds=await self.roles.holds_role(invocation.caller, role))
        return role

    @property
    def _texts_limit(self) -> int:
        return TEXTS_MOST if self.dialect.lists_policy_texts else 0

    async def _stream_page(self, page: ResourcesPage) -> AsyncIterator[Sequence[Resource]]:
        if page.first:
            yield page.first
        if page.rest:
            async for portion in self.store.stream_described(page.rest, self._texts_limit - count_text_bytes(page.first)):
                yield portion

    async def _find_owner(self, text: str, account: str | None, viewer: RoleName) -> RoleName:
        """Return the role whose resources are requested; only callers who see it or hold it learn that it exists."""
        parts = text.split(":", 2)
        if len(parts) < 2:
            raise InvalidParameter("owner", f"'owner' must be the id of a role. Expected at least 2 tokens in {text}")
        account, kind, identifier = [account or viewer.account, *parts] if len(parts) == 2 else parts
        try:
            owner = RoleName.from_parts(account, kind, identifier)
        except InvalidName:
            raise RecordNotFound(account, kind, identifier) from None
        access_facts = await self.roles.access_facts(viewer, owner.resource)
        if not (access_facts.holds or decide_role_visibility(access_facts) == Allowed()):
            raise RecordNotFound.for_name(owner, hidden=access_facts.exists)
        return owner


def _is_usual(query: ResourcesQuery, owner: Owner) -> bool:
    """Return whether a list begins with the first resource of an account, and has few: only these lists are cached."""
    if query.account is None or query.search is not None or query.offset or query.limit > USUAL or query.after is not None:
        return False
    try:
        return owner() is None
    except InvalidParameter:
        return False  # The caller's rights are checked first.


def _require_held(caller: RoleName, role: RoleName, *, holds: bool) -> None:
    if not holds:
        raise Forbidden(f"{caller} may not act as {role}")
