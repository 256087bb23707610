"""Plans of expiration and rotation, read from the annotations of a variable.

Policy takes any annotation, as the installed base does, and a load doesn't know which words rotators will take. So what
can't be used is found when the loop looks: it is told on the resource and in the log, and the value is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from svc.model.expiration import LIFETIME, ROTATION_LIFETIME, ROTATOR, Duration, IRotator

#: The shortest time from one rotation to the next, in seconds: each is recorded, and the records are kept for a year.
SHORTEST_INTERVAL: Final = 1.0


@attrs.frozen
class Lives:
    """Values end so long after they were set, or not at all."""

    lifetime: Duration | None


@attrs.frozen
class Rotates:
    """Values are replaced so often."""

    rotator: IRotator
    interval: Duration


@attrs.frozen
class UnusablePlan:
    """Annotations that allow no plan; ``fault`` says what is wrong with them."""

    fault: str


Plan = Lives | Rotates | UnusablePlan


def plan_of(annotations: Mapping[str, str], rotators: Mapping[str, IRotator]) -> Plan:
    """Return the plan that annotations ask for. A variable with a rotator is rotated, whatever else they say."""
    name = annotations.get(ROTATOR)
    if name is None:
        lifetime = annotations.get(LIFETIME)
        return Lives(None) if lifetime is None else _read(LIFETIME, lifetime, Lives)
    rotator = rotators.get(name)
    if rotator is None:
        return UnusablePlan(f"{ROTATOR} names no rotator; there are: {', '.join(sorted(rotators))}")
    interval = annotations.get(ROTATION_LIFETIME)
    if interval is None:
        return UnusablePlan(f"{ROTATION_LIFETIME} is missing: it says how often the value is replaced, such as P30D")
    objection = rotator.objection(annotations)
    if objection is not None:
        return UnusablePlan(objection)
    return _read(ROTATION_LIFETIME, interval, lambda read: _rotates(rotator, read))


def _rotates(rotator: IRotator, interval: Duration) -> Plan:
    if not (interval.months or interval.days) and interval.seconds < SHORTEST_INTERVAL:
        return UnusablePlan(f"{ROTATION_LIFETIME} must be at least PT{SHORTEST_INTERVAL:g}S")
    return Rotates(rotator, interval)


def _read(name: str, text: str, make: Callable[[Duration], Plan]) -> Plan:
    try:
        duration = Duration.parse(text)
    except ValueError as error:
        return UnusablePlan(f"{name} {error}")
    return make(duration)
