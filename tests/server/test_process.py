"""A process that serves, and its supervisor's calls before it does."""

from __future__ import annotations

import gc
import os
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.file_lock import SharedFileLock
from svc.crypto.vault import Vault
from svc.server import process
from svc.server.bootstrap import Installation
from svc.server.process import Worker, WorkerServer
from svc.server.process_messages import RemoteCall, WorkerTask
from svc.server.shared_page import make_shared_page, map_commit_counters
from svc.settings.reading import read_settings

OLD, NEW = b"o" * 32, b"n" * 32


class EarlyCallTests(SynchronousTestCase):
    """A process that has its task and still waits for the database."""

    def test_early_calls(self) -> None:
        """Data keys that are read again while a process opens the database are used by it, and so is every other call."""
        page, opened, served = make_shared_page(2), Deferred[None](), list[WorkerServer]()
        self.addCleanup(os.close, page)
        self.addCleanup(gc.unfreeze)

        async def joined(*arguments: Any) -> Any:
            await opened
            vault = arguments[4]
            nothing: Any = None
            parts = dict.fromkeys(("clock", "wall", "database", "state", "accounts", "data_keys", "source"), nothing)
            return Installation(dsn="", vault=vault, audit_key=b"", **parts)

        async def serve(server: WorkerServer, _: object) -> None:
            served.append(server)

        self.patch(Installation, "join_running", joined)
        self.patch(WorkerServer, "serve", serve)
        self.patch(process, "map_commit_counters", lambda _, number: map_commit_counters(page, number))
        self.patch(process, "SharedFileLock", lambda _: SharedFileLock(page))
        worker = Worker(MemoryReactorClock())
        self.patch(worker, "_channel", type("Channel", (), {"send_notice": lambda *_, **__: True})())
        news: Any = None
        worker._hear(
            WorkerTask(
                number=1,
                count=2,
                settings=attrs.evolve(read_settings({}, {}), listen=()),
                daemon=False,
                dsn="",
                data_keys=(OLD,),
                stored_keys=(),
                audit_key=b"",
                news=news,
                refused_addresses=(),
            )
        )
        worker._hear(RemoteCall("adopt_data_keys", ((NEW,),)))
        self.assertEqual(served, [])
        opened.callback(None)
        self.assertEqual([server.installation.vault.given_keys for server in served], [(NEW,)])
        worker._hear(RemoteCall("adopt_data_keys", ((NEW, OLD),)))
        self.assertEqual(served[0].installation.vault.given_keys, Vault(NEW, OLD).given_keys)
