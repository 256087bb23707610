"""What was attempted, by whom, and the outcome: refused authentications and logins, for operators.

The wrappers here provide the interface of what they enclose. The client never learns what they log.
"""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger
from zope.interface import implementer

from svc.authentication import Admitted, Attempt, IAuthenticator, ILogin, Refused

#: Longest text from outside in a field of a log event, in characters; what is longer is cut.
FIELD_LIMIT: Final = 300

_log = Logger()


def printable(text: str, limit: int = FIELD_LIMIT) -> str:
    """Make text from outside fit for a log: ``limit`` characters at most, on one line, each character visible.

    What doesn't print (control characters, line separators, marks that turn the direction of writing, halves of
    surrogates) is written as an escape of Python's, and so is the backslash.
    """
    shown = "".join(
        character if character.isprintable() and character != "\\" else character.encode("unicode_escape").decode("ascii")
        for character in text[:limit]
    )
    return shown if len(text) <= limit else f"{shown}…"


@implementer(IAuthenticator)
class LoggedAuthenticator:
    """Logs each refusal of ``inner``. ``name`` is that of the authenticator, such as ``authn-jwt``."""

    def __init__(self, inner: IAuthenticator, name: str) -> None:
        self._inner = inner
        self._name = name

    async def authenticate(self, attempt: Attempt) -> Admitted | Refused:
        """Let ``inner`` decide."""
        decision = await self._inner.authenticate(attempt)
        if isinstance(decision, Refused):
            _log_refusal(self._name, attempt, decision)
        return decision


@implementer(ILogin)
class LoggedLogin:
    """Logs each refusal of ``inner``. ``name`` is that of the authenticator, such as ``authn``."""

    def __init__(self, inner: ILogin, name: str) -> None:
        self._inner = inner
        self._name = name

    async def api_key(self, attempt: Attempt) -> bytes | Refused:
        """Let ``inner`` decide."""
        decision = await self._inner.api_key(attempt)
        if isinstance(decision, Refused):
            _log_refusal(self._name, attempt, decision)
        return decision


def _log_refusal(authenticator: str, attempt: Attempt, refused: Refused) -> None:
    _log.info(
        "{authenticator} refused {role}, account {account}, service {service}, from {client_ip}: {reason} ({detail})",
        authenticator=authenticator,
        reason=refused.reason.value,
        detail=printable(refused.detail),
        role=printable(refused.role or attempt.login or "-"),
        account=printable(attempt.account),
        service=printable(attempt.service_id or "-"),
        client_ip=printable(attempt.client_ip),
    )
