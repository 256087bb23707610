"""The pages of authenticators: which there are, the state of each that trusts a third party, how it evaluates a token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from svc.model.authentication import Explanation
from svc.model.dialect import SINGLE_TYPES, authenticator_name
from svc.model.errors import BadRequest, Forbidden, InvalidName, RecordNotFound
from svc.model.events import Event
from svc.model.refusals import RefusalCount, RefusalsFound
from svc.services.authenticators import AuthenticatorReport, AuthenticatorService, FederatedService
from svc.services.invocation import can_read_all
from svc.services.login import AccessTokenService
from svc.services.refusals import RefusalService
from svc.storage.roles import RoleStore
from svc.web.console import links, pages
from svc.web.console.refusals import sums_of_authenticator
from svc.web.console.rendering import PageRenderer
from svc.web.http.declarations import Parameter, ParameterSource
from svc.web.http.messages import Response
from svc.web.http.routing import Call, Routes
from svc.web.http.shapes import TEXT
from svc.web.routes import authenticator_events
from svc.web.routes.authenticators import JWT
from svc.web.routes.refusals import refusals_read

_PATH: Final = f"{links.AUTHENTICATORS}/<flat:kind>/<optional:service_id>"
_READ_STATUS: Final = "read on the webservice's status"

#: How many authenticators are looked at for their state, in the list.
MAX_STATES: Final = 20


def _read_login(source: ParameterSource) -> str | None:
    return (source.parse_form().text("login") or "").strip() or None


LOGIN: Final = Parameter("login", _read_login, TEXT, "the login that the path of a request would name")


@attrs.frozen
class AuthenticatorCard:
    """An authenticator in the list; what the reader may not know of it is ``None``. ``age``: of its keys, in words."""

    name: str
    link: str | None
    report: AuthenticatorReport | None
    age: str | None
    refused: Sequence[RefusalCount] | None


def list_events(call: Call) -> list[Event]:
    """The states of authenticators were looked at, and what was refused."""
    status = [each for name in call.audit_facts.get("states", ()) for each in authenticator_events.status_events(call, name)]
    return [*status, *(refusals_read(call) if call.audit_facts.get("refusals") else ())]


def status_events(call: Call) -> list[Event]:
    """The status of an authenticator was read, and what was refused."""
    refused = refusals_read(call) if call.audit_facts.get("refusals") else ()
    return [*authenticator_events.status_validated(call), *refused]


@attrs.frozen
class AuthenticatorPages:
    """The list of authenticators, and a page for each of those in ``federated``, which has them by type."""

    routes = Routes()

    renderer: PageRenderer
    authenticators: AuthenticatorService
    federated: Mapping[str, FederatedService]
    tokens: AccessTokenService
    roles: RoleStore
    refusals: RefusalService

    @pages.declare_page(
        routes,
        links.AUTHENTICATORS,
        errors=(Forbidden,),
        privileges=f"a role that exists; states: {_READ_STATUS}; refusals are for those who read the whole audit",
        audit=list_events,
    )
    async def list_authenticators(self, call: Call) -> Response:
        """Return which authenticators there are, with their states and where there is more of them (CON-40)."""
        await self.tokens.check_caller(call.caller)
        known = await self.authenticators.list_authenticators()
        names = sorted({*known.configured, *known.enabled})
        refused = await self._recent_refusals(call)
        cards = [await self._make_card(call, name, refused) for name in names[:MAX_STATES]]
        cards += [self._card_without_state(name, refused) for name in names[MAX_STATES:]]
        return self.renderer.render_page(
            call.visit,
            "authenticators.html",
            title="Authenticators",
            cards=cards,
            most=MAX_STATES,
            known=known,
            unused=[each for each in known.installed if not any(name.partition("/")[0] == each for name in names)],
        )

    @pages.declare_page(routes, _PATH, privileges=_READ_STATUS, audit=status_events)
    async def show_authenticator(self, call: Call, kind: str, service_id: str | None) -> Response:
        """Return an authenticator's faults and keys, and the form for a token (CON-41)."""
        service = self._find_service(call, kind, service_id)
        try:
            report = await service.read_status(call.invocation, call.caller.role.account, service_id)
        except InvalidName:
            raise _not_found(call, kind, service_id) from None
        name, refused = authenticator_name(kind, service_id), await self._recent_refusals(call)
        return self._render_page(
            call, name, report=report, refused=None if refused is None else sums_of_authenticator(refused, name)
        )

    @pages.declare_form_post(
        routes,
        _PATH,
        body=pages.form_body(LOGIN, JWT),
        errors=(BadRequest, Forbidden, RecordNotFound),
        privileges=_READ_STATUS,
        writes=False,
        audit=authenticator_events.token_explained,
    )
    async def explain_token(self, call: Call, kind: str, service_id: str | None, *, login: str | None) -> Response:
        """Return the outcome of a token, check by check; the token isn't shown again (CON-42)."""
        service = self._find_service(call, kind, service_id)
        account = call.caller.role.account
        try:
            found = await service.explain_token(call.invocation, account, service_id, login, lambda: call.read_late(JWT))
        except InvalidName:
            raise _not_found(call, kind, service_id) from None
        return self._render_page(call, authenticator_name(kind, service_id), explanation=found, login=login or "")

    def _find_service(self, call: Call, kind: str, service_id: str | None) -> FederatedService:
        call.add_audit_facts(authenticator=kind)
        service = self.federated.get(kind)
        if service is None or (kind in SINGLE_TYPES) != (service_id is None):
            raise _not_found(call, kind, service_id)
        return service

    async def _recent_refusals(self, call: Call) -> RefusalsFound | None:
        """Return recent refusals; ``None`` for those who may not know them."""
        if not await can_read_all(self.roles, call.caller):
            return None
        found = await self.refusals.list_recent(call.invocation, limit=1)
        call.add_audit_facts(refusals=True)
        return found

    async def _make_card(self, call: Call, name: str, refused: RefusalsFound | None) -> AuthenticatorCard:
        """Return the card of an authenticator, with its state if the caller may read that; no provider is queried."""
        plain = self._card_without_state(name, refused)
        kind, _, service_id = name.partition("/")
        if plain.link is None:
            return plain
        try:
            account = call.caller.role.account
            report = await self.federated[kind].read_status(call.invocation, account, service_id or None, ask=False)
        except (Forbidden, RecordNotFound, InvalidName):
            return plain
        call.add_audit_facts(states=(*call.audit_facts.get("states", ()), name))
        return attrs.evolve(plain, report=report, age=_describe_age(report))

    def _card_without_state(self, name: str, refused: RefusalsFound | None) -> AuthenticatorCard:
        kind, _, service_id = name.partition("/")
        # No address of a browser's ends with dots alone.
        one = kind in self.federated and (kind in SINGLE_TYPES) != bool(service_id) and service_id not in {".", ".."}
        link = links.authenticator(name) if one else None
        return AuthenticatorCard(name, link, None, None, None if refused is None else sums_of_authenticator(refused, name))

    def _render_page(
        self,
        call: Call,
        name: str,
        *,
        report: AuthenticatorReport | None = None,
        refused: Sequence[RefusalCount] | None = None,
        explanation: Explanation | None = None,
        login: str = "",
    ) -> Response:
        age = None if report is None else _describe_age(report)
        values: dict[str, Any] = {
            "report": report,
            "age": age,
            "refused": refused,
            "explanation": explanation,
            "login": login,
        }
        return self.renderer.render_page(
            call.visit, "authenticator.html", title=name, name=name, path=links.authenticator(name), **values
        )


def _not_found(call: Call, kind: str, service_id: str | None) -> RecordNotFound:
    return RecordNotFound(call.caller.role.account, "webservice", authenticator_name(kind, service_id))


def _describe_age(report: AuthenticatorReport) -> str | None:
    """Return how old the keys at hand are, in words."""
    return None if report.age is None else _describe_duration(report.age)


def _describe_duration(seconds: float) -> str:
    """Return a number of seconds in the largest unit of which there are two."""
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(int(seconds), 0)} seconds"
