"""Decides what the agent does next, from the events so far: without a clock, a socket or a file (AGT-15 to AGT-19).

A round reads all variables as one batch, renders, has each file replaced, runs the commands for the changes, and gives the
program its environment. It begins when the interval has passed, or soon after the server reports a change. Rounds don't
overlap: a change reported meanwhile begins the next one.

Note [Each file by itself]. A file whose values can't be had, or can't be rendered, is left as it is, and the others go on.
Nothing is read, nothing changes: an outage leaves all files as they are.

Note [Said once]. A problem is logged when it begins, when it changes and when it ends, not in each round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from svc.agent.configuration import AgentConfiguration, EnvironmentEntry, FileTarget
from svc.agent.faults import TemplateFault
from svc.agent.source import VariableReading
from svc.agent.steps import (
    Action,
    Answered,
    Ask,
    ChangeTold,
    Done,
    Event,
    Note,
    NothingRead,
    Provide,
    Put,
    Ran,
    Run,
    Settled,
    TakeAway,
    Unwatched,
    WatchFor,
)
from svc.agent.templates import ValueRefused, Wanted

#: Seconds before the second try while the server can't be reached; each pause is twice the one before, up to the interval.
BACKOFF: Final = 1.0

#: Seconds after which a watch that failed is tried again, at the most.
WATCH_BACKOFF: Final = 300.0

#: Seconds between the notice of a change and its reading: several changes are one round, and agents don't all read at once.
GATHERING: Final = (0.2, 1.0)

#: How often a round reads again because a template requested ids that were not known before.
DEPTH: Final = 8


@attrs.define
class FileState:
    """How a file stands. ``there``: it holds something of the agent's; ``problem``: why it isn't up to date."""

    there: bool = False
    problem: str | None = None
    #: Whether it could be made, but for what the server refuses.
    refused: bool = False
    changed_at: float | None = None


@attrs.frozen
class _Made:
    """The content of a file or an entry, or why there is none: the ``problem``, or the id of a value that wasn't read."""

    content: bytes | None = attrs.field(default=None, repr=False)
    problem: str | None = None
    refused: bool = False
    wanted: str | None = None


@attrs.define
class _Round:
    """One round: its requested and received values, and what is left to do."""

    ids: frozenset[str]
    depth: int = 0  # of ids that weren't known before
    asking: bool = True
    placing: set[str] = attrs.field(factory=set)
    replaced: bool = False
    owed: dict[tuple[str, ...], list[FileTarget]] = attrs.field(factory=dict)
    running: tuple[str, ...] | None = None


class Core:
    """The agent's decisions.

    :param existing: names of the files that are there already, of an earlier run.
    :param chance: returns random numbers of [0, 1).
    :param program: whether there is a program to provide with an environment.
    """

    def __init__(
        self,
        configuration: AgentConfiguration,
        existing: frozenset[str],
        chance: Callable[[], float],
        *,
        program: bool = False,
    ) -> None:
        self._configuration, self._chance, self._program = configuration, chance, program
        self._static = configuration.variables
        self.files = {file.name: FileState(there=file.name in existing) for file in configuration.files}
        self._targets = {file.name: file for file in configuration.files}
        self._more: frozenset[str] = frozenset()
        self._used: set[str] = set()
        self._environment: dict[str, bytes] | None = None if configuration.environment else {}
        self.environment_problem: str | None = None
        self.reading = VariableReading()
        #: Why nothing can be read at the moment, and since when.
        self.away: str | None = None
        self.away_since = 0.0
        self.read_at: float | None = None
        self.rounds = 0
        self._failures = self._watch_failures = 0
        self._round: _Round | None = None
        self._poll_at: float | None = None
        self._told_at: float | None = None
        self._watched: frozenset[str] | None = None
        self._watch_at = 0.0
        self._watch_problem: str | None = None
        self._provided: dict[str, bytes] | None = None
        self._commands: dict[tuple[str, ...], str] = {}
        self._actions: list[Action] = []

    @property
    def ready(self) -> bool:
        """Whether each file is there, of this run or an earlier one, and the environment is complete."""
        complete = self._environment is not None or not self._program
        return complete and all(state.there for state in self.files.values()) and self.rounds > 0

    @property
    def well(self) -> bool:
        """Whether everything is up to date, as far as the last round knows."""
        problems = [state.problem for state in self.files.values()]
        return self.away is None and not any((*problems, self.environment_problem, *self._commands.values()))

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong, as sentences."""
        found = [self.away, self.environment_problem, *(s.problem for s in self.files.values()), *self._commands.values()]
        return [each for each in found if each is not None]

    @property
    def wake_at(self) -> float | None:
        """When the next step is due without an event; ``None`` while a round is under way."""
        if self._round is not None:
            return None
        moments = self._due()
        if self._configuration.watch and self._watched is None and self.reading.values and self.away is None:
            moments.append(self._watch_at)
        return min(moments)

    def step(self, now: float, *events: Event) -> list[Action]:
        """Take in what has happened, and return what to do now, in this order. ``now`` is in seconds, of any clock."""
        self._actions = []
        for event in events:
            match event:
                case Answered(reading):
                    self._answered(now, reading)
                case NothingRead(why):
                    self._unanswered(now, why)
                case ChangeTold():
                    self._told(now)
                case Unwatched(why):
                    self._unwatched(now, why)
                case Settled():
                    self._settled(now, event)
                case Ran():
                    self._ran(event)
        self._proceed(now)
        return self._actions

    def _due(self) -> list[float]:
        """Return when the next round may begin: the first moment counts."""
        return [self._poll_at or 0.0, *([self._told_at] if self._told_at is not None else [])]

    def _say(self, level: str, text: str) -> None:
        self._actions.append(Note(level, text))

    # -- a round ---------------------------------------------------------------------------------------------------------

    def _proceed(self, now: float) -> None:
        """Go on with the round, or begin one that is due."""
        current = self._round
        if current is None:
            if now >= min(self._due()):
                self._told_at = None
                self._round = _Round(self._static | self._more)
                self._actions.append(Ask(self._round.ids))
            self._watch(now)
        elif not current.asking and not current.placing and current.running is None:
            if current.owed:
                arguments = next(iter(current.owed))
                command = current.owed[arguments][0].command
                assert command is not None
                current.running = arguments
                self._actions.append(Run(command))
            else:
                self._finish(now, current)

    def _finish(self, now: float, current: _Round) -> None:
        self._round = None
        self.rounds += 1
        self._provide(replaced=current.replaced)
        self._watch(now)

    def _provide(self, *, replaced: bool) -> None:
        environment = self._environment
        if self._program and environment is not None and self.ready and (replaced or environment != self._provided):
            self._actions.append(Provide(environment, replaced))
            self._provided = environment

    def _answered(self, now: float, reading: VariableReading) -> None:
        current = self._round
        assert current is not None and current.asking
        if self.away is not None:
            self._say("info", f"reading again, after {lasting(now - self.away_since)}")
        self.away, self._failures, self.read_at = None, 0, now
        self._used.clear()
        files = [(file, self._make(file, reading)) for file in self._configuration.files]
        entries = [
            (entry, self._make(entry, reading)) for entry in (self._configuration.environment if self._program else ())
        ]
        wanted = frozenset(made.wanted for _, made in (*files, *entries) if made.wanted is not None)
        if wanted and current.depth < DEPTH:
            current.depth += 1
            current.ids |= wanted
            self._actions.append(Ask(current.ids))
            return
        current.asking = False
        self.reading = reading
        self._more = frozenset(self._used - self._static)
        self._poll_at = now + self._configuration.interval * (0.9 + 0.2 * self._chance())
        self._take_environment(entries)
        for file, made in files:
            self.files[file.name].refused = made.refused
            if made.content is not None:
                self._actions.append(Put(file, made.content))
            else:
                self._judge(file.name, made.problem)
                if not (made.refused and file.removed_when_refused):
                    continue
                self._actions.append(TakeAway(file))
            current.placing.add(file.name)

    def _unanswered(self, now: float, why: str) -> None:
        if self.away is None:
            self.away_since = now
        if self.away != why:
            there = "the files stay as they are" if any(s.there for s in self.files.values()) else "there are no files yet"
            self._say("warning", f"nothing can be read: {why}; {there}")
        self.away, self._round, self._told_at = why, None, None
        self._failures += 1
        pause = min(BACKOFF * 2 ** min(self._failures - 1, 16), self._configuration.interval)
        self._poll_at = now + pause * (0.5 + 0.5 * self._chance())
        self.rounds += 1
        self._provide(replaced=False)

    def _make(self, target: FileTarget | EnvironmentEntry, reading: VariableReading) -> _Made:
        """Return the content of a file or an entry, or why it can't be rendered."""
        try:
            if target.template is not None:
                content = target.template.render(reading.values, frozenset(reading.refused), self._used)
            else:
                variable = f"{target.variable}"
                if variable not in reading.values:
                    raise (ValueRefused if variable in reading.refused else Wanted)(variable)
                content = reading.values[variable]
        except ValueRefused as needed:
            return _Made(problem=f"{needed.variable}: {reading.refused[needed.variable]}", refused=True)
        except Wanted as needed:
            return _Made(problem=f"it asks for ever more variables, now for {needed.variable}", wanted=needed.variable)
        except TemplateFault as fault:
            return _Made(problem=str(fault))
        if isinstance(target, EnvironmentEntry) and b"\0" in content:
            return _Made(problem="the value holds a NUL byte, which no environment can")
        return _Made(content)

    def _take_environment(self, entries: list[tuple[EnvironmentEntry, _Made]]) -> None:
        """Take a new environment, if it is complete."""
        faults = [f"{entry.name} in the environment: {made.problem}" for entry, made in entries if made.content is None]
        problem = faults[0] if faults else None
        if problem is None and self._program:
            self._environment = {entry.name: made.content for entry, made in entries if made.content is not None}
        if problem is not None and problem != self.environment_problem:
            kept = "the program keeps what it has" if self._environment is not None else "the program is not started"
            self._say("warning", f"{problem}; {kept}")
        elif problem is None and self.environment_problem is not None:
            self._say("info", "the environment is complete again")
        self.environment_problem = problem

    def _settled(self, now: float, event: Settled) -> None:
        current, state, file = self._round, self.files[event.name], self._targets[event.name]
        assert current is not None
        current.placing.discard(event.name)
        if event.placed is None:
            self._judge(event.name, event.fault)
            return
        removed = state.refused
        state.there = not removed
        if event.placed.replaced:
            state.changed_at = now
            current.replaced = True
            self._say("info", f"{'removed' if removed else 'wrote'} {event.name}")
        if not removed:
            self._judge(event.name, None)
        if event.placed.owed and file.command is not None:
            current.owed.setdefault(file.command.arguments, []).append(file)

    def _judge(self, name: str, problem: str | None) -> None:
        """Note how a file stands, and say what is new about it (Note [Said once])."""
        state = self.files[name]
        if problem is not None and problem != state.problem:
            kept = "it stays as it is" if state.there else "it is not there yet"
            removed = state.refused and self._targets[name].removed_when_refused
            self._say("warning", f"{name} is not up to date: {problem}; {'it is removed' if removed else kept}")
        elif problem is None and state.problem is not None:
            self._say("info", f"{name} is up to date again")
        state.problem = problem

    def _ran(self, event: Ran) -> None:
        current, arguments = self._round, event.command.arguments
        assert current is not None
        files = current.owed.pop(arguments)
        current.running = None
        if event.fault is None:
            self._commands.pop(arguments, None)
            self._actions.append(Done(tuple(files)))
            return
        problem = f"the command {arguments[0]} failed: {event.fault}"
        if self._commands.get(arguments) != problem:
            self._say("error", f"{problem}; it is tried again in each round")
        self._commands[arguments] = problem

    # -- watching --------------------------------------------------------------------------------------------------------

    def _watch(self, now: float) -> None:
        """Watch what can be read, unless that is being watched, or failed a moment ago."""
        ids = frozenset(self.reading.values)
        if not self._configuration.watch or not ids or self.away is not None or ids == self._watched:
            return
        if self._watched is None and now < self._watch_at:
            return
        self._watched = ids
        self._actions.append(WatchFor(ids))

    def _told(self, now: float) -> None:
        self._watch_failures = 0
        if self._watch_problem is not None:
            self._say("info", "the server tells of changes again")
            self._watch_problem = None
        if self._told_at is None:
            least, most = GATHERING
            self._told_at = now + least + (most - least) * self._chance()

    def _unwatched(self, now: float, why: str | None) -> None:
        self._watched = None
        if why is not None and self._watch_problem is None and self.away is None:
            self._say(
                "warning",
                f"the server does not tell of changes ({why}): it is asked every {lasting(self._configuration.interval)}",
            )
            self._watch_problem = why
        pause = min(BACKOFF * 2 ** min(self._watch_failures, 16), WATCH_BACKOFF)
        self._watch_failures += 1
        self._watch_at = now + pause * (0.5 + 0.5 * self._chance())


def lasting(seconds: float) -> str:
    """Return a duration in words: ``40 s``, ``12 min``, ``3 h``."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
