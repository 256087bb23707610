"""The life of the embedded PostgreSQL: start, lock, orphans, restart, joining, stop; with real processes."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2.extensions import POLL_OK
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SkipTest

from svc.storage.embedded import binaries, users
from svc.storage.embedded.directory import DataDirectory
from svc.storage.embedded.embedded import EmbeddedPostgres
from svc.storage.embedded.postmaster import postmaster_of
from svc.storage.embedded.users import UNPRIVILEGED
from tests.integration.embedding import EmbeddedTestCase, begin_as_owner, psutil, reactor, running, without_root
from tests.programs import find_postgresql


class StartTests(EmbeddedTestCase):
    """What the first start makes, and how the server runs."""

    async def test_first_start(self) -> None:
        """The first start makes a cluster with PostgreSQL's builtin C.UTF-8 locale, in UTF-8, with checksums (CFG-21)."""
        directory = self.root / "data"
        dsn = await self.postgres(directory).wait_until_ready()
        sql = "SELECT datlocprovider, datlocale, datcollate, pg_encoding_to_char(encoding) FROM pg_database"
        self.assertEqual(set(self.ask(dsn, sql)), {("b", "C.UTF-8", "C", "UTF8")})
        self.assertEqual(self.ask(dsn, "SHOW data_checksums"), [("on",)])
        self.assertEqual([path.name for path in directory.glob("unfinished*")], [])
        self.assertIn(f"Making a new PostgreSQL cluster in {directory}", self.logged())

    async def test_second_start(self) -> None:
        """A second start finds what the first one stored."""
        first, dsn = await self.serving()
        self.ask(dsn, "CREATE TABLE kept AS SELECT 'stored' AS value")
        await first.stopService()
        second = self.postgres(first.directory)
        self.assertEqual(self.ask(await second.wait_until_ready(), "SELECT value FROM kept"), [("stored",)])

    async def test_started_again(self) -> None:
        """The same service may be started again after it was stopped."""
        postgres, dsn = await self.serving()
        await postgres.stopService()
        self.assertEqual(await self.refusal(postgres.wait_until_ready()), "PostgreSQL was stopped")
        postgres.startService()
        self.assertEqual(await postgres.wait_until_ready(), dsn)

    def test_child(self) -> None:
        """PostgreSQL is a child of the process, in a session of its own, where Ctrl-C at the terminal doesn't reach it
        (DATA-21).
        """
        pid = self.pid(running().directory)
        self.assertEqual(psutil().Process(pid).ppid(), running().pid)
        self.assertEqual(os.getsid(pid), pid)

    def test_environment(self) -> None:
        """PostgreSQL's environment is the one made for it; nothing of the process's own, which holds the data key (CFG-19,
        CFG-21).
        """
        self.assertIn("SERVICE_DATA_KEY", psutil().Process(running().pid).environ())
        environment = psutil().Process(self.pid(running().directory)).environ()
        self.assertEqual(set(environment), {"PATH", "LC_ALL", "TZ", "PGDATA"})

    async def test_descriptors(self) -> None:
        """PostgreSQL holds no file of the process's open, even one that children would inherit."""
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.set_inheritable(writing, True)
        await self.serving()
        os.close(writing)
        os.set_blocking(reading, False)
        self.assertEqual(os.read(reading, 1), b"")

    def test_no_network(self) -> None:
        """PostgreSQL listens on no network address (DATA-21)."""
        self.assertEqual(self.ask(running().dsn, "SHOW listen_addresses"), [("",)])
        self.assertEqual(psutil().Process(self.pid(running().directory)).net_connections("inet"), [])

    def test_modes(self) -> None:
        """The directory of the socket, which is the cluster's, has mode 0700; socket, log and locks are closed to others
        (DATA-21).
        """
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode)
            for path in (*running().directory.iterdir(), *running().directory.glob("cluster/*"))
            # Copies of PostgreSQL's programs, if they had to be made, are no secret, and another user runs them.
            if path.name != "programs"
        }
        self.assertEqual(modes["cluster"], 0o700)
        self.assertEqual({mode & 0o077 for mode in modes.values()}, {0})
        self.assertEqual(modes[".s.PGSQL.5432"], 0o700)
        self.assertEqual({modes["postgres.log"], modes["lock"], modes["postmaster.lock"]}, {0o600})

    async def test_acknowledged_writes(self) -> None:
        """What PostgreSQL acknowledges is on the disk (DATA-17)."""
        directory = await self.made()
        dsn = await self.postgres(directory, durable=True).wait_until_ready()
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            self.assertEqual(self.ask(dsn, f"SHOW {name}"), [("on",)])
        self.assertEqual(self.ask(dsn, "SHOW wal_level"), [("replica",)])

    async def test_files_do_not_win(self) -> None:
        """Settings and access written into the cluster's files by hand don't open it (CFG-21)."""
        directory = await self.made()
        (directory / "cluster" / "postgresql.auto.conf").write_text("fsync = off\nlisten_addresses = '*'\n")
        (directory / "cluster" / "pg_hba.conf").write_text("local all all trust\nhost all all all trust\n")
        postgres, dsn = await self.serving(directory)
        self.assertEqual(self.ask(dsn, "SHOW listen_addresses"), [("",)])
        self.assertNotIn("trust", (postgres.directory / "cluster" / "pg_hba.conf").read_text())


class AccessTests(EmbeddedTestCase):
    """The roles that may connect."""

    def test_roles(self) -> None:
        """The service's role owns its database and is no superuser; it can't connect to another database (CFG-21)."""
        dsn = running().dsn
        sql = "SELECT current_user, rolsuper, rolcreaterole, pg_get_userbyid(datdba) FROM pg_roles, pg_database"
        sql += " WHERE rolname = current_user AND datname = current_database()"
        self.assertEqual(self.ask(dsn, sql), [("svc", False, False, "svc")])
        with self.assertRaisesRegex(psycopg2.OperationalError, "no pg_hba.conf entry"):
            self.ask(dsn.replace("dbname=svc", "dbname=postgres"), "SELECT 1")

    def test_operator(self) -> None:
        """The operator at the machine may connect as the superuser."""
        self.assertEqual(self.ask(running().dsn.replace("user=svc", "user=postgres"), "SHOW is_superuser"), [("on",)])

    def test_stranger(self) -> None:
        """Another user is refused by name, even one who got as far as the socket, and even PostgreSQL's own (DATA-21)."""
        cluster = running().directory / "cluster"
        for path, open_mode, mode in ((cluster, 0o755, 0o700), (cluster / ".s.PGSQL.5432", 0o777, 0o700)):
            path.chmod(open_mode)
            self.addCleanup(path.chmod, mode)
        for name in UNPRIVILEGED:
            self.assertEqual(self._answer_to(name, running().dsn), 'FATAL:  Peer authentication failed for user "svc"')

    def _answer_to(self, name: str, dsn: str) -> str:
        os.seteuid(pwd.getpwnam(name).pw_uid)
        try:
            self.ask(dsn, "SELECT 1")
        except psycopg2.OperationalError as error:
            return str(error).strip().rpartition("failed: ")[2]
        finally:
            os.seteuid(0)
        return "welcome"

    test_stranger.skip = without_root()  # type: ignore[attr-defined]  # trial reads it


class LockTests(EmbeddedTestCase):
    """One ``svc`` at a time."""

    async def test_in_use(self) -> None:
        """A data directory that another live ``svc`` uses is refused, by its name and the other's process id (DATA-23)."""
        directory = running().directory
        message = await self.refusal(self.postgres(directory).wait_until_ready())
        self.assertEqual(message, f"{directory} is in use by another svc, process {running().pid}")
        self.assertEqual(self.ask(running().dsn, "SELECT 1"), [(1,)])

    async def test_released(self) -> None:
        """A ``svc`` that was told to end leaves the directory free, and nothing running."""
        directory = await self.made()
        other = self.another(directory)
        self.assertEqual((await other.says())[0], "ready")
        await other.end("TERM")
        self.assertEqual(other.status, 0)
        self.assertIsNone(postmaster_of(DataDirectory(directory)))
        await self.serving(directory)
        self.assertNotIn("left behind", self.logged())


class OrphanTests(EmbeddedTestCase):
    """What a killed ``svc`` leaves behind."""

    async def test_orphan(self) -> None:
        """The PostgreSQL of a ``svc`` that was killed is stopped, what it stored is there, and a new one serves
        (DATA-24).
        """
        directory = await self.made()
        other = self.another(directory)
        word, dsn = await other.says()
        self.assertEqual(word, "ready")
        orphan = self.pid(directory)
        await other.end("KILL")
        self.ask(dsn, "CREATE TABLE kept AS SELECT 1 AS value")
        _, dsn = await self.serving(directory)
        self.assertNotEqual(self.pid(directory), orphan)
        self.assertFalse(self.is_alive(orphan))
        self.assertEqual(self.ask(dsn, "SELECT value FROM kept"), [(1,)])
        self.assertIn(f"left behind, process {orphan}", self.logged())

    async def test_foreign_process(self) -> None:
        """A process that happens to have the process id of a dead postmaster is left alone, and doesn't hinder the start."""
        directory = await self.made()
        cluster = directory / "cluster"
        # PostgreSQL takes its lock file for a live one's if the process is of its own user.
        foreign = begin_as_owner(cluster, "sleep", "1000")
        self.addCleanup(foreign.wait)
        self.addCleanup(foreign.kill)
        for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (cluster / name).write_text(f"{foreign.pid}\n{cluster}\n1\n5432\n.\n\n1 1\nready\n")
            shutil.chown(cluster / name, cluster.owner())
        await self.serving(directory)
        self.assertIsNone(foreign.poll())

    async def test_killed_during_initdb(self) -> None:
        """A ``svc`` that is killed while it makes a cluster leaves none: the next one makes it again."""
        directory = self.root / "data"
        other = self.another(directory)
        await self.until(lambda: list(directory.glob("unfinished-*/global/pg_control")))
        await other.end("KILL")
        self.assertFalse((directory / "cluster").exists())
        dsn = await self.postgres(directory).wait_until_ready()
        self.assertEqual(self.ask(dsn, "SELECT 1"), [(1,)])
        self.assertEqual(list(directory.glob("unfinished-*")), [])

    async def test_started_by_hand(self) -> None:
        """A PostgreSQL that an operator started on the cluster by hand is neither joined nor worked against."""
        directory = await self.made()
        cluster = directory / "cluster"
        postgres = binaries.find_installed().copy_into(self.root).postgres  # where that user can reach it
        by_hand = begin_as_owner(cluster, postgres, "-D", cluster, "-k", ".", "-c", "listen_addresses=")
        self.addCleanup(by_hand.wait)
        self.addCleanup(by_hand.send_signal, signal.SIGQUIT)
        await self.until(lambda: "ready" in _text(cluster / "postmaster.pid"))
        self.assertIn("is still in use", await self.refusal(self.postgres(directory).wait_until_ready()))
        self.assertIsNone(by_hand.poll())


class RestartTests(EmbeddedTestCase):
    """A postmaster that dies."""

    async def test_restart(self) -> None:
        """A postmaster that dies is started again, with longer and longer pauses; nothing acknowledged is lost (DATA-24)."""
        postgres, dsn = await self.serving()
        self.ask(dsn, "CREATE TABLE kept (value int)")
        for number in range(5):
            self.ask(dsn, f"INSERT INTO kept VALUES ({number})")
            os.kill(self.pid(postgres.directory), signal.SIGKILL)
            await self.until(lambda n=number: self.logged().count("It is started again in") > n)  # type: ignore[misc]
            self.assertEqual(await postgres.wait_until_ready(), dsn)
        self.assertEqual(self.ask(dsn, "SELECT count(*) FROM kept"), [(5,)])
        pauses = re.findall(r"signal 9.*?started again in ([0-9.]+) s", self.logged(), re.DOTALL)
        self.assertEqual(pauses, ["0.25", "0.5", "1.0", "2.0", "2.0"])

    async def test_straggler(self) -> None:
        """A process of PostgreSQL's that is busy when its postmaster is killed hinders no start: it goes at once, too."""
        postgres, dsn = await self.serving()
        connection = psycopg2.connect(dsn, async_=True)
        self.addCleanup(connection.close)
        await self.until(lambda: connection.poll() == POLL_OK)
        connection.cursor().execute("SELECT count(*) FROM generate_series(1, 1000000000)")
        connection.poll()
        busy = connection.get_backend_pid()
        await self.until(lambda: self.ask(dsn, f"SELECT state FROM pg_stat_activity WHERE pid = {busy}") == [("active",)])
        os.kill(self.pid(postgres.directory), signal.SIGKILL)
        await self.until(lambda: "It is started again in" in self.logged())
        self.assertEqual(await postgres.wait_until_ready(), dsn)
        self.assertFalse(self.is_alive(busy))
        self.assertEqual(self.logged().count("It is started again in"), 1)

    async def test_trouble_passes(self) -> None:
        """A server that has been up goes on trying while it can't start, and is up again when the trouble is over."""
        postgres, dsn = await self.serving()
        log = postgres.directory / "postgres.log"
        log.unlink()
        log.mkdir()
        os.kill(self.pid(postgres.directory), signal.SIGKILL)
        await self.until(lambda: "Is a directory" in self.logged())
        log.rmdir()
        self.assertEqual(await postgres.wait_until_ready(), dsn)


class JoiningTests(EmbeddedTestCase):
    """Administration at the command line."""

    async def test_joins(self) -> None:
        """A command uses the PostgreSQL of a running server, and leaves it running (DATA-23)."""
        pid = self.pid(running().directory)
        command = self.postgres(running().directory, joining=True)
        self.assertEqual(await command.wait_until_ready(), running().dsn)
        await command.stopService()
        self.assertEqual(self.pid(running().directory), pid)
        self.assertEqual(self.ask(running().dsn, "SELECT 1"), [(1,)])

    async def test_waits_for_server(self) -> None:
        """A command waits for a server that has only just been started."""
        directory = await self.made()
        self.postgres(directory)
        command = self.postgres(directory, joining=True)
        self.assertEqual(self.ask(await command.wait_until_ready(), "SELECT 1"), [(1,)])

    async def test_own_duration(self) -> None:
        """Without a server, a command starts PostgreSQL and stops it when it is done (DATA-23)."""
        directory = await self.made()
        command = self.postgres(directory, joining=True)
        self.assertEqual(self.ask(await command.wait_until_ready(), "SELECT 1"), [(1,)])
        await command.stopService()
        self.assertIsNone(postmaster_of(DataDirectory(directory)))

    async def test_one_after_another(self) -> None:
        """While a command that has started PostgreSQL is at work, another command and a server wait until it is done."""
        directory = await self.made()
        for joining in (True, False):
            first = self.postgres(directory, joining=True)
            await first.wait_until_ready()
            second = self.postgres(directory, joining=joining)
            dsn = Deferred.fromCoroutine(second.wait_until_ready())
            await deferLater(reactor, 0.2)
            self.assertNoResult(dsn)
            await first.stopService()
            self.assertEqual(self.ask(await dsn, "SELECT 1"), [(1,)])
            await second.stopService()

    async def test_undone(self) -> None:
        """A start that is undone leaves what another process made while it waited for the lock, and all if it never had the
        lock; a directory that it made alone goes with it (CFG-14).
        """
        pattern = await self.made(self.root / "pattern")
        for number, has_lock in enumerate((True, False)):
            other = DataDirectory(self.root / f"deep-{number}" / "data")
            alone = EmbeddedPostgres(reactor, other.path, durable=False, should_undo=lambda: True)
            alone.startService()
            await alone.wait_until_ready()
            await alone.stopService()
            self.assertFalse(other.path.parent.exists())

            other.make_directory()
            self.assertIsNone(other.take_lock(serving=False))
            postgres = EmbeddedPostgres(reactor, other.path, durable=False, should_undo=lambda: True)
            postgres.startService()
            self.addCleanup(postgres.stopService)
            await deferLater(reactor, 0.2)
            subprocess.run(["cp", "-a", f"{pattern}/cluster", other.path], check=True)
            (other.path / "data-key").touch()
            if has_lock:
                other.release()
                await postgres.wait_until_ready()
            await postgres.stopService()
            other.release()
            self.assertTrue((other.path / "cluster" / "PG_VERSION").exists())
            self.assertTrue((other.path / "data-key").exists())


class StopTests(EmbeddedTestCase):
    """The end."""

    async def test_fast(self) -> None:
        """A stop ends sessions that are open, shuts down in order, and leaves nothing running."""
        postgres, dsn = await self.serving()
        session = psycopg2.connect(dsn)
        self.addCleanup(session.close)
        processes = [process := psutil().Process(self.pid(postgres.directory)), *process.children(recursive=True)]
        await postgres.stopService()
        self.assertEqual([process for process in processes if process.is_running()], [])
        self.assertFalse((postgres.directory / "cluster" / "postmaster.pid").exists())
        self.assertIn("database system is shut down", (postgres.directory / "postgres.log").read_text())

    async def test_at_any_moment(self) -> None:
        """A stop while it is still starting, at whatever point, ends that; nothing is left running or unfinished."""
        directory = self.root / "data"
        for moment in (0.0, 0.05, 0.3, 1.0):
            postgres = self.postgres(directory)
            await deferLater(reactor, moment)
            await postgres.stopService()
            self.assertEqual(await self.refusal(postgres.wait_until_ready()), "PostgreSQL was stopped")
            self.assertIsNone(postmaster_of(DataDirectory(directory)))
            self.assertEqual(list(directory.glob("unfinished-*")), [])

    async def test_not_started(self) -> None:
        """Stopping what was never started does nothing."""
        postgres = self.postgres(self.root / "data")
        await postgres.stopService()
        await postgres.stopService()


class RefusalTests(EmbeddedTestCase):
    """Data directories that can't be used."""

    async def test_last_words(self) -> None:
        """A PostgreSQL that can't start is refused with what it said last."""
        directory = await self.made()
        os.truncate(directory / "cluster" / "global" / "pg_control", 100)
        message = await self.refusal(self.postgres(directory).wait_until_ready())
        self.assertIn(f"its last words in {directory}/postgres.log:\n", message)
        self.assertIn('could not read file "global/pg_control"', message)

    async def test_version(self) -> None:
        """A cluster of another major version is refused, and not touched; the refusal names the two commands that bring its
        data over (DATA-25).
        """
        directory = await self.made()
        (directory / "cluster" / "PG_VERSION").write_text("16\n")
        message = await self.refusal(self.postgres(directory).wait_until_ready())
        self.assertIn("is of PostgreSQL 16, and this program has PostgreSQL 18: run `svc backup create` of", message)
        self.assertIn("`svc backup restore` of this one", message)

    async def test_older_initdb(self) -> None:
        """A cluster that the machine's older ``initdb`` has made is refused as it is, and keeps every byte (DATA-25)."""
        programs = find_postgresql()
        if programs is None or int(programs.parent.name) > 17:
            raise SkipTest("needs initdb of PostgreSQL 17 or older, as Debian's package postgresql has it")
        directory = self.root / "older"
        directory.mkdir(0o755)
        user = users.postgres_user(None)
        (directory / "cluster").mkdir(0o700)
        os.chown(directory / "cluster", user.uid, user.gid)
        command = [str(programs / "initdb"), "--no-sync", "--username=postgres", "--pgdata", str(directory / "cluster")]
        as_owner: dict[str, Any] = {"user": user.uid, "group": user.gid} if os.geteuid() == 0 else {}
        subprocess.run(command, check=True, capture_output=True, **as_owner)

        def content() -> dict[Path, bytes]:
            return {path: path.read_bytes() for path in (directory / "cluster").rglob("*") if path.is_file()}

        before = content()
        major = before[directory / "cluster" / "PG_VERSION"].decode().strip()
        message = await self.refusal(self.postgres(directory).wait_until_ready())
        self.assertIn(f"is of PostgreSQL {major}, and this program has PostgreSQL 18: run `svc backup create`", message)
        self.assertEqual(content(), before)

    async def test_damaged(self) -> None:
        """A cluster without its version is refused, not made again over what may be left of it (DATA-25)."""
        directory = await self.made()
        (directory / "cluster" / "PG_VERSION").unlink()
        self.assertIn("is damaged", await self.refusal(self.postgres(directory).wait_until_ready()))
        self.assertTrue((directory / "cluster" / "base").exists())

    async def test_link_in_cluster(self) -> None:
        """A link that PostgreSQL's user could have put in place of a file in the cluster isn't followed."""
        directory = await self.made()
        version = directory / "cluster" / "PG_VERSION"
        version.unlink()
        version.symlink_to("/etc/passwd")
        self.assertIn("PostgreSQL cannot run in", await self.refusal(self.postgres(directory).wait_until_ready()))

    async def test_writable_by_others(self) -> None:
        """A data directory in which others can write is refused, and its mode not changed (DATA-25)."""
        directory = self.root / "data"
        directory.mkdir()
        directory.chmod(0o777)
        self.assertIn("chmod go-w", await self.refusal(self.postgres(directory).wait_until_ready()))
        self.assertEqual(stat.S_IMODE(directory.stat().st_mode), 0o777)
        self.assertEqual(list(directory.iterdir()), [])

    async def test_no_directory(self) -> None:
        """A data directory that is a file is refused."""
        (self.root / "data").touch()
        self.assertIn("is not a directory", await self.refusal(self.postgres(self.root / "data").wait_until_ready()))

    async def test_disk(self) -> None:
        """A data directory that can't be made is refused."""
        (self.root / "file").touch()
        message = await self.refusal(self.postgres(self.root / "file" / "data").wait_until_ready())
        self.assertIn(f"PostgreSQL cannot run in {self.root}/file/data: ", message)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
