"""The suite of ``DeletedStore``, and of the use cases on it (DEL-1 to DEL-24)."""

from __future__ import annotations

import attrs

from svc.crypto.vault import Vault
from svc.model.deleted_records import OVERWRITTEN_MOST, RecordRetention, RetainedTotals
from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.model.errors import Forbidden, NoValue, PolicyInvalid, RecordNotFound
from svc.model.host_factories import FactoryToken, digest_token
from svc.model.limits import RecordLimits
from svc.model.names import ResourceName, RoleName
from svc.model.policy_loads import Changes, Load, LoadMode, LoadResult
from svc.model.query_results import Caller, MembersQuery, Resource, Sealed
from svc.policy.document import Bounds
from svc.services.deleted_records import DeletedService, RestoreObstacle
from svc.services.invocation import Invocation, NullRecorder
from svc.services.policy_loads import LocalLoads
from svc.services.secrets import SecretService
from svc.storage.policies import PolicyTransaction
from tests.contracts.base import ACCOUNT, ADMIN, ROOT, Contract, Draft, Stores, described, load, resource, role, scenario
from tests.memory_reads import uncounted
from tests.sshkeys import ONE

APP = role("policy:app")
ALICE, BOB = role("user:alice"), role("user:bob")
DB = "variable:app/db"

#: What the admin loads into the root: a policy that Alice may change.
BASE = """
- !user alice
- !user bob
- !group others
- !policy app
- !permit { role: !user alice, privileges: [ read, create, update ], resource: !policy app }
"""

#: What is loaded into ``app``.
DOCUMENT = """
- &variables
  - !variable { id: db, annotations: { about: it } }
- !layer workers
- !host { id: web, restricted_to: [ 10.0.0.0/8 ], annotations: { kind: web } }
- !grant { role: !layer workers, member: !host web }
- !permit { role: !layer workers, privileges: [ read, execute ], resource: *variables }
"""

APPEND, UPDATE, REPLACE = LoadMode.APPEND, LoadMode.UPDATE, LoadMode.REPLACE


@attrs.define
class World:
    """The use cases that a scenario needs, on some stores; names are ``kind:identifier``."""

    stores: Stores
    limits: RecordLimits = attrs.field(factory=RecordLimits)
    vault: Vault = attrs.field(factory=lambda: Vault(b"k" * 32))
    dialect: Dialect = NATIVE

    @property
    def deleted(self) -> DeletedService:
        """The use cases of the suite."""
        return DeletedService(self.stores.deleted, self.limits)

    async def caller(self, name: RoleName) -> Invocation:
        """The caller that a role is now."""
        credential = await self.stores.credentials.read_credential(name)
        return Invocation(Caller(name, 0, credential.creation), "192.0.2.7", NullRecorder())

    async def load(self, text: str, policy: RoleName = ROOT, mode: LoadMode = APPEND, name: RoleName = ADMIN) -> LoadResult:
        """Load a document."""
        caller = (await self.caller(name)).caller
        loads = LocalLoads(self.stores.policies, self.vault, self.dialect, Bounds())
        loaded = await loads.load_policy(Load(policy, mode, caller, "192.0.2.7", text.encode(), dry_run=False))
        assert isinstance(loaded, LoadResult)
        return loaded

    async def put(self, name: str, *values: str, by: RoleName = ADMIN) -> None:
        """Set values of a variable."""
        for value in values:
            await self._secrets.write_value(await self.caller(by), resource(name), value.encode())

    async def value(self, name: str, version: int | None = None, by: RoleName = ADMIN) -> str | None:
        """Return a value, ``None`` where there is none for the caller."""
        try:
            secret = await self._secrets.read_value(await self.caller(by), resource(name), version)
        except (NoValue, Forbidden):
            return None
        assert secret.value is not None
        return secret.value.decode()

    async def listed(self, policy: RoleName = APP, by: RoleName = ADMIN) -> list[tuple[str, tuple[int, ...]]]:
        """Return what can be had back, the newest first: names, and versions."""
        records = await self.deleted.list_records(await self.caller(by), policy, 1000, 0)
        return [(record.resource.removeprefix(f"{ACCOUNT}:"), record.versions) for record in records]

    async def numbers(self, *names: str, policy: RoleName = APP, by: RoleName = ADMIN) -> list[int]:
        """Return the numbers of what can be had back, of these names or all."""
        records = await self.deleted.list_records(await self.caller(by), policy, 1000, 0)
        wanted = {f"{ACCOUNT}:{name}" for name in names} or {record.resource for record in records}
        return [record.number for record in records if record.resource in wanted]

    async def restore(self, *names: str, policy: RoleName = APP, by: RoleName = ADMIN) -> dict[str, RestoreObstacle | None]:
        """Have these back, or all, and return what becomes of each name; of several of a name, of the oldest."""
        numbers = await self.numbers(*names, policy=policy, by=by)
        records = await self.deleted.list_records(await self.caller(by), policy, 1000, 0)
        outcome = await self.deleted.restore_records(await self.caller(by), policy, numbers)
        found = {record.number: record.resource.removeprefix(f"{ACCOUNT}:") for record in records}
        assert {record.number for record in outcome.records} == set(numbers) - outcome.skipped.keys()
        self.left_out = outcome.skipped_rows
        return {found[number]: outcome.skipped.get(number) for number in numbers}

    left_out: int = 0

    async def resource(self, name: str) -> Resource:
        """Return a resource that is there."""
        (found,) = await described(self.stores, [f"{ACCOUNT}:{name}"])
        return found

    async def held(self, name: str) -> set[str]:
        """Return the roles that a role is a direct member of."""
        return {
            row.role.removeprefix(f"{ACCOUNT}:")
            for row in await self.stores.roles.list_memberships(MembersQuery(role(name)))
        }

    @property
    def _secrets(self) -> SecretService:
        return SecretService(self.stores.secrets, self.stores.expirations, self.vault, uncounted(), lambda _: None)


class _Suite(Contract):
    async def world(self) -> World:
        """The account with the policy ``app``."""
        world = World(await self.stores_with_account())
        await world.load(BASE)
        await world.load(DOCUMENT, APP)
        return world

    async def deleted_variable(self) -> World:
        """The same, where the variable had two values and is deleted."""
        world = await self.world()
        await world.put(DB, "one", "two")
        await world.load("- !delete { record: !variable db }", APP, UPDATE)
        return world


class DeletedContract(_Suite):
    """What is deleted, and had back."""

    async def pass_time(self, seconds: float) -> None:
        """Let what there is be so many seconds older."""
        raise NotImplementedError

    async def grow_older(self, seconds: float) -> None:
        """Let what was deleted be so many seconds older."""
        raise NotImplementedError

    @scenario
    async def test_empty(self) -> None:
        """It keeps nothing at first."""
        deleted = (await self.stores()).deleted
        self.assertEqual(await deleted.read_usage(), RetainedTotals())
        self.assertEqual((await deleted.purge_old(), await deleted.enforce_limits()), (0, {}))

    @scenario
    async def test_variable(self) -> None:
        """A deleted variable comes back with its values, their versions, owner, annotations and permissions (DEL-1, DEL-12,
        DEL-15); then it is kept no longer (DEL-13).
        """
        world = await self.world()
        await world.put(DB, "one", "two")
        before = await world.resource(DB)
        await world.load("- !delete { record: !variable db }", APP, UPDATE)
        self.assertIsNone(await world.value(DB))
        self.assertEqual(await world.listed(), [(DB, (1, 2))])
        self.assertEqual(await world.restore(), {DB: None})
        self.assertEqual([await world.value(DB, version) for version in (None, 1, 2)], ["two", "one", "two"])
        self.assertEqual(await world.resource(DB), before)
        self.assertEqual(await world.value(DB, by=role("host:app/web")), "two")
        self.assertEqual((world.left_out, await world.listed()), (0, []))
        await world.put(DB, "three")
        self.assertEqual(await world.value(DB, 3), "three")

    @scenario
    async def test_twice(self) -> None:
        """What was had back, or never was, is not kept: to ask twice changes nothing (DEL-13)."""
        world = await self.deleted_variable()
        numbers = await world.numbers()
        await world.restore()
        again = await world.deleted.restore_records(await world.caller(ADMIN), APP, [*numbers, 10**17])
        self.assertEqual(
            (again.records, dict(again.skipped)), ([], dict.fromkeys([*numbers, 10**17], RestoreObstacle.NOT_KEPT))
        )
        self.assertEqual(await world.value(DB), "two")

    @scenario
    async def test_replaced(self) -> None:
        """What a replaced document no longer says is kept too, and what the document still says isn't (DEL-1)."""
        world = await self.world()
        await world.put(DB, "one")
        await world.load("- !layer workers", APP, REPLACE)
        self.assertEqual(sorted(await world.listed()), [("host:app/web", ()), (DB, (1,))])
        self.assertEqual(set((await world.restore()).values()), {None})
        self.assertEqual(await world.held("host:app/web"), {"layer:app/workers"})
        self.assertEqual(await world.value(DB, by=role("host:app/web")), "one")

    @scenario
    async def test_overwritten(self) -> None:
        """Values that newer ones pushed out come back below these, and are pushed out again by the next (DEL-2, DEL-16)."""
        world = await self.world()
        await world.put(DB, *(f"value {number}" for number in range(1, 24)))
        self.assertEqual(await world.listed(), [(DB, (3,)), (DB, (2,)), (DB, (1,))])
        self.assertIsNone(await world.value(DB, 2))
        _, second, _ = await world.numbers()
        await world.deleted.restore_records(await world.caller(ADMIN), APP, [second])
        self.assertEqual([await world.value(DB, version) for version in (1, 2, 3)], [None, "value 2", None])
        self.assertEqual(await world.value(DB), "value 23")
        await world.put(DB, "value 24")
        self.assertIsNone(await world.value(DB, 2))
        self.assertEqual(await world.listed(), [(DB, (2, 4)), (DB, (3,)), (DB, (1,))])
        self.assertEqual(await world.restore(), {DB: None})
        self.assertEqual([await world.value(DB, n) for n in range(1, 25)], [f"value {n}" for n in range(1, 25)])

    @scenario
    async def test_overwritten_of_another(self) -> None:
        """Values that were pushed out of a variable come back to no other variable of the name, but with it (DEL-16)."""
        world = await self.world()
        await world.put(DB, *(f"value {number}" for number in range(1, 23)))
        pushed = await world.numbers()
        await world.load("- !delete { record: !variable db }", APP, UPDATE)
        self.assertEqual(
            (await world.deleted.restore_records(await world.caller(ADMIN), APP, pushed)).skipped,
            dict.fromkeys(pushed, RestoreObstacle.RECORD_MISSING),
        )
        await world.load(DOCUMENT, APP)
        self.assertEqual(
            (await world.deleted.restore_records(await world.caller(ADMIN), APP, pushed)).skipped,
            dict.fromkeys(pushed, RestoreObstacle.OTHER_RECORD),
        )
        await world.load("- !delete { record: !variable db }", APP, UPDATE)
        numbers = await world.numbers()
        outcome = await world.deleted.restore_records(await world.caller(ADMIN), APP, numbers[1:])
        self.assertEqual(outcome.skipped, {})
        self.assertEqual([await world.value(DB, number) for number in (1, 2, 3, 22)], [f"value {n}" for n in (1, 2, 3, 22)])

    @scenario
    async def test_declared_again(self) -> None:
        """A variable that is declared again is empty until its values are had back (DEL-14)."""
        world = await self.deleted_variable()
        await world.load(DOCUMENT, APP)
        self.assertIsNone(await world.value(DB))
        self.assertEqual(await world.restore(), {DB: None})
        self.assertEqual(await world.value(DB), "two")

    @scenario
    async def test_newer_values(self) -> None:
        """Values that are set again are neither changed nor pushed aside (DEL-17)."""
        world = await self.deleted_variable()
        await world.load(DOCUMENT, APP)
        await world.put(DB, "new")
        self.assertEqual(await world.restore(), {DB: RestoreObstacle.NEWER_VALUES})
        self.assertEqual(await world.value(DB), "new")
        self.assertEqual(await world.listed(), [(DB, (1, 2))])

    @scenario
    async def test_too_much(self) -> None:
        """What is too much for one request is left, in the order in which it was asked for, and comes back by another one
        (DEL-28).
        """
        world = await self.world()
        annotations = ", ".join(f"{name}: {'x' * 50 * 1024}" for name in "wxyz")
        for name in "abc":
            await world.load(f"- !variable {{ id: {name}, annotations: {{ {annotations} }} }}", APP)
        await world.load("".join(f"- !delete {{ record: !variable {name} }}\n" for name in "abc"), APP, UPDATE)
        admin = await world.caller(ADMIN)
        a, b, c = [(await world.numbers(f"variable:app/{name}"))[0] for name in "abc"]
        outcome = await world.deleted.restore_records(admin, APP, [b, c, a])
        self.assertEqual({record.number for record in outcome.records}, {b, c})
        self.assertEqual(outcome.skipped, {a: RestoreObstacle.TOO_MUCH})
        self.assertEqual(await world.restore(), {"variable:app/a": None})

    @scenario
    async def test_other_readers(self) -> None:
        """Values don't come back to a variable that others may read than before, until these may no longer (DEL-18)."""
        world = await self.deleted_variable()
        trap = "- !permit { role: !user /alice, privileges: [ execute ], resource: !variable db }"
        await world.load(DOCUMENT + trap, APP)
        self.assertEqual(await world.restore(), {DB: RestoreObstacle.OTHER_READERS})
        await world.load(trap.replace("permit", "deny"), APP, UPDATE)
        self.assertEqual(await world.restore(), {DB: None})
        self.assertIsNone(await world.value(DB, by=BOB))

    @scenario
    async def test_later_readers(self) -> None:
        """Nor do values come back that were pushed out before others were permitted to read the variable (DEL-18)."""
        world = await self.world()
        await world.put(DB, *(f"value {number}" for number in range(1, 22)))
        await world.load("- !permit { role: !user /bob, privileges: [ execute ], resource: !variable db }", APP)
        await world.put(DB, "value 22")
        newer, older = await world.numbers()
        outcome = await world.deleted.restore_records(await world.caller(ADMIN), APP, [newer, older])
        self.assertEqual(outcome.skipped, {older: RestoreObstacle.OTHER_READERS})
        self.assertEqual([await world.value(DB, version, by=BOB) for version in (1, 2)], [None, "value 2"])

    @scenario
    async def test_readers_by_others(self) -> None:
        """Permissions that another policy recorded count among those who could read, and don't come back themselves (DEL-18,
        DEL-19).
        """
        world = await self.world()
        await world.put(DB, "one")
        by_root = "- !permit { role: !user bob, privileges: [ execute ], resource: !variable app/db }"
        await world.load(by_root)
        self.assertEqual(await world.value(DB, by=BOB), "one")
        await world.load("- !delete { record: !variable db }", APP, UPDATE)
        await world.restore()
        self.assertIsNone(await world.value(DB, by=BOB))
        await world.load(by_root)
        await world.load("- !delete { record: !variable db }", APP, UPDATE)
        await world.load(DOCUMENT, APP)
        await world.load(by_root)
        self.assertEqual(await world.restore(), {DB: None})
        self.assertEqual(await world.value(DB, by=BOB), "one")

    @scenario
    async def test_roles(self) -> None:
        """A role comes back without credentials, with its restrictions, annotations and the grants that its policy made, not
        with those that others made (DEL-19, DEL-20).
        """
        world = await self.world()
        await world.load("- !grant { role: !group others, member: !host app/web }")
        before, old = await world.resource("host:app/web"), (await world.caller(role("host:app/web"))).caller
        await world.load("- !delete { record: !host web }", APP, UPDATE)
        await world.restore()
        host = role("host:app/web")
        self.assertEqual(await world.resource("host:app/web"), before)
        self.assertEqual(await world.held("host:app/web"), {"layer:app/workers"})
        credential = await world.stores.credentials.read_credential(host)
        self.assertTrue(credential.role_exists)
        self.assertIsNone(credential.api_key)
        self.assertEqual([str(network) for network in credential.restrictions], ["10.0.0.0/8"])
        self.assertNotEqual(credential.creation, old.creation)

    @scenario
    async def test_whole_policy(self) -> None:
        """A policy comes back with what it held: first itself, as the role that it was, then that (DEL-7, DEL-21)."""
        world = await self.world()
        await world.put(DB, "one")
        before = await world.resource("policy:app")
        await world.load("- !delete { record: !policy app }", ROOT, UPDATE)
        self.assertEqual(await world.listed(ROOT), [("policy:app", ())])
        with self.assertRaises(RecordNotFound):
            await world.listed()
        await world.restore(policy=ROOT)
        self.assertEqual(attrs.evolve(await world.resource("policy:app"), history=()), attrs.evolve(before, history=()))
        self.assertEqual(len(await world.listed(by=ALICE)), 3)
        self.assertEqual(set((await world.restore(by=ALICE)).values()), {None})
        self.assertEqual(await world.value(DB, by=role("host:app/web")), "one")

    @scenario
    async def test_own_policy(self) -> None:
        """A policy that owns itself comes back, with what it owns, by who may have back what its recorder owned (DEL-7)."""
        world = await self.world()
        world.dialect = CONJUR
        await world.load("- !policy { id: own, owner: !policy own, body: [ !variable v ] }", APP, UPDATE)
        await world.load("- !delete { record: !policy own }", APP, UPDATE)
        self.assertEqual(set(await world.listed(by=ALICE)), {("policy:app/own", ()), ("variable:app/own/v", ())})
        self.assertEqual(set((await world.restore(by=ALICE)).values()), {None})
        self.assertEqual((await world.resource("variable:app/own/v")).owner, "acct:policy:app/own")
        self.assertEqual((await world.resource("policy:app/own")).owner, "acct:policy:app/own")

    @scenario
    async def test_kinds_that_policies_made_up(self) -> None:
        """A record of such a kind comes back with what was granted and permitted (NAME-30, DEL-1)."""
        world = await self.world()
        world.dialect = CONJUR
        job, food = "!role { kind: job, id: j }", "!resource { kind: food, id: f }"
        await world.load(
            f"- {job}\n- {food}\n- !group g\n- !grant {{ role: {job}, member: !group g }}\n"
            f"- !permit {{ role: {job}, privilege: read, resource: {food} }}",
            APP,
            UPDATE,
        )
        before = await world.resource("food:app/f")
        await world.load(f"- !delete {{ records: [ {job}, {food} ] }}", APP, UPDATE)
        self.assertEqual(set(await world.listed(by=ALICE)), {("food:app/f", ()), ("job:app/j", ())})
        self.assertEqual(set((await world.restore(by=ALICE)).values()), {None})
        self.assertEqual((await world.resource("food:app/f")).permissions, before.permissions)
        self.assertTrue(before.permissions)
        self.assertIn("job:app/j", await world.held("group:app/g"))

    @scenario
    async def test_policy_of_the_name(self) -> None:
        """The next policy of a name has nothing of the former one's, nor is it the former one again (DEL-7)."""
        world = await self.deleted_variable()
        await world.load("- !delete { record: !policy app }", ROOT, UPDATE)
        await world.load("- !policy { id: app, owner: !user bob }")
        self.assertEqual(await world.listed(), [])
        self.assertEqual(await world.listed(by=BOB), [])
        self.assertEqual(await world.restore(policy=ROOT), {"policy:app": RestoreObstacle.OTHER_OWNER})

    @scenario
    async def test_owner_of_the_name(self) -> None:
        """The next role of an owner's name has nothing of the former one's; that one, had back, has it (DEL-8, DEL-21)."""
        world = await self.world()
        await world.load("- !variable { id: mine, owner: !user alice }")
        await world.put("variable:mine", "secret")
        await world.load("- !delete { record: !user alice }", ROOT, UPDATE)
        self.assertEqual(await world.listed(ROOT), [("variable:mine", (1,)), ("user:alice", ())])
        self.assertEqual(await world.restore("variable:mine", policy=ROOT), {"variable:mine": RestoreObstacle.OWNER_GONE})
        await world.load("- !user alice")
        self.assertEqual(await world.restore("variable:mine", policy=ROOT), {"variable:mine": RestoreObstacle.OWNER_GONE})
        await world.load("- !variable { id: mine, owner: !user alice }")
        self.assertEqual(await world.restore("variable:mine", policy=ROOT), {"variable:mine": RestoreObstacle.OTHER_OWNER})
        await world.load("- !delete { record: !user alice }", ROOT, UPDATE)
        oldest = sorted(await world.numbers("user:alice", policy=ROOT))[0]
        await world.deleted.restore_records(await world.caller(ADMIN), ROOT, [oldest])
        mine = sorted(await world.numbers("variable:mine", policy=ROOT))
        outcome = await world.deleted.restore_records(await world.caller(ADMIN), ROOT, mine)
        self.assertEqual([record.versions for record in outcome.records], [(1,)])
        self.assertEqual(await world.value("variable:mine", by=ALICE), "secret")

    @scenario
    async def test_other_owner(self) -> None:
        """Values don't come back to a variable that belongs to another now, nor to one of another policy (DEL-8)."""
        world = await self.deleted_variable()
        await world.load("- !variable { id: db, owner: !user /bob }", APP)
        self.assertEqual(await world.restore(), {DB: RestoreObstacle.OTHER_OWNER})
        await world.load("- !delete { record: !variable db }", APP, UPDATE)
        await world.load("- !variable { id: app/db, owner: !policy app }")
        self.assertEqual((await world.restore())[DB], RestoreObstacle.OTHER_OWNER)
        self.assertIsNone(await world.value(DB, by=BOB))

    @scenario
    async def test_who(self) -> None:
        """Who has ``update`` on the policy may list, have back and purge what it owns, and no one else (DEL-6, DEL-9)."""
        world = await self.deleted_variable()
        reads = "- !permit { role: !user bob, privileges: [ read, create, execute ], resource: !policy app }"
        for refusal in (RecordNotFound, Forbidden):
            caller = await world.caller(BOB)
            for ask in (
                lambda c=caller: world.deleted.list_records(c, APP, 10, 0),
                lambda c=caller: world.deleted.restore_records(c, APP, [1]),
                lambda c=caller: world.deleted.purge_records(c, APP, None),
            ):
                with self.assertRaises(refusal):
                    await ask()
            await world.load(reads)
        self.assertEqual(await world.listed(by=ALICE), [(DB, (1, 2))])
        self.assertEqual(await world.restore(by=ALICE), {DB: None})

    @scenario
    async def test_what_others_own(self) -> None:
        """What a role owns that the policy doesn't own is not for who may update the policy: neither to see, nor to have
        back, nor to purge, whatever the policy declares in its place (DEL-9).
        """
        world = await self.world()
        await world.load("- !variable { id: hers, owner: !user /bob }", APP)
        await world.put("variable:app/hers", "secret", by=BOB)
        await world.load("- !delete { record: !variable app/hers }", ROOT, UPDATE)
        self.assertEqual(await world.listed(by=ALICE), [])
        numbers = await world.numbers()
        trap = "- !permit { role: !user /alice, privileges: [ execute ], resource: !variable hers }"
        await world.load("- !variable { id: hers, owner: !user /bob }\n" + trap, APP, name=ALICE)
        outcome = await world.deleted.restore_records(await world.caller(ALICE), APP, numbers)
        self.assertEqual(outcome.skipped, dict.fromkeys(numbers, RestoreObstacle.NOT_KEPT))
        self.assertEqual(await world.deleted.purge_records(await world.caller(ALICE), APP, None), [])
        self.assertEqual(await world.deleted.purge_records(await world.caller(ALICE), APP, numbers), [])
        self.assertEqual(await world.restore(), {"variable:app/hers": RestoreObstacle.OTHER_READERS})
        self.assertIsNone(await world.value("variable:app/hers", by=ALICE))

    @scenario
    async def test_grants_to_others(self) -> None:
        """Grants and permissions come back to the roles that they were to, not to the next of their names (DEL-19)."""
        world = await self.world()
        extra = "- !group team\n- !grant { role: !group team, member: !user /bob }\n"
        await world.load(extra, APP)
        await world.load("- !permit { role: !user /bob, privileges: [ execute ], resource: !variable db }", APP)
        await world.put(DB, "one")
        await world.load("- !delete { record: !group team }\n- !delete { record: !variable db }", APP, UPDATE)
        await world.load("- !delete { record: !user bob }", ROOT, UPDATE)
        await world.load("- !user bob")
        await world.restore()
        self.assertEqual(world.left_out, 2)
        self.assertEqual(await world.held("user:bob"), set())
        self.assertIsNone(await world.value(DB, by=BOB))

    @scenario
    async def test_authority(self) -> None:
        """A grant or permission of what isn't the policy's comes back for who has authority over it alone (DEL-19)."""
        world = await self.world()
        await world.load("- !variable outside")
        gift = "- !grant { role: !group /others, member: !host web }\n"
        gift += "- !permit { role: !host web, privileges: [ execute ], resource: !variable /outside }"
        await world.load(gift, APP)
        for who, held in ((ALICE, {"layer:app/workers"}), (ADMIN, {"layer:app/workers", "group:others"})):
            await world.load("- !delete { record: !host web }", APP, UPDATE)
            numbers = await world.numbers("host:app/web")
            outcome = await world.deleted.restore_records(await world.caller(who), APP, [numbers[-1]])
            self.assertEqual(outcome.skipped_rows, 2 if who == ALICE else 0)
            self.assertEqual(await world.held("host:app/web"), held)
            await world.load("- !delete { record: !host web }", APP, UPDATE)
            await world.deleted.purge_records(await world.caller(ADMIN), APP, None)
            await world.load(DOCUMENT + gift, APP)

    @scenario
    async def test_place(self) -> None:
        """A record doesn't come back beneath a policy that somebody else made since (DEL-10)."""
        world = await self.world()
        await world.load("- !variable sub/key", APP)
        await world.put("variable:app/sub/key", "one")
        await world.load("- !delete { record: !variable sub/key }", APP, UPDATE)
        await world.load("- !policy { id: app/sub, owner: !user bob }")
        self.assertEqual(await world.restore(by=ALICE), {"variable:app/sub/key": RestoreObstacle.FORBIDDEN})
        self.assertEqual(await world.restore(), {"variable:app/sub/key": None})

    @scenario
    async def test_there_already(self) -> None:
        """A role that was declared again stays as it is (DEL-13)."""
        world = await self.world()
        await world.load("- !delete { record: !host web }", APP, UPDATE)
        await world.load("- !host web", APP)
        self.assertEqual(await world.restore(), {"host:app/web": RestoreObstacle.RECORD_EXISTS})
        self.assertEqual((await world.resource("host:app/web")).annotations, ())

    @scenario
    async def test_not_kept(self) -> None:
        """Not kept are public keys, and hosts that host factories made (DEL-3)."""
        world = await self.world()
        await world.load("- !layer l\n- !host-factory { id: f, layers: [ !layer l ] }")
        await world.load(f"- !user {{ id: carol, public_keys: {ONE} home }}")
        digest, token = digest_token("token"), FactoryToken(role("host_factory:f"), 2e9)
        await world.stores.factories.add_tokens([digest], token)
        await world.stores.factories.create_host(digest, role("host:made"), {}, Sealed(b"key"))
        await world.load("- !delete { record: !user carol }\n- !delete { record: !host-factory f }", ROOT, UPDATE)
        names = {name for name, _ in await world.listed(ROOT)}
        self.assertEqual(names, {"user:carol", "host_factory:f"})

    @scenario
    async def test_authenticators(self) -> None:
        """An authenticator comes back switched as it was, and distrusts what it distrusted (DEL-22)."""
        world = await self.world()
        service = ResourceName(ACCOUNT, "webservice", "svc/authn-jwt/ci")
        await world.load("- !webservice svc/authn-jwt/ci")
        await world.stores.authenticators.switch_authenticator(service, False)
        await world.stores.authenticators.distrust_key(service, "key-1", ADMIN)
        before = await world.stores.authenticators.list_distrusted_keys(service)
        await world.load("- !delete { record: !webservice svc/authn-jwt/ci }", ROOT, UPDATE)
        await world.restore(policy=ROOT)
        self.assertEqual(await world.stores.authenticators.list_distrusted_keys(service), before)
        settings = await world.stores.authenticators.read_settings(ACCOUNT, "svc/authn-jwt/ci", ())
        self.assertIs(settings.switched, False)

    @scenario
    async def test_record_limits(self) -> None:
        """Nothing comes back that would be more than a record may carry, and then nothing does (DEL-11)."""
        world = await self.deleted_variable()
        world.limits = RecordLimits(permissions=1)
        with self.assertRaises(PolicyInvalid):
            await world.restore()
        self.assertEqual(await world.listed(), [(DB, (1, 2))])

    @scenario
    async def test_purge(self) -> None:
        """What is purged is gone for good: by number, or all (DEL-23)."""
        world = await self.world()
        await world.put(DB, "one")
        await world.load("- !layer workers", APP, REPLACE)
        (number,) = await world.numbers("host:app/web")
        self.assertEqual(await world.deleted.purge_records(await world.caller(ALICE), APP, [number]), ["acct:host:app/web"])
        self.assertEqual(await world.listed(), [(DB, (1,))])
        self.assertEqual(await world.deleted.purge_records(await world.caller(ALICE), APP, None), ["acct:variable:app/db"])
        self.assertEqual(await world.stores.deleted.read_usage(), RetainedTotals())

    @scenario
    async def test_time(self) -> None:
        """Once its time is over nothing can be had back, and a round purges it; before, it does not (DEL-4)."""
        world = await self.deleted_variable()
        (number,) = await world.numbers()
        await self.grow_older(self.keeping.seconds - 60)
        self.assertEqual(await world.stores.deleted.purge_old(), 0)
        self.assertEqual(await world.listed(), [(DB, (1, 2))])
        await self.grow_older(60)
        self.assertEqual(await world.listed(), [])
        outcome = await world.deleted.restore_records(await world.caller(ADMIN), APP, [number])
        self.assertEqual(outcome.skipped, {number: RestoreObstacle.NOT_KEPT})
        self.assertEqual((await world.stores.deleted.read_usage()).records, 1)
        self.assertEqual(await world.stores.deleted.purge_old(), 1)
        self.assertEqual(await world.stores.deleted.read_usage(), RetainedTotals())

    @scenario
    async def test_ended(self) -> None:
        """A value that has ended doesn't live again when it comes back (DEL-15)."""
        world = await self.world()
        ending = "- !variable { id: short, annotations: { expiration/ttl: PT1S } }"
        await world.load(ending, APP)
        await world.put("variable:app/short", "secret")
        await self.pass_time(2)
        self.assertIsNone(await world.value("variable:app/short"))
        for again in ("", ending):
            await world.load("- !delete { record: !variable short }", APP, UPDATE)
            if again:
                await world.load(again, APP)
            self.assertEqual(await world.restore(), {"variable:app/short": None})
            self.assertIsNone(await world.value("variable:app/short"))

    @scenario
    async def test_pages(self) -> None:
        """A list has its pages, the newest first (DEL-6)."""
        world = await self.world()
        caller = await world.caller(ADMIN)
        await world.load("".join(f"- !variable v{number}\n" for number in range(4)), APP)
        for number in range(4):
            await world.load(f"- !delete {{ record: !variable v{number} }}", APP, UPDATE)
        pages = [await world.deleted.list_records(caller, APP, 2, offset) for offset in (0, 2, 4)]
        self.assertEqual([[record.resource[-1] for record in page] for page in pages], [["3", "2"], ["1", "0"], []])
        self.assertTrue(all(record.until == record.deleted_at + self.keeping.seconds for record in pages[0]))

    @scenario
    async def test_account(self) -> None:
        """With an account goes what it had deleted (DEL-5)."""
        world = await self.deleted_variable()
        await world.stores.accounts.delete_account(ACCOUNT)
        self.assertEqual(await world.stores.deleted.read_usage(), RetainedTotals())

    @scenario
    async def test_one_variable(self) -> None:
        """Of values that were pushed out of one variable the newest rows are kept (DEL-4)."""
        world = await self.world()
        await world.put(DB, *map(str, range(1, OVERWRITTEN_MOST + 25)))
        found = await world.listed()
        self.assertEqual((len(found), found[0], found[-1]), (OVERWRITTEN_MOST, (DB, (104,)), (DB, (5,))))


class LittleDeletedContract(_Suite):
    """What is kept where there is little room."""

    keeping = RecordRetention(seconds=1000.0, bytes=4000)

    @scenario
    async def test_room(self) -> None:
        """The oldest of an account goes when there is too much, and the load that deletes more says so; of other accounts
        nothing goes (DEL-4).
        """
        world = await self.world()
        other = await self._other(world.stores)
        for number in range(3):
            await world.load(f"- !variable v{number}", APP)
            await world.put(f"variable:app/v{number}", "x" * 1000)
        warnings = [
            (await world.load(f"- !delete {{ record: !variable v{number} }}", APP, UPDATE)).warnings for number in range(3)
        ]
        self.assertEqual([len(told) for told in warnings], [0, 0, 1])
        self.assertIn("1 deleted records, the oldest, were purged for good", warnings[2][0])
        self.assertEqual([name for name, _ in await world.listed()], ["variable:app/v2", "variable:app/v1"])
        self.assertEqual((await world.stores.deleted.read_usage()).records, 2 + other)

    @scenario
    async def test_pushed_out(self) -> None:
        """Values that are pushed out don't fill the disk: a round removes the oldest beyond the limit (DEL-4)."""
        world = await self.world()
        await world.put(DB, *(f"{number} {'x' * 1000}" for number in range(24)))
        self.assertEqual(len(await world.listed()), 4)
        self.assertEqual(await world.stores.deleted.enforce_limits(), {ACCOUNT: 2})
        self.assertEqual(await world.listed(), [(DB, (4,)), (DB, (3,))])
        self.assertEqual(await world.stores.deleted.enforce_limits(), {})

    async def _other(self, stores: Stores) -> int:
        """Keep something of another account, and return how many records that are."""
        await self.add_account(stores, "other")
        draft = Draft("other").define("variable:v")
        root = RoleName("other", "policy", "root")
        await load(stores, draft, root)

        async def work(transaction: PolicyTransaction) -> int:
            return await transaction.apply_changes(root, Changes(delete=draft.rows), {})

        await stores.policies.transact(work)
        return 1


class NothingDeletedContract(_Suite):
    """What is kept with ``--deleted-retention 0``."""

    keeping = RecordRetention(seconds=0.0)

    @scenario
    async def test_nothing(self) -> None:
        """Nothing is kept (DEL-4)."""
        world = await self.deleted_variable()
        await world.load(DOCUMENT, APP)
        await world.put(DB, *(f"value {number}" for number in range(1, 24)))
        self.assertEqual(await world.stores.deleted.read_usage(), RetainedTotals())
        self.assertEqual(await world.listed(), [])
