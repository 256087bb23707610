"""PgBouncer in front of a PostgreSQL, as it comes but for what a test sets."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.integration.postgres import unprivileged_account
from tests.programs import explain_missing, find_program

#: How long it may take to start, in seconds.
PATIENCE: Final = 20.0


def missing() -> str | None:
    """Return why there is no PgBouncer to be had, ``None`` if there is."""
    return explain_missing("pgbouncer")


class Bouncer:
    """One PgBouncer, with a socket in a directory of its own.

    :param upstream: where PostgreSQL is, as PgBouncer's ``[databases]`` have it.
    :param settings: its settings beside the place and that it lets everybody in.
    """

    def __init__(self, upstream: str, settings: Mapping[str, str]) -> None:
        program = find_program("pgbouncer")
        assert program is not None, missing()
        self.directory = Path(tempfile.mkdtemp(prefix="svc-bouncer-", dir="/tmp"))
        account = unprivileged_account()
        given = {
            "auth_type": "any",
            "listen_port": "5432",
            "unix_socket_dir": str(self.directory),
            "logfile": str(self.directory / "log"),
            **settings,
        }
        lines = ["[databases]", f"* = {upstream}", "[pgbouncer]", *(f"{name} = {value}" for name, value in given.items())]
        configuration = self.directory / "pgbouncer.ini"
        configuration.write_text("\n".join(lines) + "\n")
        if account is not None:  # It doesn't run as root.
            shutil.chown(self.directory, account.pw_uid, account.pw_gid)
            shutil.chown(configuration, account.pw_uid, account.pw_gid)
        self._process = subprocess.Popen(
            [program, "-q", str(configuration)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.directory,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )
        end = time.monotonic() + PATIENCE
        while not (self.directory / ".s.PGSQL.5432").exists():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise AssertionError("PgBouncer did not start")
            time.sleep(0.02)

    def dsn(self, name: str, user: str = "svc") -> str:
        """Return where a database is behind it."""
        return f"host={self.directory} user={user} dbname={name}"

    def stop(self) -> None:
        """Stop it, and remove what it has left."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
