"""The clients of ``svc.client`` against a server, over TLS; each in a thread, beside the tests' own reactor."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from twisted.internet.threads import deferToThread

from svc.client import (
    ApiKey,
    AsyncClient,
    Client,
    Jwt,
    LoginRefused,
    NewVersions,
    NotFound,
    NotPermitted,
    Untrusted,
    ValueChanged,
)
from tests.integration.client import workload_token
from tests.integration.test_workload import BINARY, WorkloadCase

T = TypeVar("T")

GUIDE: Final = Path(__file__).resolve().parents[2] / "docs" / "guides" / "python.md"

BOTH = ["apps/password", "apps/key"]
VALUES = {"apps/password": b"s3cret", "apps/key": BINARY}


class ClientsCase(WorkloadCase):
    """A server, and its admin."""

    async def prepare(self) -> None:
        """Start it, and log the admin in, whose key another program may use too."""
        await super().prepare()
        self.key = ApiKey("host/apps/keyed", self.api_key)
        self.admin = ApiKey("admin", self.process.admin_key())

    async def run_async(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on asyncio, in a thread."""
        found: T = await deferToThread(lambda: asyncio.run(work()))
        return found

    def asynchronous(self, evidence: ApiKey | Jwt) -> AsyncClient:
        """A client on asyncio."""
        return AsyncClient(self.url, "acme", evidence, ca_file=self.ca_file)


class AsyncClientTests(ClientsCase):
    """The client on asyncio."""

    async def test_reading(self) -> None:
        """It reads one secret, several, those that are there, and nothing where nothing has changed (SEC-37 to SEC-40)."""

        async def work() -> None:
            async with self.asynchronous(self.key) as client:
                self.assertEqual(await client.secret("apps/key"), BINARY)
                self.assertEqual(await client.secret("apps/password", 1), b"s3cret")
                self.assertEqual(await client.secrets(BOTH), VALUES)
                read = await client.batch(BOTH)
                self.assertEqual((read.values, read.errors, read.unchanged), (VALUES, {}, False))
                again = await client.batch(BOTH, tag=read.tag)
                self.assertEqual((again.values, again.tag, again.unchanged), ({}, read.tag, True))
                partial = await client.batch([*BOTH, "apps/none", "apps/seen"], partial=True)
                self.assertEqual(partial.values, VALUES)
                self.assertEqual(
                    {name: why.code for name, why in partial.errors.items()},
                    {"apps/none": "not_found", "apps/seen": "forbidden"},
                )
                self.assertIsNone(partial.tag)
                self.assertEqual((await client.whoami())["username"], "host/apps/keyed")
                listed = await client.resources("variable", search="password")
                self.assertEqual([each["id"] for each in listed], ["acme:variable:apps/password"])
                for wanted, kind in (("apps/none", NotFound), ("apps/seen", NotPermitted)):
                    with self.assertRaises(kind):
                        await client.secret(wanted)
            token = workload_token()
            async with self.asynchronous(Jwt("ci", lambda: token)) as client:
                # One request for login and values.
                self.assertEqual((await client.log_in_and_read(BOTH)).values, VALUES)
                self.assertEqual(await asyncio.gather(*(client.secret("apps/key") for _ in range(5))), [BINARY] * 5)

        await self.run_async(work)

    async def test_refusals(self) -> None:
        """A refused login, and a certificate that nobody vouches for, are faults of their own."""

        async def work() -> None:
            async with self.asynchronous(ApiKey("host/apps/keyed", "wrong")) as client:
                for asked in (client.secret("apps/key"), client.log_in_and_read(["apps/key"])):
                    with self.assertRaises(LoginRefused) as refused:
                        await asked
                    self.assertNotIn("wrong", str(refused.exception))
            async with self.asynchronous(self.key) as client:
                with self.assertRaises(NotPermitted):
                    await client.log_in_and_read(["apps/key", "apps/seen"])
                read = await client.log_in_and_read(["apps/key", "apps/seen"], partial=True)
                self.assertEqual((set(read.values), set(read.errors)), ({"apps/key"}, {"apps/seen"}))
            async with AsyncClient(self.url, "acme", self.key) as client:
                with self.assertRaises(Untrusted):
                    await client.secret("apps/key")

        await self.run_async(work)

    async def test_writing_and_watching(self) -> None:
        """A value that is set is told to those who watch; one that is set on a condition isn't set against it."""

        async def work() -> None:
            async with self.asynchronous(self.admin) as admin, self.asynchronous(self.key) as client:
                async with client.watch(BOTH) as events:
                    first = await anext(events)
                    self.assertEqual(first, NewVersions({"apps/password": 1, "apps/key": 1}))
                    tag = await admin.set_secret("apps/key", b"another")
                    self.assertEqual(await anext(events), NewVersions({"apps/key": 2}))
                self.assertEqual(await client.secret("apps/key"), b"another")
                await admin.set_secret("apps/key", b"a third", if_match=tag)
                for demand in ({"if_match": tag}, {"create_only": True}):
                    with self.assertRaises(ValueChanged):
                        await admin.set_secret("apps/key", b"x", **demand)
                with self.assertRaises(NotPermitted) as refused:
                    await client.set_secret("apps/key", b"x")
                self.assertIn("privilege update", str(refused.exception))

        await self.run_async(work)


class ClientOfThreadsTests(ClientsCase):
    """The client for programs of threads."""

    async def test_all(self) -> None:
        """It reads, writes, watches and is refused as the other does; many threads share it."""

        def work() -> None:
            with Client(self.url, "acme", self.key, ca_file=self.ca_file) as client:
                self.assertEqual(client.log_in_and_read(BOTH).values, VALUES)
                with ThreadPoolExecutor(5) as pool:
                    self.assertEqual(list(pool.map(client.secret, ["apps/key"] * 20)), [BINARY] * 20)
                read = client.batch(BOTH)
                self.assertTrue(client.batch(BOTH, tag=read.tag).unchanged)
                with client.watch(BOTH) as events, Client(self.url, "acme", self.admin, ca_file=self.ca_file) as admin:
                    self.assertEqual(next(events), NewVersions({"apps/password": 1, "apps/key": 1}))
                    admin.set_secret("apps/key", b"another")
                    self.assertEqual(next(events), NewVersions({"apps/key": 2}))
                with self.assertRaises(NotPermitted):
                    client.secret("apps/seen")
            with Client(self.url, "acme", self.key) as client, self.assertRaises(Untrusted):
                client.secret("apps/key")

        await deferToThread(work)


class GuideTests(ClientsCase):
    """``docs/guides/python.md``."""

    async def test_examples(self) -> None:
        """Its examples run as they stand, but for the server and the names in its policy."""
        text = GUIDE.read_text("utf-8")
        programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self.assertEqual(len(programs), 4)
        for shown, here in (
            ("https://svc.example.org", self.url),
            ("/etc/svc/ca.pem", str(self.ca_file)),
            ("host/ci/runner", "host/apps/keyed"),
            ("ci/database/password", "apps/password"),
            ("ci/partner/token", "apps/key"),
            ('os.environ["SVC_API_KEY"]', repr(self.api_key)),
        ):
            self.assertIn(shown, text)
            programs = [program.replace(shown, here) for program in programs]
        found: dict[str, Any] = {}
        for program in programs:
            await deferToThread(exec, compile(program, str(GUIDE), "exec"), found)
        self.assertEqual((found["several"], found["password"]), (VALUES, b"s3cret"))
        self.assertEqual((found["values"], found["missing"], found["again"].unchanged), (VALUES, "not_found", True))
