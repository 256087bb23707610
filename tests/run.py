"""Run the suite, and show that trial and pytest find the same tests.

The tests import the *installed* program: this script puts a link to ``tests/`` into the current folder, which must not
hold the source tree, and runs them from there, with a process for each core. Arguments are modules or folders of tests,
which both runners run. Without arguments ``TESTS_PART`` says which part of the suite is run:

* ``short``, or nothing: the tests in memory under pytest, which trial's loader must find as many of, and the modules of
  ``tests/integration`` that aren't in ``LONG``. So ``tox`` runs it, and the output ends with what it left out.
* ``rest``: the other modules of ``tests/integration``. ``tox -e full`` runs it on the Python that ``tox`` ran on.
* ``whole``: both, the tests in memory under trial. ``tox -e full`` runs it on the oldest and the newest Python, if they are
  others.
* ``smoke``: the modules of ``SMOKE``, on the Pythons between.
* ``user``: the tests in memory under trial, and the modules of ``tests/integration`` that are short or depend on the user,
  but for those of ``INDEPENDENT`` and ``OF_TREE``, which prove the same for every user. The gate runs it as an ordinary
  one.

With ``CI`` set, a skipped test is a failure.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

TESTS = Path(__file__).resolve().parent

#: How many processes run tests. More get in each other's way: every one has a PostgreSQL of its own.
JOBS: Final = min(os.cpu_count() or 1, 4)
#: One more for tests that take long, which wait for timeouts, restarts and other programs for more than half of their time.
#: With twice as many, checks of health are late now and then, on which some of them depend.
JOBS_OF_REST: Final = JOBS + 1

#: Modules of ``tests/integration`` that take long: histories, faults, clusters, other programs, or many starts.
LONG: Final = frozenset(
    {
        *("agent", "audit", "audit_chain", "audit_search", "backup", "cli", "cloud", "clouds", "cluster"),
        *("connections", "console"),
        *("console_servers", "container", "data_key_rotation", "dead_standby", "directory_rounds", "edge"),
        *("embedded", "embedded_places", "fault_matrix", "faults", "flood", "follower_commands", "followers", "go"),
        *("import", "interrupts", "jose_differential", "last_logins", "ldap_mappings", "lockouts", "memory_contracts"),
        *("memory_histories", "memory_mutants", "memory_rarities", "memory_traps", "openapi", "operations"),
        *("processes", "provider_faults", "proxy", "reads", "remote_health", "restore", "serve_stale", "slim", "smuggling"),
        *("start", "storage", "two_primaries", "unit", "upgrades", "variable_watch", "worker", "workload"),
    }
)

#: Modules of ``tests/integration`` whose tests are the same for every user, and whatever programs are installed.
INDEPENDENT: Final = frozenset(
    {
        *("access", "access_changes", "audit", "audit_chain", "audit_search", "clock", "clouds", "conjur", "connections"),
        *("credentials", "data_key_rotation", "data_keys", "database", "dead_standby", "expiration", "flood", "followers"),
        *("import", "jose_differential", "key_outages", "last_logins", "log", "main_job", "memory_contracts"),
        *("memory_histories",),
        *("memory_mutants", "memory_rarities", "memory_traps", "migrations", "plans", "platforms", "readiness"),
        *("readings", "reads", "refusals", "remote_health", "renewal", "repeats", "replication", "rotation", "search"),
        *("serve_stale", "snapshots", "storage", "storage_facts", "versions", "watches", "worker", "workload"),
    }
)

#: Modules of ``tests`` that read the tree and run nothing of it: they prove the same on every Python and for every user.
OF_TREE: Final = frozenset({"architecture", "names", "prose", "runners", "spec", "surface"})

#: Modules of ``tests/integration`` that take long, and do what depends on the user.
OF_USER: Final = frozenset({"embedded", "embedded_places", "start"})

#: One run through the program, for a Python between the oldest and the newest.
SMOKE: Final = ("tests/crypto", "tests/services", "tests/integration/test_main_job.py")

#: Tests are counted as trial finds them.
_COUNT: Final = """
import sys
from twisted.trial.runner import TestLoader
print(TestLoader().loadByNames(sys.argv[1:], recurse=True).countTestCases())
"""

#: Bytes at the end of a runner's output that have its counts, and name what failed and what was skipped.
_TAIL = 32768


@attrs.frozen
class Outcome:
    """Hold what one runner reported."""

    runner: str
    exit_code: int
    passed: int
    skipped: int


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
    return Outcome(runner, process.returncode, succeeded, left)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has ended, after a moment if need be."""
    try:
        process.wait(0.2)
    except subprocess.TimeoutExpired:
        return False
    return True


def in_memory(part: str) -> list[str]:
    """Return the modules and folders of tests in memory that are in a part of the suite."""
    parts = (*TESTS.glob("test_*.py"), *(folder for folder in TESTS.iterdir() if (folder / "__init__.py").exists()))
    without = {"contracts", "integration"} | ({f"test_{name}.py" for name in OF_TREE} if part == "user" else set[str]())
    return sorted(f"tests/{each.name}" for each in parts if each.name not in without)


def _modules(names: list[str]) -> list[str]:
    return [name.rstrip("/").removesuffix(".py").replace("/", ".") for name in names]


def _trial(names: list[str]) -> Outcome:
    command = [sys.executable, "-m", "twisted.trial", "-j", str(JOBS), *_modules(names)]
    return _run("trial", command, r"successes=(\d+)", r"skips=(\d+)")


def _count_with_trial(names: list[str]) -> int:
    """Return how many tests trial's loader finds."""
    counted = subprocess.run([sys.executable, "-c", _COUNT, *_modules(names)], check=True, capture_output=True, text=True)
    return int(counted.stdout)


def _pytest(names: Sequence[str], jobs: int = JOBS) -> Outcome:
    # Tests of a module stay together as far as they can: they share servers and databases.
    processes = ["-n", str(jobs), "--dist", "worksteal"]
    options = [*processes, "-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", os.curdir, "-rfEs", "--durations=20"]
    return _run("pytest", [sys.executable, "-m", "pytest", *options, *names], r"(\d+) passed", r"(\d+) skipped")


def real_parts(part: str) -> set[str]:
    """Return the modules of ``tests/integration`` that are in a part of the suite, by their names."""
    there = {path.stem.removeprefix("test_") for path in (TESTS / "integration").glob("test_*.py")}
    match part:
        case "short":
            return there - LONG
        case "rest":
            return there & LONG
        case "whole":
            return there
        case "user":
            return (there - LONG - INDEPENDENT) | OF_USER
        case "smoke":
            return {"main_job"}
    raise ValueError(f"{part!r} is no part of the suite")


def _on_real_parts(part: str) -> Outcome:
    """Run the tests on real processes."""
    names = [f"tests/integration/test_{name}.py" for name in sorted(real_parts(part))]
    return _pytest(names, JOBS_OF_REST if part == "rest" else JOBS)


def _run_part(part: str) -> tuple[list[Outcome], set[int]]:
    """Run a part of the suite; return how it went, and how many tests in memory each way of counting them found."""
    if part == "smoke":
        return [_pytest(SMOKE)], set()
    if part == "rest":
        return [_on_real_parts(part)], set()
    names = in_memory(part)
    if part == "short":
        first = _pytest(names)
        found = {_count_with_trial(names), first.passed + first.skipped} if not first.exit_code else set[int]()
    else:
        first, found = _trial(names), set()
    return [first, _on_real_parts(part)], found


def left_out(part: str) -> str:
    """Return what a part of the suite leaves out, and what runs it."""
    left = sorted(real_parts("whole") - real_parts(part))
    also = {"smoke": "most tests in memory, and ", "rest": "the tests in memory, and "}.get(part, "")
    modules = f"of tests/integration {len(left)} modules: {', '.join(left)}"
    return f"Left out: {also}{modules}. `tox -e full` runs what tox leaves out."


def main(arguments: list[str]) -> int:
    """Run them; return the exit code of the whole."""
    link = Path("tests")
    if not link.exists():
        link.symlink_to(TESTS, target_is_directory=True)
    part = os.environ.get("TESTS_PART") or "short"
    if arguments:
        outcomes = [_trial(arguments), _pytest(arguments)]
        counts = {outcome.passed for outcome in outcomes}
    else:
        outcomes, counts = _run_part(part)
    failed = len(counts) > 1
    for outcome in outcomes:
        print(f"{outcome.runner}: {outcome.passed} passed, {outcome.skipped} skipped, exit code {outcome.exit_code}")
        failed |= outcome.exit_code != 0 or outcome.passed == 0 or (bool(os.environ.get("CI")) and outcome.skipped > 0)
    if len(counts) > 1:
        print(f"trial and pytest do not run the same number of tests: {sorted(counts)}")
    if not arguments and part != "whole":
        print(left_out(part))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
