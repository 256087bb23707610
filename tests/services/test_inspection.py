"""Tests of ``svc.services.invocation``."""

from __future__ import annotations

from svc.model.errors import Forbidden, RecordNotFound
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import Caller
from svc.services.invocation import can_read_all, require_inspection
from tests.memory import MemoryRoles
from tests.web.world import ADMIN, WorldCase, user

POLICY = """
- !user whole
- !user narrow
- !user reader
- !user nobody
- !permit { role: !user whole, privilege: inspect, resource: !policy root }
- !permit { role: !user reader, privileges: [ read, update ], resource: !policy root }
- !policy { id: shop, body: [ !variable v ] }
- !permit { role: !user narrow, privilege: inspect, resource: !policy shop }
- !permit { role: !user reader, privilege: read, resource: !policy shop }
"""


class InspectionTests(WorldCase):
    """Who may look."""

    def setUp(self) -> None:
        """Load a policy."""
        super().setUp()
        self.load(POLICY)
        self.roles = MemoryRoles(self.memory)

    def test_reads_all(self) -> None:
        """Who owns the root policy or inspects it may look at all of the account, and nobody else (INS-2)."""
        expected = {ADMIN: True, user("whole"): True, user("narrow"): False, user("reader"): False, user("gone"): False}
        for role, all_ in expected.items():
            self.assertEqual(self.result_of(can_read_all(self.roles, Caller(role, 0))), all_, role)

    def test_demanded(self) -> None:
        """What takes ownership or inspection is 404 to who doesn't see the thing, and 403 to who only sees it (INS-7)."""
        names = [ResourceName.parse(f"acme:{name}") for name in ("policy:shop", "variable:shop/v", "group:none")]
        for role, outcomes in (
            (ADMIN, (None, None, RecordNotFound)),
            (user("whole"), (None, None, RecordNotFound)),
            (user("narrow"), (None, None, RecordNotFound)),
            (user("reader"), (Forbidden, RecordNotFound, RecordNotFound)),
            (user("nobody"), (RecordNotFound, RecordNotFound, RecordNotFound)),
            (user("gone"), (Forbidden, Forbidden, Forbidden)),
        ):
            for name, outcome in zip(names, outcomes, strict=True):
                self.assertIs(self.outcome(role, name), outcome, (role, name))

    def outcome(self, role: RoleName, name: ResourceName) -> type[Exception] | None:
        """What is raised."""

        async def asked() -> type[Exception] | None:
            try:
                await require_inspection(self.roles, Caller(role, 0), name)
            except (Forbidden, RecordNotFound) as raised:
                return type(raised)
            return None

        found: type[Exception] | None = self.result_of(asked())
        return found
