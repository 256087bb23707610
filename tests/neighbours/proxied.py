"""One table of cases for every proxy in front of a server, and how each sample of ``etc/proxies`` is made to run here.

A sample runs as it is shipped, but for its port, its certificate and the server's address.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from tests.authn.providers.authority import Authority
from tests.neighbours.server import Server, ask, start_program, wait_until
from tests.neighbours.table import Answer, Row

SAMPLES: Final = Path(__file__).resolve().parent.parent.parent / "etc" / "proxies"

#: What the server is started with: the console, and the proxy's address as the only one that is trusted.
OPTIONS: Final = ("--console", "--trusted-proxies=127.0.0.1")

#: The address that clients have, which isn't trusted, and one that they would like to have.
CLIENT: Final = "127.0.0.2"
FORGED: Final = "198.51.100.7"

#: Seconds within which a change is shown to a stream.
_SOON: Final = 20.0

#: Names of variables that a proxy may take for others, and how they are written in a path.
_ODD: Final = (
    ("a//b", "a%2F%2Fb"),
    ("a/b", "a%2Fb"),
    ("d/../e", "d%2F..%2Fe"),
    ("e", "e"),
    ("f/./g", "f%2F.%2Fg"),
    ("f/g", "f%2Fg"),
    ("pct%2Fx", "pct%252Fx"),
    ("pct/x", "pct%2Fx"),
    ("pct x+y", "pct%20x%2By"),
    ("pct?x#y;z", "pct%3Fx%23y%3Bz"),
)

#: The same where no slash is encoded.
_LITERAL: Final = (("a//b", "a//b"), ("a/b", "a/b"), ("d/../e", "d/../e"), ("f/./g", "f/./g"))

_POLICY: Final = """
- !policy
  id: {policy}
  body:
    - !variable v
    - !policy leaf
    - !host {{ id: here, restricted_to: [ {here}/32 ] }}
    - !host {{ id: there, restricted_to: [ {there}/32 ] }}
"""


@attrs.frozen
class Reply:
    """An answer with its headers, by names in lower case."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def answer(self) -> Answer:
        """The answer as rows have it."""
        return Answer(self.status, self.text)


@attrs.define
class Proxied:
    """A proxy at ``url`` before a server; what a case makes stands in ``policy``.

    ``cleans``: the proxy makes another path of one with slashes and dots in a row, unless they are encoded.
    """

    server: Server
    url: str
    authorities: str | None
    policy: str
    cleans: bool = False
    keys: dict[str, str] = attrs.field(factory=dict)

    def connect(self) -> http.client.HTTPConnection:
        """Connect to the proxy, from a client's address."""
        parts = urllib.parse.urlsplit(self.url)
        source = (CLIENT, 0)
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.netloc, timeout=_SOON * 3, source_address=source)
        return http.client.HTTPSConnection(parts.netloc, timeout=_SOON * 3, context=self.context(), source_address=source)

    def context(self) -> ssl.SSLContext:
        """Return how TLS is verified."""
        context = ssl.create_default_context(cafile=self.authorities)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # of what a test's certificates lack
        return context

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        """Make a request through the proxy; underscores in names of headers stand for dashes."""
        connection = self.connect()
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named, encode_chunked="Transfer-Encoding" in named)  # type: ignore[arg-type]
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
            return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, text)
        finally:
            connection.close()

    def admin(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        """Make a request as the account's admin."""
        return self.ask(method, path, body, Authorization=self.server.token(), **headers)

    def secret(self, name: str) -> str:
        """Return the path of a variable whose name is written for a path already."""
        return f"/secrets/acme/variable/{self.policy}%2F{name}"

    # -- cases

    def log_in(self) -> Answer:
        """Log in by API key."""
        return self.ask("POST", "/authn/acme/admin/authenticate", self.server.admin_key.encode()).answer

    def load(self) -> Answer:
        """Load policy, and keep the API keys of its hosts."""
        text = _POLICY.format(policy=self.policy, here=CLIENT, there=FORGED)
        reply = self.admin("POST", "/policies/acme/policy/root", text.encode())
        if reply.status == 201:
            roles = json.loads(reply.text)["created_roles"]
            self.keys |= {name.rpartition("/")[2]: role["api_key"] for name, role in roles.items()}
        return reply.answer

    def load_much(self) -> Answer:
        """Load 2 MB of policy."""
        text = f"- !policy {self.policy}\n".encode() + b"# a line that says nothing\n" * 80_000
        return self.admin("POST", "/policies/acme/policy/root", text).answer

    def change(self, method: str) -> Answer:
        """Change a policy by another method."""
        path = f"/policies/acme/policy/{self.policy}%2Fleaf"
        return self.admin(method, path, b"- !variable w\n").answer

    def set(self, name: str, value: str) -> Answer:
        """Set a variable."""
        return self.admin("POST", self.secret(name), value.encode()).answer

    def set_in_chunks(self) -> Answer:
        """Set a variable by a body without a length."""
        return self.admin("POST", self.secret("v"), iter([b"in ", b"chunks"]), Transfer_Encoding="chunked").answer

    def set_odd(self) -> Answer:
        """Make variables with odd names, and set each to its name, at the server itself."""
        names = json.dumps([name for name, _ in _ODD])
        self.server.load(
            f"- !policy {{ id: {self.policy}, body: [ {', '.join(f'!variable {json.dumps(n)}' for n, _ in _ODD)} ] }}"
        )
        for name, _ in _ODD:
            answer = self.server.set(f"{self.policy}/{name}", name)
            if answer.status != 201:
                return answer
        return Answer(201, names)

    def read(self, written: str) -> Answer:
        """Read a variable."""
        return self.admin("GET", self.secret(written)).answer

    def read_by_slashes(self, written: str) -> Answer:
        """Read a variable whose slashes aren't encoded."""
        return self.admin("GET", f"/secrets/acme/variable/{self.policy}/{written}").answer

    def pad_address(self) -> Answer:
        """Make a request with an address of 60 KB."""
        one = f"acme:variable:{self.policy}/v"
        many = ",".join([one] * (60_000 // (len(one) + 1)))
        return self.admin("GET", f"/secrets?variable_ids={many}").answer

    def pad_headers(self) -> Answer:
        """Make a request with headers of 31 KB."""
        token = self.server.token()
        return self.ask("GET", "/whoami", X_Pad="x" * (31_000 - len(token)), Authorization=token).answer

    def forge(self, host: str) -> Answer:
        """Log in as a host that may do so from one address alone, and say that one is there."""
        path = f"/authn/acme/host%2F{self.policy}%2F{host}/authenticate"
        return self.ask("POST", path, self.keys[host].encode(), X_Forwarded_For=FORGED).answer

    def whoami(self) -> Answer:
        """Ask which address the server sees, and name others in all headers that do so."""
        forged = {"X_Forwarded_For": f"{FORGED}, {FORGED}", "Forwarded": f"for={FORGED}", "X_Real_IP": FORGED}
        return self.admin("GET", "/whoami", **forged).answer

    def compare(self) -> Answer:
        """Read what has a tag, as a browser does, and ask again whether it has changed."""
        path = f"/secrets?variable_ids=acme:variable:{self.policy}/v"
        tag = self.admin("GET", path, Accept_Encoding="gzip, deflate, br").headers.get("etag", "no tag")
        direct = ask("GET", self.server.url + path, None, {"Authorization": self.server.token(), "If-None-Match": tag})
        if direct.status != 304:
            return Answer(direct.status, f"the server doesn't know the tag {tag}")
        return self.admin("GET", path, Accept_Encoding="gzip, deflate, br", If_None_Match=tag).answer

    def precede(self) -> Answer:
        """Set a variable that has the tag which was read, and again with that tag."""
        tag = self.admin("GET", self.secret("v"), Accept_Encoding="gzip").headers.get("etag", "no tag")
        first = self.admin("POST", self.secret("v"), b"compared", If_Match=tag)
        if first.status != 201:
            return first.answer
        return self.admin("POST", self.secret("v"), b"again", If_Match=tag).answer

    def watch(self) -> Answer:
        """Watch a variable, change it, and return what was shown until then."""
        connection = self.connect()
        try:
            path = f"/secrets/watch?variable_ids=acme:variable:{self.policy}/v"
            connection.request("GET", path, headers={"Authorization": self.server.token(), "Accept": "text/event-stream"})
            response = connection.getresponse()
            shown, begun, end = b"", False, time.monotonic() + _SOON
            while time.monotonic() < end:
                line = response.readline()
                shown += line
                if not begun and line == b"\n":
                    begun = True
                    self.server.set(f"{self.policy}/v", f"watched {time.time()}")
                elif begun and line.startswith(b"data:"):
                    return Answer(response.status, "shown")
            return Answer(response.status, shown.decode())
        finally:
            connection.close()

    def sign_in(self) -> Answer:
        """Sign in to the console as a browser does, and return its first page."""
        cookies: dict[str, str] = {}

        def browse(method: str, path: str, fields: Mapping[str, str] | None = None) -> Reply:
            headers = {"Sec_Fetch_Site": "same-origin", "Cookie": "; ".join(f"{k}={v}" for k, v in cookies.items())}
            body = None if fields is None else urllib.parse.urlencode(fields)
            if body is not None:
                headers["Content_Type"] = "application/x-www-form-urlencoded"
            reply = self.ask(method, path, body, **headers)
            for cookie in filter(None, [reply.headers.get("set-cookie")]):
                name, _, value = cookie.partition(";")[0].partition("=")
                cookies[name] = value
            return reply

        form = browse("GET", "/ui/sign-in").text
        token = re.search(r'name="token" value="([^"]+)"', form)
        if token is None:
            return Answer(0, form)
        login = {"account": "acme", "login": "admin", "evidence": self.server.admin_key}
        browse("POST", "/ui/sign-in", {**login, "to": "/ui", "token": token[1]})
        return browse("GET", "/ui").answer

    def speak_old(self) -> Answer:
        """Ask for health as monitors do that speak HTTP/1.0."""
        parts = urllib.parse.urlsplit(self.url)
        with socket.create_connection((parts.hostname or "", parts.port or 443), _SOON, (CLIENT, 0)) as plain:
            line = self.context().wrap_socket(plain, server_hostname=parts.hostname) if parts.scheme == "https" else plain
            line.sendall(f"GET /health HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
            received = b""
            while chunk := line.recv(1 << 16):
                received += chunk
            line.close()
        head, _, body = received.partition(b"\r\n\r\n")
        return Answer(int(head.split()[1]), body.decode())

    def rows(self) -> Iterator[Row]:
        """Return the cases, in the order in which they run."""
        yield Row("a login", Answer(200), self.log_in)
        yield Row("policy", Answer(201, '"created_roles"'), self.load)
        yield Row("2 MB of policy", Answer(201), self.load_much)
        for method in ("PATCH", "PUT"):
            yield Row(f"{method} of policy", Answer(201), partial(self.change, method))
        yield Row("a value", Answer(201), lambda: self.set("v", "one"))
        yield Row("a body in chunks", Answer(201), self.set_in_chunks)
        yield Row("its value", Answer(200, "in chunks"), lambda: self.read("v"))
        yield Row("odd names are made", Answer(201), self.set_odd)
        for name, written in _ODD:
            yield Row(f"the variable {name}", Answer(200, name), partial(self.read, written))
        for name, written in () if self.cleans else _LITERAL:
            shown = f"the variable {name}, by plain slashes"
            yield Row(shown, Answer(200, name), partial(self.read_by_slashes, written))
        yield Row("an address of 60 KB", Answer(200), self.pad_address)
        yield Row("headers of 31 KB", Answer(200), self.pad_headers)
        yield Row("the client's address", Answer(200, f'"client_ip":"{CLIENT}"'), self.whoami)
        yield Row("a login from where it is allowed", Answer(200), lambda: self.forge("here"))
        yield Row("a forged address", Answer(401), lambda: self.forge("there"))
        yield Row("a tag", Answer(304), self.compare)
        yield Row("a tag of a value that has changed", Answer(412, "precondition_failed"), self.precede)
        yield Row("a stream", Answer(200, "shown"), self.watch)
        yield Row("the console", Answer(200, "Sign out"), self.sign_in)
        yield Row("a refusal", Answer(404, '"error":{'), lambda: self.read("nothing"))
        yield Row("HTTP/1.0", Answer(200, '"ok":true'), self.speak_old)


def free_port() -> int:
    """Return the number of a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def certificate(directory: Path) -> Path:
    """Write an authority, ``ca.pem``, which is returned, and a certificate for 127.0.0.1, ``svc.pem``, ``svc-key.pem``."""
    authority = Authority()
    issued = authority.issue("127.0.0.1")
    (directory / "ca.pem").write_text(authority.pem)
    (directory / "svc.pem").write_bytes(issued.dumpPEM())
    (directory / "svc-key.pem").write_bytes(issued.privateKey.dump(1))  # 1: PEM
    return directory / "ca.pem"


def write_sample(name: str, target: Path, places: Mapping[str, str]) -> Path:
    """Write a sample with other places in it.

    :raises AssertionError: it has no such place.
    """
    text = (SAMPLES / name).read_text(encoding="utf-8")
    for place, ours in places.items():
        assert place in text, f"{name} has no {place}"
        text = text.replace(place, ours)
    target.write_text(text)
    return target


def run_proxy(
    stack: ExitStack, directory: Path, port: int, *command: str, environment: Mapping[str, str] | None = None
) -> str:
    """Start a proxy, and return its address when it accepts connections."""
    log = directory / "proxy.log"
    process = start_program(stack, command, log, environment)

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(listens, f"{command[0]} doesn't listen: {log.read_text()}", 30)
    return f"https://127.0.0.1:{port}"
