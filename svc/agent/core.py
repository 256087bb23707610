"""Decides what the agent does next, from the events so far: without a clock, a socket or a file (AGT-15 to AGT-19).

A round reads all variables as one batch, renders, has each file replaced, runs the commands for the changes, and gives the
program its environment. It begins when the interval has passed, or soon after the server reports a change. Rounds don't
overlap: a change reported meanwhile begins the next one.

Note [Each file by itself]. A file whose values can't be had, or can't be rendered, is left as it is, and the others go on.
Nothing is read, nothing changes: an outage leaves all files as they are.

Note [Logged once]. A problem is logged when it begins, when it changes and when it ends, not in each round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from svc.agent.configuration import AgentConfiguration, EnvironmentEntry, FileTarget
from svc.agent.faults import TemplateFault
from svc.agent.source import VariableSnapshot
from svc.agent.steps import (
    Action,
    ChangeNotified,
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
    WatchStopped,
    WatchVariables,
    WriteFile,
)
from svc.agent.templates import ValueMissing, ValueRefused

#: Seconds before the second try while the server can't be reached; each pause is twice the one before, up to the interval.
BACKOFF: Final = 1.0

#: Seconds after which a watch that failed is tried again, at the most.
WATCH_BACKOFF: Final = 300.0

#: Seconds between the notice of a change and its reading: several changes are one round, and agents don't all read at once.
CHANGE_DELAY: Final = (0.2, 1.0)

#: How often a round reads again because a template requested ids that were not known before.
MAX_DEPTH: Final = 8


@attrs.define
class FileState:
    """How a file stands. ``exists``: it holds something of the agent's; ``problem``: why it isn't up to date."""

    exists: bool = False
    problem: str | None = None
    #: Whether it could be made, but for what the server refuses.
    refused: bool = False
    changed_at: float | None = None


@attrs.frozen
class _RenderedTarget:
    """The content of a file or an entry, or why there is none: the ``problem``, or the id of a value that wasn't read."""

    content: bytes | None = attrs.field(default=None, repr=False)
    problem: str | None = None
    refused: bool = False
    missing_id: str | None = None


@attrs.define
class _Round:
    """One round: its requested and received values, and what is left to do."""

    ids: frozenset[str]
    depth: int = 0  # of ids that weren't known before
    is_reading: bool = True
    pending_files: set[str] = attrs.field(factory=set)
    replaced: bool = False
    pending_commands: dict[tuple[str, ...], list[FileTarget]] = attrs.field(factory=dict)
    running_command: tuple[str, ...] | None = None


class AgentCore:
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
        self._known_ids = configuration.variables
        self.files = {file.name: FileState(exists=file.name in existing) for file in configuration.files}
        self._targets = {file.name: file for file in configuration.files}
        self._discovered_ids: frozenset[str] = frozenset()
        self._used_ids: set[str] = set()
        self._environment: dict[str, bytes] | None = None if configuration.environment else {}
        self.environment_problem: str | None = None
        self.snapshot = VariableSnapshot()
        #: Why nothing can be read at the moment, and since when.
        self.outage: str | None = None
        self.outage_since = 0.0
        self.read_at: float | None = None
        self.rounds = 0
        self._failures = self._watch_failures = 0
        self._round: _Round | None = None
        self._poll_at: float | None = None
        self._change_due_at: float | None = None
        self._watched_ids: frozenset[str] | None = None
        self._watch_retry_at = 0.0
        self._watch_problem: str | None = None
        self._provided_environment: dict[str, bytes] | None = None
        self._command_problems: dict[tuple[str, ...], str] = {}
        self._actions: list[Action] = []

    @property
    def is_ready(self) -> bool:
        """Whether each file is there, of this run or an earlier one, and the environment is complete."""
        complete = self._environment is not None or not self._program
        return complete and all(state.exists for state in self.files.values()) and self.rounds > 0

    @property
    def is_up_to_date(self) -> bool:
        """Whether everything is up to date, as far as the last round knows."""
        problems = [state.problem for state in self.files.values()]
        return self.outage is None and not any((*problems, self.environment_problem, *self._command_problems.values()))

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong, as sentences."""
        found = [
            self.outage,
            self.environment_problem,
            *(s.problem for s in self.files.values()),
            *self._command_problems.values(),
        ]
        return [each for each in found if each is not None]

    @property
    def wake_at(self) -> float | None:
        """When the next step is due without an event; ``None`` while a round is under way."""
        if self._round is not None:
            return None
        moments = self._due_times()
        if self._configuration.watch and self._watched_ids is None and self.snapshot.values and self.outage is None:
            moments.append(self._watch_retry_at)
        return min(moments)

    def handle_events(self, now: float, *events: Event) -> list[Action]:
        """Take in what has happened, and return what to do now, in this order. ``now`` is in seconds, of any clock."""
        self._actions = []
        for event in events:
            match event:
                case VariablesRead(reading):
                    self._handle_snapshot(now, reading)
                case ReadFailed(why):
                    self._handle_read_failure(now, why)
                case ChangeNotified():
                    self._handle_change_notice(now)
                case WatchStopped(why):
                    self._handle_watch_end(now, why)
                case FileHandled():
                    self._handle_file_outcome(now, event)
                case CommandEnded():
                    self._handle_command_end(event)
        self._advance_round(now)
        return self._actions

    def _due_times(self) -> list[float]:
        """Return when the next round may begin: the first moment counts."""
        return [self._poll_at or 0.0, *([self._change_due_at] if self._change_due_at is not None else [])]

    def _log(self, level: str, text: str) -> None:
        self._actions.append(LogMessage(level, text))

    # -- a round ---------------------------------------------------------------------------------------------------------

    def _advance_round(self, now: float) -> None:
        """Go on with the round, or begin one that is due."""
        current = self._round
        if current is None:
            if now >= min(self._due_times()):
                self._change_due_at = None
                self._round = _Round(self._known_ids | self._discovered_ids)
                self._actions.append(ReadVariables(self._round.ids))
            self._update_watch(now)
        elif not current.is_reading and not current.pending_files and current.running_command is None:
            if current.pending_commands:
                arguments = next(iter(current.pending_commands))
                command = current.pending_commands[arguments][0].command
                assert command is not None
                current.running_command = arguments
                self._actions.append(RunCommand(command))
            else:
                self._finish_round(now, current)

    def _finish_round(self, now: float, current: _Round) -> None:
        self._round = None
        self.rounds += 1
        self._update_program(replaced=current.replaced)
        self._update_watch(now)

    def _update_program(self, *, replaced: bool) -> None:
        environment = self._environment
        if (
            self._program
            and environment is not None
            and self.is_ready
            and (replaced or environment != self._provided_environment)
        ):
            self._actions.append(UpdateProgram(environment, replaced))
            self._provided_environment = environment

    def _handle_snapshot(self, now: float, reading: VariableSnapshot) -> None:
        current = self._round
        assert current is not None and current.is_reading
        if self.outage is not None:
            self._log("info", f"reading again, after {format_duration(now - self.outage_since)}")
        self.outage, self._failures, self.read_at = None, 0, now
        self._used_ids.clear()
        files = [(file, self._render_target(file, reading)) for file in self._configuration.files]
        entries = [
            (entry, self._render_target(entry, reading))
            for entry in (self._configuration.environment if self._program else ())
        ]
        wanted = frozenset(made.missing_id for _, made in (*files, *entries) if made.missing_id is not None)
        if wanted and current.depth < MAX_DEPTH:
            current.depth += 1
            current.ids |= wanted
            self._actions.append(ReadVariables(current.ids))
            return
        current.is_reading = False
        self.snapshot = reading
        self._discovered_ids = frozenset(self._used_ids - self._known_ids)
        self._poll_at = now + self._configuration.interval * (0.9 + 0.2 * self._chance())
        self._apply_environment(entries)
        for file, made in files:
            self.files[file.name].refused = made.refused
            if made.content is not None:
                self._actions.append(WriteFile(file, made.content))
            else:
                self._record_file_problem(file.name, made.problem)
                if not (made.refused and file.removed_when_refused):
                    continue
                self._actions.append(RemoveFile(file))
            current.pending_files.add(file.name)

    def _handle_read_failure(self, now: float, why: str) -> None:
        if self.outage is None:
            self.outage_since = now
        if self.outage != why:
            there = "the files stay as they are" if any(s.exists for s in self.files.values()) else "there are no files yet"
            self._log("warning", f"nothing can be read: {why}; {there}")
        self.outage, self._round, self._change_due_at = why, None, None
        self._failures += 1
        pause = min(BACKOFF * 2 ** min(self._failures - 1, 16), self._configuration.interval)
        self._poll_at = now + pause * (0.5 + 0.5 * self._chance())
        self.rounds += 1
        self._update_program(replaced=False)

    def _render_target(self, target: FileTarget | EnvironmentEntry, reading: VariableSnapshot) -> _RenderedTarget:
        """Return the content of a file or an entry, or why it can't be rendered."""
        try:
            if target.template is not None:
                content = target.template.render(reading.values, frozenset(reading.refused), self._used_ids)
            else:
                variable = f"{target.variable}"
                if variable not in reading.values:
                    raise (ValueRefused if variable in reading.refused else ValueMissing)(variable)
                content = reading.values[variable]
        except ValueRefused as needed:
            return _RenderedTarget(problem=f"{needed.variable}: {reading.refused[needed.variable]}", refused=True)
        except ValueMissing as needed:
            return _RenderedTarget(
                problem=f"it asks for ever more variables, now for {needed.variable}", missing_id=needed.variable
            )
        except TemplateFault as fault:
            return _RenderedTarget(problem=str(fault))
        if isinstance(target, EnvironmentEntry) and b"\0" in content:
            return _RenderedTarget(problem="the value holds a NUL byte, which no environment can")
        return _RenderedTarget(content)

    def _apply_environment(self, entries: list[tuple[EnvironmentEntry, _RenderedTarget]]) -> None:
        """Take a new environment, if it is complete."""
        faults = [f"{entry.name} in the environment: {made.problem}" for entry, made in entries if made.content is None]
        problem = faults[0] if faults else None
        if problem is None and self._program:
            self._environment = {entry.name: made.content for entry, made in entries if made.content is not None}
        if problem is not None and problem != self.environment_problem:
            kept = "the program keeps what it has" if self._environment is not None else "the program is not started"
            self._log("warning", f"{problem}; {kept}")
        elif problem is None and self.environment_problem is not None:
            self._log("info", "the environment is complete again")
        self.environment_problem = problem

    def _handle_file_outcome(self, now: float, event: FileHandled) -> None:
        current, state, file = self._round, self.files[event.name], self._targets[event.name]
        assert current is not None
        current.pending_files.discard(event.name)
        if event.change is None:
            self._record_file_problem(event.name, event.fault)
            return
        removed = state.refused
        state.exists = not removed
        if event.change.replaced:
            state.changed_at = now
            current.replaced = True
            self._log("info", f"{'removed' if removed else 'wrote'} {event.name}")
        if not removed:
            self._record_file_problem(event.name, None)
        if event.change.command_due and file.command is not None:
            current.pending_commands.setdefault(file.command.arguments, []).append(file)

    def _record_file_problem(self, name: str, problem: str | None) -> None:
        """Note how a file stands, and say what is new about it (Note [Logged once])."""
        state = self.files[name]
        if problem is not None and problem != state.problem:
            kept = "it stays as it is" if state.exists else "it is not there yet"
            removed = state.refused and self._targets[name].removed_when_refused
            self._log("warning", f"{name} is not up to date: {problem}; {'it is removed' if removed else kept}")
        elif problem is None and state.problem is not None:
            self._log("info", f"{name} is up to date again")
        state.problem = problem

    def _handle_command_end(self, event: CommandEnded) -> None:
        current, arguments = self._round, event.command.arguments
        assert current is not None
        files = current.pending_commands.pop(arguments)
        current.running_command = None
        if event.fault is None:
            self._command_problems.pop(arguments, None)
            self._actions.append(RemoveMarkers(tuple(files)))
            return
        problem = f"the command {arguments[0]} failed: {event.fault}"
        if self._command_problems.get(arguments) != problem:
            self._log("error", f"{problem}; it is tried again in each round")
        self._command_problems[arguments] = problem

    # -- watching --------------------------------------------------------------------------------------------------------

    def _update_watch(self, now: float) -> None:
        """Watch what can be read, unless that is being watched, or failed a moment ago."""
        ids = frozenset(self.snapshot.values)
        if not self._configuration.watch or not ids or self.outage is not None or ids == self._watched_ids:
            return
        if self._watched_ids is None and now < self._watch_retry_at:
            return
        self._watched_ids = ids
        self._actions.append(WatchVariables(ids))

    def _handle_change_notice(self, now: float) -> None:
        self._watch_failures = 0
        if self._watch_problem is not None:
            self._log("info", "the server tells of changes again")
            self._watch_problem = None
        if self._change_due_at is None:
            least, most = CHANGE_DELAY
            self._change_due_at = now + least + (most - least) * self._chance()

    def _handle_watch_end(self, now: float, why: str | None) -> None:
        self._watched_ids = None
        if why is not None and self._watch_problem is None and self.outage is None:
            self._log(
                "warning",
                f"the server does not tell of changes ({why}): it is asked every"
                f" {format_duration(self._configuration.interval)}",
            )
            self._watch_problem = why
        pause = min(BACKOFF * 2 ** min(self._watch_failures, 16), WATCH_BACKOFF)
        self._watch_failures += 1
        self._watch_retry_at = now + pause * (0.5 + 0.5 * self._chance())


def format_duration(seconds: float) -> str:
    """Return a duration in words: ``40 s``, ``12 min``, ``3 h``."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
