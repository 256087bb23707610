"""The worked examples of ``CONTRIBUTING.md`` are built from the page, and their tests pass.

Those that need PostgreSQL are run by ``tests/integration/test_contributing.py``.
"""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Final
from unittest import TestCase as AnyTestCase
from unittest import TestResult, TestSuite, defaultTestLoader

from twisted.trial.unittest import SynchronousTestCase

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def files(heading: str) -> dict[str, str]:
    """Return the files that a section of the page shows, by their paths."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"(?ms)^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", section))


def build(case: SynchronousTestCase, sources: dict[str, str]) -> dict[str, types.ModuleType]:
    """Import the Python files of an example as if they were there, until the test ends."""
    built = {}
    for path, source in sources.items():
        if path.endswith(".py"):
            name = path.removesuffix(".py").replace("/", ".")
            assert not (ROOT / path).exists(), f"{path} exists: the example needs another name"
            module = sys.modules[name] = built[path] = types.ModuleType(name)
            case.addCleanup(sys.modules.pop, name, None)
            exec(compile(source, path, "exec"), vars(module))
    return built


class ExamplesTests(SynchronousTestCase):
    """The examples that run in memory."""

    def follow(self, heading: str, count: int) -> None:
        """Build an example and run its tests, of which there are ``count``; all pass."""
        found = TestSuite()
        for path, module in build(self, files(heading)).items():
            if path.startswith("tests/"):
                for item in vars(module).values():
                    if isinstance(item, type) and issubclass(item, AnyTestCase) and item.__module__ == module.__name__:
                        found.addTests(defaultTestLoader.loadTestsFromTestCase(item))
        result = TestResult()
        found.run(result)
        self.assertEqual([text for _, text in [*result.errors, *result.failures]], [])
        self.assertEqual(result.testsRun, count)

    def test_route(self) -> None:
        """The route is declared, calls its use case, and refuses what it says."""
        self.follow("How to add a route", 2)

    def test_authenticator(self) -> None:
        """The authenticator admits and refuses."""
        self.follow("How to add an authenticator", 2)

    def test_probe(self) -> None:
        """The probe finds what it is there for."""
        self.follow("How to add a probe", 2)

    def test_a_failing_example_is_found(self) -> None:
        """An example whose test fails fails here."""
        broken = PAGE.replace('"motto": "Beep beep"}', '"motto": "something else"}')
        self.assertNotEqual(broken, PAGE)
        self.patch(sys.modules[__name__], "PAGE", broken)
        self.assertRaises(self.failureException, self.follow, "How to add a route", 2)
