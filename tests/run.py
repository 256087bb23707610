"""Runs the suite under trial and under pytest, and compares: both must pass, with the same tests.

The tests import the *installed* program: this script puts a link to ``tests/`` into the current folder, which must not
hold the source tree, and runs both from there. Arguments are modules or folders of tests, ``tests`` itself by default, and
``--in-memory`` all but those of ``tests/integration``. With ``CI`` set, a skipped test is a failure.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import attrs

TESTS = Path(__file__).resolve().parent


@attrs.frozen
class Outcome:
    """What one runner said."""

    runner: str
    exit_code: int
    passed: int
    skipped: int


def _run(runner: str, command: list[str], passed: str, skipped: str) -> Outcome:
    print(f"== {runner}: {' '.join(command)}", flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        tail: list[str] = []
        for line in process.stdout:
            print(line, end="", flush=True)
            tail = [*tail[-9:], line]
    text = "".join(tail)
    count = [sum(int(n) for n in re.findall(pattern, text)) for pattern in (passed, skipped)]
    return Outcome(runner, process.returncode, *count)


def main(arguments: list[str]) -> int:
    """Run both; return the exit code of the whole."""
    link = Path("tests")
    if not link.exists():
        link.symlink_to(TESTS, target_is_directory=True)
    config = TESTS.parent / "pyproject.toml"
    names = arguments or ["tests"]
    if names == ["--in-memory"]:
        parts = (*TESTS.glob("test_*.py"), *(folder for folder in TESTS.iterdir() if (folder / "__init__.py").exists()))
        names = sorted(f"tests/{part.name}" for part in parts if part.name not in {"integration", "contracts"})
    outcomes = [
        _run(
            "trial",
            [sys.executable, "-m", "twisted.trial", *(n.removesuffix(".py").replace("/", ".") for n in names)],
            r"successes=(\d+)",
            r"skips=(\d+)",
        ),
        _run(
            "pytest",
            [sys.executable, "-m", "pytest", "-c", str(config), "--rootdir", os.curdir, "-rs", *names],
            r"(\d+) passed",
            r"(\d+) skipped",
        ),
    ]
    failed = False
    for outcome in outcomes:
        print(f"{outcome.runner}: {outcome.passed} passed, {outcome.skipped} skipped, exit code {outcome.exit_code}")
        failed |= outcome.exit_code != 0 or outcome.passed == 0 or (bool(os.environ.get("CI")) and outcome.skipped > 0)
    if outcomes[0].passed != outcomes[1].passed:
        print("trial and pytest did not pass the same number of tests")
        failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
