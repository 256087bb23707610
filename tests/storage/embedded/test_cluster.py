"""Tests of what svc lays down for its own PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from psycopg2.extensions import parse_dsn
from twisted.trial.unittest import SynchronousTestCase

from svc.storage.embedded import cluster

#: Absolute paths of all characters that a path can have.
PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])).map(lambda text: Path("/", f"x{text}"))


class DsnTests(SynchronousTestCase):
    """The libpq DSN."""

    @given(PATHS)
    def test_round_trip(self, path: Path) -> None:
        """What libpq reads back is the path of the socket's directory, whatever characters it has."""
        read = parse_dsn(cluster.socket_dsn(path))
        self.assertEqual(read["host"], str(path))
        self.assertEqual((read["dbname"], read["user"], read["port"]), ("svc", "svc", "5432"))

    def test_hostaddr(self) -> None:
        """The DSN leaves no room for an address from the environment, which libpq would prefer to the socket."""
        self.assertIn(" hostaddr='' ", cluster.socket_dsn(Path("/data")))


class AddressTests(SynchronousTestCase):
    """Which paths of the socket's directory libpq can be given."""

    def test_plain(self) -> None:
        """Blanks and quotation marks do no harm, nor do letters of any language."""
        for name in ("data", "a b", "a'b", "é", "日本"):
            self.assertTrue(cluster.is_addressable(Path("/", name)))

    def test_longest(self) -> None:
        """The socket's whole path may have 103 bytes, which is what macOS allows."""
        longest = Path("/" + "x" * (103 - len("//.s.PGSQL.5432")))
        self.assertTrue(cluster.is_addressable(longest))
        self.assertEqual(len(str(longest / cluster.SOCKET)), 103)
        self.assertFalse(cluster.is_addressable(Path(f"{longest}x")))

    def test_bytes(self) -> None:
        """It is bytes that count."""
        self.assertFalse(cluster.is_addressable(Path("/" + "é" * 60)))

    def test_unspeakable(self) -> None:
        """A comma separates hosts, control characters can't stand in a log, and libpq is spoken to in UTF-8."""
        for name in ("a,b", "a\nb", "a\udce4b"):
            self.assertFalse(cluster.is_addressable(Path("/", name)))


class SettingsTests(SynchronousTestCase):
    """Settings of the server."""

    def test_sync_method(self) -> None:
        """The files are synchronised together before a recovery where the system tells when that has failed."""
        for platform, release, method in (
            ("linux", "6.1.0-18-amd64", "syncfs"),
            ("linux", "5.8", "syncfs"),
            ("linux", "5.10.0", "syncfs"),
            ("linux", "5.7.19-generic", "fsync"),
            ("linux", "4.18.0-553.el8", "fsync"),
            ("linux", "unknown", "fsync"),
            ("darwin", "23.4.0", "fsync"),
        ):
            self.assertEqual(cluster.sync_method(platform, release), method, release)


class IdentityTests(SynchronousTestCase):
    """Who may connect."""

    def test_map(self) -> None:
        """Each user is mapped to the two roles, once, and to nothing else."""
        self.assertEqual(
            cluster.user_map(["root", "app", "root"]),
            'svc "app" svc\nsvc "app" postgres\nsvc "root" svc\nsvc "root" postgres\n',
        )

    def test_quoted(self) -> None:
        """A name with blanks or quotation marks stays one name."""
        self.assertIn('svc "DOMAIN\\a ""b""" svc\n', cluster.user_map(['DOMAIN\\a "b"']))

    def test_access(self) -> None:
        """Everyone proves an identity to the operating system, by way of the map."""
        for line in cluster.ACCESS.splitlines():
            self.assertTrue(line.startswith("local ") and line.endswith(" peer map=svc"), line)
        self.assertNotIn("trust", " ".join([cluster.ACCESS, *cluster.INITDB]))
