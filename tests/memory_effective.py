"""The effective policy in memory: the fake of ``EffectivePolicyStore`` (see ``memory``)."""

from __future__ import annotations

from svc.model.names import ACTING_KINDS, is_other_kind, root_policy
from svc.model.policy_loads import (
    AnnotationRow,
    EffectivePolicyRows,
    EffectiveQuery,
    Excess,
    MembershipRow,
    PermissionRow,
    ResourceRow,
    RestrictionRow,
    Rows,
)
from svc.storage.effective_policy import EffectivePolicyStore
from tests.memory import MemoryStore, kind_of


class MemoryEffectivePolicies(MemoryStore, EffectivePolicyStore):
    """A fake of ``EffectivePolicyStore``."""

    async def read_effective_policy(self, query: EffectiveQuery) -> EffectivePolicyRows | Excess | None:
        """See ``EffectivePolicyStore``."""
        self.memory.ask()
        if str(query.policy) not in self.memory.resources:
            return None
        told = [name for name in self.memory.resources if self._told(name, query)]
        resources = {name: self.memory.resources[name][0] for name in told if self._seen(name, query)}
        hidden = tuple(sorted(kind_of(name) for name in told if name not in resources))
        rows = Rows(
            tuple(ResourceRow(name, owner) for name, owner in resources.items()),
            tuple(
                MembershipRow(*key, admin)
                for key, (admin, _) in self.memory.memberships.items()
                if not key[2]
                and not self.memory.is_mapped(*key)
                and key[1] in self.memory.resources
                and (
                    key[0] in resources
                    or (
                        key[0] in self.memory.resources
                        and key[1] in resources
                        and (kind_of(key[0]), kind_of(key[1])) == ("layer", "host_factory")
                    )
                )
            ),
            tuple(
                PermissionRow(*key)
                for key in self.memory.permissions
                if key[0] in resources and key[2] in self.memory.resources
            ),
            tuple(AnnotationRow(*key, value) for key, (value, _) in self.memory.annotations.items() if key[0] in resources),
            tuple(RestrictionRow(*key) for key in self.memory.restrictions if key[0] in resources),
        )
        count = len(rows.resources) + len(rows.annotations) + len(rows.permissions)
        if count > query.limit:
            return Excess(count, query.limit)
        policies = {name.split(":", 2)[2] for name in self.memory.resources if self._is_policy(name, query)}
        path = query.policy.identifier
        around = frozenset(ident for ident in policies - {"root"} if path.startswith(ident + "/"))
        keys = {
            name: values[max(values)][1]
            for name, values in self.memory.secrets.items()
            if self._key_owner(name) in resources
        }
        version = max(self.memory.versions.get(str(query.policy), {}), default=0)
        return EffectivePolicyRows(rows, around, keys, hidden, version)

    def _seen(self, name: str, query: EffectiveQuery) -> bool:
        if query.viewer is None or (kind_of(name) == "policy" and self.memory.resources[name][0] == name):
            return True
        access_facts = self.memory.access_facts(query.viewer, name)
        return access_facts.owns or bool(access_facts.privileges) or access_facts.inspects

    def _key_owner(self, name: str) -> str | None:
        """The user whose public key this is; ``None`` when it is something else."""
        account, kind, identifier = name.split(":", 2)
        if kind != "public_key":
            return None
        return f"{account}:user:{identifier.removeprefix('user/').partition('/')[0]}"

    def _told(self, name: str, query: EffectiveQuery) -> bool:
        account, kind, identifier = name.split(":", 2)
        if account != query.policy.account or kind in query.omitted_kinds:
            return False
        is_root = query.policy == root_policy(account)
        depth = identifier.count("/") - (0 if is_root else query.policy.identifier.count("/"))
        if query.depth is not None and depth > query.depth:
            return False
        if is_root or name == str(query.policy):
            return True
        owner, recorder = self.memory.resources[name]
        ours = self._ours(owner, query) or (recorder is not None and self._ours(recorder, query, "policy"))
        if name in query.namesakes or (is_other_kind(kind) and identifier == query.policy.identifier):
            return ours or (kind not in ACTING_KINDS and owner == self.memory.resources[str(query.policy)][0])
        if kind == "user":
            return ours and (name.endswith(query.suffix) or f"{query.suffix}-" in name)
        return identifier.startswith(query.policy.identifier + "/")

    def _ours(self, role: str, query: EffectiveQuery, kind: str | None = None) -> bool:
        """Whether a role is the policy, or beneath it."""
        account, its_kind, identifier = role.split(":", 2)
        beneath = account == query.policy.account and identifier.startswith(query.policy.identifier + "/")
        return role == str(query.policy) or (beneath and kind in {None, its_kind})

    def _is_policy(self, name: str, query: EffectiveQuery) -> bool:
        return kind_of(name) == "policy" and name.startswith(query.policy.account + ":")
