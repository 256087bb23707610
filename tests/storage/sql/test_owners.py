"""Tests of ``svc.storage.sql.owners``: how often the database is asked; its answers are in ``tests.contracts.policies``."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.storage.driver.statements import Statement, Transaction
from svc.storage.sql.owners import read_ownership


def elements(column: str) -> list[str]:
    """The texts of an array, none of which needs to be escaped."""
    return column.strip("{}").replace('"', "").split(",")


@attrs.define
class Policies:
    """A database with nothing but policies, in order, that counts what it is asked."""

    names: list[str]
    asked: int = 0

    async def fetch(self, statement: Statement, *columns: str) -> list[tuple[Any, ...]]:
        """Find the last policy up to each id; nobody owns any."""
        self.asked += 1
        if statement.name != "owners_last_policy":
            return []
        places = [(name, bisect_right(self.names, name)) for name in elements(columns[0])]
        return [(name, self.names[place - 1] if place else None) for name, place in places]


class RoundsTests(SynchronousTestCase):
    """Note [The policy around]."""

    def test_ids_of_slashes(self) -> None:
        """However many slashes ids have, a few statements tell the policies around all of them."""
        policies = ["acct:policy:" + "/".join("a" * depth) for depth in range(1, 400, 7)]
        policies += [f"{name}-{number}" for name in policies for number in range(3)]
        database = Policies(sorted(policies))
        records = [f"acct:host:{'/'.join('a' * 300)}/{number}/b/c/d/e/f/g/h" for number in range(50)]
        records += [f"acct:host:x{number}/{'/'.join('x' * 400)}" for number in range(50)]
        done = Deferred.fromCoroutine(read_ownership(cast("Transaction", database), (), records))
        around = self.successResultOf(done).enclosing_policies
        deepest = "acct:policy:" + "/".join("a" * 295)
        self.assertEqual([around[record] for record in records], [deepest] * 50 + ["acct:policy:root"] * 50)
        self.assertLess(database.asked, 6)
