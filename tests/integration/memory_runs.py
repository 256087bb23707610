"""Runs many random histories, or tells which mutants random histories find: ``python -m tests.integration.memory_runs``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from twisted.internet import task
from twisted.internet.defer import Deferred

from tests.integration.memory_histories import History
from tests.integration.memory_mutants import of_coarse_names, of_names, of_programs, of_triggers
from tests.integration.memory_world import World, execute
from tests.integration.postgres import Server
from tests.integration.replication import Pair


async def run(
    world: World,
    numbers: Iterable[int],
    pair: Pair | None = None,
    names: Callable[[str, list[str]], list[str]] | None = None,
) -> str | None:
    """Run histories; return what was wrong with the first that was wrong, with all that happened in it.

    :param pair: the primary with the standby, if there is one.
    :param names: which of the names that an answer depends on, of an account, are not forgotten.
    """
    for number in numbers:
        history = History(world, number, pair, names)
        wrong = await history.run()
        if wrong:
            return "\n".join((f"history {number}:", *history.steps, "WRONG:", *wrong[:3]))
    return None


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def _histories(chosen: argparse.Namespace, world: World, pair: Pair | None) -> None:
    """Run so many, and tell how it went."""
    began, wrong, done = time.monotonic(), 0, 0
    for done, number in enumerate(range(chosen.seed, chosen.seed + chosen.count), 1):
        complaint = await run(world, [number], pair)
        if complaint is not None:
            wrong += 1
            _say(complaint)
        if done % 500 == 0:
            _say(f"{done} histories in {time.monotonic() - began:.0f} s, {wrong} wrong")
    _say(f"{done} histories in {time.monotonic() - began:.0f} s, {wrong} wrong")
    for name, process in world.processes.items():
        _say(f"{name}: {process.memory.cache_counts()}")


async def _mutants(chosen: argparse.Namespace, dsn: str) -> None:
    """Look for each mutant for so many seconds, and tell how many histories it took to find it."""
    mutants = (*of_triggers(), *of_names(), *of_coarse_names(), *of_programs())
    for mutant in (each for each in mutants if chosen.only in {"", each.name}):
        world = World(dsn, memory=mutant.memory(), counted=mutant.counted)
        await world.start()
        if mutant.sql:
            await execute(world.others, mutant.sql)
        began, found = time.monotonic(), 0
        for number in count(chosen.seed):
            if await run(world, [number], names=mutant.names):
                found = number + 1 - chosen.seed
            if found or time.monotonic() - began > chosen.mutants:
                break
        if mutant.back:
            await execute(world.others, mutant.back)
        await world.stop()
        _say(f"{mutant.name}: {f'found by history {found}' if found else f'not in {number - chosen.seed}'}")


async def _main(_: Any) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many histories")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first")
    parser.add_argument(
        "--follower",
        action="store_true",
        help="with a standby that servers read from, which takes longer",
    )
    parser.add_argument("--mutants", type=float, default=0.0, help="look for each mutant for so many seconds")
    parser.add_argument("--only", default="", help="look for the mutant with this name alone")
    chosen = parser.parse_args()
    pair = Pair() if chosen.follower else None
    server = Server() if pair is None else pair.primary
    await (server.start() if pair is None else pair.start())
    try:
        primary, standby, hosts = await server.create_database("histories"), None, None
        if pair is not None:
            await pair.caught_up()
            standby, hosts = pair.follower.dsn("histories"), pair.hosts("histories")
        if chosen.mutants:
            await _mutants(chosen, primary)
            return
        world = World(primary, standby, hosts=hosts)
        await world.start()
        await _histories(chosen, world, pair)
        await world.stop()
    finally:
        (pair or server).destroy()


if __name__ == "__main__":
    task.react(lambda reactor: Deferred.fromCoroutine(_main(reactor)))
