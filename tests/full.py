"""Run all that ``tox`` by itself leaves out, by further runs of tox; ``tox -e full`` does so.

The tests: on the Python that tox runs on those that take long; on the oldest and the newest supported Python of this
machine, where they are others, all tests. Beside them, one after the other, with their output below that of the tests:
documentation, manifests, image and packages, and on each Python between one run through the program. What
``TESTS_ELSEWHERE`` names, such as ``3.11``, is left out and named: the gate runs the tests there as another user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent

#: Environments of tox that test no program. The tests have their wheel before the last of them builds in the same folder.
OTHERS: Final = ("docs", "manifests", "image", "packaging")


def parts(versions: Sequence[str], own: str) -> dict[str, str]:
    """Return the part of the suite that each version runs; ``versions`` are in order, ``own`` ran the short part."""
    ends = {versions[0], versions[-1]}
    return {version: "rest" if version == own else "whole" if version in ends else "smoke" for version in versions}


def _versions() -> list[str]:
    """Return the supported versions of Python that this machine has, the oldest first."""
    pythons = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["svc"]["pythons"]
    # Some of those on the path are there only to say that they aren't.
    return [version for version in pythons if _runs(f"python{version}")]


def _runs(name: str) -> bool:
    return (
        shutil.which(name) is not None and not subprocess.run([name, "-c", ""], check=False, capture_output=True).returncode
    )


class Run(NamedTuple):
    """A run of an environment of tox; ``part`` is that of the suite, if it is one of tests."""

    title: str
    environment: str
    part: str = ""

    def perform(self, output: IO[str] | None = None) -> tuple[int, float]:
        """Return the exit code, and how many seconds it took; ``output`` gets what it prints, instead of this process's."""
        began = time.monotonic()
        command = [sys.executable, "-m", "tox", "run", "-c", str(ROOT / "tox.ini"), "-e", self.environment]
        environ = {**os.environ, "TESTS_PART": self.part}
        code = subprocess.run(
            command, env=environ, stdout=output, stderr=output and subprocess.STDOUT, check=False
        ).returncode
        return code, time.monotonic() - began


def main() -> int:
    """Run them all, whatever fails; return the exit code of the whole."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    elsewhere = os.environ.get("TESTS_ELSEWHERE", "").split()
    beside, runs = [Run(name, name) for name in OTHERS], list[Run]()
    for version, part in parts(sorted({own, *_versions()}, key=lambda each: int(each.partition(".")[2])), own).items():
        name = "py" if version == own else f"py{version.replace('.', '')}"
        if version in elsewhere and version != own:
            print(f"Left out: Python {version}, which is tested elsewhere", flush=True)
        else:
            (beside if part == "smoke" else runs).append(Run(f"{part} on Python {version}", name, part))
    with tempfile.TemporaryFile("w+") as output, ThreadPoolExecutor(1) as thread:
        waiting = [thread.submit(run.perform, output) for run in beside]
        outcomes = [(run, *run.perform()) for run in runs]
        outcomes += [(run, *each.result()) for run, each in zip(beside, waiting, strict=True)]
        output.seek(0)
        shutil.copyfileobj(output, sys.stdout)
    for run, code, seconds in outcomes:
        print(f"{run.title}: exit code {code}, {seconds:.0f} s")
    return int(any(code for _, code, _ in outcomes))


if __name__ == "__main__":
    sys.exit(main())
