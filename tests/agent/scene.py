"""What tests of the agent share: configurations, a server in memory, and a machine that does what the core decides."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
from twisted.trial.unittest import SynchronousTestCase

from svc.agent import files
from svc.agent.configuration import AgentConfiguration, read_configuration
from svc.agent.core import AgentCore
from svc.agent.faults import BadConfiguration, FileFault, SourceFault
from svc.agent.source import VariableBatch, VariableSource
from svc.agent.steps import (
    Action,
    CommandEnded,
    Event,
    FileHandled,
    LogMessage,
    ReadFailed,
    ReadVariables,
    RemoveFile,
    RemoveMarkers,
    RunCommand,
    UpdateProgram,
    VariablesRead,
    WatchVariables,
    WriteFile,
)

HEAD = """
url = "https://svc.example.org"
account = "acme"
login = { kind = "api-key", host = "host/apps/shop", api_key_file = "/none/key" }
"""

T = TypeVar("T")


def result_of(coroutine: Any) -> Any:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits")


@attrs.frozen
class DayClock:
    """A time of day that stands still."""

    now: float = 0.0

    def seconds(self) -> float:
        """See ``WallClock``."""
        return self.now


class ServerInMemory:
    """A server: its ``values``, those that are ``forbidden``, its ``fault``; ``asked`` has the ids and tags of batches."""

    def __init__(self, values: Mapping[str, bytes] | None = None) -> None:
        self.values = dict(values or {})
        self.forbidden: set[str] = set()
        self.fault: str | None = None
        self.asked: list[tuple[tuple[str, ...], str | None]] = []
        self.watched: list[tuple[str, ...]] = []

    async def read(self, ids: Sequence[str], tag: str | None) -> VariableBatch | None:
        """See ``VariableClient``."""
        if self.fault is not None:
            raise SourceFault(self.fault)
        self.asked.append((tuple(ids), tag))
        values = {each: self.values[each] for each in ids if each in self.values and each not in self.forbidden}
        refused = {each: "the role may not read it" if each in self.forbidden else "empty or not found" for each in ids}
        for each in values:
            del refused[each]
        now = None if refused else repr(sorted(values.items()))
        return None if now is not None and now == tag else VariableBatch(values, refused, now)

    async def watch(self, ids: Sequence[str]) -> AsyncIterator[None]:
        """See ``VariableClient``."""
        self.watched.append(tuple(ids))
        yield None


@attrs.define
class Machine:
    """Does what a core decides, at once: files are real, commands are counted, the server is one in memory."""

    core: AgentCore
    server: ServerInMemory
    now: float = 0.0
    commands: list[tuple[str, ...]] = attrs.field(factory=list)
    failing: set[str] = attrs.field(factory=set)
    provided: list[tuple[dict[str, bytes], bool]] = attrs.field(factory=list)
    said: list[str] = attrs.field(factory=list)
    watches: list[frozenset[str]] = attrs.field(factory=list)
    source: VariableSource = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.source = VariableSource(self.server)

    def tell(self, *events: Event) -> None:
        """Tell the core of events, and do what follows, until it waits."""
        waiting = list(events)
        while True:
            actions = self.core.handle_events(self.now, *waiting)
            waiting = [event for action in actions for event in self._done(action)]
            if not waiting and not actions:
                return

    def round(self) -> None:
        """Let time pass until the next round is due, and do it."""
        rounds = self.core.rounds
        while self.core.rounds == rounds:
            assert self.core.wake_at is not None
            self.now = max(self.now, self.core.wake_at)
            self.tell()

    def _done(self, action: Action) -> Iterator[Event]:
        match action:
            case LogMessage(_, text):
                self.said.append(text)
            case ReadVariables(ids):
                try:
                    yield VariablesRead(result_of(self.source.read(ids)))
                except SourceFault as fault:
                    yield ReadFailed(str(fault))
            case WatchVariables(ids):
                self.watches.append(ids)
            case WriteFile(file, content):
                try:
                    yield FileHandled(file.name, files.replace_file(file.destination, content))
                except FileFault as fault:
                    yield FileHandled(file.name, fault=str(fault))
            case RemoveFile(file):
                yield FileHandled(file.name, files.remove_file(file.destination))
            case RunCommand(command):
                self.commands.append(command.arguments)
                yield CommandEnded(command, "exit code 3" if command.arguments[0] in self.failing else None)
            case RemoveMarkers(kept):
                for file in kept:
                    files.remove_marker(file.destination)
            case UpdateProgram(environment, changed):
                self.provided.append((environment, changed))


class AgentCase(SynchronousTestCase):
    """A test with a folder for files, into which nobody else can write."""

    def setUp(self) -> None:
        """Make the folder."""
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o755)
        self.server = ServerInMemory()

    def configured(self, text: str, head: str = HEAD, surroundings: Mapping[str, str] | None = None) -> AgentConfiguration:
        """Read a configuration; ``DIR/`` in it is the folder."""
        path = self.folder / "agent.toml"
        path.write_text(f"{head}\n{text}".replace("DIR/", f"{self.folder}/"))
        path.chmod(0o644)
        return read_configuration(path, surroundings or {})

    def refusal(self, text: str, head: str = HEAD, surroundings: Mapping[str, str] | None = None) -> str:
        """Read a configuration that is refused, and return the message."""
        return str(self.assertRaises(BadConfiguration, self.configured, text, head, surroundings))

    def machine(self, text: str, *, program: bool = False, seed: int = 1) -> Machine:
        """A machine that has just been started with this configuration."""
        configuration = self.configured(text)
        chance = random.Random(seed).random
        existing = frozenset(file.name for file in configuration.files if files.file_exists(file.destination))
        return Machine(AgentCore(configuration, existing, chance, program=program), self.server)

    def text_of(self, name: str) -> str:
        """What a file in the folder holds."""
        return (self.folder / name).read_text()

    def names(self) -> set[str]:
        """The names of all files in the folder but the configuration."""
        return set(os.listdir(self.folder)) - {"agent.toml"}
