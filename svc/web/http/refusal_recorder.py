"""Requests that were refused, as they are kept for operators (REF-1 to REF-3).

Note [Alike]. Refusals for hidden and for missing resources are both kept, and so are those of logins as existing and as
unknown roles: keeping a refusal takes the same time in all cases (FAIL-18).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from svc.model import errors
from svc.model.clocks import WallClock
from svc.model.refusals import IRefusals, RefusedRequest
from svc.model.text import escape_unprintable
from svc.web.http.messages import IncomingRequest
from svc.web.http.refusal_responses import audit_reason
from svc.web.http.routing import Call, Route

#: The reasons of an invalid access token, and of a resource that exists and may not be seen.
TOKEN_REFUSED: Final = "token-refused"
HIDDEN: Final = "hidden"

_Missing = errors.RecordNotFound | errors.NoValue | errors.CredentialUnknown


@attrs.frozen
class RefusalRecorder:
    """Keeps the refusals of requests that a caller's rights or credentials decided on; others are the client's mistakes."""

    _refusals: IRefusals
    _wall: WallClock

    def __call__(self, incoming: IncomingRequest, raw: Mapping[str, str], refusal: errors.Refusal) -> None:
        """Keep a refusal, if it is one of these, and the account is known that it concerns."""
        call = incoming.call if isinstance(incoming.call, Call) else None
        caller = None if call is None or call.caller_if_any is None else call.caller_if_any.role
        authenticator, role = None, None if caller is None else str(caller)
        account = raw.get("account") if caller is None else caller.account
        match refusal:
            case errors.AuthenticationRefused(detail=detail, known_role=known) if call is not None:
                account, authenticator = account or _call_account(call), None if caller else _authenticator_name(call)
                role = role or known
            case errors.BearerRefused(message=detail):
                pass
            case errors.Forbidden(why=detail):
                pass
            case errors.NoValue(readable=True):
                without = "no value, or none of this version" if refusal.expired_at is None else "no value: it expired"
                detail = f"{refusal.name}, which the caller may read, has {without}"
            case errors.RecordNotFound() | errors.NoValue() | errors.CredentialUnknown():
                detail = f"there is no {refusal.name} that the caller may see"
            case errors.CallerReplaced():
                detail = "the role was deleted and made again, or its access tokens were revoked"
            case errors.CredentialInsufficient():
                detail = "an access token was shown where a password or an API key is asked for"
            case _:
                return
        if account is None:
            return
        service_id = None if call is None or authenticator is None else _service_id(call)
        self._refusals.add_refusal(
            RefusedRequest(
                at=self._wall.seconds(),
                request_id=incoming.request_id,
                client_ip=escape_unprintable(incoming.client_ip),
                account=escape_unprintable(account),
                route=incoming.route.plain_label if isinstance(incoming.route, Route) else str(incoming.route),
                reason=_refusal_reason(refusal, account),
                detail=escape_unprintable(detail),
                authenticator=authenticator,
                service_id=None if service_id is None else escape_unprintable(service_id),
                role=None if role is None else escape_unprintable(role),
            )
        )


def _refusal_reason(refusal: errors.Refusal, account: str) -> str:
    if isinstance(refusal, errors.BearerRefused):
        return TOKEN_REFUSED
    if isinstance(refusal, _Missing):
        # Nobody may learn what exists in other accounts.
        return HIDDEN if refusal.hidden and refusal.name.startswith(f"{account}:") else "not-found"
    return audit_reason(refusal)


def _authenticator_name(call: Call) -> str:
    name: str = call.audit_facts.get("authenticator", "authn")
    return name


def _service_id(call: Call) -> str | None:
    """Return the authenticator's service id, by the path or, on a page, by what was begun there."""
    found: str | None = call.values.get("service_id") or call.audit_facts.get("service_id")
    return found


def _call_account(call: Call) -> str | None:
    """Return the account where no path names it: the one in a form, or that of a host factory's token."""
    factory: str | None = call.audit_facts.get("factory")
    return call.audit_facts.get("account") if factory is None else factory.partition(":")[0]
