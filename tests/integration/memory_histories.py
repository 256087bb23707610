"""Random histories of changes and of readings that are remembered, judged by what the database itself answers.

A history is of one account. All that changes is changed by this process, one change after the other, so that for each state
of the database it is known when it was not yet in force and when it surely was; and for each state the plain database is
asked what is asked of memory. An answer is wrong that the database gave in none of the states allowed: from the last one
that the reader has to know of when the request begins (those that its server confirmed, and all others that are older than
the lag) to the last that can have been in force when the answer came.

Readings and looks are held back at random, before they are sent and after they were answered; transactions stay open;
sessions are lost; time is skipped. ``python -m tests.integration.memory_runs`` runs many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final

import attrs
from twisted.internet.defer import Deferred

from svc.model.errors import Refusal
from svc.storage.driver.failures import StatementFailed
from svc.storage.driver.statements import Transaction
from tests.integration.memory_changes import ENDED, ENDING, OF_OTHERS, OF_SERVERS, SLOW, Kind, Maker, load_elsewhere
from tests.integration.memory_mutants import Case, of_names, of_triggers
from tests.integration.memory_readings import Reading, answered, crowd, prepared, readings
from tests.integration.memory_states import State, Told, complaint, is_right
from tests.integration.memory_world import LONG, SHORT, Gate, Remembering, StoresThrough, World, execute, turn
from tests.integration.replication import Pair

#: How many readings a history has, and how many steps at most.
READINGS: Final = 7
STEPS: Final = 14

#: The part of all changes that servers make.
_BY_SERVERS: Final = 0.6

#: Changes nothing, but for what is remembered: nearly all is forgotten.
TOUCH: Final = "UPDATE roles SET creation = creation WHERE role_id LIKE '{a}:%'"

#: Changes in plain SQL, each with a reading that it changes.
CASES: Final = [mutant.case for mutant in (*of_triggers(), *of_names()) if "TRUNCATE" not in mutant.case.change[0]]


@attrs.define
class Pending:
    """A request under way."""

    process: Remembering
    reading: str
    began: float
    done: Deferred[None]
    gate: Gate | None


class History:
    """One history, of a number that tells all of its chances."""

    def __init__(
        self,
        world: World,
        number: int,
        pair: Pair | None = None,
        names: Callable[[str, list[str]], list[str]] | None = None,
    ) -> None:
        self._world = world
        self._pair, self._paused = pair, False
        self._chance = Random(number)
        self.account = f"h{number}-{time.monotonic_ns()}"
        self.steps: list[str] = []
        self.states: list[State] = []
        self.told: list[Told] = []
        self._pending: list[Pending] = []
        self._held: dict[str, Gate] = {}
        self._slow: tuple[str, Gate, Deferred[None]] | None = None
        self._readings: Mapping[str, Reading] = {}
        self._cases: list[Case] = []
        self._others = 0
        if names is not None:
            for process in world.processes.values():
                process.database.names = partial(names, self.account)

    # -- what a history consists of

    async def run(self) -> list[str]:
        """Run it; return what was wrong."""
        judge = StoresThrough(self._world.judge, self._world.judge)
        creation = await prepared(judge, self.account)
        if self._chance.random() < 0.2:
            await crowd(self._world.judge, self.account)
        self._cases = self._chance.sample(CASES, READINGS // 2)
        for case in self._cases:
            with suppress(StatementFailed):
                await execute(self._world.others, *(sql.replace("{a}", self.account) for sql in case.before))
        found = readings(self.account, creation)
        names = {*(case.reading for case in self._cases), *self._chance.sample(sorted(found), READINGS - len(self._cases))}
        self._readings = {name: found[name] for name in sorted(names)}
        await self._note("the beginning", self._now())
        if self._pair is not None:
            await self._replayed()
        self._world.clock.skip(2 * SHORT)
        for process in self._world.processes.values():
            await self._ask(process, *self._readings)
        for _ in range(self._chance.randint(5, STEPS)):
            await self._step()
        await self._end()
        return self._wrong()

    async def _step(self) -> None:
        (step,) = self._chance.choices(
            (
                *(self._change, self._read, self._begin_one, self._release, self._skip, self._hold_look, self._lose),
                *(self._open, self._overtake, self._join, self._pause),
            ),
            (6, 5, 4, 3, 2, 2, 0.3, 1, 1, 1, 0 if self._pair is None else 2),
        )
        await step()

    async def _change(self) -> None:
        """Change something, while readings are under way."""
        if self._chance.random() < 0.07 and self._slow is None:
            await self._let_end()
            return
        begun = [self._ask_later(self._process(), self._chance.choice(sorted(self._readings))) for _ in range(2)]
        server, kind, stores = "", self._kind(OF_OTHERS), StoresThrough(self._world.others, self._world.others)
        process = self._world.processes[self._chance.choice("aabbcsstt" if "s" in self._world.processes else "aabbc")]
        draw = self._chance.random()
        if draw >= _BY_SERVERS and self._chance.random() < 0.6:
            kind = self._one_case
        if self._slow is not None:
            # The open transaction has rows locked: what could wait for it doesn't happen meanwhile.
            kind = next(kind for kind in OF_SERVERS if kind.__name__ in {"_write_several", "_operate"})
        if self._slow is not None or draw < _BY_SERVERS:
            if self._slow is None:
                kind = self._kind(OF_SERVERS) if draw < 0.9 * _BY_SERVERS else load_elsewhere
            server, stores = process.server, process.stores
        began, failed, counted = self._now(), "", bool(server)
        self._others += 100

        async def passed() -> None:
            await self._note(f"{kind.__name__.strip('_')} goes on", began, server)

        try:
            await kind(Maker(self._chance, self.account, stores, self._world.others, self._others, passed))
        except (Refusal, StatementFailed) as refusal:
            # Nothing was confirmed to anybody.
            failed, server = f", which failed: {type(refusal).__name__}", ""
        if kind is load_elsewhere:
            # As the process that loaded it tells.
            process.slots.count_commit(confirmed=True, version=await self._world.version())
        await self._note(f"{kind.__name__.strip('_')} by {process.name if counted else 'psql'}{failed}", began, server)
        for each in begun:
            await self._settle(each)

    async def _one_case(self, make: Maker) -> None:
        """Change one thing that changes what somebody asks for."""
        await make.sql(*self._chance.choice(self._cases).change)

    async def _let_end(self) -> None:
        """Write values that end soon, and wait for their end."""
        began = self._now()
        await execute(self._world.others, ENDING.replace("{a}", self.account))
        await self._note("values that end soon", began)
        self.states[-1].vague = not (await self._ended())[0]
        self._world.clock.skip(LONG + 1)
        for process in self._free():
            await self._ask(process, *self._readings)
        began = self._now()
        if not (await self._ended())[0]:
            self.states[-1].vague = True
        while not (await self._ended())[1]:
            await turn(0.02)
        await self._note("they have ended", began)
        self.states[-1].everywhere = True
        for process in self._free():
            await self._ask(process, *self._readings)

    async def _ended(self) -> tuple[bool, bool]:
        ((none, all_),) = await self._world.judge.fetch(ENDED, self.account)
        return none, all_

    async def _read(self) -> None:
        process = self._process()
        await self._ask(process, *self._chance.choices(sorted(self._readings), k=3))

    async def _begin_one(self) -> None:
        await self._begin(self._process(), self._chance.choice(sorted(self._readings)), before=self._chance.random() < 0.5)

    async def _begin(self, process: Remembering, reading: str, *, before: bool) -> Pending | None:
        """Begin a reading that is held back, before it is sent or when it was answered; ``None`` when it is answered."""
        gate = Gate(before=before)
        process.database.gates[:] = [gate]
        pending = self._ask_later(process, reading, gate)
        while not gate.taken and not pending.done.called and process.name not in self._held:
            await turn()
        process.database.gates.clear()
        if not gate.taken and process.name not in self._held:
            await pending.done
            self._pending.remove(pending)
            return None
        return pending

    async def _release(self) -> None:
        """Let something go on that was held back."""
        if self._slow is not None and self._chance.random() < 0.4:
            await self._commit_slow()
        elif self._held and self._chance.random() < 0.4:
            name = self._chance.choice(sorted(self._held))
            self.steps.append(f"the look of {name} goes on")
            self._held.pop(name).open()
            await self._settle_of(name)
        elif self._pending:
            pending = self._chance.choice(self._pending)
            if pending.process.name not in self._held:
                self.steps.append(f"{pending.process.name} goes on with {pending.reading}")
                await self._settle(pending)

    async def _overtake(self) -> None:
        """Have a change overtake a reading whose answer is held back, and the reading after it come from memory."""
        process, case = self._process(), self._chance.choice(self._cases)
        if self._slow is not None or process.name in self._held:
            return
        touched, changed = ("touch", (TOUCH,)), ("one case", case.change)
        pending: Pending | None = None
        for what, statements in (touched, changed):
            began = self._now()
            with suppress(StatementFailed):
                await execute(self._world.others, *(sql.replace("{a}", self.account) for sql in statements))
            await self._note(f"{what} by psql", began)
            self._world.clock.skip(SHORT * 1.1 if process.lag == SHORT else LONG * 1.1)
            await self._ask(process, self._chance.choice(sorted(self._readings)))
            if pending is None:
                pending = await self._begin(process, case.reading, before=False)
        if pending is not None:
            await self._settle(pending)
        await self._ask(process, case.reading)

    async def _join(self) -> None:
        """Have a change happen, and be known, while a request waits for a look; then another request comes."""
        process, case = self._process(), self._chance.choice(self._cases)
        if self._slow is not None or process.name in self._held:
            return
        gate = Gate()
        await self._ask(process, case.reading)
        self._world.clock.skip(process.lag + 1)
        process.database.look_gates[:] = [gate]
        requests = [self._ask_later(process, case.reading)]
        while not gate.taken and not requests[0].done.called:
            await turn()
        began, server = self._now(), "one" if process.server == "one" else ""
        with suppress(StatementFailed):
            await execute(self._world.others, *(sql.replace("{a}", self.account) for sql in case.change))
        if server:
            process.slots.count_commit(confirmed=True)
        await self._note(f"{case.change} by {server or 'psql'}", began, server)
        if not server:
            self._world.clock.skip(SHORT + 0.1)
        if self._chance.random() < 0.5:
            requests.append(self._ask_later(process, case.reading))
        gate.open()
        process.database.look_gates.clear()
        for each in requests:
            await self._settle(each)
        await self._ask(process, case.reading)

    async def _skip(self) -> None:
        seconds = self._chance.choice((SHORT / 4, SHORT * 0.6, SHORT * 1.1, LONG * 1.1))
        self.steps.append(f"{seconds:g} s later")
        self._world.clock.skip(seconds)

    async def _hold_look(self) -> None:
        """Hold back the answer to the next look of a process."""
        process = self._process()
        if process.name in self._held:
            return
        gate = Gate()
        process.database.look_gates[:] = [gate]
        self._held[process.name] = gate
        self.steps.append(f"the next look of {process.name} is held back")

    async def _lose(self) -> None:
        """End a session that looks."""
        process = self._process()
        if process.name in self._held:
            return
        self.steps.append(f"{process.name} loses its session")
        await self._world.lose(process)
        if self._chance.random() < 0.5:
            await self._world.looked(process)

    async def _open(self) -> None:
        """Begin a transaction that writes, and leave it open."""
        if self._slow is not None:
            return
        gate, sql = Gate(), self._chance.choice(SLOW).replace("{a}", self.account)
        wrote: Deferred[None] = Deferred()

        async def work(transaction: Transaction) -> None:
            await transaction.execute(sql)
            wrote.callback(None)
            await gate.passed()

        self.steps.append("a transaction begins")
        done = Deferred.fromCoroutine(self._world.others.transact(work))
        await wrote
        self._slow = (sql, gate, done)

    async def _commit_slow(self) -> None:
        assert self._slow is not None
        (_, gate, done), self._slow = self._slow, None
        began = self._now()
        gate.open()
        await done
        await self._note("the open transaction commits", began)

    async def _end(self) -> None:
        """Let everything go on, and ask everything once more when all have to know of the last change."""
        if self._slow is not None:
            await self._commit_slow()
        for name in sorted(self._held):
            self._held.pop(name).open()
            self._world.processes[name].database.look_gates.clear()
        for pending in tuple(self._pending):
            await self._settle(pending)
        if self._pair is not None:
            await self._replayed()
        self._world.clock.skip(2 * SHORT)
        for process in self._world.processes.values():
            await self._ask(process, *self._readings)
        self._world.clock.skip(LONG + 1)
        for process in self._world.processes.values():
            await self._ask(process, *self._readings)

    # -- requests

    def _now(self) -> float:
        return self._world.clock.seconds()

    def _kind(self, kinds: Mapping[Kind, int]) -> Kind:
        return self._chance.choices(tuple(kinds), tuple(kinds.values()))[0]

    def _process(self) -> Remembering:
        return self._world.processes[self._chance.choice(sorted(self._world.processes))]

    def _free(self) -> list[Remembering]:
        return [process for name, process in self._world.processes.items() if name not in self._held]

    def _ask_later(self, process: Remembering, reading: str, gate: Gate | None = None) -> Pending:
        """Begin a request, to be settled later."""
        began = self._now()

        async def ask() -> None:
            answer = await answered(self._readings[reading], process.stores)
            self.told.append(Told(process, reading, began, self._now(), answer))

        self.steps.append(f"{process.name} is asked for {reading}{'' if gate is None else ', held back'}")
        pending = Pending(process, reading, began, Deferred.fromCoroutine(ask()), gate)
        self._pending.append(pending)
        return pending

    async def _ask(self, process: Remembering, *names: str) -> None:
        """Have requests answered at the same time; those that wait for a look which is held back stay under way."""
        for each in [self._ask_later(process, name) for name in names]:
            await self._settle(each)

    async def _settle(self, pending: Pending) -> None:
        if pending.process.name in self._held or pending not in self._pending:
            return
        if pending.gate is not None:
            # One that was begun while a look was held back may have come to the gate of another.
            for each in self._pending:
                if each is pending or (each.process is pending.process and not pending.gate.taken and each.gate is not None):
                    assert each.gate is not None
                    each.gate.open()
        await pending.done
        self._pending.remove(pending)

    async def _settle_of(self, name: str) -> None:
        self._world.processes[name].database.look_gates.clear()
        for pending in tuple(self._pending):
            if pending.process.name == name and pending.gate is None:
                await self._settle(pending)

    # -- judging

    async def _note(self, what: str, began: float, server: str = "") -> None:
        """Note the state that a change has led to, and what the database answers there."""
        state = State(what, began, self._now(), server)
        self.steps.append(what)
        plain = StoresThrough(self._world.judge, self._world.judge)
        asked = {name: Deferred.fromCoroutine(answered(each, plain)) for name, each in self._readings.items()}
        state.answers = {name: await answer for name, answer in asked.items()}
        self.states.append(state)
        if self._pair is not None and self._chance.random() < 0.5:
            await self._replayed()

    async def _pause(self) -> None:
        """Have the standby replay no more, for a while; meanwhile the server that reads from it changes something."""
        assert self._pair is not None
        split = [process for process in self._free() if process.server == "split"]
        if self._slow is not None or not split:
            return
        case = self._chance.choice(self._cases)
        for process in split:
            await self._ask(process, case.reading)
        self.steps.append("replay is paused")
        self._pair.pause()
        self._paused = True
        began = self._now()
        with suppress(StatementFailed):
            await execute(self._world.others, *(sql.replace("{a}", self.account) for sql in case.change))
        self._chance.choice(split).slots.count_commit(confirmed=True, version=await self._world.version())
        await self._note(f"{case.change} by split", began, "split")
        for process in split:
            await self._ask(process, case.reading)

    async def _replayed(self) -> None:
        assert self._pair is not None
        if self._paused:
            self._pair.resume()
            self._paused = False
        await self._pair.caught_up()
        for state in self.states:
            if state.replayed is None:
                state.replayed = self._now()

    def _wrong(self) -> list[str]:
        return [complaint(self.states, told) for told in self.told if not is_right(self.states, told)]
