"""The syntax of policies of Vault and OpenBao, as their own parser takes and refuses it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.importing.hcl import DEPTH_LIMIT, Block, HclInvalid, Item, Number, Value, parse_hcl


def plain(value: Value) -> object:
    """Return a value without lines: the items of a block as tuples of names and a value."""
    if isinstance(value, Block):
        return [(*item.names, plain(item.value)) for item in value.items]
    return tuple(plain(each) for each in value) if isinstance(value, tuple) else value


class SyntaxTests(SynchronousTestCase):
    """What a text means, and where a fault is."""

    def test_taken(self) -> None:
        """Whatever the parser of version 1 takes means the same here (MOVE-17)."""
        for text, expected in (
            ("", []),
            ("  \r\n# only\n// comments /*\n/* of\nthree kinds */", []),
            ("a = 1", [("a", Number("1"))]),
            ("a = -5 b = 0x1F c = 1.5e-3", [("a", Number("-5")), ("b", Number("0x1F")), ("c", Number("1.5e-3"))]),
            ("a = true, b = false", [("a", True), ("b", False)]),
            ('a = ["x", "y",]', [("a", ("x", "y"))]),
            ('a = ["x"] a = ["y"]', [("a", ("x",)), ("a", ("y",))]),
            ('"a" "b c"\n{\n"d"\n=\n"e"\n}', [("a", "b c", [("d", "e")])]),
            ("a b.c-d { }", [("a", "b.c-d", [])]),
            ("a = { b = [[1], [{c = 2}]] }", [("a", [("b", ((Number("1"),), ([("c", Number("2"))],)))])]),
            (r'a = "\u0078\170\x78\U00000078 \"\\\n\t"', [("a", 'xxxx "\\\n\t')]),
            ('a = "${b("c")} $d ${e{}}"', [("a", '${b("c")} $d ${e{}}')]),
            ("a = <<X\n b\n  c\nX\n d = 1", [("a", " b\n  c\n"), ("d", Number("1"))]),
            ("a = <<-X\n  b\n   c\n  X\n d = 1", [("a", "b\n c\n"), ("d", Number("1"))]),
            ("\u00fcber = 1", [("\u00fcber", Number("1"))]),
            ('{"a": {"b": [1.0, null, true]}, "a": "c"}', [("a", [("b", (Number("1.0"), None, True))]), ("a", "c")]),
        ):
            with self.subTest(text):
                self.assertEqual(plain(parse_hcl(text)), expected)

    def test_refused(self) -> None:
        """A fault refuses the whole text, with the line (MOVE-17)."""
        for text, line, part in (
            ("a\n=", 2, "no value"),
            ("a b\n= 1", 1, "several names"),
            ("a = 1\n{", 2, "its name"),
            ("a {\n b = 1\n", 3, "ends before a block"),
            ("a = 1 }", 1, "its name"),
            ("a = [1 2]", 1, "commas"),
            ("a = [,1]", 1, "no value"),
            ("a = [1", 1, "commas"),
            ('a = "x\ny"', 1, "does not end"),
            ('a = "${x\n}"', 1, "does not end"),
            ('a = "x', 1, "does not end"),
            (r'a = "\q"', 1, "backslash"),
            (r'a = "\ud800"', 1, "backslash"),
            ("\na = <<X\n b", 2, "no end"),
            ("a secret/data { }", 1, "'/'"),
            ("a 'b' { }", 1, "begins nothing"),
            ("a = 1;", 1, "begins nothing"),
            ("\ufeffa = 1", 1, "begins nothing"),
            ("a = 1\n\x00", 2, "begins nothing"),
            ("a <<X\nb\nX\n{ }", 1, "comes = or {"),
            ("/* open", 1, "'/'"),
            ('{"a": 1', 1, "JSON"),
            ('\n{"a":\n 1 2}', 3, "JSON"),
            ('{"a": NaN}', 1, "JSON"),
            ("{} {}", 1, "JSON"),
        ):
            with self.subTest(text):
                fault = self.assertRaises(HclInvalid, parse_hcl, text)
                self.assertEqual(fault.line, line)
                self.assertIn(part, str(fault))

    def test_depth(self) -> None:
        """Nesting has a bound, in both forms, and no stack overflows (MOVE-17)."""
        for opening in ("a = [", "a {", '{"a":', '{"a":['):
            with self.subTest(opening):
                self.assertRaises(HclInvalid, parse_hcl, opening.replace("a = [", "a = " + "[" * 50_000) * 50_000)
        deep = "a {" * DEPTH_LIMIT + "}" * DEPTH_LIMIT
        self.assertEqual(len(parse_hcl(deep).items), 1)


_NAMES = st.sampled_from(["path", "capabilities", "a-b", "c.d", "_e"])
_TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8).filter(lambda text: "${" not in text)
_SCALARS = _TEXTS | st.booleans() | st.integers().map(lambda number: Number(str(number)))


def _items(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Item]:
    blocks = st.lists(st.builds(Item, st.tuples(_NAMES), values, st.just(1)), max_size=3).map(
        lambda items: Block(tuple(items))
    )
    return st.builds(Item, st.tuples(_NAMES), values, st.just(1)) | st.builds(
        Item, st.tuples(_NAMES, _TEXTS), blocks, st.just(1)
    )


_VALUES: st.SearchStrategy[Value] = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple) | st.lists(_items(inner), max_size=3).map(lambda i: Block(tuple(i)))
    ),
    max_leaves=8,
)
_DOCUMENTS = st.lists(_items(_VALUES), max_size=4).map(lambda items: Block(tuple(items)))
_GAPS = st.sampled_from([" ", "\n", "\r\n", "\t", " # x\n", " /* y\n */ ", "// z\n"])


def _written(value: Value) -> list[str]:
    """Return the tokens of a value; whatever stands between two of them is free."""
    match value:
        case bool():
            return [str(value).lower()]
        case Number(text):
            return [text]
        case Block(items):
            return ["{", *_written_items(items), "}"]
        case tuple():
            return ["[", *(token for each in value for token in (*_written(each), ",")), "]"]
    return ['"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"']


def _written_items(items: Iterable[Item]) -> list[str]:
    tokens: list[str] = []
    for name, *more, value in ((*item.names, item.value) for item in items):
        tokens += [str(name), *(token for each in more for token in _written(each)), *([] if more else ["="])]
        tokens += _written(value)
    return tokens


class PropertyTests(SynchronousTestCase):
    """Any text."""

    @given(_DOCUMENTS, st.data())
    def test_read_back(self, document: Block, data: st.DataObject) -> None:
        """Whatever stands between its words, a document is read as it was written (MOVE-17)."""
        text = "".join(token + data.draw(_GAPS) for token in _written_items(document.items))
        self.assertEqual(plain(parse_hcl(text)), plain(document))

    @given(_DOCUMENTS, st.data())
    def test_cut(self, document: Block, data: st.DataObject) -> None:
        """Of a text that is cut off no item is other than it was, but for the last word: it is refused, or ends between two
        (MOVE-17).
        """
        tokens = _written_items(document.items)
        text = " ".join(tokens[: data.draw(st.integers(0, len(tokens)))])
        try:
            found = parse_hcl(text)
        except HclInvalid:
            return
        self.assertEqual(plain(found), plain(Block(document.items[: len(found.items)])))

    @given(st.text(st.sampled_from('ab"{}[]=,#/*<-\\$ \n\t1.e+E'), max_size=40))
    def test_any(self, text: str) -> None:
        """Any text is read or refused (MOVE-17)."""
        try:
            parse_hcl(text)
        except HclInvalid as fault:
            self.assertLessEqual(fault.line, text.count("\n") + 1)

    @given(st.recursive(_TEXTS | st.booleans() | st.none(), lambda inner: st.dictionaries(_TEXTS, inner, max_size=3)))
    def test_json(self, value: object) -> None:
        """A text in JSON means what it means as JSON (MOVE-17)."""

        def bare(read: Value) -> object:
            return {item.names[0]: bare(item.value) for item in read.items} if isinstance(read, Block) else read

        self.assertEqual(bare(parse_hcl(json.dumps({"a": value}))), {"a": value})
