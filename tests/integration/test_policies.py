"""Policies over the routes and PostgreSQL at once: loads that meet, dry runs, and reading back."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock

from svc.crypto.vault import Vault
from svc.model.dialect import NATIVE
from svc.model.errors import Conflict
from svc.model.host_factories import FactoryToken, digest_token
from svc.model.limits import RecordLimits
from svc.model.names import ResourceName, RoleName
from svc.model.policy_loads import Excess, Rows
from svc.model.query_results import Sealed
from svc.policy.document import Bounds
from svc.policy.effective_policy import make_query
from svc.services.access import AccessService
from svc.services.effective_policy import EffectivePolicyService
from svc.services.policy_loads import LocalLoads, PolicyLoadService
from svc.services.readers import ReaderService
from svc.services.resources import ResourceService
from svc.storage.effective_policy import BYTES_MOST
from svc.storage.policies import PolicyTransaction
from svc.web.http.messages import PIECE_SIZE, IncomingRequest, Response
from svc.web.routes.effective_policy import EffectivePolicies
from svc.web.routes.policies import Policies
from svc.web.routes.resources import Resources
from tests.chronicle import Chronicle
from tests.contracts.base import ACCOUNT, ADMIN, ROOT, Draft, Stores, described, load, scenario
from tests.contracts.policies import sets
from tests.integration.stores import SHARED, InPostgres, begun
from tests.web.support import Client, token

DOCUMENT = """
- !policy
  id: dev
  body:
    - !user bob
    - !variable password
    - !layer
    - !group { id: ops, annotations: { note: "it's \\"so\\"" } }
    - !grant { role: !group ops, member: { role: !user bob, admin: true } }
    - !permit { role: !group ops, privileges: [ read, execute ], resource: !variable password }
    - !policy { id: a/b, owner: !group ops, body: [ !user eve, !host h ] }
- !grant { role: !group dev/ops, member: !host dev/a/b/h }
"""


class PolicyRoutesCase(InPostgres):
    """The routes of policies, on the real stores."""

    async def served(self) -> Stores:
        """Make an account, and a server of the two nouns."""
        stores = await self.stores_with_account()
        self.token = token(ADMIN, (await stores.credentials.read_credential(ADMIN)).creation)
        clock = IReactorTime(installed_reactor)
        vault = Vault(b"k" * 32)
        loads = LocalLoads(stores.policies, vault, NATIVE, Bounds())
        self.client = Client(
            Policies(PolicyLoadService(loads, stores.roles, stores.events, Chronicle())),
            EffectivePolicies(EffectivePolicyService(stores.effective, stores.roles, vault, NATIVE, clock), clock),
        )
        return stores

    async def ask(self, method: str, query: str = "", body: str = "", policy: str = "root") -> Response:
        """Send a request of the admin's, and return the answer."""
        text = body.encode()
        headers = {b"authorization": [self.token.encode()]}
        target = f"/policies/{ACCOUNT}/policy/{policy.replace('/', '%2F')}{query}"
        incoming = IncomingRequest(method, target, headers, "192.0.2.7", "id", len(text), 1 << 20)
        incoming.append_body(text)
        incoming.end_body()
        return await self.client.router.respond(incoming)

    async def told(self, method: str, body: str) -> Any:
        """Return what a dry run answers, in however many pieces."""
        answer = await self.ask(method, "?dryRun=true", body)
        pieces = [] if answer.pieces is None else [piece async for piece in answer.pieces]
        return json.loads(answer.body + b"".join(pieces))


class PolicyRoutesTests(PolicyRoutesCase):
    """What these routes answer."""

    def everything(self) -> list[list[tuple[Any, ...]]]:
        """All rows of policy."""
        return [
            sorted(self.server.command(f"SELECT * FROM {table}", SHARED), key=repr)
            for table in ("resources", "memberships", "permissions", "annotations", "policy_versions", "credentials")
        ]

    @scenario
    async def test_one_load_wins(self) -> None:
        """While one load of a policy is under way another is 409 with ``Retry-After``, and leaves no trace (POL-50)."""
        stores = await self.served()
        answers: list[Response] = []

        async def first(transaction: PolicyTransaction) -> None:
            await transaction.lock_policy(ROOT)
            for method in ("POST", "PATCH", "PUT"):
                answers.append(await self.ask(method, body="- !group late\n"))
            answers.append(await self.ask("PUT", "?dryRun=true", "- !group late\n"))

        before = self.everything()
        await stores.policies.transact(first)
        for answer in answers:
            self.assertEqual(answer.status, 409)
            self.assertEqual(json.loads(answer.body)["error"]["code"], "policy_conflict")
            self.assertEqual(dict(answer.headers)["Retry-After"], "1")
        self.assertEqual(self.everything(), before)
        self.assertEqual((await self.ask("PUT", body="- !group late\n")).status, 201)

    @scenario
    async def test_loads_at_once(self) -> None:
        """Of loads that come at once, each is done whole or not at all, and the versions count those that are (POL-48)."""
        stores = await self.served()
        documents = [
            "".join(f"- !variable {{ id: v{number}, annotations: {{ of: l{load} }} }}\n" for number in range(200))
            for load in range(4)
        ]
        answers = await gatherResults([begun(self.ask("PUT", body=document)) for document in documents])
        statuses = [answer.status for answer in answers]
        self.assertLessEqual(set(statuses), {201, 409})
        won = [json.loads(answer.body)["version"] for answer in answers if answer.status == 201]
        self.assertEqual(sorted(won), list(range(1, len(won) + 1)))
        self.assertTrue(won)
        values = self.server.command("SELECT DISTINCT value FROM annotations WHERE policy_id IS NOT NULL", SHARED)
        self.assertEqual(len(values), 1)
        self.assertEqual(statuses[int(values[0][0][1:])], 201)
        present = await stores.policies.transact(lambda transaction: transaction.read_present_rows(ROOT, Rows(), ()))
        self.assertEqual(len(present.own.resources), 200)

    @scenario
    async def test_hosts_made_meanwhile(self) -> None:
        """A host that a factory makes while a policy is loaded that declares it is one's, and the other is refused
        (HF-24).
        """
        stores = await self.served()
        await load(stores, Draft().define("layer:l", "host_factory:f").grant("layer:l", "host_factory:f"))
        await stores.factories.add_tokens(
            [digest_token("token")], FactoryToken(RoleName(ACCOUNT, "host_factory", "f"), 1e12)
        )

        async def make(host: RoleName) -> bool:
            try:
                return (await stores.factories.create_host(digest_token("token"), host, {}, Sealed(b"its"))).new
            except Conflict:
                return False

        outcomes = set()
        for number in range(20):
            host = RoleName(ACCOUNT, "host", f"p{number}/h")
            text = f"- !policy {{ id: p{number}, body: [ !host h, !variable v ] }}\n"
            text += f"- !permit {{ role: !host p{number}/h, privilege: execute, resource: !variable p{number}/v }}\n"
            if number % 2:
                making, loading = begun(make(host)), begun(self.ask("POST", body=text))
            else:
                loading, making = begun(self.ask("POST", body=text)), begun(make(host))
            made, status = await making, (await loading).status
            outcomes.add((made, status))
            api_key = (await stores.credentials.read_credential(host)).api_key
            self.assertEqual(made, api_key == b"its")
            access_facts = await stores.roles.access_facts(host, ResourceName(ACCOUNT, "variable", f"p{number}/v"))
            self.assertEqual(bool(access_facts.privileges), not made)
        self.assertLessEqual(outcomes, {(True, 403), (True, 409), (False, 201)})

    @scenario
    async def test_read_back(self) -> None:
        """What is printed of root loads back to the same rows, in place and into an empty account (POL-77)."""
        await self.served()
        self.assertEqual((await self.ask("POST", body=DOCUMENT)).status, 201)
        printed = (await self.ask("GET")).body.decode()
        before = await self._rows()
        self.assertEqual((await self.ask("PUT", body=printed)).status, 201)
        self.assertEqual(await self._rows(), before)
        await self.prepare()
        await self.served()
        self.assertEqual((await self.ask("PUT", body=printed)).status, 201)
        self.assertEqual(await self._rows(), before)
        self.assertEqual((await self.ask("GET")).body.decode(), printed)

    @scenario
    async def test_dry_run(self) -> None:
        """A dry run on PostgreSQL tells what the load then does, and leaves nothing behind (POL-68, POL-70)."""
        await self.served()
        self.assertEqual((await self.ask("POST", body=DOCUMENT)).status, 201)
        before = self.everything()
        carol = "- !user carol\n- !permit { role: !user carol, privilege: read, resource: !layer dev }\n"
        text = DOCUMENT.partition("    - !policy {")[0] + carol
        answer = await self.ask("PUT", "?dryRun=true", text)
        self.assertEqual(answer.status, 200)
        told = json.loads(answer.body)
        self.assertEqual(self.everything(), before)

        def ids(items: Any) -> list[str]:
            return [item["id"] for item in items["items"]]

        self.assertEqual(ids(told["created"]), ["carol"])
        self.assertEqual(ids(told["deleted"]), ["dev/a/b/h", "dev/a/b", "eve@dev-a-b"])
        self.assertEqual(ids(told["updated"]["after"]), ["dev/ops"])
        self.assertEqual((await self.ask("PUT", body=text)).status, 201)
        after = self.everything()
        gone = {row[0] for row in before[0]} - {row[0] for row in after[0]}
        self.assertEqual(gone, {item["identifier"] for item in told["deleted"]["items"]})

    @scenario
    async def test_too_many_bytes(self) -> None:
        """A policy with more text than can be read at once is refused before any of it is read."""
        stores = await self.served()
        await load(stores, Draft().define("variable:v").annotate("variable:v", {"large": "x"}))
        enlarged = f"UPDATE annotations SET value = repeat('x', {BYTES_MOST + 1}) WHERE policy_id IS NOT NULL"
        await self.database.transact(lambda transaction: transaction.execute(enlarged), statement_timeout=60.0)
        excess = await stores.effective.read_effective_policy(make_query(ROOT, None, 10))
        assert isinstance(excess, Excess)
        self.assertEqual((excess.limit, excess.unit), (BYTES_MOST, "bytes"))
        answer = await self.ask("GET")
        self.assertEqual((answer.status, json.loads(answer.body)["error"]["code"]), (422, "unprocessable_entity"))

    async def _rows(self) -> Any:
        stores = await self.stores()
        return sets(
            (await stores.policies.transact(lambda transaction: transaction.read_present_rows(ROOT, Rows(), ()))).own
        )


class RecordTests(InPostgres):
    """Records that carry much, on the real stores."""

    async def served(self) -> Stores:
        """Make an account, and a server of the two nouns."""
        stores = await self.stores_with_account()
        self.token = token(ADMIN, (await stores.credentials.read_credential(ADMIN)).creation)
        loads = LocalLoads(stores.policies, Vault(b"k" * 32), NATIVE, Bounds(records=RecordLimits(annotations=3)))
        access = AccessService(stores.access, stores.roles, stores.resources, NATIVE)
        self.client = Client(
            Policies(PolicyLoadService(loads, stores.roles, stores.events, Chronicle())),
            Resources(
                ResourceService(stores.resources, stores.roles, NATIVE),
                access,
                ReaderService(stores.readings, stores.roles, Clock(), NATIVE, 1e9),
            ),
        )
        return stores

    async def ask(self, method: str, target: str, body: str = "") -> Response:
        """Send a request of the admin's, and return the answer."""
        headers = {b"authorization": [self.token.encode()]}
        incoming = IncomingRequest(method, target, headers, "192.0.2.7", "id", len(body), 1 << 20)
        incoming.append_body(body.encode())
        incoming.end_body()
        return await self.client.router.respond(incoming)

    @scenario
    async def test_limits_hold_over_loads(self) -> None:
        """Annotations of a record count whichever load and policy gave them; what goes beyond the limit leaves nothing
        (LIM-12).
        """
        stores = await self.served()
        for policy, name, status in (("root", "a", 201), ("root", "b", 201), ("dev", "c", 201), ("dev", "d", 422)):
            path = f"{'dev/' * (policy == 'root')}v"
            text = "- !policy dev\n" * (policy == "root") + f"- !variable {{ id: {path}, annotations: {{ {name}: 1 }} }}\n"
            answer = await self.ask("POST", f"/policies/{ACCOUNT}/policy/{policy}", text)
            self.assertEqual(answer.status, status, answer.body)
        self.assertIn("would have 4 annotations; a record may have 3", json.loads(answer.body)["error"]["message"])
        (found,) = await described(stores, [f"{ACCOUNT}:variable:dev/v"])
        self.assertEqual([row.name for row in found.annotations], ["a", "b", "c"])

    @scenario
    async def test_stored_before_there_were_limits(self) -> None:
        """What an older server stored is told whole, in pieces of some bytes, by itself and between others in a list
        (LIM-13).
        """
        stores = await self.served()
        await load(stores, Draft().define("variable:a", "variable:fat", "variable:z"))
        for statement in (
            f"INSERT INTO annotations SELECT '{ACCOUNT}:variable:fat', lpad(n::text, 5, '0'), repeat('x', n % 200)"
            " FROM generate_series(1, 20000) AS n",
            f"INSERT INTO roles SELECT '{ACCOUNT}:group:' || lpad(n::text, 5, '0') FROM generate_series(1, 5000) AS n",
            f"INSERT INTO permissions SELECT '{ACCOUNT}:variable:fat', 'read', role_id FROM roles"
            f" WHERE role_id LIKE '{ACCOUNT}:group:%'",
        ):
            self.server.command(statement, SHARED)
        for path, around in (("/fat", []), ("", ["a", "z"])):
            answer = await self.ask("GET", f"/resources/{ACCOUNT}/variable{path}")
            assert answer.pieces is not None
            pieces = [piece async for piece in answer.pieces]
            self.assertLess(max(map(len, pieces)), PIECE_SIZE + 32 * 1024)
            told = json.loads(b"".join(pieces))
            self.assertEqual([each["id"].rpartition(":")[2] for each in told[::2]] if around else [], around)
            fat = told[1] if around else told
            self.assertEqual([row["name"] for row in fat["annotations"]], [f"{n:05}" for n in range(1, 20001)])
            self.assertEqual(len({row["role"] for row in fat["permissions"]}), 5000)
