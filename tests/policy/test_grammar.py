"""The policy language: text to statements."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import InvalidParameter, PolicyInvalid
from svc.policy.document import Bounds
from svc.policy.grammar import parse_document
from svc.policy.statements import (
    Annotation,
    Delete,
    Deny,
    Grant,
    Permit,
    PublicKey,
    Record,
    Reference,
    Revoke,
)
from svc.policy.vocabulary import MERGED
from tests.sshkeys import ONE, TWO
from tests.strategies import POLICIES, SOUP, mangled, trees

#: What messages say of the kinds that there are.
_ROLES = ": there are group, host, host_factory, layer, policy, user"
_RESOURCES = ": there are configuration, group, host, host_factory, layer, policy, public_key, user, variable, webservice"


def names(references: tuple[Reference, ...] | None) -> list[tuple[str, str]]:
    """Kinds and ids of references."""
    return [(reference.kind, reference.id) for reference in references or ()]


class GrammarTests(SynchronousTestCase):
    """What documents say."""

    def told(self, text: str | bytes) -> tuple[str, int | None, int | None]:
        """How a document is refused, and of which place."""
        refusal = self.assertRaises(PolicyInvalid, parse_document, text)
        return refusal.message, refusal.line, refusal.column

    def record(self, text: str) -> Record:
        """The only statement of a document, a record."""
        (record,) = parse_document(text)
        assert isinstance(record, Record)
        return record

    def grant(self, text: str) -> Grant:
        """The last statement of a document, a grant."""
        grant = parse_document(text)[-1]
        assert isinstance(grant, Grant)
        return grant

    def permit(self, text: str) -> Permit:
        """The last statement of a document, a permit."""
        permit = parse_document(text)[-1]
        assert isinstance(permit, Permit)
        return permit


class RecordTests(GrammarTests):
    """Records and their attributes."""

    def test_short_form(self) -> None:
        """``!user bob`` sets the id, also when it looks like a number or a truth value (POL-8, POL-12)."""
        for kind in ("policy", "user", "host", "group", "layer", "variable", "webservice"):
            self.assertEqual(self.record(f"- !{kind} bob").name, Reference(kind, "bob", None, None, 1, 3))
        self.assertEqual(self.record("- !user 123").name.id, "123")
        self.assertEqual(self.record("- !user yes").name.id, "yes")

    def test_long_form(self) -> None:
        """A record has an id, an account, an owner and annotations."""
        record = self.record("-\n  !host\n  id: web\n  account: acct\n  owner: !group ops\n  annotations:\n    team: red\n")
        self.assertEqual(record.name, Reference("host", "web", "acct", None, 2, 3))
        self.assertEqual(record.owner, Reference("group", "ops", None, None, 5, 10))
        self.assertEqual(record.annotations, (Annotation("team", "red"),))

    def test_ids_are_strings(self) -> None:
        """An unquoted number, date or truth value is no id in the long form; in quotes it is (POL-8)."""
        self.assertEqual(self.told("- !user\n  id: 123"), ("Expected a string for field 'id', got Integer", 2, 7))
        self.assertEqual(self.told("- !user {id: 1.5}")[0], "Expected a string for field 'id', got Float")
        self.assertEqual(self.told("- !user {id: no}")[0], "Expected a string for field 'id', got FalseClass")
        self.assertEqual(self.told("- !user {id: 2024-01-01}")[0], "Expected a string for field 'id', got Date")
        self.assertEqual(self.told("- !user {id: !group x}")[0], "Expected a string for field 'id', got Group")
        self.assertEqual(self.told("- !user {id: [x]}")[0], "Expected a string for field 'id', got Array")
        self.assertEqual(self.told("- !user {id: {a: b}}"), ("Attribute 'id' can't be a mapping", 1, 14))
        self.assertEqual(self.record("- !user {id: '123'}").name.id, "123")

    def test_blank_ids(self) -> None:
        """A record without an id, or with a blank one, is called like its policy."""
        for text in ("- !layer", "- !layer {}", "- !layer {id: }", "- !layer {id: ''}", "- !layer {id: ~}", "- !layer ' '"):
            self.assertEqual(self.record(text).name.id, "", text)

    def test_annotations_are_texts(self) -> None:
        """Values of annotations are stringified after their types were guessed; lists and mappings are refused (POL-9)."""
        text = "- !host\n  annotations: {flag: yes, v: 1.10, empty: , n: 0, q: 'yes', a/b-c: x, 1: y}"
        self.assertEqual(
            self.record(text).annotations,
            tuple(
                Annotation(*pair, omitted=pair[0] == "empty")
                for pair in {"flag": "true", "v": "1.1", "empty": "", "n": "0", "q": "yes", "a/b-c": "x", "1": "y"}.items()
            ),
        )
        self.assertEqual(self.told("- !host {annotations: {a: {b: c}}}"), ("Attribute 'a' can't be a mapping", 1, 27))
        self.assertEqual(self.told("- !host {annotations: {a: [b]}}")[0], "Expected a string for field 'a', got Array")
        self.assertEqual(self.told("- !host {annotations: {a: !user b}}")[0], "Expected a string for field 'a', got User")
        self.assertEqual(self.told("- !host {annotations: {a: b, a: c}}")[0], "Duplicate attribute: a")
        self.assertEqual(self.told("- !host {annotations: {'': b}}")[0], "annotation has a blank name")
        self.assertEqual(self.told("- !host {annotations: {<<: {a: b}}}")[0], "Attribute '<<' can't be a mapping" + MERGED)
        told = self.told("- !host {annotations: {a: &x b, <<: [*x]}}")[0]
        self.assertEqual(told, "Expected a string for field '<<', got Array" + MERGED)
        self.assertEqual(self.told("- !host {annotations: {!user a: b}}")[0], "Unexpected tag '!user'")

    def test_annotations_are_a_mapping(self) -> None:
        """Annotations are a mapping, or nothing."""
        self.assertEqual(self.record("- !host {annotations: }").annotations, ())
        self.assertEqual(self.told("- !host {annotations: [a]}")[0], "Expected a mapping for field 'annotations', got Array")
        self.assertEqual(self.told("- !host {annotations: a}")[0], "Expected a mapping for field 'annotations', got String")
        self.assertEqual(self.told("- !host {annotations: ''}")[0], "Expected a mapping for field 'annotations', got String")
        self.assertEqual(
            self.told("- !host {annotations: !user {id: a}}")[0], "Expected a mapping for field 'annotations', got User"
        )

    def test_sugar(self) -> None:
        """``kind`` and ``mime_type`` of a variable are annotations to be."""
        record = self.record("- !variable {id: x, kind: SSH key, mime_type: text/plain, annotations: {a: b}}")
        self.assertEqual(record.properties, (Annotation("kind", "SSH key"), Annotation("mime_type", "text/plain")))
        self.assertEqual(self.record("- !variable {kind: }").properties, ())
        self.assertEqual(self.told("- !variable {kind: 5}")[0], "Expected a string for field 'kind', got Integer")
        self.assertEqual(self.record("- !user {uidnumber: 1000}").properties, (Annotation("uidnumber", "1000"),))
        self.assertEqual(self.record("- !group {gidnumber: 2_000}").properties, (Annotation("gidnumber", "2000"),))
        self.assertEqual(self.record("- !user {uidnumber: }").properties, ())
        self.assertEqual(self.told("- !user {uidnumber: '1000'}")[0], "Expected a integer for field 'uidnumber', got String")
        self.assertEqual(self.told("- !group {gidnumber: 1.5}")[0], "Expected a integer for field 'gidnumber', got Float")

    def test_restrictions(self) -> None:
        """``restricted_to`` of users and hosts is a range or a list of ranges; a bad one is refused where it stands."""
        for tag in ("user", "host"):
            self.assertEqual(self.record(f"- !{tag} {{restricted_to: 1.2.3.4}}").restrictions, ("1.2.3.4/32",))
            record = self.record(f"- !{tag} {{restricted_to: [10.0.0.0/8, '::1', [2001:DB8::/32]]}}")
            self.assertEqual(record.restrictions, ("10.0.0.0/8", "::1/128", "2001:db8::/32"))
            self.assertEqual(self.record(f"- !{tag} {{restricted_to: []}}").restrictions, ())
        self.assertEqual(
            self.told("- !host\n  restricted_to:\n  - 1.2.3.4\n  - 10.0.0.1/24\n"),
            (
                "Invalid IP address or CIDR range '10.0.0.1/24': Value has bits set to right of mask."
                " Did you mean '10.0.0.0/24'?",
                4,
                5,
            ),
        )
        self.assertEqual(self.told("- !user {restricted_to: home}")[0], "Invalid IP address or CIDR range 'home'")
        self.assertEqual(
            self.told("- !user {restricted_to: 10}")[0], "Expected a string for field 'restricted_to', got Integer"
        )
        self.assertEqual(
            self.told("- !user {restricted_to: }")[0], "Expected a string for field 'restricted_to', got NilClass"
        )
        self.assertEqual(
            self.told("- !layer {restricted_to: 1.2.3.4}")[0], "No such attribute 'restricted_to' on type Layer"
        )

    def test_public_keys(self) -> None:
        """A public key is one line, an algorithm, the key and a name, parted by blanks; the name may have more words
        (KEY-4).
        """
        record = self.record(f"- !user {{public_key: '{ONE}  laptop '}}")
        self.assertEqual(record.public_keys, (PublicKey("laptop", f"{ONE} laptop", True),))
        text = f'- !user\n  public_keys:\n  - |\n    {ONE} c  d\n  - "{TWO} z"\n'
        self.assertEqual(
            self.record(text).public_keys, (PublicKey("c d", f"{ONE} c d", True), PublicKey("z", f"{TWO} z", True))
        )
        self.assertEqual(self.told(f"- !user\n  public_key: {ONE}"), ("Invalid public key format", 2, 15))
        for text in ("''", "ssh-rsa AAAA laptop", "x y z", f'"{ONE}\\nlaptop"', f"'-----BEGIN {ONE} z'"):
            self.assertEqual(self.told(f"- !user {{public_key: {text}}}")[0], "Invalid public key format")
        self.assertEqual(self.told("- !user {public_key: 5}")[0], "Expected a string for field 'public_key', got Integer")
        self.assertEqual(self.told("- !host {public_key: a b c}")[0], "No such attribute 'public_key' on type Host")

    def test_host_factories(self) -> None:
        """A host factory has layers, one or a list, and perhaps a role (POL-16)."""
        record = self.record("- !host-factory {id: f, layers: [!layer a, {kind: layer, id: b}], role: !group g}")
        self.assertEqual((record.name.kind, names(record.layers)), ("host_factory", [("layer", "a"), ("layer", "b")]))
        self.assertEqual(record.factory_role, Reference("group", "g", None, None, 1, 73))
        self.assertEqual(names(self.record("- !host_factory {layer: !layer a}").layers), [("layer", "a")])
        self.assertEqual(self.told("- !host-factory {layer: !group a}")[0], "Expected a layer for field 'layer', got Group")
        self.assertEqual(
            self.told("- !host-factory {layer: {kind: group, id: a}}")[0], "Expected a layer for field 'layer', got Hash"
        )
        self.assertEqual(
            self.told("- !host-factory {layer: !layer a, role: !variable v}")[0],
            "Expected a role for field 'role', got Variable",
        )

    def test_low_level_records(self) -> None:
        """``!role`` and ``!resource`` with kind and id are what the tag of that kind is, annotations and all (POL-13)."""
        record = self.record("- !role {kind: group, id: ops, owner: !user u, annotations: {a: b}}")
        self.assertEqual((record.name.kind, record.name.id, record.annotations), ("group", "ops", (Annotation("a", "b"),)))
        self.assertEqual(record.properties, ())
        self.assertEqual(self.record("- !resource {kind: variable, id: v}").name.kind, "variable")
        self.assertEqual(self.record("- !resource {kind: user}").name, Reference("user", "", None, None, 1, 3))
        self.assertEqual(
            self.told("- !role {kind: webservice, id: x}"), (f"Unknown kind 'webservice' of type Role{_ROLES}", 1, 16)
        )
        self.assertEqual(
            self.told("- !resource {kind: food, id: x}")[0], f"Unknown kind 'food' of type Resource{_RESOURCES}"
        )
        self.assertEqual(self.told("- !resource {kind: , id: x}")[0], f"Unknown kind '' of type Resource{_RESOURCES}")
        self.assertEqual(self.told("- !resource {id: x}"), ("Attribute 'kind' is missing on type Resource", 1, 3))
        self.assertEqual(self.told("- !role x"), ("Attribute 'kind' is missing on type Role", 1, 3))
        self.assertEqual(self.told("- !role {kind: policy, id: p, body: []}")[0], "No such attribute 'body' on type Role")

    def test_owners_are_roles(self) -> None:
        """An owner is exactly one role (POL-32)."""
        self.assertEqual(
            self.told("- !host {owner: !variable x}"), ("Expected a role for field 'owner', got Variable", 1, 17)
        )
        self.assertEqual(self.told("- !host {owner: bob}")[0], "Expected a role for field 'owner', got String")
        self.assertEqual(self.told("- !host {owner: [!user a, !user b]}")[0], "Expected a role for field 'owner', got Array")
        self.assertEqual(self.told("- !host {owner: []}")[0], "Expected a role for field 'owner', got Array")
        self.assertEqual(self.told("- !host {owner: !grant {role: x}}")[0], "Expected a role for field 'owner', got Grant")
        for text in ("- !host {owner: }", "- !host {owner: ''}", "- !host {owner: ~}"):
            self.assertEqual(self.told(text)[:2], ("owner has a blank id", 1))

    def test_unknown_words(self) -> None:
        """Unknown tags and attributes are refused where they stand, at any depth (POL-11)."""
        self.assertEqual(self.told("- !foobar x"), ("Unrecognized data type '!foobar'", 1, 3))
        self.assertEqual(self.told("- !include x"), ("Unrecognized data type '!include'", 1, 3))
        self.assertEqual(self.told("- !policy\n  body:\n  - !foobar {}"), ("Unrecognized data type '!foobar'", 3, 5))
        self.assertEqual(self.told("- !permit\n  x: y"), ("No such attribute 'x' on type Permit", 2, 3))
        self.assertEqual(self.told("- !user {body: [!user x]}")[0], "No such attribute 'body' on type User")
        self.assertEqual(self.told("- !user {id: a, id: b}")[0], "Duplicate attribute: id")

    def test_statements_have_a_tag(self) -> None:
        """Untagged scalars and mappings are no statements."""
        self.assertEqual(self.told("- user alice"), ("Unexpected scalar", 1, 3))
        self.assertEqual(self.told("- id: alice"), ("Unexpected mapping", 1, 3))
        self.assertEqual(self.told("-"), ("Unexpected scalar", 1, 2))
        self.assertEqual(self.told("- !member {role: !user x}"), ("Unexpected member", 1, 3))
        for tag in ("automatic-role", "managed-role"):
            text = f"- !{tag} {{record: !layer l, role_name: use_host}}"
            self.assertEqual(self.told(text), ("Unexpected automatic role", 1, 3))
        self.assertEqual(self.told("- !policy {id: x, body: {a: b}}"), ("Unexpected mapping", 1, 25))
        self.assertEqual(self.told("- !user [a]"), ("Unexpected tag '!user'", 1, 3))
        self.assertEqual(self.told("- !foo [a]"), ("Unrecognized data type '!foo'", 1, 3))


class BodyTests(GrammarTests):
    """Policies with bodies."""

    def test_lists_may_nest(self) -> None:
        """The root and bodies are lists, and lists in lists."""
        statements = parse_document("- - !user a\n  - [!user b]\n- !policy\n  id: p\n  body: [[!user c], [[]]]\n")
        self.assertEqual([s.name.id for s in statements if isinstance(s, Record)], ["a", "b", "p", "c"])

    def test_scopes(self) -> None:
        """What stands in a body has the policy for its scope, and that one the policy around it."""
        records = parse_document(
            "- !policy\n  id: a\n  body:\n  - !policy {id: b, body: [!user c]}\n  - !user d\n- !user e\n"
        )
        a, b, c, d, e = (record.name for record in records if isinstance(record, Record))
        self.assertIsNone(a.scope)
        self.assertIsNone(e.scope)
        assert b.scope is not None
        assert c.scope is not None
        self.assertEqual((b.scope.id, b.scope.outer), ("a", None))
        self.assertEqual((c.scope.id, c.scope.outer), ("b", b.scope))
        self.assertIs(d.scope, b.scope)

    def test_bodies_may_be_empty(self) -> None:
        """A policy may have an empty body, or none."""
        for body in ("", "body:", "body: ~", "body: []", "body: [[]]"):
            self.assertEqual(len(parse_document(f"- !policy\n  id: x\n  {body}")), 1)
        self.assertEqual(self.told("- !policy\n  body: ''"), ("Unexpected scalar", 2, 9))

    def test_a_single_statement_is_a_body(self) -> None:
        """A body of one statement needs no list."""
        self.assertEqual(len(parse_document("- !policy\n  id: x\n  body: !user a")), 2)


class RelationTests(GrammarTests):
    """Grants and permits."""

    def test_one_or_many(self) -> None:
        """Roles, members, privileges and resources are one or a list, whatever the spelling (POL-17)."""
        grant = self.grant("- !grant {role: !group a, member: !user b}")
        self.assertEqual(
            (names(grant.roles), names(tuple(m.role for m in grant.members))), ([("group", "a")], [("user", "b")])
        )
        grant = self.grant("- !grant {roles: [!group a, [!layer b]], members: [!user c, !host d]}")
        self.assertEqual(names(grant.roles), [("group", "a"), ("layer", "b")])
        self.assertEqual(names(tuple(m.role for m in grant.members)), [("user", "c"), ("host", "d")])
        permit = self.permit("- !permit {role: [!group a], privilege: [read, execute], resources: !variable x}")
        self.assertEqual((names(permit.roles), permit.privileges), ([("group", "a")], ("read", "execute")))
        self.assertEqual(names(permit.resources), [("variable", "x")])

    def test_empty_lists_say_nothing(self) -> None:
        """An empty list is a grant to nobody; an attribute left out is a mistake (POL-17)."""
        self.assertEqual(self.grant("- !grant {role: [], members: []}").members, ())
        self.assertEqual(self.told("- !grant {role: !group a}"), ("Attribute 'member' is missing on type Grant", 1, 3))
        self.assertEqual(self.told("- !grant {member: !group a}")[0], "Attribute 'role' is missing on type Grant")
        self.assertEqual(
            self.told("- !permit {role: !group a, resource: !variable x}")[0],
            "Attribute 'privilege' is missing on type Permit",
        )
        self.assertEqual(self.told("- !grant x")[0], "No such attribute 'id' on type Grant")

    def test_members_may_be_admins(self) -> None:
        """A member is a role, or a role with ``admin``, tagged or not (POL-18)."""
        grant = self.grant(
            "- !grant\n  role: !group a\n  members:\n  - !user b\n  - role: !group ops\n    admin: true\n"
            "  - !member {role: !host h, admin: 'true'}\n  - !member {role: !host i, admin: no}\n  - role: !host j\n"
        )
        self.assertEqual(
            [(member.role.id, member.admin) for member in grant.members],
            [("b", False), ("ops", True), ("h", True), ("i", False), ("j", False)],
        )

    def test_bad_members(self) -> None:
        """A member has one role, and is admin or not (POL-18)."""
        for member, message in (
            ("bob", "Expected a role for field 'member', got String"),
            ("!variable x", "Expected a role for field 'member', got Variable"),
            ("!member x", "Expected a role for field 'member', got Member"),
            ("!grant {}", "Expected a role for field 'member', got Grant"),
            ("{admin: true}", "Attribute 'role' is missing on type Member"),
            ("{id: x}", "No such attribute 'id' on type Member"),
            ("{role: [!user a, !user b]}", "Expected a role for field 'role', got Array"),
            ("{role: !user a, admin: 1}", "Expected a boolean for field 'admin', got Integer"),
            ("{role: !user a, admin: }", "Expected a boolean for field 'admin', got NilClass"),
            ("{role: {role: !user a}}", "No such attribute 'role' on type Role"),
            ("{kind: group, role: !user a}", "No such attribute 'role' on type Role"),
        ):
            self.assertEqual(self.told(f"- !grant {{role: !group g, member: {member}}}")[:2], (message, 1), member)

    def test_bad_references(self) -> None:
        """Roles are roles, resources are records, and both have a tag (POL-19)."""
        for role, message in (
            ("bob", "Expected a role for field 'role', got String"),
            ("12", "Expected a role for field 'role', got Integer"),
            ("!webservice x", "Expected a role for field 'role', got Webservice"),
            ("!member {role: !user x}", "Expected a role for field 'role', got Member"),
            ("{id: x}", "Attribute 'kind' is missing on type Role"),
            ("!role x", "Attribute 'kind' is missing on type Role"),
            ("{kind: variable, id: x}", f"Unknown kind 'variable' of type Role{_ROLES}"),
            ("!resource {kind: group, id: x}", "Expected a role for field 'role', got Resource"),
            ("!delete {record: !user x}", "Expected a role for field 'role', got Delete"),
            ("!user [x]", "Unexpected tag '!user'"),
            ("!user {id: x, admin: true}", "No such attribute 'admin' on type User"),
        ):
            text = f"- !permit {{role: {role}, privilege: x, resource: !variable v}}"
            self.assertEqual(self.told(text)[:2], (message, 1), role)
        self.assertEqual(
            self.told("- !permit {role: !user x, privilege: x, resource: foo}")[0],
            "Expected a resource for field 'resource', got String",
        )
        self.assertEqual(
            self.told("- !permit {role: !user x, privilege: x, resource: {id: foo}}")[0],
            "Attribute 'kind' is missing on type Resource",
        )

    def test_references_of_any_spelling(self) -> None:
        """Where a role or a resource is expected, a mapping with kind and id needs no tag, and a low-level one fits too
        (POL-19).
        """
        for group in ("!group x", "{kind: group, id: x}", "!role {kind: group, id: x}"):
            self.assertEqual(names(self.grant(f"- !grant {{role: {group}, member: []}}").roles), [("group", "x")])
            grant = self.grant(f"- !grant {{role: [], members: [{group}, {{role: {group}, admin: true}}]}}")
            self.assertEqual(
                [(names((member.role,)), member.admin) for member in grant.members],
                [([("group", "x")], False), ([("group", "x")], True)],
            )
            owner = self.record(f"- !host {{id: h, owner: {group}}}").owner
            assert owner is not None
            self.assertEqual(names((owner,)), [("group", "x")])
        for variable in ("!variable x", "{kind: variable, id: x}", "!resource {kind: variable, id: x}"):
            permit = self.permit(f"- !permit {{role: [], privilege: [], resource: {variable}}}")
            self.assertEqual(names(permit.resources), [("variable", "x")])
        permit = self.permit("- !permit {role: [], privilege: [], resource: !role {kind: group, id: x, account: a}}")
        self.assertEqual((permit.resources[0].kind, permit.resources[0].account), ("group", "a"))

    def test_what_is_taken_away(self) -> None:
        """``!revoke`` reads like ``!grant``, ``!deny`` like ``!permit``; ``!delete`` names a record, or several (POL-17)."""
        (revoke,) = parse_document(
            "- !revoke {roles: [!group a, !layer b], members: [!user u, {role: !host h, admin: true}]}"
        )
        assert isinstance(revoke, Revoke)
        self.assertEqual(names(revoke.roles), [("group", "a"), ("layer", "b")])
        self.assertEqual([member.role.id for member in revoke.members], ["u", "h"])
        (deny,) = parse_document("- !deny {role: !group a, privileges: [read, x], resources: [!variable v]}")
        assert isinstance(deny, Deny)
        self.assertEqual((names(deny.roles), deny.privileges), ([("group", "a")], ("read", "x")))
        for text, expected in (
            ("- !delete {record: !variable v}", [("variable", "v")]),
            ("- !delete {records: [!user u, {kind: host, id: h}]}", [("user", "u"), ("host", "h")]),
            ("- !delete {record: !resource {kind: public_key, id: user/u/k}}", [("public_key", "user/u/k")]),
        ):
            (delete,) = parse_document(text)
            assert isinstance(delete, Delete)
            self.assertEqual(names(delete.records), expected)
        for text, message in (
            ("- !delete {record: x}", "Expected a record for field 'record', got String"),
            ("- !delete {record: !grant {role: [], member: []}}", "Expected a record for field 'record', got Grant"),
            (
                "- !delete {record: !automatic-role {record: !layer l, role_name: r}}",
                "Expected a record for field 'record', got AutomaticRole",
            ),
            ("- !delete {}", "Attribute 'record' is missing on type Delete"),
            ("- !delete x", "No such attribute 'id' on type Delete"),
            ("- !revoke {role: !group a}", "Attribute 'member' is missing on type Revoke"),
            ("- !deny {role: !group a, resource: !group a}", "Attribute 'privilege' is missing on type Deny"),
            ("- !revoke {id: a}", "No such attribute 'id' on type Revoke"),
        ):
            self.assertEqual(self.told(text)[0], message)

    def test_automatic_roles(self) -> None:
        """An automatic role is that of a record, by its name; it stands where a role does (POL-20)."""
        for tag in ("automatic-role", "managed-role"):
            grant = self.grant(f"- !grant {{role: !{tag} {{record: !layer l, role_name: use_host}}, member: !user u}}")
            self.assertEqual(grant.roles, (Reference("layer", "l", None, None, 1, 17, "use_host"),))
        for text, message in (
            ("{record: !layer l}", "Attribute 'role_name' is missing on type AutomaticRole"),
            ("{record: !layer l, role_name: ' '}", "role_name has a blank id"),
            ("{record: !layer l, role_name: 5}", "Expected a string for field 'role_name', got Integer"),
            ("{record: [], role_name: x}", "Expected a record for field 'record', got Array"),
            ("x", "No such attribute 'id' on type AutomaticRole"),
        ):
            self.assertEqual(self.told(f"- !grant {{role: !automatic-role {text}, member: []}}")[0], message)

    def test_blank_references(self) -> None:
        """An empty reference has a blank id, which is a fault of meaning (POL-25)."""
        for field, text in (
            ("resource", "- !permit {role: !user x, privilege: x, resource: }"),
            ("role", "- !permit {role: '', privilege: x, resource: !variable x}"),
            ("member", "- !grant {role: !user x, member: [~]}"),
        ):
            refusal = self.assertRaises(PolicyInvalid, parse_document, text)
            self.assertEqual((refusal.message, refusal.bare), (f"{field} has a blank id", True))

    def test_privileges_are_texts(self) -> None:
        """Privileges are free strings, one or a list."""
        self.assertEqual(
            self.permit("- !permit {role: [], privileges: [x, a b, 'yes'], resource: []}").privileges, ("x", "a b", "yes")
        )
        self.assertEqual(
            self.told("- !permit {role: [], privileges: [yes], resource: []}")[0],
            "Expected a string for field 'privilege', got TrueClass",
        )
        self.assertEqual(
            self.told("- !permit {role: [], privileges: , resource: []}")[0],
            "Expected a string for field 'privilege', got NilClass",
        )


class AliasTests(GrammarTests):
    """Note [Aliases]."""

    def test_references_by_alias(self) -> None:
        """An alias of records refers to them, with all that the records say (POL-19)."""
        permit = self.permit(
            "- &ops !group {id: ops, annotations: {a: b}}\n- &vars\n  - !variable {id: a, kind: k}\n  - !variable b\n"
            "- !permit\n  role: *ops\n  privileges: &rw [read, write]\n  resource: [*vars, [*vars]]\n"
        )
        self.assertEqual(names(permit.roles), [("group", "ops")])
        self.assertEqual(names(permit.resources), [("variable", "a"), ("variable", "b")] * 2)

    def test_references_keep_their_scope(self) -> None:
        """A thing that is anchored in a body is that thing elsewhere too (POL-4)."""
        statements = parse_document(
            "- !policy\n  id: app\n  body:\n  - &hosts [!host h]\n  - &group !group g\n"
            "- !grant\n  role: *group\n  members: [*hosts, !host h]\n"
        )
        grant = statements[-1]
        assert isinstance(grant, Grant)
        scopes = [name.scope.id if name.scope else None for name in (*grant.roles, *(m.role for m in grant.members))]
        self.assertEqual(scopes, ["app", "app", None])

    def test_references_are_told_where_they_are_used(self) -> None:
        """The place of a reference by alias is that of the alias."""
        grant = self.grant("- &g !group g\n- !grant\n  role: *g\n  member: !member {role: *g, admin: true}\n")
        self.assertEqual([(role.line, role.column) for role in (grant.roles[0], grant.members[0].role)], [(3, 9), (4, 26)])

    def test_faults_are_told_where_aliases_stand(self) -> None:
        """A fault in what an alias stands for, and that isn't one at the anchor, has the place of the alias (POL-52)."""
        for text, message, line, column in (
            ("- !host\n  id: a\n  annotations: &c {a: b}\n- !host\n  id: b\n  annotations:\n    <<: *c", "'<<' can't", 7, 9),
            ("- !host {id: a, annotations: {x: &v 300.1.1.1}}\n- !host {id: b, restricted_to: *v}", "IP address", 2, 32),
            ("- !deny {privilege: &p [x, [y]], role: [], resource: []}\n- !host {id: b, restricted_to: *p}", "'x'", 2, 32),
            ("- !deny {privilege: &p [[y]], role: [], resource: []}\n- !host {id: b, restricted_to: *p}", "'y'", 2, 32),
            ("- !host {id: a, annotations: {&k a: b}}\n- !host {id: b, *k : c}", "attribute 'a'", 2, 17),
            ("- !host {id: a, annotations: &m {a: b}}\n- !host {id: b, annotations: [*m]}", "annotations", 2, 30),
            ("- !delete {record: &r [!variable a]}\n- !grant {role: *r, member: []}", "field 'role'", 2, 17),
            ("- !delete {record: &r [!variable a]}\n- !grant {member: *r, role: []}", "field 'member'", 2, 19),
            ("- !host {id: a, annotations: {x: &v text}}\n- *v", "Unexpected scalar", 2, 3),
            ("- !grant {role: &r [[!member {role: !user u}]], member: []}", "a role", 1, 22),
        ):
            refusal = self.told(text)
            self.assertIn(message, refusal[0], text)
            self.assertEqual(refusal[1:], (line, column), text)

    def test_statements_are_told_where_aliases_stand(self) -> None:
        """Statements that an alias repeats have the place of the alias, in lists and in bodies, too (POL-4, POL-52)."""
        body = "&b\n  - !host a\n  - - !policy {id: q, body: [!host a]}"
        text = f"- !policy\n  id: p\n  body: {body}\n- !policy {{id: r, body: *b}}\n"
        places = [(record.name.line, record.name.column) for record in parse_document(text) if isinstance(record, Record)]
        self.assertEqual(places, [(1, 3), (4, 5), (5, 7), (5, 30), (6, 3), *[(6, 25)] * 3])

    def test_bodies_by_alias(self) -> None:
        """A body that stands twice is the same text in two scopes, with all that refers within it (POL-4)."""
        statements = parse_document(
            "- !policy\n  id: a\n  body: &body\n  - &g !group g\n  - !host h\n  - !grant {role: *g, member: !host h}\n"
            "- !policy {id: b, body: *body}\n"
        )
        scopes: list[Any] = []
        for statement in statements:
            if isinstance(statement, Grant):
                scopes.append([name.scope and name.scope.id for name in (*statement.roles, statement.members[0].role)])
            elif isinstance(statement, Record):
                scopes.append(statement.name.scope and statement.name.scope.id)
        self.assertEqual(scopes, [None, "a", "a", ["a", "a"], None, "b", "b", ["b", "b"]])

    def test_scalars_by_alias(self) -> None:
        """Ids, keys, privileges and annotations may be aliases (POL-4)."""
        record = self.record("- !host {&k id: &v web, annotations: {a: *v , *k : *v}}")
        self.assertEqual((record.name.id, record.annotations), ("web", (Annotation("a", "web"), Annotation("id", "web"))))

    def test_wide_aliases_are_bounded(self) -> None:
        """Few lines that refer to millions of things are refused before the things are made."""
        many = ", ".join(f"!variable v{n}" for n in range(1_000))
        text = f"- &v [{many}]\n- !permit\n  role: !user u\n  privilege: x\n  resource: [{', '.join(['*v'] * 5_000)}]\n"
        self.assertEqual(self.told(text)[0], "More than 3000000 elements, aliases followed")


class FuzzTests(SynchronousTestCase):
    """Documents that nobody would write."""

    def assert_only_refuses(self, text: str | bytes) -> None:
        """The document is read or refused, with a message."""
        try:
            parse_document(text)
        except PolicyInvalid as refusal:
            self.assertTrue(refusal.message)
            self.assertTrue(refusal.line is None or refusal.line >= 1)
            self.assertTrue(refusal.column is None or refusal.column >= 1)
        except InvalidParameter as refusal:
            self.assertEqual(refusal.code, "validation_failed")

    @given(SOUP)
    def test_soup(self, text: str) -> None:
        """Text of YAML's own characters makes a policy or a refusal."""
        self.assert_only_refuses(text)
        self.assert_only_refuses(f"- !policy\n  body:\n  - {text}")

    @given(mangled())
    def test_mangled_policies(self, text: str) -> None:
        """A policy with a stretch replaced makes a policy or a refusal."""
        self.assert_only_refuses(text)

    @given(mangled())
    def test_broken_encodings(self, text: str) -> None:
        """Bytes that may be UTF-16, or end within a character, make a policy or a refusal."""
        self.assert_only_refuses(text.encode("utf-16"))
        self.assert_only_refuses(text.encode("utf-8")[:-1] + b"\xc3")

    @given(trees())
    def test_trees(self, tree: object) -> None:
        """Any tree of lists, mappings and scalars makes a policy or a refusal, in every place of a document."""
        text = json.dumps(tree)
        for around in (
            "{}",
            "- {}",
            "- !policy {{body: {}}}",
            "- !user {}",
            "- !user {{restricted_to: {0}, public_keys: {0}}}",
            "- !host {{annotations: {}}}",
            "- !host-factory {{layers: {}}}",
            "- !role {}",
            "- !resource {}",
            "- !grant {}",
            "- !revoke {}",
            "- !delete {}",
            "- !delete {{record: {}}}",
            "- !grant {{role: !automatic-role {}, member: []}}",
        ):
            self.assert_only_refuses(around.format(text))
        self.assert_only_refuses(f"- !grant {{role: {text}, members: {text}}}")
        self.assert_only_refuses(f"- !permit {{role: !user x, privileges: {text}, resources: {text}}}")

    @given(POLICIES)
    def test_policies_are_read(self, text: str) -> None:
        """Well formed documents are read, alike as text and as UTF-8."""
        self.assertEqual(
            [type(statement) for statement in parse_document(text)],
            [type(statement) for statement in parse_document(text.encode("utf-8"))],
        )

    def test_bounds_may_be_set(self) -> None:
        """Anyone who asks may set other bounds."""
        self.assertRaises(PolicyInvalid, parse_document, "- !user a\n- !user b", Bounds(nodes=2))
        self.assertEqual(len(parse_document("- !user a\n- !user b", Bounds(nodes=3))), 2)
