"""Tests of ``svc.importing.new_keys``: the files of new API keys."""

from __future__ import annotations

import stat
from pathlib import Path

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
        """A name of any length and characters has a file of its own, in the folder (IMP-15)."""
        names = [RecordId("host", text) for text in ("../../etc/x", "x" * 1000, "x" * 999 + "y", "é\n", ".", "..")]
        names += [RecordId("user", "host/x"), RecordId("user", "..")]
        self.files.take(dict.fromkeys(names, "k"))
        self.assertEqual(len([path for path in self.folder.iterdir() if path.is_file()]), len(names))
        self.assertTrue(all(self.files.has(name) for name in names))
        self.assertFalse(self.files.has(HOST))
