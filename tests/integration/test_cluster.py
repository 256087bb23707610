"""A cluster of ``docs/operations/cluster.md``, with the files of ``etc/``: machines die, and nobody has to be called."""

from __future__ import annotations

import re
from typing import Final

from twisted.trial.unittest import TestCase

from tests.integration.cluster_events import Scene, described
from tests.integration.cluster_nodes import ETC, Cluster, divisible, unavailable

PAGE: Final = ETC.parent / "docs" / "operations" / "cluster.md"

#: How long no change may be acknowledged, in seconds, on a machine that does much else; the page has what takes how long.
LONGEST: Final = 90.0

#: What happens, in its order. The last one takes a network that can be cut.
EVENTS: Final = (
    "planned switchover",
    "the synchronous standby killed",
    "the primary killed",
    "the former primary comes back",
    "etcd gone",
)


def apart() -> str:
    """The settings of the database of servers on machines of their own, as the page shows them."""
    found: list[str] = re.findall(
        r"(?m)^```toml\n(database_url = .*\nread_from = .*\n)```$", PAGE.read_text(encoding="utf-8")
    )
    (settings,) = found
    return settings


class ClusterTests(TestCase):
    """Three machines, two proxies, and clients that never stop."""

    skip = unavailable()
    timeout = 900

    async def test_events(self) -> None:
        """No acknowledged write is lost, no reading fails, and writes go on in time, whatever happens to one machine or
        to etcd, without a hand (CLU-1, CLU-2, CLU-5, CLU-12).
        """
        await self.assert_survives(EVENTS)

    async def test_cut_off(self) -> None:
        """The same for a primary that is cut off from the others, which acknowledges nothing meanwhile (CLU-16)."""
        await self.assert_survives(("the primary cut off",))

    async def assert_survives(self, events: tuple[str, ...]) -> None:
        """Have these events happen."""
        cluster = Cluster(apart=apart())
        self.addCleanup(cluster.close)
        scene = Scene(cluster)
        await scene.start()
        self.addCleanup(scene.stop)
        for event in events:
            outcome = await scene.happen(event)
            said = f"{described([outcome])}\n{cluster.report()}"
            self.assertEqual((outcome.lost, outcome.losers), ([], []), said)
            self.assertEqual([noticed.failures[:3] for noticed in outcome.noticed if noticed.failures], [], said)
            self.assertLessEqual(max(noticed.gap for noticed in outcome.noticed), LONGEST, said)


ClusterTests.test_cut_off.skip = unavailable() or divisible()  # type: ignore[attr-defined] # trial reads it
