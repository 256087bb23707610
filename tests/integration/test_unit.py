"""The shipped unit and the shipped rotation lose no record of the audit, however fast they come."""

from __future__ import annotations

import grp
import gzip
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SkipTest, SynchronousTestCase, TestCase

from tests.audit.parsing import parse
from tests.integration import postgres
from tests.integration.client import Api
from tests.integration.embedding import python_for
from tests.integration.postgres import Server
from tests.integration.process import beat
from tests.integration.unit import ELSEWHERE, HERE, ROOT, SAMPLE, UNIT, Unit, settings, unavailable
from tests.programs import require_programs

ROTATION: Final = ROOT / "etc" / "logrotate.d" / "svc"

#: Clients at the same time, requests of each one after the other, and values that a request reads. Each value has a record,
#: and each request one more for its batch (SEC-42).
CLIENTS: Final = 10
REQUESTS: Final = 44
VALUES: Final = 50
RECORDS: Final = VALUES + 1

#: How often the files are rotated meanwhile.
ROTATIONS: Final = 4


class UnitCase(TestCase):
    """The unit on a PostgreSQL of the test's."""

    timeout = 240
    skip = postgres.unavailable() or unavailable()

    async def begin(self, *uncommented: str) -> Unit:
        """Start it with the sample configuration, in which these settings are taken from comments."""
        server = Server()
        self.addCleanup(server.destroy)
        await server.start()
        await server.create_database("unit", migrated=False)
        text = SAMPLE.read_text(encoding="utf-8")
        for name in uncommented:
            text, count = re.subn(rf"(?m)^# ({name} = )", r"\1", text)
            self.assertEqual(count, 1, name)
        dsn, listen = server.dsn("unit"), "tcp:0:interface=127.0.0.1"
        text += f'\naccount = "acme"\ndatabase_url = "{dsn}"\nlisten = ["{listen}"]\n'
        folder = Path(tempfile.mkdtemp(prefix="svc-unit-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, folder)
        folder.chmod(0o755)  # the unit's user reads its settings there
        account = pwd.getpwuid(server.directory.stat().st_uid)
        python = python_for(account)
        if python is None:
            raise SkipTest(f"the user {account.pw_name} can run no Python that finds svc and its libraries")
        unit = Unit(folder, account, python)
        self.addCleanup(unit.stop)
        unit.start(text, {})
        while (url := unit.url()) is None:
            await beat()
        self.api = Api.of(self, url)
        key = re.search(rb"(?m)^API key for admin: (\S+)", unit.journal)
        assert key is not None
        self.admin = await self.api.authenticate("admin", key[1].decode())
        return unit

    async def read(self, unit: Unit) -> None:
        """Have clients read values as fast as they can; each request has an id that tells its place."""
        policy = "".join(f"- !variable v{number}\n" for number in range(VALUES)).encode()
        self.assertEqual((await self.api.ask("POST", "/policies/acme/policy/root", policy, self.admin)).status, 201)
        for number in range(VALUES):
            answer = await self.api.ask("POST", self.api.variable(f"v{number}"), b"x", self.admin)
            self.assertEqual(answer.status, 201)
        ids = ",".join(f"acme:variable:v{number}" for number in range(VALUES))

        async def client(name: int) -> None:
            for number in range(REQUESTS):
                path, request = f"/secrets?variable_ids={ids}", f"c{name}.{number}"
                answer = await self.api.ask("GET", path, token=self.admin, X_Request_Id=request)
                self.assertEqual(answer.status, 200, answer)

        await gatherResults([Deferred.fromCoroutine(client(name)) for name in range(CLIENTS)], consumeErrors=True)

    def assert_recorded(self, *files: Path) -> None:
        """Each value that was read has its record, once, and those of a client are in order."""
        requests: dict[str, list[int]] = {}
        for line in self._lines(files):
            record = parse(line)
            if record.msgid == "fetch":
                client, _, number = record.procid.partition(".")
                requests.setdefault(client, []).append(int(number))
        expected = [number for number in range(REQUESTS) for _ in range(RECORDS)]
        self.assertEqual(sum(map(len, requests.values())), CLIENTS * REQUESTS * RECORDS)
        self.assertEqual(list(requests.values()), [expected] * CLIENTS)

    def _lines(self, files: tuple[Path, ...]) -> Iterator[bytes]:
        for file in files:
            content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
            self.assertTrue(not content or content.endswith(b"\n"), file)
            yield from content.splitlines()


class UnitTests(UnitCase):
    """The unit as it is shipped."""

    async def test_no_record_is_lost(self) -> None:
        """Of 22,000 reads in a row each is in the unit's own file, and none in the journal, which may drop one."""
        unit = await self.begin()
        await self.read(unit)
        self.assertEqual(unit.stop(), 0)
        self.assert_recorded(unit.logs / "audit.log")
        self.assertNotRegex(unit.journal, rb"(?m)^<\d+>1 ")
        self.assertIn(b"Audit records are appended to /var/log/svc/audit.log", unit.journal)
        self.assertEqual((unit.logs / "audit.log").stat().st_mode & 0o777, 0o600)

    async def test_systemd_is_told(self) -> None:
        """Systemd hears that the unit is ready and lives, that it reloads and has done so, and that it stops (CFG-40)."""
        unit = await self.begin()
        while "WATCHDOG=1" not in unit.told:
            await beat()
        self.assertIn("READY=1", unit.told)
        self.assertTrue(unit.told[0].startswith("EXTEND_TIMEOUT_USEC="), unit.told)
        self.assertIn(f"STATUS=Serving at {unit.url()}", unit.told)
        del unit.told[:]
        await getProcessOutputAndValue("/bin/sh", ["-c", unit.reload], os.environ)
        while "READY=1" not in unit.told:
            await beat()
        self.assertLess(unit.told.index("RELOADING=1"), unit.told.index("READY=1"))
        self.assertEqual(unit.stop(), 0)
        while unit.told[-1] != "STOPPING=1":
            await beat()

    async def test_rotation(self) -> None:
        """With the file that the sample configuration shows, which the unit may write to, and the shipped rotation at work
        meanwhile, each record is in one of the files, in order.
        """
        require_programs("logrotate")
        unit = await self.begin("audit_file")
        file = self._rotation(unit)
        reading = Deferred.fromCoroutine(self.read(unit))
        for number in range(1, ROTATIONS + 1):
            written = unit.logs / "audit.log"
            while not reading.called and (not written.exists() or written.stat().st_size < 500_000 * number):
                await beat()
            state = f"--state={unit.folder / 'rotated'}"
            said = await getProcessOutputAndValue("logrotate", ["--force", state, str(file)], os.environ)
            self.assertEqual(said, (b"", b"", 0))
        await reading
        self.assertEqual(unit.stop(), 0)
        rotated = sorted(unit.logs.glob("audit.log.*"), key=lambda path: -int(path.name.split(".")[2]))
        self.assertEqual(len(rotated), ROTATIONS)
        self.assert_recorded(*rotated, unit.logs / "audit.log")

    def _rotation(self, unit: Unit) -> Path:
        """The sample, with the folders and the user of the test, and what a reload does without systemd."""
        text = ROTATION.read_text(encoding="utf-8")
        for shipped, here in (
            ("/var/log/svc/*.log {", f"{unit.logs}/*.log {{"),
            ("su svc svc", f"su {unit.account.pw_name} {grp.getgrgid(unit.account.pw_gid).gr_name}"),
            ("systemctl reload svc.service", unit.reload),
        ):
            self.assertIn(shipped, text)
            text = text.replace(shipped, here)
        file = unit.folder / "logrotate"
        file.write_text(text, encoding="utf-8")
        file.chmod(0o644)
        return file


class UnitFileTests(SynchronousTestCase):
    """The text of the unit."""

    def test_settings(self) -> None:
        """Of each setting it is known whether these tests do as it says."""
        self.assertEqual(settings().keys(), HERE | ELSEWHERE)
        self.assertEqual(settings()["ProtectSystem"], "strict")
        self.assertEqual(settings()["LogRateLimitIntervalSec"], "0")

    def test_verified(self) -> None:
        """Systemd finds nothing wrong with it."""
        require_programs("systemd-analyze")
        copy = Path(self.mktemp()).resolve() / "svc.service"
        copy.parent.mkdir()
        text = UNIT.read_text(encoding="utf-8")
        copy.write_text(text.replace("/opt/svc/bin/twistd", sys.executable), encoding="utf-8")
        done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
        # Other units of the machine are read along with it, and warned of.
        ours = [line for line in (done.stdout + done.stderr).splitlines() if copy.name in line]
        self.assertEqual((done.returncode, ours), (0, []))
