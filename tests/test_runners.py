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

    def test_exist(self) -> None:
        """Each is there, and some aren't among them, so that both users run tests on real processes."""
        there = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "integration").glob("test_*.py")}
        self.assertLess(run.INDEPENDENT, there)

    def test_no_programs(self) -> None:
        """None of them, nor what it imports, looks for a program that may be missing."""
        self.assertIn(PROGRAMS, find_imported("tests.integration.test_ldap"))
        found = {name for name in run.INDEPENDENT if PROGRAMS in find_imported(f"tests.integration.test_{name}")}
        self.assertEqual(found, set())

    def test_gate(self) -> None:
        """The gate leaves them out for one user alone."""
        text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
        self.assertEqual(text.count("TESTS_LEFT_OUT=independent"), 1)
