"""The words of the policy language."""

from __future__ import annotations

import re
import time

from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import PolicyInvalid
from svc.policy.document import Mapping, Scalar, Sequence
from svc.policy.grammar import parse_document
from svc.policy.vocabulary import ATTRIBUTES, GRANT, MERGED, NodeType, read_attributes, read_required, refuse_type, type_of


def tagged(tag: str | None) -> Scalar:
    """A scalar with a tag."""
    return Scalar("x", False, tag, None, 3, 5)


def mapping(*names: str) -> Mapping:
    """A mapping with these names."""
    return Mapping([(Scalar(name, True, None, None, 4, 7), tagged(None)) for name in names], None, None, 3, 5)


def known(tag: str) -> NodeType:
    """The type of a tag."""
    found = type_of(tagged(tag))
    assert found is not None
    return found


class VocabularyTests(SynchronousTestCase):
    """Core 1.2 and 1.3."""

    def told(self, *call: object) -> tuple[str, int | None, int | None]:
        """How a call is refused, and of which place."""
        refusal = self.assertRaises(PolicyInvalid, *call)
        return refusal.message, refusal.line, refusal.column

    def test_tags_of_the_language(self) -> None:
        """The tags of records declare things of their kind; those of statements declare nothing (POL-10)."""
        for tag in ("policy", "user", "host", "group", "layer", "variable", "webservice"):
            self.assertEqual(known(f"!{tag}").kind, tag)
        for tag in ("grant", "revoke", "permit", "deny", "delete", "member", "role", "resource", "automatic-role"):
            self.assertIsNone(known(f"!{tag}").kind)

    def test_tags_with_two_spellings(self) -> None:
        """``!host_factory`` is ``!host-factory``, and ``!managed-role`` is ``!automatic-role`` (POL-10)."""
        self.assertIs(known("!host_factory"), known("!host-factory"))
        self.assertEqual(known("!host-factory").kind, "host_factory")
        self.assertIs(known("!managed-role"), known("!automatic-role"))

    def test_other_tags(self) -> None:
        """Any other tag is refused, case and all (POL-11)."""
        for tag in ("!foobar", "!include", "!User", "!", "tag:yaml.org,2002:binary", "user", "!users"):
            node = Mapping([], tag, None, 3, 5)
            shown = tag.replace("tag:yaml.org,2002:", "!!")
            self.assertEqual(self.told(type_of, node), (f"Unrecognized data type '{shown}'", 3, 5))
        self.assertEqual(self.told(type_of, tagged("!x")), ("Unrecognized data type '!x'", 3, 5))
        self.assertIsNone(type_of(tagged("!")))

    def test_untagged_nodes_have_no_type(self) -> None:
        """Without a tag there is no type, and no harm where none can stand."""
        for node in (tagged(None), mapping(), Sequence([], None, None, 3, 5)):
            self.assertIsNone(type_of(node))
            refuse_type(node)
        self.assertEqual(self.told(refuse_type, tagged("!user")), ("Unexpected tag '!user'", 3, 5))

    def test_singular_and_plural_are_one(self) -> None:
        """An attribute may be spelt in the singular or the plural, and not in both at once (POL-11)."""
        self.assertEqual(set(read_attributes(mapping("role", "members"), GRANT)), {"role", "member"})
        for plurals, tag, singulars in (
            (("roles", "privileges", "resources"), "!permit", {"role", "privilege", "resource"}),
            (("roles", "members"), "!revoke", {"role", "member"}),
            (("records",), "!delete", {"record"}),
            (("layers",), "!host-factory", {"layer"}),
            (("public_keys",), "!user", {"public_key"}),
        ):
            self.assertEqual(set(read_attributes(mapping(*plurals), known(tag))), singulars)
        self.assertEqual(self.told(read_attributes, mapping("role", "roles"), GRANT), ("Duplicate attribute: roles", 4, 7))

    def test_unknown_attributes(self) -> None:
        """An attribute that the type doesn't have is refused where it stands (POL-11)."""
        for tag, name in (
            ("!permit", "member"),
            ("!grant", "id"),
            ("!user", "body"),
            ("!host", "kind"),
            ("!policy", "ids"),
            ("!layer", "<<"),
        ):
            message = f"No such attribute '{name}' on type {known(tag).name}" + MERGED * (name == "<<")
            self.assertEqual(self.told(read_attributes, mapping(name), known(tag)), (message, 4, 7))
        self.assertEqual(self.told(read_attributes, tagged("!grant"), GRANT), ("No such attribute 'id' on type Grant", 3, 5))

    def test_attributes_of_each_type(self) -> None:
        """Each type has its attributes, and no others (POL-10)."""
        common = {"id", "account", "owner", "annotations"}
        for tag, more in (
            ("!policy", {"body"}),
            ("!user", {"uidnumber", "public_key", "restricted_to"}),
            ("!group", {"gidnumber"}),
            ("!host", {"restricted_to"}),
            ("!layer", set()),
            ("!variable", {"kind", "mime_type"}),
            ("!webservice", set()),
            ("!host-factory", {"layer", "role"}),
            ("!role", {"kind"}),
            ("!resource", {"kind"}),
        ):
            self.assertEqual(known(tag).attributes, common | more, tag)
        for tag, all_ in (
            ("!grant", {"role", "member"}),
            ("!revoke", {"role", "member"}),
            ("!permit", {"role", "privilege", "resource"}),
            ("!deny", {"role", "privilege", "resource"}),
            ("!delete", {"record"}),
            ("!member", {"role", "admin"}),
            ("!automatic-role", {"record", "role_name"}),
        ):
            self.assertEqual(known(tag).attributes, all_, tag)

    def test_scalars_set_the_id(self) -> None:
        """The scalar short form is an id (POL-12)."""
        self.assertEqual(read_attributes(tagged("!user"), known("!user")), {"id": tagged("!user")})

    def test_names_have_no_type(self) -> None:
        """The name of an attribute isn't a record."""
        node = Mapping([(Scalar("id", False, "!user", None, 4, 7), tagged(None))], None, None, 3, 5)
        self.assertEqual(self.told(read_attributes, node, known("!user")), ("Unexpected tag '!user'", 4, 7))

    def test_required_attributes(self) -> None:
        """A statement that lacks a part of what it says is refused (POL-17)."""
        self.assertEqual(
            self.told(read_required, mapping("role"), GRANT, "role", "member"),
            ("Attribute 'member' is missing on type Grant", 3, 5),
        )

    def test_all_attributes_are_known(self) -> None:
        """The keywords that make a suspicious annotation are all attributes of the language, in both spellings (POL-36)."""
        for word in (
            "id",
            "owner",
            "body",
            "member",
            "members",
            "role",
            "privileges",
            "restricted_to",
            "kind",
            "public_keys",
            "gidnumber",
            "layers",
            "record",
            "records",
        ):
            self.assertIn(word, ATTRIBUTES)


class LenientTagTests(SynchronousTestCase):
    """Tags as the installed base takes them."""

    def test_spellings(self) -> None:
        """In ``conjur`` tags may have capitals and underscores, and YAML's own stand before what has their meaning
        (POL-90).
        """
        usual = """
- !host-factory
  id: f
  layers: [!layer l]
- !host
  id: a
  annotations: {i: 5, b: yes, f: 1.5, n: ~}
- !user {id: u, uidnumber: 7}
"""
        spelt = """
!!seq
- !HostFactory
  id: f
  layers: !!seq [!Layer l]
- !Host
  id: a
  annotations: !!map {i: !!int 5, b: !!bool yes, f: !!float 1.5, n: !!null ~}
- !USER {id: !!str u, uidnumber: !!int 7}
"""
        self.assertEqual(outline(spelt), outline(usual))
        for tag in ("!Host_Factory", "!host_factory", "!hostFactory", "!HOST-FACTORY"):
            self.assertEqual(
                outline(f"- {tag} {{id: f, layers: [!layer l]}}"), outline("- !host-factory {id: f, layers: [!layer l]}")
            )
        for value in (
            "!!int x",
            '!!int "5"',
            "!!bool 5",
            "!!seq x",
            "!!map [x]",
            "!!timestamp 2026-01-01",
            "!!set {x}",
            "!Foo x",
        ):
            document = f"- !host\n  id: h\n  annotations:\n    a: {value}\n"
            refusal = self.assertRaises(PolicyInvalid, parse_document, document, lenient=True)
            self.assertEqual(refusal.message, f"Unrecognized data type '{value.split()[0]}'")

    def test_long_tags(self) -> None:
        """The time to read a document is linear in the length of its tags (POL-97)."""
        for part in ("A", "Aa", "a-", "aA_"):
            document = f"- !{part * (32_000 // len(part))} x\n"
            began = time.process_time()
            self.assertRaises(PolicyInvalid, parse_document, document, lenient=True)
            self.assertLess(time.process_time() - began, 1, part)

    def test_native(self) -> None:
        """In ``native`` they are refused as they are written (POL-11)."""
        for document, message in (
            ("- !Host x", "Unrecognized data type '!Host'"),
            ("- !host {id: x, annotations: {a: !!int 5}}", "Unrecognized data type '!!int'"),
            ("!!seq [!host x]", "Unexpected tag '!!seq'"),
        ):
            refusal = self.assertRaises(PolicyInvalid, parse_document, document)
            self.assertEqual(refusal.message, message)


def outline(document: str) -> str:
    """Return the statements of a document without their places."""
    return re.sub(r"(line|column)=\d+", "", repr(parse_document(document, lenient=True)))
