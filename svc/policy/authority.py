"""The authority that a load requires for the records that it acts on (POL-55 to POL-67).

Note [Acting as the policy]. A caller who may load a policy acts as the policy's role, on records that the policy owns and
that either lie within it by their ids, or were recorded by it. A record that another owns requires that owner's authority,
or ``update`` on the policy that recorded it and owns it, wherever it lies. The load may act freely on the records that it
creates, but beneath a policy of another owner that requires authority over that policy, except for records with the loaded
policy's own id. Records outside of the policy require authority of the caller's own, no matter who gave them to the policy.

Note [Declared twice]. An existing record that another policy recorded is left as it is, and the rest of the document refers
to it. So it must be one that the policy owns, or that was declared for it from above. Any other requires authority, and if a
host was made by somebody else, who knows its API key, no authority is enough: it has to be deleted first. But a document
that names the host factory as the owner of its host, as the effective policy does, takes the host for no other than it is.

Note [Existing grants]. A grant or a permission that exists already is no change, and requires no authority again: loading a
document once more, in which an admin had given something away, is not refused for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from svc.model.errors import Forbidden
from svc.model.names import RoleName, admin_of
from svc.model.ownership import Ownership
from svc.model.policy_loads import Changes, PresentRows
from svc.policy.ids import USER_KINDS, has_policy_id, is_inside
from svc.policy.resolve import WARNINGS_MOST, describe_id
from svc.policy.resolved_policy import ResolvedPolicy


@attrs.frozen
class AffectedRecords:
    """Full ids of the records that a load acts on.

    ``granted`` are roles that it grants or revokes. ``changed`` are resources that it permits, denies, annotates, restricts,
    changes or deletes; hosts that it deletes are ``deleted`` instead. ``declared`` ones exist, and the policy did not record
    them; of these ``attributed`` are declared with the host factory that owns them. ``made`` are new. ``own`` are those that
    the policy recorded, ``factories`` those that own the hosts.
    """

    policy: RoleName
    granted: Sequence[str]
    changed: Sequence[str]
    deleted: Sequence[str]
    declared: Sequence[str]
    made: Sequence[str]
    own: frozenset[str]
    factories: Sequence[str]
    attributed: frozenset[str] = frozenset()

    @property
    def records_needing_owners(self) -> list[str]:
        """Return those whose owners must be known: those that exist, and the policy."""
        return [str(self.policy), *self.granted, *self.changed, *self.deleted, *self.declared, *self.factories]

    @property
    def records_needing_policies(self) -> list[str]:
        """Return those whose surrounding policies must be known."""
        return [*self.made, *self.declared, *self.deleted, *self.factories]


@attrs.frozen
class RequiredAuthority:
    """Full ids of roles to grant and resources to permit, each with the policies on which ``update`` is enough instead."""

    roles: Mapping[str, frozenset[str]]
    resources: Mapping[str, frozenset[str]]


def find_affected_records(resolved: ResolvedPolicy, present: PresentRows, changes: Changes) -> AffectedRecords:
    """Return the records that a load of ``resolved``, which results in ``changes``, acts on.

    A record outside of the policy by its name counts when the document refers to it, one inside when something changes (Note
    [Existing grants]).
    """
    made = {row.resource for row in changes.create.resources}
    own = frozenset(row.resource for row in present.own.resources)
    owners = {row.resource: row.owner for row in (*present.own.resources, *present.foreign.resources)}
    gone = {*resolved.removals.resources, *(row.resource for row in changes.delete.resources)}
    declared = _declared_elsewhere(resolved, present)
    deleted = {full for full in gone if _kind_of(full) == "host"}
    changed = dict.fromkeys((*_changed_resources(resolved, changes, own), *gone))
    return AffectedRecords(
        resolved.policy,
        [full for full in dict.fromkeys(_granted_roles(resolved, changes, own)) if full not in made],
        [full for full in changed if full not in made and full not in deleted],
        sorted(deleted.intersection(owners)),
        sorted(declared),
        [full for full in made if _kind_of(full) not in USER_KINDS],
        own,
        _owning_factories((*deleted, *declared), owners),
        attributed=frozenset(full for full, owner in resolved.declared.resources if _is_attributed(full, owner, owners)),
    )


def _granted_roles(resolved: ResolvedPolicy, changes: Changes, own: frozenset[str]) -> Iterator[str]:
    yield from (role for role in resolved.roles_granted if role not in own)
    for rows in (changes.create, changes.update):
        yield from (row.role for row in rows.memberships if not row.ownership)
    yield from (role for role, _ in resolved.removals.memberships)


def _changed_resources(resolved: ResolvedPolicy, changes: Changes, own: frozenset[str]) -> Iterator[str]:
    yield from (resource for resource in resolved.resources_permitted if resource not in own)
    yield from (row.resource for row in changes.create.permissions)
    for rows in (changes.create, changes.update):
        yield from (row.resource for row in rows.annotations)
    yield from (row.resource for row in changes.delete.annotations if row.resource in own)
    for rows in (changes.create, changes.delete):
        yield from (row.role for row in rows.restrictions)
    yield from (row.resource for row in changes.update.resources)
    yield from (row.resource for row in resolved.removals.permissions)


def _declared_elsewhere(resolved: ResolvedPolicy, present: PresentRows) -> set[str]:
    foreign = (row.resource for row in present.foreign.resources)
    return {row.resource for row in resolved.declared.resources}.intersection(foreign)


def _is_attributed(record: str, owner: str, owners: Mapping[str, str]) -> bool:
    """Return whether a document declares a record with its owner, a host factory."""
    return _kind_of(owner) == "host_factory" and owners.get(record) == owner


def _owning_factories(records: Iterable[str], owners: Mapping[str, str]) -> list[str]:
    """Return the host factories that own hosts among the records."""
    found = {owners[full] for full in records if full in owners and _kind_of(full) == "host"}
    return sorted(owner for owner in found if _kind_of(owner) == "host_factory")


def compute_required_authority(disposed: AffectedRecords, ownership: Ownership) -> RequiredAuthority:
    """Return the records for which acting as the policy is not enough authority.

    :raises Forbidden: the document declares a host that somebody else made.
    """
    judging = _AuthorityEvaluation(disposed, ownership)
    for full in disposed.declared:
        judging.require_for_declaration(full)
    for full in disposed.made:
        judging.require_for_new_record(full)
    for full in disposed.granted:
        judging.require_for_grant(full)
    for full in disposed.changed:
        judging.require_for_change(full)
    for full in disposed.deleted:
        judging.require_for_host_deletion(full)
    return RequiredAuthority(judging.roles, judging.resources)


def authority_to_grant(roles: Iterable[str], ownership: Ownership) -> RequiredAuthority:
    """Return the authority that granting roles requires, for a caller who acts as no policy (POL-58)."""
    return RequiredAuthority({role: _sufficient_policies(role, ownership) for role in roles}, {})


def warn_of_foreign_records(resolved: ResolvedPolicy, present: PresentRows) -> tuple[str, ...]:
    """Return warnings about records that the document declares and others recorded: they stay, and it relies on others."""
    own = {str(resolved.policy), str(admin_of(resolved.policy.account))}
    names = [describe_id(full) for full in sorted(_declared_elsewhere(resolved, present) - own)]
    warnings = [f"{name} was not recorded by this policy, and is left as it is." for name in names[:WARNINGS_MOST]]
    if len(names) > WARNINGS_MOST:
        warnings.append(f"So are {len(names) - WARNINGS_MOST} other records.")
    return tuple(warnings)


class _AuthorityEvaluation:
    """The evaluation of a load: the authority that it requires, so far."""

    def __init__(self, disposed: AffectedRecords, ownership: Ownership) -> None:
        self.roles: dict[str, frozenset[str]] = {}
        self.resources: dict[str, frozenset[str]] = {}
        self._affected = disposed
        self._name = disposed.policy
        self._policy = str(disposed.policy)
        self._ownership = ownership
        self._made = frozenset(disposed.made)

    def require_for_grant(self, role: str) -> None:
        if not self._policy_suffices(role):
            self.roles[role] = self._sufficient_policies(role)

    def require_for_change(self, resource: str) -> None:
        if not self._policy_suffices(resource):
            self._add_requirement(resource, self._sufficient_policies(resource))

    def require_for_host_deletion(self, host: str) -> None:
        """Evaluate a host that is deleted: ``update`` on the policy around it is enough (POL-67)."""
        if not self._policy_suffices(host):
            self._add_requirement(host, self._sufficient_policies(host) | {self._ownership.enclosing_policies[host]})

    def require_for_new_record(self, record: str) -> None:
        """Evaluate a new record: one without an id of its own lies beneath the policy around this one (POL-25)."""
        around = self._ownership.enclosing_policies[record]
        if around == self._policy or self._ownership.owns(self._policy, around):
            return
        if not has_policy_id(self._name, *record.split(":", 2)[1:]):
            self._add_requirement(around, self._policies_over(around))

    def require_for_declaration(self, record: str) -> None:
        """Evaluate an existing record that the policy did not record (Note [Declared twice])."""
        kind, ownership = _kind_of(record), self._ownership
        recorder = ownership.records[record].policy
        if kind in USER_KINDS:
            # A user's id doesn't show the policy, and the owner is the one that the document named.
            if recorder is None or not ownership.controls_policy(recorder, self._policy):
                self._add_requirement(recorder or record, frozenset() if recorder is None else self._policies_over(recorder))
            elif not ownership.owns(self._policy, record):
                self._add_requirement(record, self._sufficient_policies(record))
            return
        is_known = record in self._affected.attributed or ownership.is_made_by_its_policy(record)
        if kind == "host" and (not is_known or (recorder is None and self._gains_policy(record))):
            advice = (
                f"{describe_id(record)} was made by somebody else. Delete it before it is declared, or give it another id."
            )
            raise Forbidden(f"{record} was made by somebody else", advice)
        if not self._policy_suffices(record) and not self._declared_from_above(record):
            self._add_requirement(record, self._sufficient_policies(record))

    def _gains_policy(self, record: str) -> bool:
        """Return whether a new policy is around a record: no factory has been that policy's own."""
        account, _, identifier = record.split(":", 2)
        ends = (at for at, char in enumerate(identifier) if char == "/")
        return any(f"{account}:policy:{identifier[:end]}" in self._made for end in ends)

    def _declared_from_above(self, record: str) -> bool:
        around, recorder = self._ownership.enclosing_policies[record], self._ownership.records[record].policy
        if around != self._policy and not self._ownership.owns(self._policy, around):
            return False
        return recorder is not None and self._ownership.controls_policy(recorder, self._policy)

    def _add_requirement(self, resource: str, vouching: frozenset[str]) -> None:
        """Add the authority that a resource requires; with two reasons, both are required."""
        self.resources[resource] = self.resources.get(resource, vouching) & vouching

    def _policy_suffices(self, record: str) -> bool:
        """Return whether acting as the policy is enough (Note [Acting as the policy])."""
        kind, identifier = record.split(":", 2)[1:]
        named = is_inside(self._name, kind, identifier) or has_policy_id(self._name, kind, identifier)
        return (named or record in self._affected.own) and self._ownership.owns(self._policy, record)

    def _policies_over(self, policy: str) -> frozenset[str]:
        """Return the policies on which ``update`` means authority over what another policy owns: these include that one."""
        return self._sufficient_policies(policy) | {policy}

    def _sufficient_policies(self, record: str) -> frozenset[str]:
        return _sufficient_policies(record, self._ownership)


def _sufficient_policies(record: str, ownership: Ownership) -> frozenset[str]:
    """Return the policy that recorded a thing and owns it, if one does: ``update`` on it is enough."""
    found = ownership.records.get(record)
    if found is None or found.policy is None or not ownership.owns(found.policy, record):
        return frozenset()
    return frozenset({found.policy})


def _kind_of(full: str) -> str:
    return full.split(":", 2)[1]
