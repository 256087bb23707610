"""The sentences of the project's prose have a head: none begins with Who or What unless it asks."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

ROOT: Final = Path(__file__).resolve().parent.parent

#: The files and folders that are read, below the root of the repository.
PLACES: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "bench", "svc", "findings")

_BEGINNING: Final = re.compile(r"(?:^|(?<=[.:!?] ))(?:Who|What|Whose|Whoever|Whatever)\b")
_END: Final = re.compile(r"[.?!](?:\s|$)|: |$")
#: The parts of a page that hold no sentence: code, headings, and what begins an item or a cell.
_NO_PROSE: Final = re.compile(r"(?ms)^```.*?^```$|^#+ .*?$|^<!--.*?-->")
_BEGINS_PART: Final = re.compile(r"\n\s*\n|\n(?=\s*[*\-|>]|\s*[0-9]+\. )|(?<!\\)\|")
_MARKS: Final = re.compile(r"^[\s*\->0-9.]+")


def find_headless(text: str) -> Iterator[str]:
    """Return the sentences of a paragraph that begin with Who or What, and don't end with a question mark."""
    whole = re.sub(r"\s+", " ", text).strip()
    for beginning in _BEGINNING.finditer(whole):
        end = _END.search(whole, beginning.start())
        sentence = whole[beginning.start() : end.end() if end else None].strip()
        if not sentence.endswith("?"):
            yield sentence


def paragraphs_of_python(source: str) -> Iterator[str]:
    """Return the paragraphs of docstrings and of comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from re.split(r"\n\s*\n", ast.get_docstring(node) or "")
    comment, line = "", 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != line + 1:
                yield comment
                comment = ""
            comment, line = f"{comment} {token.string.lstrip('#: ')}", token.start[0]
    yield comment


def paragraphs_of_page(text: str) -> Iterator[str]:
    """Return the paragraphs, items and cells of a page in Markdown."""
    for part in _BEGINS_PART.split(_NO_PROSE.sub("\n", text)):
        yield _MARKS.sub("", part).replace("**", "")


def pages() -> Iterator[Path]:
    """Return the files of all places."""
    for place in PLACES:
        path = ROOT / place
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (file for file in files if file.suffix in {".py", ".md"} and file.is_file())


class ProseTests(SynchronousTestCase):
    """Docstrings, comments and pages."""

    def test_heads(self) -> None:
        """Each sentence has a subject: one that begins with Who, What, Whose, Whoever or Whatever is a question."""
        read, wrong = list(pages()), []
        self.assertGreater(len(read), 500)
        for page in read:
            text = page.read_text(encoding="utf-8")
            paragraphs = paragraphs_of_python(text) if page.suffix == ".py" else paragraphs_of_page(text)
            wrong += [f"{page.relative_to(ROOT)}: {each}" for some in paragraphs for each in find_headless(some)]
        if wrong:
            self.fail(
                "give each sentence a subject: the thing of the program, a client, an operator (not 'What is cached', but"
                " 'The cached rows'):\n" + "\n".join(wrong)
            )

    def test_found(self) -> None:
        """A headless sentence is found at the beginning, after a full stop and after a colon; questions, and words within
        a sentence, aren't.
        """
        for text, count in (
            ("What is kept, by its key.", 1),
            ("The cache. What\nis kept there ends. Who asks waits.", 2),
            ("Two rules: Whose it is, and why.", 1),
            ("Whoever asks gets it", 1),
            ("What is it? The cache says what it is, and who asked.", 0),
            ("Which one: what it is.", 0),
        ):
            self.assertEqual(len(list(find_headless(text))), count, text)
        source = '"""What it is."""\n\n# Who it is\n# for.\nx = 1  #: Whose.\n'
        source += 'def f():\n    """F.\n\n    What f does.\n    """\n'
        self.assertEqual(sum(len(list(find_headless(some))) for some in paragraphs_of_python(source)), 4)
        page = (
            "## What it is\n\n* What is new.\n* It.\n\n| a | What is b |\n\n```\nWhat code says.\n```\n\n**Who may.** All.\n"
        )
        self.assertEqual(sum(len(list(find_headless(some))) for some in paragraphs_of_page(page)), 3)
