"""The refusals as clients see them: for each the statuses and forms of ``svc.web.http.faults``, in words.

The client of the tests compares every refused request with this table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal

import attrs

from svc.model import errors
from svc.web.http.faults import V2
from svc.web.openapi.schemas import Object

#: ``json`` is a refusal in JSON, ``newer`` the form of the newer interface; ``empty`` has no body.
Form = Literal["json", "text", "empty", "newer"]

_CONTENT: Final[Mapping[Form, Mapping[str, Object]]] = {
    "json": {"application/json": {"$ref": "#/components/schemas/Refusal"}},
    "text": {"text/plain": {"type": "string"}},
    "empty": {},
    "newer": {V2: {"$ref": "#/components/schemas/NewerRefusal"}},
}


@attrs.frozen
class Told:
    """One answer to a refusal; ``code`` is the member of that name, ``later`` says that it has ``Retry-After``."""

    status: int
    form: Form
    code: str
    why: str
    later: bool = False

    @property
    def content(self) -> Mapping[str, Object]:
        """The schemas of the body, by media type."""
        return _CONTENT[self.form]


def _login() -> Iterator[Told]:
    yield Told(400, "empty", "", "the login's evidence is missing, or can't be read")
    yield Told(401, "empty", "", "the login is refused")
    yield Told(401, "json", "unauthorized", "the webservice is missing, which the caller may know")
    yield Told(403, "empty", "", "the role is proven, and lacks the privilege to log in")
    yield Told(413, "empty", "", "the login's evidence is too large")
    yield Told(429, "empty", "", "too many failed logins came from the address", later=True)
    yield Told(503, "empty", "", "the login can't be decided now", later=True)


def _one(*told: Any, **more: Any) -> tuple[Told, ...]:
    return (Told(*told, **more),)


TOLD: Final[Mapping[type[errors.Refusal], tuple[Told, ...]]] = {
    errors.InvalidName: _one(422, "json", "argument_error", "a name in the path, or a parameter, is not well formed"),
    errors.InvalidParameter: (
        Told(422, "json", "argument_error", "a parameter or a header has a value that can't be used"),
        Told(422, "json", "unprocessable_entity", "the requested page can't exist"),
        Told(422, "json", "parameter_missing", "a parameter is needed"),
        Told(422, "json", "validation_failed", "a property of a record can't have the requested value"),
    ),
    errors.BadRequest: _one(400, "json", "bad_request", "the body can't be read"),
    errors.Unprocessable: _one(422, "json", "unprocessable_entity", "the request breaks a rule"),
    errors.MediaTypeMissing: _one(400, "newer", "400", "Accept doesn't name the media type"),
    errors.TooLarge: _one(413, "json", "too_large", "something exceeds its limit in bytes"),
    errors.BearerRefused: _one(401, "text", "", "there is no access token, or it proves nobody"),
    errors.CallerReplaced: _one(401, "text", "", "the access token's role was made again since, or its tokens were revoked"),
    errors.AuthenticationRefused: tuple(_login()),
    errors.CredentialInsufficient: _one(401, "json", "unauthorized", "a password or an API key is needed"),
    errors.CredentialUnknown: _one(404, "json", "not_found", "the role is missing, or the caller may not see it"),
    errors.CredentialImpossible: _one(405, "json", "method_not_allowed", "the role can't have an API key"),
    errors.PasswordsBusy: _one(503, "json", "unavailable", "too many passwords wait", later=True),
    errors.Forbidden: (
        Told(403, "empty", "", "the caller sees it, and lacks the privilege"),
        Told(403, "json", "forbidden", "the same, with what would help"),
    ),
    errors.RecordNotFound: _one(404, "json", "not_found", "it is missing, or the caller may not see it"),
    errors.AuthenticatorNotFound: _one(404, "json", "not_found", "the authenticator is missing, or may not be seen"),
    errors.TooManyRoles: _one(422, "json", "unprocessable_entity", "too many roles would have to be followed"),
    errors.NoValue: _one(404, "json", "not_found", "the variable has no value, is missing, or may not be seen"),
    errors.NotText: _one(406, "json", "not_acceptable", "a value is no text: ask for base64"),
    errors.RouteNotFound: _one(404, "json", "not_found", "there is no such route after all"),
    errors.Conflict: _one(409, "json", "conflict", "it exists already"),
    errors.PreconditionFailed: _one(412, "json", "precondition_failed", "it is not as the precondition asks"),
    errors.PolicyConflict: _one(409, "json", "policy_conflict", "the policy is being loaded", later=True),
    errors.RequestRunning: _one(409, "json", "in_progress", "a request with this Idempotency-Key is under way", later=True),
    errors.PolicyInvalid: _one(422, "json", "policy_invalid", "the policy says what can't be"),
    errors.StoreUnavailable: _one(503, "json", "unavailable", "the database isn't available now", later=True),
    errors.OutcomeUnknown: _one(503, "json", "outcome_unknown", "the database didn't confirm the change"),
    errors.PrimaryContested: _one(503, "json", "unavailable", "another server may be the primary", later=True),
    errors.StoreBehind: _one(503, "json", "unavailable", "the requested state has not arrived", later=True),
    errors.AuditUnavailable: _one(503, "json", "unavailable", "the request can't be recorded now", later=True),
    errors.LoadsUnavailable: _one(503, "json", "unavailable", "policy can't be loaded now", later=True),
    errors.TooManyConnections: _one(503, "json", "unavailable", "there are too many connections", later=True),
    errors.TooOften: _one(429, "json", "too_many_requests", "it was requested again too soon", later=True),
    errors.StoreReadOnly: _one(405, "json", "405", "this server is a follower, and takes no changes"),
    errors.RenewalElsewhere: _one(503, "json", "unavailable", "this server is a follower: ask the primary", later=True),
    errors.WrongDataKey: _one(422, "json", "data_key_invalid", "a stored value doesn't open under the data key"),
}

#: The answers possible on any route: the request was not read to its end, or there is a fault in the program.
ALWAYS: Final[Mapping[str, Told]] = {
    "Malformed": Told(400, "json", "bad_request", "the data is no request of HTTP/1.1"),
    "TooSlow": Told(408, "json", "request_timeout", "the request did not arrive in time"),
    "LineTooLong": Told(414, "json", "uri_too_long", "the request line is too long"),
    "HeadersTooLarge": Told(431, "json", "headers_too_large", "the request has too many headers, or too long ones"),
    "InternalError": Told(500, "json", "internal_error", "a fault in the program, with the id under which the log has it"),
}


def told_of(refusals: Collection[type[errors.Refusal]]) -> list[Told]:
    """Return the answers to these refusals, in the table's order."""
    return [told for refusal, answers in TOLD.items() if refusal in refusals for told in answers]


def newer(told: Told) -> tuple[Told, ...]:
    """Return the forms of a refusal on a route of the newer interface (NEWER-5): most have two."""
    if told.form == "text":
        return told, attrs.evolve(told, form="empty")
    return (told, attrs.evolve(told, form="newer")) if told.form == "json" else (told,)
