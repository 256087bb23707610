"""The words of the policy language."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.errors import PolicyInvalid
from svc.policy.document import Mapping, Scalar, Sequence
from svc.policy.vocabulary import ATTRIBUTES, GRANT, Type, attributes, refuse_type, required, type_of


def tagged(tag: str | None) -> Scalar:
    """A scalar with a tag."""
    return Scalar("x", False, tag, None, 3, 5)


def mapping(*names: str) -> Mapping:
    """A mapping with these names."""
    return Mapping([(Scalar(name, True, None, None, 4, 7), tagged(None)) for name in names], None, None, 3, 5)


def known(tag: str) -> Type:
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
        """The tags of records declare things of their kind; those of statements declare nothing."""
        for tag in ("policy", "user", "host", "group", "layer", "variable", "webservice"):
            self.assertEqual(known(f"!{tag}").kind, tag)
        for tag in ("grant", "permit", "member"):
            self.assertIsNone(known(f"!{tag}").kind)

    def test_tags_of_a_later_day(self) -> None:
        """What the language knows and this program doesn't yet is refused by name, where it stands."""
        for tag in (
            "revoke",
            "deny",
            "delete",
            "role",
            "resource",
            "automatic-role",
            "managed-role",
            "host-factory",
            "host_factory",
        ):
            self.assertEqual(self.told(type_of, tagged(f"!{tag}")), (f"'!{tag}' is not supported yet", 3, 5))

    def test_other_tags(self) -> None:
        """Any other tag is refused, case and all."""
        for tag in ("!foobar", "!include", "!User", "!", "!!str", "tag:yaml.org,2002:binary", "user", "!users"):
            node = Mapping([], tag, None, 3, 5)
            self.assertEqual(self.told(type_of, node), (f"Unrecognized data type '{tag}'", 3, 5))
        self.assertEqual(self.told(type_of, tagged("!x")), ("Unrecognized data type '!x'", 3, 5))
        self.assertIsNone(type_of(tagged("!")))

    def test_untagged_nodes_have_no_type(self) -> None:
        """Without a tag there is no type, and no harm where none can stand."""
        for node in (tagged(None), mapping(), Sequence([], None, None, 3, 5)):
            self.assertIsNone(type_of(node))
            refuse_type(node)
        self.assertEqual(self.told(refuse_type, tagged("!user")), ("Unexpected tag '!user'", 3, 5))

    def test_singular_and_plural_are_one(self) -> None:
        """An attribute may be spelt in the singular or the plural, and not in both at once."""
        self.assertEqual(set(attributes(mapping("role", "members"), GRANT)), {"role", "member"})
        self.assertEqual(
            set(attributes(mapping("roles", "privileges", "resources"), known("!permit"))), {"role", "privilege", "resource"}
        )
        self.assertEqual(self.told(attributes, mapping("role", "roles"), GRANT), ("Duplicate attribute: roles", 4, 7))

    def test_unknown_attributes(self) -> None:
        """An attribute that the type doesn't have is refused where it stands."""
        for tag, name in (
            ("!permit", "member"),
            ("!grant", "id"),
            ("!user", "body"),
            ("!host", "kind"),
            ("!policy", "ids"),
            ("!layer", "<<"),
        ):
            message = f"No such attribute '{name}' on type {known(tag).name}"
            self.assertEqual(self.told(attributes, mapping(name), known(tag)), (message, 4, 7))
        self.assertEqual(self.told(attributes, tagged("!grant"), GRANT), ("No such attribute 'id' on type Grant", 3, 5))

    def test_attributes_of_a_later_day(self) -> None:
        """Attributes of the language that this program doesn't know yet are refused by name, never passed over."""
        for tag, name in (
            ("!user", "restricted_to"),
            ("!user", "public_key"),
            ("!user", "public_keys"),
            ("!user", "uidnumber"),
            ("!host", "restricted_to"),
            ("!group", "gidnumber"),
        ):
            message = f"Attribute '{name}' on type {known(tag).name} is not supported yet"
            self.assertEqual(self.told(attributes, mapping(name), known(tag)), (message, 4, 7))

    def test_scalars_set_the_id(self) -> None:
        """The scalar short form is an id."""
        self.assertEqual(attributes(tagged("!user"), known("!user")), {"id": tagged("!user")})

    def test_names_have_no_type(self) -> None:
        """The name of an attribute isn't a record."""
        node = Mapping([(Scalar("id", False, "!user", None, 4, 7), tagged(None))], None, None, 3, 5)
        self.assertEqual(self.told(attributes, node, known("!user")), ("Unexpected tag '!user'", 4, 7))

    def test_required_attributes(self) -> None:
        """A statement that lacks a part of what it says is refused."""
        self.assertEqual(
            self.told(required, mapping("role"), GRANT, "role", "member"),
            ("Attribute 'member' is missing on type Grant", 3, 5),
        )

    def test_all_attributes_are_known(self) -> None:
        """The keywords that make a suspicious annotation are all attributes of the language, in both spellings."""
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
        ):
            self.assertIn(word, ATTRIBUTES)
