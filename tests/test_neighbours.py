"""The table of cases of a neighbour, and the command that runs it (``tests/neighbours``), without any neighbour."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

from twisted.trial.unittest import SynchronousTestCase

from tests.neighbours import __main__ as command
from tests.neighbours.table import Answer, Row


def neighbour(*rows: Row, missing: str | None = None) -> ModuleType:
    """Return a neighbour with these cases."""
    module = ModuleType("tests.neighbours.example")

    def cases(stack: ExitStack, directory: Path) -> Iterator[Row]:
        yield from rows

    vars(module).update(SUMMARY="an example", missing=lambda: missing, rows=cases)
    return module


def received(answer: Answer | None) -> Row:
    """Return a case that is right with the status 200 and the word "fine"; without an answer it raises."""

    def ask() -> Answer:
        if answer is None:
            raise ValueError("broken")
        return answer

    return Row("a case", Answer(200, "fine"), ask)


class NeighboursTests(SynchronousTestCase):
    """The command."""

    def run_command(self, *arguments: str, **modules: ModuleType) -> tuple[int, str]:
        """Run the command with neighbours of the test; return its exit code and both outputs."""
        if modules:
            self.patch(command, "list_neighbours", lambda: modules)
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = command.main([*arguments])
        return code, output.getvalue()

    def test_list(self) -> None:
        """Each neighbour says in a line what it is, and either that it can be run here or how; a number may be its name."""
        code, output = self.run_command("--list")
        self.assertEqual(code, 0)
        for name, module in command.list_neighbours().items():
            self.assertIn(name, output)
            self.assertNotIn("\n", module.SUMMARY)
            self.assertTrue(callable(module.rows))
        self.assertIn("389", command.list_neighbours())

    def test_outcomes(self) -> None:
        """0 is every case right; a wrong status, a missing sentence, an exception and no case at all are 1."""
        right = received(Answer(200, "all is fine"))
        for expected, rows in (
            (0, [right]),
            (1, [right, received(Answer(500, "all is fine"))]),
            (1, [right, received(Answer(200, "nothing"))]),
            (1, [received(None), right]),
            (1, []),
        ):
            code, output = self.run_command("example", example=neighbour(*rows))
            self.assertEqual(code, expected, output)
            self.assertIn(f"{len(rows)} cases, {0 if rows == [right] else expected * bool(rows)} deviations", output)

    def test_missing(self) -> None:
        """Without its programs a neighbour isn't run, and the command that installs them is shown."""
        code, output = self.run_command("example", example=neighbour(missing="apt-get install example"))
        self.assertEqual((code, "apt-get install example" in output), (2, True))
