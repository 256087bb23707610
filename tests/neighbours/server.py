"""The server and its command, run as an operator runs them, for cases that ask them one after the other."""

from __future__ import annotations

import base64
import http.client
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.neighbours.table import Answer

#: How long a program may take until it is ready, in seconds.
PATIENCE = 120.0


def wait_until(condition: Callable[[], bool], message: str, patience: float = PATIENCE) -> None:
    """Return when a condition holds.

    :raises TimeoutError: with the message, when it doesn't within so many seconds.
    """
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(message)
        time.sleep(0.1)


def start_program(
    stack: ExitStack, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program that writes to a log, and stop it with everything that it started when the stack is closed."""
    output = stack.enter_context(log.open("ab"))
    surroundings = {**os.environ, **(environment or {})}
    process = subprocess.Popen(
        command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=surroundings, start_new_session=True
    )
    stack.callback(_stop, process)
    return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            continue


def ask(
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    authorities: str | None = None,
    source: str | None = None,
) -> Answer:
    """Make one request, on a connection of its own, without following redirects; return status and body.

    ``authorities`` is a file in PEM; ``source`` the local address to connect from.
    """
    parts = urllib.parse.urlsplit(url)
    place = (source, 0) if source else None
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=authorities)
        connection = http.client.HTTPSConnection(parts.netloc, timeout=PATIENCE, context=context, source_address=place)
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE, source_address=place)
    try:
        connection.request(method, url.partition(parts.netloc)[2] or "/", body, dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, response.read().decode("utf-8", "replace"))
    finally:
        connection.close()


class Server:
    """A server with an embedded PostgreSQL in a folder of its own, stopped with the stack.

    :ivar url: its first address.
    :ivar admin_key: the API key of the account's ``admin``.
    """

    account = "acme"

    def __init__(
        self, stack: ExitStack, directory: Path, *options: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it, and wait until it is ready."""
        self.directory = directory
        self.log = directory / "svc.log"
        twistd = [sys.executable, "-c", "import sys; from twisted.scripts.twistd import run; sys.exit(run())"]
        shared = ["-n", "--pidfile=", "svc", f"--account={self.account}", f"--data-dir={directory / 'data'}"]
        listen = [] if any(option.startswith("--listen") for option in options) else ["--listen=tcp:0:interface=127.0.0.1"]
        self.process = start_program(stack, [*twistd, *shared, *listen, *options], self.log, environment)
        found = self.await_line(r"^svc ready: (\S+)")
        self.url = found[1]
        key = re.search(r"^API key for admin: (\S+)", self.log.read_text(), re.MULTILINE)
        self.admin_key = key[1] if key else ""

    def await_line(self, pattern: str, patience: float = PATIENCE) -> re.Match[str]:
        """Return the first place in the log that a pattern fits, waiting for it."""

        def found() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {self.log.read_text()[-4000:]}")
            return re.search(pattern, self.log.read_text(errors="replace"), re.MULTILINE) is not None

        wait_until(found, f"the log has no line like {pattern}", patience)
        match = re.search(pattern, self.log.read_text(errors="replace"), re.MULTILINE)
        assert match is not None
        return match

    def token(self, login: str = "admin", key: str | None = None) -> str:
        """Return the header ``Authorization`` of a login by API key."""
        place = urllib.parse.quote(login, safe="")
        answer = ask("POST", f"{self.url}/authn/{self.account}/{place}/authenticate", (key or self.admin_key).encode())
        if answer.status != 200:
            raise RuntimeError(f"{login} can't log in: {answer}")
        return f'Token token="{base64.b64encode(answer.text.encode()).decode()}"'

    def load(self, policy: str, branch: str = "root") -> Answer:
        """Load policy as ``admin``."""
        return self.ask("POST", f"/policies/{self.account}/policy/{urllib.parse.quote(branch, safe='')}", policy.encode())

    def set(self, variable: str, value: str | bytes) -> Answer:
        """Set a variable as ``admin``."""
        body = value.encode() if isinstance(value, str) else value
        return self.ask("POST", f"/secrets/{self.account}/variable/{urllib.parse.quote(variable, safe='')}", body)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Make a request as ``admin``."""
        return ask(method, f"{self.url}{path}", body, {"Authorization": self.token(), **headers})

    def command(self, *words: str, stdin: str = "", environment: Mapping[str, str] | None = None) -> Answer:
        """Run ``svc`` as ``admin``; return its exit code and both outputs."""
        surroundings = {
            **os.environ,
            "SVC_URL": self.url,
            "SVC_ACCOUNT": self.account,
            "SVC_LOGIN": "admin",
            "SVC_API_KEY": self.admin_key,
            "XDG_STATE_HOME": str(self.directory / "state"),
            **(environment or {}),
        }
        ended = subprocess.run(
            [sys.executable, "-m", "svc", *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env=surroundings,
        )
        return Answer(ended.returncode, ended.stdout + ended.stderr)
