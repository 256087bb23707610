"""Policy loads and effective policies through their services alone: outcomes are values for all callers."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from svc.model.errors import DocumentFault, Forbidden, InvalidParameter, PolicyInvalid, RecordNotFound
from svc.model.names import RoleName, root_policy
from svc.model.policy_loads import DocumentFaults, DryRun, LoadMode, LoadOutcome, LoadResult
from svc.model.query_results import Caller
from svc.policy.document import Bounds
from svc.policy.statement_writer import write_yaml
from svc.services.effective_policy import EffectivePolicyService
from svc.services.invocation import Invocation, NullRecorder
from svc.services.policy_loads import LocalLoads, PolicyLoadService
from tests.chronicle import Chronicle
from tests.memory import MemoryRoles
from tests.memory_effective import MemoryEffectivePolicies
from tests.memory_events import MemoryEvents
from tests.memory_policies import MemoryPolicies
from tests.web.support import NOW
from tests.web.world import ADMIN, WorldCase, user

ROOT = root_policy("acme")


def invocation(role: RoleName) -> Invocation:
    """A use case that a role asks for, and nothing records."""
    return Invocation(Caller(role, NOW, 0), "192.0.2.7", NullRecorder())


class OutcomeTests(WorldCase):
    """Outcomes and refusals of services."""

    def setUp(self) -> None:
        """Make the services."""
        super().setUp()
        roles = MemoryRoles(self.memory)
        loads = LocalLoads(MemoryPolicies(self.memory), self.vault, self.dialect, Bounds())
        self.loads = PolicyLoadService(loads, roles, MemoryEvents(self.memory), Chronicle())
        self.effective = EffectivePolicyService(
            MemoryEffectivePolicies(self.memory), roles, self.vault, self.dialect, self.clock
        )

    def begin(self, text: str, role: RoleName = ADMIN, dry_run: bool = False) -> Deferred[LoadOutcome]:
        """Load a document into the root."""
        asked = self.loads.load_policy(invocation(role), ROOT, LoadMode.APPEND, text.encode(), dry_run=dry_run)
        return Deferred.fromCoroutine(asked)

    def test_load(self) -> None:
        """A load returns the version and the API keys that it made, and writes no events for a recorder that keeps none."""
        outcome = self.successResultOf(self.begin("- !user bob\n- !host h\n- !group g\n"))
        assert isinstance(outcome, LoadResult)
        keys = dict(pair for batch in outcome.api_keys for pair in batch)
        self.assertEqual(set(keys), {"acme:user:bob", "acme:host:h"})
        self.assertEqual((outcome.version, outcome.warnings, outcome.audited), (1, (), (0, 0)))

    def test_dry_run(self) -> None:
        """A dry run returns the differences, and leaves nothing behind."""
        outcome = self.successResultOf(self.begin("- !group g\n", dry_run=True))
        assert isinstance(outcome, DryRun)
        self.assertEqual([item["identifier"] for batch in outcome.created for item in batch], ["acme:group:g"])
        self.assertNotIn("acme:group:g", self.memory.resources)

    def test_faults(self) -> None:
        """A document with faults is refused for the first; a dry run returns all, with places and advice."""
        text = "- !grant { role: !group g, member: !group h }\n"
        self.failureResultOf(self.begin(text), PolicyInvalid)
        outcome = self.successResultOf(self.begin(text, dry_run=True))
        assert isinstance(outcome, DocumentFaults)
        faults = [fault for batch in outcome.faults for fault in batch]
        self.assertEqual([fault.message.partition("'")[2][0] for fault in faults], ["g", "h"])
        self.assertEqual({type(fault) for fault in faults}, {DocumentFault})
        self.assertTrue(all(fault.line == 1 and fault.advice for fault in faults))

    def test_privileges(self) -> None:
        """Who sees nothing of a policy is refused alike by a load, a dry run and a reading of it."""
        self.successResultOf(
            self.begin("- !user bob\n- !group g\n- !permit { role: !user bob, privilege: read, resource: !group g }\n")
        )
        for dry_run in (False, True):
            self.failureResultOf(self.begin("[]\n", user("bob"), dry_run), RecordNotFound)
        asked = self.effective.read_policy(invocation(user("bob")), ROOT)
        self.failureResultOf(Deferred.fromCoroutine(asked), RecordNotFound)
        self.successResultOf(self.begin("- !permit { role: !user bob, privilege: read, resource: !policy root }\n"))
        self.failureResultOf(self.begin("[]\n", user("bob")), Forbidden)

    def test_effective_policy(self) -> None:
        """What was loaded is returned as statements, within the limit."""
        self.successResultOf(self.begin("- !group g\n- !variable v\n"))
        told = self.successResultOf(Deferred.fromCoroutine(self.effective.read_policy(invocation(ADMIN), ROOT)))
        self.assertEqual("".join(write_yaml(told.statements)), "---\n- !user admin\n- !variable v\n- !group g\n")
        asked = self.effective.read_policy(invocation(ADMIN), ROOT, limit=1)
        refusal = self.failureResultOf(Deferred.fromCoroutine(asked), InvalidParameter).value
        self.assertEqual(refusal.message, "Policy max allowed 'limit' = 1 exceeded. Value for policy is: 4")
        self.assertEqual(refusal.vendor_code, "CONJ00164E")
