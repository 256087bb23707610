"""An account in a world, of which things are remembered and changed in directed histories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

import attrs
from twisted.internet.defer import Deferred

from svc.model.names import RoleName
from tests.integration.memory_readings import Reading, answered, crowd, prepared, readings
from tests.integration.memory_world import LONG, Gate, Remembering, StoresThrough, World, execute, turn

KEY: Final = "credential: user:alice"
ROTATE: Final = "UPDATE credentials SET api_key = api_key || 'x' WHERE role_id = '{a}:user:alice'"


@attrs.frozen
class Scene:
    """A world, and an account in it of which things are remembered."""

    world: World
    account: str
    creation: int
    found: Mapping[str, Reading]

    @classmethod
    async def made(cls, world: World, account: str, *before: str, crowded: bool = False) -> Self:
        """Make an account, of which no process has remembered anything."""
        creation = await prepared(StoresThrough(world.judge, world.judge), account)
        if crowded:
            await crowd(world.judge, account)
        scene = cls(world, account, creation, readings(account, creation))
        if before:
            await scene.change(*before)
        world.clock.skip(LONG + 1)
        return scene

    @property
    def alice(self) -> RoleName:
        """The role whose key is asked for."""
        return RoleName(self.account, "user", "alice")

    def process(self, name: str) -> Remembering:
        """Return a process."""
        return self.world.processes[name]

    async def ask(self, name: str, reading: str = KEY) -> object:
        """Ask a process."""
        return await answered(self.found[reading], self.process(name).stores)

    def begin(self, name: str, reading: str = KEY) -> Deferred[object]:
        """Begin to ask a process."""
        return Deferred.fromCoroutine(self.ask(name, reading))

    async def truth(self, reading: str = KEY) -> object:
        """Ask the database."""
        return await answered(self.found[reading], StoresThrough(self.world.judge, self.world.judge))

    async def change(self, *statements: str) -> None:
        """Change something, as psql would; without statements the key of ``user:alice``."""
        await execute(self.world.others, *(sql.replace("{a}", self.account) for sql in statements or (ROTATE,)))

    async def turn(self) -> None:
        """Let the reactor do something else."""
        await turn()

    async def held(self, gate: Gate) -> None:
        """Wait until something has arrived at a gate."""
        while not gate.taken:
            await turn()
