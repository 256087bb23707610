"""The policy language as clients meet it, rule by rule, in both vocabularies."""

from __future__ import annotations

import copy
from typing import Any

from twisted.logger import capturedLogs, formatEvent

from svc.model.dialect import CONJUR
from svc.policy import resolve
from tests.sshkeys import ONE, THREE, TWO
from tests.statuses import hidden_role_status
from tests.web.world import ADMIN, WorldCase, user


class LanguageCase(WorldCase):
    """Ways of loading policy and looking at what it made."""

    def rows(self, text: str, **more: Any) -> dict[str, Any]:
        """Load a document into a fresh world, and return the answer."""
        self.setUp()
        answer: dict[str, Any] = self.load(text, **more).json()
        return answer

    def invalid(self, text: str, **more: Any) -> str:
        """The message with which a document is refused; nothing of it is kept."""
        before = copy.deepcopy(self.memory)
        message: str = self.error(self.load(text, status=422, **more), 422, "policy_invalid")
        self.assertEqual(self.memory, before)
        return message

    def at(self, text: str) -> tuple[int, int, str]:
        """The place and the words of an error of grammar."""
        error = self.load(text, status=422).json()["error"]
        place, message = error["innererror"], error["message"]
        start = f"Error at line {place['line']}, column {place['column']} in policy : "
        self.assertTrue(message.startswith(start), message)
        return place["line"], place["column"], message.removeprefix(start)

    def annotation(self, resource: str, name: str) -> str | None:
        """The value of an annotation of ``kind:identifier``."""
        return self.memory.annotations.get((f"acme:{resource}", name), (None, None))[0]

    def owner(self, resource: str) -> str:
        """The owner of ``kind:identifier``."""
        return self.memory.resources[f"acme:{resource}"][0].removeprefix("acme:")

    def granted(self, role: str, member: str) -> bool:
        """Whether a role was granted to a member."""
        return (f"acme:{role}", f"acme:{member}", False) in self.memory.memberships

    def permitted(self, role: str, privilege: str, resource: str) -> bool:
        """Whether a role was given a privilege on a resource."""
        return (f"acme:{resource}", privilege, f"acme:{role}") in self.memory.permissions

    def exists(self, resource: str) -> bool:
        """Whether ``kind:identifier`` exists."""
        return f"acme:{resource}" in self.memory.resources

    def ranges(self, role: str) -> set[str]:
        """From where ``kind:identifier`` may log in."""
        return {cidr for name, cidr in self.memory.restrictions if name == f"acme:{role}"}

    def value(self, resource: str) -> tuple[int, bytes]:
        """The newest version of a value, and the value."""
        full = f"acme:{resource}"
        versions = self.memory.secrets[full]
        return max(versions), self.vault.open(full, versions[max(versions)][1])


class DocumentTests(LanguageCase):
    """Core 1.1: documents."""

    def test_the_root_is_a_sequence(self) -> None:
        """A document is one sequence, perhaps of sequences; a mapping, a scalar and a second document are refused
        (POL-1).
        """
        self.load("- - !user a\n  - [ !user b, [ ] ]\n")
        self.assertTrue(self.exists("user:a") and self.exists("user:b"))
        self.assertEqual(self.at("user: a"), (1, 1, "Unexpected mapping"))
        self.assertEqual(self.at("user"), (1, 1, "Unexpected scalar"))
        message = "Multiple YAML documents encountered. Only a single document is permitted per policy."
        self.assertEqual(self.at("- !user a\n---\n- !user b\n")[2], message)

    def test_blank_bodies(self) -> None:
        """A body of nothing but blanks is ``policy_text is not present``, in every mode (POL-2)."""
        for text in ("", " ", "\n \t\n", "\ufeff"):
            for method in ("POST", "PATCH", "PUT"):
                answer = self.load(text, method=method, status=422)
                self.assertEqual(self.error(answer, 422, "validation_failed"), "policy_text is not present")
                self.assertEqual(
                    answer.json()["error"]["details"],
                    [{"code": "validation_failed", "target": "policy_text", "message": "is not present"}],
                )

    def test_empty_policies(self) -> None:
        """A comment, ``[]`` and a bare ``---`` are policies; put in place of another they wipe what it recorded (POL-2)."""
        for text in ("# nothing", "[]", "---", "---\n"):
            self.rows("- !user a\n- !variable v\n")
            self.load(text)
            self.assertTrue(self.exists("variable:v"))
            self.load(text, method="PUT")
            self.assertFalse(self.exists("variable:v") or self.exists("user:a"))
            self.assertTrue(self.exists("user:admin") and self.exists("policy:root"))

    def test_anchors_and_aliases(self) -> None:
        """Records, sequences and keys may be aliases; an anchor stands once (POL-3)."""
        self.load(
            "- &app !host app\n- &things [ !variable a, !variable b ]\n"
            "- !permit { &key role: *app, privileges: &rw [ read, update ], resources: *things }\n"
            "- !grant { *key : !layer l, member: *app }\n- !layer l\n"
        )
        self.assertTrue(self.permitted("host:app", "update", "variable:b"))
        self.assertTrue(self.granted("layer:l", "host:app"))
        self.assertEqual(self.at("- &a !user x\n- &a !user y\n")[2], "Duplicate anchor a")

    def test_repeated_keys(self) -> None:
        """A key stands once in a mapping, in annotations too (POL-3)."""
        self.assertEqual(
            self.at("- !grant\n  role: !user a\n  member: !user b\n  member: !user c\n"),
            (4, 3, "Duplicate attribute: member"),
        )
        self.assertEqual(self.at("- !host { annotations: { a: b, a: c } }")[2], "Duplicate attribute: a")

    def test_no_includes(self) -> None:
        """``!include`` is no word of the language any more (POL-11)."""
        self.assertEqual(self.at("- !include other.yml"), (1, 3, "Unrecognized data type '!include'"))


class TagTests(LanguageCase):
    """Core 1.2: tags."""

    def test_records(self) -> None:
        """Each record's tag makes a resource of its kind, and a role for all but variables and webservices (POL-10)."""
        self.load(
            "- !policy p\n- !user u\n- !host h\n- !group g\n- !layer l\n- !variable v\n- !webservice w\n"
            "- !host-factory { id: f, layer: !layer l }\n- !host_factory { id: f2, layers: [ !layer l ] }\n"
        )
        for name in ("policy:p", "user:u", "host:h", "group:g", "layer:l", "host_factory:f", "host_factory:f2"):
            self.assertTrue(self.exists(name) and f"acme:{name}" in self.memory.roles, name)
        for name in ("variable:v", "webservice:w"):
            self.assertTrue(self.exists(name) and f"acme:{name}" not in self.memory.roles, name)

    def test_low_level_records(self) -> None:
        """``!role`` and ``!resource`` with kind and id stand for the tag of the kind, as records and as references
        (POL-13).
        """
        self.load(
            "- !role { kind: group, id: g }\n- !resource { kind: variable, id: v }\n- !role { kind: user, id: p/u }\n"
            "- !permit { role: !role { kind: group, id: g }, privilege: read,"
            " resource: !resource { kind: variable, id: v } }\n"
            "- !grant { role: !role { kind: group, id: g }, member: { kind: user, id: p/u } }\n"
        )
        self.assertTrue(self.permitted("group:g", "read", "variable:v"))
        self.assertTrue(self.granted("group:g", "user:u@p"))

    def test_automatic_roles(self) -> None:
        """``!automatic-role`` and ``!managed-role`` name a role that is never there (POL-20)."""
        for tag in ("automatic-role", "managed-role"):
            text = f"- !layer l\n- !grant {{ role: !{tag} {{ record: !layer l, role_name: use_host }}, member: !layer l }}\n"
            self.assertEqual(self.invalid(text), "@ 'layer/l/use_host' not found in account 'acme'")

    def test_unknown_tags(self) -> None:
        """Any other tag is refused where it stands; so is a text among the statements (POL-11)."""
        self.assertEqual(self.at("- !user a\n- !foobar x\n"), (2, 3, "Unrecognized data type '!foobar'"))
        self.assertEqual(self.at("- user alice"), (1, 3, "Unexpected scalar"))


class AttributeTests(LanguageCase):
    """Core 1.3: attributes."""

    def test_singular_and_plural(self) -> None:
        """Singular and plural are interchangeable, and each takes one or a list (POL-17)."""
        for role, privilege, resource in (("role", "privileges", "resource"), ("roles", "privilege", "resources")):
            for left, right in (("", ""), ("[", "]")):
                self.rows(
                    f"- !user u\n- !variable v\n- !permit {{ {role}: {left}!user u{right}, {privilege}: {left}read{right},"
                    f" {resource}: {left}!variable v{right} }}\n"
                )
                self.assertTrue(self.permitted("user:u", "read", "variable:v"))
        for role, member in (("role", "members"), ("roles", "member")):
            self.rows(f"- !user u\n- !group g\n- !grant {{ {role}: !group g, {member}: [ !user u ] }}\n")
            self.assertTrue(self.granted("group:g", "user:u"))

    def test_unknown_attributes(self) -> None:
        """An attribute that a type doesn't have is refused (POL-11)."""
        self.assertEqual(self.at("- !permit\n  x: y\n"), (2, 3, "No such attribute 'x' on type Permit"))
        self.assertEqual(
            self.at("- !layer { restricted_to: 1.2.3.4 }")[2], "No such attribute 'restricted_to' on type Layer"
        )

    def test_values_of_another_sort(self) -> None:
        """A mapping in place of a scalar, and a value of another type, are refused by name (POL-8)."""
        self.assertEqual(self.at("- !user { id: { a: b } }")[2], "Attribute 'id' can't be a mapping")
        self.assertEqual(self.at("- !user { id: !group g }")[2], "Expected a string for field 'id', got Group")

    def test_guessed_types(self) -> None:
        """Unquoted numbers, dates and truth values are no ids, but in the short form; as annotations they are rewritten
        (POL-9).
        """
        self.assertEqual(self.at("- !user { id: 123 }")[2], "Expected a string for field 'id', got Integer")
        self.load("- !user 123\n- !user yes\n- !user { id: '456' }\n")
        self.assertTrue(self.exists("user:123") and self.exists("user:yes") and self.exists("user:456"))
        self.load("- !host { id: h, annotations: { flag: yes, v: 1.10, none: , q: 'yes', d: 2024-01-02, n: 0x1F } }\n")
        expected = {"flag": "true", "v": "1.1", "none": "", "q": "yes", "d": "2024-01-02", "n": "0x1F"}
        self.assertEqual({name: self.annotation("host:h", name) for name in expected}, expected)
        self.assertEqual(self.at("- !host { annotations: { a: { b: c } } }")[2], "Attribute 'a' can't be a mapping")

    def test_inline_members(self) -> None:
        """A member may say that it is an admin, with a tag or without, as a truth value or a text (POL-18)."""
        self.load(
            "- !group g\n- !user a\n- !user b\n- !user c\n"
            "- !grant\n  role: !group g\n  members:\n  - { role: !user a, admin: true }\n"
            "  - !member { role: !user b, admin: 'true' }\n  - !member { role: !user c, admin: 'false' }\n"
        )
        for name, admin in (("a", True), ("b", True), ("c", False)):
            self.assertEqual(self.memory.memberships["acme:group:g", f"acme:user:{name}", False][0], admin)

    def test_restrictions(self) -> None:
        """``restricted_to`` takes addresses and ranges and keeps them with their masks (POL-14)."""
        self.load(
            "- !host { id: h, restricted_to: [ 1.2.3.4, 10.0.0.0/8, '2001:DB8::/32' ] }\n"
            "- !user { id: u, restricted_to: '::1' }"
        )
        self.assertEqual(self.ranges("host:h"), {"1.2.3.4/32", "10.0.0.0/8", "2001:db8::/32"})
        self.assertEqual(self.ranges("user:u"), {"::1/128"})
        self.assertEqual(
            self.at("- !host\n  id: h\n  restricted_to: 10.0.0.1/24\n"),
            (
                3,
                18,
                "Invalid IP address or CIDR range '10.0.0.1/24': Value has bits set to right of mask."
                " Did you mean '10.0.0.0/24'?",
            ),
        )
        self.assertEqual(self.at("- !host { restricted_to: x }")[2], "Invalid IP address or CIDR range 'x'")

    def test_sugar(self) -> None:
        """Some attributes are annotations under the dialect's prefix; an explicit annotation wins (POL-15)."""
        prefix = self.dialect.prefix
        self.load(
            "- !variable { id: v, kind: password, mime_type: text/plain }\n- !user { id: u, uidnumber: 1000 }\n"
            f"- !group {{ id: g, gidnumber: 2000 }}\n"
            f"- !group {{ id: h, gidnumber: 1, annotations: {{ {prefix}/gidnumber: '7' }} }}\n"
        )
        for resource, name, value in (
            ("variable:v", "kind", "password"),
            ("variable:v", "mime_type", "text/plain"),
            ("user:u", "uidnumber", "1000"),
            ("group:g", "gidnumber", "2000"),
            ("group:h", "gidnumber", "7"),
        ):
            self.assertEqual(self.annotation(resource, f"{prefix}/{name}"), value)
        self.assertEqual(self.at("- !user { uidnumber: many }")[2], "Expected a integer for field 'uidnumber', got String")

    def test_public_keys(self) -> None:
        """A public key is a resource with the key as its value; it belongs to the user's owner (KEY-3)."""
        self.load(
            "- !group g\n"
            f"- !policy {{ id: p, body: [ !user {{ id: u, owner: !group /g, public_keys: [ {ONE} laptop ] }} ] }}"
        )
        self.assertEqual(self.owner("public_key:user/u@p/laptop"), "group:g")
        self.assertEqual(self.value("public_key:user/u@p/laptop"), (1, f"{ONE} laptop".encode()))
        self.assertEqual(self.at(f"- !user {{ public_key: {ONE} }}")[2], "Invalid public key format")

    def test_public_keys_that_are_none(self) -> None:
        """Text with a name that is no key is refused, or else loaded with a warning, where the dialect has it so; without a
        name, with characters of control, or too long it is always refused (KEY-4).
        """
        for key in ("ssh-rsa AAAA laptop", "no key laptop", f"{ONE[:-4]} laptop", f"ssh-rsa {ONE.split()[1]} laptop"):
            if not self.dialect.lenient_policy:
                self.assertEqual(self.at(f"- !user {{ id: u, public_key: {key} }}")[2], "Invalid public key format")
                continue
            for method in ("POST", "PATCH", "PUT"):
                with capturedLogs() as events:
                    answer = self.load(f"- !user {{ id: u, public_keys: [ {key}, {TWO} desk ] }}", method=method)
                warning = "Public key 'laptop' of User 'u' is none that SSH takes."
                self.assertEqual(answer.json()["warnings"], [warning])
                told = f"acme:user:admin loaded acme:policy:root, and was warned: {warning}"
                self.assertEqual([formatEvent(event) for event in events], [told])
            self.assertEqual(self.value("public_key:user/u/laptop")[1], key.encode())
            self.assertEqual(self.client.get("/public_keys/acme/user/u").body.decode(), f"{TWO} desk\n{key}\n")
        for key in ("laptop", "ssh-rsa laptop", '"a b c\\td"', '"a b c\\e[2Jd"', '"a b c\\nd"', "a b " + "c" * 9000):
            self.assertEqual(self.at(f"- !user {{ id: u, public_key: {key} }}")[2], "Invalid public key format", key)
        keys = ", ".join(f"a b key{number}" for number in range(150))
        if self.dialect.lenient_policy:
            warnings = self.load(f"- !user {{ id: many, public_keys: [ {keys} ] }}").json()["warnings"]
            self.assertEqual((len(warnings), warnings[-1]), (101, "Nor are 50 other public keys."))

    def test_public_keys_of_one_name(self) -> None:
        """A user's two keys of one name are refused, or else the last of them counts, where the dialect has it so
        (KEY-5).
        """
        text = f"- !user {{ id: u, public_keys: [ {ONE} a, {TWO} b, {TWO} a, {THREE} a ] }}"
        if not self.dialect.lenient_policy:
            self.assertEqual(self.invalid(text), "Public_key 'user/u/a' is declared more than once")
            return
        for method in ("POST", "POST", "PATCH", "PUT"):
            self.assertNotIn("warnings", self.load(text, method=method).json())
            self.assertEqual(self.value("public_key:user/u/a"), (1, f"{THREE} a".encode()))
            self.assertEqual(self.client.get("/public_keys/acme/user/u").body.decode(), f"{THREE} a\n{TWO} b\n")
        self.load(f"- !user {{ id: u, public_keys: [ {THREE} a, {ONE} a ] }}", method="PATCH")
        self.assertEqual(self.value("public_key:user/u/a"), (2, f"{ONE} a".encode()))

    def test_public_keys_have_versions(self) -> None:
        """A key has a new version when it was changed, and only then; POST changes nothing that is there (KEY-6)."""
        name = "public_key:user/u/laptop"
        self.load(f"- !user {{ id: u, public_key: {ONE} laptop }}")
        self.load(f"- !user {{ id: u, public_key: {TWO} laptop }}")
        self.assertEqual(self.value(name), (1, f"{ONE} laptop".encode()))
        for method, version in (("PATCH", 2), ("PUT", 2), ("PATCH", 2)):
            self.load(f"- !user {{ id: u, public_key: {TWO} laptop }}", method=method)
            self.assertEqual(self.value(name), (version, f"{TWO} laptop".encode()))
        self.load(f"- !user {{ id: u, public_key: {THREE} desk }}", method="PATCH")
        self.assertEqual(self.value(name), (2, f"{TWO} laptop".encode()))
        self.load(f"- !user {{ id: u, public_key: {THREE} desk }}", method="PUT")
        self.assertFalse(self.exists(name))
        self.load("[]", method="PUT")
        self.assertFalse(self.exists("public_key:user/u/desk"))
        self.assertEqual([name for name in self.memory.secrets if "public_key" in name], [])


class IdTests(LanguageCase):
    """Core 1.4: ids and namespaces."""

    def test_a_document_is_its_policys_body(self) -> None:
        """Loading into a policy means what its body in the document above means; at the root nothing is put in front
        (POL-24).
        """
        self.load("- !policy { id: p, body: [ !variable a, !policy { id: q, body: [ !variable b ] } ] }\n- !variable c\n")
        self.load("- !variable d\n", policy="p/q")
        for name in ("p/a", "p/q/b", "c", "p/q/d"):
            self.assertTrue(self.exists(f"variable:{name}"), name)

    def test_blank_ids(self) -> None:
        """Within a policy a blank id is the policy's own; at the root there is none (POL-25)."""
        self.load("- !policy { id: dev, body: [ !policy { id: db, body: [ !layer ] } ] }")
        self.assertTrue(self.exists("layer:dev/db"))
        self.assertEqual(self.invalid("- !permit { role: !user admin, privilege: x, resource: }"), "resource has a blank id")
        self.assertEqual(self.invalid("- !webservice"), "webservice has a blank id")

    def test_absolute_ids(self) -> None:
        """A leading slash is absolute in every reference, and illegal in what is defined (POL-26)."""
        self.load("- !policy p\n- !group g\n- !user u\n- !variable v\n")
        self.load(
            "- !host { id: h, owner: !group /g }\n- !grant { role: !group /g, member: !user /u }\n"
            "- !permit { role: !user /u, privilege: read, resource: !variable /v }\n",
            policy="p",
        )
        self.assertEqual(self.owner("host:p/h"), "group:g")
        self.assertTrue(self.granted("group:g", "user:u") and self.permitted("user:u", "read", "variable:v"))
        self.load("- !delete { record: !variable /v }\n", policy="p", method="PATCH")
        self.assertFalse(self.exists("variable:v"))
        for tag in ("user", "group", "variable", "policy"):
            self.assertEqual(self.invalid(f"- !{tag} /x", policy="p"), "Illegal absolute id: /x")

    def test_relative_ids(self) -> None:
        """``..`` climbs in owners, members and permitted roles, and not above the root; elsewhere it is kept (POL-27)."""
        self.load("- !policy myapp\n- !group the-group\n- !layer default\n- !variable v\n")
        self.load(
            "- !group mine\n- !host { id: h, owner: !group ../the-group }\n"
            "- !grant { role: !group mine, member: !group ../the-group }\n"
            "- !variable w\n- !permit { role: !group ../the-group, privilege: x, resource: !variable w }\n",
            policy="myapp",
        )
        self.assertEqual(self.owner("host:myapp/h"), "group:the-group")
        self.assertTrue(self.granted("group:myapp/mine", "group:the-group"))
        self.assertTrue(self.permitted("group:the-group", "x", "variable:myapp/w"))
        self.assertEqual(
            self.invalid("- !grant { role: !layer ../default, member: !group mine }", policy="myapp"),
            "Layer 'myapp/../default' not found in account 'acme'",
        )
        self.assertEqual(
            self.invalid("- !host { id: h, owner: !group ../../the-group }", policy="myapp"),
            "Invalid relative reference: myapp/../../the-group",
        )

    def test_relative_annotations(self) -> None:
        """An annotation's value with a ``..`` element is resolved relative to the id of its record (POL-28)."""
        self.load("- !policy { id: p, body: [ !variable { id: v, annotations: { a: ../w, b: c..d } } ] }")
        self.assertEqual(self.annotation("variable:p/v", "a"), "p/w")
        self.assertEqual(self.annotation("variable:p/v", "b"), "c..d")

    def test_users_are_folded(self) -> None:
        """A user in a policy has its id behind an ``@``, when it is defined and when it is referred to (POL-29)."""
        self.load(
            "- !user bob\n- !group g\n- !policy { id: a, body: [ !policy { id: b, body: [ !user bob ] } ] }\n"
            "- !grant { role: !group g, members: [ !user a/b/bob, !user bob ] }\n"
        )
        self.assertTrue(self.granted("group:g", "user:bob@a-b") and self.granted("group:g", "user:bob"))
        self.load("- !group g\n- !grant { role: !group g, members: [ !user bob, !user /bob ] }\n", policy="a/b")
        self.assertTrue(self.granted("group:a/b/g", "user:bob@a-b") and self.granted("group:a/b/g", "user:bob"))
        self.load("- !group h\n- !grant { role: !group h, member: !user bob@a-b }\n")
        self.assertTrue(self.granted("group:h", "user:bob@a-b"))

    def test_foreign_accounts(self) -> None:
        """No record and no reference may be of another account; to name one's own is no fault (POL-30)."""
        self.load(
            "- !group { id: g, account: acme }\n"
            "- !grant { role: !group g, member: { kind: user, id: admin, account: acme } }"
        )
        for text in (
            "- !group { id: x, account: other }",
            "- !host { id: x, owner: !user { id: admin, account: other } }",
            "- !grant { role: !group g, member: { kind: user, id: admin, account: other } }",
            "- !permit { role: !group g, privilege: read, resource: !variable { id: v, account: other } }",
            "- !host-factory { id: f, layer: !layer { id: l, account: other } }",
        ):
            self.assertIn("is of another account", self.invalid(text))
        for text in (
            "- !revoke { role: !group { id: g, account: other }, member: !user admin }",
            "- !deny { role: !group g, privilege: x, resource: !group { id: g, account: other } }",
            "- !delete { record: { kind: group, id: g, account: other } }",
        ):
            self.assertIn("is of another account", self.invalid(text, method="PATCH"))


class OwnershipTests(LanguageCase):
    """Core 1.5: owners, order, duplicates."""

    def test_defaults(self) -> None:
        """The admin owns what stands at the root, and a policy what stands in its body, unless ``owner`` says otherwise
        (POL-32).
        """
        self.load("- !group g\n- !policy { id: p, owner: !group g, body: [ !host h, !host { id: k, owner: !group /g } ] }")
        self.assertEqual(
            [self.owner(name) for name in ("group:g", "policy:p", "host:p/h", "host:p/k")],
            ["user:admin", "group:g", "policy:p", "group:g"],
        )

    def test_owners_in_a_circle(self) -> None:
        """New roles that own each other are refused (POL-33)."""
        self.assertEqual(
            self.invalid("- !group { id: a, owner: !group b }\n- !group { id: b, owner: !group a }\n"),
            "Dependency cycle encountered between Group 'b' and Group 'a'",
        )

    def test_owners_across_documents(self) -> None:
        """So is a load that gives a role to an owner which belongs to it by an earlier one; memberships may lead in circles
        (POL-33, ROLE-1).
        """
        self.load("- !policy p\n- !group b\n")
        self.load("- !group a\n", "p")
        self.load("- !group { id: c, owner: !group b }\n")
        owners = dict(self.memory.resources)
        for first, second, document in (
            ("Group 'p/a'", "Policy 'p'", "- !policy { id: p, owner: !group p/a }\n"),
            ("Group 'c'", "Group 'b'", "- !group { id: b, owner: !group c }\n"),
            ("Group 'new'", "Group 'b'", "- !group { id: new, owner: !group c }\n- !group { id: b, owner: !group new }\n"),
        ):
            expected = f"Dependency cycle encountered between {first} and {second}"
            self.assertEqual(self.error(self.load(document, method="PATCH", status=422), 422, "policy_invalid"), expected)
            tried = self.client.request("PATCH", "/policies/acme/policy/root?dryRun", body=document.encode(), role=ADMIN)
            self.assertIn(expected, tried.body.decode())
        self.load(
            "- !group { id: a, owner: !policy p }\n- !policy { id: p, owner: !group p/a }\n", method="PATCH", status=422
        )
        self.assertEqual(self.memory.resources, owners)
        self.load("- !grant { role: !group b, member: !group c }\n- !grant { role: !group c, member: !group b }\n")
        self.load("- !group { id: c, owner: !policy p }\n- !group { id: b, owner: !group c }\n", method="PATCH")

    def test_duplicates(self) -> None:
        """A thing is declared once, in whatever spelling (POL-22)."""
        for text in ("- !group x\n- !group x\n", "- !group x\n- !role { kind: group, id: x }\n"):
            self.assertEqual(self.invalid(text), "Group 'x' is declared more than once")

    def test_order(self) -> None:
        """Whatever their order in the file, owners come before what they own, and records before what speaks of them
        (POL-21).
        """
        self.load(
            "- !grant { role: !group g, member: !user u }\n"
            "- !permit { role: !group g, privilege: read, resource: !variable v }\n"
            "- !variable { id: v, owner: !group g }\n- !host-factory { id: f, layer: !layer l }\n"
            "- !group { id: g, owner: !user u }\n"
            "- !layer l\n- !user u\n"
        )
        self.assertTrue(self.granted("group:g", "user:u") and self.granted("layer:l", "host_factory:f"))


class RowTests(LanguageCase):
    """Core 1.6: the rows that documents make."""

    def test_ownerships(self) -> None:
        """A role has its owner as a member, who is its admin and owner; a grant beside it is another row (POL-32,
        ROLE-16).
        """
        self.load("- !group g\n- !user u\n- !grant { role: !group g, members: [ !user admin, !user u ] }\n")
        rows = {key[1:]: row for key, row in self.memory.memberships.items() if key[0] == "acme:group:g"}
        root = "acme:policy:root"
        self.assertEqual(
            rows,
            {
                ("acme:user:admin", True): (True, root),
                ("acme:user:admin", False): (False, root),
                ("acme:user:u", False): (False, root),
            },
        )

    def test_permissions(self) -> None:
        """A permit makes a row for each resource, privilege and role; privileges are free texts."""
        self.load(
            "- !user u\n- !group g\n- !variable v\n"
            "- !permit { roles: [ !user u, !group g ], privileges: [ fly, a b ], resource: !variable v }"
        )
        self.assertEqual(len(self.memory.permissions), 4)
        self.assertTrue(self.permitted("group:g", "a b", "variable:v"))

    def test_host_factories(self) -> None:
        """A host factory is a member of its layers, and has one at least (POL-16, HF-1)."""
        self.load(
            "- !layer a\n- !layer b\n- !group g\n- !host-factory { id: f, layers: [ !layer a, !layer b ], role: !group g }"
        )
        self.assertTrue(self.granted("layer:a", "host_factory:f") and self.granted("layer:b", "host_factory:f"))
        self.assertEqual(self.owner("host_factory:f"), "user:admin")
        for text in ("- !host-factory x", *("- !host_factory { id: x, layers: [] }",) * (not self.dialect.lenient_policy)):
            self.assertEqual(self.invalid(text), "Host factory 'x' does not include any layers")
        self.assertEqual(
            self.invalid("- !host-factory { id: x, layer: !layer none }"), "Layer 'none' not found in account 'acme'"
        )
        self.assertEqual(
            self.invalid("- !host-factory { id: x, layer: !layer a, role: !group none }"),
            "Group 'none' not found in account 'acme'",
        )
        self.load("- !layer a\n- !host-factory { id: f, layers: [ !layer a ] }", method="PUT")
        self.assertFalse(self.granted("layer:b", "host_factory:f") or self.exists("layer:b"))

    def test_rows_say_where_they_were_loaded(self) -> None:
        """Every row is recorded by the policy that was loaded, not by the one around it (POL-34)."""
        self.load(
            "- !policy { id: p, body: [ !host { id: h, annotations: { a: b } }, !grant { role: !policy , member: !host h },"
            " !permit { role: !host h, privilege: x, resource: !host h } ] }"
        )
        root = "acme:policy:root"
        self.assertEqual(self.memory.resources["acme:host:p/h"][1], root)
        self.assertEqual(self.memory.roles["acme:host:p/h"], root)
        self.assertEqual(self.memory.memberships["acme:policy:p", "acme:host:p/h", False][1], root)
        self.assertEqual(set(self.memory.permissions.values()), {root})
        self.assertEqual(self.memory.annotations["acme:host:p/h", "a"][1], root)


class PrivilegeTests(LanguageCase):
    """Core 1.7: privileges."""

    def setUp(self) -> None:
        """Load a policy with an owner's group."""
        super().setUp()
        self.load(
            "- !user alice\n- !user bob\n- !user carl\n- !group g\n- !variable { id: v, owner: !group g }\n"
            "- !grant { role: !group g, member: !user alice }\n"
            "- !permit { role: !user bob, privilege: fly, resource: !variable v }\n"
        )

    def test_owners_have_every_privilege(self) -> None:
        """Who holds the owner's role, directly or through others, has every privilege (ROLE-2)."""
        self.set_value("v", role=user("alice"))
        self.assertEqual(self.client.get("/secrets/acme/variable/v", role=user("alice")).body, b"value")

    def test_any_privilege_makes_visible(self) -> None:
        """A resource is visible to a role that has any privilege on it, by any name, and to nobody else (ROLE-4)."""
        self.assertEqual(self.client.get("/secrets/acme/variable/v", role=user("bob")).status, 403)
        self.assertEqual(self.client.get("/secrets/acme/variable/v", role=user("carl")).status, 404)

    def test_privileges_are_held_through_roles(self) -> None:
        """A privilege that a role was given is had by all who hold it, over any number of steps (ROLE-3)."""
        self.load(
            "- !group a\n- !layer b\n- !grant { role: !group a, member: !layer b }\n"
            "- !grant { role: !layer b, member: !user carl }\n"
            "- !permit { role: !group a, privileges: [ execute, update ], resource: !variable v }\n"
        )
        self.set_value("v", role=user("carl"))
        self.assertEqual(self.client.get("/secrets/acme/variable/v", role=user("carl")).status, 200)

    def test_members_do_not_see_their_groups(self) -> None:
        """To be a member of a group doesn't make the group visible (ROLE-4)."""
        answer = self.client.get("/roles/acme/group/g?members", role=user("alice"))
        self.assertEqual(answer.status, hidden_role_status(self.dialect))


class ModeTests(LanguageCase):
    """Core 1.8: what each mode does."""

    def setUp(self) -> None:
        """Load a policy inside of the root, with things of its own."""
        super().setUp()
        self.load(
            "- !user alice\n- !policy { id: dev, body: [ !host rooted ] }\n- !group ops\n"
            "- !grant { role: !group ops, member: !user alice }\n"
        )
        self.load(
            "- !host { id: h, annotations: { a: '1' }, restricted_to: [ 10.0.0.0/8, 1.2.3.4 ] }\n- !group g\n- !variable v\n"
            "- !grant { role: !group g, member: !host h }\n"
            "- !permit { role: !host h, privileges: [ read, execute ], resource: !variable v }\n",
            policy="dev",
        )
        self.set_value("dev/v")

    def test_restrictions(self) -> None:
        """POST unites the ranges with those that are there; PATCH and PUT leave those of the document, if only none
        (POL-42).
        """
        self.load("- !host { id: h, restricted_to: '::1' }", policy="dev")
        self.assertEqual(self.ranges("host:dev/h"), {"10.0.0.0/8", "1.2.3.4/32", "::1/128"})
        self.load("- !host h", policy="dev")
        self.assertEqual(len(self.ranges("host:dev/h")), 3)
        self.load("- !host { id: h, restricted_to: '::1' }", policy="dev", method="PATCH")
        self.assertEqual(self.ranges("host:dev/h"), {"::1/128"})
        self.load("- !group g", policy="dev", method="PATCH")
        self.assertEqual(self.ranges("host:dev/h"), {"::1/128"})
        self.load("- !host h", policy="dev", method="PATCH")
        self.assertEqual(self.ranges("host:dev/h"), set())

    def test_what_is_there(self) -> None:
        """POST leaves values as they are and adds annotations of new names; PATCH changes what differs, deletes nothing
        (POL-42).
        """
        text = "- !host { id: h, annotations: { a: '2', b: '3' } }\n- !group { id: g, owner: !user /alice }\n"
        self.load(text, policy="dev")
        self.assertEqual((self.annotation("host:dev/h", "a"), self.annotation("host:dev/h", "b")), ("1", "3"))
        self.assertEqual(self.owner("group:dev/g"), "policy:dev")
        self.load(text, policy="dev", method="PATCH")
        self.assertEqual((self.annotation("host:dev/h", "a"), self.owner("group:dev/g")), ("2", "user:alice"))
        self.assertTrue(self.exists("variable:dev/v") and self.granted("group:dev/g", "host:dev/h"))

    def test_what_others_recorded(self) -> None:
        """What another policy recorded, or none did, is skipped in silence, in every mode (POL-43)."""
        before = dict(self.memory.resources)
        for method in ("POST", "PATCH", "PUT"):
            self.load(
                "- !host { id: rooted, owner: !user /alice, restricted_to: 1.2.3.4 }\n"
                "- !host h\n- !group g\n- !variable v\n",
                policy="dev",
                method=method,
            )
            self.assertEqual(self.memory.resources, before)
            self.assertEqual(self.ranges("host:dev/rooted"), set())

    def test_saying_it_twice(self) -> None:
        """The same grant or permission twice in a document is one, in every mode (POL-22)."""
        for method in ("POST", "PATCH", "PUT"):
            self.load(
                "- !host h\n- !group g\n- !variable v\n"
                + "- !grant { role: !group g, member: !host h }\n" * 2
                + "- !permit { role: !host h, privileges: [ fly, fly ], resource: !variable v }\n" * 2,
                policy="dev",
                method=method,
            )
            self.assertTrue(
                self.granted("group:dev/g", "host:dev/h") and self.permitted("host:dev/h", "fly", "variable:dev/v")
            )

    def test_posting_deletions(self) -> None:
        """POST may not contain deletion statements; nothing of such a document is kept (POL-42)."""
        for statement in (
            "!revoke { role: !group g, member: !host h }",
            "!deny { role: !host h, privilege: read, resource: !variable v }",
            "!delete { record: !variable v }",
            "!delete { record: !variable none }",
            "!policy { id: sub, body: [ !delete { record: !variable v } ] }",
        ):
            before = copy.deepcopy(self.memory)
            answer = self.load(f"- !variable new\n- {statement}\n", policy="dev", status=422)
            self.assertEqual(self.error(answer, 422, "validation_failed"), "policy_text may not contain deletion statements")
            self.assertEqual(self.memory, before)

    def test_revoking(self) -> None:
        """``!revoke`` takes back what the same policy granted, and nothing that another did (POL-44)."""
        self.load("- !revoke { role: !group dev/g, member: !host dev/h }", method="PATCH")
        self.assertTrue(self.granted("group:dev/g", "host:dev/h"))
        self.load("- !revoke { roles: [ !group g ], members: [ !host h, !host none ] }", policy="dev", method="PATCH")
        self.assertFalse(self.granted("group:dev/g", "host:dev/h"))
        self.load("- !revoke { role: !group /ops, member: !user /alice }", policy="dev", method="PATCH")
        self.assertTrue(self.granted("group:ops", "user:alice"))

    def test_denying(self) -> None:
        """``!deny`` takes back what the same policy permitted, and nothing that another did (POL-44)."""
        self.load("- !deny { role: !host dev/h, privilege: read, resource: !variable dev/v }", method="PATCH")
        self.assertTrue(self.permitted("host:dev/h", "read", "variable:dev/v"))
        self.load("- !deny { role: !host h, privilege: read, resource: !variable v }", policy="dev", method="PATCH")
        self.assertFalse(self.permitted("host:dev/h", "read", "variable:dev/v"))
        self.assertTrue(self.permitted("host:dev/h", "execute", "variable:dev/v"))

    def test_deleting(self) -> None:
        """``!delete`` removes a record of whichever policy, with what it owns and, of a policy, what it recorded
        (POL-45).
        """
        self.load("- !delete { record: !variable dev/v }", method="PATCH")
        self.assertFalse(self.exists("variable:dev/v") or "acme:variable:dev/v" in self.memory.secrets)
        self.load("- !delete { records: [ !variable none, !host rooted ] }", policy="dev", method="PATCH")
        self.assertFalse(self.exists("host:dev/rooted") or "acme:host:dev/rooted" in self.memory.credentials)
        self.load("- !variable { id: owned, owner: !policy dev }")
        self.load("- !delete { record: !policy dev }", method="PATCH")
        self.assertEqual(
            set(self.memory.resources), {f"acme:{name}" for name in ("user:admin", "policy:root", "user:alice", "group:ops")}
        )

    def test_deleting_the_policy_itself(self) -> None:
        """A document can't delete the policy that it is loaded into, nor what that rests on (POL-47)."""
        for method in ("PATCH", "PUT"):
            self.assertEqual(
                self.invalid("- !delete { record: !policy }", policy="dev", method=method),
                "Policy 'dev' can't be deleted by a document that is loaded into it",
            )
            self.assertIn(
                "would be deleted", self.invalid("- !delete { record: !user /admin }", policy="dev", method=method)
            )
            self.assertIn(
                "would be deleted", self.invalid("- !delete { record: !policy /root }", policy="dev", method=method)
            )

    def test_deletions_win(self) -> None:
        """What a document makes and takes away isn't there afterwards, and no new key is told for it (POL-23)."""
        for method in ("PATCH", "PUT"):
            answer = self.load(
                "- !host h\n- !group g\n- !variable v\n- !host fresh\n- !group boss\n"
                "- !host { id: minion, owner: !group boss }\n"
                "- !grant { role: !group g, member: !host h }\n"
                "- !permit { role: !host h, privilege: fly, resource: !variable v }\n"
                "- !revoke { role: !group g, member: !host h }\n"
                "- !deny { role: !host h, privilege: fly, resource: !variable v }\n"
                "- !delete { records: [ !host fresh, !group boss ] }\n",
                policy="dev",
                method=method,
            )
            self.assertEqual(answer.json()["created_roles"], {})
            self.assertFalse(
                self.granted("group:dev/g", "host:dev/h") or self.permitted("host:dev/h", "fly", "variable:dev/v")
            )
            for name in ("host:dev/fresh", "group:dev/boss", "host:dev/minion"):
                self.assertFalse(self.exists(name), name)
                self.assertNotIn(f"acme:{name}", self.memory.credentials)

    def test_keys_of_what_goes_along(self) -> None:
        """A new host whose owner goes with what the document deletes is gone as well, and no key is told for it (POL-23)."""
        self.load("- !group { id: owned, owner: !group dev/g }")
        answer = self.load(
            "- !host { id: doomed, owner: !group /owned }\n- !host kept\n- !delete { record: !group g }\n",
            policy="dev",
            method="PATCH",
        )
        self.assertEqual(list(answer.json()["created_roles"]), ["acme:host:dev/kept"])
        self.assertFalse(self.exists("host:dev/doomed"))

    def test_deleted_users_leave_no_keys(self) -> None:
        """The public keys of a user go with the user, in any policy that recorded them (KEY-7)."""
        self.load(f"- !user {{ id: u, public_key: {ONE} one }}")
        self.load("- !delete { record: !user /u }", policy="dev", method="PATCH")
        self.assertFalse(self.exists("public_key:user/u/one"))
        self.load("- !user u")
        self.assertFalse(self.exists("public_key:user/u/one"))

    def test_putting_what_is_there(self) -> None:
        """PUT keeps the values of variables that stay declared, and destroys those of others (POL-46)."""
        self.load("- !variable v\n", policy="dev", method="PUT")
        self.assertEqual(self.value("variable:dev/v"), (1, b"value"))
        self.load("- !group g\n", policy="dev", method="PUT")
        self.assertNotIn("acme:variable:dev/v", self.memory.secrets)

    def test_loading_again(self) -> None:
        """A document that is loaded again changes nothing but the version, in every mode (POL-49)."""
        text = (
            f"- !user {{ id: u, restricted_to: 10.0.0.0/8, public_key: {ONE} one, uidnumber: 5 }}\n- !layer l\n"
            "- !host-factory { id: f, layer: !layer l }\n- !variable { id: v, kind: k, annotations: { a: ../b } }\n"
            "- !grant { role: !layer l, members: [ !user u, { kind: host_factory, id: f } ] }\n"
            "- !grant { role: !layer l, member: !user u }\n"
            "- !permit { role: !user u, privilege: [ x, x ], resource: !variable v }\n"
        )
        taking = text + "- !revoke { role: !layer l, member: !user u }\n- !delete { record: !group g }\n"
        for method, document in (("POST", text), ("PATCH", taking), ("PUT", taking)):
            first = self.load(document, policy="dev", method=method).json()["version"]
            before = copy.deepcopy(self.memory)
            again = self.load(document, policy="dev", method=method).json()
            done = {name for name, counts in again.pop("changes").items() if any(counts.values())}
            self.assertEqual((again["created_roles"], again["version"]), ({}, first + 1))
            self.assertLessEqual(done, {"unchanged", "absent"})
            before.versions = self.memory.versions
            self.assertEqual(self.memory, before)


class ResultTests(LanguageCase):
    """Core 1.9: results and errors."""

    def test_created_roles(self) -> None:
        """The answer tells the keys of new users and hosts alone, and they work (POL-38)."""
        created = self.rows("- !user u\n- !host h\n- !group g\n- !layer l\n- !host-factory { id: f, layer: !layer l }\n")[
            "created_roles"
        ]
        self.assertEqual(set(created), {"acme:user:u", "acme:host:h"})
        key = created["acme:host:h"]["api_key"].encode()
        self.assertEqual(self.client.post("/authn/acme/host%2Fh/authenticate", key).status, 200)

    def test_warnings(self) -> None:
        """An annotation that is called like an attribute, in either number, draws a warning, once (POL-36)."""
        keys = ("id", "owner", "body", "member", "members", "role", "privileges", "restricted_to", "record", "layers")
        text = "".join(
            f"- !host {{ id: h{n}, annotations: {{ {key}: x }} }}\n" for n, key in enumerate([*keys, "owner", "fine"])
        )
        self.assertEqual(
            self.rows(text)["warnings"],
            [
                f"Annotation '{key}' matches a known policy attribute. This annotation will not be treated as a standard"
                " attribute and may not have the intended effect."
                for key in keys
            ],
        )

    def test_ids_that_proxies_rewrite(self) -> None:
        """Ids with ``//``, ``.`` or ``..`` between slashes draw a warning each, in dry runs and in the log too (POL-92)."""
        odd = ("a//b", "a///b", "./a", "a/.", "a/./b", "a/../b", "..", ".", "a/..", "b//.//c", "//".join("ab"), "x/y//")
        fine = ("a.b", "a..b", "a/.b", "a/b.", "...", "a/...", "a/b/", ".a/b", "a/..b")
        for kind in ("variable", "host", "group", "policy", "webservice"):
            for ident in odd:
                warned = f"{kind.capitalize()} '{ident}' has '//', '.' or '..' in its id, which a proxy may make another."
                with capturedLogs() as logs:
                    self.assertEqual(self.rows(f"- !{kind} {ident}\n")["warnings"], [warned])
                self.assertIn(warned, " ".join(filter(None, map(formatEvent, logs))))
                tried = self.client.request(
                    "POST", "/policies/acme/policy/root?dryRun", body=f"- !{kind} {ident}x/./y".encode(), role=ADMIN
                )
                self.assertEqual(len(tried.json()["warnings"]), 1)
            for ident in fine:
                self.assertNotIn("warnings", self.rows(f"- !{kind} {ident}\n"), ident)
        self.rows("- !policy p")
        self.assertIn("'p/./x'", self.load("- !variable ./x", policy="p").json()["warnings"][0])
        many = "".join(f"- !variable v{n}//x\n" for n in range(102))
        self.assertEqual(self.rows(many)["warnings"][100:], ["So have 2 other records."])

    def test_scanner_errors(self) -> None:
        """An error of YAML itself tells the problem and its context, with the place (POL-52)."""
        line, column, message = self.at("- !user a\n- !user[x]\n")
        self.assertEqual((line, column), (2, 8))
        self.assertIn("while scanning a tag", message)

    def test_unknown_references(self) -> None:
        """A reference to what isn't there is 422, and so is one to what the same PUT drops (POL-35)."""
        self.assertEqual(
            self.invalid("- !group g\n- !grant { role: !group g, member: !user bob }"),
            "User 'bob' not found in account 'acme'",
        )
        self.load("- !group g\n- !host h\n")
        self.assertEqual(
            self.invalid("- !host h\n- !grant { role: !group g, member: !host h }", method="PUT"),
            "Group 'g' not found in account 'acme'",
        )

    def test_references_to_what_goes_along(self) -> None:
        """A PUT that refers to what goes along with what it leaves out is refused, and a dry run lists all that (POL-35,
        POL-53).
        """
        self.load("- !group g\n- !policy p\n")
        self.load("- !host h\n- !host i\n", policy="p")
        text = "- !group g\n- !grant { role: !group g, members: [ !host p/h, !host p/i ] }\n"
        before = copy.deepcopy(self.memory)
        self.assertEqual(self.invalid(text, method="PUT"), "Host 'p/h' not found in account 'acme'")
        answer = self.client.request("PUT", "/policies/acme/policy/root?dryRun=true", body=text.encode(), role=ADMIN)
        self.assertEqual(answer.status, 422)
        self.assertEqual(
            [(error["line"], error["message"].partition("\n")[0]) for error in answer.json()["errors"]],
            [(2, f"Host 'p/{name}' not found in account 'acme'") for name in "hi"],
        )
        self.assertEqual(self.memory, before)
        self.load(f"{text}- !policy p\n", method="PUT")
        self.assertIn(("acme:group:g", "acme:host:p/h", False), self.memory.memberships)

    def test_references_come_before_products(self) -> None:
        """A short text that would mean half a million rows is refused for what it names before the rows are made."""
        names = ", ".join(f"!group g{n}" for n in range(700))
        message = self.invalid(f"- !permit {{ roles: &g [ {names} ], privilege: read, resources: *g }}")
        self.assertEqual(message, "Group 'g0' not found in account 'acme'")

    def test_limits(self) -> None:
        """A document that comes to too many rows, or too many bytes of them, is 422 (LIM-11)."""
        self.patch(resolve, "ROWS_LIMIT", 2000)
        self.patch(resolve, "BYTES_LIMIT", 1_000_000)
        names = ", ".join(f"!group g{n}" for n in range(50))
        message = self.invalid(f"- !grant {{ roles: &g [ {names} ], members: *g }}")
        self.assertEqual(message, "More than 2000 grants and permissions")
        hosts = "".join(f"- !host {{ id: h{n}, annotations: {{ a: *v }} }}\n" for n in range(100))
        message = self.invalid(f"- !host {{ id: h, annotations: {{ a: &v {'y' * 10_000} }} }}\n{hosts}")
        self.assertEqual(message, "More than 1000000 bytes of ids and texts")

    def test_history(self) -> None:
        """The last twenty versions of a policy are kept; numbers keep rising (POL-39)."""
        for number in range(1, 23):
            self.assertEqual(self.load(f"# {number}\n").json()["version"], number)
        self.assertEqual(sorted(self.memory.versions["acme:policy:root"]), list(range(3, 23)))
        self.assertEqual(self.memory.versions["acme:policy:root"][22].text, "# 22\n")

    def test_versions_of_the_refused(self) -> None:
        """A refused load takes no number (POL-39)."""
        self.load("[]")
        self.load("- !nonsense\n", status=422)
        self.load("[]", role=user("nobody"), status=403)
        self.assertEqual(self.load("[]", role=ADMIN).json()["version"], 2)


class ConjurDocumentTests(DocumentTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class ConjurTagTests(TagTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class ConjurAttributeTests(AttributeTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class ConjurIdTests(IdTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class ConjurOwnershipTests(OwnershipTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class ConjurRowTests(RowTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class ConjurPrivilegeTests(PrivilegeTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class ConjurModeTests(ModeTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class ConjurResultTests(ResultTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR
