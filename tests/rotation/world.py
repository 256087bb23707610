"""A loop of expiration in memory, with a rotator whose doors the tests open and shut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.crypto.vault import Vault
from svc.model.errors import PrimaryContested
from svc.model.events import EventBatch
from svc.model.expiration import IExpirationEvents, IRotator, Rotation, RotationFailed
from svc.model.host_factories import ExpiredToken
from svc.model.names import ResourceName
from svc.model.policy_loads import AnnotationRow, ResourceRow, Rows
from svc.model.query_results import Sealed
from svc.rotation.rotation_loop import ExpirationLoop
from svc.rotation.runner import RotationRunner
from tests.memory import Memory
from tests.memory_expirations import MemoryExpirations
from tests.memory_factories import MemoryHostFactories
from tests.walls import Wall

INTERVAL = 10.0


@implementer(IExpirationEvents)
@attrs.define
class Events:
    """All that was told."""

    told: list[tuple[object, ...]] = attrs.field(factory=list)

    def require_available(self) -> None:
        """All can be told."""

    def rotation_batch(self, variable: ResourceName, rotator: str) -> EventBatch | None:
        """Nothing is told to transactions."""

    def removal_batch(self, tokens: Sequence[ExpiredToken]) -> EventBatch | None:
        """Nothing is told to transactions."""

    async def record_expiration(self, variable: ResourceName, at: float) -> None:
        """Keep it."""
        self.told.append(("expired", variable.identifier, at))

    async def record_rotation(self, variable: ResourceName, rotator: str, version: int) -> None:
        """Keep it."""
        self.told.append(("rotated", variable.identifier, rotator, version))

    async def record_failure(self, variable: ResourceName, rotator: str | None, why: str) -> None:
        """Keep it."""
        self.told.append(("failed", variable.identifier, rotator, why))

    async def record_removal(self, tokens: Sequence[ExpiredToken]) -> None:
        """Keep it."""
        self.told.append(("removed", len(tokens)))


@implementer(IRotator)
@attrs.define
class Door:
    """A lock with one key. ``shut``: nobody comes near it. ``stuck``: every client waits for ever, whatever is said."""

    key: bytes = b"key 0"
    shut: bool = False
    stuck: bool = False
    made: int = 0
    tried: int = 0
    waiting: list[Deferred[None]] = attrs.field(factory=list)

    name = "door"
    siblings = ("place",)
    optional = ("hint",)

    def find_annotation_fault(self, annotations: Mapping[str, str]) -> str | None:
        """One annotation is bad."""
        return "rotation/door/bad is bad" if "rotation/door/bad" in annotations else None

    def new_value(self, annotations: Mapping[str, str]) -> bytes:
        """The next key."""
        self.made += 1
        return b"key %d" % self.made

    async def rotate(self, rotation: Rotation) -> None:
        """Change the lock."""
        self.tried += 1
        if self.shut:
            raise RotationFailed("the door is shut")
        while self.stuck:
            waiting: Deferred[None] = Deferred(lambda _: None)
            self.waiting.append(waiting)
            try:
                await waiting
            except CancelledError:
                continue
        if self.key == rotation.candidate:
            return
        if self.key != rotation.current:
            raise RotationFailed("the key doesn't fit")
        self.key = rotation.candidate


class Store(MemoryExpirations):
    """The store, which a test has fail at a step."""

    failing: str = ""
    error: Exception = Exception("a bug")

    async def promote_value(self, *arguments: Any) -> int | None:
        """Commit, unless that fails."""
        if self.failing == "promote":
            raise self.error
        return await super().promote_value(*arguments)

    async def mark_handled(self, *arguments: Any) -> None:
        """Commit, unless that fails."""
        if self.failing == "rest":
            raise self.error
        await super().mark_handled(*arguments)


class LoopCase(SynchronousTestCase):
    """A test of the loop, or of what it does."""

    def setUp(self) -> None:
        """Make the loop, not started yet."""
        self.memory, self.vault, self.clock, self.events = Memory(), Vault(b"k" * 32), Clock(), Events()
        self.clock.advance(self.memory.now)
        self.wall = Wall(self.clock)
        self.contested = False
        self.store, self.door = Store(self.memory), Door()
        self.factories = MemoryHostFactories(self.memory)
        self.rotations = RotationRunner(self.store, self.vault, self.clock, self.listener())
        self.loop = self.make_loop()
        self.memory.add(Rows(resources=()), None)
        self.memory.roles["a:user:admin"] = None

    def listener(self) -> IExpirationEvents:
        """Who is told what became of values."""
        return self.events

    def make_loop(self, *rotators: Any) -> ExpirationLoop:
        """A loop."""
        return ExpirationLoop(
            self.clock,
            self.wall,
            self.store,
            self.factories,
            self.rotations,
            rotators or [self.door],
            self.listener(),
            INTERVAL,
            self.ensure_writable,
        )

    async def ensure_writable(self) -> None:
        """Return unless another primary forbids writes."""
        if self.contested:
            raise PrimaryContested("the database of the server b has been made the primary")

    def declare(self, identifier: str, value: bytes | None = None, **annotations: str) -> str:
        """Declare a variable; ``__`` in the name of an annotation stands for a slash. Return its full id."""
        name = f"a:variable:{identifier}"
        rows = tuple(AnnotationRow(name, key.replace("__", "/"), text) for key, text in annotations.items())
        self.memory.add(Rows(resources=(ResourceRow(name, "a:user:admin"),), annotations=rows))
        if value is not None:
            self.memory.add_value(name, self.vault.seal(name, value))
        return name

    def declare_door(self, branch: str = "house", value: bytes | None = b"key 0", **annotations: str) -> str:
        """Declare the key of the door, with what stands beside it."""
        self.declare(f"{branch}/place", b"here")
        return self.declare(f"{branch}/key", value, **{"rotation__rotator": "door", "rotation__ttl": "P1D", **annotations})

    def start(self) -> None:
        """Start the loop, whose first round is now."""
        self.loop.startService()
        self.addCleanup(self.loop.stopService)

    def advance(self, seconds: float) -> None:
        """Let time pass, for the database too."""
        self.memory.now += seconds
        self.clock.advance(seconds)

    def value(self, name: str) -> bytes:
        """The newest value."""
        values = self.memory.secrets[name]
        return self.vault.open(name, Sealed(values[max(values)][1]))
