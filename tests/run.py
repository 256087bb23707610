"""Run the suite, and show that trial and pytest find the same tests.

The tests import the *installed* program: this script puts a link to ``tests/`` into the current folder, which must not
hold the source tree, and runs them from there, with a process for each core. Arguments are modules or folders of tests,
which both runners run. Without arguments the newest Python of those that this machine has runs the tests in memory under
pytest, counts them with trial's loader, and runs those of ``tests/integration`` under pytest (see ``conftest.py``); an older
one runs those in memory under trial: what the others test takes minutes, and depends little on the version.

With ``CI`` set, a skipped test is a failure. ``TESTS_RUNNER=trial`` runs the tests in memory under trial on the newest
Python, too, and ``TESTS_LEFT_OUT=user`` (or ``root``) leaves out these modules of ``INDEPENDENT``: the gate runs the suite
for two users, and those once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

TESTS = Path(__file__).resolve().parent

#: More processes than this get in each other's way: every one has a PostgreSQL of its own.
JOBS = str(min(os.cpu_count() or 1, 4))

#: Modules of ``tests/integration`` whose tests are the same for every user, and whatever programs are installed. Where the
#: gate runs the suite for two users, each leaves out those of the other.
INDEPENDENT: Final[Mapping[str, frozenset[str]]] = {
    "root": frozenset({"data_key_rotation", "jose_differential", "memory_contracts", "memory_histories", "storage"}),
    "user": frozenset(
        {
            *("access", "access_changes", "audit", "audit_chain", "clock", "clouds", "conjur", "connections"),
            *("credentials", "data_keys", "database", "dead_standby", "expiration", "flood", "followers"),
            *("key_outages", "last_logins", "log", "main_job", "memory_mutants", "memory_rarities"),
            *("memory_traps", "migrations", "plans", "platforms", "readiness", "readings", "refusals"),
            *("remote_health", "renewal", "repeats", "replication", "rotation", "search", "serve_stale"),
            *("snapshots", "storage_facts", "versions", "watches", "worker", "workload"),
        }
    ),
}

#: Tests are counted as trial finds them.
_COUNT: Final = """
import sys
from twisted.trial.runner import TestLoader
print(TestLoader().loadByNames(sys.argv[1:], recurse=True).countTestCases())
"""

#: Bytes at the end of a runner's output that have its counts, and name what failed and what was skipped.
_TAIL = 32768

#: As many tests may fail beside others and pass by themselves.
_AGAIN = 3


@attrs.frozen
class Outcome:
    """Hold what one runner reported."""

    runner: str
    exit_code: int
    passed: int
    skipped: int
    failed: tuple[str, ...] = ()


def _run(runner: str, command: list[str], passed: str, skipped: str) -> Outcome:
    print(f"== {runner}: {' '.join(command)}", flush=True)
    # A file has an end; a pipe has none for as long as a process that a test has left behind holds it.
    text = b""
    with tempfile.NamedTemporaryFile() as output, Path(output.name).open("rb") as reading:
        process, ended = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT), False
        while not ended:
            ended = _ended(process)
            piece = reading.read()
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()
            text = (text + piece)[-_TAIL:]
    said = text.decode(errors="replace")
    succeeded, left = (sum(int(n) for n in re.findall(pattern, said)) for pattern in (passed, skipped))
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    return Outcome(runner, process.returncode, succeeded, left, tuple(dict.fromkeys(failed)))


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has ended, after a moment if need be."""
    try:
        process.wait(0.2)
    except subprocess.TimeoutExpired:
        return False
    return True


def _newest() -> bool:
    """Return whether no newer Python that is supported runs on this machine."""
    settings = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["svc"]
    minors = [int(version.partition(".")[2]) for version in settings["pythons"]]
    newer = (f"python3.{minor}" for minor in minors if minor > sys.version_info.minor)
    # Some of those on the path are there only to say that they aren't.
    runs = (
        shutil.which(name) and not subprocess.run([name, "-c", ""], check=False, capture_output=True).returncode
        for name in newer
    )
    return not any(runs)


def _in_memory() -> list[str]:
    parts = (*TESTS.glob("test_*.py"), *(folder for folder in TESTS.iterdir() if (folder / "__init__.py").exists()))
    return sorted(f"tests/{part.name}" for part in parts if part.name not in {"contracts", "integration"})


def _modules(names: list[str]) -> list[str]:
    return [name.rstrip("/").removesuffix(".py").replace("/", ".") for name in names]


def _trial(names: list[str]) -> Outcome:
    command = [sys.executable, "-m", "twisted.trial", "-j", JOBS, *_modules(names)]
    return _run("trial", command, r"successes=(\d+)", r"skips=(\d+)")


def _count_with_trial(names: list[str]) -> int:
    """Return how many tests trial's loader finds."""
    counted = subprocess.run([sys.executable, "-c", _COUNT, *_modules(names)], check=True, capture_output=True, text=True)
    return int(counted.stdout)


def _pytest(names: Sequence[str], jobs: str = JOBS) -> Outcome:
    options = ["-n", jobs, "-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", os.curdir, "-rfEs"]
    return _run("pytest", [sys.executable, "-m", "pytest", *options, *names], r"(\d+) passed", r"(\d+) skipped")


def _on_real_parts() -> Outcome:
    """Run the tests on real processes; a few that failed once more, by themselves.

    They wait for other processes, so that one fails now and then for what a busy machine does. What passes by itself is
    named all the same.
    """
    left = sorted(INDEPENDENT[os.environ["TESTS_LEFT_OUT"]]) if "TESTS_LEFT_OUT" in os.environ else []
    if left:
        print(f"Left out, since the gate's other user runs them: {', '.join(left)}", flush=True)
    first = _pytest(["tests/integration", *(f"--ignore=tests/integration/test_{name}.py" for name in left)])
    if first.exit_code != 1 or not 0 < len(first.failed) <= _AGAIN:
        return first
    again = _pytest(first.failed, "0")
    if again.exit_code or again.passed != len(first.failed):
        return first
    for name in first.failed:
        print(f"FAILED beside others, and passed by itself: {name}")
    return attrs.evolve(first, exit_code=0, passed=first.passed + again.passed)


def main(arguments: list[str]) -> int:
    """Run them; return the exit code of the whole."""
    link = Path("tests")
    if not link.exists():
        link.symlink_to(TESTS, target_is_directory=True)
    names, newest = arguments or _in_memory(), _newest()
    if arguments:
        same = [_trial(names), _pytest(names)]
        counts = {outcome.passed for outcome in same}
    elif not newest or os.environ.get("TESTS_RUNNER") == "trial":
        same, counts = [_trial(names)], set[int]()
    else:
        same = [_pytest(names)]
        counts = {_count_with_trial(names), *(each.passed + each.skipped for each in same if not each.exit_code)}
    outcomes = [*same, _on_real_parts()] if newest and not arguments else same
    failed = len(counts) > 1
    for outcome in outcomes:
        print(f"{outcome.runner}: {outcome.passed} passed, {outcome.skipped} skipped, exit code {outcome.exit_code}")
        failed |= outcome.exit_code != 0 or outcome.passed == 0 or (bool(os.environ.get("CI")) and outcome.skipped > 0)
    if len(counts) > 1:
        print(f"trial and pytest do not run the same number of tests: {sorted(counts)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
