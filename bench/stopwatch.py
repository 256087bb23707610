"""Measures whether the times of refused logins reveal which roles exist.

Note [A stopwatch]. One connection tries logins as hosts that exist and have just logged in, so that they are cached; as
hosts that exist and were never used; as hosts that don't exist, each of them once; and as some of either again and again.
All come in one random order, so that other load of the machine affects all alike. The share of pairs in which a login of one
sort takes longer than one of another (the area under the ROC curve of a guess by a threshold) is 0.5 if time reveals
nothing. By chance alone it differs from 0.5 by a standard error that follows from the numbers; the figure is the largest
difference, in standard errors. Of hosts that are tried again and again, the medians of their times count.
"""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import combinations
from typing import Final, Self

import attrs

from bench import settings
from bench.load import Request
from bench.probe import Line, prepared
from bench.report import Figure
from bench.server import Server, say
from bench.world import API_KEY, JWT, World, by_api_key, by_jwt, forged, wrong

#: How many standard errors by chance alone: once in two thousand times.
ERRORS_MOST: Final = 3.5

#: The sorts of hosts: tried once, and again and again.
REMEMBERED: Final = "remembered"
FORGOTTEN: Final = "not remembered"
UNKNOWN: Final = "unknown"
EXISTING: Final = "existing, again"
MISSING: Final = "unknown, again"
PAIRS: Final = (*combinations((REMEMBERED, FORGOTTEN, UNKNOWN), 2), (EXISTING, MISSING))


@attrs.frozen
class Stopwatch:
    """The milliseconds of refused logins, by the sort of the host; of each that is tried again, their median."""

    times: dict[str, list[float]]

    @classmethod
    def held(cls, server: Server, world: World) -> dict[str, Self]:
        """Ask for hosts that a server doesn't know yet, by all sorts of logins."""
        found: dict[str, Self] = {}
        for name, logins in _all_logins(world).items():
            say(f"stopwatch: {name}")
            found[f"{name}: a stopwatch"] = cls._held(server, logins)
        return found

    @classmethod
    def _held(cls, server: Server, logins: Logins) -> Self:
        once, subjects = settings.STOPWATCH_ONCE, settings.STOPWATCH_SUBJECTS
        existing, missing, own = (iter(each) for each in (logins.existing, logins.missing, logins.accepted))
        asked = [(REMEMBERED, number, next(own), next(existing)) for number in range(once)]
        # Before each, some host logs in: the same one where it is to be cached.
        some = [accepted for _, _, accepted, _ in asked]
        for sort, refused in ((FORGOTTEN, existing), (UNKNOWN, missing)):
            asked += [(sort, number, random.choice(some), next(refused)) for number in range(once)]
        for sort, refused in ((EXISTING, existing), (MISSING, missing)):
            for number in range(subjects):
                login = next(refused)
                asked += [(sort, number, random.choice(some), login) for _ in range(settings.STOPWATCH_TIMES)]
        random.shuffle(asked)
        line, times = Line.to(server.url), dict[tuple[str, int], list[float]]()
        for sort, number, accepted, refused_login in asked:
            line.span(accepted)
            begin, end = line.span(refused_login, {401})
            times.setdefault((sort, number), []).append((end - begin) * 1000)
        line.close()
        return cls({of: [statistics.median(t) for (sort, _), t in times.items() if sort == of] for of, _, _, _ in asked})

    def figure(self, name: str) -> Figure:
        """The largest difference."""
        told = [(*pair, *_told(*(self.times[sort] for sort in pair))) for pair in PAIRS]
        medians = ", ".join(f"{sort} {statistics.median(times):.2f} ms" for sort, times in sorted(self.times.items()))
        origin = "; ".join(f"{one} beside {other} {often:.3f}" for one, other, often, _ in told)
        worst = max(errors for *_, errors in told)
        return Figure(name, worst, "standard errors", ERRORS_MOST, f"{origin}; medians: {medians}")


def _told(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """How often one takes longer than the other, and by how many standard errors that isn't half of the times."""
    ordered, pairs = sorted(other), len(one) * len(other)
    often = sum(bisect_left(ordered, each) + bisect_right(ordered, each) for each in one) / 2 / pairs
    return often, abs(often - 0.5) / math.sqrt((len(one) + len(other) + 1) / (12 * pairs))


@attrs.frozen
class Logins:
    """Logins of one sort, prepared: of hosts that exist, refused and accepted, and of hosts that don't."""

    existing: Sequence[bytes]
    accepted: Sequence[bytes]
    missing: Sequence[bytes]

    @classmethod
    def of(cls, existing: Sequence[Request], accepted: Sequence[Request], missing: Sequence[Request]) -> Self:
        """Prepare them."""
        return cls(*([prepared(request) for request in each] for each in (existing, accepted, missing)))


def _all_logins(world: World) -> dict[str, Logins]:
    """The sorts of logins, each of which asks for hosts of its own."""
    count = 2 * settings.STOPWATCH_ONCE + settings.STOPWATCH_SUBJECTS
    forging, claiming, keyed = (range(begin, begin + count) for begin in range(0, 3 * count, count))
    jwt, by_jwts, by_keys = world.provider.jwt, world.requests[JWT], world.requests[API_KEY]
    return {
        f"{JWT}, signature wrong": Logins.of(
            [by_jwt(forged(jwt(n))) for n in forging],
            by_jwts[forging.start :],
            [by_jwt(forged(jwt(n, sub=f"missing-{n}"))) for n in forging],
        ),
        f"{JWT}, claim wrong": Logins.of(
            [by_jwt(jwt(n, claim0="another")) for n in claiming],
            by_jwts[claiming.start :],
            [by_jwt(jwt(n, claim0="another", sub=f"missing-{n}")) for n in claiming],
        ),
        f"{API_KEY}, key wrong": Logins.of(
            [wrong(by_keys[n]) for n in keyed],
            by_keys[keyed.start :],
            [by_api_key(f"apps/missing-{n}", by_keys[n].body) for n in keyed],
        ),
    }
