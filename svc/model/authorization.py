"""Decisions, with their reasons, on what a role may do to a resource; made on ``AccessFacts``.

The rules (ROLE-1 to ROLE-8): a holder of the owner's role has every privilege. A resource is visible to those who own it or
have any privilege on it, or inspect it (INS-1); to all others it doesn't exist. A member of a role doesn't see the role's
resource by that. A role that only inspects a thing sees it, and has no privilege on it.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from svc.model.dialect import Dialect
from svc.model.errors import Forbidden, NoValue, RecordNotFound
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import AccessFacts

#: The privilege that lets a role look at a policy and all that it owns.
INSPECT: Final = "inspect"


class Denial(enum.StrEnum):
    """Why something is denied: a bounded set of codes for the log, never for the client."""

    CALLER_GONE = "caller-gone"
    MISSING = "missing"
    INVISIBLE = "invisible"
    PRIVILEGE_MISSING = "privilege-missing"


@attrs.frozen
class Allowed:
    """The caller may."""


@attrs.frozen
class Denied:
    """The caller may not."""

    reason: Denial


Decision = Allowed | Denied

_ALLOWED: Final = Allowed()


def decide_visibility(access_facts: AccessFacts) -> Decision:
    """Decide whether the caller may know that the resource exists."""
    if not access_facts.caller_exists:
        return Denied(Denial.CALLER_GONE)
    if not access_facts.exists:
        return Denied(Denial.MISSING)
    if not (access_facts.owns or access_facts.privileges or access_facts.inspects):
        return Denied(Denial.INVISIBLE)
    return _ALLOWED


def decide_privilege(access_facts: AccessFacts, privilege: str) -> Decision:
    """Decide whether the caller has the privilege on the resource."""
    has_privilege = access_facts.owns or privilege in access_facts.privileges
    if has_privilege and access_facts.caller_exists and access_facts.exists:
        return _ALLOWED
    seen = decide_visibility(access_facts)
    return Denied(Denial.PRIVILEGE_MISSING) if isinstance(seen, Allowed) else seen


def decide_role_visibility(access_facts: AccessFacts) -> Decision:
    """Decide whether the caller may know that the role of the resource's name exists.

    A role is seen as its resource is; one without a resource, by itself and those who hold or inspect it (ROLE-5).
    """
    seen = decide_visibility(access_facts)
    return _ALLOWED if seen == Denied(Denial.MISSING) and (access_facts.holds or access_facts.inspects) else seen


def require_visible(access_facts: AccessFacts, name: ResourceName) -> None:
    """Return when the caller may know that ``name`` exists.

    :raises Forbidden: the caller's own role is gone.
    :raises NotFound: it doesn't exist, or the caller may not see it.
    """
    if isinstance(decision := decide_visibility(access_facts), Denied):
        raise _refusal_of(decision, name)


def require_privilege(access_facts: AccessFacts, privilege: str, name: ResourceName) -> None:
    """Return when the caller has ``privilege`` on ``name``.

    :raises Forbidden: the caller sees it and lacks the privilege, or the caller's own role is gone.
    :raises NotFound: it doesn't exist, or the caller may not see it.
    """
    if isinstance(decision := decide_privilege(access_facts, privilege), Denied):
        raise _refusal_of(decision, name, privilege)


def require_ownership(access_facts: AccessFacts, name: ResourceName) -> None:
    """Return when the caller owns ``name``.

    :raises Forbidden: the caller sees it and doesn't own it, or the caller's own role is gone.
    :raises NotFound: it doesn't exist, or the caller may not see it.
    """
    if isinstance(decision := decide_visibility(access_facts), Denied):
        raise _refusal_of(decision, name)
    if not access_facts.owns:
        raise Forbidden(f"doesn't own {name}")


def require_value(access_facts: AccessFacts, privilege: str, variable: ResourceName) -> None:
    """Return when the caller has ``privilege`` on the variable, where one that can't be seen is one without a value.

    :raises Forbidden: the caller sees it and lacks the privilege, or the caller's own role is gone.
    :raises NoValue: it doesn't exist, or the caller may not see it.
    """
    if isinstance(decision := decide_privilege(access_facts, privilege), Denied):
        refusal = _refusal_of(decision, variable, privilege)
        raise NoValue(str(variable), hidden=refusal.hidden) if isinstance(refusal, RecordNotFound) else refusal


def require_role_visible(access_facts: AccessFacts, role: RoleName, caller: RoleName, dialect: Dialect) -> None:
    """Return when the caller may know that ``role`` exists.

    :raises Forbidden: the caller's own role is gone; or, where the dialect has it so, the role exists in the caller's own
        account and may not be seen.
    :raises NotFound: it doesn't exist, or the caller may not see it.
    """
    decision = decide_role_visibility(access_facts)
    if isinstance(decision, Allowed):
        return
    if decision == Denied(Denial.INVISIBLE) and role.account == caller.account and not dialect.hides_roles:
        raise Forbidden(f"may not see {role}")
    raise _refusal_of(decision, role)


def _refusal_of(denied: Denied, name: ResourceName | RoleName, privilege: str = "") -> Forbidden | RecordNotFound:
    match denied.reason:
        case Denial.CALLER_GONE:
            return Forbidden("role of the token no longer exists")
        case Denial.PRIVILEGE_MISSING:
            return Forbidden(f"lacks {privilege} on {name}")
        case reason:
            return RecordNotFound.for_name(name, hidden=reason is Denial.INVISIBLE)
