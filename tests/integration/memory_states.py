"""The states that a database went through in a history, and whether an answer is one that it gave in the time allowed."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tests.integration.memory_world import Remembering


@attrs.define
class State:
    """A state of the database, by the change that led to it: not in force before ``began``, surely at ``ended``.

    ``server`` is the one that confirmed it to somebody; ``replayed`` is when the standby surely had it. The answers of a
    ``vague`` state are not known, since it ended while they were asked for. Who knows the state before has to know at once
    what is ``everywhere``: what the database's clock does.
    """

    what: str
    began: float
    ended: float
    server: str = ""
    replayed: float | None = None
    vague: bool = False
    everywhere: bool = False
    answers: dict[str, object] = attrs.field(factory=dict, repr=False)


@attrs.frozen
class Told:
    """An answer that a process gave to a request."""

    process: Remembering
    reading: str
    began: float
    ended: float
    answer: object


def is_right(states: Sequence[State], told: Told) -> bool:
    """Return whether an answer is one that the database gave in a state that is allowed."""
    return any(state.vague or state.answers[told.reading] == told.answer for state in _allowed(states, told))


def complaint(states: Sequence[State], told: Told) -> str:
    """Return what is wrong with an answer."""
    allowed = [(state.what, state.answers[told.reading]) for state in _allowed(states, told)]
    return f"{told.process.name} told {told.reading}: {told.answer}; allowed was {allowed}"


def _allowed(states: Sequence[State], told: Told) -> Sequence[State]:
    """Return the states from the last that the process had to know of, up to the last that can have been in force."""
    process, first, last = told.process, 0, 0
    for number, state in enumerate(states):
        # Of what another server wrote, readings from a standby see what that has replayed.
        on_standby = process.server == "follower" or (process.server == "split" and state.server != "split")
        known = state.replayed if on_standby else state.ended
        lag = 0.0 if state.server == process.server else process.lag
        at_once = state.everywhere and first == number - 1 and not on_standby
        if (known is not None and known + lag <= told.began) or (at_once and state.ended <= told.began):
            first = number
        if state.began <= told.ended:
            last = number
    return states[first : last + 1]
