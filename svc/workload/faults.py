"""The faults of the client library.

The text of each is one sentence for the person who runs the workload: what happened, and what to do. That of an answer ends
with the id of the request, by which the server's log and audit have it. No text holds a token, a key or a secret.
"""

from __future__ import annotations

import shlex
from typing import ClassVar

import attrs


def request_suffix(request_id: str | None) -> str:
    """Return the end of a sentence about an answer: the id of its request, if that is known."""
    return "" if request_id is None else f" (request {request_id})"


def refusal_log_hint(request_id: str | None) -> str:
    """Return where the reason of a refused login is logged, and how an operator finds it by the id of its request."""
    way = "" if request_id is None else f": an operator learns it with `svc explain-request {shlex.quote(request_id)}`"
    return f"its log and its audit say why{way}"


@attrs.frozen(init=False)
class Fault(Exception):
    """The root of everything below, never raised itself."""

    #: The id of the request that was answered with it, where it was an answer and had one.
    request_id: ClassVar[str | None] = None

    #: The sentence, without the id; it is formatted with the fault.
    _sentence: ClassVar[str]

    def __str__(self) -> str:
        return self._format_message() + request_suffix(self.request_id)

    def _format_message(self) -> str:
        return self._sentence.format(self)


@attrs.frozen(str=False)
class BadAddress(Fault):
    """An address can't be one, or holds more than an address should. ``what`` names it; it is never repeated."""

    _sentence = (
        "{0.what} must have the form https://svc.example.org, http://127.0.0.1:8080 or http://[::1]:8080, with a path at "
        "most: no user, no password, no query, no zone of IPv6"
    )
    what: str


@attrs.frozen(str=False)
class Unreachable(Fault):
    """Nothing answered, or not to the end; a later try may succeed. ``connected``: the request may have arrived."""

    url: str
    why: str
    connected: bool = attrs.field(default=True, repr=False)

    def _format_message(self) -> str:
        return f"{'no answer from' if self.connected else 'cannot reach'} {self.url}: {self.why.rstrip('.')}"


@attrs.frozen(str=False)
class Untrusted(Fault):
    """The server's certificate is not to be trusted, or it doesn't speak TLS."""

    _sentence = (
        "no answer from {0.url}: its certificate is not to be trusted ({0.why}); "
        "--ca-file or SVC_CA_FILE, or ca_file in a program, names another authority"
    )
    url: str
    why: str

    def _format_message(self) -> str:
        if self.why.startswith("TLS failed: ") and "certificate" not in self.why:
            return f"no answer from {self.url}: it doesn't speak TLS there, or none that is safe ({self.why}); see the port"
        return super()._format_message()


@attrs.frozen(str=False)
class TooLong(Fault):
    """An answer is longer than is taken; ``limit`` is in bytes."""

    _sentence = "the answer of {0.url} is larger than {0.limit} bytes"
    url: str
    limit: int


@attrs.frozen(str=False)
class BadAnswer(Fault):
    """The answer is hardly from this service; ``what`` says what it is not, ``hint`` what to check."""

    _sentence = "the answer of {0.url} is not {0.what}; {0.hint}"
    url: str
    what: str
    hint: str = "is this the address of the service?"


@attrs.frozen(str=False)
class LoginRefused(Fault):
    """The service doesn't take this proof of identity. ``what`` names it; the reason is in the server's log alone."""

    what: str
    account: str
    status: int = 401
    request_id: str | None = None  # type: ignore[misc] # of the class where there is none

    def __str__(self) -> str:
        refused = f"the server refused {self.what} (account {self.account}, status {self.status})"
        return f"{refused}; {refusal_log_hint(self.request_id)}"


@attrs.frozen(str=False)
class NotAuthenticated(Fault):
    """The service takes no access token that this client can show, a fresh one included."""

    _sentence = "not authenticated: {0.url} takes the access token no more (status 401)"
    url: str
    request_id: str | None = None  # type: ignore[misc] # of the class where there is none


@attrs.frozen(str=False)
class NotPermitted(Fault):
    """The role sees what it asks for, and lacks the privilege: ``execute`` to read, ``update`` to write."""

    _sentence = "not permitted: the role sees {0.asked}, but lacks the privilege {0.privilege} (status 403)"
    asked: str
    request_id: str | None = None  # type: ignore[misc] # of the class where there is none
    privilege: str = "execute"


@attrs.frozen(str=False)
class NotFound(Fault):
    """A variable doesn't exist, has no value of this version, or may not be seen; ``said`` is the server's message."""

    asked: str
    said: str
    request_id: str | None = None  # type: ignore[misc] # of the class where there is none

    def _format_message(self) -> str:
        asked = "one of several variables" if ", " in self.asked else self.asked
        suffix = f": {self.said}" if self.said else ""
        return f"{asked} was not found, or is not visible to this role (status 404){suffix}"


@attrs.frozen(str=False)
class ValueChanged(Fault):
    """A value wasn't set, since there is another than was expected; ``tag`` is that of the present value."""

    _sentence = "{0.asked} was not set: its value is another by now than was expected (status 412)"
    asked: str
    tag: str | None = None
    request_id: str | None = None  # type: ignore[misc] # of the class where there is none


@attrs.frozen(str=False)
class Unavailable(Fault):
    """The server can't serve now, or not this address; ``retry_after`` is in seconds, if the server gave it.

    ``ours``: it was the server, and not something in front of it.
    """

    url: str
    retry_after: float | None = None
    status: int = 503
    request_id: str | None = None  # type: ignore[misc] # of the class where there is none
    ours: bool = True

    def _format_message(self) -> str:
        front = "" if self.ours else "something in front of "
        return f"{front}{self.url} cannot serve now (status {self.status}): try again later"


@attrs.frozen(str=False)
class Unexpected(Fault):
    """The server refused for another reason, or something in front of it answered; ``said`` is the answer's message.

    ``ours``: it was the server, and not something in front of it. ``uncertain``: the request was to change something, which
    may or may not have been done. ``elsewhere`` is the address to which a redirect leads, without its query.
    """

    url: str
    status: int
    said: str
    request_id: str | None = None  # type: ignore[misc] # of the class where there is none
    ours: bool = True
    uncertain: bool = False
    elsewhere: str = ""

    def _format_message(self) -> str:
        end = "; the change may or may not have been made" if self.uncertain else ""
        text = self.said.rstrip(" .;:,") if end else self.said
        if self.ours:
            return f"{self.url} refused (status {self.status}): {text or 'without a reason'}{end}"
        if self.elsewhere:
            return f"something in front of {self.url} redirects to {self.elsewhere} (status {self.status})"
        suffix = f": {text}" if text else ""
        return f"something in front of {self.url} answered (status {self.status}){suffix}{end}"


@attrs.frozen(str=False)
class NoEvidence(Fault):
    """The workload has no proof of identity to show: a file can't be read, say."""

    _sentence = "{0.why}"
    why: str


@attrs.frozen(str=False)
class NoIdentity(Fault):
    """The platform gives this machine no identity token; ``remedy`` is what to do. A later try won't help by itself."""

    _sentence = "{0.why}: {0.remedy}"
    why: str
    remedy: str


@attrs.frozen(str=False)
class PlatformUnavailable(Fault):
    """The platform's metadata service gave no token in the time it had; a later try may succeed.

    ``seconds`` is that time, ``tries`` the number of requests, ``why`` the outcome of the last one.
    """

    _sentence = (
        "no identity token from {0.url} within {0.seconds:g} s and {0.tries} tries, the last: {0.why}; "
        "is this a machine of the platform, and may it reach that address?"
    )
    url: str
    seconds: float
    tries: int
    why: str
