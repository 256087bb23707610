"""The fakes of the stores keep the contracts that the real ones keep."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import ReadOnlyStandby, StoreUnavailable
from svc.model.idempotency import RequestKey
from svc.model.names import RoleName
from svc.model.query_results import MembersQuery, Sealed
from svc.storage.idempotency import IdempotencyStore
from tests.contracts import (
    access,
    accounts,
    authenticators,
    base,
    callers,
    credentials,
    deleted,
    directory_users,
    effective,
    endings,
    events,
    expirations,
    factories,
    impact,
    inspection,
    kept_answers,
    last_logins,
    ldap_mappings,
    lists,
    loads,
    policies,
    policy_edits,
    publickeys,
    readings,
    record_limits,
    resources,
    roles,
    secrets,
    sessions,
    state,
)
from tests.contracts.base import ADMIN, ROOT, Draft, Stores, described, load, scenario
from tests.fakes import Fake, inherited_methods
from tests.memory import (
    Memory,
    MemoryAccounts,
    MemoryAuthenticators,
    MemoryCredentials,
    MemoryKeptAnswers,
    MemoryRoles,
    MemorySecrets,
    MemoryState,
    MemoryStore,
)
from tests.memory_access import MemoryAccess
from tests.memory_deleted import MemoryDeleted
from tests.memory_directory_users import MemoryDirectoryUsers
from tests.memory_effective import MemoryEffectivePolicies
from tests.memory_endings import MemoryEndings, MemoryLastLogins
from tests.memory_events import MemoryEvents
from tests.memory_expirations import MemoryExpirations
from tests.memory_factories import MemoryHostFactories, MemoryPublicKeys
from tests.memory_ldap_mappings import MemoryLdapMappings
from tests.memory_policies import MemoryPolicies
from tests.memory_policy_edits import MemoryPolicyEdits
from tests.memory_reads import MemoryReads
from tests.memory_resources import MemoryResources
from tests.memory_sessions import MemorySessions


def stores_of(memory: Memory) -> Stores:
    """The stores that look at ``memory``."""
    return Stores(
        MemoryAccounts(memory),
        MemoryCredentials(memory),
        MemoryRoles(memory),
        MemoryPolicies(memory),
        MemorySecrets(memory),
        MemoryAuthenticators(memory),
        MemoryState(memory),
        MemoryResources(memory),
        MemoryEffectivePolicies(memory),
        MemoryHostFactories(memory),
        MemoryPublicKeys(memory),
        MemoryEvents(memory),
        MemoryExpirations(memory),
        MemoryDeleted(memory),
        MemorySessions(memory),
        MemoryAccess(memory),
        MemoryEndings(memory),
        MemoryLastLogins(memory),
        MemoryPolicyEdits(memory),
        MemoryLdapMappings(memory),
        MemoryKeptAnswers(memory),
        MemoryDirectoryUsers(memory),
        MemoryReads(memory),
    )


def fakes_below(kind: type[Fake]) -> Iterator[type[Fake]]:
    """Yield all fakes in ``tests`` that are made of this one."""
    for fake in kind.__subclasses__():
        yield fake
        yield from fakes_below(fake)


class FakesTests(SynchronousTestCase):
    """The fakes as classes."""

    def test_whole(self) -> None:
        """A fake in memory has no method of its store that would ask a database."""
        fakes = [fake for fake in fakes_below(MemoryStore) if fake.__module__.startswith("tests.memory")]
        stores = attrs.asdict(stores_of(Memory()), recurse=False).values()
        self.assertLessEqual({type(store) for store in stores}, set(fakes))
        self.assertEqual({fake.__name__: inherited_methods(fake) for fake in fakes if inherited_methods(fake)}, {})

    def test_a_part_is_found(self) -> None:
        """A method that a fake leaves out is found."""

        class Part(MemoryStore, IdempotencyStore):
            async def purge_expired(self) -> int:
                return 0

        self.assertEqual(inherited_methods(Part), ["read_answer"])


class InMemory(base.Contract):
    """Where a suite finds the fakes."""

    def setUp(self) -> None:
        """Make the memory."""
        self.memory = Memory(keeping=self.keeping)

    async def stores(self) -> Stores:
        """An empty store."""
        return stores_of(self.memory)

    async def remain(self, name: RoleName) -> None:
        """Leave a role without a resource."""
        self.memory.roles[str(name)] = None
        self.memory.credentials[str(name)] = Sealed(b"old")


class MemoryAccessTests(access.AccessContract, InMemory):
    """``MemoryAccess``."""


class MemoryAccountsTests(accounts.AccountsContract, InMemory):
    """``MemoryAccounts``."""


class MemoryAuthenticatorsTests(authenticators.AuthenticatorsContract, InMemory):
    """``MemoryAuthenticators``."""


class MemoryRecordLimitsTests(record_limits.RecordLimitsContract, InMemory):
    """``MemoryPolicyTransaction`` and ``MemoryResources``, with records that carry much."""


class MemoryCallersTests(callers.CallersContract, InMemory):
    """All fakes that are given a caller."""


class MemoryEndingsTests(endings.EndingsContract, InMemory):
    """``MemoryEndings``."""

    async def end_key(self, role_id: str, at: float) -> None:
        """Have an API key end at a moment."""
        self.memory.key_expirations[role_id] = at


class MemoryPolicyEditsTests(policy_edits.PolicyEditsContract, InMemory):
    """``MemoryPolicyEdits``."""


class MemoryLdapMappingsTests(ldap_mappings.LdapMappingsContract, InMemory):
    """``MemoryLdapMappings``."""


class MemoryLastLoginsTests(last_logins.LastLoginsContract, InMemory):
    """``MemoryLastLogins``."""


class MemoryReadsTests(readings.ReadingsContract, InMemory):
    """``MemoryReads``."""


class MemoryDirectoryUsersTests(directory_users.DirectoryUsersContract, InMemory):
    """``MemoryDirectoryUsers``."""


class MemoryCredentialsTests(credentials.CredentialsContract, InMemory):
    """``MemoryCredentials``."""


class MemoryKeptAnswersTests(kept_answers.KeptAnswersContract, InMemory):
    """All fakes that make a change once."""

    async def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        self.memory.now += seconds

    async def hold(self, request: RequestKey) -> None:
        """Have a request be under way."""
        self.memory.running.add((request.caller, request.key))


class MemoryDeletedTests(deleted.DeletedContract, InMemory):
    """``MemoryDeleted``, and the service on it."""

    async def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        self.memory.now += seconds

    async def grow_older(self, seconds: float) -> None:
        """Move the clock."""
        self.memory.now += seconds


class MemoryLittleDeletedTests(deleted.LittleDeletedContract, InMemory):
    """The same with little room."""


class MemoryNothingDeletedTests(deleted.NothingDeletedContract, InMemory):
    """The same when nothing is kept."""


class MemoryEventsTests(events.EventsContract, InMemory):
    """``MemoryEvents``."""


class MemoryExpirationsTests(expirations.ExpirationsContract, InMemory):
    """``MemoryExpirations``."""


class MemoryInspectionTests(inspection.InspectionContract, InMemory):
    """What auditors see."""


class MemoryHostFactoriesTests(factories.HostFactoriesContract, InMemory):
    """``MemoryHostFactories``."""


class MemoryPublicKeysTests(publickeys.PublicKeysContract, InMemory):
    """``MemoryPublicKeys``."""


class MemoryListsTests(lists.ListsContract, InMemory):
    """``MemoryRoles``, as it lists."""


class MemoryLoadsTests(loads.LoadsContract, InMemory):
    """``MemoryPolicyTransaction``."""


class MemoryPoliciesTests(policies.PoliciesContract, InMemory):
    """``MemoryPolicies``."""


class MemoryResourcesTests(resources.ResourcesContract, InMemory):
    """``MemoryResources``."""


class MemoryEffectiveTests(effective.EffectiveContract, InMemory):
    """``MemoryEffectivePolicies``."""


class MemoryImpactTests(impact.ImpactContract, InMemory):
    """``MemoryPolicyTransaction``, as dry runs ask it."""


class MemoryRolesTests(roles.RolesContract, InMemory):
    """``MemoryRoles``."""


class MemorySecretsTests(secrets.SecretsContract, InMemory):
    """``MemorySecrets``."""


class MemorySessionsTests(sessions.SessionsContract, InMemory):
    """``MemorySessions``."""


class MemoryStateTests(state.StateContract, InMemory):
    """``MemoryState``."""


class TroubleTests(InMemory):
    """What a test can have happen to the fakes."""

    @scenario
    async def test_down(self) -> None:
        """While the memory is down, every question is refused."""
        memory = Memory(down=True)
        stores = stores_of(memory)
        for asked in (
            stores.accounts.list_accounts(),
            stores.credentials.read_credential(ADMIN),
            stores.roles.list_members(MembersQuery(ROOT)),
            stores.secrets.read_value(ADMIN, ROOT.resource),
            stores.authenticators.read_settings("acct", "svc/authn-jwt/ci", ["issuer"]),
            stores.authenticators.list_webservices("svc"),
            stores.state.check_connection(),
            described(stores, [str(ROOT)]),
            load(stores, Draft()),
        ):
            with self.assertRaises(StoreUnavailable):
                await asked

    @scenario
    async def test_standby(self) -> None:
        """While the memory stands by, it answers, and takes no changes."""
        memory = Memory()
        stores = stores_of(memory)
        await stores.accounts.create_account("acct", Sealed(b"key"), base.signing_key("acct", "k"))
        memory.standby = True
        self.assertEqual(await stores.accounts.list_accounts(), ["acct"])
        await stores.state.check_transaction()
        self.assertTrue((await stores.state.read_position()).standby)
        for asked in (
            stores.accounts.create_account("more", Sealed(b"key"), base.signing_key("more", "m")),
            stores.state.establish_canary(Sealed(b"canary")),
            load(stores, Draft().define("group:g")),
            stores.authenticators.switch_authenticator(base.resource("webservice:w"), True),
            stores.secrets.write_value(ADMIN, ROOT.resource, lambda reading: None),
        ):
            with self.assertRaises(ReadOnlyStandby):
                await asked
