"""The log of refused authentications and logins, for operators: what was attempted, by whom, and the outcome.

The wrappers here provide the interface of what they enclose. The client never learns what they log.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger
from zope.interface import implementer

from svc.model.authentication import Admitted, IAuthenticator, ILogin, LoginRequest, Refused
from svc.model.events import EventBatch
from svc.model.expiration import IExpirationEvents
from svc.model.host_factories import ExpiredToken
from svc.model.names import ResourceName
from svc.model.text import printable

_log = Logger()


@implementer(IAuthenticator)
class LoggedAuthenticator:
    """Logs each refusal of ``inner``. ``name`` is that of the authenticator: ``authn-jwt``, for example."""

    def __init__(self, inner: IAuthenticator, name: str) -> None:
        self._inner = inner
        self._name = name

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """Let ``inner`` decide."""
        decision = await self._inner.authenticate(request)
        if isinstance(decision, Refused):
            _log_refusal(self._name, request, decision)
        return decision


@implementer(ILogin)
class LoggedLogin:
    """Logs each refusal of ``inner``. ``name`` is that of the authenticator: ``authn``, for example."""

    def __init__(self, inner: ILogin, name: str) -> None:
        self._inner = inner
        self._name = name

    async def api_key(self, request: LoginRequest) -> bytes | Refused:
        """Let ``inner`` decide."""
        decision = await self._inner.api_key(request)
        if isinstance(decision, Refused):
            _log_refusal(self._name, request, decision)
        return decision


def _log_refusal(name: str, request: LoginRequest, refused: Refused) -> None:
    role, account = printable(refused.role or request.login or "-"), printable(request.account)
    service, client_ip = printable(request.service_id or "-"), printable(request.client_ip)
    detail, reason = printable(refused.detail), refused.reason.value
    # The sentence is put together here: a refusal may not cost more than a success, and the logger takes its time per field.
    _log.info(
        "{sentence}",
        sentence=f"{name} refused {role}, account {account}, service {service}, from {client_ip}: {reason} ({detail})",
        repeats_as=f"{name} {reason}",
        authenticator=name,
        reason=reason,
        detail=detail,
        role=role,
        account=account,
        service=service,
        client_ip=client_ip,
    )


@implementer(IExpirationEvents)
class LoggedExpirations:
    """Logs what became of values that end or are rotated, and how many tokens of host factories are gone."""

    def admit(self) -> None:
        """Return: the log takes everything."""

    def rotation(self, variable: ResourceName, rotator: str) -> EventBatch | None:
        """The log needs no transaction."""

    def removal(self, tokens: Sequence[ExpiredToken]) -> EventBatch | None:
        """The log needs no transaction."""

    async def expired(self, variable: ResourceName, at: float) -> None:
        """Log that a value ended."""
        _log.info("The value of {variable} expired", variable=printable(str(variable)), at=at)

    async def rotated(self, variable: ResourceName, rotator: str, version: int) -> None:
        """Log that a new value is in force."""
        _log.info(
            "{rotator} rotated {variable} to version {version}",
            rotator=rotator,
            variable=printable(str(variable)),
            version=version,
        )

    async def failed(self, variable: ResourceName, rotator: str | None, why: str) -> None:
        """Log that a rotation failed."""
        _log.warn(
            "{rotator} did not rotate {variable}: {why}",
            rotator=printable(rotator or "-"),
            variable=printable(str(variable)),
            why=printable(why),
        )

    async def removed(self, tokens: Sequence[ExpiredToken]) -> None:
        """Log that tokens of host factories were removed."""
        _log.info("{count} tokens of host factories had expired and were removed", count=len(tokens))
