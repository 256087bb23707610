"""Tests of ``run.py``: which tests it runs for whom."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests import run

ROOT: Final = Path(__file__).resolve().parent.parent
#: What finds programs that a machine may lack.
PROGRAMS: Final = "tests.programs"


def find_imported(module: str) -> set[str]:
    """Return the modules of the tests that one imports, and those that they import."""
    found, left = set[str](), [module]
    while left:
        name = left.pop()
        path = ROOT / f"{name.replace('.', '/')}.py"
        if name in found or not path.exists():
            continue
        found.add(name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
                left += [f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


class IndependentTests(SynchronousTestCase):
    """The modules that the gate runs once."""

    def setUp(self) -> None:
        """Join both shares."""
        self.of_root, self.of_user = run.INDEPENDENT["root"], run.INDEPENDENT["user"]
        self.both = self.of_root | self.of_user

    def test_union(self) -> None:
        """Each is there and is left out for one user alone, so that both together run every test."""
        there = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "integration").glob("test_*.py")}
        self.assertLess(self.both, there)
        self.assertEqual(self.of_root & self.of_user, set())

    def test_no_programs(self) -> None:
        """None of them, nor what it imports, looks for a program that may be missing."""
        self.assertIn(PROGRAMS, find_imported("tests.integration.test_ldap"))
        found = {name for name in self.both if PROGRAMS in find_imported(f"tests.integration.test_{name}")}
        self.assertEqual(found, set())

    def test_gate(self) -> None:
        """The gate leaves out the user's as root, and those of root as the user."""
        text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
        self.assertEqual([text.count(f"TESTS_LEFT_OUT={name}") for name in run.INDEPENDENT], [1, 1])
        self.assertRegex(text, r"env -u CI .*TESTS_RUNNER=trial TESTS_LEFT_OUT=root ")
        self.assertRegex(text, r"CI=true TESTS_LEFT_OUT=user ")
