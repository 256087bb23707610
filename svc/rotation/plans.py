"""Plans of expiration and rotation, read from the annotations of a variable.

Policy takes any annotation, and a load doesn't know the words of rotators. So unusable annotations are found when the loop
runs: the fault is shown on the resource and in the log, and the value is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from svc.model.expiration import LIFETIME, ROTATION_LIFETIME, ROTATOR, Duration, IRotator

#: The shortest interval of rotations, in seconds: each is recorded, and the records are kept for a year.
SHORTEST_INTERVAL: Final = 1.0


@attrs.frozen
class ExpirationPlan:
    """A plan by which values expire ``lifetime`` after they were set, or never."""

    lifetime: Duration | None


@attrs.frozen
class RotationPlan:
    """A plan by which values are replaced after every ``interval``."""

    rotator: IRotator
    interval: Duration


@attrs.frozen
class UnusablePlan:
    """Annotations that allow no plan; ``fault`` says what is wrong with them."""

    fault: str


Plan = ExpirationPlan | RotationPlan | UnusablePlan


def parse_plan(annotations: Mapping[str, str], rotators: Mapping[str, IRotator]) -> Plan:
    """Return the plan of annotations. A variable with a rotator is rotated, whatever the others are."""
    name = annotations.get(ROTATOR)
    if name is None:
        text = annotations.get(LIFETIME)
        lifetime = None if text is None else _parse_duration(LIFETIME, text)
        return lifetime if isinstance(lifetime, UnusablePlan) else ExpirationPlan(lifetime)
    rotator = rotators.get(name)
    if rotator is None:
        return UnusablePlan(f"{ROTATOR} names no rotator; there are: {', '.join(sorted(rotators))}")
    text = annotations.get(ROTATION_LIFETIME)
    if text is None:
        return UnusablePlan(f"{ROTATION_LIFETIME} is missing: it says how often the value is replaced, such as P30D")
    objection = rotator.find_annotation_fault(annotations)
    if objection is not None:
        return UnusablePlan(objection)
    interval = _parse_duration(ROTATION_LIFETIME, text)
    if isinstance(interval, UnusablePlan):
        return interval
    if not (interval.months or interval.days) and interval.seconds < SHORTEST_INTERVAL:
        return UnusablePlan(f"{ROTATION_LIFETIME} must be at least PT{SHORTEST_INTERVAL:g}S")
    return RotationPlan(rotator, interval)


def find_rotation_fault(annotations: Mapping[str, str], rotators: Mapping[str, IRotator]) -> str | None:
    """Return why a variable with these annotations can't be rotated; ``None`` when it can."""
    if ROTATOR not in annotations:
        return f"it has no annotation {ROTATOR}; there are: {', '.join(sorted(rotators))}"
    plan = parse_plan(annotations, rotators)
    return plan.fault if isinstance(plan, UnusablePlan) else None


def _parse_duration(name: str, text: str) -> Duration | UnusablePlan:
    try:
        return Duration.parse(text)
    except ValueError as error:
        return UnusablePlan(f"{name} {error}")
