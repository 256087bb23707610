"""Runs the suite under trial and under pytest, and compares: both must pass, with the same tests.

The tests import the *installed* program: this script puts a link to ``tests/`` into the current folder, which must not
hold the source tree, and runs both from there, with a process for each core. Arguments are modules or folders of tests. By
default they are the tests in memory, and on the newest Python of those that this machine has ``tests/integration`` too: what
those test takes minutes, and depends on the version of Python little. With ``CI`` set, a skipped test is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import attrs

TESTS = Path(__file__).resolve().parent

#: More processes than this get in each other's way: every one has a PostgreSQL of its own.
JOBS = min(os.cpu_count() or 1, 4)


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


def _newest() -> bool:
    """Whether no newer Python that is supported runs on this machine."""
    newer = (f"python3.{minor}" for minor in range(sys.version_info.minor + 1, 14))
    return not any(shutil.which(name) and subprocess.run([name, "-c", ""], check=False).returncode == 0 for name in newer)


def _all() -> list[str]:
    parts = (*TESTS.glob("test_*.py"), *(folder for folder in TESTS.iterdir() if (folder / "__init__.py").exists()))
    left_out = {"contracts"} if _newest() else {"contracts", "integration"}
    return sorted(f"tests/{part.name}" for part in parts if part.name not in left_out)


def main(arguments: list[str]) -> int:
    """Run both; return the exit code of the whole."""
    link = Path("tests")
    if not link.exists():
        link.symlink_to(TESTS, target_is_directory=True)
    config = TESTS.parent / "pyproject.toml"
    names = arguments or _all()
    jobs = str(JOBS)
    outcomes = [
        _run(
            "trial",
            [sys.executable, "-m", "twisted.trial", "-j", jobs, *(n.removesuffix(".py").replace("/", ".") for n in names)],
            r"successes=(\d+)",
            r"skips=(\d+)",
        ),
        _run(
            "pytest",
            [sys.executable, "-m", "pytest", "-n", jobs, "-c", str(config), "--rootdir", os.curdir, "-rs", *names],
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
