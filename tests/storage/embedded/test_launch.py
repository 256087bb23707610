"""Tests of the step between svc and PostgreSQL; what it does as a process is in the integration tests."""

from __future__ import annotations

import ast
import os
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.storage.embedded import launch


class ProgramTests(SynchronousTestCase):
    """The program."""

    def test_alone(self) -> None:
        """It imports the standard library alone, since it runs without any other."""
        tree = ast.parse(Path(launch.__file__).read_text())
        imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
        imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        self.assertEqual(imported - sys.stdlib_module_names, set())


class PlaceTests(SynchronousTestCase):
    """By what name PostgreSQL reaches its directory."""

    def setUp(self) -> None:
        """Stand in a directory."""
        self.root = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.root)

    def test_path(self) -> None:
        """It is the directory's path where that leads there."""
        self.assertEqual(launch.reachable_name(self.root), self.root)

    def test_overlong(self) -> None:
        """A path that PostgreSQL couldn't take is replaced by one that means the directory it stands in."""
        path = self.root
        while len(path) <= launch.PATH_LIMIT:
            path = os.path.join(path, "x" * 200)
            os.mkdir(path)
        os.chdir(path)
        self.assertEqual(launch.reachable_name(path), "/proc/self/cwd")
        self.assertTrue(os.path.samefile("/proc/self/cwd", path))

    if not os.path.isdir("/proc/self/cwd"):
        test_overlong.skip = "only Linux has such a path"  # type: ignore[attr-defined]  # trial reads it
