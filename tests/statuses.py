"""The statuses in which the answers of HTTP tell what the domain tells in words, where a table of cases asks for them."""

from __future__ import annotations

from svc.model.authentication import Refused
from svc.model.dialect import NATIVE, Dialect
from svc.model.errors import AuthenticationRefused
from svc.web.http.refusal_responses import response_to


def refusal_status(refused: Refused) -> int:
    """The status of a refused login."""
    answer = response_to(AuthenticationRefused(refused.reason, refused.kind, refused.retry_after), NATIVE)
    assert answer is not None
    return answer.status


def privilege_missing_status(dialect: Dialect) -> int:
    """The status for a proven role without the privilege ``authenticate`` (CFG-26)."""
    return 403 if dialect.reveals_missing_privilege else 401


def hidden_role_status(dialect: Dialect) -> int:
    """The status for a role of the caller's own account that exists and that the caller may not see (likewise)."""
    return 404 if dialect.hides_roles else 403
