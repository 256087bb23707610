"""Logging in over HTTP with a request that a workload has signed for a third party."""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.authentication import LoginRequest
from svc.services.login import LoginService
from svc.services.secret_batches import BatchService
from svc.web.http.declarations import Body
from svc.web.http.routing import Call, Routes
from svc.web.routes.login_routes import add_login_routes

SIGNED_BODY: Final = Body("the signed headers, in JSON", ("application/json",))


@attrs.frozen
class SignedAuthn:
    """The routes of logging in with a signed request, at ``<name>/<service id>``."""

    declared = Routes()

    name: str
    login: LoginService
    batches: BatchService

    @property
    def routes(self) -> Routes:
        """The declared routes, under the name."""
        return self.declared.with_prefix(self.name)

    @add_login_routes(
        declared,
        "/<service_id>/<flat:account>/<optional:login>/authenticate",
        evidence="a signed request",
        rule="AWS-2",
        body=SIGNED_BODY,
        privileges="the role that the signature proves has authenticate on the authenticator",
    )
    def make_request(self, call: Call, service_id: str, account: str, login: str | None) -> LoginRequest:
        """Return the request of a login with a signed request."""
        call.add_audit_facts(authenticator=self.name)
        return LoginRequest(account, login, call.body, call.client_ip, service_id)
