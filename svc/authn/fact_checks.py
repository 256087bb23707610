"""Checks of a login by key or password, in decisions and in explanations (``evaluation``, Note [One table]).

All facts are collected before the first check, by the same work for every role; then one table decides and explains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import attrs

from svc.model.authentication import ExplanationStep
from svc.model.reasons import Reason

F = TypeVar("F")

Objection = tuple[Reason, str]


@attrs.frozen(eq=False)
class FactCheck(Generic[F]):
    """A check by its name: ``objection`` says why the facts refuse the login, ``describe`` what passed.

    ``of_evidence``: it means nothing while no key or password is tried.
    """

    name: str
    objection: Callable[[F], Objection | None]
    describe: Callable[[F], str]
    of_evidence: bool = False


def first_objection(checks: Sequence[FactCheck[F]], facts: F, *, tried: bool = True) -> Objection | None:
    """Return the failure that counts; ``None`` where there is none."""
    for check in checks:
        if tried or not check.of_evidence:
            objection = check.objection(facts)
            if objection is not None:
                return objection
    return None


def explain_steps(checks: Sequence[FactCheck[F]], facts: F, *, tried: bool = True) -> tuple[ExplanationStep, ...]:
    """Return the outcome of every check, of which the first that fails is the one that counts."""
    steps: list[ExplanationStep] = []
    failed = False
    for check in checks:
        if failed:
            steps.append(ExplanationStep(check.name, "not reached"))
        elif not tried and check.of_evidence:
            steps.append(ExplanationStep(check.name, "not tried"))
        elif (objection := check.objection(facts)) is not None:
            failed = True
            steps.append(ExplanationStep(check.name, "failed", objection[1], objection[0]))
        else:
            steps.append(ExplanationStep(check.name, "passed", check.describe(facts)))
    return tuple(steps)
