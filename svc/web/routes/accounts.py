"""Accounts over HTTP (NAME-19 to NAME-28)."""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.errors import BadRequest, Conflict, Forbidden, RecordNotFound, WrongDataKey
from svc.model.events import Event
from svc.services.accounts import AccountService
from svc.web.http.declarations import PARAMETER_MEDIA_TYPES, Answer, Body, Parameter
from svc.web.http.messages import Response
from svc.web.http.routing import REQUIRED, AuditEventsFunction, Call, Routes
from svc.web.http.shapes import TEXT, array_shape, object_shape
from svc.web.routes.idempotency import IDEMPOTENCY_ERRORS, IDEMPOTENCY_KEY, unless_repeated

_ID: Final = Parameter.body_text("id", "the name of the account", required=True, late=True)


def _account_events(operation: str, did: str, does: str) -> AuditEventsFunction:
    def events(call: Call) -> list[Event]:
        account = call.values.get("account") or call.audit_facts.get("account", "-")
        words = f"the account {account}"
        return [Event("account", operation, (("account", account),), f"{did} {words}", f"{does} {words}")]

    return events


account_made = _account_events("create", "made", "make")
account_deleted = _account_events("delete", "deleted", "delete")


def accounts_listed(_: Call) -> list[Event]:
    """Accounts were listed."""
    return [Event("account", "list", (), "listed accounts", "list accounts")]


@attrs.frozen
class Accounts:
    """The routes of accounts."""

    routes = Routes()

    accounts: AccountService

    @routes.add(
        "POST",
        "/accounts",
        caller=REQUIRED,
        headers=(IDEMPOTENCY_KEY,),
        body=Body("the account", PARAMETER_MEDIA_TYPES, fields=(_ID,)),
        answers=(Answer(201, "the account, and the API key of its admin", object_shape({"id": TEXT, "api_key": TEXT})),),
        errors=(*IDEMPOTENCY_ERRORS, Forbidden, BadRequest, Conflict, WrongDataKey),
        privileges="execute on !:webservice:accounts",
        audit=unless_repeated(account_made),
    )
    async def create(self, call: Call, *, key: str | None) -> Response:
        """Make an account, and return the API key of its admin."""
        account = await self.accounts.create_account(call.invocation, lambda: call.read_late(_ID), call.request_key(key))
        return Response.json({"id": account.name, "api_key": account.api_key}, 201)

    @routes.add(
        "GET",
        "/accounts",
        caller=REQUIRED,
        answers=(Answer(200, "the names of all accounts, in order", array_shape(TEXT)),),
        errors=(Forbidden,),
        privileges="read on !:webservice:accounts",
        audit=accounts_listed,
    )
    async def list_names(self, call: Call) -> Response:
        """Return the names of all accounts."""
        return Response.json(await self.accounts.list_accounts(call.invocation))

    @routes.add(
        "DELETE",
        "/accounts/<account>",
        caller=REQUIRED,
        answers=(Answer(204, "the account is deleted"),),
        errors=(Forbidden, RecordNotFound),
        privileges="update on !:webservice:accounts",
        audit=account_deleted,
    )
    async def delete(self, call: Call, account: str) -> Response:
        """Delete an account with all that it holds."""
        await self.accounts.delete_account(call.invocation, account)
        return Response.empty()
