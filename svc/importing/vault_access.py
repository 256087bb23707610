"""Policies of a Vault as groups, and rights to secrets as permissions of these groups.

Note [A group's permissions]. A policy becomes a group, with the permissions that it gives by itself on the secrets that
there are. Somebody with several policies is a member of their groups where these add up to what all rules together decide.
Elsewhere, as where one policy denies what another allows, they are a member of a group of their own for these policies
together, and of none of the single ones. So nobody gets more here than there.

Note [Nothing doubtful]. A rule with a condition grants nothing here, and a policy that can't be read gives nobody who has it
anything: it may deny. A ``deny`` whose template depends on who logs in denies everybody for whom nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from svc.importing.inventory import Grant, NoteKind, Permission, RecordId
from svc.importing.vault_names import Records
from svc.importing.vault_rules import Rule, RuleSet, has_template, resolve_template
from svc.importing.vault_secrets import KeptSecret

#: A policy's namespace and name, which is in small letters.
PolicyKey: TypeAlias = tuple[str, str]

ROOT: Final = "root"

#: How many patterns a line names.
_SHOWN: Final = 5

#: The capabilities that become permissions; the others are listed.
_MOVED: Final = frozenset({"read", "list", "create", "update", "deny"})


def policy_key(namespace: str, name: str) -> PolicyKey:
    """Return the key of a policy that is named in any case."""
    return namespace, name.lower()


@attrs.frozen
class Holder:
    """A record that has policies; ``find`` returns what a template stands for, ``None`` where nobody knows who logs in."""

    record: RecordId
    origin: str
    policies: frozenset[PolicyKey]
    #: The groups of identities, which have policies of their own: all, and those that name it as a member.
    groups: frozenset[RecordId] = frozenset()
    direct: frozenset[RecordId] = frozenset()
    find: Callable[[str], str | None] | None = attrs.field(default=None, eq=False)


@attrs.define
class Access:
    """The policies of a server, with the secrets that there are."""

    records: Records
    secrets: Sequence[KeptSecret]
    policies: Mapping[PolicyKey, tuple[Rule, ...]]
    #: Policies whose text can't be read, or not understood.
    unreadable: frozenset[PolicyKey] = frozenset()
    grants: list[Grant] = attrs.field(factory=list, init=False)
    permissions: list[Permission] = attrs.field(factory=list, init=False)
    _groups: dict[object, RecordId | None] = attrs.field(factory=dict, init=False)
    _alone: dict[PolicyKey, dict[int, frozenset[str]]] = attrs.field(factory=dict, init=False)

    def add_holders(self, holders: Iterable[Holder], group_policies: Mapping[RecordId, frozenset[PolicyKey]]) -> None:
        """Add groups, their permissions and members; ``group_policies`` are those of groups of identities."""
        holders = list(holders)
        whole = {holder: self._policies_of(holder, group_policies) for holder in holders}
        decided = {holder: self._decide_together(holder, whole[holder]) for holder in holders}
        separable = {holder: decided[holder] == self._add_up(whole[holder]) for holder in holders}
        mixed = {group for holder in holders if not separable[holder] for group in holder.groups}
        for group, keys in sorted(group_policies.items()):
            if group not in mixed and not keys & self.unreadable:
                self._join(group, sorted(keys))
        for holder in holders:
            for group in sorted(holder.direct):
                self.grants.append(Grant(group, holder.record, policy=self.records[group].policy))
            if separable[holder]:
                taken = holder.policies.union(*(group_policies.get(each, frozenset()) for each in holder.groups & mixed))
                self._join(holder.record, sorted(taken - self.unreadable))
            else:
                self._join_together(holder, whole[holder], decided[holder])

    def _policies_of(self, holder: Holder, group_policies: Mapping[RecordId, frozenset[PolicyKey]]) -> frozenset[PolicyKey]:
        keys = holder.policies.union(*(group_policies.get(group, frozenset()) for group in holder.groups))
        for namespace, name in sorted(keys):
            if name == ROOT:
                self.records.note(
                    NoteKind.LEFT_OUT,
                    holder.origin,
                    f"it has the policy root of {namespace or 'the root namespace'}, which is everything",
                    "make it a member of what it needs here",
                )
            elif (namespace, name) in self.unreadable:
                self.records.note(
                    NoteKind.LEFT_OUT,
                    f"permissions of {holder.origin}",
                    f"its policy {namespace}{name} can't be read, and may deny something",
                    "permit here what it needs",
                )
            elif (namespace, name) not in self.policies and name != "default":
                self.records.note(NoteKind.TO_KNOW, holder.origin, f"its policy {namespace}{name} doesn't exist there")
        return frozenset(key for key in keys if key[1] != ROOT)

    def _decide_together(self, holder: Holder, keys: frozenset[PolicyKey]) -> dict[int, frozenset[str]]:
        """Return the privileges that all rules together give, by the place of each secret; none where nothing is."""
        if keys & self.unreadable:
            return {}
        rules: list[Rule] = []
        doubtful: list[re.Pattern[str]] = []
        for key in sorted(keys):
            for rule in self.policies.get(key, ()):
                if not has_template(rule.pattern):
                    rules.append(_place_rule(rule, key[0], rule.pattern))
                elif holder.find is not None:
                    resolved = resolve_template(rule.pattern, holder.find)
                    rules += [] if resolved is None else [_place_rule(rule, key[0], resolved)]
                elif rule.is_deny:
                    doubtful.append(_template_expression(key[0] + rule.pattern))
        return self._decide(RuleSet(rules), doubtful)

    def _decide(self, rules: RuleSet, doubtful: Sequence[re.Pattern[str]] = ()) -> dict[int, frozenset[str]]:
        decided = {}
        for place, secret in enumerate(self.secrets):
            privileges = privileges_on(rules, secret)
            if privileges and not any(pattern.fullmatch(path) for pattern in doubtful for path in _paths_of(secret)):
                decided[place] = privileges
        return decided

    def _decide_alone(self, key: PolicyKey) -> dict[int, frozenset[str]]:
        """Return the privileges of one policy by itself, without its templates."""
        if key not in self._alone:
            plain = [rule for rule in self.policies.get(key, ()) if not has_template(rule.pattern)]
            self._alone[key] = self._decide(RuleSet(_place_rule(rule, key[0], rule.pattern) for rule in plain))
        return self._alone[key]

    def _add_up(self, keys: Iterable[PolicyKey]) -> dict[int, frozenset[str]]:
        total: dict[int, frozenset[str]] = {}
        for key in keys:
            for place, privileges in self._decide_alone(key).items():
                total[place] = total.get(place, frozenset()) | privileges
        return total

    def _join(self, member: RecordId, keys: Iterable[PolicyKey]) -> None:
        for key in keys:
            if (group := self._group_of(key)) is not None:
                self.grants.append(Grant(group, member, policy=self.records[group].policy))

    def _join_together(self, holder: Holder, keys: frozenset[PolicyKey], decided: Mapping[int, frozenset[str]]) -> None:
        if not decided:
            return
        names = "+".join(f"{namespace}{name}" for namespace, name in sorted(keys))
        rules = (rule for key in keys for rule in self.policies.get(key, ()))
        own = holder.find is not None and any(has_template(rule.pattern) for rule in rules)
        name = f"of/{holder.record.identifier}" if own else f"together/{names}"
        group = self._add_group(name, "", name, f"policies {names} together", decided)
        if group is not None:
            why = f"its policies {names} together are other than the sum of each"
            self.records.note(NoteKind.CHANGED, holder.origin, why, f"it is in {group} instead")
            self.grants.append(Grant(group, holder.record, policy=self.records[group].policy))

    def _group_of(self, key: PolicyKey) -> RecordId | None:
        """Return the group of a policy; one that permits nothing here has none."""
        if not (alone := self._decide_alone(key)):
            return None
        return self._add_group(key, *key, f"policy {key[0]}{key[1]}", alone)

    def _add_group(
        self, key: object, namespace: str, name: str, origin: str, decided: Mapping[int, frozenset[str]]
    ) -> RecordId | None:
        if key not in self._groups:
            group = self._groups[key] = self.records.add("group", f"{namespace}sys/policies/", name, origin)
            if group is not None:
                self._permit(group, decided)
        return self._groups[key]

    def _permit(self, group: RecordId, decided: Mapping[int, frozenset[str]]) -> None:
        for place, privileges in decided.items():
            for variable in self.secrets[place].variables:
                branch = self.records[variable].policy
                self.permissions += [Permission(group, each, variable, policy=branch) for each in sorted(privileges)]

    def note_policies(self) -> None:
        """Add lines about what policies say and permissions can't."""
        engines = sorted({secret.mount.name for secret in self.secrets})
        for (namespace, name), rules in sorted(self.policies.items()):
            self._note_policy(f"policy {namespace}{name}", namespace, rules, engines)

    def _note_policy(self, what: str, namespace: str, rules: Sequence[Rule], engines: Sequence[str]) -> None:
        others, open_ended = [], []
        for rule in rules:
            shown = f"rule {namespace}{rule.pattern} of {what}"
            if not _touches(namespace + rule.pattern, engines):
                others.append(namespace + rule.pattern)
                continue
            if rule.conditions:
                conditions = ", ".join(sorted(rule.conditions))
                why = f"it holds only with {conditions}, which permissions don't have"
                self.records.note(NoteKind.LEFT_OUT, shown, why, "permit here what is wanted without")
            if has_template(rule.pattern):
                why = "it depends on who asks: it is moved for identities that exist, and not for later ones"
                self.records.note(NoteKind.LEFT_OUT, shown, why, "permit it here for each")
            if rest := rule.capabilities - _MOVED:
                why = f"nothing here corresponds to {', '.join(sorted(rest))}"
                self.records.note(NoteKind.LEFT_OUT, shown, why)
            if "create" in rule.capabilities and "update" not in rule.capabilities:
                why = "create without update writes only the first version of a secret there"
                self.records.note(NoteKind.LEFT_OUT, shown, why, "permit update here where more is wanted")
            if rule.pattern.endswith("*") or "+" in rule.pattern.split("/"):
                open_ended.append(namespace + rule.pattern)
        self._note_patterns(what, open_ended, "what is made there later has no permission", "permit it with what makes it")
        self._note_patterns(what, others, "they are about other things than secrets", "see the guide for what replaces them")

    def _note_patterns(self, what: str, patterns: Sequence[str], why: str, remedy: str) -> None:
        if patterns:
            more = f" and {len(patterns) - _SHOWN} more" if len(patterns) > _SHOWN else ""
            self.records.note(NoteKind.LEFT_OUT, f"{what}: {', '.join(patterns[:_SHOWN])}{more}", why, remedy)


def privileges_on(rules: RuleSet, secret: KeptSecret) -> frozenset[str]:
    """Return the privileges here that rules give on a secret there."""
    data_path, metadata_path, folder = _paths_of(secret)
    data, listing = _granted(rules.decide(data_path)), _granted(rules.decide(folder, listing=True))
    metadata = _granted(rules.decide(metadata_path)) if secret.mount.version == 2 else frozenset[str]()
    found = {
        "execute": "read" in data,
        "read": "read" in metadata or "list" in listing,
        "update": "update" in data or ("create" in data and not secret.has_versions),
    }
    return frozenset(privilege for privilege, given in found.items() if given)


def _granted(rule: Rule | None) -> frozenset[str]:
    return frozenset() if rule is None else rule.granted()


def _paths_of(secret: KeptSecret) -> tuple[str, str, str]:
    """Return the paths of a secret's data and metadata, and of its folder, with namespaces."""
    mount = secret.mount
    folder = secret.key[: secret.key.rfind("/") + 1]
    return (
        mount.namespace + mount.path_of(secret.key),
        mount.namespace + mount.path_of(secret.key, "metadata"),
        mount.namespace + mount.path_of(folder, "metadata"),
    )


def _place_rule(rule: Rule, namespace: str, pattern: str) -> Rule:
    return attrs.evolve(rule, pattern=namespace + pattern)


def _template_expression(pattern: str) -> re.Pattern[str]:
    """Return an expression for all paths that a pattern with templates may match, whatever they stand for."""
    bare = pattern.removesuffix("*")
    parts = re.split(r"\{\{[^{}]*\}\}", bare)
    written = ".*".join("/".join("[^/]*" if each == "+" else re.escape(each) for each in part.split("/")) for part in parts)
    return re.compile(written + (".*" if bare != pattern else ""), re.DOTALL)


def _touches(pattern: str, engines: Iterable[str]) -> bool:
    """Return whether a pattern may match a path of one of these engines."""
    literal = re.split(r"[+*]|\{\{", pattern, maxsplit=1)[0]
    return any(engine.startswith(literal) or literal.startswith(engine) for engine in engines)


def iterate_keys(namespace: str, names: Iterable[str]) -> Iterator[PolicyKey]:
    """Return the keys of policies that are named in a namespace."""
    return (policy_key(namespace, name) for name in names)
