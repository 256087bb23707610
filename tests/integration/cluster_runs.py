"""Failovers over and over, under load, and a table of what was noticed of them.

``python -m tests.integration.cluster_runs --count 10`` runs each event ten times (``tests/integration/cluster_events.py``),
and prints the table of ``docs/operations/cluster.md``. ``--event`` chooses some of them, ``--beside`` leaves the servers on
machines of their own out, and ``--logs`` keeps the logs of all programs in a folder.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from tests.integration.cluster_events import Outcome, Scene, described
from tests.integration.cluster_nodes import Cluster, unavailable
from tests.integration.test_cluster import apart


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def run(count: int, events: Sequence[str], settings: str | None, logs: Path | None) -> bool:
    """Have each event happen so often; return whether nothing was lost and no reading failed."""
    cluster = Cluster(apart=settings)
    scene = Scene(cluster)
    outcomes: list[Outcome] = []
    try:
        await scene.start()
        for number in range(count):
            for event in events or scene.events:
                outcome = await scene.happen(event)
                outcomes.append(outcome)
                say(f"{datetime.now(UTC):%H:%M:%S} {number + 1}: {described([outcome])}")
    except Exception:  # what was found until then is worth printing
        traceback.print_exc()
        say(cluster.report())
    finally:
        await scene.stop()
        if logs is not None:
            for log in cluster.folder.glob("*/log/*"):
                kept = logs / log.relative_to(cluster.folder)
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(log, kept)
        await cluster.close()
    say(described(outcomes))
    restarts = {name: [each.restarts for each in node.programs.values()] for name, node in cluster.nodes.items()}
    say(f"restarts by the units: {restarts}")
    say(f"writes on a machine that was cut off, by status: {dict(scene.inside)}")
    return not any(outcome.bad for outcome in outcomes) and len(outcomes) == count * len(events or scene.events)


def main() -> None:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3, help="how often each event happens")
    parser.add_argument("--event", action="append", default=[], help="one of the events alone; may be repeated")
    parser.add_argument("--beside", action="store_true", help="without servers on machines of their own")
    parser.add_argument("--logs", type=Path, help="a folder to keep the logs in")
    options = parser.parse_args()
    if (why := unavailable()) is not None:
        sys.exit(why)
    settings = None if options.beside else apart()

    async def running(_: Any) -> None:
        if not await run(options.count, options.event, settings, options.logs):
            sys.exit(1)

    react(lambda reactor: Deferred.fromCoroutine(running(reactor)))


if __name__ == "__main__":
    main()
