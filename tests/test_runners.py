"""Tests of ``run.py`` and ``full.py``: which tests they run for whom, and where."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests import full, run
from tests.integration.forkserver import REAL

ROOT: Final = Path(__file__).resolve().parent.parent
#: What finds programs that a machine may lack.
PROGRAMS: Final = "tests.programs"


@functools.cache
def imports_of(module: str) -> frozenset[str]:
    """Return what a module of the tests imports of them: modules, and names that may be modules."""
    nodes = ast.walk(ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")))
    found = [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests")]
    return frozenset(name for node in found for name in (f"{node.module}", *(f"{node.module}.{a.name}" for a in node.names)))


def find_imported(module: str) -> set[str]:
    """Return the modules of the tests that one imports, and those that they import."""
    found, left = set[str](), [module]
    while left:
        name = left.pop()
        if name not in found and (ROOT / f"{name.replace('.', '/')}.py").exists():
            found.add(name)
            left += imports_of(name)
    return found


class PartsTests(SynchronousTestCase):
    """The parts of the suite."""

    def setUp(self) -> None:
        """Find all modules."""
        self.there = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "integration").glob("test_*.py")}

    def test_lists(self) -> None:
        """The lists name modules that there are."""
        for names in (run.LONG, run.INDEPENDENT, run.OF_USER, REAL):
            self.assertLess(names, self.there)
        for name in run.SMOKE:
            self.assertTrue((ROOT / name).exists(), name)

    def test_union(self) -> None:
        """Each module is in the part that ``tox`` runs, or in the one that ``tox -e full`` runs after it, never in both."""
        short, rest = run.real_parts("short"), run.real_parts("rest")
        self.assertEqual((short | rest, short & rest), (self.there, set()))
        self.assertEqual(run.real_parts("whole"), self.there)
        self.assertTrue(short)

    def test_left_out(self) -> None:
        """The output of a part names each module that it leaves out."""
        for part in ("short", "rest", "smoke", "user"):
            said = re.findall(r"\w+", run.left_out(part).partition(" modules: ")[2].partition(".")[0])
            self.assertEqual(set(said), self.there - run.real_parts(part))

    def test_user(self) -> None:
        """What the gate's ordinary user leaves out is the same for every user, or takes long and doesn't depend on one."""
        left = self.there - run.real_parts("user")
        self.assertLess(left, run.INDEPENDENT | run.LONG)
        left_out = set(run.in_memory("short")) - set(run.in_memory("user"))
        self.assertEqual(left_out, {f"tests/test_{name}.py" for name in run.OF_TREE})
        self.assertEqual(left & run.OF_USER, set())

    def test_no_programs(self) -> None:
        """No module that is the same for every user, nor what it imports, looks for a program that may be missing."""
        self.assertIn(PROGRAMS, find_imported("tests.integration.test_ldap"))
        found = {name for name in run.INDEPENDENT if PROGRAMS in find_imported(f"tests.integration.test_{name}")}
        self.assertEqual(found, set())

    def test_pythons(self) -> None:
        """The oldest and the newest Python run all tests, the one that ``tox`` ran on the rest, others a few."""
        self.assertEqual(full.parts(["3.11"], "3.11"), {"3.11": "rest"})
        self.assertEqual(full.parts(["3.11", "3.12", "3.13"], "3.13"), {"3.11": "whole", "3.12": "smoke", "3.13": "rest"})
        self.assertEqual(full.parts(["3.11", "3.12", "3.13"], "3.12"), {"3.11": "whole", "3.12": "rest", "3.13": "whole"})

    def test_gate(self) -> None:
        """The gate runs ``tox`` and ``tox -e full`` as root, where nothing is skipped, and a part as another user."""
        text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
        self.assertIn("echo 'tox -e full'; } > \"$scratch/full.sh\"", text)
        self.assertRegex(text, r"(?m)^\(cd .* CI=true TESTS_ELSEWHERE=\"\$debians\" .* bash \"\$scratch/full.sh\"\)")
        self.assertRegex(text, r"env -u CI -u PYENV_ROOT TESTS_PART=user ")
        self.assertEqual(text.count("TESTS_"), 2)
