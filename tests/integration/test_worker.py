"""Large policy loads in a process of their own: the server answers others meanwhile, and survives whatever happens there."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Final

from twisted.internet.defer import Deferred

from tests.integration.client import Answer, Api
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import ServerProcess, ServerTestCase, beat

_STARTED: Final = re.compile(rb"A process for large policy loads was started: ([0-9]+)")
_POLICY: Final = "/policies/acme/policy/root"


def large(count: int) -> bytes:
    """A document that takes a while."""
    return "".join(f"- !variable {{ id: v{number}, annotations: {{ a: b }} }}\n" for number in range(count)).encode()


class WorkerTests(PostgresTestCase, ServerTestCase):
    """The server and its workers, as processes."""

    async def served(self, *options: str) -> tuple[ServerProcess, Api, str]:
        """A server with an account, and its admin's token."""
        url = await self.create_database(migrated=False)
        process = self.serve("--account=acme", *options, database_url=url)
        api = Api.of(self, await process.ready())
        return process, api, await api.authenticate("admin", process.admin_key())

    async def worker(self, process: ServerProcess) -> int:
        """The process id of the worker that was started last."""
        await process.says("large policy loads was started")
        return int(_STARTED.findall(process.stdout)[-1])

    def begun(self, api: Api, document: bytes, token: str, method: str = "POST", query: str = "") -> Deferred[Answer]:
        """Begin a load."""
        return Deferred.fromCoroutine(api.ask(method, _POLICY + query, document, token))

    async def test_answers_meanwhile(self) -> None:
        """While a large document is loaded others are answered (POL-51)."""
        process, api, token = await self.served()
        load = self.begun(api, large(6000), token)
        await self.worker(process)
        for _ in range(5):
            self.assertEqual((await api.ask("GET", "/whoami", token=token)).status, 200)
        self.assertFalse(load.called)
        answer = await load
        self.assertEqual(answer.status, 201, answer)
        listed = await api.ask("GET", "/resources/acme/variable?count=true", token=token)
        self.assertEqual(json.loads(listed.body), {"count": 6000})
        self.assertEqual(await process.stop(), 0)

    async def test_refusals_and_dry_runs(self) -> None:
        """What a worker answers is what the server would: API keys, refusals with their places, dry runs."""
        _, api, token = await self.served()
        made = await self.begun(api, b"#" * 9000 + b"\n- !user bob\n", token)
        self.assertEqual(made.status, 201, made)
        key = json.loads(made.body)["created_roles"]["acme:user:bob"]["api_key"]
        await api.authenticate("bob", key)
        refused = await self.begun(api, b"#" * 9000 + b"\n- !user bob\n- !usr bill\n", token)
        self.assertEqual(refused.status, 422, refused)
        self.assertEqual(json.loads(refused.body)["error"]["innererror"]["line"], 3)
        # Its summary, and its refusal of another version (POL-98, POL-103).
        created = json.loads(made.body)["changes"]["created"]
        self.assertEqual(created["records"], [{"kind": "user", "count": 1, "first": ["acme:user:bob"]}])
        tag = made.headers["etag"]
        for match, status in (('"0"', 412), (tag, 201)):
            document = b"#" * 9000 + b"\n- !user bob\n"
            answer = await api.ask("POST", _POLICY, document, token, **{"If-Match": match})
            self.assertEqual(answer.status, status, answer)
        told = await self.begun(api, b"- !user carol\n", token, query="?dryRun=true")
        self.assertEqual((told.status, json.loads(told.body)["status"]), (200, "Valid YAML"), told)
        self.assertEqual((await api.ask("GET", "/roles/acme/user/carol", token=token)).status, 404)

    async def test_killed_worker(self) -> None:
        """A load whose worker is killed is of unknown outcome; nothing of it is there, and the next one succeeds
        (POL-51).
        """
        process, api, token = await self.served()
        load = self.begun(api, large(6000), token)
        os.kill(await self.worker(process), signal.SIGKILL)
        answer = await load
        self.assertEqual((answer.status, answer.json()["error"]["code"]), (503, "outcome_unknown"), answer)
        listed = await api.ask("GET", "/resources/acme/variable?count=true", token=token)
        self.assertEqual(json.loads(listed.body), {"count": 0})
        self.assertEqual((await self.begun(api, large(1000), token)).status, 201)

    async def test_killed_server(self) -> None:
        """A worker ends with its server, even when that is killed; no load goes on behind a dead one."""
        process, api, token = await self.served()
        load = self.begun(api, large(6000), token)
        load.addErrback(lambda _: None)
        worker = await self.worker(process)
        await process.kill()
        while _runs(worker):
            await beat()

    async def test_stop_with_a_worker(self) -> None:
        """A server that stops ends its workers, and lets a load in progress end before."""
        process, api, token = await self.served()
        load = self.begun(api, large(3000), token)
        worker = await self.worker(process)
        self.assertEqual(await process.stop(), 0, process.said)
        self.assertEqual((await load).status, 201)
        self.assertFalse(_runs(worker))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
