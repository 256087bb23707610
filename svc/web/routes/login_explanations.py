"""Logins by key and password explained to operators, over HTTP (REF-10 to REF-15)."""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import Final

import attrs

from svc.model.authentication import Explanation
from svc.model.errors import (
    AuthenticationRefused,
    BadRequest,
    Forbidden,
    InvalidName,
    InvalidParameter,
    PasswordsBusy,
    RecordNotFound,
)
from svc.services.login_explanations import KeyExplanations, LoginAttempt
from svc.web.http.declarations import Answer, Body, Parameter, ParameterSource
from svc.web.http.messages import Json, Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import BOOLEAN, TEXT, array_shape, object_shape, string_shape
from svc.web.routes import authenticator_events


def _read_evidence(source: ParameterSource) -> bytes | None:
    found = source.parse_form().text("evidence")
    return None if found is None else found.encode("utf-8", "surrogatepass")


def _read_address(source: ParameterSource) -> str | None:
    found = source.parse_form().text("address")
    try:
        return None if found is None else str(ipaddress.ip_address(found.strip()))
    except ValueError:
        raise InvalidParameter("address", "'address' is an IP address") from None


EVIDENCE: Final = Parameter("evidence", _read_evidence, TEXT, "an API key or a password to try; without it none is tried")
ADDRESS: Final = Parameter("address", _read_address, TEXT, "where the login is to come from; the caller's address if absent")

_STEP: Final = object_shape(
    {
        "check": TEXT,
        "outcome": string_shape("passed", "failed", "not reached", "not tried"),
        "detail": TEXT,
        "reason": TEXT.or_null(),
    }
)
_EXPLAINED: Final = object_shape({"admitted": BOOLEAN.or_null(), "role": TEXT.or_null(), "steps": array_shape(_STEP)})


@attrs.frozen
class KeyLogins:
    """The routes that explain logins."""

    routes = Routes()
    _explain_route = partial(
        routes.add,
        "POST",
        caller=REQUIRED,
        body=Body(
            "what to try, if anything",
            ("application/x-www-form-urlencoded",),
            fields=(EVIDENCE, ADDRESS),
            required=False,
        ),
        answers=(Answer(200, "every check, in order", _EXPLAINED),),
        errors=(AuthenticationRefused, BadRequest, Forbidden, InvalidName, InvalidParameter, PasswordsBusy, RecordNotFound),
        writes=False,
        audit=authenticator_events.login_explained,
    )

    by_key: KeyExplanations
    by_ldap: KeyExplanations

    @_explain_route(
        "/authn/<flat:account>/<tail:login>/explain",
        privileges="owns the role, or the root policy, or has read on the webservice authn/status",
    )
    async def explain(
        self, call: Call, account: str, login: str, *, evidence: bytes | None, address: str | None
    ) -> Response:
        """Return how a login by API key or password would be evaluated, check by check."""
        tried = LoginAttempt(evidence, address)
        return _explanation_response(await self.by_key.explain_login(call.invocation, account, None, login, tried))

    @_explain_route(
        "/authn-ldap/<service_id>/<flat:account>/<tail:login>/explain", privileges="read on the webservice's status"
    )
    async def explain_ldap(
        self, call: Call, service_id: str, account: str, login: str, *, evidence: bytes | None, address: str | None
    ) -> Response:
        """Return how a login by a directory's password would be evaluated, check by check."""
        tried = LoginAttempt(evidence, address)
        return _explanation_response(await self.by_ldap.explain_login(call.invocation, account, service_id, login, tried))


def _explanation_response(found: Explanation) -> Response:
    steps: list[Json] = [
        {
            "check": step.check,
            "outcome": step.outcome,
            "detail": step.detail,
            "reason": None if step.reason is None else step.reason.value,
        }
        for step in found.steps
    ]
    return Response.json({"admitted": found.admitted, "role": found.role, "steps": steps})
