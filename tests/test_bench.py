"""The bench of ``bench/``, as far as it needs no load and no database."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from unittest import skipUnless

from twisted.trial.unittest import SynchronousTestCase

from tests.pictures import PAGE, draw_path, shown

BENCH = Path(__file__).resolve().parent.parent / "bench"

#: The most starts of functions and the most files of each path: lower them when a path becomes shorter.
LONGEST: Final[Mapping[str, tuple[int, int]]] = {
    "JWT login": (119, 24),
    "secret read": (71, 19),
    "role members (10)": (85, 20),
}


class BenchCase(SynchronousTestCase):
    """Tests of the bench."""

    def setUp(self) -> None:
        """Make the bench importable, which is not installed."""
        place = importlib.util.spec_from_file_location(
            "bench", BENCH / "__init__.py", submodule_search_locations=[str(BENCH)]
        )
        assert place is not None
        sys.modules["bench"] = importlib.util.module_from_spec(place)
        self.addCleanup(_forget)
        self.folder = Path(self.mktemp())
        self.folder.mkdir()


class InsideTests(BenchCase):
    """The cost of a request inside."""

    def test_answers(self) -> None:
        """Each request that is measured is answered as the real server answers it."""
        inside: Any = import_module("bench.inside").Inside(self.folder)
        for name, [prepared, *_] in inside.requests.items():
            self.assertEqual(inside.ask(prepared).status, prepared.status, name)


@skipUnless(hasattr(sys, "monitoring"), "Python has sys.monitoring from 3.12 on")
class PathTests(BenchCase):
    """The paths of requests through the program."""

    paths: Mapping[str, Any] = MappingProxyType({})

    def setUp(self) -> None:
        """Trace them, once for all tests."""
        super().setUp()
        if not PathTests.paths:
            PathTests.paths = import_module("bench.path").trace_paths(self.folder)

    def test_lengths(self) -> None:
        """No path has become longer than ``LONGEST`` says."""
        self.assertEqual(self.paths.keys(), LONGEST.keys())
        for name, (starts, files) in LONGEST.items():
            path = self.paths[name]
            self.assertLessEqual(len(path.starts), starts, f"{name}: see python -m bench path --list")
            self.assertLessEqual(len(path.files), files, f"{name}: see python -m bench path --list")

    def test_whole(self) -> None:
        """A path goes from the connection, by the read cache, to the audit and back to the connection."""
        for name, path in self.paths.items():
            self.assertEqual(path.files[0], "web/http/connection.py", name)
            functions = [start.function for start in path.starts]
            order = [
                "Channel.dataReceived",
                "Router.respond",
                "CacheEntries.get",
                "_LineWriter.write",
                "Channel._send_bytes",
            ]
            self.assertEqual(sorted(order, key=functions.index), order, name)

    def test_picture(self) -> None:
        """The page on architecture shows the path of a login."""
        picture = draw_path(start.file for start in self.paths["JWT login"].starts)
        self.assertEqual(shown(PAGE.read_text(encoding="utf-8"), "login"), picture, "run python -m tests.pictures")


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
        del sys.modules[name]
