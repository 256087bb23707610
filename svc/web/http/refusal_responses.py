"""The single table of refusals: the answers, their descriptions in the OpenAPI document, and the audit's names (FAIL-6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import attrs

from svc.crypto.tokens import INVALID
from svc.model import errors
from svc.model.clocks import iso_milliseconds
from svc.model.credentials import API_KEY_ANNOTATION
from svc.model.dialect import UNSERVED, Dialect
from svc.model.events import OUTCOME_UNKNOWN
from svc.model.reasons import RefusalKind
from svc.web.http.messages import Json, Response, encode_json
from svc.web.http.request_reader import Unreadable

#: The media type of the newer interface.
V2: Final = "application/x.secretsmgr.v2beta+json"

#: Paths of authenticators that are not served (AUTH-66); a published client encodes the slash (WIRE-15).
_UNSERVED: Final = re.compile(f"/({'|'.join(UNSERVED)})(?:/|%2[Ff])")

#: ``json`` is a refusal in JSON, ``newer`` the form of the newer interface; ``empty`` has no body.
Form = Literal["json", "text", "empty", "newer"]


@attrs.frozen
class RefusalAnswer:
    """One answer to a refusal; ``code`` is the member of that name, ``has_retry_after`` says that it has ``Retry-After``."""

    status: int
    form: Form
    code: str
    description: str
    has_retry_after: bool = False


@attrs.frozen
class RefusalRow:
    """A row of the table: ``answers`` as clients know them, what makes one of the refusal and the beginning of its message
    (FAIL-40), and ``audit``, the refusal's name there.
    """

    answers: tuple[RefusalAnswer, ...]
    respond: Callable[[Any, str], Response]
    audit: str = "invalid"


def _error_response(status: int, code: str | int, message: str, **more: Json) -> Response:
    return Response.json({"error": {"code": code, "message": message, **more}}, status)


def _with_parameter_name(parameter: str, message: str) -> str:
    """Return a message that names the parameter; many do already, some of them with a capital."""
    return message if parameter.lower() in message.lower() else f"{parameter}: {message}"


def _invalid_parameter(refusal: errors.InvalidParameter, prefix: str) -> Response:
    message = f"{prefix}{refusal.message}"
    if refusal.code != "validation_failed":
        return _error_response(422, refusal.code, _with_parameter_name(refusal.parameter, message))
    details = [{"code": refusal.code, "target": refusal.parameter, "message": message}]
    return _error_response(422, refusal.code, f"{refusal.parameter} {message}", details=details)


def _not_found(refusal: errors.RecordNotFound) -> Response:
    return _error_response(
        404,
        "not_found",
        f"{refusal.kind.capitalize()} '{refusal.identifier}' not found in account '{refusal.account}'",
        target=refusal.kind,
        details={"code": "not_found", "target": "id", "message": refusal.name},
    )


def _describe_missing_value(refusal: errors.NoValue) -> str:
    # Published clients look for these words, whatever follows them (FAIL-9).
    message = f"Variable {refusal.name} is empty or not found."
    if refusal.expired_at is not None:
        message += f" Its value expired at {iso_milliseconds(refusal.expired_at)}: set a new one."
    return message


def _conflict_response(refusal: errors.Conflict, prefix: str) -> Response:
    details = {"code": "conflict", "target": "id", "message": refusal.identifier}
    return _error_response(409, "conflict", f"{prefix}{refusal.message}", target=refusal.target, details=details)


def _precondition_failed(refusal: errors.PreconditionFailed) -> Response:
    if refusal.tag is None:
        return _error_response(412, "precondition_failed", f"{refusal.header} asks for a value, and there is none now")
    response = _error_response(
        412, "precondition_failed", f"the {refusal.what} is not as {refusal.header} asks; its tag is {refusal.tag} now"
    )
    return Response(response.status, response.body, response.content_type, (("ETag", refusal.tag),))


def _policy_invalid(refusal: errors.PolicyInvalid) -> Response:
    error: dict[str, Json] = {"code": "policy_invalid", "message": refusal.message}
    if refusal.line is not None:
        if not refusal.bare:
            error["message"] = f"Error at line {refusal.line}, column {refusal.column} in policy : {refusal.message}"
        place: Json = {"code": "policy_invalid", "filename": "policy", "line": refusal.line, "column": refusal.column}
        error["innererror"] = place
    faults: dict[str, Json] = {"errors": [fault_json(fault) for fault in refusal.faults]} if refusal.faults else {}
    return Response.json({"error": error, **faults}, 422)


def fault_json(fault: errors.DocumentFault) -> dict[str, Json]:
    """Return a fault of a document as answers have it (POL-73)."""
    place = {} if fault.line is None else {"line": fault.line, "column": fault.column}
    context: Json = {"policy_id": fault.policy_id, "offending_lines": [] if fault.line is None else [fault.line]}
    return {**place, "message": f"{fault.message}\n{fault.advice}", "context": context}


def _media_type_missing(prefix: str) -> Response:
    message = f'{prefix}The api belongs to v2 APIs but it missing the version "{V2}" in the Accept header'
    return Response.content(encode_json({"code": "400", "message": message}), V2, 400)


#: The statuses of refused logins (FAIL-3).
_LOGIN_STATUSES: Final[Mapping[RefusalKind, int]] = {
    RefusalKind.UNPROVEN: 401,
    RefusalKind.MALFORMED: 400,
    RefusalKind.TOO_LARGE: 413,
    RefusalKind.UNPRIVILEGED: 403,
    RefusalKind.POSTPONED: 503,
    RefusalKind.TOO_OFTEN: 429,
}


def _authentication_refused(refusal: errors.AuthenticationRefused, prefix: str) -> Response:
    status = _LOGIN_STATUSES[refusal.kind]
    response = (
        Response.empty(status)
        if refusal.client_message is None
        else _error_response(status, "unauthorized", f"{prefix}{refusal.client_message}")
    )
    return response if refusal.retry_after is None else _with_retry_after(response, refusal.retry_after)


def _forbidden(refusal: errors.Forbidden, prefix: str) -> Response:
    message = refusal.client_message
    return Response.empty(403) if message is None else _error_response(403, "forbidden", f"{prefix}{message}")


def _with_retry_after(response: Response, seconds: int) -> Response:
    return Response(response.status, response.body, response.content_type, (("Retry-After", str(seconds)),))


def no_route(path: str) -> Response:
    """Return the answer where no route has the method and path, with a token or without (WIRE-16)."""
    unserved = _UNSERVED.match(path)
    message = f"there is no route for this method and {path}" if unserved is None else UNSERVED[unserved[1]]
    return _error_response(404, "not_found", message[:200])


#: Returns the message of a refusal, or the whole response to it; or is a message, in which ``r`` stands for the refusal.
Message = Callable[[Any], str | Response] | str


def _row(
    status: int, code: str | int, description: str, message: Message = "", audit: str = "invalid", *, retry: bool = False
) -> RefusalRow:
    """Return the row of an error in JSON, whose message is the description unless there is one; ``retry``: it has
    ``Retry-After``.
    """

    def respond(refusal: Any, prefix: str) -> Response:
        text = (message or description).format(r=refusal) if isinstance(message, str) else message(refusal)
        response = text if isinstance(text, Response) else _error_response(status, code, f"{prefix}{text}")
        return _with_retry_after(response, refusal.retry_after) if retry else response

    return RefusalRow((RefusalAnswer(status, "json", str(code), description, retry),), respond, audit)


def _unavailable(description: str, message: Message = "", audit: str = "unavailable") -> RefusalRow:
    return _row(503, "unavailable", description, message, audit, retry=True)


_LOGIN_ANSWERS: Final = (
    RefusalAnswer(400, "empty", "", "the login's evidence is missing, or can't be read"),
    RefusalAnswer(401, "empty", "", "the login is refused"),
    RefusalAnswer(401, "json", "unauthorized", "the webservice is missing, which the caller may know"),
    RefusalAnswer(403, "empty", "", "the role is proven, and lacks the privilege to log in"),
    RefusalAnswer(413, "empty", "", "the login's evidence is too large"),
    RefusalAnswer(429, "empty", "", "too many failed logins came from the address", has_retry_after=True),
    RefusalAnswer(503, "empty", "", "the login can't be decided now", has_retry_after=True),
)

#: The rows of all refusals that reach the web; where there are several answers, the first one that fits is described first.
REFUSALS: Final[Mapping[type[errors.Refusal], RefusalRow]] = {
    errors.InvalidName: _row(
        422,
        "argument_error",
        "a name in the path, or a parameter, is not well formed",
        lambda r: _with_parameter_name(r.parameter, r.message),
    ),
    errors.InvalidParameter: RefusalRow(
        (
            RefusalAnswer(422, "json", "argument_error", "a parameter or a header has a value that can't be used"),
            RefusalAnswer(422, "json", "unprocessable_entity", "the requested page can't exist"),
            RefusalAnswer(422, "json", "parameter_missing", "a parameter is needed"),
            RefusalAnswer(422, "json", "validation_failed", "a property of a record can't have the requested value"),
        ),
        _invalid_parameter,
    ),
    errors.BadRequest: _row(400, "bad_request", "the body can't be read", "{r.message}"),
    errors.Unprocessable: _row(422, "unprocessable_entity", "the request breaks a rule", "{r.message}"),
    errors.NotAcceptable: RefusalRow(
        (RefusalAnswer(400, "newer", "400", "Accept doesn't name the media type"),),
        lambda _, prefix: _media_type_missing(prefix),
    ),
    errors.TooLarge: _row(
        413, "too_large", "something exceeds its limit in bytes", "{r.what} may have at most {r.limit} bytes", "too-large"
    ),
    errors.BodyEncoded: _row(
        415,
        "unsupported_media_type",
        "the body is compressed, or encoded in another way",
        "the header Content-Encoding says that the body is encoded: send it as it is, without that header",
    ),
    errors.BearerRefused: RefusalRow(
        (RefusalAnswer(401, "text", "", "there is no access token, or it proves nobody"),),
        lambda r, _: Response.text(r.message, 401),
    ),
    errors.CallerReplaced: RefusalRow(
        (RefusalAnswer(401, "text", "", "the access token's role was made again since, or its tokens were revoked"),),
        lambda *_: Response.text(INVALID, 401),
        "token-outdated",
    ),
    errors.AuthenticationRefused: RefusalRow(_LOGIN_ANSWERS, _authentication_refused),
    errors.CredentialInsufficient: _row(
        401,
        "unauthorized",
        "a password or an API key is needed",
        "Credential strength is insufficient",
        "credentials-insufficient",
    ),
    errors.CredentialUnknown: _row(
        404,
        "not_found",
        "the role is missing, or the caller may not see it",
        "Role {r.name} is not found",
        "not-found",
    ),
    errors.CredentialImpossible: _row(
        405,
        "method_not_allowed",
        "the role can't have an API key",
        lambda r: (
            f"{r.name} has no API key: its annotation {API_KEY_ANNOTATION} is false"
            if r.by_policy
            else f"{r.name} has no API key and no access tokens: users and hosts have them"
        ),
    ),
    errors.PasswordsBusy: _unavailable("too many passwords wait"),
    errors.Forbidden: RefusalRow(
        (
            RefusalAnswer(403, "empty", "", "the caller sees it, and lacks the privilege"),
            RefusalAnswer(403, "json", "forbidden", "the same, with what would help"),
        ),
        _forbidden,
        "forbidden",
    ),
    # Only pages of the console answer this, which aren't in the OpenAPI document.
    errors.FormRefused: attrs.evolve(
        _row(403, "form_refused", "", "the form was not sent from a page of this server's console", "form-refused"),
        answers=(),
    ),
    errors.RecordNotFound: _row(404, "not_found", "it is missing, or the caller may not see it", _not_found, "not-found"),
    errors.AuthenticatorNotFound: _row(
        404,
        "not_found",
        "the authenticator is missing, or may not be seen",
        "Authenticator: {r.name} not found in account '{r.account}'",
        "not-found",
    ),
    errors.TooManyRoles: _row(
        422,
        "unprocessable_entity",
        "too many roles would have to be followed",
        "more than {r.limit} roles, or too many memberships between them, would have to be followed",
        "too-many",
    ),
    errors.NoValue: _row(
        404, "not_found", "the variable has no value, is missing, or may not be seen", _describe_missing_value, "not-found"
    ),
    # Published clients look for the first sentence (SEC-15).
    errors.NotText: _row(
        406,
        "not_acceptable",
        "a value is no text: ask for base64",
        "Issue encoding secret into JSON format, try including 'Accept-Encoding: base64' header in request."
        " The value of {r.name} is no text in UTF-8.",
    ),
    errors.RouteNotFound: _row(
        404,
        "not_found",
        "there is no such route after all",
        lambda r: no_route(r.path),
        "not-found",
    ),
    errors.Conflict: RefusalRow(
        (RefusalAnswer(409, "json", "conflict", "it exists already"),), _conflict_response, "conflict"
    ),
    errors.PreconditionFailed: _row(
        412, "precondition_failed", "it is not as the precondition asks", _precondition_failed, "precondition-failed"
    ),
    errors.PolicyConflict: _row(
        409,
        "policy_conflict",
        "the policy is being loaded",
        "Concurrent policy load in progress, please retry",
        "conflict",
        retry=True,
    ),
    errors.RequestRunning: _row(
        409,
        "in_progress",
        "a request with this Idempotency-Key is under way",
        "a request with this Idempotency-Key is under way: its answer can be asked for soon",
        "in-progress",
        retry=True,
    ),
    errors.PolicyInvalid: _row(422, "policy_invalid", "the policy says what can't be", _policy_invalid),
    errors.StoreUnavailable: _unavailable(
        "the database isn't available now", "the database is away now, or took too long over this"
    ),
    # No Retry-After: libraries take that for leave to send a request again.
    errors.OutcomeUnknown: _row(
        503,
        "outcome_unknown",
        "the database didn't confirm the change",
        "the database did not confirm the change: it may have been made, or not, and may still be lost."
        " Once /health is 200 again, read what there is before you repeat it",
        OUTCOME_UNKNOWN,
    ),
    errors.WritesUnavailable: _unavailable(
        "the database takes no writes now", "the database takes no writes now: a setting of it refuses them"
    ),
    errors.PrimaryContested: _unavailable("another server may be the primary", "{r.why}"),
    errors.StoreBehind: _unavailable("the requested state has not arrived", "{r.why}"),
    errors.AuditUnavailable: _unavailable(
        "the request can't be recorded now", "what is asked for can't be recorded in the audit now", "invalid"
    ),
    errors.LoadsUnavailable: _unavailable("policy can't be loaded now", "{r.why}"),
    errors.AuditSearchUnavailable: _unavailable("the audit's files can't be searched now", "{r.why}"),
    errors.TooManyConnections: _unavailable("there are too many connections", "there are too many connections now"),
    errors.TooOften: _row(
        429, "too_many_requests", "it was requested again too soon", "{r.message}", "too-often", retry=True
    ),
    errors.ReadOnlyStandby: _row(
        405, 405, "this server is a follower, and takes no changes", "Write operations are not allowed", "read-only"
    ),
    errors.RenewalElsewhere: _unavailable(
        "this server is a follower: ask the primary",
        "this server is a follower, and a session is renewed by a write: ask the primary",
        "read-only",
    ),
    errors.WrongDataKey: _row(
        422,
        "data_key_invalid",
        "a stored value doesn't open under the data key",
        "a value does not open under the server's data key",
        "data-key-wrong",
    ),
}

#: The rows of answers that every route may give, by their names in the OpenAPI document: the request can't be read as one,
#: or there is a fault in the program, for which ``r`` is the incident.
COMMON: Final[Mapping[str, RefusalRow]] = {
    "Malformed": _row(400, "bad_request", "the data is no request of HTTP/1.1", "this is not a request of HTTP/1.1"),
    "TooSlow": _row(408, "request_timeout", "the request did not arrive in time"),
    "LineTooLong": _row(414, "uri_too_long", "the request line is too long"),
    "HeadersTooLarge": _row(431, "headers_too_large", "the request has too many headers, or too long ones"),
    "InternalError": RefusalRow(
        (RefusalAnswer(500, "json", "internal_error", "a fault in the program, with the id under which the log has it"),),
        lambda incident, _: Response.internal_error(incident),
    ),
}

#: Answers to requests that can't be read as one, or don't arrive; the connection closes after each of them.
UNREADABLE: Final[Mapping[Unreadable, Response]] = {
    Unreadable.MALFORMED: COMMON["Malformed"].respond(None, ""),
    Unreadable.TOO_LARGE: _error_response(413, "too_large", "the body is longer than any that is taken"),
    Unreadable.LINE_TOO_LONG: COMMON["LineTooLong"].respond(None, ""),
    Unreadable.HEADERS_TOO_LARGE: COMMON["HeadersTooLarge"].respond(None, ""),
}
TOO_SLOW: Final = COMMON["TooSlow"].respond(None, "")


def response_to(refusal: errors.Refusal, dialect: Dialect) -> Response | None:
    """Return the answer that the table has for a refusal; ``None`` for one that should not have reached the web: a bug."""
    row = REFUSALS.get(type(refusal))
    return None if row is None else row.respond(refusal, dialect.code_prefix(refusal.vendor_code))


def audit_reason(refusal: errors.Refusal) -> str:
    """Return the code of a refusal in the audit; there what is hidden from the caller is forbidden (AUD-4)."""
    if isinstance(refusal, errors.AuthenticationRefused):
        return refusal.reason.value
    hideable = errors.RecordNotFound | errors.AuthenticatorNotFound | errors.NoValue | errors.CredentialUnknown
    if isinstance(refusal, hideable) and refusal.hidden:
        return "forbidden"
    row = REFUSALS.get(type(refusal))
    return "invalid" if row is None else row.audit
