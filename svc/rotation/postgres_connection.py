"""The part of PostgreSQL's protocol that logs in and runs one command (PostgreSQL documentation, 53).

libpq isn't used: it takes settings from the environment, the home directory and the address itself, falls back to weaker
ways to log in, and reads as much as a server sends.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, ITCPTransport, ITLSTransport
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from svc.model.expiration import RotationFailed
from svc.net.trust import tls_fault
from svc.rotation.scram import MECHANISM, ScramExchange, ScramFailed

#: The bytes that are read of a server.
READ_LIMIT: Final = 64 * 1024

_SQLSTATE: Final = re.compile(rb"[0-9A-Z]{5}")

#: SQLSTATEs of a login with a password that is not, or no longer, in force.
_LOGIN_REFUSED: Final = frozenset({"28P01", "28000"})

#: Messages that are ignored: notices, parameters, the key for cancellation.
_IGNORED_MESSAGES: Final = frozenset(b"NSK")


class PasswordRefused(RotationFailed):
    """The server doesn't admit the role with this password."""


class PostgresConnection(Protocol):
    """One connection, one question at a time; each raises ``RotationFailed``."""

    def __init__(self) -> None:
        self._buffer = b""
        self._read_count = 0
        self._wanted: tuple[int, Deferred[bytes]] | None = None
        self._failure: Failure | None = None

    async def start_tls(self, tls: IOpenSSLClientConnectionCreator) -> bool:
        """Ask for TLS, and begin it; ``False`` when the server has none."""
        self._send_bytes(struct.pack("!ii", 8, 80877103))  # SSLRequest
        answer = await self._read_bytes(1)
        if answer not in {b"S", b"N"} or self._buffer:
            # Data before the handshake could come from anybody (CVE-2021-23222).
            raise RotationFailed("the server doesn't answer as PostgreSQL does")
        if answer == b"S":
            assert ITLSTransport.providedBy(self.transport)
            self.transport.startTLS(tls)
        return answer == b"S"

    async def log_in(self, role: str, database: str, password: bytes) -> None:
        """Log in by SCRAM, and by nothing else.

        :raises PasswordRefused: the password isn't in force.
        """
        words = ("user", role, "database", database, "application_name", "svc", "client_encoding", "UTF8")
        body = struct.pack("!hh", 3, 0) + b"".join(word.encode("utf-8") + b"\0" for word in words) + b"\0"
        self._send_bytes(struct.pack("!i", len(body) + 4) + body)
        exchange = ScramExchange(password)
        try:
            mechanisms = await self._read_authentication(10)
            if MECHANISM.encode() not in mechanisms.split(b"\0"):
                raise RotationFailed(f"the server doesn't offer {MECHANISM}")
            first = exchange.first_message()
            self._send_message(b"p", MECHANISM.encode() + b"\0" + struct.pack("!i", len(first)) + first)
            self._send_message(b"p", exchange.final_message(await self._read_authentication(11)))
            exchange.verify_server(await self._read_authentication(12))
        except ScramFailed as failed:
            raise RotationFailed(str(failed)) from None
        await self._read_authentication(0)
        await self._read_expected(b"Z")

    async def run_command(self, command: str) -> None:
        """Run a command that returns no rows, in a transaction of its own; when this returns it is committed."""
        self._send_message(b"Q", command.encode("utf-8") + b"\0")
        await self._read_expected(b"C")
        await self._read_expected(b"Z")

    def close(self) -> None:
        """End the connection at once."""
        if ITCPTransport.providedBy(self.transport):
            self.transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        """Keep bytes up to the limit."""
        self._read_count += len(data)
        if self._read_count > READ_LIMIT:
            self._failure = Failure(RotationFailed(f"the server says more than {READ_LIMIT} bytes"))
            self.close()
            self._fail_read()
            return
        self._buffer += data
        self._deliver_bytes()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 - as Twisted has it
        """Fail the question that waits for an answer."""
        if self._failure is None:
            self._failure = Failure(RotationFailed(tls_fault(reason.value) or "the server closed the connection"))
        self._fail_read()

    async def _read_authentication(self, wanted: int) -> bytes:
        """Return the next message about the login; refuse one that asks for a password, a hash as good, or nothing."""
        body = await self._read_expected(b"R", 4)
        if body[:4] != struct.pack("!i", wanted):
            remedy = "let pg_hba.conf ask for scram-sha-256, and have the password set again if it was set before that"
            raise RotationFailed(f"the server doesn't authenticate by {MECHANISM}: {remedy}")
        return body[4:]

    async def _read_expected(self, wanted: bytes, least: int = 0) -> bytes:
        """Return the body of the next message, which must be of this kind, with at least so many bytes."""
        kind, body = await self._read_message()
        if kind != wanted or len(body) < least:
            raise RotationFailed(f"the server doesn't answer as PostgreSQL does ({kind!r})")
        return body

    async def _read_message(self) -> tuple[bytes, bytes]:
        """Return the next message that isn't ignored."""
        while True:
            head = await self._read_bytes(5)
            kind, (length,) = head[:1], struct.unpack("!i", head[1:])
            if not 4 <= length <= READ_LIMIT:
                raise RotationFailed("the server doesn't answer as PostgreSQL does")
            body = await self._read_bytes(length - 4)
            if kind == b"E":
                raise _server_error(body)
            if kind[0] not in _IGNORED_MESSAGES:
                return kind, body

    def _read_bytes(self, size: int) -> Deferred[bytes]:
        waiting: Deferred[bytes] = Deferred()
        self._wanted = (size, waiting)
        self._deliver_bytes()
        if self._failure is not None:
            self._fail_read()
        return waiting

    def _deliver_bytes(self) -> None:
        if self._wanted is not None and len(self._buffer) >= self._wanted[0]:
            (size, waiting), self._wanted = self._wanted, None
            piece, self._buffer = self._buffer[:size], self._buffer[size:]
            waiting.callback(piece)

    def _fail_read(self) -> None:
        if self._wanted is not None and self._failure is not None:
            (_, waiting), self._wanted = self._wanted, None
            if not waiting.called:
                waiting.errback(self._failure)

    def _send_message(self, kind: bytes, body: bytes) -> None:
        self._send_bytes(kind + struct.pack("!i", len(body) + 4) + body)

    def _send_bytes(self, data: bytes) -> None:
        if self._failure is None and self.transport is not None:
            self.transport.write(data)


def _server_error(body: bytes) -> RotationFailed:
    """Return the failure of a server's error, with its code alone, since the rest may be any text."""
    fields = {field[:1]: field[1:] for field in body.split(b"\0") if field}
    found = _SQLSTATE.fullmatch(fields.get(b"C", b""))
    code = found[0].decode("ascii") if found else "none"
    if code in _LOGIN_REFUSED:
        return PasswordRefused(f"the server doesn't admit the role with the password that is stored (SQLSTATE {code})")
    return RotationFailed(f"the server refused (SQLSTATE {code})")
