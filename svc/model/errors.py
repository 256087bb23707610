"""Refusals of the domain: frozen exceptions, which one table in ``web`` turns into responses.

``retry_after`` is in seconds. ``why`` is for the log and for operators alone, unless a class says otherwise.
``vendor_code`` is the code that clients of the installed base look for; the dialect decides whether an answer shows it
(FAIL-40), so that no message contains one.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import attrs

from svc.model.reasons import Reason, RefusalKind


@attrs.frozen(init=False)
class Refusal(Exception):
    """The service declines to do what was asked; the root of everything below, never raised itself."""

    #: See above; none, unless a class or what raises it says otherwise.
    vendor_code = ""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        fields = attrs.astuple(self, filter=lambda field, _: field.repr is True, recurse=False)
        return ": ".join([type(self).__name__, *(str(value) for value in fields if value is not None)])


@attrs.frozen(str=False)
class InvalidName(Refusal):
    """A name or another parameter is not well formed; raised by ``names`` and by ``web`` while it reads a request (422)."""

    parameter: str
    message: str


@attrs.frozen(str=False)
class InvalidParameter(Refusal):
    """A parameter has a value that cannot be used; raised by ``web`` and ``storage`` (422). ``code``: see FAIL-4."""

    parameter: str
    message: str
    code: str = "argument_error"
    vendor_code: str = attrs.field(default="", eq=False, repr=False)


@attrs.frozen(str=False)
class BadRequest(Refusal):
    """The request cannot be read at all: a malformed form, header or JSON body; raised by ``web`` (400)."""

    message: str


@attrs.frozen(str=False)
class Unprocessable(Refusal):
    """A request of the newer interface asks for something impossible; raised by ``services`` and ``web`` (422)."""

    message: str
    vendor_code: str = attrs.field(default="", eq=False, repr=False)


@attrs.frozen(str=False)
class NotAcceptable(Refusal):
    """A request of the newer interface doesn't accept its media type; raised by ``web`` (400, NEWER-2)."""

    vendor_code = "CONJ00194W"


@attrs.frozen(str=False)
class TooLarge(Refusal):
    """Something exceeds its limit in bytes; raised by ``web`` and ``authenticators`` (413)."""

    what: str
    limit: int


@attrs.frozen(str=False)
class BodyEncoded(Refusal):
    """A body has a content coding; raised by ``web`` (415)."""


@attrs.frozen(str=False)
class BearerRefused(Refusal):
    """The access token proves no caller; raised by ``tokens`` and ``web`` (401), with a text of WIRE-30."""

    message: str


@attrs.frozen(str=False)
class CallerReplaced(Refusal):
    """The token's role was deleted and made again, or its tokens were revoked; raised by ``storage`` for callers (401)."""


@attrs.frozen(str=False)
class AuthenticationRefused(Refusal):
    """An authenticate or login request failed; raised by ``services``, ``web`` and ``tokens``.

    The client learns ``kind``, ``retry_after`` and ``client_message`` alone; ``reason`` and its details have been logged by
    then. ``detail`` and ``known_role`` are those of ``authentication.Refused``.
    """

    reason: Reason
    kind: RefusalKind = RefusalKind.UNPROVEN
    retry_after: int | None = attrs.field(default=None, repr=False)
    detail: str = attrs.field(default="", eq=False, repr=False)
    known_role: str | None = attrs.field(default=None, eq=False, repr=False)
    client_message: str | None = attrs.field(default=None, eq=False, repr=False)
    vendor_code: str = attrs.field(default="", eq=False, repr=False)


@attrs.frozen(str=False)
class CredentialInsufficient(Refusal):
    """The caller is known by an access token, where a password or an API key is required; raised by ``web`` (401)."""


@attrs.frozen(str=False)
class CredentialUnknown(Refusal):
    """The role is missing, or the caller may not see it; raised by ``web`` (404). ``hidden``: see ``RecordNotFound``."""

    vendor_code = "CONJ00123E"

    name: str
    hidden: bool = attrs.field(default=False, eq=False, repr=False)


@attrs.frozen(str=False)
class CredentialImpossible(Refusal):
    """Roles of this kind have no credential, or this one has no API key by policy; raised for callers that could have
    replaced it (405).
    """

    vendor_code = "CONJ00126E"

    name: str
    by_policy: bool = False


@attrs.frozen(str=False)
class PasswordsBusy(Refusal):
    """More passwords wait to be hashed than may; raised by ``passwords`` (503 with ``Retry-After``)."""

    retry_after: int = 2


@attrs.frozen(str=False)
class AddressRefused(Refusal):
    """A host has no address, or one that may not be connected to; raised by ``lookup``; ``why`` never holds the address."""

    why: str


#: How ``why`` ends where operators can permit the address; it is passed on as text, and remedies search for it.
UNLISTED: Final = "allow_private_providers doesn't list it"

#: How ``why`` says that an answer is a redirect, and where that leads; passed on and searched for in the same way.
REDIRECTED: Final = "redirects are not followed"
LEADS: Final = f"{REDIRECTED}; it leads to "

#: How ``why`` says that a provider's document is that of another one; passed on and searched for in the same way.
ISSUER_DIFFERS: Final = "its issuer is "

#: How ``why`` says that a provider's document is at fault; passed on and searched for in the same way.
DOCUMENT_UNUSABLE: Final = "the discovery document is not usable: "


@attrs.frozen(str=False)
class Forbidden(Refusal):
    """The caller sees the thing but lacks the privilege; raised by ``authorization`` (403). ``client_message`` is for the
    caller.
    """

    why: str
    client_message: str | None = attrs.field(default=None, repr=False)
    vendor_code: str = attrs.field(default="", eq=False, repr=False)


@attrs.frozen(str=False)
class RecordNotFound(Refusal):
    """A record is missing, or ``hidden`` (for the audit); raised by ``authorization`` and ``storage`` (404, ROLE-6)."""

    account: str
    kind: str
    identifier: str
    hidden: bool = attrs.field(default=False, eq=False, repr=False)

    @classmethod
    def for_name(cls, name: object, *, hidden: bool = False) -> Self:
        """Make it from a ``RoleName`` or ``ResourceName``."""
        account, kind, identifier = str(name).split(":", 2)
        return cls(account, kind, identifier, hidden)

    @property
    def name(self) -> str:
        """Return the full id."""
        return f"{self.account}:{self.kind}:{self.identifier}"


@attrs.frozen(str=False)
class AuthenticatorNotFound(Refusal):
    """An authenticator of the newer interface is missing, or ``hidden`` (for the audit); raised by ``services`` (404)."""

    account: str
    name: str
    hidden: bool = attrs.field(default=False, eq=False, repr=False)


@attrs.frozen(str=False)
class TooManyRoles(Refusal):
    """More than ``limit`` roles, or too many memberships, would have to be followed; raised by ``storage`` (422)."""

    limit: int


@attrs.frozen(str=False)
class NoValue(Refusal):
    """A variable has no value, is missing, or may not be seen; raised when a secret is read (404).

    ``expired_at`` (seconds since the epoch) is for those who could have read the value. ``hidden``: see ``RecordNotFound``.
    ``readable``: the caller may read the variable, which is there; for operators alone.
    """

    vendor_code = "CONJ00076E"

    name: str
    expired_at: float | None = None
    hidden: bool = attrs.field(default=False, eq=False, repr=False)
    readable: bool = attrs.field(default=False, eq=False, repr=False)


@attrs.frozen(str=False)
class NotText(Refusal):
    """One of several values that would stand in JSON is no UTF-8 text; raised by ``web`` (406)."""

    vendor_code = "CONJ00074E"

    name: str


@attrs.frozen(str=False)
class RouteNotFound(Refusal):
    """No route has this path and method; raised by ``web`` (404)."""

    method: str
    path: str


@attrs.frozen(str=False)
class Conflict(Refusal):
    """The record exists already; raised by ``storage`` (409)."""

    target: str
    identifier: str
    message: str
    vendor_code: str = attrs.field(default="", eq=False, repr=False)


@attrs.frozen(str=False)
class PreconditionFailed(Refusal):
    """A thing with the tag ``tag``, or none, is not as ``header`` demands; raised by ``services`` and ``web`` (412)."""

    header: str
    tag: str | None
    what: str = "value"


@attrs.frozen(str=False)
class FormRefused(Refusal):
    """A form of the console came from a page that isn't its own, or is another browser's; raised by ``web`` (403)."""

    why: str


@attrs.frozen(str=False)
class PolicyConflict(Refusal):
    """Another load of the same policy is under way or won a race; raised by ``storage`` (409 with ``Retry-After``)."""

    retry_after: int = 1


@attrs.frozen(str=False)
class RequestRunning(Refusal):
    """A request with the same ``Idempotency-Key`` is under way; raised by ``storage`` (409 with ``Retry-After``)."""

    retry_after: int = 1


class DocumentFault(NamedTuple):
    """A fault of a document for the policy ``policy_id``, its remedy, and its place, counted from 1, or ``None``."""

    policy_id: str
    message: str
    advice: str
    line: int | None
    column: int | None


@attrs.frozen(str=False)
class PolicyInvalid(Refusal):
    """A policy document states something impossible; raised by ``policy`` and ``storage`` (422).

    ``line`` and ``column`` count from 1. ``bare``: a fault of meaning, reported without its place (POL-52). ``faults``: all
    of a document that was to be loaded, as far as they are reported; this one is the first of them.
    """

    message: str
    line: int | None = None
    column: int | None = None
    bare: bool = attrs.field(default=False, repr=False)
    faults: tuple[DocumentFault, ...] = attrs.field(default=(), repr=False)


@attrs.frozen(str=False)
class StoreUnavailable(Refusal):
    """The database cannot be reached now: connection lost, starting, time-out; from ``storage`` (503, ``Retry-After``)."""

    why: str
    retry_after: int = attrs.field(default=1, repr=False)


@attrs.frozen(str=False)
class OutcomeUnknown(StoreUnavailable):
    """A change was sent to the database, which didn't confirm it; raised by ``storage`` (503, without ``Retry-After``).

    It may have been made, or be lost yet, as when a standby takes over. A client that repeats it may make it twice.
    """


@attrs.frozen(str=False)
class WritesUnavailable(StoreUnavailable):
    """A primary takes no writes for a while, by a setting; raised by ``storage`` (503)."""


@attrs.frozen(str=False)
class PrimaryContested(StoreUnavailable):
    """Split brain: another server has a primary of the same system; from ``cluster`` (503). Clients get ``why``."""

    retry_after: int = attrs.field(default=30, repr=False)


@attrs.frozen(str=False)
class StoreBehind(StoreUnavailable):
    """The state that a request must be answered from has not arrived; from ``storage`` (503). Clients get ``why``."""


@attrs.frozen(str=False)
class ReadOnlyStandby(Refusal):
    """The database refuses writes, as a standby does; raised by ``storage`` (405)."""


@attrs.frozen(str=False)
class RenewalElsewhere(Refusal):
    """A session can't be renewed on a follower, since that is a write; raised by ``web`` (503 with ``Retry-After``)."""

    retry_after: int = attrs.field(default=5, repr=False)


@attrs.frozen(str=False)
class LoadsUnavailable(Refusal):
    """A policy load can't be done now; raised by ``worker`` (503 with ``Retry-After``). Clients get ``why``."""

    why: str
    retry_after: int = attrs.field(default=5, repr=False)


@attrs.frozen(str=False)
class AuditSearchUnavailable(Refusal):
    """The audit's files can't be searched now; raised by ``audit`` (503 with ``Retry-After``). Clients get ``why``."""

    why: str
    retry_after: int = attrs.field(default=5, repr=False)


@attrs.frozen(str=False)
class TooManyConnections(Refusal):
    """The request came on a connection beyond the limit; raised by ``web`` (503 with ``Retry-After``)."""

    retry_after: int = attrs.field(default=2, repr=False)


@attrs.frozen(str=False)
class AuditUnavailable(Refusal):
    """Events that must be audited can't be recorded now; raised by ``journal`` (503 with ``Retry-After``)."""

    why: str
    retry_after: int = attrs.field(default=1, repr=False)


@attrs.frozen(str=False)
class TooOften(Refusal):
    """Something was requested again too soon; raised by ``web`` (429 with ``Retry-After``)."""

    message: str
    retry_after: int = 1


@attrs.frozen(str=False)
class KeysUnavailable(Refusal):
    """The keys of an identity provider are unavailable now; raised by ``providers``; the login that needs them is postponed.

    ``problems`` and ``unused`` are those of the fetched ``KeySet``, where it has no usable key.
    """

    why: str
    retry_after: int = attrs.field(default=1, repr=False)
    problems: tuple[str, ...] = attrs.field(default=(), repr=False)
    unused: tuple[str, ...] = attrs.field(default=(), repr=False)


@attrs.frozen(str=False)
class WrongDataKey(Refusal):
    """A sealed value does not open under the data key, or was moved or altered; raised by ``vault`` (422)."""

    name: str


@attrs.frozen(str=False)
class ConfigurationInvalid(Refusal):
    """The setting ``key`` is unknown or has a bad value; raised by ``settings``; the start ends with exit code 1."""

    key: str
    message: str


@attrs.frozen(str=False)
class StartRefused(Refusal):
    """The server cannot start as configured: data key, schema, port, data directory; raised by ``tap`` and ``storage``."""

    message: str


@attrs.frozen(str=False)
class StandbyBehind(StartRefused):
    """A standby lacks what only its primary can write, schema or canary; raised by ``storage`` and ``bootstrap``."""
