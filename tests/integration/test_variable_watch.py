"""``svc variable watch`` as its users run it, beside a server that is killed and started again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

from tests.integration.bed import free_port
from tests.integration.client import POLICY
from tests.integration.postgres import PATIENCE, PostgresTestCase
from tests.integration.process import ServerProcess, beat
from tests.integration.test_cli import Command, CommandTestCase, Outcome

PASSWORD, ISSUER = "apps/password", "svc/authn-jwt/ci/issuer"


def versions(command: Command) -> list[tuple[str, str]]:
    """What the lines of a watch have said by now, without their times."""
    rows = [line.split("\t") for line in command.stdout.decode().splitlines()]
    return [(name, version) for _, name, version in rows]


class VariableWatchTests(CommandTestCase, PostgresTestCase):
    """The command and a server."""

    migrated = False

    async def until(self, holds: Callable[[], bool], command: Command) -> None:
        """Wait until that holds, though not for ever."""
        for _ in range(int(PATIENCE / 0.05)):
            if holds():
                return
            await beat()
        self.fail(f"it never came: {command.stdout!r} {command.stderr!r}")

    async def test_watch(self) -> None:
        """It tells each new version of its variables while the server is killed, started again and takes its tokens no more,
        until a signal ends it; ``--once`` ends it after a change, and what may not be read at its beginning (CLI-1, CLI-47,
        CLI-48).
        """
        url, port = await self.create_database(migrated=False), free_port()

        def serve() -> ServerProcess:
            return self.serve("--account=acme", database_url=url, listen=f"tcp:{port}:interface=127.0.0.1")

        server = serve()
        base = await server.ready()
        admin = {"SVC_URL": base, "SVC_ACCOUNT": "acme", "SVC_LOGIN": "admin", "SVC_API_KEY": server.admin_key()}

        async def set_value(value: bytes) -> None:
            await self.svc("variable", "set", PASSWORD, given=value, environ=admin)

        policy = POLICY.format(prefix="svc").encode()
        loaded = await self.svc("policy", "load", "root", "-", "--json", given=policy, environ=admin)
        await set_value(b"first")
        watching = self.start("variable", "watch", PASSWORD, ISSUER, environ=admin)
        wanted = [(PASSWORD, "1"), (ISSUER, "none")]
        await self.until(lambda: sorted(versions(watching)) == sorted(wanted), watching)
        await set_value(b"second")
        await self.until(lambda: versions(watching)[2:] == [(PASSWORD, "2")], watching)

        await server.kill()
        await self.until(lambda: b"The watch is interrupted" in watching.stderr, watching)
        server = serve()
        await server.ready()
        await set_value(b"third")
        await self.until(lambda: versions(watching)[3:] == [(PASSWORD, "3")], watching)
        await self.until(lambda: b"The watch goes on." in watching.stderr, watching)

        await self.svc("role", "revoke-tokens", "user:admin", environ=admin)
        await set_value(b"fourth")
        await self.until(lambda: versions(watching)[4:] == [(PASSWORD, "4")], watching)
        await self.svc("policy", "update", "root", "-", given=b"- !delete {record: !variable apps/password}", environ=admin)
        await self.until(lambda: versions(watching)[5:] == [(PASSWORD, "gone")], watching)
        self.assertEqual(watching.stderr.count(b"\n"), 2, watching.stderr)
        assert watching.transport is not None
        os.kill(watching.transport.pid, signal.SIGINT)
        ended = await watching.ended
        self.assertEqual(ended.exit_code, 128 + signal.SIGINT, ended)
        self.assertNotIn("Traceback", ended.stderr)
        self.assertNotIn("fourth", ended.stdout)

        once = self.start("variable", "watch", "--once", "--json", ISSUER, environ=admin)
        await self.until(lambda: once.stdout.count(b"\n") == 1, once)
        await self.svc("variable", "set", ISSUER, given=b"issuer", environ=admin)
        ended = await once.ended
        self.assertEqual(ended, Outcome(0, ended.stdout, ""))
        self.assertEqual([json.loads(line)["version"] for line in ended.stdout.splitlines()], [None, 1])
        missing = await self.svc("variable", "watch", PASSWORD, environ=admin, code=1)
        self.assertIn("not found", missing.stderr)
        shop = json.loads(loaded.stdout)["created_roles"]["acme:host:apps/shop"]["api_key"]
        host = {**admin, "SVC_LOGIN": "host/apps/shop", "SVC_API_KEY": shop}
        self.assertEqual((await self.svc("variable", "watch", ISSUER, environ=host, code=1)).stdout, "")
