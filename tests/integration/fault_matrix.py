"""The fault matrix: every fault that is tried, how it is tried, and the page that tells what came of it."""

from __future__ import annotations

from typing import Any, Final

import attrs
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import FirstError
from twisted.trial.unittest import SkipTest

from tests.integration.bed import INTERVAL, Bed, discard, the_bed
from tests.integration.faults import OF_POSTGRES, OF_ROWS
from tests.integration.observing import CALM, LIVE, TOLERANCE, Observer
from tests.integration.verdicts import Fault

reactor: Any = installed_reactor

FAULTS: Final = (*OF_POSTGRES, *OF_ROWS)

#: How long the end of a fault may stay unknown, in seconds: what was lost has to be connected to again.
_RECOVERY: Final = 10.0


@attrs.frozen
class Outcome:
    """What was measured: seconds until a server told the truth of itself, and of others; and of the fault's end."""

    own: float
    afar: float
    recovery: float


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
            raise SkipTest("slapd isn't installed")
        outcome = await _tried(bed, fault)
    except SkipTest:
        raise
    except FirstError as error:
        discard()
        raise error.subFailure.value from None
    except BaseException:
        discard()
        raise
    if fault.ends_bed:
        discard()
    return outcome


async def _tried(bed: Bed, fault: Fault) -> Outcome:
    observer = Observer(bed)
    try:
        await observer.settles(CALM, reactor.seconds())
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
        recovery = 0.0 if fault.ends_bed else max((await observer.settles(CALM, undone)).values())
    finally:
        await observer.close()
    own = max([seconds for route, seconds in times.items() if not route.afar])
    afar = max([seconds for route, seconds in times.items() if route.afar], default=0.0)
    for what, seconds, limit in (
        ("the truth", own, fault.within * INTERVAL),
        ("the truth of others", afar, fault.within * INTERVAL + fault.afar),
        ("recovery", recovery, _RECOVERY),
    ):
        assert seconds <= limit + TOLERANCE, f"{fault.name}: {what} took {seconds:.1f} s"
    if __import__("os").environ.get("TELL"): print(f"{own:.2f} {afar:.2f} {recovery:.2f}", end=" ")
    return Outcome(own, afar, recovery)
