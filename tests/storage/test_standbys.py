"""Tests of ``svc.storage.standbys``: the files of a new standby."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg2
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import ConfigurationInvalid, StartRefused
from svc.storage.standbys import Primary, change_owner


class PrimaryTests(SynchronousTestCase):
    """The primary that a standby is copied from."""

    def test_refusals(self) -> None:
        """A primary that can't be reached isn't said to refuse; one that answers is (OPS-8)."""
        place = 'connection to server at "127.0.0.1", port 1 failed: '
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        primary = Primary(NoThreads(), f"host=127.0.0.1 port={port} user=x dbname=y")
        refusal = self.failureResultOf(Deferred.fromCoroutine(primary.is_synchronous("two")), StartRefused).value
        self.assertRegex(str(refusal), "the primary can't be reached: .*Connection refused")
        for told in ("FATAL:  password authentication failed", "SCHWERWIEGEND:  kein Eintrag in pg_hba.conf"):
            error = psycopg2.OperationalError(f"{place}{told}\n")

            def refused(error: Exception = error, **_: object) -> None:
                raise error

            self.patch(psycopg2, "connect", refused)
            refusal = self.failureResultOf(Deferred.fromCoroutine(primary.is_synchronous("two")), StartRefused).value
            self.assertEqual(refusal.message, f"the primary refuses: {place}{told}")

    def test_secrets(self) -> None:
        """No argument of ``pg_basebackup`` has a secret (CLI-4)."""
        refusal = self.assertRaises(ConfigurationInvalid, Primary, NoThreads(), "host=h sslpassword=a")
        self.assertIn("has sslpassword, which only the arguments of pg_basebackup could have", refusal.message)


class NoThreads:
    """A reactor whose thread is this one."""

    def getThreadPool(self) -> NoThreads:
        """See ``IReactorThreads``: all that it is needed for."""
        return self

    def callInThreadWithCallback(self, done: Callable[[bool, object], None], work: Callable[[], object]) -> None:
        """Run it now."""
        try:
            outcome = True, work()
        except Exception:
            outcome = False, Failure()
        done(*outcome)

    def callFromThread(self, work: Callable[..., object], *given: object) -> None:
        """Run it now."""
        work(*given)


class HandOverTests(SynchronousTestCase):
    """What root has copied becomes PostgreSQL's user's."""

    def setUp(self) -> None:
        """Make folders, files and a link that leads outside."""
        self.folder = Path(self.mktemp())
        (self.folder / "data" / "base" / "1").mkdir(parents=True)
        for name in ("outside", "data/PG_VERSION", "data/base/1/2"):
            (self.folder / name).touch()
        (self.folder / "data" / "link").symlink_to(self.folder.resolve())

    def test_order(self) -> None:
        """All is given, by the folder that holds it and not by a path, links themselves, and a folder after what it holds:
        nothing can be put in the way.
        """
        given: list[str] = []

        def chown(name: str, owner: int, group: int, *, dir_fd: int, follow_symlinks: bool) -> None:
            self.assertEqual((owner, group, follow_symlinks), (status.st_uid, status.st_gid, False))
            given.append(known[os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_ino])

        data = self.folder / "data"
        status = data.stat()
        known = {path.lstat().st_ino: str(path.relative_to(data)) for path in data.rglob("*")}
        self.patch(os, "chown", chown)
        change_owner(data, status.st_uid)
        self.assertEqual(sorted(given), ["PG_VERSION", "base", "base/1", "base/1/2", "link"])
        self.assertEqual([name for name in given if name.startswith("base")], ["base/1/2", "base/1", "base"])

    def test_replaced(self) -> None:
        """A folder that another user owns by now is not given away."""
        found: list[Any] = []
        self.patch(os, "chown", lambda *given, **_: found.append(given))
        self.assertRaises(StartRefused, change_owner, self.folder / "data", os.geteuid() + 1)
        self.assertEqual(found, [])
