"""The service as a process of its own, and the bench's messages meanwhile."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from bench import settings
from bench.client import Client
from svc.storage.embedded import cluster
from svc.storage.embedded.directory import DataDirectory

ACCOUNT: Final = "bench"
SERVICE: Final = "ci"


@attrs.frozen
class Server:
    """The service, running as its users run it, on the embedded database in ``folder``."""

    folder: Path
    process: subprocess.Popen[str]
    url: str
    output: str
    ready_seconds: float

    @classmethod
    def started(cls, folder: Path, *, watched: bool = False, switched: bool = False, more: Sequence[str] = ()) -> Server:
        """Start it, with ``more`` options, and wait for its ready line; with its event loop ``watched``, in the manner of
        ``bench/loop.py``.

        One that is ``switched`` can be switched to record nothing (``bench/unaudited.py``).
        """
        twistd = [str(Path(sys.executable).with_name("twistd")), f"--reactor={settings.REACTOR}"]
        switch = [sys.executable, "-m", "bench.unaudited"]
        loop = [sys.executable, "-m", "bench.loop", f"{folder}.loop"]
        command = [
            *(loop if watched else switch if switched else twistd),
            "-n",
            f"--logfile={folder}.log",
            f"--pidfile={folder}.pid",
            "svc",
        ]
        options = [
            f"--data-dir={folder}",
            "--listen=tcp:0:interface=127.0.0.1",
            f"--account={ACCOUNT}",
            f"--audit-file={folder}.audit",
            f"--authenticators=authn,authn-jwt/{SERVICE},authn-cloud/{SERVICE}",
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            *settings.SERVER_OPTIONS,
            *more,
        ]
        started = time.perf_counter()
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if line.startswith("svc ready: "):
                return cls(folder, process, line.split()[2], output, time.perf_counter() - started)
        raise SystemExit(f"the server did not start; see {folder}.log\n{output}")

    @classmethod
    @contextmanager
    def running(cls, folder: Path, *more: str) -> Iterator[Server]:
        """Start it, and end it after a ``with`` block."""
        server = cls.started(folder, more=more)
        try:
            yield server
        finally:
            server.stop()

    @property
    def counters(self) -> str:
        """The address of its counters, if it was started with ``--metrics-listen``."""
        told: list[str] = re.findall(r"Metrics are served at (\S+)", Path(f"{self.folder}.log").read_text())
        return f"{told[-1]}/metrics"

    @property
    def api_key(self) -> str:
        """The admin's, which a server prints at its first start."""
        return self.output.partition("API key for admin: ")[2].split()[0]

    def admin(self, api_key: str | None = None) -> Client:
        """The admin, by the API key of a server that has just made its account unless it is given."""
        return Client(self.url).logged_in(f"/authn/{ACCOUNT}/admin/authenticate", (api_key or self.api_key).encode())

    @property
    def loop_record(self) -> Path:
        """Where a watched server writes how late its event loop is."""
        return Path(f"{self.folder}.loop")

    @property
    def database(self) -> str:
        """The DSN of its database."""
        return cluster.socket_dsn(DataDirectory(self.folder).cluster)

    def switch(self) -> None:
        """Have one that is switched record nothing, or again; it has done so when it has answered."""
        self.process.send_signal(signal.SIGUSR2)
        Client(self.url).ask("GET", "/health")

    def stop(self) -> None:
        """End it as an operator does."""
        self.process.terminate()
        self.process.wait(60)


def say(text: str) -> None:
    """Report how far the bench is."""
    print(text, file=sys.stderr, flush=True)
