"""Where the suites and other tests find the stores on PostgreSQL."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, TypeVar

import attrs
from twisted.internet.defer import Deferred

import svc.storage
from svc.model.deleted_records import DEFAULT_RETENTION, RecordRetention
from svc.model.dialect import NATIVE
from svc.model.names import RoleName
from svc.storage.access import AccessStore
from svc.storage.accounts import AccountStore
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.credentials import CredentialStore
from svc.storage.database_state import DatabaseState
from svc.storage.deleted_records import DeletedStore
from svc.storage.directory_users import DirectoryUserStore
from svc.storage.driver.database import Database
from svc.storage.driver.statements import Statement
from svc.storage.effective_policy import EffectivePolicyStore
from svc.storage.events import EventStore
from svc.storage.expirations import ExpirationStore
from svc.storage.host_factories import HostFactoryStore
from svc.storage.idempotency import IdempotencyStore
from svc.storage.last_logins import LastLoginStore
from svc.storage.ldap_mappings import LdapMappingStore
from svc.storage.policies import PolicyStore
from svc.storage.policy_edits import PolicyEditStore
from svc.storage.public_keys import PublicKeyStore
from svc.storage.readings import ReadingStore
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore
from svc.storage.sessions import SessionStore
from svc.storage.upcoming_expirations import UpcomingExpirationStore
from tests.contracts import base
from tests.contracts.base import Stores
from tests.integration.postgres import PATIENCE, PostgresTestCase

T = TypeVar("T")

#: The database that most tests share, one after the other.
SHARED = "stores"

#: Back to what the schema begins with.
EMPTY = """
    DELETE FROM accounts; DELETE FROM roles WHERE role_id NOT LIKE '/:%'; DELETE FROM canary; DELETE FROM kept_answers;
    DELETE FROM read_variables WHERE resource_id NOT LIKE '/:%'; DELETE FROM readers WHERE role_id NOT LIKE '/:%';
    DELETE FROM reading_sources; DELETE FROM reading_servers; DELETE FROM reading_losses
"""


def stores_on(database: Database, keeping: RecordRetention = DEFAULT_RETENTION) -> Stores:
    """The stores on ``database``."""
    return Stores(
        AccountStore(database),
        CredentialStore(database),
        RoleStore(database),
        PolicyStore(database, keeping),
        SecretStore(database, NATIVE, keeping),
        AuthenticatorStore(database),
        DatabaseState(database),
        ResourceStore(database),
        EffectivePolicyStore(database),
        HostFactoryStore(database),
        PublicKeyStore(database),
        EventStore(database),
        ExpirationStore(database, keeping),
        DeletedStore(database, keeping),
        SessionStore(database),
        AccessStore(database),
        UpcomingExpirationStore(database),
        LastLoginStore(database),
        PolicyEditStore(database, keeping),
        LdapMappingStore(database),
        IdempotencyStore(database),
        DirectoryUserStore(database),
        ReadingStore(database),
    )


def begun(coroutine: Coroutine[Any, Any, T]) -> Deferred[T]:
    """Begin a coroutine, to be awaited later."""
    return Deferred.fromCoroutine(coroutine)


def statements() -> Iterable[Statement]:
    """Every statement of ``svc.storage``, each once, also those that other values hold."""
    modules = [import_module(found.name) for found in walk_packages(svc.storage.__path__, "svc.storage.")]
    return {id(found): found for module in modules for found in _within(list(vars(module).values()))}.values()


def _within(value: object) -> Iterator[Statement]:
    if isinstance(value, Statement):
        yield value
    elif isinstance(value, Mapping):
        yield from _within(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _within(item)
    elif attrs.has(kind := type(value)):
        yield from _within([getattr(value, field.name) for field in attrs.fields(kind)])


def database_of(dsn: str) -> str:
    """The name of the database that a DSN of the test server leads to."""
    return dsn.rpartition("=")[2]


class InPostgres(base.Contract, PostgresTestCase):
    """Where a suite finds the stores on PostgreSQL."""

    database: Database

    async def prepare(self) -> None:
        """Empty the shared database."""
        await super().prepare()
        if not self.server.command(f"SELECT 1 FROM pg_database WHERE datname = '{SHARED}'"):
            await self.server.create_database(SHARED)
        self.database = await self.open_database(self.server.dsn(SHARED))
        # A test may have left very many rows, and the machine may be busy.
        await self.database.transact(lambda transaction: transaction.execute(EMPTY), statement_timeout=PATIENCE)

    def complete(self, coroutine: Coroutine[Any, Any, None]) -> object:
        """Let a scenario take its time."""
        return begun(coroutine)

    async def stores(self) -> Stores:
        """An empty store."""
        return stores_on(self.database, self.keeping)

    async def remain(self, name: RoleName) -> None:
        """Leave a role without a resource."""
        remaining = "INSERT INTO roles (role_id) VALUES (%s); INSERT INTO credentials VALUES (%s, 'old')"
        await self.database.transact(lambda transaction: transaction.execute(remaining, [str(name), str(name)]))
