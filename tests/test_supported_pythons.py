"""The versions of Python that are promised are those that are tested, in every file that names them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from svc.storage.embedded.binaries import UNSERVED

ROOT: Final = Path(__file__).resolve().parent.parent
SUPPORTED: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["svc"]
PYTHONS: Final[list[str]] = SUPPORTED["pythons"]


class SupportedPythonsTests(SynchronousTestCase):
    """The list in ``pyproject.toml``, and what repeats it."""

    def test_tox(self) -> None:
        """The environments of tox name no version: what ``tox -e full`` runs is read from the list."""
        self.assertEqual(re.findall(r"py3?\d+", (ROOT / "tox.ini").read_text(encoding="utf-8")), [])
        self.assertIn('["svc"]["pythons"]', (ROOT / "tests" / "full.py").read_text(encoding="utf-8"))

    def test_client(self) -> None:
        """The distribution of the client names the same versions, and the same oldest one, as the server's."""
        oldest = f'python_requires=">={PYTHONS[0]}"'
        text = (ROOT / "etc" / "client" / "setup.py").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r'"Programming Language :: Python :: ([0-9.]+)"', text), PYTHONS)
        self.assertIn(oldest, text)
        self.assertIn(oldest, (ROOT / "setup.py").read_text(encoding="utf-8"))

    def test_pages(self) -> None:
        """The README and CONTRIBUTING.md name the oldest and the newest version."""
        first, last = PYTHONS[0], PYTHONS[-1]
        self.assertIn(f"Python {first} to {last}", (ROOT / "README.md").read_text(encoding="utf-8"))
        self.assertIn(f"{first} to {last}", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
        self.assertEqual(tuple(map(int, SUPPORTED["embedded-below"].split("."))), UNSERVED)

    def test_gate(self) -> None:
        """The gate takes the versions from the list: it names none itself."""
        text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
        self.assertIn("pyproject.toml", text)
        self.assertEqual(re.findall(r"\b3\.1[0-9]\b", text), [])
