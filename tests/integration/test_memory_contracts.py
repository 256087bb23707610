"""Stores whose answers are remembered keep the contracts of those that ask the database each time (CLU-31)."""

from __future__ import annotations

import attrs
from twisted.internet import reactor

from svc.model.dialect import NATIVE
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.cache.commit_counters import CommitCounters
from svc.storage.cache.read_cache import ReadCache
from svc.storage.credentials import CredentialStore
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore
from tests.contracts import (
    authenticators,
    callers,
    credentials,
    day,
    factories,
    inspection,
    lists,
    loads,
    policies,
    resources,
    roles,
    secrets,
)
from tests.contracts.base import Stores
from tests.integration.memory_world import LIMIT, LONG, turn
from tests.integration.stores import InPostgres, stores_on


class Remembered(InPostgres):
    """Where a suite finds stores that remember."""

    memory: ReadCache

    async def prepare(self) -> None:
        """Begin to remember."""
        await super().prepare()
        slots = CommitCounters.for_one_process()
        self.database.report_commits(lambda confirmed, _: slots.count_commit(confirmed=confirmed))
        self.memory = ReadCache(reactor, self.database, slots, lag=LONG, limit=LIMIT)
        self.memory.startService()
        self.addCleanup(self.memory.stopService)
        while not await self.memory.poll_now():
            await turn(0.01)

    async def stores(self) -> Stores:
        """An empty store."""
        memory = self.memory
        return attrs.evolve(
            stores_on(self.database),
            roles=RoleStore(memory),
            resources=ResourceStore(memory),
            secrets=SecretStore(memory, NATIVE),
            credentials=CredentialStore(memory),
            authenticators=AuthenticatorStore(memory),
        )


class RememberedAuthenticatorTests(authenticators.AuthenticatorsContract, Remembered):
    """Authenticators."""


class RememberedCallerTests(callers.CallersContract, Remembered):
    """Callers whose role was made again."""


class RememberedCredentialTests(credentials.CredentialsContract, Remembered):
    """Credentials."""


class RememberedDayTests(day.DayContract, Remembered):
    """A day."""


class RememberedFactoryTests(factories.HostFactoriesContract, Remembered):
    """Host factories."""


class RememberedInspectionTests(inspection.InspectionContract, Remembered):
    """What auditors see."""


class RememberedListTests(lists.ListsContract, Remembered):
    """Lists."""


class RememberedLoadTests(loads.LoadsContract, Remembered):
    """Loads."""


class RememberedPolicyTests(policies.PoliciesContract, Remembered):
    """Policies."""


class RememberedResourceTests(resources.ResourcesContract, Remembered):
    """Resources."""


class RememberedRoleTests(roles.RolesContract, Remembered):
    """Roles."""


class RememberedSecretTests(secrets.SecretsContract, Remembered):
    """Values."""
