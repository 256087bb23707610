"""Columns of many rows as PostgreSQL's text form of arrays; that PostgreSQL reads them back is tested with the stores."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.storage.driver.columns import BATCH, TEXT, column_batches, to_array


class ColumnTests(SynchronousTestCase):
    """``to_array``."""

    def test_texts(self) -> None:
        """Texts are quoted, each by itself, so that none is taken for more than text."""
        texts = ["a", "", "NULL", "a,b", "{}", 'say "so"', "back\\slash", "it's"]
        self.assertEqual(to_array(texts), '{"a","","NULL","a,b","{}","say \\"so\\"","back\\\\slash","it\'s"}')

    @given(st.lists(st.text('a",\\é{}')))
    def test_any_texts(self, texts: list[str]) -> None:
        """Whatever other texts stand beside it, a text is quoted as by itself."""
        self.assertEqual(to_array(texts), "{" + ",".join(to_array([text])[1:-1] for text in texts) + "}")
        for text in texts:
            quoted = to_array([text])
            self.assertEqual(quoted, '{"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"}')

    def test_bytes(self) -> None:
        """Bytes are written in hexadecimal, behind a backslash that is itself quoted."""
        self.assertEqual(to_array([b"\x00\\", b""]), '{"\\\\x005c","\\\\x"}')

    def test_booleans(self) -> None:
        """Booleans are single letters."""
        self.assertEqual(to_array([True, False]), "{t,f}")

    def test_nothing(self) -> None:
        """A column of nothing is an empty array."""
        self.assertEqual(to_array([]), "{}")


class BatchTests(SynchronousTestCase):
    """``column_batches``."""

    def test_columns(self) -> None:
        """Rows become columns."""
        self.assertEqual(list(column_batches([("a", True), ("b", False)])), [['{"a","b"}', "{t,f}"]])

    def test_long_texts(self) -> None:
        """Long texts go in smaller batches, a single one as it is, and none is lost or changes its place."""
        rows = [("x" * (TEXT // 4), number % 2 == 0, b"") for number in range(11)] + [("y" * (TEXT + 1), True, b"z")]
        made = list(column_batches(rows))
        self.assertEqual("".join(flags[1:-1] + "," for _, flags, _ in made), "t,f," * 5 + "t,t,")
        self.assertEqual(made[-1], [to_array([value]) for value in rows[-1]])
        for texts, flags, _ in made[:-1]:
            self.assertLessEqual(len(texts) - 3 * len(flags.split(",")), TEXT)

    def test_no_rows(self) -> None:
        """Where there are no rows, there is no batch."""
        self.assertEqual(list(column_batches([])), [])

    def test_size(self) -> None:
        """A batch is full before the next one begins."""
        rows = [(str(number),) for number in range(2 * BATCH + 1)]
        made = [columns for (columns,) in column_batches(rows)]
        self.assertEqual([columns.count(",") + 1 for columns in made], [BATCH, BATCH, 1])
        self.assertEqual(made[2], to_array([str(2 * BATCH)]))
