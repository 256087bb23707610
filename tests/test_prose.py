"""The words that the project's prose does without, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

ROOT: Final = Path(__file__).resolve().parent.parent

#: The files and folders that are read, below the root of the repository.
PLACES: Final = ("README.md", "CONTRIBUTING.md", "docs", "etc", "bench", "svc")

#: What to write instead of each word.
INSTEAD: Final = {
    "whoever": "write: the role that, a client that, anyone who",
    "whomever": "write: the role that, anyone who",
    "anew": "write: again",
    "such": 'write: this, these, or name the thing; "such as" and "no such" are allowed',
    "thereby": "write: so, or say how",
    "hereby": "leave it out",
}

_OTHERS: Final = "|".join(word for word in INSTEAD if word != "such")
_SUCH: Final = r"(?<!No )such(?!\s+(?:(?:#:?|--) )?as\b)"  # but for "such as" and "no such"
_WORD: Final = re.compile(rf"\b(?:{_OTHERS}|{_SUCH})\b", re.IGNORECASE)

_BINARY: Final = (".png", ".pyc", ".sql")


def findings(text: str) -> Iterator[tuple[int, str]]:
    """Return the line and the word, in lower case, of each place where a text has one of the words."""
    for found in _WORD.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[0].lower()


def pages() -> Iterator[Path]:
    """Return the files of all places, without this one."""
    for place in PLACES:
        path = ROOT / place
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        # A migration that was applied is never changed: not its comments either.
        readable = (file for file in files if file.is_file() and file.suffix not in _BINARY and file.name != "LICENSE")
        yield from (file for file in readable if file != Path(__file__).resolve())


class ProseTests(SynchronousTestCase):
    """The words of pages and comments."""

    def test_plain_words(self) -> None:
        """No page has a word that a plainer one can replace."""
        read = list(pages())
        self.assertGreater(len(read), 40)
        wrong = [
            f'{page.relative_to(ROOT)}:{line}: "{word}": {INSTEAD[word]}'
            for page in read
            for line, word in findings(page.read_text(encoding="utf-8"))
        ]
        if wrong:
            self.fail("replace each word as its line says:\n" + "\n".join(wrong))

    def test_what_is_found(self) -> None:
        """A word is found in any case and as a whole word; "such as", also over the end of a line, and
        messages that begin with "No such", are allowed.
        """
        self.assertEqual(list(findings("Whoever\nreads such things, anew")), [(1, "whoever"), (2, "such"), (2, "anew")])
        self.assertEqual(
            list(findings("a suchness, test_written_anew, such as\nthis, such\nas that, such\n# as these. No such file")),
            [],
        )
