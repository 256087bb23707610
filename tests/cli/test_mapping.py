"""Tests of ``svc.cli.run``."""

from __future__ import annotations

from pathlib import Path

import click
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.run import LIMIT, environment_with, parse_mapping, read_mapping


class MappingTests(SynchronousTestCase):
    """Which variables get which secrets."""

    def test_as_written(self) -> None:
        """Names and ids count as they are written, with comments, quotes and what YAML takes for other things than text
        (CLI-18).
        """
        text = b"# secrets\nDB_PASSWORD: ci/database/password\n_x1: 'a b: c'\nNO: yes\nN: 012\nU: \xc3\xbc/\xe2\x98\x83\n{}"
        self.assertRaises(ValueError, parse_mapping, text)
        expected = {"DB_PASSWORD": "ci/database/password", "_x1": "a b: c", "NO": "yes", "N": "012", "U": "ü/☃"}
        self.assertEqual(parse_mapping(text.removesuffix(b"{}")), expected)
        self.assertEqual(parse_mapping(b"{A: b}"), {"A": "b"})
        self.assertEqual(parse_mapping(b"{}"), {})

    def test_bad_files(self) -> None:
        """What else a file may say is refused, and its line named (CLI-18)."""
        for text, told in (
            (b"", "must be a mapping"),
            (b"- A: b", "must be a mapping"),
            (b"A", "must be a mapping"),
            (b"A: b\nC: d\nA: e", "line 3: A stands there twice"),
            (b"A: b\n1A: c", "line 2: the name of a variable"),
            (b"A-B: c", "line 1: the name of a variable"),
            (b"\xc3\xbc: c", "line 1: the name of a variable"),
            (b"A=B: c", "line 1: the name of a variable"),
            (b"? [a]\n: b", "line 1: the name of a variable"),
            (b"A:", "line 1: A must be followed by the id"),
            (b"A: ''", "line 1: A must be followed by the id"),
            (b"A: [b]", "line 1: A must be followed by the id"),
            (b"A: !var", "line 1: A must be followed by the id"),
            (b"A: !var ''", "line 1: A must be followed by the id"),
            (b"A: !var [b]", "line 1: A must be followed by the id"),
            (
                b"A: !var:file b",
                "line 1: A has !var with something behind it: leave that out; `svc agent` writes secrets to",
            ),
            (b"A: !var:optional:file b", "line 1: A has !var with something behind it: leave that out; `svc agent` writes"),
            (b"A: !var:default='x' b", "line 1: A has a default: leave that out; a secret that is missing keeps"),
            (b"A: !var:file:default='x y' b", "line 1: A has a default"),
            (b"A: !str b", "line 1: A has a value of its own"),
            (b"A: !file b", "line 1: A has a value of its own"),
            (b"A: !int 3", "line 1: A has a value of its own"),
            (b"A: !variable b", "line 1: A has a value of its own"),
            (b"A: c\ncommon:\n  B: !var b", "line 2: common has a section beneath it"),
            (b"A: {B: b}", "line 1: A has a section beneath it"),
            (b"A: b\n\nB: \xff", "line 3 is not UTF-8"),
            (b"A: 'b", "line 1, column 6 is not YAML"),
            (b"A: b\n---\nA: c", "is not YAML"),
            (b"A: \x07", "it is not YAML"),
            (b"A: *b", "is not YAML"),
            (b"[" * 5000, "nested too deeply"),
        ):
            self.assertIn(told, str(self.assertRaises(ValueError, parse_mapping, text)), text)

    def test_other_modifiers(self) -> None:
        """The refusal of a modifier that asks neither for a file nor for a default speaks of neither (CLI-18)."""
        refusal = str(self.assertRaises(ValueError, parse_mapping, b"A: !var:optional b"))
        self.assertEqual(refusal, "line 1: A has !var with something behind it: leave that out")

    def test_tag_of_ids(self) -> None:
        """The tag ``!var``, with which files of other programs mark ids, says nothing here (CLI-18)."""
        text = b"A: !var shop/db/password\nB: !var 'x y'\nC: plain\nD: !var 12\nE: !var\n  below\n"
        expected = {"A": "shop/db/password", "B": "x y", "C": "plain", "D": "12", "E": "below"}
        self.assertEqual(parse_mapping(text), expected)

    def test_no_quotation(self) -> None:
        """What is wrong is told without what stands there: somebody may have written a secret in place of its id
        (CLI-18).
        """
        for text in (
            b"A: *hunter2",
            b"A: !hunter2!x y",
            b"%TAG !hunter2! a\n%TAG !hunter2! b\n--- {}",
            b"A: 'hunter2",
            b"A: hunter2\n hunter2: x",
        ):
            said = str(self.assertRaises(ValueError, parse_mapping, text))
            self.assertIn("is not YAML: ", said)
            self.assertNotIn("hunter2", said)

    def test_files(self) -> None:
        """A file that can't be read, is too long or is wrong is named."""
        path = Path(self.mktemp())
        for contents, told in ((None, "No such file"), (b"#" * (LIMIT + 1), "longer than"), (b"A", "a mapping")):
            if contents is not None:
                path.write_bytes(contents)
            fault = self.assertRaises(click.ClickException, read_mapping, path)
            self.assertIn(told, fault.message)
            self.assertIn(str(path), fault.message)
        path.write_text("A: b")
        self.assertEqual(read_mapping(path), {"A": "b"})

    @given(st.binary() | st.text().map(lambda text: f"A: {text}".encode("utf-8", "surrogatepass")))
    def test_anything(self, contents: bytes) -> None:
        """Whatever a file holds, it is a mapping of names to ids, or refused with a sentence."""
        try:
            found = parse_mapping(contents)
        except ValueError as error:
            self.assertTrue(str(error))
        else:
            self.assertTrue(all(name.isidentifier() and variable for name, variable in found.items()))

    def test_environment(self) -> None:
        """One secret may go into several variables; one with a NUL byte can't go into any (CLI-19)."""
        values = {"a": b"1\n\xff", "b": b"x\0y"}
        self.assertEqual(environment_with(values, {"A": "a", "B": "a"}), {"A": b"1\n\xff", "B": b"1\n\xff"})
        fault = self.assertRaises(click.ClickException, environment_with, values, {"A": "a", "B": "b"})
        self.assertIn("the value of b holds a NUL byte, which B cannot", fault.message)
