"""Authenticators over HTTP, for operators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from svc.model.authentication import ExplanationStep, Problem
from svc.model.clocks import iso_milliseconds
from svc.model.dialect import SINGLE_TYPES
from svc.model.errors import AuthenticationRefused, BadRequest, Forbidden, InvalidParameter, RecordNotFound, TooOften
from svc.model.strict_json import Malformed, parse_json_object
from svc.services.authenticators import (
    DEFAULT,
    DIRECTORY_TYPE,
    AuthenticatorReport,
    AuthenticatorService,
    FederatedService,
    LdapStatusService,
)
from svc.web.http.declarations import NO_BODY, PARAMETER_MEDIA_TYPES, Answer, Body, Parameter, ParameterSource, Unaudited
from svc.web.http.messages import Json, Response
from svc.web.http.routing import PUBLIC, REQUIRED, Call, Routes
from svc.web.http.shapes import BOOLEAN, INTEGER, NUMBER, TEXT, Shape, array_shape, object_shape, string_shape
from svc.web.routes import authenticator_events

_AUTHENTICATOR_PATH: Final = "/<service_id>/<flat:account>"


def _read_enabled(source: ParameterSource) -> bool:
    """Read ``enabled`` from a form, or from JSON where the content type says so (AUTH-5)."""
    content_type = (source.header("Content-Type") or "").partition(";")[0].strip().lower()
    on: object
    if content_type == "application/json":
        try:
            on = parse_json_object(source.body).get("enabled")
        except Malformed as error:
            raise BadRequest(f"the body can't be read as JSON: {error}") from None
    else:
        on = {"true": True, "false": False}.get((source.parse_form().text("enabled") or "").strip().lower())
    if not isinstance(on, bool):
        raise InvalidParameter("enabled", "'enabled' must be given, and be true or false")
    return on


def _read_token(source: ParameterSource) -> bytes:
    return (source.parse_form().text("jwt") or "").strip().encode("utf-8")


ENABLED: Final = Parameter("enabled", _read_enabled, BOOLEAN, "whether it is on", required=True, late=True)
JWT: Final = Parameter("jwt", _read_token, TEXT, "the token to explain", late=True)

_UPDATE: Final = "update on the authenticator's webservice"
_READ_STATUS: Final = "read on the webservice's status"

#: The header that says whether an authenticator may be used, once it is switched (AUTH-90).
_ENABLED: Final = "Svc-Enabled"

_NAMES: Final = array_shape(TEXT)
_KNOWN: Final = object_shape({"installed": _NAMES, "configured": _NAMES, "enabled": _NAMES})
_PROBLEMS: Final = array_shape(object_shape({"what": TEXT, "remedy": TEXT}))
_KEYS: Final = object_shape(
    {
        "source": TEXT.or_null(),
        "uri": TEXT.or_null(),
        "count": INTEGER,
        "ids": array_shape(TEXT.or_null()),
        "thumbprints": _NAMES,
        "age": NUMBER.or_null(),
        "last_fetch": object_shape({"at": TEXT, "outcome": TEXT}).or_null(),
        "problems": _NAMES,
        "unused": _NAMES,
    }
)
_STATUS: Final = {
    "problems": _PROBLEMS,
    "listed": BOOLEAN,
    "algorithms": _NAMES,
    "keys": _KEYS,
    "distrusted": array_shape(object_shape({"key": TEXT, "since": TEXT, "by": TEXT})),
    "clock_offset": NUMBER.or_null(),
    "recent_tokens": INTEGER,
}
_FAULT: Final = object_shape({"status": string_shape("error"), "error": TEXT})
_DIRECTORY_STATUS: Final = {
    "problems": _PROBLEMS,
    "listed": BOOLEAN,
    "bind": object_shape(
        {
            "account": TEXT.or_null(),
            "outcome": string_shape("ok", "refused", "failed", "not asked"),
            "again": INTEGER.or_null(),
        }
    ),
    "bases": array_shape(object_shape({"annotation": TEXT, "dn": TEXT, "fault": TEXT.or_null()})),
    "refusals": array_shape(object_shape({"at": TEXT, "request_id": TEXT, "reason": TEXT})),
}


def _status_answers(members: Mapping[str, Shape]) -> tuple[Answer, ...]:
    return (
        Answer(200, "nothing is wrong with it", object_shape({"status": string_shape("ok"), **members})),
        Answer(
            500, "its configuration is faulty", object_shape({"status": string_shape("error"), "error": TEXT, **members})
        ),
        Answer(403, "the caller may not read the status", _FAULT),
        Answer(404, "there is no such account or webservice", _FAULT),
    )


_STEP: Final = object_shape(
    {"check": TEXT, "outcome": string_shape("passed", "failed", "not reached"), "detail": TEXT, "reason": TEXT.or_null()}
)


@attrs.frozen
class Authenticators:
    """The routes of authenticators of any type."""

    routes = Routes()
    _switch_route = partial(
        routes.add,
        "PATCH",
        caller=REQUIRED,
        body=Body("on or off", PARAMETER_MEDIA_TYPES, fields=(ENABLED,)),
        answers=(Answer(204, "it is switched", None, (_ENABLED,)),),
        errors=(AuthenticationRefused, BadRequest, Forbidden),
        privileges=_UPDATE,
        audit=authenticator_events.authenticator_switched,
    )

    authenticators: AuthenticatorService

    @routes.add(
        "GET",
        "/authenticators",
        caller=PUBLIC,
        answers=(Answer(200, "names, in order", _KNOWN),),
        privileges="none",
        audit=Unaudited("anyone may know them"),
    )
    async def tell_all(self, call: Call) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return which types there are, and which authenticators policy defines and may be used (AUTH-4)."""
        return Response.json(attrs.asdict(await self.authenticators.list_authenticators()))

    @_switch_route("/authn/<flat:account>")
    async def switch_default(self, call: Call, account: str) -> Response:
        """Switch ``authn``: stored, though it is always enabled."""
        return await self._switch_authenticator(call, account, DEFAULT)

    @_switch_route("/authn-<flat:kind>/<flat:account>")
    async def switch_only(self, call: Call, kind: str, account: str) -> Response:
        """Switch an authenticator of a type that has one for each account."""
        return await self._switch_authenticator(call, account, f"authn-{kind}")

    @_switch_route("/authn-<flat:kind>{/}<service_id>/<flat:account>")
    async def switch(self, call: Call, kind: str, service_id: str, account: str) -> Response:
        """Switch an authenticator on or off; a published client encodes its whole name (WIRE-15)."""
        return await self._switch_authenticator(call, account, f"authn-{kind}/{service_id}")

    async def _switch_authenticator(self, call: Call, account: str, name: str) -> Response:
        usable = await self.authenticators.switch_authenticator(
            call.invocation, account, name, lambda: call.read_late(ENABLED)
        )
        return Response.empty(204, ((_ENABLED, "true" if usable else "false"),))

    @routes.add(
        "GET",
        "/authn/<flat:account>/status",
        caller=REQUIRED,
        answers=(Answer(501, "there is no status of it", _FAULT),),
        privileges="none",
        audit=Unaudited("it tells nothing"),
    )
    async def no_status(self, call: Call, account: str) -> Response:  # noqa: ARG002 (the path has it)
        """Answer that ``authn`` has no status: there is nothing to configure (AUTH-58)."""
        return _status_fault(call, 501, "CONJ00056E", "Status check is not supported for authn")


@attrs.frozen
class FederatedAuthenticators:
    """The routes by which operators see and change the authenticators ``<name>[/<service id>]`` that trust third parties."""

    declared = Routes()
    _key_trust = partial(
        declared.add,
        path=f"{_AUTHENTICATOR_PATH}/distrusted-keys/<key>",
        caller=REQUIRED,
        errors=(RecordNotFound, Forbidden),
        privileges=_UPDATE,
    )

    authenticators: FederatedService

    @property
    def routes(self) -> Routes:
        """The declared routes, under the authenticators' name."""
        name = self.authenticators.name
        return self.declared.with_prefix(name, *(("service_id", "login") if name in SINGLE_TYPES else ()))

    @declared.add(
        "GET",
        f"{_AUTHENTICATOR_PATH}/status",
        caller=REQUIRED,
        answers=_status_answers(_STATUS),
        privileges=_READ_STATUS,
        audit=authenticator_events.status_validated,
    )
    async def status(self, call: Call, service_id: str | None, account: str) -> Response:
        """Return the faults of an authenticator, and its keys; a fault is 500, as installed clients expect (AUTH-60)."""
        try:
            report = await self.authenticators.read_status(call.invocation, account, service_id)
        except (RecordNotFound, Forbidden) as refusal:
            return _status_refusal(call, refusal)
        status = report.status
        document = {
            **_problems_json(status.problems),
            "listed": report.listed,
            "algorithms": status.algorithms,
            "keys": _keys_json(report),
            "distrusted": [
                {"key": key.key, "since": iso_milliseconds(key.since), "by": key.by} for key in status.distrusted
            ],
            "clock_offset": None if status.clock_offset is None else round(status.clock_offset, 3),
            "recent_tokens": status.tokens,
        }
        return _status_response(status.problems, document)

    @declared.add(
        "POST",
        f"{_AUTHENTICATOR_PATH}/<optional:login>/explain",
        caller=REQUIRED,
        body=Body("a form with a token", ("application/x-www-form-urlencoded",), fields=(JWT,)),
        answers=(
            Answer(
                200,
                "every check, in order",
                object_shape({"admitted": BOOLEAN, "role": TEXT.or_null(), "steps": array_shape(_STEP)}),
            ),
        ),
        errors=(BadRequest, RecordNotFound, Forbidden),
        privileges=_READ_STATUS,
        writes=False,
        audit=authenticator_events.token_explained,
    )
    async def explain(self, call: Call, service_id: str | None, account: str, login: str | None) -> Response:
        """Return how a token would be evaluated, check by check; nothing is issued."""
        found = await self.authenticators.explain_token(
            call.invocation, account, service_id, login, lambda: call.read_late(JWT)
        )
        return Response.json(
            {"admitted": found.admitted, "role": found.role, "steps": [_step_json(step) for step in found.steps]}
        )

    @declared.add(
        "POST",
        f"{_AUTHENTICATOR_PATH}/refresh-keys",
        caller=REQUIRED,
        body=NO_BODY,
        answers=(Answer(200, "the keys, and what is wrong", object_shape({"keys": _KEYS, "problems": _PROBLEMS})),),
        errors=(RecordNotFound, Forbidden, TooOften),
        privileges=_READ_STATUS,
        audit=authenticator_events.keys_refreshed,
    )
    async def refresh_keys(self, call: Call, service_id: str | None, account: str) -> Response:
        """Fetch the provider's keys again, here at once, elsewhere by the next login (AUTH-63)."""
        report = await self.authenticators.refresh_keys(call.invocation, account, service_id)
        return Response.json_with_floats({"keys": _keys_json(report), **_problems_json(report.status.problems)})

    @_key_trust(
        "PUT", body=NO_BODY, answers=(Answer(204, "the key is distrusted"),), audit=authenticator_events.key_distrusted
    )
    async def distrust(self, call: Call, service_id: str | None, account: str, key: str) -> Response:
        """Let a key, by its id or its thumbprint, verify nothing any more (AUTH-51)."""
        await self.authenticators.distrust_key(call.invocation, account, service_id, key)
        return Response.empty()

    @_key_trust("DELETE", answers=(Answer(204, "the key is trusted again"),), audit=authenticator_events.key_trusted)
    async def trust(self, call: Call, service_id: str | None, account: str, key: str) -> Response:
        """Let a key verify again."""
        await self.authenticators.trust_key(call.invocation, account, service_id, key)
        return Response.empty()


@attrs.frozen
class DirectoryAuthenticators:
    """The route by which operators see the authenticators ``authn-ldap/<service id>``."""

    routes = Routes()

    directories: LdapStatusService

    @routes.add(
        "GET",
        f"/authn-ldap{_AUTHENTICATOR_PATH}/status",
        caller=REQUIRED,
        answers=_status_answers(_DIRECTORY_STATUS),
        privileges=_READ_STATUS,
        audit=authenticator_events.status_validated,
    )
    async def status(self, call: Call, service_id: str, account: str) -> Response:
        """Return the faults of an authenticator, how its directory answers, and its last refusals (AUTH-58)."""
        call.add_audit_facts(authenticator=DIRECTORY_TYPE)
        try:
            status, refusals = await self.directories.read_status(call.invocation, account, service_id)
        except (RecordNotFound, Forbidden) as refusal:
            return _status_refusal(call, refusal)
        again = None if status.retry_after is None else math.ceil(status.retry_after)
        document = {
            **_problems_json(status.problems),
            "listed": status.listed,
            "bind": {"account": status.account, "outcome": status.outcome, "again": again},
            "bases": [attrs.asdict(base) for base in status.bases],
            "refusals": [
                {"at": iso_milliseconds(each.at), "request_id": each.request_id, "reason": each.reason} for each in refusals
            ],
        }
        return _status_response(status.problems, document)


def _status_refusal(call: Call, refusal: RecordNotFound | Forbidden) -> Response:
    """Return the answer to one who may not see a status (AUTH-59)."""
    if isinstance(refusal, Forbidden):
        return _status_fault(call, 403, "CONJ00006E", f"{call.caller.role} {refusal.why}")
    code = {"account": "CONJ00008E", "webservice": "CONJ00005E"}[refusal.kind]
    return _status_fault(call, 404, code, f"{refusal.kind.capitalize()} '{refusal.identifier}' not found")


def _status_fault(call: Call, status: int, code: str, message: str) -> Response:
    return Response.json({"status": "error", "error": f"{call.dialect.code_prefix(code)}{message}"}, status)


def _status_response(problems: Sequence[Problem], document: Mapping[str, object]) -> Response:
    if not problems:
        return Response.json_with_floats({"status": "ok", **document})
    error = " ".join(problem.what for problem in problems)
    return Response.json_with_floats({"status": "error", "error": error, **document}, 500)


def _keys_json(report: AuthenticatorReport) -> dict[str, object]:
    keys, asked = report.status.keys, report.requested_at
    return {
        "source": report.status.source,
        "uri": report.status.uri,
        "count": len(keys.keys),
        "ids": [kid for kid, _ in keys.keys],
        "thumbprints": [thumbprint for _, thumbprint in keys.keys],
        "age": None if report.age is None else round(report.age, 3),
        "last_fetch": None if asked is None else {"at": iso_milliseconds(asked), "outcome": keys.failure or "ok"},
        "problems": keys.problems,
        "unused": keys.unused,
    }


def _problems_json(problems: Sequence[Problem]) -> dict[str, Json]:
    return {"problems": [{"what": problem.what, "remedy": problem.remedy} for problem in problems]}


def _step_json(step: ExplanationStep) -> dict[str, Json]:
    reason = None if step.reason is None else step.reason.value
    return {"check": step.check, "outcome": step.outcome, "detail": step.detail, "reason": reason}
