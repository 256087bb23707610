"""Where policy loads are done: small ones near, others far."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import attrs
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.model.ownership import Ownership
from svc.model.policy_loads import ILoads, Load, LoadOutcome
from svc.policy.document import Bounds
from svc.services import policy_loads
from svc.services.policy_loads import LOCAL_BYTES, LoadRouter, LocalLoads, PolicyLoadService
from svc.storage.policies import PolicyTransaction
from svc.web.routes.policies import Policies
from tests.chronicle import Chronicle
from tests.memory import MemoryRoles
from tests.memory_events import MemoryEvents
from tests.memory_policies import MemoryPolicies, MemoryPolicyTransaction, transacted
from tests.web.support import Client
from tests.web.world import WorldCase

T = TypeVar("T")

MOST = 5


@implementer(ILoads)
@attrs.define
class Counted:
    """Counts loads on their way to another ``ILoads``."""

    inner: ILoads
    count: int = 0

    async def load_policy(self, load: Load) -> LoadOutcome:
        """Pass it on."""
        self.count += 1
        return await self.inner.load_policy(load)


class OvertakenTransaction(MemoryPolicyTransaction):
    """A load which another one overtakes that deletes a host: after it was read, and before its owners are."""

    async def read_ownership(self, records: Sequence[str], placed: Sequence[str]) -> Ownership:
        """Return owners, when the host is gone."""
        self.memory.delete_resources(["acme:host:app/web"])
        return await super().read_ownership(records, placed)


class OvertakenPolicies(MemoryPolicies):
    """Loads of this kind."""

    async def transact(self, work: Callable[[PolicyTransaction], Awaitable[T]]) -> T:
        """See ``PolicyStore``."""
        return await transacted(OvertakenTransaction(self.memory), work)


class OvertakenTests(WorldCase):
    """A load and another one that is confirmed meanwhile."""

    def test_declared_and_deleted(self) -> None:
        """A record that a document declares, and that is deleted while it is loaded, makes the load a conflict (POL-50)."""
        self.load("- !policy app\n- !host app/web\n")
        loads = LocalLoads(OvertakenPolicies(self.memory), self.vault, self.dialect, Bounds())
        service = PolicyLoadService(loads, MemoryRoles(self.memory), MemoryEvents(self.memory), Chronicle())
        self.client = Client(Policies(service))
        answer = self.load("- !host web\n", "app", status=409)
        self.assertEqual(answer.json()["error"]["code"], "policy_conflict")
        self.assertIn("retry-after", answer.headers)


class NearAndFarTests(WorldCase):
    """Loads that are small, and loads that are not."""

    def setUp(self) -> None:
        """Have loads done in two places, on one store."""
        super().setUp()
        store = MemoryPolicies(self.memory)
        self.far = Counted(LocalLoads(store, self.vault, self.dialect, Bounds()))
        loads = LoadRouter(LocalLoads(store, self.vault, self.dialect, Bounds(), MOST), self.far)
        verifyObject(ILoads, loads)
        self.client = Client(
            Policies(PolicyLoadService(loads, MemoryRoles(self.memory), MemoryEvents(self.memory), Chronicle()))
        )

    def went_far(self, text: str, method: str = "POST", query: str = "", status: int = 201) -> bool:
        """Load a document, and tell where that was done."""
        before = self.far.count
        self.load(text, policy=f"root{query}", method=method, status=status)
        return self.far.count > before

    def test_small(self) -> None:
        """A small document is loaded near, in every mode, and so are its faults found."""
        for method in ("POST", "PATCH", "PUT"):
            self.assertFalse(self.went_far("- !user bob\n- !group g\n", method))
        self.assertFalse(self.went_far("- !usr bob\n", status=422))

    def test_long(self) -> None:
        """A document of more bytes is loaded far (POL-51)."""
        self.assertFalse(self.went_far("#" * (LOCAL_BYTES - 1) + "\n"))
        self.assertTrue(self.went_far("#" * LOCAL_BYTES + "\n"))

    def test_aliases(self) -> None:
        """So is one that may say at length what is short, by an alias."""
        self.assertTrue(self.went_far("- &a !user bob\n- !group g\n- !grant { role: !group g, member: *a }\n"))

    def test_dry_run(self) -> None:
        """So is a dry run."""
        self.assertTrue(self.went_far("- !user bob\n", query="?dryRun=true", status=200))

    def test_many_grants(self) -> None:
        """So is a document whose lists of grants multiply to more than a few rows; where it began nothing remains."""
        names = [f"!user u{number}" for number in range(3)] + ["!group g", "!group h"]
        grant = f"- !grant {{ roles: [ !group g, !group h ], members: [ {', '.join(names[:3])} ] }}\n"
        self.assertTrue(self.went_far("".join(f"- {name}\n" for name in names) + grant))
        self.assertEqual(list(self.memory.versions["acme:policy:root"]), [1])

    def test_large_policy(self) -> None:
        """So is one that replaces a policy which holds many rows already; others read only what they name."""
        text = "".join(f"- !variable v{number}\n" for number in range(MOST))
        self.assertFalse(self.went_far(text))
        self.assertFalse(self.went_far(f"{text}- !variable w\n", "PUT"))
        self.assertTrue(self.went_far(text, "PUT"))
        for number, method in enumerate(("POST", "PATCH") * MOST):
            self.assertFalse(self.went_far(f"- !variable w{number}\n", method))

    def test_many_named(self) -> None:
        """A document that names very much is compared with all that its policy has recorded."""
        self.patch(policy_loads, "NAMED_ROWS", 1)
        self.assertFalse(self.went_far("".join(f"- !variable v{number}\n" for number in range(MOST + 1))))
        self.assertTrue(self.went_far("- !variable w\n- !variable x\n"))

    def test_deletions(self) -> None:
        """So is a document that deletes things, since others may go with them; to revoke a grant goes no further."""
        text = "- !user bob\n- !group g\n"
        self.assertFalse(self.went_far(text + "- !grant { role: !group g, member: !user bob }\n"))
        self.assertFalse(self.went_far("- !revoke { role: !group g, member: !user bob }\n", "PATCH"))
        self.assertFalse(self.went_far(text, "PUT"))
        self.assertTrue(self.went_far("- !delete { record: !user bob }\n", "PATCH"))
        self.assertTrue(self.went_far("[]\n", "PUT"))
