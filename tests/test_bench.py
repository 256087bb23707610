"""The bench of ``bench/``, as far as it needs no load and no database."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

BENCH = Path(__file__).resolve().parent.parent / "bench"


class InsideTests(SynchronousTestCase):
    """What a request costs inside."""

    def setUp(self) -> None:
        """Make the bench importable, which is not installed."""
        place = importlib.util.spec_from_file_location(
            "bench", BENCH / "__init__.py", submodule_search_locations=[str(BENCH)]
        )
        assert place is not None
        sys.modules["bench"] = importlib.util.module_from_spec(place)
        self.addCleanup(_forget)

    def test_answers(self) -> None:
        """Each request that is measured is answered as the real server answers it."""
        folder = Path(self.mktemp())
        folder.mkdir()
        inside: Any = import_module("bench.inside").Inside(folder)
        for name, [prepared, *_] in inside.requests.items():
            self.assertEqual(inside.ask(prepared).status, prepared.status, name)


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
        del sys.modules[name]
