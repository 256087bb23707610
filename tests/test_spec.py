"""The rules of ``docs/spec``: how they are numbered, and what cites them.

A rule is a paragraph that begins with its number: ``**POL-12.** …``. Code, tests and documents cite it as ``POL-12``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from twisted.trial.unittest import SynchronousTestCase

ROOT: Final = Path(__file__).resolve().parents[1]
SPEC: Final = ROOT / "docs" / "spec"

#: The rules that no test can cite, each with the reason.
UNCITED: Final[Mapping[str, str]] = {}

_RULE: Final = re.compile(r"^\*\*([A-Z]{2,6})-([0-9]+)\.\*\* ", re.MULTILINE)
_CITATION: Final = re.compile(r"\b([A-Z]{2,6})-([0-9]+)\b")
_CHAPTER: Final = re.compile(r"^\| \[[^]]+\]\(([a-z-]+\.md)\) \| ([A-Z]{2,6}) \|", re.MULTILINE)


class Citation(NamedTuple):
    """A place where a rule is cited."""

    path: str
    line: int
    rule: str


def chapters() -> dict[str, list[tuple[str, int]]]:
    """Return the prefix and number of each rule in its order, by the name of the file."""
    files = [path for path in sorted(SPEC.glob("*.md")) if path.name != "README.md"]
    return {path.name: [(rule[1], int(rule[2])) for rule in _RULE.finditer(path.read_text("utf-8"))] for path in files}


def rules() -> set[str]:
    """Return the numbers of all rules."""
    return {f"{prefix}-{number}" for found in chapters().values() for prefix, number in found}


def citations(paths: Sequence[Path]) -> Iterator[Citation]:
    """Return what is cited in some files, among the prefixes that chapters have."""
    prefixes = {rule.partition("-")[0] for rule in rules()}
    for path in paths:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            for found in _CITATION.finditer(line):
                if found[1] in prefixes:
                    yield Citation(str(path.relative_to(ROOT)), number, found[0])


def sources(*folders: str) -> list[Path]:
    """Return the modules and statements of these folders, but for this one."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".sql"})
    return sorted(path for path in found if path != Path(__file__).resolve())


class RulesTests(SynchronousTestCase):
    """The numbers of rules."""

    def test_numbers(self) -> None:
        """The numbers of a chapter ascend from 1, and have one prefix that no other chapter has."""
        prefixes = Counter[str]()
        for name, found in chapters().items():
            self.assertTrue(found, f"{name} has no rule: begin each with its number, as in **POL-12.**")
            numbers = [number for _, number in found]
            self.assertEqual(numbers, sorted(set(numbers)), f"{name}: give each rule a number above those before it")
            self.assertEqual(numbers[0], 1, f"{name}: its first rule has the number 1")
            self.assertEqual(len({prefix for prefix, _ in found}), 1, f"{name}: give all its rules one prefix")
            prefixes[found[0][0]] += 1
        self.assertEqual([prefix for prefix, count in prefixes.items() if count > 1], [], "give each chapter its own prefix")

    def test_index(self) -> None:
        """The index lists each chapter with its prefix."""
        listed = {match[1]: match[2] for match in _CHAPTER.finditer((SPEC / "README.md").read_text("utf-8"))}
        there = {name: found[0][0] for name, found in chapters().items()}
        self.assertEqual(listed, there, "list the chapter in the table of docs/spec/README.md: file, prefix, subject")


#: Documents that a clone of the project doesn't have.
_ABSENT: Final = re.compile(r"\brulings?\b|wire facts|source document|\b(?:core|clients|authn) R?[0-9]+(?:\.[0-9]+)?\b")


class CitationTests(SynchronousTestCase):
    """What cites rules."""

    def test_sources(self) -> None:
        """Nothing cites what isn't in the repository."""
        wrong = [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            for path in sources("svc", "tests", "bench")
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
            if _ABSENT.search(line) and path.name != "test_spec.py"
        ]
        self.assertEqual(wrong, [], "cite the rule of docs/spec that says this (POL-12), or an RFC")

    def test_resolve(self) -> None:
        """Whatever cites a rule cites one that there is."""
        known = rules()
        paths = [*sources("svc", "tests", "bench"), *sorted((ROOT / "docs").rglob("*.md"))]
        wrong = [f"{path}:{line}: {rule}" for path, line, rule in citations(paths) if rule not in known]
        self.assertEqual(wrong, [], "cite a rule that docs/spec has, or write the rule there")

    def test_proven(self) -> None:
        """Each rule is cited by a test, but for those that none can prove."""
        cited = {rule for _, _, rule in citations(sources("tests"))}
        missing = sorted(rules().difference(cited, UNCITED))
        self.assertEqual(missing, [], "end the docstring of the test that proves the rule with its number, as in (POL-12)")
        needless = sorted(rule for rule in UNCITED if rule in cited or rule not in rules())
        self.assertEqual(needless, [], "take these from UNCITED: a test cites them, or they are gone")
