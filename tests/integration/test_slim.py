"""The client's distribution alone, installed as its users do: what it takes, and what it can do at a server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SkipTest

from tests.integration.test_workload import BINARY, WorkloadCase

ROOT: Final = Path(__file__).resolve().parents[2]

#: What it may take with all that it depends on, in bytes.
SIZE: Final = 30_000_000

PROGRAM: Final = """
import sys
from pathlib import Path
from svc.client import ApiKey, Client

url, ca_file, key = sys.argv[1:]
with Client(url, "acme", ApiKey("host/apps/keyed", key), ca_file=Path(ca_file)) as client:
    sys.stdout.buffer.write(client.log_in_and_read(["apps/key"]).values["apps/key"])
for name in ("twisted", "cryptography", "OpenSSL", "treq", "psycopg2", "zope"):
    try:
        __import__(name)
    except ImportError:
        continue
    sys.exit(f"{name} is there")
"""


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


class SlimTests(WorkloadCase):
    """A virtual environment with nothing but the client."""

    async def run_there(self, *command: str, code: int = 0) -> subprocess.CompletedProcess[bytes]:
        """Run a program of it, which must end with this exit code."""
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.venv), **self.environ}
        done = await deferToThread(
            lambda: subprocess.run(
                [self.venv / "bin" / command[0], *command[1:]], capture_output=True, check=False, env=environ, cwd=self.venv
            )
        )
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done

    async def install(self) -> None:
        """Install it, without a constraint, as its README has it."""
        self.venv = Path(self.mktemp()).resolve()
        source = self.venv.with_name(f"{self.venv.name}-source")
        await deferToThread(subprocess.run, [sys.executable, "-m", "venv", str(self.venv)], check=True)
        self.before = size_of(self.venv)
        # The tree may be another user's: what is built is written beside the sources.
        packed = ("setup.py", "LICENSE", "svc", "etc/client")
        source.mkdir()
        tar = f"tar -C {ROOT} -ch --exclude=__pycache__ --exclude=etc/client/src {' '.join(packed)} | tar -C {source} -x"
        await deferToThread(subprocess.run, ["sh", "-c", tar], check=True)
        # What runs the tests in several processes tells them where its libraries are, which pip would take for installed.
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        pip = [str(self.venv / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        command = [*pip, str(source / "etc" / "client")]
        done = await deferToThread(lambda: subprocess.run(command, capture_output=True, text=True, check=False, env=environ))
        if done.returncode and re.search("No matching distribution|Connection|Temporary failure", done.stderr):
            raise SkipTest("pip reaches no package index")
        self.assertEqual(done.returncode, 0, done.stderr)

    async def test_all(self) -> None:
        """It takes less than 30 MB, has the client's commands alone, and logs in and reads at a server (CLI-46)."""
        await self.install()
        taken = size_of(self.venv) - self.before
        self.assertLess(taken, SIZE)
        self.assertGreater(taken, SIZE // 20, "it isn't installed")
        shown = (await self.run_there("svc", "--help")).stdout.decode()
        self.assertRegex(shown, r"(?m)^  variable +Read and write")
        for name in ("account", "quickstart", "doctor"):
            self.assertNotRegex(shown, rf"(?m)^  {name} ")
            refused = (await self.run_there("svc", name, code=2)).stderr.decode()
            self.assertIn(f"`svc {name}` is in the distribution svc", refused)
        self.assertEqual((await self.run_there("svc", "variable", "get", "apps/key")).stdout, BINARY)
        (self.venv / "secrets.yml").write_text("PASSWORD: apps/password\n")
        done = await self.run_there("svc", "run", "-f", "secrets.yml", "--", "printenv", "PASSWORD")
        self.assertEqual(done.stdout, b"s3cret\n")
        read = await self.run_there("python", "-c", PROGRAM, self.url, str(self.ca_file), self.api_key)
        self.assertEqual(read.stdout, BINARY)
