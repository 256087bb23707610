"""Logging in over HTTP with a request that a workload has signed for a third party."""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.authentication import LoginRequest
from svc.model.errors import AuthenticationRefused
from svc.services.login import LoginService
from svc.services.secret_batches import BatchService
from svc.web.http.declarations import Body
from svc.web.http.response import Response
from svc.web.http.routing import PUBLIC, Call, Routes
from svc.web.routes import audit_events, secret_events
from svc.web.routes.issued_tokens import ENCODING, ISSUED, token_response
from svc.web.routes.secret_values import REQUESTED_SECRETS, VALUE_ERRORS, WITH_VALUES, log_in_with_values

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

    @declared.add(
        "POST",
        "/<service_id>/<flat:account>/<optional:login>/authenticate",
        caller=PUBLIC,
        headers=(ENCODING,),
        body=SIGNED_BODY,
        answers=ISSUED,
        errors=(AuthenticationRefused,),
        privileges="the role that the signature proves has authenticate on the authenticator",
        writes=False,
        outlives=True,
        audit=audit_events.authenticated,
    )
    async def authenticate(
        self, call: Call, service_id: str, account: str, login: str | None, *, accept_encoding: str | None
    ) -> Response:
        """Exchange a signed request for an access token (AWS-2)."""
        request = self._login_request(call, service_id, account, login)
        return token_response(await self.login.authenticate(request, call), accept_encoding)

    @declared.add(
        "POST",
        "/<service_id>/<flat:account>/<optional:login>/authenticate",
        when="secrets",
        caller=PUBLIC,
        query=(REQUESTED_SECRETS,),
        headers=(ENCODING,),
        body=SIGNED_BODY,
        answers=WITH_VALUES,
        errors=(AuthenticationRefused, *VALUE_ERRORS),
        privileges="the role that the signature proves has authenticate on the authenticator, and execute on each secret",
        writes=False,
        outlives=True,
        audit=secret_events.authenticated_and_fetched,
    )
    async def authenticate_and_read(
        self,
        call: Call,
        service_id: str,
        account: str,
        login: str | None,
        *,
        accept_encoding: str | None,
        wanted: tuple[list[str], bool],
    ) -> Response:
        """Exchange a signed request for an access token and the values of secrets (SEC-43)."""
        request = self._login_request(call, service_id, account, login)
        return await log_in_with_values(call, self.login, self.batches, request, wanted, accept_encoding)

    def _login_request(self, call: Call, service_id: str, account: str, login: str | None) -> LoginRequest:
        call.add_audit_facts(authenticator=self.name)
        return LoginRequest(account, login, call.body, call.client_ip, service_id)
