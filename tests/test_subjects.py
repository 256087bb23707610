"""Tests of ``subjects.py``, which checks how commits are named."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.subjects import MOST, ROOT, find_fault, main


class SubjectTests(SynchronousTestCase):
    """Subjects of commits."""

    def test_table(self) -> None:
        """A subject begins with a verb, names a thing and has at most 72 characters."""
        for subject in (
            "Cap an invalidation poll at 5,000 rows",
            "Re-read the certificate at SIGHUP",
            "Don't log a refusal twice",
            "Pass the clock by name",
            "Embed PostgreSQL 18",
            "Fix " + "x" * (MOST - 4),
        ):
            self.assertIsNone(find_fault(subject), subject)
        for subject, words in (
            ("Fix " + "x" * (MOST - 3), "73 characters"),
            ("Who finds very many keeps nobody waiting", "begin with a verb"),
            ("Fixed the poll", "begin with a verb"),
            ("Fixes the poll", "begin with a verb"),
            ("Fixing the poll", "begin with a verb"),
            ("fix the poll", "begin with a verb"),
            ("The poll is capped", "begin with a verb"),
            ("storage: cap the poll", "begin with a verb"),
            ("Cap the poll.", "full stop"),
            ("Cap", "names no thing"),
            ("", "begin with a verb"),
        ):
            self.assertIn(words, find_fault(subject) or "", subject)

    def test_message(self) -> None:
        """The hook reads the first line of a message."""
        message = Path(self.mktemp())
        message.write_text(
            "Cap the poll\n\nThe reason is long, and has more than seventy-two characters in a line of its own.\n"
        )
        self.assertEqual(main([str(message)]), 0)
        message.write_text("The poll\n")
        self.assertEqual(main([str(message)]), 1)

    def test_gate(self) -> None:
        """The gate and the hook check subjects, and the base is a commit's id."""
        for name in (".ci/run", ".pre-commit-config.yaml"):
            self.assertIn("tests/subjects.py", (ROOT / name).read_text(encoding="utf-8"), name)
        self.assertRegex((ROOT / ".ci" / "history-base").read_text(encoding="utf-8"), r"\A[0-9a-f]{40}\n\Z")
