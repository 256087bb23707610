"""Who stands around the servers of the fault matrix, and may misbehave: a third member of the cluster, a receiver of syslog.

Each runs in a thread of its own, so that it goes on between tests and needs no reactor. Nobody may rely on it for more than
what it is told to do.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from OpenSSL import crypto
from twisted.internet.ssl import PrivateCertificate

from tests.authn.providers.authority import Authority

#: How long a connection may last, in seconds; a misbehaving member is asked for no longer than five.
_LONGEST: Final = 20.0

#: How long a thread waits before it looks whether it is to end, in seconds.
_BEAT: Final = 0.1

Speak = Callable[[socket.socket, threading.Event], None]


def _http(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def _report(*, ok: bool) -> bytes:
    word = "ok" if ok else "failed"
    return json.dumps(
        {"services": {"core": word, "ok": ok}, "database": {"ok": True, "connect": {"main": "ok"}}, "ok": ok}
    ).encode()


def says(status: str, body: bytes, *headers: str) -> Speak:
    """Say this."""
    text = _http(status, body, *headers)
    return lambda line, _: line.sendall(text)


#: What a member says that is well.
well: Final = says("200 OK", _report(ok=True))


def hang(line: socket.socket, ended: threading.Event) -> None:
    """Say nothing, and stay."""
    ended.wait(_LONGEST)


def flood(line: socket.socket, ended: threading.Event) -> None:
    """Say a gigabyte."""
    line.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\nContent-Type: application/json\r\n\r\n" + b'{"ok": true, "x": "'
    )
    for _ in range(1_000_000_000 // 65_536):
        if ended.is_set():
            return
        line.sendall(b"x" * 65_536)


def drip(line: socket.socket, ended: threading.Event) -> None:
    """Say a good report, one byte each half second."""
    for byte in _http("200 OK", _report(ok=True)):
        line.sendall(bytes([byte]))
        if ended.wait(0.5):
            return


class _Listening:
    """A port of 127.0.0.1, and a thread for it and for each connection."""

    def __init__(self, backlog: int = 16) -> None:
        self._ended = threading.Event()
        self._listener: socket.socket | None = None
        self._lines: list[socket.socket] = []
        self._backlog = backlog
        self.port = 0
        self.open()

    def open(self) -> None:
        """Listen, on the same port as before."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=self._backlog)
        self.port = self._listener.getsockname()[1]
        self._prepare(self._listener)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Listen no more, and hang up on all."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.hang_up()

    def hang_up(self) -> None:
        """Hang up on all."""
        lines, self._lines = self._lines, []
        for line in lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Be gone for ever."""
        self._ended.set()
        self.close()

    def _prepare(self, listener: socket.socket) -> None:
        """Set what the port needs."""

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError, ValueError):  # as which its closing shows
            while not self._ended.is_set():
                if select.select([listener], [], [], _BEAT)[0]:
                    line, _ = listener.accept()
                    self._lines = [each for each in self._lines if each.fileno() >= 0] + [line]
                    threading.Thread(target=self._attend, args=(line,), daemon=True).start()

    def _attend(self, line: socket.socket) -> None:
        with suppress(OSError), line:
            self._serve(line)

    def _serve(self, line: socket.socket) -> None:
        raise NotImplementedError


class Member(_Listening):
    """A member of the cluster, over TLS. It ``speaks`` as it is told, to all that ask it for anything."""

    def __init__(self, directory: Path) -> None:
        self.speaks: Speak = well
        self._authority, self._stranger = Authority(), Authority()
        #: The file of its authority, for ``--cluster-ca``.
        self.authority = directory / "cluster-ca.pem"
        self.authority.write_text(self._authority.pem)
        self._directory = directory
        self._context = self._certified(self._authority)
        super().__init__()

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self.port}"

    def misbehave(self, speaks: Speak) -> None:
        """Speak so from now on."""
        self.speaks = speaks

    def impersonate(self) -> None:
        """Show a certificate of an authority that nobody trusts."""
        self._context = self._certified(self._stranger)

    def behave(self) -> None:
        """Be well again."""
        self._ended.set()  # All connections that hang are closed.
        self._ended = threading.Event()
        self.speaks = well
        self._context = self._certified(self._authority)
        self.hang_up()
        if self._listener is None:
            self.open()

    def _certified(self, authority: Authority) -> ssl.SSLContext:
        issued: PrivateCertificate = authority.issue("127.0.0.1")
        path = self._directory / "member.pem"
        path.write_bytes(issued.dumpPEM() + issued.privateKey.dump(crypto.FILETYPE_PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _serve(self, line: socket.socket) -> None:
        speaks, ended = self.speaks, self._ended
        line.settimeout(_LONGEST)
        with self._context.wrap_socket(line, server_side=True) as secure:
            asked = b""
            while b"\r\n\r\n" not in asked and (more := secure.recv(4096)):
                asked += more
            if asked:
                speaks(secure, ended)


class Receiver(_Listening):
    """A receiver of syslog that reads and forgets, unless it is told to read nothing."""

    def __init__(self) -> None:
        self._reads = threading.Event()
        self._reads.set()
        super().__init__()

    def hold(self) -> None:
        """Read nothing any more."""
        self._reads.clear()

    def read(self) -> None:
        """Read again."""
        self._reads.set()

    def _prepare(self, listener: socket.socket) -> None:
        # So that little is enough to fill it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def _serve(self, line: socket.socket) -> None:
        line.settimeout(_BEAT)
        while not self._ended.is_set() and line.fileno() >= 0:
            self._reads.wait()
            try:
                if not line.recv(65_536):
                    return
            except TimeoutError:
                continue
