"""Tests of ``svc.client.blocking`` and ``async_exchange`` at servers on this machine that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from svc.client.async_exchange import AsyncExchange, async_transport
from svc.client.blocking import BlockingExchange, BlockingTransport, run_coroutine
from svc.workload.faults import Fault, Unreachable, Untrusted
from svc.workload.replies import Reply

Serve = Callable[[socket.socket], object]


def drip(beginning: bytes) -> Serve:
    """Say this, and then a byte now and then, for as long as anybody listens."""

    def serve(line: socket.socket) -> None:
        line.sendall(beginning)
        while True:
            time.sleep(0.05)
            line.sendall(b"x")

    return serve


class ExchangeCase(SynchronousTestCase):
    """Either exchange, at a server that is a thread."""

    def serve(self, serve: Serve) -> str:
        """Serve each connection so; return the address."""
        listening = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listening.close)

        def one(line: socket.socket) -> None:
            with line, contextlib.suppress(OSError):
                serve(line)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    def asked(self, url: str, within: float = 0.4) -> list[Reply | Fault]:
        """What each exchange gets there, within time."""

        async def work() -> Reply:
            exchange = AsyncExchange(async_transport(), 1000)
            try:
                return await exchange.ask("GET", url, within=within)
            finally:
                await exchange.close()

        def blocking() -> Reply:
            exchange = BlockingExchange(BlockingTransport, 1000)
            try:
                return run_coroutine(exchange.ask("GET", url, within=within))
            finally:
                exchange.close()

        found: list[Reply | Fault] = []
        for ask in (lambda: asyncio.run(work()), blocking):
            began = time.monotonic()
            try:
                found.append(ask())
            except Fault as fault:
                found.append(fault)
            self.assertLess(time.monotonic() - began, within + 20)  # a stranger would hold it for ever
        return found

    def test_slow_answers(self) -> None:
        """However an answer drips, it ends with its question (LIB-8, NET-22)."""
        for beginning in (
            b"",
            b"HTTP/1.1 200 OK\r\nA: ",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n",
        ):
            for fault in self.asked(self.serve(drip(beginning))):
                self.assertIsInstance(fault, Unreachable)
                self.assertIn("no complete answer within 0.4 seconds", str(fault))

    def test_endless_headers(self) -> None:
        """Headers, and answers before the answer, without an end are hung up on."""

        def endless(piece: bytes) -> Serve:
            def serve(line: socket.socket) -> None:
                line.sendall(b"HTTP/1.1 ")
                while True:
                    line.sendall(piece)

            return serve

        for piece in (b"200 OK\r\nA: b\r\n" * 1000, b"100 Continue\r\n\r\nHTTP/1.1 " * 1000):
            for fault in self.asked(self.serve(endless(piece)), 1):
                self.assertIsInstance(fault, Unreachable)

    def test_slow_handshakes(self) -> None:
        """A server that doesn't speak TLS, or never to the end, is no service."""
        for beginning, kind in ((b"HTTP/1.1 400 Bad\r\n\r\n", Untrusted), (b"\x16\x03\x03\x3f\xff", Unreachable)):
            url = self.serve(drip(beginning)).replace("http:", "https:")
            for fault in self.asked(url):
                self.assertIsInstance(fault, kind, str(fault))

    def test_nobody(self) -> None:
        """Where nobody listens, and where there is no such host, nothing has arrived."""
        gone = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
        gone.close()
        for fault in (*self.asked(url), *self.asked("http://nobody.invalid", 5)):
            self.assertIsInstance(fault, Unreachable)
            self.assertIn("cannot reach http://", str(fault))

    def test_whole_answers(self) -> None:
        """Connections are used again, for an answer each."""
        lines: list[socket.socket] = []

        def serve(line: socket.socket) -> None:
            lines.append(line)
            while line.recv(10_000):
                line.sendall(b"HTTP/1.1 200 OK\r\nA: 1\r\nA: 2\r\nContent-Length: 2\r\n\r\nhi")

        url = self.serve(serve)
        for reply in self.asked(url):
            self.assertEqual(reply, Reply(200, b"hi", {"a": "2", "content-length": "2"}))
        exchange = BlockingExchange(BlockingTransport, 1000)
        self.addCleanup(exchange.close)
        for _ in range(3):
            run_coroutine(exchange.ask("GET", url, within=5))
        self.assertEqual(len(lines), 3)

    def test_forks(self) -> None:
        """A process that was forked has connections of its own (LIB-9)."""
        made: list[BlockingTransport] = []

        def make() -> BlockingTransport:
            made.append(BlockingTransport())
            return made[-1]

        def serve(line: socket.socket) -> None:
            while line.recv(10_000):
                line.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        url = self.serve(serve)
        exchange = BlockingExchange(make, 1000)
        run_coroutine(exchange.ask("GET", url, within=5))
        parent = os.getpid()
        self.patch(os, "getpid", lambda: parent + 1)
        self.assertEqual(run_coroutine(exchange.ask("GET", url, within=5)).status, 204)
        self.assertEqual(len(made), 2)
        for each in made:
            each.close()
