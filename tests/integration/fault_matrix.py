"""The fault matrix: every fault that is tried, how it is tried, and the part of a page that tells what came of it.

``python -m tests.integration.fault_matrix --write docs/operations/health.md`` tries all of them, which takes some
minutes, and writes the table there.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, FirstError
from twisted.internet.task import react
from twisted.trial.unittest import SkipTest

from tests.integration import slapd
from tests.integration.bed import INTERVAL, Bed, discard, the_bed
from tests.integration.faults import OF_POSTGRES, OF_ROWS
from tests.integration.faults_around import OF_MEMBERS, OF_PROCESSES, OF_SERVICES, PROMOTED
from tests.integration.observing import CALM, LIVE, TOLERANCE, Observer
from tests.integration.verdicts import Fault

reactor: Any = installed_reactor

#: All faults, in the order of the page. The last one ends the bed.
FAULTS: Final = (*OF_POSTGRES, *OF_ROWS, *OF_SERVICES, *OF_PROCESSES, *OF_MEMBERS, PROMOTED)

#: The servers that may be expected to be ready to write: the primary, and at the end both.
_COULD_WRITE: Final = {False: {"primary"}, True: {"primary", "follower"}}

#: Between these lines of the page stands what is written.
BEGIN: Final = "<!-- Written by: python -m tests.integration.fault_matrix --write docs/operations/health.md -->"
END: Final = "<!-- End of what is written -->"

_HEAD: Final = (
    "| fault | primary | follower | third member | told within | told by others within | recovery within |",
    "|---|---|---|---|---|---|---|",
)


@attrs.frozen
class Outcome:
    """What was measured: seconds until a server told the truth of itself, and of others; and of the fault's end."""

    own: float
    afar: float
    recovery: float | None


async def tried(fault: Fault) -> Outcome:
    """Try a fault; a bed on which that went wrong isn't used again.

    :raises SkipTest: it can't be caused here.
    :raises AssertionError: somebody doesn't tell the truth.
    """
    try:
        bed = await the_bed()
        if fault.mounts and not bed.primary.disk.mounted:
            raise SkipTest("this process may not mount a disk that could be filled")
        if fault.ldap and bed.slapd is None:
            raise SkipTest(slapd.unavailable() or "slapd isn't installed")
        outcome = await _tried(bed, fault)
    except SkipTest:
        raise
    except FirstError as error:
        discard()
        raise AssertionError(error.subFailure.getErrorMessage()) from error
    except BaseException:
        discard()
        raise
    if fault.ends_bed:
        discard()
    return outcome


async def _tried(bed: Bed, fault: Fault) -> Outcome:
    observer = Observer(bed)
    try:
        await observer.comes(CALM, reactor.seconds())
        try:
            await fault.inject(bed)
            times = await observer.settles(fault, reactor.seconds())
            if fault.told is not None:
                await observer.told(fault)
            for server in ("primary", "follower") if fault.hangs else ():
                took = await observer.liveness(server)
                assert took < LIVE, f"{server}'s /livez takes {took:.3f} s"
        finally:
            await fault.undo(bed)
        undone = reactor.seconds()
        recovery = None if fault.ends_bed else max((await observer.settles(CALM, undone)).values())
    finally:
        await observer.close()
    own = max(seconds for route, seconds in times.items() if not route.afar)
    afar = max(seconds for route, seconds in times.items() if route.afar)
    for what, seconds, limit in (
        ("the truth", own, fault.within * INTERVAL),
        ("the truth of others", afar, fault.within * INTERVAL + fault.afar),
        ("recovery", recovery or 0.0, fault.recovery * INTERVAL + fault.afar),
    ):
        assert seconds <= limit + TOLERANCE, f"{fault.name}: {what} took {seconds:.1f} s"
    return Outcome(own, afar, recovery)


def cells(fault: Fault) -> str:
    """The beginning of a fault's line: what is to be told."""
    follower = _told(fault, "follower") + (f"; {fault.telling}" if fault.telling else "")
    third = "200" if fault.third == "ok" else f"502: {fault.third}"
    return f"| {fault.words} | {_told(fault, 'primary')} | {follower} | {third} |"


def _told(fault: Fault, server: str) -> str:
    verdict = fault.of(server)
    if verdict.gone:
        return f"{verdict}; remote 502: unreachable"
    if verdict.ok:
        return "200"
    # Whether it is ready to write is told of who could be.
    statuses = [verdict.ready, *([fault.writes(server)] if verdict.ready and server in _COULD_WRITE[fault.ends_bed] else [])]
    ready = ", to write ".join("200" if status else "503" for status in statuses)
    return f"{verdict}; live 200, ready {ready}, remote 502"


def _line(fault: Fault, outcome: Outcome) -> str:
    recovery = "" if outcome.recovery is None else _intervals(outcome.recovery)
    return f"{cells(fault)} {_intervals(outcome.own)} | {_intervals(outcome.afar)} | {recovery} |"


def _intervals(seconds: float) -> str:
    """Whole intervals, at least two: what varies with each measurement would tell nobody anything."""
    return str(max(2, math.ceil(seconds / INTERVAL)))


def written(page: str, outcomes: Mapping[str, Outcome]) -> str:
    """Return the page with the new table."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = (*_HEAD, *(_line(fault, outcomes[fault.name]) for fault in FAULTS))
    return "\n".join((before + BEGIN, "", *lines, "", END + after))


async def _main(path: Path) -> None:
    outcomes = {}
    for fault in FAULTS:
        outcomes[fault.name] = outcome = await tried(fault)
        print(f"{fault.name}: {attrs.asdict(outcome)}", flush=True)  # noqa: T201 (a command speaks)
    path.write_text(written(path.read_text(encoding="utf-8"), outcomes), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, required=True, metavar="PAGE")
    given = parser.parse_args()
    react(lambda _: Deferred.fromCoroutine(_main(given.write)))
