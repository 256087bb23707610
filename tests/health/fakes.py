"""A database that health asks, whose answers the tests choose."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from svc.crypto.vault import CANARY, Vault
from svc.model.databases import Ages, ReplicationPosition, VerifiedBackup
from svc.model.query_results import Sealed
from svc.storage.database_state import DatabaseState
from tests.fakes import Fake

AGES = Ages(1000.0, 2000.0)
POSITION = ReplicationPosition("0/16B3748", 23803720, False)
VAULT = Vault(bytes(32))


async def nothing() -> None:
    """Work at once."""


class FakeState(Fake, DatabaseState):
    """``asked`` lists what was asked; each question does, before it is answered, what ``work`` has under its name."""

    def __init__(self, *, knows: bool = True, work: Mapping[str, Callable[[], Awaitable[object]]] | None = None) -> None:
        self.knows = knows
        self.sealed = VAULT.seal(CANARY, b"sings")
        self.work = dict(work or {})
        self.asked: list[str] = []

    async def _ask(self, question: str) -> None:
        self.asked.append(question)
        await self.work.get(question, nothing)()

    async def check_connection(self) -> None:
        """Answer."""
        await self._ask("connected")

    async def check_transaction(self) -> None:
        """Commit."""
        await self._ask("transaction")

    async def read_canary(self) -> Sealed:
        """Return the canary."""
        await self._ask("canary")
        return self.sealed

    async def establish_canary(self, sealed: Sealed) -> Sealed:
        """Return the canary: there is one."""
        return await self.read_canary()

    async def can_check_known_privileges(self) -> bool:
        """Answer as the test chose."""
        await self._ask("privilege_known")
        return self.knows

    async def read_position(self) -> ReplicationPosition:
        """Return a fixed position."""
        await self._ask("position")
        return POSITION

    async def read_ages(self) -> Ages:
        """Return fixed ages."""
        await self._ask("ages")
        return AGES

    async def record_backup(self) -> None:
        """Note nothing."""
        await self._ask("backed_up")

    async def record_verified_backup(self, backup: VerifiedBackup) -> None:
        """Note nothing."""
        await self._ask("verified")

    async def read_data_directory(self) -> str | None:
        """Return none: there is no machine."""
        await self._ask("data_directory")
        return None
