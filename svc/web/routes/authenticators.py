"""Authenticators, as operators see and change them: which there are, how one stands, and why it refuses a token."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.model.authentication import AuthenticatorStatus, Explanation, IAuthenticators, IExplainer, LoginRequest, Problem
from svc.model.authorization import Denial, Denied, demand, use
from svc.model.clocks import WallClock
from svc.model.dialect import Dialect
from svc.model.errors import (
    AuthenticationRefused,
    BadRequest,
    Forbidden,
    InvalidParameter,
    NotFound,
    TooLarge,
    TooOften,
)
from svc.model.names import ResourceName
from svc.model.ports import IRoles
from svc.model.reasons import Reason
from svc.model.strict_json import Malformed, json_object
from svc.model.text import printable
from svc.web.http.response import Response
from svc.web.http.routing import PUBLIC, REQUIRED, Call, Routes
from svc.web.routes import auditing

#: The authenticator that is always enabled.
_ALWAYS: Final = "authn"

_ONE: Final = "/<service_id>/<flat:account>"

#: Seconds between two wishes for newer keys of one authenticator: each makes every server read its settings again, and ask
#: the provider.
REFRESH_PAUSE: Final = 1.0

_log = Logger()


@attrs.frozen
class Authenticators:
    """The routes of authenticators of whatever type.

    ``installed`` are the types that there are beside ``authn``, such as ``authn-jwt``; ``listed`` the names in the
    configuration, such as ``authn-jwt/ci``.
    """

    routes = Routes()

    store: IAuthenticators
    roles: IRoles
    installed: Sequence[str]
    listed: frozenset[str]
    dialect: Dialect

    @routes.add("GET", "/authenticators", caller=PUBLIC)
    async def tell_all(self, call: Call) -> Response:  # noqa: ARG002 (every route takes its call)
        """Tell which types there are, and which authenticators policy defines and may be used (wire facts, authn 1.7).

        Accounts are not told apart: one that is enabled in any of them is, and so is one that is listed and defined in none.
        Anyone may ask, so only so many webservices are looked at (``IAuthenticators.webservices``).
        """
        switches: dict[str, list[bool | None]] = {name: [] for name in self.listed}
        configured = {_ALWAYS}
        for webservice, switch in await self.store.webservices(self.dialect.prefix):
            name = webservice.identifier.removeprefix(f"{self.dialect.prefix}/")
            if name.startswith("authn-") and not _nested(name):
                configured.add(name)
                switches.setdefault(name, []).append(switch)
        enabled = {
            name
            for name, found in switches.items()
            if any(self.dialect.enables(name in self.listed, switch) for switch in found or [None])
        }
        return Response.json(
            {
                "installed": sorted({_ALWAYS, *self.installed}),
                "configured": sorted(configured),
                "enabled": sorted({_ALWAYS, *enabled}),
            }
        )

    @routes.add("PATCH", "/authn/<flat:account>", caller=REQUIRED, audit=auditing.switched)
    async def switch_default(self, call: Call, account: str) -> Response:
        """Switch ``authn``: kept, though it is always enabled."""
        return await self._switch(call, account, _ALWAYS)

    @routes.add("PATCH", "/authn-<flat:kind>/<flat:account>", caller=REQUIRED, audit=auditing.switched)
    async def switch_only(self, call: Call, kind: str, account: str) -> Response:
        """Switch an authenticator of a type that has one for each account."""
        return await self._switch(call, account, f"authn-{kind}")

    @routes.add("PATCH", "/authn-<flat:kind>{/}<service_id>/<flat:account>", caller=REQUIRED, audit=auditing.switched)
    async def switch(self, call: Call, kind: str, service_id: str, account: str) -> Response:
        """Switch an authenticator on or off; a published client encodes its whole name (wire facts, clients R5)."""
        return await self._switch(call, account, f"authn-{kind}/{service_id}")

    async def _switch(self, call: Call, account: str, name: str) -> Response:
        """In the order and with the statuses of the wire facts, authn 1.9; it concerns this account alone (rulings 2.3).

        A foreign account is like one that doesn't exist.
        """
        caller = call.caller.role
        if account != caller.account:
            raise AuthenticationRefused(Reason.ACCOUNT_UNKNOWN)
        webservice = _webservice(self.dialect, account, name)
        match use(await self.roles.standing(call.caller, webservice), "update"):
            case Denied(Denial.MISSING):
                raise AuthenticationRefused(Reason.WEBSERVICE_UNKNOWN)
            case _ if _nested(name):
                raise AuthenticationRefused(Reason.WEBSERVICE_UNKNOWN)
            case Denied(denial):
                raise Forbidden(f"may not switch {webservice}: {denial.value}")
        on = _switch_of(call)
        call.tell(enabled=on)
        await self.store.switch(webservice, on, call.trail)
        _log.info(
            "{role} switched {webservice} {state}",
            role=printable(str(caller)),
            webservice=printable(str(webservice)),
            state="on" if on else "off",
        )
        return Response.empty()

    @routes.add("GET", "/authn/<flat:account>/status", caller=REQUIRED)
    async def no_status(self, call: Call, account: str) -> Response:  # noqa: ARG002 (every route takes its call)
        """Tell that ``authn`` has no status: there is nothing to configure (wire facts, authn 5)."""
        return Response.json({"status": "error", "error": "CONJ00056E Status check is not supported for authn"}, 501)


@attrs.frozen
class FederatedAuthenticators:
    """The routes by which operators see and change the authenticators ``<name>/<service id>``, which trust third parties.

    ``explainer`` tells of them; their tokens have at most ``token_limit`` bytes. ``listed`` are the names in the
    configuration.
    """

    declared = Routes()

    name: str
    explainer: IExplainer
    store: IAuthenticators
    roles: IRoles
    listed: frozenset[str]
    dialect: Dialect
    token_limit: int
    clock: IReactorTime
    wall: WallClock
    _refreshed: dict[ResourceName, float] = attrs.field(factory=dict, init=False)

    @property
    def routes(self) -> Routes:
        """Those that are declared, under the name."""
        return self.declared.under(self.name)

    @declared.add("GET", f"{_ONE}/status", caller=REQUIRED, audit=auditing.status_validated)
    async def status(self, call: Call, service_id: str, account: str) -> Response:
        """Tell all that is wrong with an authenticator, and what is known of its keys (wire facts, authn 5).

        A faulty configuration is 500, as installed clients expect (rulings 2.14).
        """
        call.tell(authenticator=self.name)
        try:
            webservice = await self._operated(call, service_id, account)
        except NotFound as refusal:
            message = f"{_CODES[refusal.kind]} {refusal.kind.capitalize()} '{refusal.identifier}' not found"
            return Response.json({"status": "error", "error": message}, 404)
        except Forbidden as refusal:
            return Response.json({"status": "error", "error": f"CONJ00006E {call.caller.role} {refusal.why}"}, 403)
        status = await self.explainer.status(account, service_id)
        document = {
            **_problems(status.problems),
            "listed": f"{self.name}/{service_id}" in self.listed,
            "keys": self._keys(status),
            "distrusted": [
                {"key": key.key, "since": _time(key.since), "by": key.by} for key in await self.store.distrusted(webservice)
            ],
            "clock_offset": None if status.clock_offset is None else round(status.clock_offset, 3),
            "recent_tokens": status.tokens,
        }
        if not status.problems:
            return Response.json({"status": "ok", **document})
        error = " ".join(problem.what for problem in status.problems)
        return Response.json({"status": "error", "error": error, **document}, 500)

    @declared.add("POST", f"{_ONE}/<optional:login>/explain", caller=REQUIRED, writes=False, audit=auditing.explained)
    async def explain(self, call: Call, service_id: str, account: str, login: str | None) -> Response:
        """Tell how a token, the form's field ``jwt``, would be judged, check by check; nothing is issued."""
        call.tell(authenticator=self.name)
        webservice = await self._operated(call, service_id, account)
        token = (call.form().text("jwt") or "").strip().encode("utf-8")
        if len(token) > self.token_limit:
            raise TooLarge("a JWT", self.token_limit)
        explanation = await self.explainer.explain(LoginRequest(account, login, token, call.client_ip, service_id))
        _log.info(
            "{role} had a token for {webservice} explained: {outcome}, {subject}",
            role=printable(str(call.caller.role)),
            webservice=printable(str(webservice)),
            outcome="admitted" if explanation.admitted else "refused",
            subject=printable(explanation.role or "no role"),
        )
        return _explained(explanation)

    @declared.add("POST", f"{_ONE}/refresh-keys", caller=REQUIRED, audit=auditing.keys_refreshed)
    async def refresh_keys(self, call: Call, service_id: str, account: str) -> Response:
        """Have the provider's keys fetched anew, here at once, elsewhere by the next login (rulings 4)."""
        call.tell(authenticator=self.name)
        webservice = await self._operated(call, service_id, account)
        self._spend_refresh(webservice)
        await self.store.refresh(webservice, call.trail)
        _log.info(
            "{role} has the keys for {webservice} fetched anew",
            role=printable(str(call.caller.role)),
            webservice=printable(str(webservice)),
        )
        status = await self.explainer.status(account, service_id)
        return Response.json({"keys": self._keys(status), **_problems(status.problems)})

    @declared.add("PUT", f"{_ONE}/distrusted-keys/<key>", caller=REQUIRED, audit=auditing.key_distrusted)
    async def distrust(self, call: Call, service_id: str, account: str, key: str) -> Response:
        """Let a key, by its id or its thumbprint, verify nothing any more (rulings 4)."""
        call.tell(authenticator=self.name)
        webservice = await self._changeable(call, service_id, account)
        await self.store.distrust(webservice, key, call.caller.role, call.trail)
        _log_key(call, "distrusts", key, webservice)
        return Response.empty()

    @declared.add("DELETE", f"{_ONE}/distrusted-keys/<key>", caller=REQUIRED, audit=auditing.key_trusted)
    async def trust(self, call: Call, service_id: str, account: str, key: str) -> Response:
        """Take that back."""
        call.tell(authenticator=self.name)
        webservice = await self._changeable(call, service_id, account)
        if not await self.store.trust(webservice, key, call.trail):
            raise NotFound(account, "key", key)
        _log_key(call, "trusts again", key, webservice)
        return Response.empty()

    def _spend_refresh(self, webservice: ResourceName) -> None:
        """Count a wish for newer keys.

        :raises TooOften: there was one a moment ago.
        """
        now = self.clock.seconds()
        for other in [other for other, at in self._refreshed.items() if not 0 <= now - at < REFRESH_PAUSE]:
            del self._refreshed[other]
        if webservice in self._refreshed:
            raise TooOften("the keys were fetched anew a moment ago: try again in a second")
        self._refreshed[webservice] = now

    async def _operated(self, call: Call, service_id: str, account: str) -> ResourceName:
        """Return the webservice of an authenticator whose status the caller may read.

        That takes ``read`` on the webservice's ``status``; who lacks it is told so whether he sees that or not (wire facts,
        authn 5).

        :raises NotFound: there is no such account, or it isn't the caller's (rulings 2.17), or no such webservice.
        :raises Forbidden: the caller may not.
        """
        caller = call.caller.role
        if account != caller.account:
            raise NotFound(account, "account", account)
        webservice = _webservice(self.dialect, account, f"{self.name}/{service_id}")
        status = _webservice(self.dialect, account, f"{self.name}/{service_id}/status")
        match use(await self.roles.standing(call.caller, status), "read"):
            case Denied(Denial.MISSING):
                raise NotFound.of(status)
            case Denied(Denial.CALLER_GONE):
                raise Forbidden("no longer exists")
            case Denied():
                raise Forbidden(f"lacks read on {status}")
        if not (await self.roles.standing(call.caller, webservice)).exists:
            raise NotFound.of(webservice)
        return webservice

    async def _changeable(self, call: Call, service_id: str, account: str) -> ResourceName:
        """Return the webservice of an authenticator that the caller may change.

        :raises Forbidden: the caller lacks ``update`` on it.
        :raises NotFound: it doesn't exist, or as good as.
        """
        webservice = _webservice(self.dialect, account, f"{self.name}/{service_id}")
        demand(await self.roles.standing(call.caller, webservice), "update", webservice)
        return webservice

    def _keys(self, status: AuthenticatorStatus) -> dict[str, object]:
        """What is known of an authenticator's keys; ages are in seconds."""
        keys, now = status.keys, self.clock.seconds()
        asked = None
        if keys.asked_at is not None:
            at = self.wall.seconds() - (now - keys.asked_at)
            asked = {"at": _time(at), "outcome": keys.failure or "ok"}
        return {
            "source": status.source,
            "uri": status.uri,
            "count": len(keys.keys),
            "ids": [kid for kid, _ in keys.keys],
            "thumbprints": [thumbprint for _, thumbprint in keys.keys],
            "age": None if keys.fetched_at is None else round(now - keys.fetched_at, 3),
            "last_fetch": asked,
            "problems": keys.problems,
        }


#: The codes of the installed base for what is missing (wire facts, authn 3.9).
_CODES: Final = {"account": "CONJ00008E", "webservice": "CONJ00005E"}


def _webservice(dialect: Dialect, account: str, name: str) -> ResourceName:
    return ResourceName.of(account, "webservice", f"{dialect.prefix}/{name}")


def _nested(name: str) -> bool:
    """Whether the webservice of that name belongs to an authenticator, and is none itself: its ``status``."""
    return name.count("/") > 1 and name.endswith("/status")


def _switch_of(call: Call) -> bool:
    """Read ``enabled`` from a form, or from JSON where the content type says so (wire facts, authn 1.9 and 8).

    :raises BadRequest: the body is neither.
    :raises InvalidParameter: ``enabled`` is missing, or neither true nor false.
    """
    content_type = (call.header("Content-Type") or "").partition(";")[0].strip().lower()
    on: object
    if content_type == "application/json":
        try:
            on = json_object(call.body).get("enabled")
        except Malformed as error:
            raise BadRequest(f"the body can't be read as JSON: {error}") from None
    else:
        on = {"true": True, "false": False}.get((call.form().text("enabled") or "").strip().lower())
    if not isinstance(on, bool):
        raise InvalidParameter("enabled", "'enabled' must be given, and be true or false")
    return on


def _problems(problems: Sequence[Problem]) -> dict[str, object]:
    return {"problems": [{"what": problem.what, "remedy": problem.remedy} for problem in problems]}


def _explained(explanation: Explanation) -> Response:
    steps = [
        {
            "check": step.check,
            "outcome": step.outcome,
            "detail": step.detail,
            "reason": None if step.reason is None else step.reason.value,
        }
        for step in explanation.steps
    ]
    return Response.json({"admitted": explanation.admitted, "role": explanation.role, "steps": steps})


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _log_key(call: Call, does: str, key: str, webservice: ResourceName) -> None:
    _log.info(
        "{role} {does} the key {key} for {webservice}",
        role=printable(str(call.caller.role)),
        does=does,
        key=printable(key),
        webservice=printable(str(webservice)),
    )
