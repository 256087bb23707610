"""Ownership of records: by their chains of owners, and by the policy that their ids belong to (POL-56, POL-66).

A policy *owns* a record when the record's owner is the policy, or is owned by it, and so on. Records that are loaded into
the root belong to the account's admin instead, who owns everybody in the end: so the root owns its own records, and those
that are the admin's directly or through policies alone. A policy that owns itself belongs to the policy that recorded it.
The *policy around* a record is the one with the longest id that, with a slash, begins the record's; else the root. Names
don't show who made a record: anybody can name an owner, or make a policy later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from svc.model.names import admin_of, root_policy
from svc.model.policy_loads import RecordedOwner


@attrs.frozen
class Ownership:
    """Records with their chains of owners and recorders, and the policies ``enclosing_policies`` the requested ones.

    All as they stand in a transaction; ids are full ones.
    """

    records: Mapping[str, RecordedOwner]
    enclosing_policies: Mapping[str, str]
    _ownership_memo: dict[tuple[str, bool], dict[str, bool]] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    def owns(self, policy: str, record: str) -> bool:
        """Return whether a policy owns a record, directly or through what it owns; never itself."""
        owner = self._owner_of(record)
        if owner is None or record == policy:
            return False
        if self._is_owned_through(owner, policy, policies_only=False):
            return True
        account = policy.partition(":")[0]
        return policy == str(root_policy(account)) and self._is_owned_through(
            owner, str(admin_of(account)), policies_only=True
        )

    def owns_itself(self, record: str) -> bool:
        """Return whether a record belongs to itself, through what it owns."""
        return record in set(self._owner_chain(record))

    def recorders_of_own(self, record: str) -> Iterator[str]:
        """Return the recorders of policies that own themselves and a record, directly or through what they own."""
        for owner in (record, *self._owner_chain(record)):
            found = self.records.get(owner)
            if found is not None and found.owner == owner and found.policy is not None:
                yield found.policy

    def controls_policy(self, upper: str, policy: str) -> bool:
        """Return whether ``upper`` controls ``policy``: it is the policy itself, the root, or a policy that owns it."""
        return upper in {policy, str(root_policy(policy.partition(":")[0]))} or self.owns(upper, policy)

    def is_own_factory(self, factory: str, policy: str) -> bool:
        """Return whether a host factory is the policy's own: named, made and owned like the policy's records."""
        found = self.records.get(factory)
        return (
            found is not None
            and found.policy is not None
            and self.enclosing_policies.get(factory) == policy
            and self.controls_policy(found.policy, policy)
            and self._is_related(factory, policy)
        )

    def is_made_by_its_policy(self, host: str) -> bool:
        """Return whether a host was made by the policy around it, or one that controls that, and has an owner that does.

        The maker of a host was given its API key. So a host made by another is never treated as the policy's own.
        """
        found, policy = self.records[host], self.enclosing_policies[host]
        if found.policy is None:
            return self.is_own_factory(found.owner, policy)
        return self.controls_policy(found.policy, policy) and self._is_related(host, policy)

    def may_make(self, factory: str, host: str) -> bool:
        """Return whether a host factory may make a host of that id: of no policy's, or of its own policy's."""
        policy = self.enclosing_policies[host]
        return policy == str(root_policy(policy.partition(":")[0])) or self.is_own_factory(factory, policy)

    def _is_related(self, record: str, policy: str) -> bool:
        """Return whether a record's owner is the policy, what it owns, or who owns it."""
        return self.owns(policy, record) or self._owner_of(record) in set(self._owner_chain(policy))

    def _owner_of(self, record: str) -> str | None:
        found = self.records.get(record)
        if found is None:
            return None
        return found.policy if found.owner == record and found.policy is not None else found.owner

    def _owner_chain(self, record: str) -> Iterator[str]:
        """Return the owner of a record, the owner's owner, and so on, each once."""
        seen: set[str] = set()
        owner = self._owner_of(record)
        while owner is not None and owner not in seen:
            yield owner
            seen.add(owner)
            owner = self._owner_of(owner)

    def _is_owned_through(self, start: str, target: str, *, policies_only: bool) -> bool:
        """Return whether a role is ``target``, or owned by it, directly or through others, or else only through policies.

        Thousands of records may have owners in common: the result for each is memoized.
        """
        known = self._ownership_memo.setdefault((target, policies_only), {})
        trail: dict[str, None] = {}
        current: str | None = start
        while current is not None and current != target and current not in known and current not in trail:
            trail[current] = None
            current = None if policies_only and current.split(":", 2)[1] != "policy" else self._owner_of(current)
        leads = current is not None and (current == target or known.get(current, False))
        known.update(dict.fromkeys(trail, leads))
        return leads
