"""Revocation of access tokens over HTTP (TOK-36 to TOK-38)."""

from __future__ import annotations

import attrs

from svc.model.errors import CredentialImpossible, CredentialUnknown, Forbidden, RecordNotFound
from svc.model.events import Event
from svc.services.revocation import RevocationService
from svc.web.http.declarations import NO_BODY, Answer
from svc.web.http.messages import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.routes.named_role import ROLE, named_role


def tokens_revoked(call: Call) -> list[Event]:
    """The access tokens of a role were revoked."""
    target = call.audit_facts.get("target", "-")
    words = f"the access tokens of {target}"
    return [Event("token", "revoke", (("role", target),), f"revoked {words}", f"revoke {words}")]


def account_tokens_revoked(call: Call) -> list[Event]:
    """The access tokens of all roles of an account were revoked."""
    account = call.values["account"]
    words = f"all access tokens of the account {account}"
    return [Event("account", "revoke-tokens", (("account", account),), f"revoked {words}", f"revoke {words}")]


@attrs.frozen
class Revocation:
    """The routes that revoke access tokens."""

    routes = Routes()

    revocation: RevocationService

    @routes.add(
        "DELETE",
        "/authn/<flat:account>/tokens",
        caller=REQUIRED,
        query=(ROLE,),
        body=NO_BODY,
        answers=(Answer(204, "no access token that the role has been given is taken any more"),),
        errors=(Forbidden, RecordNotFound, CredentialUnknown, CredentialImpossible),
        privileges="none for one's own; update on another role",
        audit=tokens_revoked,
    )
    async def revoke(self, call: Call, account: str) -> Response:
        """Revoke all access tokens and sessions of the caller, or of the role ``role``."""
        await self.revocation.revoke_role_tokens(call.invocation, named_role(call, account))
        return Response.empty()

    @routes.add(
        "DELETE",
        "/accounts/<account>/tokens",
        caller=REQUIRED,
        body=NO_BODY,
        answers=(Answer(204, "no access token of any role of the account is taken any more"),),
        errors=(Forbidden, RecordNotFound),
        privileges="update on the account's root policy",
        audit=account_tokens_revoked,
    )
    async def revoke_all(self, call: Call, account: str) -> Response:
        """Revoke all access tokens and sessions of an account."""
        await self.revocation.revoke_account_tokens(call.invocation, account)
        return Response.empty()
