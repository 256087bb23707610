"""Tests of ``svc.importing.new_keys``: the files of new API keys."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.importing.inventory import RecordId
from svc.importing.new_keys import KeyFiles

HOST, USER = RecordId("host", "ci/runner"), RecordId("user", "alice")


class KeyFilesTests(SynchronousTestCase):
    """The files."""

    def setUp(self) -> None:
        """Make a folder."""
        self.folder = Path(self.mktemp()) / "keys"
        self.files = self.make_files()

    def make_files(self, template: str | None = None) -> KeyFiles:
        """Return the files, as a new run has them."""
        fields = {"url": "https://svc.example", "account": "acme"}
        files = KeyFiles(self.folder, fields) if template is None else KeyFiles(self.folder, fields, template)
        files.prepare()
        return files

    def test_written(self) -> None:
        """Each gets a file of mode 0600 in a folder of mode 0700, with what to do (IMP-15)."""
        self.files.take({HOST: "thekey", USER: "another"})
        paths = sorted(self.folder.iterdir())
        self.assertEqual([path.name for path in paths], ["alice.env", "host%2Fci%2Frunner.env"])
        self.assertEqual({stat.S_IMODE(path.stat().st_mode) for path in paths}, {0o600})
        self.assertEqual(stat.S_IMODE(self.folder.stat().st_mode), 0o700)
        text = paths[1].read_text()
        for line in (
            "SVC_LOGIN=host/ci/runner",
            "SVC_API_KEY=thekey",
            "CONJUR_AUTHN_API_KEY=thekey",
            "SVC_URL=https://svc.example",
        ):
            self.assertIn(line, text)

    def test_template(self) -> None:
        """A template of the user's is filled in; one with another field is refused before anything is made (IMP-15)."""
        self.make_files("$login at $url: $api_key").take({HOST: "thekey"})
        self.assertEqual(
            (self.folder / "host%2Fci%2Frunner.env").read_text(), "host/ci/runner at https://svc.example: thekey"
        )
        fault = self.assertRaises(ValueError, self.make_files, "$password")
        self.assertIn("$password", str(fault))

    def test_expected(self) -> None:
        """Whose keys were expected and have no file, a later run knows (IMP-15)."""
        self.files.expect([HOST, USER])
        self.files.take({USER: "another"})
        later = self.make_files()
        self.assertEqual(later.expected(), {HOST})
        later.finish()
        self.assertEqual(later.expected(), {HOST})
        later.take({HOST: "thekey"})
        later.finish()
        self.assertEqual((later.expected(), (self.folder / ".expected").exists()), (set(), False))

    def test_names(self) -> None:
        """A login of any length has a file of its own, in the folder, and nobody else's (IMP-15, IMP-52)."""
        names = [RecordId("host", text) for text in ("../../etc/x", "x" * 1000, "x" * 999 + "y", "é", ".", "..")]
        names += [RecordId("user", "host/x"), RecordId("user", "..")]
        self.files.take(dict.fromkeys(names, "k"))
        paths = [path for path in self.folder.iterdir() if path.is_file()]
        self.assertEqual(len(paths), len(names))
        self.assertTrue(all(self.files.has(name) for name in names))
        self.assertFalse(self.files.has(HOST))
        for path in paths:
            with self.subTest(path.name):
                login = unquote(path.name.removesuffix(".env"))
                other = RecordId("host", login.removeprefix("host/"))
                self.assertTrue(other in names or RecordId("user", login) in names or not self.files.has(other))

    def test_unsafe(self) -> None:
        """A login that a shell would read otherwise has no file and no line; others' lines are theirs alone (IMP-52)."""
        for text in (
            *("x\nalice", "$(id)", "`id`", "a b", "a\tb", 'a"b', "a'b", "a\\b", "a;b", "a#b", "a&b", "a|b", "a*b", "a{b}"),
            *("a\rb", "a\x00b", "a\u2028b", "a\u00a0b", "a\x85b", "a:~b", "a!b", "a<b", "a>b", "a(b)", "a\u202eb"),
        ):
            for name in (RecordId("host", text), RecordId("user", text)):
                with self.subTest(str(name)):
                    self.assertFalse(self.files.accepts(name))
                    self.files.expect([name])
                    self.files.take({name: "k"})
                    self.assertEqual([path.name for path in self.folder.iterdir()], [".expected"])
                    self.assertEqual(self.make_files().expected(), set())
        for text in ("~b", "=b", ""):
            self.assertFalse(self.files.accepts(RecordId("user", text)), text)
        for text in ("a~1", "a/~1", "ann@auth-userpass", "A_b.c-d", "é/ü", "a%20b", "a+b=c:d,e"):
            self.assertTrue(self.files.accepts(RecordId("host", text)), text)
        self.files.expect([RecordId("host", "a%0Aalice")])
        self.assertEqual(self.make_files().expected(), {RecordId("host", "a%0Aalice")})

    @given(st.text(min_size=1, max_size=20))
    def test_lines(self, text: str) -> None:
        """A file that a shell reads has the login as it is, or there is none (IMP-52)."""
        login = f"host/{text}"
        if self.files.accepts(RecordId("host", text)):
            self.assertEqual(shlex.split(f"SVC_LOGIN={login}", comments=True), [f"SVC_LOGIN={login}"])
            self.assertEqual(f"a\n{login}\nb".splitlines(), ["a", login, "b"])

    def test_open_folder(self) -> None:
        """A folder that others may read or write is refused, and stays as it is (IMP-52)."""
        for mode in (0o750, 0o770, 0o777, 0o701, 0o704):
            with self.subTest(oct(mode)):
                self.folder.chmod(mode)
                fault = self.assertRaises(PermissionError, self.make_files)
                self.assertIn("0700", fault.strerror)
                self.assertEqual(stat.S_IMODE(self.folder.stat().st_mode), mode)
        self.folder.chmod(0o700)
        self.make_files()
