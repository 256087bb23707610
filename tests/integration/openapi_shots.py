"""A request to a real server, in the parts that variants change, and as it is written."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import attrs

from tests.integration.openapi_wire import Sending

#: How a request may be written: a body in chunks, a target with its host, the version before, an invitation awaited, its end
#: missing.
MANNERS: Final = ("chunked", "absolute", "old", "invited", "cut")

#: How much of a header is told.
_WIDTH: Final = 60

Pairs = tuple[tuple[str, str], ...]


@attrs.frozen(kw_only=True)
class Shot:
    """One request: ``path`` is one of the document, or none; ``values`` are those of its names; both are encoded."""

    method: str
    path: str
    values: Mapping[str, str]
    query: Pairs
    headers: Pairs
    body: bytes
    #: One of ``MANNERS``, or the usual one.
    manner: str = ""

    @property
    def raw_path(self) -> str:
        """The path as it stands on the wire."""
        path = self.path
        for name, value in self.values.items():
            path = path.replace(f"{{{name}}}", value)
        return path

    @property
    def target(self) -> str:
        """The path and the query."""
        pairs = "&".join(f"{name}={value}" for name, value in self.query)
        return f"{self.raw_path}?{pairs}" if pairs else self.raw_path

    def header(self, name: str) -> str:
        """Return the first value of a header, whose name is in lower case; empty where it isn't sent."""
        return next((value for each, value in self.headers if each.lower() == name), "")

    def __str__(self) -> str:
        headers = ", ".join(f"{name}: {value[:_WIDTH]}" for name, value in self.headers)
        return f"{self.method} {self.target[:600]} ({headers}) {self.body[:600]!r} {self.manner}"

    def written(self, rng: random.Random) -> Sending:
        """Return its bytes."""
        target, body, version = self.target, self.body, "1.1"
        lines = [f"{name}: {value}" for name, value in self.headers]
        match self.manner:
            case "chunked":
                middle = rng.randrange(len(body) + 1)
                pieces = [piece for piece in (body[:middle], body[middle:]) if piece]
                body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
                lines.append("Transfer-Encoding: chunked")
            case "absolute":
                target = f"http://svc.example{target}"
            case "old":
                version = "1.0"
            case "invited":
                lines.append("Expect: 100-continue")
        if self.manner != "chunked" and (body or self.method in {"POST", "PUT", "PATCH"}):
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join((f"{self.method} {target} HTTP/{version}", "Host: svc", *lines, "", ""))
        # A line end in a value would be a request of another length.
        data = head.encode("latin-1", "replace") + body
        cut = self.manner == "cut"
        return Sending(data[: rng.randrange(1, len(data) + 1)] if cut else data, head=self.method == "HEAD", ended=cut)
