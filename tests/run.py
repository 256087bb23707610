"""Run the suite under trial and under pytest, and compare: both must pass, with the same tests.

The tests import the *installed* program: this script puts a link to ``tests/`` into the current folder, which must not
hold the source tree, and runs both from there, with a process for each core. Arguments are modules or folders of tests.
Without arguments the newest Python of those that this machine has runs the tests in memory under both and those of
``tests/integration`` under pytest (see ``conftest.py``), and an older one those in memory under trial: what the others test
takes minutes, and depends little on who runs them. With ``CI`` set, a skipped test is a failure.
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
JOBS = str(min(os.cpu_count() or 1, 4))


@attrs.frozen
class Outcome:
    """Hold what one runner reported."""

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
    """Return whether no newer Python that is supported runs on this machine."""
    newer = (f"python3.{minor}" for minor in range(sys.version_info.minor + 1, 14))
    # Some of those on the path are there only to say that they aren't.
    runs = (
        shutil.which(name) and not subprocess.run([name, "-c", ""], check=False, capture_output=True).returncode
        for name in newer
    )
    return not any(runs)


def _in_memory() -> list[str]:
    parts = (*TESTS.glob("test_*.py"), *(folder for folder in TESTS.iterdir() if (folder / "__init__.py").exists()))
    return sorted(f"tests/{part.name}" for part in parts if part.name not in {"contracts", "integration"})


def _trial(names: list[str]) -> Outcome:
    modules = [name.rstrip("/").removesuffix(".py").replace("/", ".") for name in names]
    command = [sys.executable, "-m", "twisted.trial", "-j", JOBS, *modules]
    return _run("trial", command, r"successes=(\d+)", r"skips=(\d+)")


def _pytest(names: list[str]) -> Outcome:
    options = ["-n", JOBS, "-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", os.curdir, "-rs"]
    return _run("pytest", [sys.executable, "-m", "pytest", *options, *names], r"(\d+) passed", r"(\d+) skipped")


def main(arguments: list[str]) -> int:
    """Run them; return the exit code of the whole."""
    link = Path("tests")
    if not link.exists():
        link.symlink_to(TESTS, target_is_directory=True)
    names, newest = arguments or _in_memory(), _newest()
    same = [_trial(names), _pytest(names)] if arguments or newest else [_trial(names)]
    outcomes = [*same, _pytest(["tests/integration"])] if newest and not arguments else same
    failed = False
    for outcome in outcomes:
        print(f"{outcome.runner}: {outcome.passed} passed, {outcome.skipped} skipped, exit code {outcome.exit_code}")
        failed |= outcome.exit_code != 0 or outcome.passed == 0 or (bool(os.environ.get("CI")) and outcome.skipped > 0)
    if len({outcome.passed for outcome in same}) > 1:
        print("trial and pytest did not pass the same number of tests")
        failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
