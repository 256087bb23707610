"""One question at a time to a server that speaks Conjur's interface, logged in by an API key.

Nothing here changes anything there, and no message holds a key, a token, or more of an answer than the status.

Note [Tokens]. A token lasts 8 minutes. It is renewed when it is old, and once more when it is refused; a second refusal in a
row means that the role is gone, or the key is.

Note [Pauses]. A server that is busy, away or behind a proxy that gets no answer is asked again after growing pauses, or
after the time that it names, until ``PATIENCE`` seconds have gone by without an answer.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final, Protocol

import attrs

from svc.importing.inventory import SourceStopped, refuse_certificate
from svc.workload.address import encode_path, public_origin
from svc.workload.faults import Fault, TooLong, Unreachable, Untrusted
from svc.workload.replies import Reply, parse_json
from svc.workload.requester import Requester

#: Seconds for one answer, after which a token is renewed, and for which a silent server is asked again.
DEADLINE: Final = 120.0
TOKEN_AGE: Final = 300.0
PATIENCE: Final = 300.0

#: The first pause, the longest, in seconds; each is twice the one before.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0

#: The statuses after which the same question may be answered.
_BUSY: Final = {408, 429, 502, 503, 504}

#: The remedy of whatever time may mend.
AGAIN: Final = "run the same command again: it goes on with what is missing"


class Server(Protocol):
    """A server with Conjur's interface, and a caller that is logged in there: a source, or the target."""

    @property
    def account(self) -> str:
        """Return the account."""

    @property
    def place(self) -> str:
        """Return its public address."""

    async def ask(self, path: str, **headers: str) -> Reply:
        """Return the answer to a ``GET``, one of 200, 204, and of refusals that are about this question alone.

        :raises SourceStopped: there is none, or one that ends all questions.
        """


@attrs.define
class ConjurSession:
    """A source, asked as one role. ``login`` is that of an ordinary login: ``admin``, or ``host/x``."""

    url: str
    account: str
    login: str
    _api_key: str = attrs.field(repr=False)
    _requester: Requester = attrs.field(repr=False)
    _token: str | None = attrs.field(default=None, init=False, repr=False)
    _made_at: float = attrs.field(default=0.0, init=False)
    #: How many tokens there were: questions that run at once renew a refused one together.
    _generation: int = attrs.field(default=0, init=False)
    _renewal: Any = attrs.field(default=None, init=False, repr=False)

    @property
    def place(self) -> str:
        """Return the address and the account, for messages."""
        return f"{public_origin(self.url)} (account {self.account})"

    @property
    def role(self) -> str:
        """Return the full id of the role that is logged in."""
        kind, slash, rest = self.login.partition("/")
        return f"{self.account}:{kind}:{rest}" if slash and kind in {"host", "user"} else f"{self.account}:user:{self.login}"

    async def ask(self, path: str, **headers: str) -> Reply:
        """See ``Server``."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        for attempt in range(2):
            token, generation = await self._current_token()
            reply = await self._send("GET", path, None, {"Authorization": f'Token token="{token}"', **given})
            if reply.status != 401:
                return self._expect_answer(path, reply)
            if attempt == 0 and generation == self._generation:
                self._token = None
        raise SourceStopped(
            f"{self.place} refuses a fresh access token of {self.login} (status 401)",
            "see whether the role is still there and what its restricted_to says, then " + AGAIN,
        )

    async def _current_token(self) -> tuple[str, int]:
        if self._token is None or self._requester.seconds() - self._made_at > TOKEN_AGE:
            if self._renewal is None:
                self._renewal = self._requester.shared(self._log_in)
            await self._renewal.result()
        assert self._token is not None
        return self._token, self._generation

    async def _log_in(self) -> None:
        path = encode_path("authn", self.account, self.login, "authenticate")
        begun = self._requester.seconds()
        body, headers = self._api_key.encode(), {"Content-Type": "text/plain", "Accept-Encoding": "identity"}
        reply = await self._send("POST", path, body, headers)
        if reply.status == 401:
            raise SourceStopped(
                f"{self.place} refuses the API key of {self.login} (status 401)",
                "give an API key, not a password: `conjur login` and `conjur whoami` try it there, and"
                " `conjur user rotate-api-key` makes another",
            )
        answered = self._expect_answer(path, reply)
        text = answered.body.strip()
        if answered.status != 200 or not text.startswith(b"{"):
            raise bad_answer(self.place, "the login", answered.status)
        self._token, self._made_at = b64encode(text).decode("ascii"), begun
        self._generation += 1

    async def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        """Return the answer, asked for again while the server is busy or away (Note [Pauses])."""
        ends, pause = self._requester.seconds() + PATIENCE, FIRST_PAUSE
        while True:
            wanted: float | None = None
            try:
                reply = await self._requester.ask(method, f"{self.url}{path}", body, headers, within=DEADLINE)
                if reply.status not in _BUSY:
                    return reply
                why, wanted = f"{self.place} answers with status {reply.status}", reply.retry_after
            except Untrusted as fault:
                raise refuse_certificate(fault) from None
            except TooLong:
                raise
            except Unreachable as fault:
                why = str(fault)
            except Fault as fault:
                raise SourceStopped(str(fault), AGAIN) from None
            wait = pause if wanted is None else max(wanted, FIRST_PAUSE)
            if self._requester.seconds() + wait > ends:
                raise SourceStopped(why, "when it answers again, " + AGAIN)
            await self._requester.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _expect_answer(self, path: str, reply: Reply) -> Reply:
        if reply.status in {200, 204} or 400 <= reply.status < 500:
            return reply
        if reply.redirect_target:
            raise SourceStopped(
                f"{self.place} redirects to {reply.redirect_target} (status {reply.status})",
                "give the address of Conjur itself: no login is sent elsewhere",
            )
        raise bad_answer(self.place, path.partition("?")[0], reply.status)


def bad_answer(place: str, asked: str, status: int) -> SourceStopped:
    """Return the fault of an answer that isn't one of Conjur's."""
    return SourceStopped(
        f"{place} answered {asked} in another way than Conjur does (status {status})",
        "see whether this is the address of Conjur 1.19 or later, with nothing in front of it that answers, then " + AGAIN,
    )


def read_json(server: Server, asked: str, reply: Reply, shape: type) -> Any:
    """Return the JSON of an answer, which must be 200 and a value of this type.

    :raises SourceStopped: it isn't.
    """
    try:
        if reply.status == 200 and isinstance(value := parse_json(reply.body), shape):
            return value
    except ValueError:
        pass
    raise bad_answer(server.place, asked, reply.status)
