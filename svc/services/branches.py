"""The use cases of branches: policies as the newer interface has them, one by one (NEWER-10 to NEWER-17)."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, TypeVar

import attrs

from svc.model.authorization import Allowed, decide_privilege, decide_visibility
from svc.model.dialect import Dialect
from svc.model.errors import Conflict, Forbidden, RecordNotFound, Unprocessable
from svc.model.names import RoleName, admin_of
from svc.model.policy_loads import AnnotationRow, Changes, MembershipRow, ResourceRow, Rows
from svc.model.query_results import AccessFacts, Resource, ResourcesQuery
from svc.policy.effective_policy import TAGS, absolute_reference
from svc.policy.statement_writer import Tagged, Value
from svc.services.branch_rules import branch_around, id_within, is_root, path_of, refuse_faults, relative_id, wrong_id
from svc.services.invocation import Invocation
from svc.services.policy_edits import DELETED_MOST, Edit, PolicyEdits, UpdateDenied
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore

T = TypeVar("T")

#: More than there can be.
_NO_LIMIT: Final = 2**31

#: Is called with the tag of a thing before it is changed or deleted, and raises if that isn't the one that the client
#: expects.
Precondition = Callable[[str], None]


@attrs.frozen
class BranchEntry:
    """A branch or a group: its full id, its owner, and its annotations; ``created_at`` in seconds since the epoch."""

    name: RoleName
    owner: RoleName
    annotations: Mapping[str, str]
    created_at: float = attrs.field(default=0.0, eq=False)

    @property
    def entity_tag(self) -> str:
        """The strong entity tag (RFC 9110 8.8.3) of its representation."""
        text = repr((str(self.name), str(self.owner), sorted(self.annotations.items())))
        return f'"{hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]}"'


@attrs.frozen
class EntryPage:
    """Some entries of a list, in order, and how many the whole list has."""

    entries: AsyncIterator[BranchEntry]
    count: int


@attrs.frozen
class NewEntry:
    """A branch or group that is to be made: its place, its name, its owner if that isn't the place, and annotations."""

    branch: RoleName
    name: str
    owner: RoleName | None
    annotations: Mapping[str, str]


@attrs.frozen
class BranchEntries:
    """The use cases that branches and groups have in common: reading them, and changes with the privileges that these
    require.

    ``kind`` is that of the roles, ``label`` their name in messages. ``own_themselves``: they may.
    """

    kind: str
    label: str
    edits: PolicyEdits
    roles: RoleStore
    resources: ResourceStore
    own_themselves: bool = False

    def not_found(self, name: RoleName, *, hidden: bool = False) -> RecordNotFound:
        """Return the refusal of one that doesn't exist, or may not be used, which look the same."""
        return RecordNotFound(name.account, self.label, name.identifier, hidden)

    async def read_page(self, invocation: Invocation, account: str, limit: int, offset: int) -> EntryPage:
        """Return those that the caller may read and whose branch exists, in the order of their ids (NEWER-14)."""
        caller = invocation.caller.role
        query = ResourcesQuery(caller, account, kinds=(self.kind,), limit=_NO_LIMIT)
        seen = await self.edits.store.filter_readable(caller, await self.resources.list_visible(query))
        names = [name for name in map(RoleName.parse, seen) if self.kind != "policy" or not is_root(name)]
        places = {name: str(branch_around(account, name.identifier)) for name in names}
        there = await self.edits.store.filter_existing(list(dict.fromkeys(places.values())))
        found = [str(name) for name in names if places[name] in there]
        return EntryPage(self._stream_entries(found[offset : offset + limit]), len(found))

    async def read_entry(self, invocation: Invocation, name: RoleName) -> BranchEntry:
        """Return one that the caller may read.

        :raises RecordNotFound: there is none, or the caller may not read it, or there is no branch around it.
        """
        facts = await self.roles.access_facts(invocation.caller, name.resource)
        if not (await self._can_read(invocation, name, facts)):
            raise self.not_found(name, hidden=facts.exists)
        await self.require_branch(invocation, name)
        async for entry in self._stream_entries([str(name)]):
            return entry
        raise self.not_found(name)

    async def require_branch(self, invocation: Invocation, name: RoleName) -> None:
        """Return if the branch around it exists.

        :raises RecordNotFound: it doesn't; the refusal names that branch.
        """
        place = branch_around(name.account, name.identifier)
        if not (await self.roles.access_facts(invocation.caller, place.resource)).exists:
            raise RecordNotFound(place.account, "branch", place.identifier)

    async def _can_read(self, invocation: Invocation, name: RoleName, facts: AccessFacts) -> bool:
        if decide_privilege(facts, "read") == Allowed():
            return True
        return decide_visibility(facts) == Allowed() and await self.roles.can_inspect(invocation.caller.role, name.resource)

    async def _stream_entries(self, ids: Sequence[str]) -> AsyncIterator[BranchEntry]:
        annotations: dict[str, str] = {}
        async for portion in self.resources.stream_described(ids):
            for part in portion:
                annotations.update((annotation.name, annotation.value) for annotation in part.annotations)
                if not part.continued:
                    yield _make_entry(part, annotations)
                    annotations = {}

    # -- changes ------------------------------------------------------------------------------------------------------

    async def create_entry(self, invocation: Invocation, new: NewEntry) -> BranchEntry:
        """Make one, as a load into its branch would; takes ``create_entry`` on that (NEWER-15).

        :raises RecordNotFound: the caller lacks that, or there is no such branch or owner.
        :raises Conflict: there is one of that id.
        :raises Unprocessable: its id would be too long.
        """
        branch = new.branch
        name = RoleName.from_parts(branch.account, self.kind, id_within(branch, new.name))
        refuse_faults(wrong_id(name.identifier))
        default = admin_of(branch.account) if is_root(branch) else branch
        owner = new.owner or default
        attributes: dict[str, Value] = {"id": new.name}
        if new.owner is not None and owner != default:
            attributes["owner"] = absolute_reference(str(owner))
        if new.annotations:
            attributes["annotations"] = dict(new.annotations)

        async def apply_edit(edit: Edit) -> None:
            await require_privilege(edit, branch, "create")
            await edit.transaction.lock_policy(branch)
            if await edit.transaction.filter_existing([str(name)]):
                raise Conflict(
                    self.label, str(name), f'{self.label.capitalize()} "{_format_id(name, self.label)}" already exists'
                )
            if not await edit.transaction.filter_existing([str(owner)]):
                raise RecordNotFound.for_name(owner)
            above = branch_around(branch.account, branch.identifier)
            if not is_root(branch) and not await edit.transaction.filter_existing([str(above)]):
                raise RecordNotFound(above.account, "branch", above.identifier)
            await edit.authorize(branch, made=[str(name)])
            rows = Rows(
                (ResourceRow(str(name), str(owner)),),
                (MembershipRow(str(name), str(owner), True, True),),
                (),
                tuple(AnnotationRow(str(name), key, value) for key, value in new.annotations.items()),
            )
            await edit.apply_changes(branch, [Tagged(TAGS[self.kind], attributes)], Changes(create=rows), None)

        await self.edits.make_edit(invocation, apply_edit)
        async for entry in self._stream_entries([str(name)]):
            return entry
        raise self.not_found(name)

    async def update_entry(
        self,
        invocation: Invocation,
        name: RoleName,
        owner: RoleName | None,
        annotations: Mapping[str, str],
        precondition: Precondition,
    ) -> BranchEntry:
        """Set annotations, and give it another owner; takes ``read`` and ``update_entry`` on it (NEWER-16).

        :raises RecordNotFound: the caller lacks one of them, or there is no branch around it, or no such owner.
        :raises Forbidden: giving it away requires an authority which the caller lacks.
        :raises Unprocessable: it would own itself.
        """
        place = branch_around(name.account, name.identifier)

        async def apply_edit(edit: Edit) -> None:
            await self._require_read_and_update(edit, name)
            if not await edit.transaction.filter_existing([str(place)]):
                raise RecordNotFound(place.account, "branch", place.identifier)
            await edit.transaction.lock_policy(place)
            entry, recorder = await self._read_present(edit, name)
            precondition(entry.entity_tag)
            statement = Tagged(TAGS[self.kind], self._id_attribute(place, name))
            if owner is not None and owner != entry.owner:
                await self._change_owner(edit, place, entry, recorder, owner)
            if annotations:
                rows = tuple(AnnotationRow(str(name), key, value) for key, value in annotations.items())
                statement.attributes["annotations"] = dict(annotations)
                await edit.set_annotations(place, statement, rows)

        await self.edits.make_edit(invocation, apply_edit)
        async for changed in self._stream_entries([str(name)]):
            return changed
        raise self.not_found(name)

    async def _change_owner(
        self, edit: Edit, place: RoleName, entry: BranchEntry, recorder: str | None, owner: RoleName
    ) -> None:
        name = entry.name
        if is_root(name) or recorder is None:
            raise Unprocessable("The owner of the root can't be changed")
        if not await edit.transaction.filter_existing([str(owner)]):
            raise RecordNotFound.for_name(owner)
        ownership = await edit.transaction.read_ownership([str(name), str(owner)], ())
        if (owner == name and not self.own_themselves) or ownership.owns(str(name), str(owner)):
            raise Unprocessable(f"{owner.kind.capitalize()} '{owner.identifier}' belongs to what it would own")
        # A caller that acts as a policy doesn't own it by that.
        await edit.authorize(name, changed=[str(name)])
        old = (MembershipRow(str(name), str(entry.owner), True, True),)
        new = (MembershipRow(str(name), str(owner), True, True),)
        update, delete = Rows((ResourceRow(str(name), str(owner)),)), await edit.transaction.read_stored_rows(Rows((), old))
        statement = Tagged(TAGS[self.kind], {**self._id_attribute(place, name), "owner": absolute_reference(str(owner))})
        await edit.apply_changes(place, [statement], Changes(Rows((), new), update, Rows((), delete.memberships)), recorder)

    async def delete_entry(self, invocation: Invocation, name: RoleName, precondition: Precondition) -> None:
        """Delete it with everything inside; takes ``update_entry`` on all that goes (NEWER-17).

        :raises RecordNotFound: the caller lacks that; the refusal names a record that the caller sees.
        :raises Unprocessable: it is the root, or too much would go.
        """
        place = branch_around(name.account, name.identifier)

        async def apply_edit(edit: Edit) -> None:
            facts = await edit.transaction.access_facts(invocation.caller, name)
            if decide_privilege(facts, "update") != Allowed():
                raise self._make_refusal(name, facts)
            if is_root(name):
                raise Unprocessable("The root branch can't be deleted")
            # A branch that `!policy a/b` made may have no policy around it: then its history is the root's.
            branch = place if await edit.transaction.filter_existing([str(place)]) else branch_around(name.account, "root")
            await edit.transaction.lock_policy(branch)
            precondition((await self._read_present(edit, name))[0].entity_tag)
            named: Sequence[str] | None = [str(name)]
            if self.kind == "policy":
                await edit.transaction.lock_policy(name)
                named = await edit.transaction.list_beneath(name, DELETED_MOST)
            if named is None:
                raise Unprocessable(f"More than {DELETED_MOST} records would go at once: delete parts of it before")
            statement = Tagged("delete", {"record": Tagged(TAGS[self.kind], self._id_attribute(branch, name))})
            try:
                await edit.delete_records(branch, statement, named)
            except UpdateDenied as lacking:
                raise (
                    self.not_found(name)
                    if lacking.visible_record is None
                    else RecordNotFound.for_name(lacking.visible_record)
                ) from None

        await self.edits.make_edit(invocation, apply_edit)

    async def remove_annotation(self, invocation: Invocation, name: RoleName, key: str, precondition: Precondition) -> None:
        """Remove an annotation; takes what ``update_entry`` does.

        :raises RecordNotFound: as ``update_entry``; or there is no such annotation.
        """
        place = branch_around(name.account, name.identifier)

        async def apply_edit(edit: Edit) -> None:
            await self._require_read_and_update(edit, name)
            if not await edit.transaction.filter_existing([str(place)]):
                raise RecordNotFound(place.account, "branch", place.identifier)
            await edit.transaction.lock_policy(place)
            entry, _ = await self._read_present(edit, name)
            precondition(entry.entity_tag)
            if not await edit.transaction.remove_annotation(str(name), key):
                raise RecordNotFound(name.account, "annotation", key)
            row = AnnotationRow(str(name), key, entry.annotations.get(key, ""))
            # No statement of a document removes an annotation.
            await edit.record_history(
                place, [Tagged(TAGS[self.kind], self._id_attribute(place, name))], Changes(delete=Rows((), (), (), (row,)))
            )

        await self.edits.make_edit(invocation, apply_edit)

    async def _require_read_and_update(self, edit: Edit, name: RoleName) -> None:
        facts = await edit.transaction.access_facts(edit.invocation.caller, name)
        if decide_privilege(facts, "read") != Allowed() or decide_privilege(facts, "update") != Allowed():
            raise self._make_refusal(name, facts)

    def _make_refusal(self, name: RoleName, facts: AccessFacts) -> RecordNotFound | Forbidden:
        if not facts.caller_exists:
            return Forbidden("role of the token no longer exists")
        return self.not_found(name, hidden=facts.exists)

    async def _read_present(self, edit: Edit, name: RoleName) -> tuple[BranchEntry, str | None]:
        """Return the current state of an existing one, and the policy that recorded it."""
        found = await edit.transaction.read_surroundings([str(name)], edit.limits.annotations + 1)
        seen = found.recorded_owners.get(str(name))
        if seen is None:
            raise self.not_found(name)
        annotations = {row.name: row.value for row in found.rows.annotations}
        return BranchEntry(name, RoleName.parse(seen.owner), annotations), seen.policy

    def _id_attribute(self, place: RoleName, name: RoleName) -> dict[str, Value]:
        return {"id": relative_id(place, name.identifier)}


def branch_entries(edits: PolicyEdits, roles: RoleStore, resources: ResourceStore, dialect: Dialect) -> BranchEntries:
    """Return the use cases of branches."""
    return BranchEntries("policy", "branch", edits, roles, resources, dialect.lenient_policy)


def group_entries(edits: PolicyEdits, roles: RoleStore, resources: ResourceStore) -> BranchEntries:
    """Return the use cases of groups."""
    return BranchEntries("group", "group", edits, roles, resources)


async def require_privilege(edit: Edit, branch: RoleName, privilege: str) -> None:
    """Return if the caller has a privilege on a branch.

    :raises Forbidden: the caller's role is gone.
    :raises RecordNotFound: it lacks the privilege, or there is no such branch, which look the same.
    """
    facts = await edit.transaction.access_facts(edit.invocation.caller, branch)
    if not facts.caller_exists:
        raise Forbidden("role of the token no longer exists")
    if decide_privilege(facts, privilege) != Allowed():
        raise RecordNotFound(branch.account, "branch", path_of(branch), facts.exists)


def _format_id(name: RoleName, word: str) -> str:
    return f"{name.account}:{word}:{name.identifier}"


def _make_entry(resource: Resource, annotations: Mapping[str, str]) -> BranchEntry:
    return BranchEntry(
        RoleName.parse(resource.id), RoleName.parse(resource.owner), dict(sorted(annotations.items())), resource.created_at
    )
