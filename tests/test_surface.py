"""The public surface is the one that ``tests/surface.txt`` lists."""

from __future__ import annotations

import difflib

from twisted.trial.unittest import SynchronousTestCase

from tests.surface import FILE, list_surface


class SurfaceTests(SynchronousTestCase):
    """What users, their programs and their dashboards name."""

    maxDiff = None

    def test_listed(self) -> None:
        """Nothing public comes, changes or goes unnoticed: routes, settings, commands, metrics, reasons, Python."""
        listed, found = FILE.read_text(encoding="utf-8").splitlines(), list_surface().splitlines()
        differences = [line for line in difflib.unified_diff(listed, found, lineterm="", n=0) if line[:2] not in {"@@"}]
        self.assertEqual(
            "\n".join(differences), "", "Write a line in CHANGELOG.md, and run `python -m tests.surface` in the source tree."
        )
