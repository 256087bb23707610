"""The server as commands reach it: its address, the role that logs in, and one request at a time.

A caller is proven by ``SVC_LOGIN`` and ``SVC_API_KEY`` from the environment, or by the token that ``svc login`` keeps.

Note [Renewed when it has ended]. With the token of a session its refresh token is kept. It is used when the token has ended
by this machine's clock, or when the server refuses it. It is read again at that moment, since another command may have
renewed the session; two that do so at once get the same answer (TOK-44).

Note [Half a login]. A login without an API key, or a key without a login, is refused: with the kept token the command would
be done as somebody else.
"""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import attrs
import click

from svc.cli.coroutines import Network, Then, run_asyncio
from svc.cli.options import API_KEY, secret_option
from svc.cli.saved_login import SavedSession, SavedTokenSource, load_saved_session, load_saved_token, save_login
from svc.cli.versions import SavedVersions
from svc.model.clocks import MachineClock, WallClock, iso_seconds
from svc.workload.access_tokens import token_claims
from svc.workload.address import check_address, encode_path, public_origin
from svc.workload.calls import Calls
from svc.workload.evidence import ApiKey, Evidence, Login
from svc.workload.faults import BadAddress, Fault, LoginRefused, NoEvidence, Unavailable, Unreachable, request_suffix
from svc.workload.replies import GATEWAY_FAILURES, Reply, parse_json
from svc.workload.requester import Requester, StreamRequester
from svc.workload.watching import RETRY_STATUSES, TokenSource

#: How long a request may take, in seconds; policies of many thousand records take the longest.
DEADLINE: Final = 600.0

#: For how many seconds a change is repeated whose answer is lost. Where the server doesn't say when, the first pause is
#: ``FIRST_PAUSE`` seconds, and each is twice the one before, up to ``LONGEST_PAUSE``.
RETRY_PERIOD: Final = 660.0
FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 30.0

#: Methods that change something unless the command says otherwise; of a POST it says that it does.
_CHANGING_METHODS: Final = {"PUT", "PATCH", "DELETE"}

#: How long one may take of a command that tries again until it is ended.
RETRIED_DEADLINE: Final = 30.0

#: The largest answer that is read, in bytes, of the server and of others.
ANSWER_LIMIT: Final = 64 * 1024 * 1024
ELSEWHERE_LIMIT: Final = 256 * 1024

_PLAIN: Final = "text/plain; charset=utf-8"


@attrs.frozen
class ApiAnswer(Reply):
    """An answer of the server, with the context that commands need to handle it; ``uncertainty`` is ``None`` unless it is
    that of a change. ``unsettled``: the change was sent before without an answer, and this one doesn't show what became of
    it.
    """

    uncertainty: str | None = None
    unsettled: bool = False

    @property
    def error_message(self) -> str:
        """Return the message in a refusal, without another vendor's codes."""
        return _VENDOR_CODE.sub("", super().error_message)

    def json(self) -> Any:
        """Return the body, read as JSON.

        :raises click.ClickException: it isn't JSON, so that what answered is hardly this service.
        """
        try:
            return parse_json(self.body)
        except ValueError:
            message = f"the answer ({self.status}) is not JSON; is this the address of the service?"
            raise click.ClickException(message) from None

    def expect(self, *statuses: int) -> ApiAnswer:
        """Return this answer when its status is one of these.

        :raises click.ClickException: it is another; the message has the server's message and what to do.
        """
        if self.status in statuses and (self.is_from_service or self.status not in GATEWAY_FAILURES):
            return self
        raise self.as_exception()

    def api_key(self) -> str:
        """Return the API key that is the body.

        :raises click.ClickException: it is none, so that what answered is hardly this service.
        """
        if not _API_KEY.fullmatch(self.body):
            doubt = "" if self.uncertainty is None else f"; {self.uncertainty}"
            raise click.ClickException(f"the answer is not an API key; is this the address of the service?{doubt}")
        return self.body.decode("ascii")

    def as_exception(self) -> click.ClickException:
        """Return the fault of this answer: the server's message and what to do, or that it isn't the server's."""
        advice = (
            "done, or not done" if self.error_code == "outcome_unknown" else _ADVICE.get(self.status, "the server refused")
        )
        if self.status == 405 and self.error_message == _FOLLOWER:
            advice = "not possible on a follower: the primary takes changes"
        text = self.error_message
        if not self.is_from_service:
            front = "something in front of the server"
            advice, text = (
                (f"{front} redirects to {self.redirect_target}", "") if self.redirect_target else (f"{front} answered", text)
            )
        end = ""
        if (self.is_outcome_unknown or self.unsettled) and self.uncertainty is not None:
            end, text = f"; {self.uncertainty}", text.rstrip(" .;:,")
        suffix = f": {text}" if text else ""
        return click.ClickException(f"{advice} (status {self.status}){suffix}{end}{request_suffix(self.request_id)}")


#: A code that another vendor's clients look for in a message, and that says nothing to people.
_VENDOR_CODE: Final = re.compile(r"\bCONJ[0-9]{5}[EWI] ")

#: The form of API keys (TOK-7), with room for those that other makers' servers made.
_API_KEY: Final = re.compile(rb"[0-9a-z]{40,64}", re.ASCII)


class SessionEnded(click.ClickException):
    """The server doesn't renew the session that is kept."""


class OutcomeUncertain(click.ClickException):
    """No answer to a change came, so that nobody knows whether it was made."""


def _doubt(shows: str | None) -> str:
    """Return the words of a message about a change that may have been made; ``shows`` is the command that shows whether."""
    return "it may or may not have been made: " + (f"see `{shows}`" if shows else "look before you repeat it")


def _with_doubt(fault: Fault | click.ClickException, doubt: str) -> str:
    text = fault.message if isinstance(fault, click.ClickException) else str(fault)
    return text if doubt in text else f"{text}; {doubt}"


def _settles_nothing(status: int) -> bool:
    """Return whether an answer to a repeated change doesn't show what became of it: the request itself wasn't looked at."""
    return status in {401, 403, 408, 429} or status >= 500


#: A follower's answer to every change (CLU-4).
_FOLLOWER: Final = "Write operations are not allowed"

_ADVICE: Final = {
    401: "not authenticated: run `svc login`, or set SVC_LOGIN and SVC_API_KEY",
    403: "not permitted: the role sees this, but lacks the privilege",
    404: "not found, or not visible to this role",
    405: "not possible",
    409: "in conflict with something else",
    412: "not done: the value is another by now than was asked for",
    413: "too large",
    422: "the server cannot use this",
    429: "too many failures from this address: wait a minute",
    503: "not possible now: try again",
}


@attrs.frozen
class ApiConnection:
    """One server and account. ``login`` and ``api_key`` are ``None`` when the kept token is to be used.

    ``requester`` is for this server alone, and so is ``streams``, for answers that go on; others, such as the platform's,
    are contacted by ``elsewhere``.
    """

    url: str
    account: str
    login: str | None
    api_key: str | None = attrs.field(repr=False)
    requester: Requester
    wall: WallClock = attrs.field(factory=MachineClock)
    elsewhere: Requester | None = None
    streams: StreamRequester | None = None
    deadline: float = DEADLINE
    #: The login by API key of this command, once there is one.
    _key_logins: list[Calls] = attrs.field(factory=list, init=False, repr=False, eq=False)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        shows: str | None = None,
        within: float | None = None,
        **headers: str,
    ) -> ApiAnswer:
        """Send a request without a token, and return the server's answer, whatever the status.

        An answer without the server's message is returned where its status means that there was none (``GATEWAY_FAILURES``).

        :param shows: the command that shows whether a change was made; empty where there is none to make.
        :param within: how many seconds it may take, if less than ``deadline``.
        :raises Fault: there was none in time.
        :raises ChangeUncertain: likewise, to a change that may have arrived.
        :raises click.ClickException: something in front of the server answered.
        """
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        doubt = None
        if shows or (shows is None and method in _CHANGING_METHODS):
            doubt = _doubt(shows)
        seconds = self.deadline if within is None else min(within, self.deadline)
        try:
            reply = await self.requester.ask(method, f"{self.url}{path}", body, fields, within=seconds)
        except Unreachable as fault:
            if doubt is None or not fault.connected:
                raise
            raise OutcomeUncertain(f"{fault}; {doubt}") from None
        answer = ApiAnswer(reply.status, reply.body, reply.headers, doubt)
        if answer.status not in GATEWAY_FAILURES and not answer.is_from_service:
            raise answer.as_exception()
        return answer

    async def send_change(self, send: Callable[..., Awaitable[ApiAnswer]], *request: Any, **named: Any) -> ApiAnswer:
        """Send a change under a key of its own, and the same again while its answer is lost or it is under way.

        :param send: a method of this object, with its arguments after it.
        :raises ChangeUncertain: there was no answer within ``RETRY_PERIOD`` seconds, or the login ended before there was
        one.
        """
        key, ends, sent, usual = f'"{uuid4()}"', self.requester.seconds() + RETRY_PERIOD, False, FIRST_PAUSE
        doubt = _doubt(named.get("shows"))
        while True:
            answer: ApiAnswer | None = None
            try:
                left = ends - self.requester.seconds()
                answer = await send(*request, **named, within=left, Idempotency_Key=key)
                running = answer.error_code == "in_progress"
                if not running and answer.status not in GATEWAY_FAILURES:
                    return attrs.evolve(answer, unsettled=sent and _settles_nothing(answer.status), uncertainty=doubt)
                lost: OutcomeUncertain | None = None
                what, pause = "it is under way" if running else f"no answer (status {answer.status})", answer.retry_after
            except OutcomeUncertain as uncertain:
                lost, what, pause = uncertain, "the connection was lost", None
            except (Fault, click.ClickException) as fault:
                if not sent:
                    raise
                lost = OutcomeUncertain(_with_doubt(fault, doubt))
                if not isinstance(fault, (Unreachable, Unavailable)):
                    raise lost from None
                what, pause = "the server is away", None
                if isinstance(fault, Unavailable):
                    what, pause = "the login can't be renewed now", fault.retry_after
            sent = True
            if pause is None:
                pause, usual = usual, min(2 * usual, LONGEST_PAUSE)
            if self.requester.seconds() + pause >= ends:
                if lost is not None:
                    raise lost
                assert answer is not None
                return answer
            click.echo(f"{what[:1].upper()}{what[1:]}: asking again in {pause:g} s, for the same change.", err=True)
            await self.requester.sleep(pause)

    async def authenticate(self, login: str, api_key: str) -> str:
        """Exchange an API key for an access token, base64 as it stands in the ``Authorization`` header."""
        return await (await self.workload_client(ApiKey(login, api_key))).access_token()

    async def request_with_secret(
        self, login: str, secret: str, method: str, route: str, body: bytes | None = None, **named: Any
    ) -> ApiAnswer:
        """Send a request to a route of the account's ``/authn`` with an API key or password, and return its answer.

        :raises Fault: there was none, or the server refused the proof.
        """
        header = b64encode(f"{login}:{secret}".encode()).decode("ascii")
        path = self.encode_path("authn", self.account, route)
        answer = await self.request(method, path, body, Authorization=f"Basic {header}", **named)
        if answer.status == 401:
            raise LoginRefused(f"the API key or password of {login}", self.account, 401, answer.request_id)
        return answer

    async def request_with_token(self, method: str, path: str, body: bytes | None = None, **options: Any) -> ApiAnswer:
        """Send a request with an access token and return its answer, whatever the status; ``options`` as :meth:`request`.

        :raises click.ClickException: there is no token, or it is the kept one, is refused and has ended.
        """
        own = self._own_key()
        if own is not None:
            return await self._request_by_key(own, method, path, body, **options)
        # A change that is sent again outlives that its login can't be renewed for a while.
        waiting: dict[str, Any] = {"waits": "Idempotency_Key" in options, "within": options.get("within")}
        token = await self._saved_token(**waiting)
        answer = await self.request(method, path, body, Authorization=f'Token token="{token}"', **options)
        if answer.status != 401:
            return answer
        if renewed := await self._renew_token(token, **waiting):
            return await self.request(method, path, body, Authorization=f'Token token="{renewed}"', **options)
        if ended := self._expiry_message(token):
            raise click.ClickException(ended + request_suffix(answer.request_id))
        return answer

    async def _request_by_key(self, own: ApiKey, method: str, path: str, body: bytes | None, **options: Any) -> ApiAnswer:
        """Send a request with the token of this command's login, and again with another if an older one is refused."""
        last, login = not self._key_logins, self.login_by(own)
        while True:
            token = await login.access_token()
            answer = await self.request(method, path, body, Authorization=f'Token token="{token}"', **options)
            if answer.status != 401 or last:
                return answer
            login.refused(token)
            last = True

    def login_by(self, own: ApiKey) -> TokenSource:
        """Return the one login of this command by its API key: each request has the token of the first, until that ends."""
        if not self._key_logins:
            self._key_logins.append(Calls(self.url, self.account, own, self.requester, deadline=self.deadline))
        return self._key_logins[0]

    async def workload_client(self, evidence: Evidence | None = None) -> Calls:
        """Return the client of a workload, with this proof of identity or that of the person who runs the command."""
        token = None
        evidence = evidence or self._own_key()
        if evidence is None:
            token = await self._saved_token()
            evidence = _SavedTokenEvidence(self._refusal_message(token))
        return Calls(self.url, self.account, evidence, self.requester, access_token=token, deadline=self.deadline)

    def token_source(self) -> TokenSource:
        """Return the source of access tokens of the person who runs the command, for as long as it runs.

        :raises click.ClickException: there is none, or the session has ended; ``Fault`` where one may be had later.
        """
        own, soon = self._own_key(), attrs.evolve(self, deadline=RETRIED_DEADLINE)
        if own is None:
            return SavedTokenSource(soon._saved_token, soon._renew_token, soon._refusal_message)
        return Calls(self.url, self.account, own, self.requester, deadline=RETRIED_DEADLINE)

    async def open_session(self, login: str, api_key: str, seconds: int) -> tuple[str, Path]:
        """Open a session by an API key, and keep it; return its expiration, as the server sends it, and the file."""
        path = self.encode_path("authn", self.account, login, "sessions") + build_query(lifetime=seconds)
        answer = await self.request("POST", path, api_key.encode(), Content_Type=_PLAIN)
        if answer.status == 401:
            raise LoginRefused(f"the API key of {login}", self.account, 401, answer.request_id)
        return answer.expect(201).json()["ends_at"], self._save_session(login, answer)

    async def end_saved_session(self) -> bool:
        """End the session that is kept, and return whether there is one.

        :raises Fault: nobody answered, or the server can't do that now; ``click.ClickException`` likewise.
        """
        session, own = load_saved_session(self.url, self.account), attrs.evolve(self, login=None, api_key=None)
        if session is None:
            return False
        try:
            if not session.id:  # an earlier release kept it: the answer to a renewal has it
                await own._renew_token(load_saved_token(self.url, self.account))
                session = load_saved_session(self.url, self.account) or session
            path = self.encode_path("authn", self.account, "sessions", session.id)
            answer = await own.request_with_token("DELETE", path, shows="svc sessions list")
        except SessionEnded:
            return True
        if answer.status != 404:  # as it is where the session has ended
            answer.expect(204)
        return True

    async def end_all_logins(self) -> bool:
        """End all access tokens and sessions of the role that is logged in, on all machines; it raises as above."""
        own = attrs.evolve(self, login=None, api_key=None)
        path = self.encode_path("authn", self.account, "tokens")
        (await own.request_with_token("DELETE", path, shows="svc sessions list")).expect(204)
        return True

    def saved_token_end(self) -> str | None:
        """Return when the kept token ends, in ISO 8601; ``None`` where it has ended, or doesn't say."""
        try:
            ends_at = float(token_claims(load_saved_token(self.url, self.account))["exp"])
            return iso_seconds(ends_at) if ends_at > self.wall.seconds() else None
        except (ValueError, KeyError, TypeError, OverflowError, OSError):
            return None

    async def _saved_token(self, **waiting: Any) -> str:
        """Return the kept token, renewed if it has ended and its session hasn't (Note [Renewed when it has ended])."""
        token = load_saved_token(self.url, self.account)
        return await self._renew_token(token, **waiting) or token if self._expiry_message(token) else token

    async def _renew_token(self, token: str, *, waits: bool = False, within: float | None = None) -> str | None:
        """Return an access token in place of a kept one that is refused; ``None`` where no session can be renewed.

        :raises click.ClickException: the session has ended, or the server can't renew it now.
        :raises Unavailable: the latter, where the command ``waits`` for it.
        """
        session = load_saved_session(self.url, self.account)
        if session is None:
            return None
        other = load_saved_token(self.url, self.account)
        if other != token and not self._expiry_message(other):
            return other
        path = self.encode_path("authn", self.account, session.login, "renew")
        answer = await self.request("POST", path, session.refresh_token.encode(), within=within, Content_Type=_PLAIN)
        if answer.status == 401:
            ended = (
                f"the session of {session.login} in account {self.account} at {self.url} has ended: run `svc login` again"
            )
            raise SessionEnded(ended + request_suffix(answer.request_id))
        if waits and answer.status in RETRY_STATUSES:
            raise Unavailable(public_origin(self.url), answer.retry_after, answer.status, answer.request_id)
        self._save_session(session.login, answer.expect(200))
        return load_saved_token(self.url, self.account)

    def _save_session(self, login: str, answer: ApiAnswer) -> Path:
        opened = answer.json()
        session = SavedSession(login, opened["refresh_token"], opened.get("id", ""))
        return save_login(self.url, self.account, opened["access_token"], session)

    def _own_key(self) -> ApiKey | None:
        """Return the API key to log in with; ``None`` where the kept token is to be used (Note [Half a login])."""
        if self.login is not None and self.api_key is not None:
            return ApiKey(self.login, self.api_key)
        if self.login is not None:
            raise click.UsageError(
                f"there is no API key for {self.login}, the login that --login or SVC_LOGIN says: set {API_KEY} too,"
                " or leave both out, to go on as `svc login` has logged in"
            )
        if self.api_key is not None:
            raise click.UsageError(f"{API_KEY} is set, and not whose it is: set SVC_LOGIN too, or unset it")
        return None

    def _expiry_message(self, token: str) -> str | None:
        """Return a sentence that the kept token has expired, and what to do; ``None`` when it hasn't, or doesn't say."""
        try:
            ends_at = float(token_claims(token)["exp"])
            if ends_at > self.wall.seconds():
                return None
            at = datetime.fromtimestamp(ends_at, UTC).astimezone().isoformat(" ", "seconds")
        except (ValueError, KeyError, TypeError, OverflowError, OSError):
            return None
        return f"the login in account {self.account} at {self.url} has expired, at {at}: run `svc login` again"

    def _refusal_message(self, token: str) -> str:
        """Return why the server takes the kept token no more, and what to do."""
        return self._expiry_message(token) or f"{_ADVICE[401]} (account {self.account})"

    @staticmethod
    def encode_path(*segments: str) -> str:
        """Return the path of these segments, each encoded; refuse an empty one, as an argument that is no id."""
        if "" in segments:
            raise click.UsageError("an id must not be empty")
        return encode_path(*segments)


@attrs.frozen
class _SavedTokenEvidence:
    """The ``Evidence`` of a kept token: none, but ``why``, when the service takes it no more."""

    why: str

    what = "the kept token"

    async def login(self, account: str) -> Login:  # noqa: ARG002 (the sentence has it)
        """See ``Evidence``."""
        raise NoEvidence(self.why)


def prompt_credentials(connection: ApiConnection) -> tuple[str, str]:
    """Return the login and the API key or password of the user who runs the command: from the environment or a prompt."""
    login = connection.login or prompt_line("Login", default="admin", read=_TWO_LINES).strip()
    read = _A_LINE if connection.login else _TWO_LINES
    return login, connection.api_key or prompt_line("API key or password", hide_input=True, read=read)


#: The input that is read without a terminal, in the words of a message.
_A_LINE: Final = "a line of standard input is read for each question"
_TWO_LINES: Final = "two lines of standard input are read, first the login, such as admin, then its API key or password"


def prompt_line(what: str, *, read: str = _A_LINE, **options: Any) -> str:
    """Return the answer to a prompt with click's ``options``, or off a terminal a line of standard input."""
    answer: str = click.prompt(what, **options) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not answer:
        raise click.ClickException(f"no {what} given: off a terminal {read}")
    return answer


def is_unencrypted(url: str) -> bool:
    """Return whether what is sent to this address can be read on the way: it is neither over TLS nor on this machine."""
    address = urlsplit(url)
    host = address.hostname or ""
    try:
        near = ip_address(host).is_loopback
    except ValueError:
        near = host == "localhost" or host.endswith(".localhost")
    return address.scheme == "http" and not near


def check_url(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:  # noqa: ARG001 (click's)
    """Return the address of a server, without a slash at its end; a callback of an option."""
    if value is None:
        return None
    try:
        check_address(value, "it")
    except BadAddress as fault:
        raise click.BadParameter(str(fault)) from None
    return value.rstrip("/")


_option = partial(click.option, show_envvar=True)
_URL_HELP = "Address of the server, such as https://svc.example.org"
_URL = partial(_option, "--url", envvar="SVC_URL", callback=check_url, help=_URL_HELP)
_ACCOUNT = partial(_option, "--account-name", "account", envvar="SVC_ACCOUNT", help="Account to work in.")
_CA_FILE = _option(
    "--ca-file",
    envvar="SVC_CA_FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM file of the authority that signed the server's certificate, instead of the system's authorities.",
)
_CALLER = (
    _option("--login", envvar="SVC_LOGIN", help="Who to be: alice, or host/ci/runner."),
    secret_option("--api-key", API_KEY, "an API key"),
)


def build_query(**parameters: object) -> str:
    """Return a query, with its question mark, of the parameters that aren't ``None`` or false; empty without any."""
    given = {
        name: "true" if value is True else value
        for name, value in parameters.items()
        if value is not None and value is not False
    }
    return f"?{urlencode(given, doseq=True)}" if given else ""


def authenticated_command(
    command: Callable[..., Awaitable[Then]], instead: Callable[..., bool] | None = None
) -> Callable[..., None]:
    """Make a coroutine function, whose first argument is a :class:`ApiConnection`, a command with the options of one.

    Its result is called when all connections have ended. ``instead`` is called first with the command's own options, and
    returns whether that was all: no server is contacted then, and none has to be named.
    """
    run = anonymous_command(command, instead)
    for option in reversed((_ACCOUNT(required=instead is None), *_CALLER)):
        run = option(run)
    return run


def anonymous_command(
    command: Callable[..., Awaitable[Then]], instead: Callable[..., bool] | None = None
) -> Callable[..., None]:
    """Like :func:`authenticated_command`, for a command that needs no account and no caller."""

    def run_command(**options: Any) -> None:
        url, ca_file = options.pop("url"), options.pop("ca_file")
        if instead is not None:
            if instead(**{name: value for name, value in options.items() if name not in {"account", "login", "api_key"}}):
                return
            if url is None or options["account"] is None:
                raise click.UsageError("name a server by --url and --account-name (SVC_URL and SVC_ACCOUNT), or a --file")
        if "account" in options and is_unencrypted(url):
            click.echo("Warning: the access token goes over http, and can be read on the way: use https.", err=True)
        account, login, api_key = options.pop("account", ""), options.pop("login", None), options.pop("api_key", None)

        async def run_with_network(network: Network) -> Then:
            wall = MachineClock()
            requester = network.make_requester(ANSWER_LIMIT, ca_file, SavedVersions(account, wall) if account else None)
            elsewhere = network.make_requester(ELSEWHERE_LIMIT)
            at = ApiConnection(url, account, login, api_key, requester, wall, elsewhere, requester)
            return await command(at, **options)

        run_asyncio(run_with_network)

    run_command.__name__, run_command.__doc__ = command.__name__, command.__doc__
    return _CA_FILE(_URL(required=instead is None)(run_command))
