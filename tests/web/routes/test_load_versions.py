"""Loads that are for one version of a policy, and the tags of versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from svc.policy.document import Bounds
from svc.services.policy_loads import LoadRouter, LocalLoads, PolicyLoadService
from svc.storage.policies import PolicyTransaction
from svc.web.routes.policies import Policies
from tests.chronicle import Chronicle
from tests.memory import MemoryRoles
from tests.memory_events import MemoryEvents
from tests.memory_policies import MemoryPolicies, MemoryPolicyTransaction, transacted
from tests.web.support import Answer, Client
from tests.web.world import ADMIN, WorldCase, user

T = TypeVar("T")

METHODS = ("POST", "PATCH", "PUT")


class OvertakenTransaction(MemoryPolicyTransaction):
    """A transaction of a load that another one overtakes before the policy is locked."""

    async def lock_policy(self, policy: RoleName) -> None:
        """Have the other load confirmed, then lock."""
        versions = self.memory.versions[str(policy)]
        versions[max(versions) + 1] = versions[max(versions)]
        await super().lock_policy(policy)


class OvertakenPolicies(MemoryPolicies):
    """Loads of this kind."""

    async def transact(self, work: Callable[[PolicyTransaction], Awaitable[T]]) -> T:
        """See ``PolicyStore``."""
        return await transacted(OvertakenTransaction(self.memory), work)


class VersionTests(WorldCase):
    """A policy that several people load."""

    def send(self, text: str, match: str, method: str = "PATCH", query: str = "", role: RoleName = ADMIN) -> Answer:
        """Send a load with this condition."""
        path = f"/policies/acme/policy/team{query}"
        return self.client.request(method, path, body=text.encode(), role=role, headers=[("If-Match", match)])

    def setUp(self) -> None:
        """Make the policy."""
        super().setUp()
        self.load("- !policy team\n- !user eve\n")

    def test_tags(self) -> None:
        """Loads answer with the version as a strong tag, and reading the policy has the same, 0 before any (POL-102)."""
        path = "/policies/acme/policy/team"
        self.assertEqual(self.client.get(path, role=ADMIN).headers["etag"], '"0"')
        for version, method in enumerate(METHODS, 1):
            answer = self.load("- !group g\n", "team", method=method)
            self.assertEqual((answer.json()["version"], answer.headers["etag"]), (version, f'"{version}"'))
            for headers in ([], [("Content-Type", "application/json")]):
                read = self.client.request("GET", path, role=ADMIN, headers=headers)
                self.assertEqual(read.headers["etag"], f'"{version}"')
        self.load("- !group elsewhere\n")
        self.load("[]\n", "team?dryRun=true", status=200)
        self.assertEqual(self.client.get(path, role=ADMIN).headers["etag"], '"3"')

    def test_conditions(self) -> None:
        """Only the tag of the version, or ``*``, lets a load be made; a refused one changes nothing (POL-103)."""
        for method in METHODS:
            for query, status in (("", 201), ("?dryRun=true", 200)):
                self.load("- !group g\n", "team")
                version = max(self.memory.versions["acme:policy:team"])
                for match, matches in (
                    (f'"{version}"', True),
                    (f'"0", "{version}"', True),
                    ("*", True),
                    (f'"{version - 1}"', False),
                    (f'"{version + 1}"', False),
                    (f'W/"{version}"', False),
                    ('"0"', False),
                ):
                    before = self.memory.copied()
                    answer = self.send("- !group h\n", match, method, query)
                    self.assertEqual(answer.status, status if matches else 412, (method, match))
                    if not matches:
                        self.assertEqual(answer.json()["error"]["code"], "precondition_failed")
                        self.assertEqual(answer.headers["etag"], f'"{version}"')
                        self.assertEqual(self.memory.copied(), before)
                    self.memory.restore(before)

    def test_first(self) -> None:
        """The tag of 0 is that of a policy that was never loaded (POL-102)."""
        self.assertEqual(self.send("- !group g\n", '"0"').status, 201)
        self.assertEqual(self.send("- !group g\n", '"0"').status, 412)

    def test_other_faults(self) -> None:
        """Callers without the privilege learn no version, and a header that can't be read is 422 (POL-103)."""
        answer = self.send("- !group g\n", '"7"', role=user("eve"))
        self.assertEqual((answer.status, "etag" in answer.headers), (404, False))
        self.load("- !permit { role: !user eve, privilege: read, resource: !policy team }\n")
        answer = self.send("- !group g\n", '"7"', role=user("eve"))
        self.assertEqual((answer.status, "etag" in answer.headers), (403, False))
        self.assertEqual(self.send("- !group g\n", "7").status, 422)
        self.assertEqual(self.send("- !gruop g\n", '"7"').status, 422)
        # A reference may be missing because of what the other has loaded.
        self.assertEqual(self.send("- !grant { role: !group gone, member: !group gone }\n", '"7"').status, 412)

    def test_repeated(self) -> None:
        """An answer that is kept for a key is given whatever the version is by then (POL-103)."""
        headers = [("Idempotency-Key", '"k-1"'), ("If-Match", '"0"')]
        path = "/policies/acme/policy/team"
        first = self.client.request("PATCH", path, body=b"- !group g\n", role=ADMIN, headers=headers)
        self.load("- !group other\n", "team")
        again = self.client.request("PATCH", path, body=b"- !group g\n", role=ADMIN, headers=headers)
        self.assertEqual((first.status, first.json(), first.headers["etag"]), (201, again.json(), again.headers["etag"]))

    def test_overtaken(self) -> None:
        """A load that another one overtakes before its transaction is refused, wherever it is made (POL-103)."""
        self.load("- !group g\n", "team")
        for most in (None, 0):
            store = OvertakenPolicies(self.memory)
            far = LocalLoads(store, self.vault, self.dialect, Bounds())
            loads = LoadRouter(LocalLoads(store, self.vault, self.dialect, Bounds(), most), far)
            service = PolicyLoadService(loads, MemoryRoles(self.memory), MemoryEvents(self.memory), Chronicle())
            self.client = Client(Policies(service))
            answer = self.send("- !group h\n", '"1"')
            self.assertEqual((answer.status, answer.headers["etag"]), (412, '"2"'))
            self.assertNotIn("acme:group:team/h", self.memory.resources)


class ConjurVersionTests(VersionTests):
    """The same in the other dialect."""

    dialect = CONJUR
