"""The events that the agent gets and the steps that it takes: the messages between ``svc.agent.core`` and the runner."""

from __future__ import annotations

import attrs

from svc.agent.configuration import Command, FileTarget
from svc.agent.files import FileChange
from svc.agent.source import VariableSnapshot


@attrs.frozen
class VariablesRead:
    """The requested variables were read."""

    snapshot: VariableSnapshot = attrs.field(repr=False)


@attrs.frozen
class ReadFailed:
    """Nothing could be read; ``why`` is a sentence."""

    why: str


@attrs.frozen
class ChangeNotified:
    """The server reported that something may have changed."""


@attrs.frozen
class WatchStopped:
    """The watch has ended; ``why`` is a sentence, ``None`` where it ended as watches do."""

    why: str | None


@attrs.frozen
class FileHandled:
    """A file was checked, and replaced if need be; ``fault`` says why it couldn't."""

    name: str
    change: FileChange | None = None
    fault: str | None = None


@attrs.frozen
class CommandEnded:
    """A command ended; ``fault`` says how it failed."""

    command: Command
    fault: str | None = None


Event = VariablesRead | ReadFailed | ChangeNotified | WatchStopped | FileHandled | CommandEnded


@attrs.frozen
class ReadVariables:
    """Read these variables; answered by ``VariablesRead`` or ``ReadFailed``."""

    ids: frozenset[str]


@attrs.frozen
class WatchVariables:
    """Watch these variables, and no others any more; answered by ``ChangeNotified`` and at its end by ``WatchStopped``."""

    ids: frozenset[str]


@attrs.frozen
class WriteFile:
    """Have a file hold this; answered by ``FileHandled``."""

    file: FileTarget
    content: bytes = attrs.field(repr=False)


@attrs.frozen
class RemoveFile:
    """Remove a file; answered by ``FileHandled``."""

    file: FileTarget


@attrs.frozen
class RunCommand:
    """Run a command; answered by ``CommandEnded``."""

    command: Command


@attrs.frozen
class RemoveMarkers:
    """The commands that these files owed were done: they owe nothing any more."""

    files: tuple[FileTarget, ...]


@attrs.frozen
class UpdateProgram:
    """Have the program run with this environment; ``changed``: its files have changed."""

    environment: dict[str, bytes] = attrs.field(repr=False)
    changed: bool


@attrs.frozen
class LogMessage:
    """Say something to operators. ``level`` is ``info``, ``warning`` or ``error``."""

    level: str
    text: str


Action = ReadVariables | WatchVariables | WriteFile | RemoveFile | RunCommand | RemoveMarkers | UpdateProgram | LogMessage
