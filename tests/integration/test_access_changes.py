"""Who gains and who loses access by a load, told by dry runs on PostgreSQL."""

from __future__ import annotations

from random import Random
from typing import Any

from svc.model.names import ResourceName
from svc.model.policy_loads import LoadMode
from svc.policy import access_changes
from svc.services import access_changes as reading
from tests.contracts.base import ACCOUNT, Stores, scenario
from tests.integration.stores import SHARED
from tests.integration.test_policies import PolicyRoutesCase
from tests.services.test_access_changes import (
    ANY,
    THINGS,
    Access,
    differences_of,
    expanded,
    privileges_of,
    statement_of,
    text_of,
)
from tests.services.test_access_reading import LIMITS
from tests.services.test_dry_run import METHODS


class AccessChangesTests(PolicyRoutesCase):
    """What dry runs tell of access."""

    @scenario
    async def test_agrees(self) -> None:
        """Load after load, a dry run has told what the store says before and after it; or, if a limit ended the search,
        nothing else, and that there may be more (POL-83, POL-88, RES-23).
        """
        self.patch(access_changes, "NAMES_MOST", 10**6)
        self.patch(access_changes, "SEPARATE_MOST", 10**6)
        stores = await self.served()
        first = await self.ask("POST", body="".join(f"- !{thing}\n" for thing in THINGS))
        self.assertEqual(first.status, 201)
        chance = Random(82)
        compared = dict.fromkeys(("gains", "losses"), 0)
        limits = {limit: getattr(reading, limit) for limit in LIMITS}
        for _ in range(80):
            for limit, most in limits.items():
                self.patch(reading, limit, most)
            whole = chance.random() < 0.7
            if not whole:
                self.patch(reading, chance.choice(LIMITS), chance.randint(0, 60))
            mode = chance.choice([LoadMode.APPEND, LoadMode.UPDATE, LoadMode.UPDATE, LoadMode.UPDATE, LoadMode.REPLACE])
            self.patch(reading, "ROWS_FEW", chance.choice([0, 1, 1000]))
            text = text_of([statement_of(chance.choice) for _ in range(chance.randint(1, 4))], mode)
            told = await self.told(METHODS[mode], text)
            before = await self._who_can(stores)
            loaded = await self.ask(METHODS[mode], body=text)
            self.assertEqual("access" in told, loaded.status == 201, (told, loaded.body))
            if loaded.status == 201:
                self._agrees(told["access"], before, await self._who_can(stores), text, compared, whole)
        self.assertGreater(min(compared.values()), 10)

    def _agrees(self, access: Any, before: Access, after: Access, text: str, compared: dict[str, int], whole: bool) -> None:
        privileges = privileges_of(before, after)
        for name, expected in zip(("gains", "losses"), differences_of(before, after), strict=True):
            found = expanded(access[name], privileges)
            for pair, several in found.items():
                self.assertLessEqual(several, expected.get(pair, set()), text)
            if access["complete"]:
                self.assertEqual(found, expected, text)
            compared[name] += bool(expected)
        self.assertTrue(access["complete"] or not whole)

    async def _who_can(self, stores: Stores) -> Access:
        privileges = {ANY, *(name for (name,) in self.server.command("SELECT privilege FROM permissions", SHARED))}
        found: Access = {}
        asked = f"SELECT resource_id FROM resources WHERE resource_id LIKE '{ACCOUNT}:%'"
        for (resource,) in self.server.command(asked, SHARED):
            for privilege in privileges:
                for role in await stores.resources.list_permitted_roles(ResourceName.parse(resource), privilege, 1000):
                    found.setdefault((role, resource), set()).add(privilege)
        return found
