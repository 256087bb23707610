"""YAML documents within bounds."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import given
from twisted.trial.unittest import SynchronousTestCase
from yaml.error import Mark
from yaml.parser import ParserError

from svc.model.errors import InvalidParameter, PolicyInvalid
from svc.policy.document import Alias, Bounds, Mapping, Node, Scalar, parse_nodes, shorten_text
from tests.strategies import POLICIES, SOUP


def composed(text: str | bytes, bounds: Bounds | None = None) -> list[Node]:
    """The items of a document's root."""
    return list(parse_nodes(text, bounds or Bounds()))


class CompositionTests(SynchronousTestCase):
    """Documents that are refused."""

    def refusal(self, text: str | bytes, bounds: Bounds | None = None) -> PolicyInvalid:
        """How a document is refused."""
        refusal: PolicyInvalid = self.assertRaises(PolicyInvalid, composed, text, bounds)
        return refusal

    def told(self, text: str | bytes) -> tuple[str, int | None, int | None]:
        """What is said, and of which place."""
        refusal = self.refusal(text)
        return refusal.message, refusal.line, refusal.column


class DocumentTests(CompositionTests):
    """One document, whose root is a sequence."""

    def test_nodes_know_their_place(self) -> None:
        """Lines and columns count from 1, in characters, and a node begins at its tag or anchor (POL-52)."""
        self.assertEqual(
            composed("- a\n- é: &x !user b\n"),
            [
                Scalar("a", True, None, None, 1, 3),
                Mapping([(Scalar("é", True, None, None, 2, 3), Scalar("b", False, "!user", "x", 2, 6))], None, None, 2, 3),
            ],
        )

    def test_quotes_are_remembered(self) -> None:
        """Unquoted scalars are told from quoted and literal ones."""
        plain = [node.plain for node in composed("- 1\n- '1'\n- \"1\"\n- |\n  1\n- ! 1\n") if isinstance(node, Scalar)]
        self.assertEqual(plain, [True, False, False, False, False])

    def test_empty_documents_are_valid(self) -> None:
        """A comment, an empty list, a document marker alone: all are policies that say nothing (POL-2)."""
        for text in ("# nothing", "[]", "---", "---\n", "--- # x\n...\n", "%YAML 1.1\n---\n", "\ufeff[]"):
            self.assertEqual(composed(text), [], text)

    def test_nothing_at_all_is_not_a_document(self) -> None:
        """A body that is empty or blank is an argument left out, not an empty policy (POL-2)."""
        for text in ("", " ", "\n\r\n", b"", b" \n\t ", "\ufeff", "\ufeff \n"):
            refusal = self.assertRaises(InvalidParameter, composed, text)
            self.assertEqual(
                (refusal.code, refusal.parameter, refusal.message),
                ("validation_failed", "policy_text", "is not present"),
            )

    def test_the_root_is_a_sequence(self) -> None:
        """A mapping, a scalar or a tagged list at the root is refused where it begins (POL-1)."""
        self.assertEqual(self.told("\n a: b"), ("Unexpected mapping", 2, 2))
        self.assertEqual(self.told("!policy {id: x}"), ("Unexpected mapping", 1, 1))
        self.assertEqual(self.told("user"), ("Unexpected scalar", 1, 1))
        for text in ("null", '""', "!user bob", "|\n"):
            self.assertEqual(self.refusal(text).message, "Unexpected scalar")
        self.assertEqual(self.refusal("!policy [a]").message, "Unexpected tag '!policy'")

    def test_there_is_one_document(self) -> None:
        """A second document is refused, even an empty one (POL-1)."""
        message = "Multiple YAML documents encountered. Only a single document is permitted per policy."
        self.assertEqual(self.told("- a\n---\n- b\n"), (message, 2, 1))
        self.assertEqual(self.refusal("---\n---\n").message, message)

    def test_faults_of_yaml_have_a_place(self) -> None:
        """What the YAML library refuses is refused with its words, line and column (POL-52)."""
        self.assertEqual(
            self.told("- !user bob\n- !user [\n"),
            ("did not find expected node content while parsing a flow node", 3, 1),
        )
        self.assertEqual(self.refusal("- a: b: c").line, 1)
        self.assertEqual(self.refusal("- ok\n- b\x07").line, 2)
        self.assertEqual(self.told("- ok\n- éb\x00"), ("control characters are not allowed", 2, 5))

    def test_tabs(self) -> None:
        """A tab in the indentation is refused as one, where it stands, by either parser (POL-91)."""
        for text, line, column in (
            ("- !policy\n\tid: a\n", 2, 1),
            ("- !policy\n  id: é\n\tbody: []\n", 3, 1),
            ("- !policy\n  id: a\n  body:\n\t- !user b\n", 4, 1),
            ("- !policy\n  id: a\n  body:\n  \t- !user b\n", 4, 3),
            ("- !policy\n  id: a\n  \tbody: []\n", 3, 3),
            ("- !user\n \tid: é\n", 2, 2),
            ("\ufeff\t- !user a\n", 1, 1),
            ("\t- !user a\n", 1, 1),
            ("- !user\n  annotations:\n    k: |\n\t  x\n", 4, 1),
        ):
            expected = ("YAML takes no tab for indentation: use blanks", line, column)
            self.assertEqual(self.told(text), expected, text)
            refusal = self.assertRaises(PolicyInvalid, list, parse_nodes(text, Bounds(), yaml.SafeLoader))
            self.assertEqual(refusal.message, expected[0], text)
        for text in ("- a\t\n", "- !user {\n\tid: a}\n", '- "a\tb\n\tc"\n'):
            composed(text)
        self.assertNotIn("tab", self.refusal("- @x").message)

    def test_keys_stand_once(self) -> None:
        """A key that stands twice in a mapping is refused at the second, however it is spelt or nested (POL-3)."""
        self.assertEqual(self.told("- {a: 1,\n  b: 2, a: 3}"), ("Duplicate attribute: a", 2, 9))
        self.assertEqual(self.refusal("- x: {a: 1, 'a': 3}").message, "Duplicate attribute: a")
        self.assertEqual(self.refusal("- {&k a: 1, *k : 3}").message, "Duplicate attribute: a")

    def test_keys_are_scalars(self) -> None:
        """A list or a mapping is no key; an alias of a scalar is one."""
        self.assertEqual(self.refusal("- ? [a]\n  : b").message, "Unexpected sequence")
        self.assertTrue(self.refusal("- {{a: b}: c}").message.startswith("Unexpected mapping. In YAML { begins"))
        mapping = composed("- &k a\n- {*k : c}")[1]
        assert isinstance(mapping, Mapping)
        self.assertEqual([key.value for key, _ in mapping.pairs], ["a"])

    def test_anchors_are_named_once(self) -> None:
        """An anchor that is defined again is refused, whatever it stands on (POL-3)."""
        self.assertEqual(self.told("- &x a\n- &x b\n"), ("Duplicate anchor x", 2, 3))
        for text in ("- &x a\n- &x [b]", "- &x [&x b]", "- &x {a: b}\n- {&x a: b}", "&x\n- &x a"):
            self.assertEqual(self.refusal(text).message, "Duplicate anchor x")

    def test_aliases_stand_for_complete_nodes(self) -> None:
        """An alias of nothing, of what comes later, or of what it stands in, is refused (POL-5)."""
        for text in ("- *x", "- *x\n- &x a", "- &x [*x]", "&x\n- *x", "- &x {a: {b: *x}}"):
            message = self.refusal(text).message
            self.assertTrue(message.startswith("Unknown anchor x. In YAML * begins an alias"), message)
            self.assertTrue(message.endswith(", or define the anchor before, outside of what it stands for"), message)

    def test_aliases_point_to_their_node(self) -> None:
        """An alias isn't a copy: it holds the very node, and its own place (POL-4)."""
        first, second = composed("- &x [a]\n- *x")
        self.assertEqual(second, Alias(first, "x", 2, 3))  # type: ignore[arg-type]  # the first is no alias
        assert isinstance(second, Alias)
        self.assertIs(second.node, first)

    def test_texts_can_be_stored(self) -> None:
        """A NUL that an escape makes is refused where it stands, in keys too (POL-6)."""
        self.assertEqual(self.told('- a\n- "x\\0y"'), ("A text may not hold a NUL character", 2, 3))
        self.assertEqual(self.refusal('- {"\\x00": a}').message, "A text may not hold a NUL character")

    def test_surrogates_are_refused(self) -> None:
        """Half of a UTF-16 pair is no character, whichever parser reads it (POL-6)."""
        self.refusal('- "\\ud800"')
        self.refusal("- \ud800")
        self.assertRaises(PolicyInvalid, list, parse_nodes('- "\\ud800"', Bounds(), yaml.SafeLoader))

    def test_bytes_are_utf8(self) -> None:
        """Bytes that aren't UTF-8 are refused at the first bad one, in every other encoding too (POL-1)."""
        self.assertEqual(self.told(b"- a\n- \xc3\xa9\xff"), ("The text is not valid UTF-8", 2, 4))
        for encoding in ("utf-16", "latin-1"):
            self.assertEqual(self.refusal("- é".encode(encoding)).message, "The text is not valid UTF-8")
        self.assertEqual(self.refusal("- a".encode("utf-16-le")).message, "control characters are not allowed")
        self.refusal(b"- \xed\xa0\x80")
        self.refusal(b"- \xc0\xaf")


class BoundsTests(CompositionTests):
    """Documents that ask for too much."""

    def test_nesting_ends(self) -> None:
        """64 levels are read, 65 are refused, in lists, mappings and mixed, before the rest is looked at (LIM-11)."""
        self.assertEqual(len(composed("[" * 64 + "]" * 64)), 1)
        for opening in ("[", "- ", "{a: ", "? "):
            text = f"- {opening * 100_000}"
            self.assertEqual(self.refusal(text).message, "Nested more than 64 levels deep", opening)
        self.assertEqual(self.told("[" * 65), ("Nested more than 64 levels deep", 1, 65))

    def test_nesting_of_the_parser(self) -> None:
        """The parser's own refusal of deep nesting, which comes before any event, has the words of ours (LIM-11)."""

        def parser(encoded: bytes) -> Any:
            raise ParserError(
                "while increasing flow level", None, "exceeded maximum nesting depth", Mark("", 0, 0, 7, "", 0)
            )

        with self.assertRaises(PolicyInvalid) as caught:
            list(parse_nodes("[", Bounds(nesting=5), parser))
        refusal = caught.exception
        self.assertEqual((refusal.message, refusal.line, refusal.column), ("Nested more than 5 levels deep", 1, 8))

    def test_aliases_nest(self) -> None:
        """Levels are counted through aliases, so that a chain of them can't exhaust a reader's stack."""
        chain = ["- &a0 [x]", *(f"- &a{n} [*a{n - 1}]" for n in range(1, 5_000))]
        self.assertEqual(self.told("\n".join(chain)), ("Nested more than 64 levels deep", 64, 9))

    def test_aliases_are_counted(self) -> None:
        """10,000 aliases are read, one more is refused (LIM-11)."""
        text = "- &a x\n" + "- *a\n" * 10_000
        self.assertEqual(len(composed(text)), 10_001)
        self.assertEqual(self.told(text + "- *a\n"), ("More than 10000 aliases", 10_002, 3))

    def test_bombs_are_defused(self) -> None:
        """Aliases of aliases that stand for billions of nodes are refused at the one that goes too far, at once (LIM-11)."""
        bomb = ["- &a0 [x, x, x, x, x, x, x, x, x]"]
        bomb += [f"- &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
        refusal = self.refusal("\n".join(bomb))
        self.assertEqual((refusal.message, refusal.line), ("More than 3000000 elements, aliases followed", 7))
        keyed = ["- &a0 {a: x}", *(f"- &a{n} {{a: *a{n - 1}, b: *a{n - 1}}}" for n in range(1, 40))]
        self.assertIn("elements", self.refusal("\n".join(keyed)).message)

    def test_nodes_are_counted(self) -> None:
        """What stands there and what aliases stand for add up (LIM-11)."""
        bounds = Bounds(nodes=8)
        self.assertEqual(len(composed("- &a [x, y]\n- *a\n", bounds)), 2)
        self.refusal("- &a [x, y]\n- *a\n- {a: b}\n", bounds)
        self.refusal("- [x, y, z, x, y, z, x, y]", bounds)

    def test_directives_are_counted(self) -> None:
        """Thousands of %TAG directives, each compared with all before it, never reach the YAML library (LIM-11)."""
        text = "".join(f"%TAG !a{n}! x\n" for n in range(200_000)) + "--- []\n"
        self.assertEqual(self.refusal(text).message, "More than 100 %TAG directives")
        self.assertEqual(self.refusal("[]\n...\n" + text).message, "More than 100 %TAG directives")

    def test_messages_are_short(self) -> None:
        """A message repeats only the beginning of what is long (POL-54)."""
        self.assertEqual(shorten_text("x" * 256), "x" * 256)
        self.assertEqual(len(shorten_text("x" * 257)), 256)
        for text in (f"- {{{'k' * 1000}: 1, {'k' * 1000}: 2}}", f"- *{'a' * 5000}", f"!<{'t' * 5000}> []"):
            self.assertLess(len(self.refusal(text).message), 400)


class ParserTests(SynchronousTestCase):
    """The parsers of the library, the one in C and the one in Python."""

    @given(POLICIES)
    def test_parsers_agree(self, text: str) -> None:
        """Both read the same nodes from a policy."""
        self.assertEqual(
            list(parse_nodes(text, Bounds(), yaml.SafeLoader)), list(parse_nodes(text, Bounds(), yaml.CSafeLoader))
        )

    @given(SOUP)
    def test_parsers_only_refuse(self, text: str) -> None:
        """Neither raises anything but refusals, and those say what is wrong."""
        for parser in (yaml.SafeLoader, yaml.CSafeLoader):
            try:
                list(parse_nodes(text, Bounds(), parser))
            except PolicyInvalid as refusal:
                self.assertTrue(refusal.message)
            except InvalidParameter:
                self.assertFalse(text.strip())

    def test_escapes_beyond_unicode(self) -> None:
        """An escape for a character that Unicode doesn't have is refused by both."""
        for parser in (yaml.SafeLoader, yaml.CSafeLoader):
            self.assertRaises(
                PolicyInvalid, list, parse_nodes(json.dumps(["x"]).replace("x", "\\U00110000"), Bounds(), parser)
            )
