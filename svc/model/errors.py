"""Everything the domain may refuse with.

A refusal is a frozen exception. It carries what ``web`` needs to answer and what an operator needs to understand; one table
in ``web`` turns the types into status codes. The vocabulary in which refused logins are logged is in ``reasons``.
"""

from __future__ import annotations

from typing import Self

import attrs

from svc.model.reasons import Reason, RefusalKind


@attrs.frozen(init=False)
class Refusal(Exception):
    """The service declines to do what was asked; the root of everything below, never raised itself."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        fields = attrs.astuple(self, filter=lambda field, _: field.repr is True, recurse=False)
        return ": ".join([type(self).__name__, *(str(value) for value in fields if value is not None)])


@attrs.frozen(str=False)
class InvalidName(Refusal):
    """A name or another parameter is not well formed; raised by ``names`` and by ``web`` while it reads a request (422).

    ``parameter`` names the offending field, ``message`` says what it must be.
    """

    parameter: str
    message: str


@attrs.frozen(str=False)
class InvalidParameter(Refusal):
    """A query, header or form parameter has a value that cannot be used; raised by ``web`` and ``storage`` (422).

    ``code`` is the word that stands in the error body (FAIL-4).
    """

    parameter: str
    message: str
    code: str = "argument_error"


@attrs.frozen(str=False)
class BadRequest(Refusal):
    """The request cannot be read at all: a malformed form, header or JSON body; raised by ``web`` (400)."""

    message: str


@attrs.frozen(str=False)
class TooLarge(Refusal):
    """Something exceeds its limit in bytes; raised by ``web`` and ``authenticators`` (413)."""

    what: str
    limit: int


@attrs.frozen(str=False)
class BearerRefused(Refusal):
    """The access token in the ``Authorization`` header does not prove a caller; raised by ``tokens``, ``keyring`` and
    ``web`` (401).

    ``message`` is one of the texts of WIRE-30.
    """

    message: str


@attrs.frozen(str=False)
class CallerReplaced(Refusal):
    """The role of the access token was deleted, and another one of its name was made since; raised by ``storage`` wherever
    it reads anything for a caller (401, as ``BearerRefused``).
    """


@attrs.frozen(str=False)
class AuthenticationRefused(Refusal):
    """An authenticate or login request failed; raised by ``services``, ``web`` and ``keyring``.

    The client learns ``kind`` alone, and with ``retry_after`` the seconds after which it may come again. ``reason`` and its
    details have been logged by then.
    """

    reason: Reason
    kind: RefusalKind = RefusalKind.UNPROVEN
    retry_after: int | None = attrs.field(default=None, repr=False)


@attrs.frozen(str=False)
class CredentialInsufficient(Refusal):
    """The caller is known by an access token, where a password or an API key is asked for; raised by ``web`` (401)."""


@attrs.frozen(str=False)
class CredentialUnknown(Refusal):
    """The role whose credential is asked for is missing, or the caller may not see it; raised by ``web`` (404).

    ``hidden`` is as in ``RecordNotFound``.
    """

    name: str
    hidden: bool = attrs.field(default=False, eq=False, repr=False)


@attrs.frozen(str=False)
class CredentialImpossible(Refusal):
    """Roles of this kind have no credential; raised by ``web`` for who could have replaced one (405)."""

    name: str


@attrs.frozen(str=False)
class PasswordsBusy(Refusal):
    """More passwords wait to be hashed than may; raised by ``passwords`` (503 with ``Retry-After``).

    ``retry_after`` is in seconds.
    """

    retry_after: int = 2


@attrs.frozen(str=False)
class AddressRefused(Refusal):
    """A host that a policy names has no address, or one that may not be connected to; raised by ``providers``.

    ``why`` is for operators; it never tells the address of a name.
    """

    why: str


@attrs.frozen(str=False)
class Forbidden(Refusal):
    """The caller sees the thing but lacks the privilege; raised by ``access`` (403, empty body).

    ``why`` is for the log alone. ``told`` is for the caller, where no authority would be enough.
    """

    why: str
    told: str | None = attrs.field(default=None, repr=False)


@attrs.frozen(str=False)
class RecordNotFound(Refusal):
    """A record is missing, or the caller may not see it; raised by ``access`` and ``storage`` (404).

    ``kind`` and ``identifier`` are those that were asked for, ``name`` is the full id (ROLE-6). ``hidden``,
    for the audit alone, says that it is there.
    """

    account: str
    kind: str
    identifier: str
    hidden: bool = attrs.field(default=False, eq=False, repr=False)

    @classmethod
    def of(cls, name: object, *, hidden: bool = False) -> Self:
        """Make it from a ``RoleName`` or ``ResourceName``."""
        account, kind, identifier = str(name).split(":", 2)
        return cls(account, kind, identifier, hidden)

    @property
    def name(self) -> str:
        """The full id."""
        return f"{self.account}:{self.kind}:{self.identifier}"


@attrs.frozen(str=False)
class TooManyRoles(Refusal):
    """More roles stand above or below one, or more memberships between them, than are followed for one request; raised by
    ``storage`` (422).

    ``limit`` is the number of roles.
    """

    limit: int


@attrs.frozen(str=False)
class NoValue(Refusal):
    """A variable has no value, is missing, or may not be seen; raised by ``access`` when a secret is read (404).

    ``ended_at``: when the value ended, in seconds since the epoch, if it had one; told to those who could have read it.
    ``hidden`` is as in ``RecordNotFound``.
    """

    name: str
    ended_at: float | None = None
    hidden: bool = attrs.field(default=False, eq=False, repr=False)


@attrs.frozen(str=False)
class NotText(Refusal):
    """One of several values that would stand in JSON is no UTF-8 text; raised by ``web`` (406)."""

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


@attrs.frozen(str=False)
class PreconditionFailed(Refusal):
    """A thing is not as the request demands; raised by ``web`` (412).

    ``header`` is the one that demands it, ``tag`` the entity tag that the thing has, ``None`` when it isn't there.
    """

    header: str
    tag: str | None


@attrs.frozen(str=False)
class PolicyConflict(Refusal):
    """Another load of the same policy is under way or won a race; raised by ``storage`` (409 with ``Retry-After``).

    ``retry_after`` is in seconds.
    """

    retry_after: int = 1


@attrs.frozen(str=False)
class PolicyInvalid(Refusal):
    """A policy document says something that cannot be; raised by ``policy`` and ``storage`` (422).

    ``line`` and ``column`` count from 1 and are absent when the fault has no single place. ``bare``: on the wire the message
    stands alone, though its place is known: a fault of meaning, not of grammar (POL-52).
    """

    message: str
    line: int | None = None
    column: int | None = None
    bare: bool = attrs.field(default=False, repr=False)


@attrs.frozen(str=False)
class StoreUnavailable(Refusal):
    """The database cannot be asked now: connection lost, starting, time-out; from ``storage`` (503, ``Retry-After``).

    ``why`` is for the log alone; ``retry_after`` is in seconds.
    """

    why: str
    retry_after: int = attrs.field(default=1, repr=False)


@attrs.frozen(str=False)
class OutcomeUnknown(StoreUnavailable):
    """A change was sent to the database, which didn't confirm it; raised by ``storage`` (503, without ``Retry-After``).

    It may have been made, or not; or be made here and be lost yet, as when its standby takes over. Whoever repeats it must
    know that it may happen twice.
    """


@attrs.frozen(str=False)
class PrimaryContested(StoreUnavailable):
    """Another server has a primary of the same database system, so this one takes no writes; raised by ``cluster`` (503).

    ``why`` is told: it names that server, as the settings do. ``retry_after`` is in seconds.
    """

    retry_after: int = attrs.field(default=30, repr=False)


@attrs.frozen(str=False)
class StoreReadOnly(Refusal):
    """The database refuses writes, as a standby does; raised by ``storage`` (405)."""


@attrs.frozen(str=False)
class LoadsUnavailable(Refusal):
    """A policy load can't be done now; raised by ``worker`` (503 with ``Retry-After``).

    ``why`` is told; ``retry_after`` is in seconds.
    """

    why: str
    retry_after: int = attrs.field(default=5, repr=False)


@attrs.frozen(str=False)
class TooManyConnections(Refusal):
    """The request came on a connection beyond the limit; raised by ``web`` (503 with ``Retry-After``, in seconds)."""

    retry_after: int = attrs.field(default=2, repr=False)


@attrs.frozen(str=False)
class AuditUnavailable(Refusal):
    """What must be audited can't be recorded now; raised by ``journal`` (503 with ``Retry-After``).

    ``why`` is for the log and for operators; ``retry_after`` is in seconds.
    """

    why: str
    retry_after: int = attrs.field(default=1, repr=False)


@attrs.frozen(str=False)
class TooOften(Refusal):
    """Something was asked for again too soon; raised by ``web`` (429 with ``Retry-After``).

    ``message`` says what; ``retry_after`` is in seconds.
    """

    message: str
    retry_after: int = 1


@attrs.frozen(str=False)
class KeysUnavailable(Refusal):
    """The keys of an identity provider cannot be had now; raised by ``providers``; the login that needed them is put off.

    ``why`` is for the log and for operators; ``retry_after`` is in seconds.
    """

    why: str
    retry_after: int = attrs.field(default=1, repr=False)


@attrs.frozen(str=False)
class WrongDataKey(Refusal):
    """A sealed value does not open under the data key, or was moved or altered; raised by ``vault`` (422).

    ``name`` is the resource or row the value belongs to.
    """

    name: str


@attrs.frozen(str=False)
class ConfigurationInvalid(Refusal):
    """A setting is unknown or has a bad value; raised by ``config``; the start ends with exit code 1.

    ``key`` is the setting's name as the user wrote it.
    """

    key: str
    message: str


@attrs.frozen(str=False)
class StartRefused(Refusal):
    """The server cannot start as configured: data key, schema, port, data directory; raised by ``tap`` and ``storage``."""

    message: str


@attrs.frozen(str=False)
class StandbyBehind(StartRefused):
    """A standby lacks what only its primary can write, schema or canary; raised by ``storage`` and ``installation``."""
