"""The log of refused authentications and logins, and of expirations, for operators; clients never see it."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger
from zope.interface import implementer

from svc.model.authentication import A, Decide, ExplanationRequest, LoginRequest, Q, Refused
from svc.model.events import EventBatch
from svc.model.expiration import IExpirationEvents
from svc.model.host_factories import ExpiredToken
from svc.model.names import ResourceName
from svc.model.request_notes import request_notes
from svc.model.text import escape_unprintable

_log = Logger()


def log_refusals(decide: Decide[Q, A], name: str) -> Decide[Q, A]:
    """Return a function that decides in the same way, and logs each refusal of something that was tried.

    ``name`` is that of the authenticator: ``authn-jwt``, for example.
    """

    async def decide_logged(request: Q) -> A | Refused:
        decision = await decide(request)
        if isinstance(decision, Refused) and not (isinstance(request, ExplanationRequest) and not request.tried):
            _log_refusal(name, request, decision)
        return decision

    return decide_logged


def _log_refusal(name: str, request: LoginRequest, refused: Refused) -> None:
    role, account = escape_unprintable(refused.role or request.login or "-"), escape_unprintable(request.account)
    service, client_ip = escape_unprintable(request.service_id or "-"), escape_unprintable(request.client_ip)
    detail, reason = escape_unprintable(refused.detail), refused.reason.value
    # The sentence is put together here: a refusal may not cost more than a success, and the logger takes its time per field.
    sentence = f"{name} refused {role}, account {account}, service {service}, from {client_ip}: {reason} ({detail})"
    notes = request_notes()
    if notes is not None and notes.request_id is not None:
        sentence = f"{sentence}, request {notes.request_id}"
    who = {"role": role, "account": account, "service": service, "client_ip": client_ip}
    why = {"repeats_as": f"{name} {reason}", "authenticator": name, "reason": reason, "detail": detail}
    _log.info("{sentence}", sentence=sentence, **who, **why)


@implementer(IExpirationEvents)
class LoggedExpirations:
    """Logs expirations and rotations of values, and how many tokens of host factories have expired."""

    def require_available(self) -> None:
        """Return: the log takes everything."""

    def rotation_batch(self, variable: ResourceName, rotator: str) -> EventBatch | None:
        """Return nothing: the log needs no transaction."""

    def removal_batch(self, tokens: Sequence[ExpiredToken]) -> EventBatch | None:
        """Return nothing: the log needs no transaction."""

    async def record_expiration(self, variable: ResourceName, at: float) -> None:
        """Log that a value ended."""
        _log.info("The value of {variable} expired", variable=escape_unprintable(str(variable)), at=at)

    async def record_rotation(self, variable: ResourceName, rotator: str, version: int) -> None:
        """Log that a new value is in force."""
        sentence, shown = "{rotator} rotated {variable} to version {version}", escape_unprintable(str(variable))
        _log.info(sentence, rotator=rotator, variable=shown, version=version)

    async def record_failure(self, variable: ResourceName, rotator: str | None, why: str) -> None:
        """Log that a rotation failed."""
        shown, by = escape_unprintable(str(variable)), escape_unprintable(rotator or "-")
        _log.warn("{rotator} did not rotate {variable}: {why}", rotator=by, variable=shown, why=escape_unprintable(why))

    async def record_removal(self, tokens: Sequence[ExpiredToken]) -> None:
        """Log that tokens of host factories were removed."""
        _log.info("{count} tokens of host factories had expired and were removed", count=len(tokens))
