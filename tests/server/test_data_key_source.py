"""Where data keys come from; commands are real processes."""

from __future__ import annotations

import base64
import os
import stat
import sys
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from svc.crypto.keyfiles import make_data_key
from svc.crypto.vault import new_data_key, parse_data_key, parse_data_keys
from svc.model.errors import ConfigurationInvalid, StartRefused
from svc.server import data_key_source
from svc.server.bootstrap import check_data_key
from svc.server.data_key_source import DataKeySource, is_key_given
from svc.settings.config import Settings
from svc.settings.reading import read_settings


class DataKeySourceTests(TestCase):
    """The sources."""

    timeout = 60

    def setUp(self) -> None:
        """Make a directory, and a key."""
        self.directory = Path(self.mktemp()).resolve()
        self.directory.mkdir()
        self.text = new_data_key()
        self.key = parse_data_key(self.text)

    def settings(self, **environ: str) -> Settings:
        """Settings, with a data directory of the test's."""
        return read_settings({"data_dir": str(self.directory)}, environ)

    def read(self, settings: Settings) -> Deferred[Any]:
        """Read the keys."""
        return Deferred.fromCoroutine(DataKeySource.from_settings(reactor, settings).read_keys())

    def command(self, script: str) -> Settings:
        """Settings with a command, which is a script of Python's."""
        path = self.directory / "print-key"
        path.write_text(f"#!{sys.executable}\n{script}\n")
        path.chmod(0o700)
        return self.settings(SERVICE_DATA_KEY_COMMAND=f"'{path}' argument")

    async def refused(self, settings: Settings) -> str:
        """Return why no keys can be read; it repeats none."""
        refusal = str(await self.assertFailure(self.read(settings), StartRefused))
        self.assertNotIn(self.text, refusal)
        return refusal

    async def test_environment(self) -> None:
        """The environment gives one key, or several with blanks between them (DATA-29)."""
        self.assertEqual(await self.read(self.settings(SERVICE_DATA_KEY=self.text)), (self.key,))
        older = new_data_key()
        keys = await self.read(self.settings(SERVICE_DATA_KEY=f"{self.text} {older}"))
        self.assertEqual(keys, (self.key, parse_data_key(older)))

    async def test_file(self) -> None:
        """A file gives them, and can be looked at for a change (DATA-29)."""
        path = self.directory / "given"
        make_data_key(path)
        settings = self.settings(SERVICE_DATA_KEY_FILE=str(path))
        source = DataKeySource.from_settings(reactor, settings)
        self.assertEqual(await source.read_keys(), parse_data_keys(path.read_text()))
        before = source.file_state()
        self.assertEqual(source.file_state(), before)
        path.write_text(f"{self.text}\n{path.read_text()}")
        self.assertNotEqual(source.file_state(), before)
        path.unlink()
        self.assertIsNone(source.file_state())
        self.assertIn(str(path), await self.refused(settings))

    async def test_credential(self) -> None:
        """A credential of a unit of systemd is used where no other place gives the key (DATA-29)."""
        make_data_key(self.directory / "data-key")
        empty = self.directory / "empty"
        empty.mkdir()
        credentials = self.settings(CREDENTIALS_DIRECTORY=str(self.directory))
        self.assertTrue(is_key_given(credentials))
        self.assertEqual(await self.read(credentials), parse_data_keys((self.directory / "data-key").read_text()))
        both = self.settings(CREDENTIALS_DIRECTORY=str(self.directory), SERVICE_DATA_KEY=self.text)
        self.assertEqual(await self.read(both), (self.key,))
        self.assertFalse(is_key_given(self.settings(CREDENTIALS_DIRECTORY=str(empty))))

    async def test_own_file(self) -> None:
        """Without any of these it is the file in the data directory, which may be missing (DATA-1)."""
        self.assertIsNone(await self.read(self.settings()))
        key = make_data_key(self.directory / "data-key")
        self.assertEqual(await self.read(self.settings()), (key,))
        self.assertFalse(is_key_given(self.settings()))

    async def test_command(self) -> None:
        """A command prints them; it is run without a shell, gets no input, and is not told the key (DATA-29)."""
        script = f"import sys\nassert sys.argv[1:] == ['argument'] and not sys.stdin.read()\nprint({self.text!r})"
        self.assertEqual(await self.read(self.command(script)), (self.key,))

    async def test_failing_commands(self) -> None:
        """A command that fails, is killed, or prints something else is refused; of what it says only the beginning of its
        complaint is repeated (DATA-29).
        """
        for script, why in (
            ("raise SystemExit(3)", "failed with exit code 3"),
            (f"import sys\nprint({self.text!r})\nsys.exit('access\\x1b denied\\nmore')", "exit code 1: access\\x1b denied"),
            ("import os\nos.kill(os.getpid(), 9)", "failed with signal 9"),
            ("", "printed something else"),
            ("print('c2VjcmV0')", "printed something else"),
            (f"print({self.text!r}, {self.text!r})", "printed something else"),
            ("import os\nos.write(1, bytes(range(256)))", "printed something else"),
            ("import os\nwhile True: os.write(1, b'x' * 1000)", "printed more than 4096 bytes"),
        ):
            refusal = await self.refused(self.command(script))
            self.assertIn(why, refusal)
            self.assertNotIn("c2VjcmV0", refusal)
            self.assertNotIn("more\n", refusal)

    async def test_hanging_commands(self) -> None:
        """A command that doesn't end is killed, and one whose descendant holds on to its output isn't waited for
        (DATA-29).
        """
        self.patch(data_key_source, "COMMAND_DEADLINE", 1.0)
        for script in (
            "import time\ntime.sleep(600)",
            "import os, time\nif os.fork():\n    raise SystemExit\ntime.sleep(5)",
        ):
            self.assertIn("did not end within 1 seconds", await self.refused(self.command(script)))

    async def test_no_command(self) -> None:
        """A command that can't be run is refused before anything starts, also when it disappears after that (DATA-29)."""
        for command in ("''", "/nonexistent/print-key", "'unbalanced", str(self.directory)):
            refusal = self.assertRaises(
                ConfigurationInvalid, check_data_key, self.settings(SERVICE_DATA_KEY_COMMAND=command)
            )
            self.assertEqual(refusal.key, "SERVICE_DATA_KEY_COMMAND")
        settings = self.command("print()")
        check_data_key(settings)
        (self.directory / "print-key").write_text("no program")
        await self.refused(settings)

    def test_checked_before_the_start(self) -> None:
        """With a database of one's own, the key must come from one of these places (CFG-18)."""
        database = {"SERVICE_DATABASE_URL": "dbname=x"}
        self.assertRaises(ConfigurationInvalid, check_data_key, self.settings(**database))
        check_data_key(self.settings(**database, SERVICE_DATA_KEY=self.text))
        check_data_key(self.settings(**database, SERVICE_DATA_KEY_FILE="/k"))
        wrong = base64.b64encode(bytes(31)).decode()
        self.assertRaises(ConfigurationInvalid, check_data_key, self.settings(SERVICE_DATA_KEY=f"{self.text} {wrong}"))

    def test_own_file_is_closed(self) -> None:
        """What the server makes is for its owner alone (DATA-2)."""
        make_data_key(self.directory / "data-key")
        self.assertEqual(stat.S_IMODE(os.stat(self.directory / "data-key").st_mode), 0o600)
