"""The address on this machine to which a provider of OpenID Connect sends the browser: one answer is taken there."""

from __future__ import annotations

import asyncio
import hmac
import html
import ipaddress
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import parse_qs, urlsplit

import attrs
import click
import h11

from svc.cli.table import escape_text

_PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>svc login</title></head>
<body><p>{sentence}</p></body></html>
"""

_HEADERS: Final = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", "default-src 'none'"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    ("Connection", "close"),
)

#: Seconds that a browser has for its request, and for the answer to be on its way.
_REQUEST: Final = 10.0


@attrs.frozen
class RedirectUri:
    """The address on this machine to which the provider sends the browser."""

    host: str
    port: int
    path: str

    @classmethod
    def from_login_url(cls, url: str) -> RedirectUri:
        """Read it from the address at which the browser begins.

        :raises click.ClickException: the provider would send the browser elsewhere.
        """
        redirect_uri = parse_qs(urlsplit(url).query).get("redirect_uri", [""])[0]
        try:
            parts = urlsplit(redirect_uri)
            host, port = parts.hostname or "", parts.port or 80
        except ValueError:
            parts, host, port = urlsplit(""), "", 0
        if parts.scheme != "http" or not is_loopback(host) or parts.query or parts.fragment:
            raise click.ClickException(
                f"the provider sends browsers to {escape_text(redirect_uri) or 'an address that the server does not know'},"
                " and not to this machine: an operator sets the variable redirect-uri to http://127.0.0.1:8888/callback"
            )
        return cls(host, port, parts.path or "/")

    @property
    def allowed_hosts(self) -> set[str]:
        """Return what a browser may say in the header ``Host``."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return {f"{shown}:{self.port}", *({shown} if self.port == 80 else ())}


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class CallbackHandler:
    """Takes one answer of the provider, by the browser; ``issuer`` is what its ``iss`` must be, if it has one.

    ``outcome`` is then its code, or why there is none; ``on_outcome`` is called once.
    """

    def __init__(self, callback: RedirectUri, state: str, issuer: str | None) -> None:
        self.outcome: str | click.ClickException | None = None
        self.on_outcome: Callable[[], object] = bool
        self._callback, self._state, self._issuer = callback, state, issuer

    def handle_request(self, method: str, host: str, target: str) -> tuple[int, str]:
        """Return the status and the sentence for a request, and take what it brings."""
        path, _, text = target.partition("?")
        if method != "GET" or host.lower() not in self._callback.allowed_hosts or path != self._callback.path:
            return 404, "Nothing here."
        given = parse_qs(text, keep_blank_values=True)
        (state, *_), (issuer, *_) = given.get("state", [""]), given.get("iss", [None])
        if not hmac.compare_digest(state.encode("utf-8", "replace"), self._state.encode("ascii")):
            return 400, "This is not the login that was begun here. Nothing was done."
        if self.outcome is not None:
            return 400, "This login is over."
        if issuer is not None and self._issuer is not None and issuer != self._issuer:
            alike = issuer.removesuffix("/") == self._issuer.removesuffix("/")
            why = f"an operator sets provider-uri to {escape_text(issuer)}" if alike else "this may be an attack"
            self._fail_login(f"the answer is from {escape_text(issuer)}, and not from {escape_text(self._issuer)}: {why}")
            return 400, "The answer is another provider's. Nothing was done."
        codes = given.get("code", [])
        if "error" in given or len(codes) != 1 or not codes[0]:
            texts = [*given.get("error", ["no code"]), *given.get("error_description", [])]
            self._fail_login(f"the provider refused: {escape_text(' '.join(texts))}")
            return 400, "The provider refused the login. The terminal says more."
        self._finish_login(codes[0])
        return 200, "The terminal says whether you have signed in. You can close this window."

    def _fail_login(self, why: str) -> None:
        self._finish_login(click.ClickException(why))

    def _finish_login(self, outcome: str | click.ClickException) -> None:
        self.outcome = outcome
        self.on_outcome()


def render_page(status: int, sentence: str) -> bytes:
    """Return a whole response with a sentence."""
    body = _PAGE.format(sentence=html.escape(sentence)).encode("utf-8")
    line = h11.Connection(h11.SERVER)
    headers = [*_HEADERS, ("Content-Length", str(len(body)))]
    parts = (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage())
    return b"".join(line.send(part) or b"" for part in parts)


@asynccontextmanager
async def listen_for_code(callback: RedirectUri, answers: CallbackHandler) -> AsyncGenerator[asyncio.Future[str], None]:
    """Listen there while the context lasts; its value is the code, or raises why there is none.

    :raises click.ClickException: the port can't be had.
    """
    code: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    open_lines: set[asyncio.Task[None]] = set()

    def set_result() -> None:
        if isinstance(answers.outcome, click.ClickException):
            code.set_exception(answers.outcome)
        else:
            code.set_result(answers.outcome or "")

    async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_lines.add(task)
        try:
            with suppress(OSError, TimeoutError, h11.RemoteProtocolError):
                async with asyncio.timeout(_REQUEST):
                    writer.write(render_page(*answers.handle_request(*await _read_request(reader))))
                    await writer.drain()
        finally:
            open_lines.discard(task)
            writer.close()

    answers.on_outcome = set_result
    host = "127.0.0.1" if callback.host == "localhost" else callback.host
    try:
        server = await asyncio.start_server(serve_connection, host, callback.port)
    except OSError as error:
        message = f"the browser can't come back to port {callback.port} of this machine: {error.strerror or error}"
        raise click.ClickException(message) from None
    try:
        yield code
    finally:
        server.close()
        if code.done():
            # The page is on its way still.
            await asyncio.wait(open_lines, timeout=1) if open_lines else None
        for line in open_lines:
            line.cancel()


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, str]:
    """Read a request without its body; return its method, host and target."""
    line = h11.Connection(h11.SERVER)
    while (event := line.next_event()) is h11.NEED_DATA:
        line.receive_data(await reader.read(65_536))
    if not isinstance(event, h11.Request):
        raise h11.RemoteProtocolError("no request")
    host = next((value for name, value in event.headers if name == b"host"), b"")
    return event.method.decode("ascii"), host.decode("latin-1"), event.target.decode("latin-1")
