"""The data key rotated while servers run, as operators do it: commands and servers are processes of their own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from svc.crypto.vault import data_key_id, new_data_key, parse_data_key
from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import ServerProcess, beat
from tests.integration.replication import PairTestCase
from tests.integration.test_cli import CommandTestCase, Outcome

#: How many secrets there are, and how many are sealed again in a second, so that this can be interrupted.
SECRETS = 30
#: So many a second that commands end before all secrets are sealed again, on a busy machine too.
SLOWLY = "1"


class Rotating(CommandTestCase):
    """What tests of rotations have in common: a file of data keys, on a database at ``dsn``."""

    dsn: str

    def make_key_file(self) -> None:
        """Make a file with one key."""
        self.key_file = Path(self.mktemp()).resolve()
        self.keys = [new_data_key()]
        self.give(*self.keys)

    def give(self, *keys: str, file: Path | None = None) -> None:
        """Have the file hold these keys, as who replaces a file does."""
        draft = (file or self.key_file).with_suffix(".draft")
        draft.write_text("".join(f"{key}\n" for key in keys))
        draft.chmod(0o600)
        draft.replace(file or self.key_file)

    def run_server(self, *options: str, file: Path | None = None, dsn: str | None = None, **environ: str) -> ServerProcess:
        """Start a server whose key is in the file."""
        environ = {"SERVICE_DATA_KEY_FILE": str(file or self.key_file), **environ}
        return self.serve(*options, database_url=dsn or self.dsn, data_key=None, environ=environ)

    async def command(self, *arguments: str, environ: Mapping[str, str] | None = None, code: int = 0) -> Outcome:
        """Run a command that administers the database."""
        given = {"SERVICE_DATA_KEY_FILE": str(self.key_file), "SERVICE_DATABASE_URL": self.dsn, **(environ or {})}
        outcome = await self.svc(*arguments, environ=given, code=code)
        for key in self.keys:
            self.assertNotIn(key, outcome.stdout + outcome.stderr)
        return outcome

    async def status(self) -> Any:
        """The state of the data keys."""
        return json.loads((await self.command("data-key", "status", "--json")).stdout)

    async def fill(self, api: Api, admin: str) -> None:
        """Make secrets."""
        policy = "".join(f"- !variable v{number}\n" for number in range(SECRETS)).encode()
        self.assertEqual((await api.ask("POST", "/policies/acme/policy/root", policy, admin)).status, 201)
        for number in range(SECRETS):
            answer = await api.ask("POST", api.variable(f"v{number}"), f"value {number}".encode(), admin)
            self.assertEqual(answer.status, 201)

    async def assert_readable(self, api: Api, api_key: str) -> None:
        """Everything that was made can be read, after a login."""
        admin = await api.authenticate("admin", api_key)
        for number in range(SECRETS):
            answer = await api.ask("GET", api.variable(f"v{number}"), token=admin)
            self.assertEqual((answer.status, answer.body), (200, f"value {number}".encode()), number)

    def id_of(self, key: str) -> str:
        """The id of a key."""
        return data_key_id(parse_data_key(key))


class DataKeyRotationTests(Rotating, PostgresTestCase):
    """Servers on one database."""

    async def prepare(self) -> None:
        """Make a database that nothing has been done to."""
        await super().prepare()
        self.dsn = await self.create_database(migrated=False)
        self.make_key_file()

    def under(self, key: str, number: int) -> int:
        """How many of all secrets are sealed under a key, the first or a later one."""
        header = "01" if number == 1 else f"02{self.id_of(key)}"
        sql = f"SELECT count(*) FROM secrets WHERE encode(sealed, 'hex') LIKE '{header}%' AND resource_id NOT LIKE '/%'"
        ((count,),) = self.server.command(sql, self.dsn.rpartition("=")[2])
        return int(count)

    async def test_rotation(self) -> None:
        """A key is rotated while a server of several processes answers, is killed in the middle of sealing again, and starts
        again; at the end the new key alone opens everything, and the old one nothing. Backups name their keys (DATA-28,
        DATA-30, DATA-31, DATA-32, DATA-33, DATA-34).
        """
        options = ("--processes=2", "--health-interval=0.5")
        first = self.run_server("--account=acme", f"--data-key-pace={SLOWLY}", *options)
        api = Api.of(self, await first.ready())
        api_key = first.admin_key()
        await self.fill(api, await api.authenticate("admin", api_key))
        (old,) = self.keys
        before = Path(self.mktemp()).resolve()
        made = await self.command("backup", "create", str(before))
        self.assertIn(f"sealed under the data key {self.id_of(old)}", made.stdout)

        none = await self.command("data-key", "rotate", code=1)
        self.assertIn("there is no new data key", none.stderr)
        new = new_data_key()
        self.keys = [new, old]
        self.give(new, old)
        rotated = await self.command("data-key", "rotate")
        self.assertIn(f"sealed under the data key {self.id_of(new)} from now on", rotated.stdout)
        again = await self.command("data-key", "rotate")
        self.assertIn("is under way", again.stdout)
        self.give(new_data_key(), new, old)
        third = await self.command("data-key", "rotate", code=1)
        self.assertIn(f"the rotation to {self.id_of(new)} has not ended", third.stderr)
        self.give(new, old)

        while not 0 < self.under(new, 2) < SECRETS:
            await beat()
        for pid in (first.pid, *first.workers()):
            os.kill(pid, signal.SIGKILL)
        await first.ended()
        done = self.under(new, 2)
        self.assertEqual(done + self.under(old, 1), SECRETS)
        status = await self.status()
        self.assertTrue(status["rotating"])
        self.assertGreaterEqual(status["values"]["resealed"], done)

        self.give(old)
        self.assertIn(f"sealed under {self.id_of(new)}", await self.refused(self.run_server()))
        self.give(new)
        refusal = await self.refused(self.run_server())
        self.assertIn(f"some of its values are still sealed under {self.id_of(old)}", refusal)
        self.give(new, old)

        second = self.run_server(*options)
        api = Api.of(self, await second.ready())
        while (await self.status())["rotating"]:
            await self.assert_readable(api, api_key)
        await self.assert_readable(api, api_key)
        status = await self.status()
        states = {each["id"]: each["state"] for each in status["keys"]}
        self.assertEqual(states, {self.id_of(old): "retired", self.id_of(new): "current"})
        self.assertEqual({each["seals"] for each in status["servers"]}, {self.id_of(new)})
        self.assertEqual((self.under(new, 2), self.under(old, 1)), (SECRETS, 0))
        self.assertIn("not needed", (await self.command("data-key", "status")).stdout)

        self.give(new)
        await second.says("Data keys were read again")
        await self.assert_readable(api, api_key)
        after = Path(self.mktemp()).resolve()
        made = await self.command("backup", "create", str(after))
        self.assertIn(f"sealed under the data key {self.id_of(new)}", made.stdout)
        for file, key, wrong in ((before, old, new), (after, new, old)):
            self.give(key)
            self.assertIn(f"Data key: {self.id_of(key)}", (await self.verify(file)).stdout)
            self.give(wrong)
            refusal = (await self.verify(file, code=1)).stderr
            self.assertIn(f"sealed, {self.id_of(key)}; given was {self.id_of(wrong)}", refusal)
        self.assertEqual(await second.stop(), 0)

    async def verify(self, file: Path, code: int = 0) -> Outcome:
        """Try a backup."""
        return await self.command("backup", "verify", str(file), environ={"TMPDIR": "/tmp"}, code=code)

    async def test_one_lacks_the_key(self) -> None:
        """Of two servers one lacks the new key: a rotation names it, and changes nothing; when it has the key, the rotation
        begins, and nothing that was written on either is lost (DATA-30).
        """
        (old,) = self.keys
        other_file = self.key_file.with_name(f"{self.key_file.name}-other")
        self.give(old, file=other_file)
        one = self.run_server("--account=acme")
        url = await one.ready()
        two = self.run_server(file=other_file)
        apis = [Api.of(self, url), Api.of(self, await two.ready())]
        api_key = one.admin_key()
        admin = await apis[0].authenticate("admin", api_key)
        await self.fill(apis[0], admin)
        new = new_data_key()
        self.keys.append(new)
        self.give(new, old)
        refused = await self.command("data-key", "rotate", "--wait=4", code=1)
        self.assertIn(f"(process {two.pid})", refused.stderr)
        self.assertNotIn(f"(process {one.pid})", refused.stderr.splitlines()[-1])
        self.assertIn("nothing was changed", refused.stderr)
        self.assertEqual([each["id"] for each in (await self.status())["keys"]], [self.id_of(old)])
        self.give(new, old, file=other_file)
        silent = {"SERVICE_CLUSTER": "three=http://127.0.0.1:1"}
        refused = await self.command("data-key", "rotate", "--wait=0", environ=silent, code=1)
        self.assertIn("three (no answer)", refused.stderr)
        await self.command("data-key", "rotate")
        number = 0
        while (await self.status())["rotating"]:
            for api in apis:
                number += 1
                answer = await api.ask(
                    "POST", api.variable(f"v{number % SECRETS}"), f"value {number % SECRETS}".encode(), admin
                )
                self.assertEqual(answer.status, 201)
        for api in apis:
            await self.assert_readable(api, api_key)
        self.assertEqual(self.under(old, 1), 0)


class FollowerRotationTests(Rotating, PairTestCase):
    """A server on a primary, and one on its standby."""

    async def test_follower(self) -> None:
        """A follower is asked which keys it knows; it must know the new one first, and then reads all that is sealed under
        either, while its primary seals again and after (DATA-30, CLU-20).
        """
        self.make_key_file()
        (old,) = self.keys
        other_file = self.key_file.with_name(f"{self.key_file.name}-other")
        self.give(old, file=other_file)
        self.dsn = self.pair.primary.dsn(self.name)
        primary = self.run_server("--account=acme", "--data-key-pace=100")
        api = Api.of(self, await primary.ready())
        api_key = primary.admin_key()
        await self.fill(api, await api.authenticate("admin", api_key))
        await self.pair.caught_up()
        follower = self.run_server(file=other_file, dsn=self.pair.follower.dsn(self.name))
        url = await follower.ready()
        cluster = {"SERVICE_CLUSTER": f"two={url}"}
        new = new_data_key()
        self.keys.append(new)
        self.give(new, old)
        refused = await self.command("data-key", "rotate", "--wait=4", environ=cluster, code=1)
        self.assertIn("don't know the data key", refused.stderr)
        self.assertIn(": two.", refused.stderr)
        self.give(new, old, file=other_file)
        await self.command("data-key", "rotate", environ=cluster)
        reading = Api.of(self, url)
        while (await self.status())["rotating"]:
            await self.assert_readable(reading, api_key)
        await self.pair.caught_up()
        await self.assert_readable(reading, api_key)
        while not (await reading.ask("GET", "/health")).json()["ok"]:
            await beat()  # a check that a busy machine made too slow works in the next round


class EmbeddedRotationTests(CommandTestCase):
    """A server with an embedded database."""

    async def test_own_file(self) -> None:
        """The command makes the new key itself, in the server's own file, before it begins; a command that was killed before
        that is repeated (DATA-30).
        """
        server = self.serve("--account=acme")
        await server.ready()
        api_key = server.admin_key()
        file = server.data_dir / "data-key"
        (old,) = file.read_text().split()
        left = new_data_key()
        file.with_suffix(".draft").write_text(f"{left}\n{old}\n")
        file.with_suffix(".draft").chmod(0o600)
        file.with_suffix(".draft").replace(file)
        place = {"SERVICE_DATA_DIR": str(server.data_dir)}
        await self.svc("data-key", "rotate", environ=place)
        self.assertEqual(file.read_text().split(), [left, old])
        while json.loads((await self.svc("data-key", "status", "--json", environ=place)).stdout)["rotating"]:
            await beat()
        await self.svc("data-key", "rotate", environ=place)
        new, *others = file.read_text().split()
        self.assertEqual(others, [left, old])
        while (status := json.loads((await self.svc("data-key", "status", "--json", environ=place)).stdout))["rotating"]:
            await beat()
        self.assertEqual([each["state"] for each in status["keys"]], ["retired", "retired", "current"])
        self.assertEqual(await server.stop(), 0)
        file.write_text(f"{new}\n")
        again = self.serve(data_dir=server.data_dir)
        await Api.of(self, await again.ready()).authenticate("admin", api_key)
