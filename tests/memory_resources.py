"""Resources in memory: the fake of ``ResourceStore`` (see ``memory``)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from math import isfinite

import attrs

from svc.model.errors import TooManyRoles
from svc.model.host_factories import name_token
from svc.model.names import ResourceName
from svc.model.query_results import (
    Caller,
    ExpirationState,
    OutstandingToken,
    Permission,
    RecordedVersion,
    Resource,
    ResourceAnnotation,
    ResourcesPage,
    ResourcesQuery,
    Search,
    SecretVersion,
    count_text_bytes,
)
from svc.storage.resources import ResourceStore
from tests.memory import ExpirationRow, MemoryStore, kind_of

#: The fake has no clock: everything was made at once.
MADE = 1709209815.25

#: How many tokens of a host factory are told.
TOKENS_TOLD = 100

#: How many permissions and annotations a resource has at most that doesn't come in parts.
PART = 4

_STOP_WORDS = {"a", "and", "the", "of", "to", "in", "it", "is"}


class MemoryResources(MemoryStore, ResourceStore):
    """A fake of ``ResourceStore``. Its searches know no other ending of a word than that of the plural."""

    async def list_visible(self, query: ResourcesQuery) -> list[str]:
        """See ``ResourceStore``."""
        self.memory.ask()
        return sorted(self._matching(query), key=self._place(query.search))[query.offset : query.offset + query.limit]

    async def read_first_page(self, caller: Caller, query: ResourcesQuery, text_limit: int = 0) -> ResourcesPage:
        """See ``ResourceStore``."""
        self.memory.ask()
        if not self.memory.access_facts(caller, str(caller.role)).holds:
            return ResourcesPage(False)
        ids = await self.list_visible(query)
        portions = [portion async for portion in self.stream_described(ids, text_limit)]
        first = portions[0] if portions and not portions[0][0].continued else ()
        return ResourcesPage(True, tuple(first), tuple(ids[len(first) :]))

    async def count_visible(self, query: ResourcesQuery) -> int:
        """See ``ResourceStore``."""
        self.memory.ask()
        return sum(1 for _ in self._matching(query))

    async def stream_described(self, ids: Sequence[str], text_limit: int = 0) -> AsyncIterator[Sequence[Resource]]:
        """See ``ResourceStore``; a portion has two resources, or ``PART`` permissions or annotations of one."""
        self.memory.ask()
        found, room = [], text_limit
        for name in ids:
            if name in self.memory.resources:
                found.append(self._described(name, room))
                room -= count_text_bytes(found[-1:])
        portion: list[Resource] = []
        for resource in found:
            if len(portion) == 2 or len(resource.permissions) + len(resource.annotations) > PART:
                if portion:
                    yield portion
                portion = []
            if len(resource.permissions) + len(resource.annotations) <= PART:
                portion.append(resource)
                continue
            rest = attrs.evolve(resource, permissions=(), annotations=())
            for start in range(0, len(resource.permissions), PART):
                yield [attrs.evolve(rest, permissions=resource.permissions[start : start + PART], continued=True)]
            for start in range(0, len(resource.annotations), PART):
                yield [attrs.evolve(rest, annotations=resource.annotations[start : start + PART], continued=True)]
            yield [rest]
        if portion:
            yield portion

    async def list_permitted_roles(self, resource: ResourceName, privilege: str, limit: int) -> list[str]:
        """See ``ResourceStore``."""
        self.memory.ask()
        name = str(resource)
        direct = {role for thing, given, role in self.memory.permissions if (thing, given) == (name, privilege)}
        if name in self.memory.resources:
            direct.add(self.memory.resources[name][0])
        roles = sorted((role for role in self.memory.roles if self.memory.held(role) & direct), key=str.encode)
        if len(roles) > limit:
            raise TooManyRoles(limit)
        return roles

    def _matching(self, query: ResourcesQuery) -> Iterator[str]:
        held = self.memory.held(str(query.viewer))
        of_owner = None if query.owner is None else self.memory.held(str(query.owner))
        permitted = {resource for resource, _, role in self.memory.permissions if role in held}
        for resource, (owner, _) in self.memory.resources.items():
            account, kind, _ = resource.split(":", 2)
            if (
                (owner in held or resource in permitted or self.memory.inspects(str(query.viewer), resource))
                and query.account in {None, account}
                and (not query.kinds or kind in query.kinds)
                and (query.after is None or resource.encode() > query.after.encode())
                and (of_owner is None or owner in of_owner)
                and (query.below is None or resource.split(":", 2)[2].startswith(f"{query.below}/"))
                and (query.after is None or resource.encode() > query.after.encode())
                and (query.search is None or self._class(resource, query.search) is not None)
            ):
                yield resource

    def _place(self, search: Search | None) -> Callable[[str], tuple[int, bytes]]:
        def place(resource: str) -> tuple[int, bytes]:
            found = self._class(resource, search) if search is not None and search.by_class else None
            return (found or 0, resource.encode())

        return place

    def _class(self, resource: str, search: Search) -> int | None:
        """The lowest class in which a word is found; ``None`` when a word is found in none, or when there is no word."""
        wanted = _words(search.text, split=True)
        annotations = [(name, value) for (thing, name), (value, _) in self.memory.annotations.items() if thing == resource]
        classes = [
            _words(resource.split(":", 2)[2], split=True)
            | {word for name, value in annotations if name == "name" for word in _words(value, split=search.split)},
            {word for name, value in annotations if name != "name" for word in _words(value, split=search.split)},
            _words(kind_of(resource), split=False),
        ]
        if not wanted or not wanted <= set().union(*classes):
            return None
        return next(number for number, words in enumerate(classes) if words & wanted)

    def _described(self, resource: str, text_limit: int) -> Resource:
        memory = self.memory
        owner, policy = memory.resources[resource]
        permissions = [
            Permission(privilege, role, by)
            for (thing, privilege, role), by in memory.permissions.items()
            if thing == resource
        ]
        annotations = [
            ResourceAnnotation(name, value, by)
            for (thing, name), (value, by) in memory.annotations.items()
            if thing == resource
        ]
        layers = (
            [
                role
                for role, member, ownership in memory.memberships
                if member == resource and not ownership and kind_of(role) == "layer"
            ]
            if kind_of(resource) == "host_factory"
            else []
        )
        tokens = [
            OutstandingToken(name_token(digest), token.expires_at, token.networks)
            for digest, token in sorted(memory.factory_tokens.items(), key=lambda item: (item[1].expires_at, item[0]))
            if str(token.factory) == resource
        ]
        return Resource(
            resource,
            owner,
            policy,
            MADE,
            tuple(sorted(permissions, key=lambda permission: (permission.role.encode(), permission.privilege.encode()))),
            tuple(sorted(annotations, key=lambda annotation: annotation.name.encode())),
            tuple(
                SecretVersion(number, memory.lives[resource, number][1], memory.lives[resource, number][0])
                for number in sorted(memory.secrets.get(resource, {}))
            ),
            self._history(resource, text_limit),
            tuple(sorted(layers, key=str.encode)),
            tuple(sorted(cidr for role, cidr in memory.restrictions if role == resource)),
            tuple(tokens[:TOKENS_TOLD]),
            self._expiration(resource),
        )

    def _expiration(self, resource: str) -> ExpirationState | None:
        if not self.memory.about_expiration(resource) or kind_of(resource) != "variable":
            return None
        row = self.memory.expirations.get(resource, ExpirationRow())
        return ExpirationState(row.due_at if isfinite(row.due_at) else None, row.failures, row.fault)

    def _history(self, policy: str, text_limit: int) -> tuple[RecordedVersion, ...]:
        history = []
        for number, version in sorted(self.memory.versions.get(policy, {}).items(), reverse=True):
            text_limit -= len(version.text.encode())
            text = version.text if text_limit >= 0 else None
            history.append(RecordedVersion(number, MADE, version.sha256, str(version.loaded_by), version.client_ip, text))
        return tuple(reversed(history))


def _words(text: str, *, split: bool) -> set[str]:
    pieces = re.split(r"[\s./-]+" if split else r"\s+", text.lower())
    words = (piece.strip("'\"!&|():*,;") for piece in pieces)
    return {word.removesuffix("s") for word in words if word and word not in _STOP_WORDS}
