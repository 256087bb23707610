"""Policies of a Vault as groups and permissions."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.trial.unittest import SynchronousTestCase

from svc.importing.inventory import RecordId
from svc.importing.vault_access import Access, Holder, policy_key, privileges_on
from svc.importing.vault_kv import Mount
from svc.importing.vault_names import Records
from svc.importing.vault_rules import Rule, RuleSet, read_rules
from svc.importing.vault_secrets import KeptSecret

SECOND = Mount("", "secret/", "kv", 2)
HOST = RecordId("host", "h")


class AccessTestCase(SynchronousTestCase):
    """Secrets with one variable each, and hosts."""

    def setUp(self) -> None:
        """Begin with nothing."""
        self.records = Records()
        self.secrets: list[KeptSecret] = []

    def add_secret(self, key: str, mount: Mount = SECOND, *, has_versions: bool = True) -> None:
        """Add a secret."""
        variable = self.records.add("variable", mount.name, key, key)
        assert variable is not None
        self.secrets.append(KeptSecret(mount, key, (variable,), has_versions))

    def access(self, *unreadable: str, **policies: str) -> Access:
        """Return the access that policies of the root namespace give."""
        rules = {policy_key("", name): read_rules(text) for name, text in policies.items()}
        return Access(self.records, self.secrets, rules, frozenset(policy_key("", name) for name in unreadable))

    def permitted(self, access: Access, role: RecordId = HOST) -> dict[str, str]:
        """Return the privileges that a role has by the groups that it is in, by variable."""
        roles, waiting = {role}, [role]
        while waiting:
            member = waiting.pop()
            more = {grant.role for grant in access.grants if grant.member == member} - roles
            roles |= more
            waiting += more
        found: dict[str, set[str]] = {}
        for each in access.permissions:
            if each.role in roles:
                found.setdefault(each.resource.identifier, set()).add(each.privilege)
        return {name: " ".join(sorted(privileges)) for name, privileges in sorted(found.items())}

    def notes(self) -> str:
        """Return all notes."""
        return "\n".join(str(note) for note in self.records.notes)

    def hold(self, *policies: str, name: str = "h", entity: Mapping[str, str] | None = None) -> Holder:
        """Return a host with policies."""
        record = self.records.add("host", "", name, name) or HOST
        find = None if entity is None else entity.get
        return Holder(record, name, frozenset(policy_key("", each) for each in policies), find=find)


class PrivilegesTests(AccessTestCase):
    """One secret."""

    def test_parts(self) -> None:
        """Each part of an engine gives its own privilege, and others none (MOVE-20)."""
        fresh = KeptSecret(SECOND, "a/b", (), False)
        for text, key, expected in (
            ("secret/data/a/b:read", "a/b", "execute"),
            ("secret/metadata/a/b:read", "a/b", "read"),
            ("secret/metadata/a/:list", "a/b", "read"),
            ("secret/metadata/a/*:list", "a/b", "read"),
            ("secret/metadata/:list", "b", "read"),
            ("secret/data/a/b:update", "a/b", "update"),
            ("secret/data/a/b:create", "a/b", ""),
            ("secret/data/a/b:delete patch sudo", "a/b", ""),
            ("secret/delete/a/b:update", "a/b", ""),
            ("secret/undelete/a/b:update", "a/b", ""),
            ("secret/destroy/a/b:update", "a/b", ""),
            ("secret/metadata/a/b:update delete", "a/b", ""),
            ("secret/*:read list update", "a/b", "execute read update"),
        ):
            with self.subTest(text):
                pattern, _, capabilities = text.partition(":")
                rules = RuleSet([Rule(pattern, frozenset(capabilities.split()))])
                self.assertEqual(privileges_on(rules, KeptSecret(SECOND, key, (), True)), set(expected.split()))
        create = RuleSet([Rule("secret/data/a/b", frozenset({"create"}))])
        self.assertEqual(privileges_on(create, fresh), {"update"})
        first = KeptSecret(Mount("", "kv/", "kv", 1), "a/b", (), True)
        self.assertEqual(
            privileges_on(RuleSet([Rule("kv/a/b", frozenset({"read", "update"}))]), first), {"execute", "update"}
        )
        self.assertEqual(privileges_on(RuleSet([Rule("kv/a/", frozenset({"list"}))]), first), {"read"})


class HolderTests(AccessTestCase):
    """Hosts with policies."""

    def test_adds_up(self) -> None:
        """Policies that add up are a group each, and their holder a member (MOVE-19)."""
        self.add_secret("a")
        self.add_secret("b")
        access = self.access(
            one='path "secret/data/a" { capabilities = ["read"] }', two='path "secret/data/b" { capabilities = ["update"] }'
        )
        access.add_holders([self.hold("one", "two")], {})
        self.assertEqual(self.permitted(access), {"secret/a": "execute", "secret/b": "update"})
        self.assertEqual({str(grant.role) for grant in access.grants}, {"group:sys/policies/one", "group:sys/policies/two"})

    def test_deny(self) -> None:
        """Where one policy denies what another allows, nobody gets the sum, but longer allows (MOVE-19, IMP-44)."""
        for key in ("a", "b", "c/d"):
            self.add_secret(key)
        access = self.access(
            all='path "secret/data/*" { capabilities = ["read"] }',
            less='path "secret/data/b" { capabilities = ["deny"] }\npath "secret/data/c/*" { capabilities = ["deny"] }',
            more='path "secret/data/c/d" { capabilities = ["update"] }',
        )
        access.add_holders([self.hold("all", "less", "more"), self.hold("all", name="other")], {})
        self.assertEqual(self.permitted(access), {"secret/a": "execute", "secret/c/d": "update"})
        everything = {"secret/a": "execute", "secret/b": "execute", "secret/c/d": "execute"}
        self.assertEqual(self.permitted(access, RecordId("host", "other")), everything)
        self.assertIn("its policies all+less+more together are other than the sum of each", self.notes())

    def test_groups(self) -> None:
        """A group of identities has its policies unless a member is denied something by another policy (MOVE-27)."""
        self.check_groups(both=True)
        self.check_groups(both=False)

    def check_groups(self, *, both: bool) -> None:
        """Check a group with one member, or with another one that a policy denies something."""
        self.setUp()
        self.add_secret("a")
        group = self.records.add("group", "identity/group/", "g", "g")
        assert group is not None
        policies = {group: frozenset({policy_key("", "all")})}
        texts = {
            "all": 'path "secret/data/*" { capabilities = ["read"] }',
            "less": 'path "secret/data/a" { capabilities = ["deny"] }',
        }
        kept, denied = self.hold(name="kept"), self.hold("less", name="denied")
        members = [
            Holder(each.record, each.origin, each.policies, frozenset({group}), frozenset({group}))
            for each in (kept, denied)
        ]
        access = self.access(**texts)
        access.add_holders(members if both else members[:1], policies)
        self.assertEqual(self.permitted(access, kept.record), {"secret/a": "execute"})
        self.assertEqual(self.permitted(access, denied.record), {})
        self.assertEqual(self.permitted(access, group), {} if both else {"secret/a": "execute"})

    def test_conditions(self) -> None:
        """A rule with a condition grants nothing, is listed, and still keeps shorter ones from counting (MOVE-21)."""
        self.add_secret("a")
        access = self.access(
            p='path "secret/data/a" { capabilities = ["read"] allowed_parameters = {"version" = ["1"]} }'
            '\npath "secret/data/*" { capabilities = ["read"] }'
        )
        access.add_holders([self.hold("p")], {})
        access.note_policies()
        self.assertEqual(self.permitted(access), {})
        self.assertIn("rule secret/data/a of policy p: it holds only with allowed_parameters", self.notes())

    def test_templates(self) -> None:
        """A template is resolved for who exists, grants nothing to others, and denies them what it might (MOVE-22)."""
        for key in ("ann/x", "bob/x", "{{identity.entity.name}}/x"):
            self.add_secret(key)
        access = self.access(
            own='path "secret/data/{{identity.entity.name}}/*" { capabilities = ["read"] }',
            notown='path "secret/data/*" { capabilities = ["read"] }'
            '\npath "secret/data/{{identity.entity.name}}/x" { capabilities = ["deny"] }',
        )
        ann, unknown = self.hold("own", name="ann", entity={"identity.entity.name": "ann"}), self.hold("own", name="unknown")
        without, doubtful = self.hold("own", name="without", entity={}), self.hold("notown", name="doubtful")
        access.add_holders([ann, unknown, without, doubtful], {})
        access.note_policies()
        self.assertEqual(self.permitted(access, ann.record), {"secret/ann/x": "execute"})
        for each in (unknown, without, doubtful):
            self.assertEqual(self.permitted(access, each.record), {})
        self.assertIn("{{identity.entity.name}}/* of policy own: it depends on who asks", self.notes())

    def test_unreadable(self) -> None:
        """Whoever has a policy that can't be read gets nothing, and the plan says so (MOVE-17)."""
        self.add_secret("a")
        access = self.access("odd", all='path "secret/data/*" { capabilities = ["read"] }')
        access.add_holders([self.hold("all", "odd")], {})
        self.assertEqual(self.permitted(access), {})
        self.assertIn("permissions of h: its policy odd can't be read, and may deny something", self.notes())

    def test_root(self) -> None:
        """The policy root is everything: it is never moved, and its holders are named, however they write it (MOVE-18)."""
        self.add_secret("a")
        access = self.access(mypol='path "secret/data/a" { capabilities = ["read"] }', root="")
        access.add_holders([self.hold("ROOT", "Mypol")], {})
        self.assertEqual(self.permitted(access), {"secret/a": "execute"})
        self.assertIn("h: it has the policy root of the root namespace, which is everything", self.notes())

    def test_namespaces(self) -> None:
        """A policy's paths are those of its namespace, and may go into one below (MOVE-28)."""
        below = Mount("team/", "nskv/", "kv", 2)
        self.add_secret("s", below)
        self.add_secret("s")
        rules = {
            policy_key("", "across"): read_rules('path "team/nskv/data/*" { capabilities = ["read"] }'),
            policy_key("team/", "inside"): read_rules('path "nskv/data/*" { capabilities = ["update"] }'),
            policy_key("team/", "nothing"): read_rules('path "secret/data/*" { capabilities = ["read"] }'),
        }
        access = Access(self.records, self.secrets, rules)
        access.add_holders([Holder(HOST, "h", frozenset(rules))], {})
        self.assertEqual(self.permitted(access), {"team/nskv/s": "execute update"})

    def test_listed(self) -> None:
        """Capabilities without a counterpart, other paths and later ones are listed (MOVE-20)."""
        self.add_secret("a")
        access = self.access(
            p='path "secret/data/*" { capabilities = ["read", "delete", "sudo"] }\npath "transit/x" { policy = "write" }'
            '\npath "secret/data/a" { capabilities = ["create"] }'
        )
        access.note_policies()
        for part in (
            "rule secret/data/* of policy p: nothing here corresponds to delete, sudo",
            "policy p: secret/data/*: what is made there later has no permission",
            "policy p: transit/x: they are about other things than secrets",
            "rule secret/data/a of policy p: create without update writes only the first version",
        ):
            self.assertIn(part, self.notes())
