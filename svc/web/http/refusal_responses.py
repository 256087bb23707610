"""The single table of the answers to the service's refusals (FAIL-6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from svc.crypto.tokens import INVALID
from svc.model import errors
from svc.model.clocks import iso_milliseconds
from svc.model.credentials import API_KEY_ANNOTATION
from svc.model.events import OUTCOME_UNKNOWN
from svc.model.reasons import RefusalKind
from svc.model.unserved import UNSERVED
from svc.web.http.json_encoding import Json, encode_json
from svc.web.http.response import Response

#: The media type of the newer interface.
V2: Final = "application/x.secretsmgr.v2beta+json"

#: Paths of authenticators that are not served (AUTH-66); a published client encodes the slash (WIRE-15).
_UNSERVED: Final = re.compile(f"/({'|'.join(UNSERVED)})(?:/|%2[Ff])")


def _error_response(status: int, code: str | int, message: str, **more: Json) -> Response:
    return Response.json({"error": {"code": code, "message": message, **more}}, status)


def _with_parameter_name(parameter: str, message: str) -> str:
    """Return a message that names the parameter; many do already, some of them with a capital."""
    return message if parameter.lower() in message.lower() else f"{parameter}: {message}"


def _invalid_parameter(refusal: errors.InvalidParameter) -> Response:
    if refusal.code != "validation_failed":
        return _error_response(422, refusal.code, _with_parameter_name(refusal.parameter, refusal.message))
    details = [{"code": refusal.code, "target": refusal.parameter, "message": refusal.message}]
    return _error_response(422, refusal.code, f"{refusal.parameter} {refusal.message}", details=details)


def _not_found(refusal: errors.RecordNotFound) -> Response:
    return _error_response(
        404,
        "not_found",
        f"{refusal.kind.capitalize()} '{refusal.identifier}' not found in account '{refusal.account}'",
        target=refusal.kind,
        details={"code": "not_found", "target": "id", "message": refusal.name},
    )


def _no_value(refusal: errors.NoValue) -> Response:
    # Published clients look for these words, whatever follows them (FAIL-9).
    message = f"CONJ00076E Variable {refusal.name} is empty or not found."
    if refusal.expired_at is not None:
        message += f" Its value expired at {iso_milliseconds(refusal.expired_at)}: set a new one."
    return _error_response(404, "not_found", message)


def _conflict_response(refusal: errors.Conflict) -> Response:
    details = {"code": "conflict", "target": "id", "message": refusal.identifier}
    return _error_response(409, "conflict", refusal.message, target=refusal.target, details=details)


def _precondition_failed(refusal: errors.PreconditionFailed) -> Response:
    if refusal.tag is None:
        return _error_response(412, "precondition_failed", f"{refusal.header} asks for a value, and there is none now")
    response = _error_response(
        412, "precondition_failed", f"the value is not as {refusal.header} asks; its tag is {refusal.tag} now"
    )
    return Response(response.status, response.body, response.content_type, (("ETag", refusal.tag),))


def _policy_invalid(refusal: errors.PolicyInvalid) -> Response:
    if refusal.line is None:
        return _error_response(422, "policy_invalid", refusal.message)
    place: Json = {"code": "policy_invalid", "filename": "policy", "line": refusal.line, "column": refusal.column}
    message = f"Error at line {refusal.line}, column {refusal.column} in policy : {refusal.message}"
    return _error_response(422, "policy_invalid", refusal.message if refusal.bare else message, innererror=place)


def _media_type_missing() -> Response:
    message = f'CONJ00194W The api belongs to v2 APIs but it missing the version "{V2}" in the Accept header'
    return Response.content(encode_json({"code": "400", "message": message}), V2, 400)


def _unavailable_response(message: str, seconds: int) -> Response:
    return _with_retry_after(_error_response(503, "unavailable", message), seconds)


#: The statuses of refused logins (FAIL-3).
_LOGIN_STATUSES: Final[Mapping[RefusalKind, int]] = {
    RefusalKind.UNPROVEN: 401,
    RefusalKind.MALFORMED: 400,
    RefusalKind.TOO_LARGE: 413,
    RefusalKind.UNPRIVILEGED: 403,
    RefusalKind.POSTPONED: 503,
    RefusalKind.TOO_OFTEN: 429,
}


def _authentication_refused(refusal: errors.AuthenticationRefused) -> Response:
    status = _LOGIN_STATUSES[refusal.kind]
    response = (
        Response.empty(status)
        if refusal.client_message is None
        else _error_response(status, "unauthorized", refusal.client_message)
    )
    return response if refusal.retry_after is None else _with_retry_after(response, refusal.retry_after)


def _with_retry_after(response: Response, seconds: int) -> Response:
    return Response(response.status, response.body, response.content_type, (("Retry-After", str(seconds)),))


def no_route(path: str) -> Response:
    """Return the answer where no route has the method and path, with a token or without (WIRE-16)."""
    unserved = _UNSERVED.match(path)
    message = f"there is no route for this method and {path}" if unserved is None else UNSERVED[unserved[1]]
    return _error_response(404, "not_found", message[:200])


_RESPONSES: Final[Mapping[type[errors.Refusal], Callable[[Any], Response]]] = {
    errors.InvalidName: lambda r: _error_response(422, "argument_error", _with_parameter_name(r.parameter, r.message)),
    errors.InvalidParameter: _invalid_parameter,
    errors.BadRequest: lambda r: _error_response(400, "bad_request", r.message),
    errors.Unprocessable: lambda r: _error_response(422, "unprocessable_entity", r.message),
    errors.MediaTypeMissing: lambda _: _media_type_missing(),
    errors.TooLarge: lambda r: _error_response(413, "too_large", f"{r.what} may have at most {r.limit} bytes"),
    errors.BearerRefused: lambda r: Response.text(r.message, 401),
    errors.CallerReplaced: lambda _: Response.text(INVALID, 401),
    errors.AuthenticationRefused: _authentication_refused,
    errors.CredentialInsufficient: lambda _: _error_response(401, "unauthorized", "Credential strength is insufficient"),
    errors.CredentialUnknown: lambda r: _error_response(404, "not_found", f"CONJ00123E Role {r.name} is not found"),
    errors.CredentialImpossible: lambda r: _error_response(
        405,
        "method_not_allowed",
        f"CONJ00126E {r.name} has no API key: its annotation {API_KEY_ANNOTATION} is false"
        if r.by_policy
        else f"CONJ00126E {r.name} has no API key and no access tokens: users and hosts have them",
    ),
    errors.PasswordsBusy: lambda r: _unavailable_response("too many passwords wait", r.retry_after),
    errors.Forbidden: lambda r: (
        Response.empty(403) if r.client_message is None else _error_response(403, "forbidden", r.client_message)
    ),
    errors.FormRefused: lambda _: _error_response(
        403, "form_refused", "the form was not sent from a page of this server's console"
    ),
    errors.RecordNotFound: _not_found,
    errors.AuthenticatorNotFound: lambda r: _error_response(
        404, "not_found", f"Authenticator: {r.name} not found in account '{r.account}'"
    ),
    errors.TooManyRoles: lambda r: _error_response(
        422,
        "unprocessable_entity",
        f"more than {r.limit} roles, or too many memberships between them, would have to be followed",
    ),
    errors.NoValue: _no_value,
    # Published clients look for the first sentence (SEC-15).
    errors.NotText: lambda r: _error_response(
        406,
        "not_acceptable",
        "CONJ00074E Issue encoding secret into JSON format, try including 'Accept-Encoding: base64' header in request."
        f" The value of {r.name} is no text in UTF-8.",
    ),
    errors.RouteNotFound: lambda r: no_route(r.path),
    errors.Conflict: _conflict_response,
    errors.PreconditionFailed: _precondition_failed,
    errors.PolicyConflict: lambda r: _with_retry_after(
        _error_response(409, "policy_conflict", "Concurrent policy load in progress, please retry"), r.retry_after
    ),
    errors.RequestRunning: lambda r: _with_retry_after(
        _error_response(
            409, "in_progress", "a request with this Idempotency-Key is under way: its answer can be asked for soon"
        ),
        r.retry_after,
    ),
    errors.PolicyInvalid: _policy_invalid,
    errors.StoreUnavailable: lambda r: _unavailable_response(
        "the database is away now, or took too long over this", r.retry_after
    ),
    # No Retry-After: libraries take that for leave to send a request again.
    errors.OutcomeUnknown: lambda _: _error_response(
        503,
        "outcome_unknown",
        "the database did not confirm the change: it may have been made, or not, and may still be lost."
        " Once /health is 200 again, read what there is before you repeat it",
    ),
    errors.PrimaryContested: lambda r: _unavailable_response(r.why, r.retry_after),
    errors.StoreBehind: lambda r: _unavailable_response(r.why, r.retry_after),
    errors.AuditUnavailable: lambda r: _unavailable_response(
        "what is asked for can't be recorded in the audit now", r.retry_after
    ),
    errors.LoadsUnavailable: lambda r: _unavailable_response(r.why, r.retry_after),
    errors.TooManyConnections: lambda r: _unavailable_response("there are too many connections now", r.retry_after),
    errors.TooOften: lambda r: _with_retry_after(_error_response(429, "too_many_requests", r.message), r.retry_after),
    errors.StoreReadOnly: lambda _: _error_response(405, 405, "Write operations are not allowed"),
    errors.RenewalElsewhere: lambda r: _unavailable_response(
        "this server is a follower, and a session is renewed by a write: ask the primary", r.retry_after
    ),
    errors.WrongDataKey: lambda _: _error_response(
        422, "data_key_invalid", "a value does not open under the server's data key"
    ),
}

#: The refusals that the table has an answer for.
REFUSALS_WITH_RESPONSE: Final = frozenset(_RESPONSES)

#: The audit's name for each refusal; ``invalid`` for those that aren't here.
_AUDIT_REASONS: Final[Mapping[type[errors.Refusal], str]] = {
    errors.Forbidden: "forbidden",
    errors.FormRefused: "form-refused",
    errors.RecordNotFound: "not-found",
    errors.AuthenticatorNotFound: "not-found",
    errors.NoValue: "not-found",
    errors.RouteNotFound: "not-found",
    errors.CredentialUnknown: "not-found",
    errors.CallerReplaced: "token-outdated",
    errors.CredentialInsufficient: "credentials-insufficient",
    errors.PreconditionFailed: "precondition-failed",
    errors.Conflict: "conflict",
    errors.PolicyConflict: "conflict",
    errors.RequestRunning: "in-progress",
    errors.StoreUnavailable: "unavailable",
    errors.OutcomeUnknown: OUTCOME_UNKNOWN,
    errors.PrimaryContested: "unavailable",
    errors.StoreBehind: "unavailable",
    errors.LoadsUnavailable: "unavailable",
    errors.PasswordsBusy: "unavailable",
    errors.TooManyConnections: "unavailable",
    errors.StoreReadOnly: "read-only",
    errors.RenewalElsewhere: "read-only",
    errors.TooOften: "too-often",
    errors.TooManyRoles: "too-many",
    errors.TooLarge: "too-large",
    errors.WrongDataKey: "data-key-wrong",
}

#: Answers to requests that cannot be read as one; the connection closes after each of them.
MALFORMED: Final = _error_response(400, "bad_request", "this is not a request of HTTP/1.1")
TOO_SLOW: Final = _error_response(408, "request_timeout", "the request did not arrive in time")
TOO_LARGE: Final = _error_response(413, "too_large", "the body is longer than any that is taken")
LINE_TOO_LONG: Final = _error_response(414, "uri_too_long", "the request line is too long")
HEADERS_TOO_LARGE: Final = _error_response(431, "headers_too_large", "the request has too many headers, or too long ones")


def response_to(refusal: errors.Refusal) -> Response | None:
    """Return the answer that the table has for a refusal; ``None`` for one that should not have reached the web: a bug."""
    fault = _RESPONSES.get(type(refusal))
    return None if fault is None else fault(refusal)


def audit_reason(refusal: errors.Refusal) -> str:
    """Return the code of a refusal in the audit; there what is hidden from the caller is forbidden (AUD-4)."""
    if isinstance(refusal, errors.AuthenticationRefused):
        return refusal.reason.value
    hideable = errors.RecordNotFound | errors.AuthenticatorNotFound | errors.NoValue | errors.CredentialUnknown
    if isinstance(refusal, hideable) and refusal.hidden:
        return "forbidden"
    return _AUDIT_REASONS.get(type(refusal), "invalid")


def internal_error(incident: str) -> Response:
    """Return the answer to a bug: it has nothing but the id under which the log has it."""
    return _error_response(500, "internal_error", f"an internal error, in the log as incident {incident}")
