"""How the tests run under pytest: in a folder of their own, and in the reactor that pytest-twisted runs.

A test that waits is a coroutine method of trial's ``TestCase``, and awaits Deferreds and coroutines; trial runs it as it
stands. By itself a ``TestCase`` starts the reactor for each wait and crashes it after, also under pytest, which a test that
is written for pytest-twisted doesn't survive. So here both wait in one reactor, which runs from the first wait to the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

import svc


def _wait(_: TestCase, outcome: Deferred[Any]) -> None:
    """Wait for the end of a test, whose failure has been reported by then."""
    # The reactor stands still where a test ended until the next one waits, and trial iterates it meanwhile. In a timed call
    # that is safe; in one from a thread the reactor would make the call a second time.
    pytest_twisted.blockon(outcome.addBoth(lambda _: deferLater(reactor, 0)))


@pytest.fixture(scope="session", autouse=True)
def surroundings() -> Iterator[None]:
    """Have test cases wait in pytest-twisted's reactor, and leave their files in a folder that is removed."""
    # Not pytest's own, which is closed to the users that servers run as.
    folder = Path(tempfile.mkdtemp(prefix="svc-tests-", dir="/tmp"))
    folder.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TestCase, "_wait", _wait)
        patch.chdir(folder)
        # Programs that tests start find the same svc from there.
        patch.setenv("PYTHONPATH", str(Path(svc.__file__).parent.parent), prepend=os.pathsep)
        yield
    shutil.rmtree(folder, ignore_errors=True)
