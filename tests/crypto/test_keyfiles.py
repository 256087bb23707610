"""Files that hold a key: made once, for the owner alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.crypto.keyfiles import (
    add_data_key,
    admin_key_file,
    data_key_file,
    make_data_key,
    read_data_keys,
    read_given_data_keys,
    write_admin_key,
)
from svc.crypto.vault import data_key_id, new_data_key, parse_data_keys
from svc.model.errors import StartRefused


class DataKeyTests(SynchronousTestCase):
    """The file of the data key."""

    def setUp(self) -> None:
        """Prepare a data directory."""
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = data_key_file(self.directory)

    def test_name(self) -> None:
        """It is the file ``data-key`` of the data directory."""
        self.assertEqual(self.path, self.directory / "data-key")

    def test_make(self) -> None:
        """A key that is made is read again, its file has mode 0600 whatever the umask, and nothing lies beside it
        (DATA-1).
        """
        self.addCleanup(os.umask, os.umask(0))
        key = make_data_key(self.path)
        self.assertEqual((len(key), read_data_keys(self.path)), (32, (key,)))
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)
        self.assertEqual(os.listdir(self.directory), ["data-key"])

    def test_never_replaced(self) -> None:
        """A file that is there is never replaced by a new key (DATA-2)."""
        key = make_data_key(self.path)
        self.assertRaises(FileExistsError, make_data_key, self.path)
        self.assertEqual(read_data_keys(self.path), (key,))
        self.assertEqual(os.listdir(self.directory), ["data-key"])

    def test_left_behind(self) -> None:
        """What a crash in the middle of making a key left behind is in nobody's way."""
        (self.directory / "data-key.new").write_text("half")
        self.assertEqual((make_data_key(self.path),), read_data_keys(self.path))

    def test_absent(self) -> None:
        """Without a file there is no key."""
        self.assertIsNone(read_data_keys(self.path))

    def test_readable_by_others(self) -> None:
        """A file that others can read or write is refused, and the refusal tells how to mend that (DATA-2)."""
        make_data_key(self.path)
        for mode in (0o640, 0o604, 0o620, 0o601):
            self.path.chmod(mode)
            self.assertIn("chmod 600", str(self.assertRaises(StartRefused, read_data_keys, self.path)))

    def test_another_owner(self) -> None:
        """A file that belongs to another user is refused (DATA-2)."""
        if os.geteuid() != 0:
            return
        make_data_key(self.path)
        os.chown(self.path, 12345, 12345)
        self.assertRaises(StartRefused, read_data_keys, self.path)

    def test_no_regular_file(self) -> None:
        """A link isn't followed, and a pipe isn't waited for (DATA-2)."""
        make_data_key(self.directory / "elsewhere")
        self.path.symlink_to(self.directory / "elsewhere")
        self.assertRaises(OSError, read_data_keys, self.path)
        self.path.unlink()
        os.mkfifo(self.path, 0o600)
        self.assertRaises(StartRefused, read_data_keys, self.path)

    def test_no_key(self) -> None:
        """A file that holds something else is refused without being repeated; a final newline doesn't matter."""
        key = make_data_key(self.path)
        text = self.path.read_text()
        self.path.write_text(text.strip())
        self.assertEqual(read_data_keys(self.path), (key,))
        for wrong in ("", "c2VjcmV0\n", text + text, text.replace("=", "")):
            self.path.write_text(wrong)
            refusal = self.assertRaises(StartRefused, read_data_keys, self.path)
            self.assertNotIn("c2VjcmV0", str(refusal))


class AddedDataKeyTests(SynchronousTestCase):
    """A new key in the server's own file."""

    def setUp(self) -> None:
        """Make a file with one key, which is in use."""
        directory = Path(self.mktemp())
        directory.mkdir()
        self.path = data_key_file(directory)
        self.old = make_data_key(self.path)
        self.used = frozenset({data_key_id(self.old)})

    def test_add(self) -> None:
        """A new key stands before the old one, for the owner alone; added again before it is in use, it is the same
        (DATA-30).
        """
        new = add_data_key(self.path, self.used)
        self.assertEqual(read_data_keys(self.path), (new, self.old))
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)
        self.assertEqual(add_data_key(self.path, self.used), new)
        self.assertEqual(read_data_keys(self.path), (new, self.old))

    def test_interrupted(self) -> None:
        """What a crash left behind while a key was added changes nothing, and is in nobody's way (DATA-30)."""
        self.path.with_name("data-key.new").write_text("half")
        self.assertEqual(read_data_keys(self.path), (self.old,))
        new = add_data_key(self.path, self.used)
        self.assertEqual(read_data_keys(self.path), (new, self.old))

    def test_no_room(self) -> None:
        """Without a file, and where there are too many keys, none is added (DATA-30)."""
        self.assertRaises(StartRefused, add_data_key, self.path.with_name("other"), self.used)
        for _ in range(7):
            self.used |= {data_key_id(add_data_key(self.path, self.used))}
        before = self.path.read_text()
        self.assertIn("remove those", str(self.assertRaises(StartRefused, add_data_key, self.path, self.used)))
        self.assertEqual(self.path.read_text(), before)


class GivenDataKeyTests(SynchronousTestCase):
    """Files that operators give."""

    def setUp(self) -> None:
        """Make one."""
        directory = Path(self.mktemp())
        directory.mkdir()
        self.path = directory / "given"
        self.key = make_data_key(self.path)

    def test_modes(self) -> None:
        """A group may read it, as systemd has it; nobody else may, and none but the owner may write (DATA-29)."""
        for mode in (0o400, 0o440, 0o600, 0o640):
            self.path.chmod(mode)
            self.assertEqual(read_given_data_keys(self.path), (self.key,))
        for mode in (0o604, 0o660, 0o620, 0o601):
            self.path.chmod(mode)
            self.assertIn("chmod", str(self.assertRaises(StartRefused, read_given_data_keys, self.path)))

    def test_links(self) -> None:
        """A link to it is followed, as Kubernetes has it; a pipe isn't waited for, and what is missing is named
        (DATA-29).
        """
        link = self.path.with_name("link")
        link.symlink_to(self.path.name)
        self.assertEqual(read_given_data_keys(link), (self.key,))
        pipe = self.path.with_name("pipe")
        os.mkfifo(pipe, 0o600)
        self.assertRaises(StartRefused, read_given_data_keys, pipe)
        missing = self.path.with_name("missing")
        self.assertIn(str(missing), str(self.assertRaises(StartRefused, read_given_data_keys, missing)))

    def test_content(self) -> None:
        """Several keys stand in it, the newest first; a byte order mark counts for nothing,
        anything else is refused, and not repeated (DATA-29).
        """
        newer = new_data_key()
        self.path.write_text(f"{newer}\n{self.path.read_text()}")
        self.assertEqual(read_given_data_keys(self.path), (parse_data_keys(newer)[0], self.key))
        self.path.write_text(f"\ufeff{newer}\r\n")
        self.assertEqual(read_given_data_keys(self.path), parse_data_keys(newer))
        for wrong in ("", "c2VjcmV0\n", f"{newer} {newer}", "\n".join(new_data_key() for _ in range(9)), "A" * 100_000):
            self.path.write_text(wrong)
            refusal = str(self.assertRaises(StartRefused, read_given_data_keys, self.path))
            self.assertNotIn(newer, refusal)
            self.assertNotIn("c2VjcmV0", refusal)


class AdminKeyTests(SynchronousTestCase):
    """The file in which a daemon leaves an admin's API key."""

    def test_write(self) -> None:
        """It bears the account's name, has mode 0600, and its directory is made, closed to others, where it isn't there
        (NAME-29).
        """
        directory = Path(self.mktemp()) / "data"
        path = admin_key_file(directory, "acme")
        self.addCleanup(os.umask, os.umask(0o022))
        write_admin_key(path, "1txwjer3x8rq1x")
        self.assertEqual((path.name, path.read_text()), ("admin-key-acme", "1txwjer3x8rq1x\n"))
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(directory.stat().st_mode), 0o700)

    def test_replace(self) -> None:
        """A key of an earlier time is replaced, and its file's mode is put right."""
        directory = Path(self.mktemp())
        directory.mkdir()
        path = admin_key_file(directory, "acme")
        path.write_text("old")
        write_admin_key(path, "new")
        self.assertEqual((path.read_text(), stat.S_IMODE(path.stat().st_mode)), ("new\n", 0o600))
        self.assertEqual(os.listdir(directory), ["admin-key-acme"])
