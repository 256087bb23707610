"""Tests of ``svc.importing.documents``: every id and text comes out of policy as it was."""

from __future__ import annotations

from collections.abc import Sequence

import yaml
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.importing.documents import STATEMENTS, Piece, Statement, cut_pieces, declare, find_place, quote_text
from svc.importing.inventory import Record, RecordId, Version
from svc.importing.load import digest, find_missing_versions, fold_equal

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
PARTS = st.sampled_from(["a", "b", "a-b", "@", "a@b", "", "..", "null", "é"])
PATHS = st.lists(PARTS, min_size=1, max_size=5).map("/".join).filter(lambda each: each and not each.startswith("/"))


def composed(kind: str, branch: str, ident: str | None) -> str:
    """The id that policy gives to a record with this id in a policy (POL-24, POL-25, POL-29)."""
    if ident is None:
        return branch
    if kind != "user":
        return ident if branch == "root" else f"{branch}/{ident}"
    path = ident if branch == "root" else f"{branch}/{ident}"
    above, _, name = path.rpartition("/")
    return f"{name}@{above.replace('/', '-')}" if above else name


class DocumentTests(SynchronousTestCase):
    """Texts of policy."""

    @given(TEXTS)
    def test_texts(self, text: str) -> None:
        """YAML reads each text as itself, on one line (MOVE-52, MOVE-53)."""
        quoted = quote_text(text)
        self.assertEqual(yaml.safe_load(quoted), text)
        self.assertEqual(len(quoted.splitlines()), 1)
        self.assertNotIn("%", quoted)

    @given(st.sampled_from(["host", "user", "variable", "policy"]), PATHS, st.none() | PATHS, st.sets(PATHS))
    def test_places(self, kind: str, name: str, policy: str | None, policies: set[str]) -> None:
        """The id that a record gets is the one it had, wherever it is loaded (MOVE-53, MOVE-54, IMP-10)."""
        if kind == "user":
            name = name.replace("/", "@")
        if policy is not None:
            policies = {*policies, policy}
        branch, ident = find_place(Record(RecordId(kind, name), policy=policy), policies)
        self.assertIn(branch, {"root", policy})
        self.assertFalse(ident is not None and ident.startswith("/"))
        self.assertEqual(composed(kind, branch, ident), name)

    def test_users(self) -> None:
        """A user is declared in its policy only where policy gives it the same id (MOVE-54)."""
        for name, policy, wanted in (
            ("b@a", "a", ("a", "b")),
            ("b@pp-a", "pp/a", ("pp/a", "b")),
            ("b@pp-a", "pp", ("root", "b@pp-a")),
            ("b@x@a", "a", ("a", "b@x")),
            ("@a", "a", ("root", "@a")),
            ("b", "a", ("root", "b")),
        ):
            record = Record(RecordId("user", name), policy=policy)
            self.assertEqual(find_place(record, {"a", "pp/a", "pp"}), wanted, name)

    @given(st.dictionaries(TEXTS, TEXTS, max_size=4), st.lists(TEXTS, max_size=3))
    def test_attributes(self, annotations: dict[str, str], networks: Sequence[str]) -> None:
        """Attributes are read back as they are, long names too (MOVE-52)."""
        annotations = {**annotations, "n" * 2000: "x"}
        text = declare(Record(RecordId("host", "h"), annotations=annotations, restricted_to=tuple(networks)), ()).text
        read = yaml.safe_load(text.removeprefix("!host "))
        self.assertEqual(read["annotations"], annotations)
        self.assertEqual(read.get("restricted_to", []), list(networks))

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 300_000)), max_size=60))
    def test_pieces(self, sizes: list[tuple[str, int]]) -> None:
        """Pieces hold each statement once, in the order of its policy, and aren't too large (IMP-10)."""
        statements = [Statement(branch, "x" * size, str(number)) for number, (branch, size) in enumerate(sizes)]
        pieces = list(cut_pieces(statements))
        for branch in "abc":
            wanted = [each for each in statements if each.branch == branch]
            self.assertEqual([one for piece in pieces if piece.branch == branch for one in piece.statements], wanted)
        self.assertTrue(all(0 < len(piece.statements) <= STATEMENTS for piece in pieces))
        self.assertTrue(all(len(piece.text) < 1_000_000 for piece in pieces))
        self.assertFalse(any(one.branch != piece.branch for piece in pieces for one in piece.statements))

    def test_halves(self) -> None:
        """A piece is parted without a loss."""
        statements = tuple(Statement("a", "x", str(number)) for number in range(5))
        first, second = Piece("a", statements).halves()
        self.assertEqual(first.statements + second.statements, statements)

    @given(st.text("abc", max_size=6), st.text("abc", max_size=6))
    def test_versions(self, there: str, source: str) -> None:
        """With the missing versions a target's newest are the source's; else its newest is none of the source's (IMP-12)."""
        versions = fold_equal([Version(number, text.encode()) for number, text in enumerate(source, 1)])
        wanted = [digest(each) for each in versions]
        digests = [digest(Version(0, text.encode())) for text in there]
        missing = find_missing_versions(versions, digests)
        if missing is None:
            self.assertFalse(any(digests[-size:] == wanted[:size] for size in range(1, len(wanted) + 1)))
        elif wanted:
            after = [*digests, *map(digest, missing)]
            self.assertEqual(after[-len(wanted) :], wanted[-len(after) :] if len(after) < len(wanted) else wanted)
