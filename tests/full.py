"""Run all that ``tox`` by itself leaves out, by further runs of tox; ``tox -e full`` does so.

Packages, manifests, image and documentation, one after the other, then the tests: on the Python that tox runs on those that
take long; on the oldest and the newest supported Python of this machine, where they are others, all tests; and on each
between one run through the program. What ``TESTS_ELSEWHERE`` names, such as ``3.11``, is left out and named: the gate runs
the tests there as another user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

#: Environments of tox that test no program.
OTHERS: Final = ("packaging", "manifests", "image", "docs")


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


def main() -> int:
    """Run them all, whatever fails; return the exit code of the whole."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    elsewhere = os.environ.get("TESTS_ELSEWHERE", "").split()
    runs = [(name, name, "") for name in OTHERS]
    for version, part in parts(sorted({own, *_versions()}, key=lambda each: int(each.partition(".")[2])), own).items():
        name = "py" if version == own else f"py{version.replace('.', '')}"
        if version in elsewhere and version != own:
            print(f"Left out: Python {version}, which is tested elsewhere", flush=True)
        else:
            runs.append((f"{part} on Python {version}", name, part))
    outcomes = []
    for title, name, part in runs:
        began = time.monotonic()
        command = [sys.executable, "-m", "tox", "run", "-c", str(ROOT / "tox.ini"), "-e", name]
        code = subprocess.run(command, env={**os.environ, "TESTS_PART": part}, check=False).returncode
        outcomes.append((title, code, time.monotonic() - began))
    for title, code, seconds in outcomes:
        print(f"{title}: exit code {code}, {seconds:.0f} s")
    return int(any(code for _, code, _ in outcomes))


if __name__ == "__main__":
    sys.exit(main())
