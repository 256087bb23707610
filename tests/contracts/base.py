"""What the suites have in common: the stores they ask, how a scenario is run, and rows made with few words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.model.deleted_records import DEFAULT_RETENTION, RecordRetention
from svc.model.names import ResourceName, RoleName, admin_of, is_role_kind, root_policy
from svc.model.policy_loads import (
    AnnotationRow,
    Changes,
    MembershipRow,
    PermissionRow,
    ResourceRow,
    RestrictionRow,
    Rows,
)
from svc.model.query_results import AccessFacts, Resource, Sealed, StoredSigningKey
from svc.storage.access import AccessStore
from svc.storage.accounts import AccountStore
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.credentials import CredentialStore
from svc.storage.database_state import DatabaseState
from svc.storage.deleted_records import DeletedStore
from svc.storage.directory_users import DirectoryUserStore
from svc.storage.effective_policy import EffectivePolicyStore
from svc.storage.events import EventStore
from svc.storage.expirations import ExpirationStore
from svc.storage.host_factories import HostFactoryStore
from svc.storage.idempotency import IdempotencyStore
from svc.storage.last_logins import LastLoginStore
from svc.storage.ldap_mappings import LdapMappingStore
from svc.storage.policies import PolicyStore, PolicyTransaction
from svc.storage.policy_edits import PolicyEditStore
from svc.storage.public_keys import PublicKeyStore
from svc.storage.readings import ReadingStore
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore
from svc.storage.sessions import SessionStore
from svc.storage.upcoming_expirations import UpcomingExpirationStore

C = TypeVar("C", bound="Contract")

ACCOUNT = "acct"
ADMIN = admin_of(ACCOUNT)
ROOT = root_policy(ACCOUNT)

#: Identifiers that a store may trip over, when it takes them for more than text.
ODD_IDENTIFIERS = (
    "it's",
    'say "so"',
    "100%",
    "%s",
    "%(name)s",
    "_",
    "back\\slash\\",
    "a:b:c",
    "$1",
    "{a,b}",
    "NULL",
    "new\nline",
    " ",
    "ünï/☃/𝄞",
    "a'; DROP TABLE roles; --",
    "x" * 1024,
)


@attrs.frozen
class Stores:
    """One store, seen through each of its seams. Its dialect is the native one."""

    accounts: AccountStore
    credentials: CredentialStore
    roles: RoleStore
    policies: PolicyStore
    secrets: SecretStore
    authenticators: AuthenticatorStore
    state: DatabaseState
    resources: ResourceStore
    effective: EffectivePolicyStore
    factories: HostFactoryStore
    public_keys: PublicKeyStore
    events: EventStore
    expirations: ExpirationStore
    deleted: DeletedStore
    sessions: SessionStore
    access: AccessStore
    endings: UpcomingExpirationStore
    last_logins: LastLoginStore
    edits: PolicyEditStore
    mappings: LdapMappingStore
    answers: IdempotencyStore
    directory_users: DirectoryUserStore
    readings: ReadingStore

    async def has_role(self, role: RoleName) -> bool:
        """Tell whether there is a role of that name."""
        return await self.roles.read_role(role) is not None


def role(name: str, account: str = ACCOUNT) -> RoleName:
    """The role ``kind:identifier``."""
    return RoleName.parse(f"{account}:{name}")


def resource(name: str, account: str = ACCOUNT) -> ResourceName:
    """The resource ``kind:identifier``."""
    return ResourceName.parse(f"{account}:{name}")


def signing_key(account: str, key_id: str, created_at: float = 1000.0) -> StoredSigningKey:
    """A signing key, as it is stored when it is new."""
    return StoredSigningKey(account, key_id, Sealed(b"\x00\xff sealed " + key_id.encode()), created_at)


@attrs.define
class Draft:
    """Rows in the making, of one account; names are ``kind:identifier``."""

    account: str = ACCOUNT
    _resources: list[ResourceRow] = attrs.field(factory=list, init=False)
    _memberships: list[MembershipRow] = attrs.field(factory=list, init=False)
    _permissions: list[PermissionRow] = attrs.field(factory=list, init=False)
    _annotations: list[AnnotationRow] = attrs.field(factory=list, init=False)
    _restrictions: list[RestrictionRow] = attrs.field(factory=list, init=False)

    def define(self, *names: str, owner: str = "user:admin") -> Self:
        """Resources, and roles of the same names with their ownership rows."""
        for name in names:
            self._resources.append(ResourceRow(self._full(name), self._full(owner)))
            if is_role_kind(name.partition(":")[0]):
                self._memberships.append(MembershipRow(self._full(name), self._full(owner), True, True))
        return self

    def grant(self, granted: str, *members: str, admin: bool = False) -> Self:
        """A role to members."""
        self._memberships += [MembershipRow(self._full(granted), self._full(name), False, admin) for name in members]
        return self

    def permit(self, name: str, grantee: str, *privileges: str) -> Self:
        """Privileges on a resource to a role."""
        self._permissions += [PermissionRow(self._full(name), privilege, self._full(grantee)) for privilege in privileges]
        return self

    def annotate(self, name: str, annotations: Mapping[str, str]) -> Self:
        """Annotations on a resource."""
        self._annotations += [AnnotationRow(self._full(name), *annotation) for annotation in annotations.items()]
        return self

    def restrict(self, name: str, *networks: str) -> Self:
        """A role to networks."""
        self._restrictions += [RestrictionRow(self._full(name), network) for network in networks]
        return self

    @property
    def rows(self) -> Rows:
        """What was said so far."""
        return Rows(
            tuple(self._resources),
            tuple(self._memberships),
            tuple(self._permissions),
            tuple(self._annotations),
            tuple(self._restrictions),
        )

    def _full(self, name: str) -> str:
        return f"{self.account}:{name}"


async def described(stores: Stores, ids: Sequence[str], text_limit: int = 0) -> list[Resource]:
    """Resources, put together again of their parts."""
    found: list[Resource] = []
    open_ = False
    async for portion in stores.resources.stream_described(ids, text_limit):
        for part in portion:
            before = found.pop() if open_ else attrs.evolve(part, permissions=(), annotations=())
            permissions, annotations = before.permissions + part.permissions, before.annotations + part.annotations
            found.append(attrs.evolve(part, permissions=permissions, annotations=annotations, continued=False))
            open_ = part.continued
    return found


async def load(stores: Stores, draft: Draft, policy: RoleName = ROOT, api_keys: Mapping[str, Sealed] | None = None) -> None:
    """Have ``policy`` record rows."""
    await change(stores, Changes(create=draft.rows), policy, api_keys)


async def change(
    stores: Stores, changes: Changes, policy: RoleName = ROOT, api_keys: Mapping[str, Sealed] | None = None
) -> None:
    """Have a load of ``policy`` make changes."""

    async def work(transaction: PolicyTransaction) -> None:
        await transaction.apply_changes(policy, changes, api_keys or {})

    await stores.policies.transact(work)


def scenario(test: Callable[[C], Coroutine[Any, Any, None]]) -> Callable[[C], object]:
    """Make a test method of a coroutine, for a test case that knows how to complete it."""

    @functools.wraps(test)
    def run(case: C) -> object:
        return case.complete(test(case))

    return run


class Contract(SynchronousTestCase):
    """A suite for one seam. Who runs it says where the stores come from, and how long a coroutine may take."""

    #: What the stores keep of what is deleted.
    keeping: RecordRetention = DEFAULT_RETENTION

    def complete(self, coroutine: Coroutine[Any, Any, None]) -> object:
        """Run a scenario to its end: at once. Where the stores take time, return the Deferred instead."""
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    async def stores(self) -> Stores:
        """An empty store."""
        raise NotImplementedError

    async def remain(self, name: RoleName) -> None:
        """Leave a role in the store without a resource, recorded by no policy, with a credential."""
        raise NotImplementedError

    async def stores_with_account(self, *more: str) -> Stores:
        """A store with the account ``ACCOUNT``, and more."""
        stores = await self.stores()
        for account in (ACCOUNT, *more):
            await self.add_account(stores, account)
        return stores

    async def add_account(self, stores: Stores, account: str) -> None:
        """Make an account."""
        await stores.accounts.create_account(account, Sealed(b"key of admin"), signing_key(account, f"{account}-1"))

    async def assert_standings(self, stores: Stores, expected: Iterable[tuple[str, str, AccessFacts]]) -> None:
        """Each caller stands towards each resource as expected."""
        for caller, thing, access_facts in expected:
            self.assertEqual(await stores.roles.access_facts(role(caller), resource(thing)), access_facts, (caller, thing))
