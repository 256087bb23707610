"""The events that the agent gets and the steps that it takes: the messages between ``svc.agent.core`` and the runner."""

from __future__ import annotations

import attrs

from svc.agent.configuration import Command, FileTarget
from svc.agent.files import Placed
from svc.agent.source import VariableReading


@attrs.frozen
class Answered:
    """The requested variables were read."""

    reading: VariableReading = attrs.field(repr=False)


@attrs.frozen
class NothingRead:
    """Nothing could be read; ``why`` is a sentence."""

    why: str


@attrs.frozen
class ChangeTold:
    """The server reported that something may have changed."""


@attrs.frozen
class Unwatched:
    """The watch has ended; ``why`` is a sentence, ``None`` where it ended as watches do."""

    why: str | None


@attrs.frozen
class Settled:
    """A file was checked, and replaced if need be; ``fault`` says why it couldn't."""

    name: str
    placed: Placed | None = None
    fault: str | None = None


@attrs.frozen
class Ran:
    """A command ended; ``fault`` says how it failed."""

    command: Command
    fault: str | None = None


Event = Answered | NothingRead | ChangeTold | Unwatched | Settled | Ran


@attrs.frozen
class Ask:
    """Read these variables; answered by ``Answered`` or ``NothingRead``."""

    ids: frozenset[str]


@attrs.frozen
class WatchFor:
    """Watch these variables, and no others any more; answered by ``ChangeTold`` and at its end by ``Unwatched``."""

    ids: frozenset[str]


@attrs.frozen
class Put:
    """Have a file hold this; answered by ``Settled``."""

    file: FileTarget
    content: bytes = attrs.field(repr=False)


@attrs.frozen
class TakeAway:
    """Remove a file; answered by ``Settled``."""

    file: FileTarget


@attrs.frozen
class Run:
    """Run a command; answered by ``Ran``."""

    command: Command


@attrs.frozen
class Done:
    """The commands that these files owed were done: they owe nothing any more."""

    files: tuple[FileTarget, ...]


@attrs.frozen
class Provide:
    """Have the program run with this environment; ``changed``: its files have changed."""

    environment: dict[str, bytes] = attrs.field(repr=False)
    changed: bool


@attrs.frozen
class Note:
    """Say something to operators. ``level`` is ``info``, ``warning`` or ``error``."""

    level: str
    text: str


Action = Ask | WatchFor | Put | TakeAway | Run | Done | Provide | Note
