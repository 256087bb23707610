"""The refusals as clients see them: for each the statuses and forms of ``svc.web.http.refusal_responses``, in words.

The client of the tests compares every refused request with this table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal

import attrs

from svc.model import errors
from svc.web.http.refusal_responses import V2
from svc.web.openapi.schemas import Object

#: ``json`` is a refusal in JSON, ``v2_forms`` the form of the newer interface; ``empty`` has no body.
Form = Literal["json", "text", "empty", "newer"]

_CONTENT: Final[Mapping[Form, Mapping[str, Object]]] = {
    "json": {"application/json": {"$ref": "#/components/schemas/Refusal"}},
    "text": {"text/plain": {"type": "string"}},
    "empty": {},
    "newer": {V2: {"$ref": "#/components/schemas/NewerRefusal"}},
}


@attrs.frozen
class RefusalAnswer:
    """One answer to a refusal; ``code`` is the member of that name, ``has_retry_after`` says that it has ``Retry-After``."""

    status: int
    form: Form
    code: str
    description: str
    has_retry_after: bool = False

    @property
    def content(self) -> Mapping[str, Object]:
        """The schemas of the body, by media type."""
        return _CONTENT[self.form]


def _login_answers() -> Iterator[RefusalAnswer]:
    yield RefusalAnswer(400, "empty", "", "the login's evidence is missing, or can't be read")
    yield RefusalAnswer(401, "empty", "", "the login is refused")
    yield RefusalAnswer(401, "json", "unauthorized", "the webservice is missing, which the caller may know")
    yield RefusalAnswer(403, "empty", "", "the role is proven, and lacks the privilege to log in")
    yield RefusalAnswer(413, "empty", "", "the login's evidence is too large")
    yield RefusalAnswer(429, "empty", "", "too many failed logins came from the address", has_retry_after=True)
    yield RefusalAnswer(503, "empty", "", "the login can't be decided now", has_retry_after=True)


def _single_answer(*values: Any, **more: Any) -> tuple[RefusalAnswer, ...]:
    return (RefusalAnswer(*values, **more),)


REFUSAL_ANSWERS: Final[Mapping[type[errors.Refusal], tuple[RefusalAnswer, ...]]] = {
    errors.InvalidName: _single_answer(
        422, "json", "argument_error", "a name in the path, or a parameter, is not well formed"
    ),
    errors.InvalidParameter: (
        RefusalAnswer(422, "json", "argument_error", "a parameter or a header has a value that can't be used"),
        RefusalAnswer(422, "json", "unprocessable_entity", "the requested page can't exist"),
        RefusalAnswer(422, "json", "parameter_missing", "a parameter is needed"),
        RefusalAnswer(422, "json", "validation_failed", "a property of a record can't have the requested value"),
    ),
    errors.BadRequest: _single_answer(400, "json", "bad_request", "the body can't be read"),
    errors.Unprocessable: _single_answer(422, "json", "unprocessable_entity", "the request breaks a rule"),
    errors.MediaTypeMissing: _single_answer(400, "newer", "400", "Accept doesn't name the media type"),
    errors.TooLarge: _single_answer(413, "json", "too_large", "something exceeds its limit in bytes"),
    errors.BearerRefused: _single_answer(401, "text", "", "there is no access token, or it proves nobody"),
    errors.CallerReplaced: _single_answer(
        401, "text", "", "the access token's role was made again since, or its tokens were revoked"
    ),
    errors.AuthenticationRefused: tuple(_login_answers()),
    errors.CredentialInsufficient: _single_answer(401, "json", "unauthorized", "a password or an API key is needed"),
    errors.CredentialUnknown: _single_answer(404, "json", "not_found", "the role is missing, or the caller may not see it"),
    errors.CredentialImpossible: _single_answer(405, "json", "method_not_allowed", "the role can't have an API key"),
    errors.PasswordsBusy: _single_answer(503, "json", "unavailable", "too many passwords wait", has_retry_after=True),
    errors.Forbidden: (
        RefusalAnswer(403, "empty", "", "the caller sees it, and lacks the privilege"),
        RefusalAnswer(403, "json", "forbidden", "the same, with what would help"),
    ),
    errors.RecordNotFound: _single_answer(404, "json", "not_found", "it is missing, or the caller may not see it"),
    errors.AuthenticatorNotFound: _single_answer(
        404, "json", "not_found", "the authenticator is missing, or may not be seen"
    ),
    errors.TooManyRoles: _single_answer(422, "json", "unprocessable_entity", "too many roles would have to be followed"),
    errors.NoValue: _single_answer(404, "json", "not_found", "the variable has no value, is missing, or may not be seen"),
    errors.NotText: _single_answer(406, "json", "not_acceptable", "a value is no text: ask for base64"),
    errors.RouteNotFound: _single_answer(404, "json", "not_found", "there is no such route after all"),
    errors.Conflict: _single_answer(409, "json", "conflict", "it exists already"),
    errors.PreconditionFailed: _single_answer(412, "json", "precondition_failed", "it is not as the precondition asks"),
    errors.PolicyConflict: _single_answer(
        409, "json", "policy_conflict", "the policy is being loaded", has_retry_after=True
    ),
    errors.RequestRunning: _single_answer(
        409, "json", "in_progress", "a request with this Idempotency-Key is under way", has_retry_after=True
    ),
    errors.PolicyInvalid: _single_answer(422, "json", "policy_invalid", "the policy says what can't be"),
    errors.StoreUnavailable: _single_answer(
        503, "json", "unavailable", "the database isn't available now", has_retry_after=True
    ),
    errors.OutcomeUnknown: _single_answer(503, "json", "outcome_unknown", "the database didn't confirm the change"),
    errors.PrimaryContested: _single_answer(
        503, "json", "unavailable", "another server may be the primary", has_retry_after=True
    ),
    errors.StoreBehind: _single_answer(
        503, "json", "unavailable", "the requested state has not arrived", has_retry_after=True
    ),
    errors.AuditUnavailable: _single_answer(
        503, "json", "unavailable", "the request can't be recorded now", has_retry_after=True
    ),
    errors.LoadsUnavailable: _single_answer(503, "json", "unavailable", "policy can't be loaded now", has_retry_after=True),
    errors.TooManyConnections: _single_answer(
        503, "json", "unavailable", "there are too many connections", has_retry_after=True
    ),
    errors.TooOften: _single_answer(
        429, "json", "too_many_requests", "it was requested again too soon", has_retry_after=True
    ),
    errors.StoreReadOnly: _single_answer(405, "json", "405", "this server is a follower, and takes no changes"),
    errors.RenewalElsewhere: _single_answer(
        503, "json", "unavailable", "this server is a follower: ask the primary", has_retry_after=True
    ),
    errors.WrongDataKey: _single_answer(422, "json", "data_key_invalid", "a stored value doesn't open under the data key"),
}

#: The answers possible on any route: the request was not read to its end, or there is a fault in the program.
COMMON_ANSWERS: Final[Mapping[str, RefusalAnswer]] = {
    "Malformed": RefusalAnswer(400, "json", "bad_request", "the data is no request of HTTP/1.1"),
    "TooSlow": RefusalAnswer(408, "json", "request_timeout", "the request did not arrive in time"),
    "LineTooLong": RefusalAnswer(414, "json", "uri_too_long", "the request line is too long"),
    "HeadersTooLarge": RefusalAnswer(431, "json", "headers_too_large", "the request has too many headers, or too long ones"),
    "InternalError": RefusalAnswer(
        500, "json", "internal_error", "a fault in the program, with the id under which the log has it"
    ),
}


def answers_to(refusals: Collection[type[errors.Refusal]]) -> list[RefusalAnswer]:
    """Return the answers to these refusals, in the table's order."""
    return [answer for refusal, answers in REFUSAL_ANSWERS.items() if refusal in refusals for answer in answers]


def v2_forms(answer: RefusalAnswer) -> tuple[RefusalAnswer, ...]:
    """Return the forms of a refusal on a route of the newer interface (NEWER-5): most have two."""
    if answer.form == "text":
        return answer, attrs.evolve(answer, form="empty")
    return (answer, attrs.evolve(answer, form="newer")) if answer.form == "json" else (answer,)
