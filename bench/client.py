"""A client of the service for all but quick questions: one connection for each request."""

from __future__ import annotations

import base64
import re
import time
import urllib.request
from http.client import HTTPResponse
from typing import Final

import attrs

from bench.probe import Span

_PIECE: Final = 256 * 1024
_SECONDS: Final = 600


@attrs.frozen
class Client:
    """A client of the service at ``url``, with an access token once there is one."""

    url: str
    token: str = attrs.field(default="", repr=False)

    def logged_in(self, path: str, evidence: bytes) -> Client:
        """The same, with the access token for which ``path`` takes this evidence."""
        return Client(self.url, base64.b64encode(self.ask("POST", path, evidence)).decode())

    @property
    def header(self) -> tuple[str, str]:
        """The header that names the caller."""
        return "Authorization", f'Token token="{self.token}"'

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The answer to one request, which must be a success."""
        with self._opened(method, path, body) as answer:
            return answer.read()

    def span(self, method: str, path: str, body: bytes | None = None) -> Span:
        """From when until when a request is answered."""
        begin = time.monotonic()
        self.ask(method, path, body)
        return begin, time.monotonic()

    def read_list(self, path: str) -> int:
        """Read a list of flat objects to its end, and return how many there were."""
        objects = 0
        with self._opened("GET", path) as answer:
            while piece := answer.read(_PIECE):
                objects += piece.count(b"{")
        return objects

    def cursor(self, path: str) -> str:
        """The cursor to the page behind the one at ``path``."""
        with self._opened("GET", path) as answer:
            found = re.search(r"[?&]cursor=([^&>]+)", answer.headers["Link"])
            assert found
            return found[1]

    def _opened(self, method: str, path: str, body: bytes | None = None) -> HTTPResponse:
        headers = dict([self.header]) if self.token else {}
        asked = urllib.request.Request(f"{self.url}{path}", body, headers, method=method)
        opened: HTTPResponse = urllib.request.urlopen(asked, timeout=_SECONDS)
        return opened
