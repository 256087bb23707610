"""All nouns of the server in memory, on one account ``acme``: ``WorldCase`` has ``self.client`` and loads policy into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar, cast

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.audit.recent_refusals import RecentRefusals
from svc.authn.cloud import make_cloud_kind
from svc.authn.gcp import NAME as GCP
from svc.authn.iam import NAME as IAM
from svc.authn.jwt import JWT
from svc.authn.ldap.directory_settings import NAME as LDAP
from svc.authn.ldap.directory_settings import LdapServers
from svc.authn.oidc_settings import NAME as OIDC
from svc.authn.throttling import RefusalPace
from svc.crypto.key_sets import parse_key_set
from svc.crypto.passwords import Passwords
from svc.crypto.vault import Vault
from svc.health.checks_loop import ChecksLoop
from svc.health.probes import AuthzProbe, DatabaseProbe
from svc.model.authentication import IProviderKeys, KeySource, KeysState, LoginRequest
from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.model.errors import KeysUnavailable
from svc.model.key_sets import KeySet
from svc.model.ldap_directories import BaseUnreadable, DirectoryBase, DirectoryRefused, EntryState, IDirectories, LdapServer
from svc.model.limits import RECORD_LIMITS, RecordLimits
from svc.model.names import RoleName, admin_of
from svc.model.reasons import Reason
from svc.model.versions import TouchedRecords
from svc.net.trust import client_tls
from svc.policy.document import Bounds
from svc.rotation.postgresql import PostgresPasswordRotator
from svc.server.bootstrap import Installation
from svc.server.graph import Server
from svc.server.serving import load_console
from svc.server.singletons import Singletons
from svc.services.authenticators import AuthenticatorService, FederatedService
from svc.services.policy_edits import PolicyEdits
from svc.services.policy_loads import LocalLoads
from svc.services.reading_counts import ReadingRecorder
from svc.services.watches import Watches
from svc.settings.reading import read_settings
from svc.storage.cache.commit_counters import CommitCounters
from svc.web.http.refusal_recorder import RefusalRecorder
from svc.web.openapi.routes import Documentation
from tests.aws import Sts
from tests.chronicle import Chronicle
from tests.memory import (
    Memory,
    MemoryAccounts,
    MemoryAuthenticators,
    MemoryCredentials,
    MemoryKeptAnswers,
    MemoryRoles,
    MemorySecrets,
    MemoryState,
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
from tests.signing import jwks
from tests.threads import Threads, passwords_in
from tests.web.oidc_world import LISTED as OIDC_LISTED
from tests.web.oidc_world import OidcProvider
from tests.web.support import CODE, NOW, Answer, Client

S = TypeVar("S")

ACCOUNT: Final = "acme"
ADMIN: Final = admin_of(ACCOUNT)
ADMIN_KEY: Final = "1admin"

#: The authenticators in the configuration.
LISTED: Final = frozenset({"authn", "authn-jwt/ci", GCP, f"{IAM}/prod"})

#: Who issues Google's tokens.
GOOGLE: Final = "https://accounts.google.com"

_POLICY = "/policies/acme/policy/"


@implementer(IProviderKeys)
class Provider:
    """A JWT provider's keys, at hand, those of ``document``; ``down`` makes them unavailable."""

    def __init__(self) -> None:
        self.down = False
        self.document = jwks()
        self.asked: list[KeySource] = []

    async def current_keys(self, source: KeySource, refreshes: int = 0, request: LoginRequest | None = None) -> KeySet:
        """Return the only set."""
        self.asked.append(source)
        if self.down:
            raise KeysUnavailable(f"{source.uri} is down", 3)
        return parse_key_set(self.document, source.algorithms)

    async def fetch_newer_keys(self, source: KeySource, seen: KeySet, request: LoginRequest | None = None) -> KeySet:
        """There is never a newer one."""
        raise KeysUnavailable("there is no newer set")

    def keys_state(self, source: KeySource) -> KeysState:
        """Nothing is told of it."""
        return KeysState()


class Changes:
    """Changes that a test tells of."""

    def __init__(self) -> None:
        self.followers: list[Callable[[TouchedRecords], None]] = []

    def follow_changes(self, told: Callable[[TouchedRecords], None]) -> Callable[[], None]:
        """See ``FollowChanges``."""
        self.followers.append(told)
        return lambda: self.followers.remove(told)

    def tell(self, *ids: str, accounts: Iterable[str] = (), everything: bool = False) -> None:
        """Tell of a change."""
        for told in tuple(self.followers):
            told(TouchedRecords(frozenset(ids), frozenset(accounts), everything))


@implementer(IDirectories)
class Directory:
    """Directories that all know the same people; ``refused`` says why none can be asked, if that is so."""

    def __init__(self) -> None:
        self.passwords: dict[str, bytes] = {}
        self.refused: DirectoryRefused | None = None
        self.groups_refused: DirectoryRefused | None = None
        self.groups_of: dict[str, Sequence[str]] = {}
        self.asked: list[tuple[LdapServer, str, bytes]] = []
        self.by_operators: list[bool] = []
        self.base_fault: str | None = None
        self.mapped: Sequence[str] = ()
        self.states_of: dict[str, EntryState] = {}

    async def verify_password(self, server: LdapServer, login: str, password: bytes, *, by_operator: bool = False) -> None:
        """Compare the password."""
        self.asked.append((server, login, password))
        await self.check_connection(server, by_operator=by_operator)
        if login not in self.passwords:
            raise DirectoryRefused(Reason.LDAP_ENTRY_UNKNOWN, "nobody")
        if self.passwords[login] != password:
            raise DirectoryRefused(Reason.CREDENTIALS_WRONG, "49")

    async def read_groups(
        self, server: LdapServer, login: str, password: bytes, mapped: Sequence[str] = (), *, by_operator: bool = False
    ) -> Sequence[str]:
        """Compare the password, and tell the groups; ``mapped`` are noted."""
        self.mapped = mapped
        await self.verify_password(server, login, password, by_operator=by_operator)
        if self.groups_refused is not None:
            raise self.groups_refused
        return self.groups_of.get(login, ())

    async def check_connection(self, server: LdapServer, within: float | None = None, *, by_operator: bool = False) -> None:
        """Be there, or not."""
        self.by_operators.append(by_operator)
        if self.refused is not None:
            raise self.refused

    async def read_bases(self, server: LdapServer) -> Sequence[DirectoryBase]:
        """Read the entries."""
        await self.check_connection(server)
        return [DirectoryBase("ldap-authn/base_dn", server.base_dn, self.base_fault)]

    async def read_entry_states(self, server: LdapServer, logins: Sequence[str]) -> Sequence[EntryState]:
        """Look for the entries."""
        await self.check_connection(server)
        if self.base_fault is not None:
            raise BaseUnreadable(Reason.LDAP_SEARCH_REFUSED, self.base_fault)
        return [self.states_of.get(login, EntryState.PRESENT) for login in logins]


def in_test(make: Callable[[MemoryServer], S]) -> cached_property[S]:
    """Return a part of the server of a test."""
    return cached_property(make)


def in_memory(fake: Callable[[Memory], S]) -> cached_property[S]:
    """Return a property with the fake of a store, on the memory of its server."""
    return cached_property(lambda server: fake(server.memory))


@attrs.frozen(slots=False, eq=False, kw_only=True)
class MemoryServer(Server):
    """The server of a test, whose stores, directories and providers are in memory."""

    world: WorldCase

    @property
    def memory(self) -> Memory:
        """All that stores have."""
        return self.world.memory

    @property
    def journal(self) -> Any:
        """Records that the test reads."""
        return self.world.journal

    async def ensure_writable(self) -> None:
        """Check that the memory takes writes."""
        await self.memory.ensure_writable()

    @cached_property
    def passwords(self) -> Passwords:
        """Passwords that are hashed cheaply."""
        return passwords_in(self.world.threads)

    @cached_property
    def pace(self) -> RefusalPace:
        """A pace that nobody has to wait for."""

        async def after(seconds: float) -> None:
            """Return at once."""

        return RefusalPace(self.reactor, _pass, after)

    @cached_property
    def singletons(self) -> Any:
        """The parts that exist once, with the provider's keys at hand."""
        return MemorySingletons(self)

    @property
    def directories(self) -> IDirectories:
        """The directories."""
        return self.world.directory

    @cached_property
    def security_tokens(self) -> Sts:
        """The service that knows whose a signature is."""
        return self.world.sts

    @cached_property
    def oidc_providers(self) -> OidcProvider:
        """The providers of OpenID Connect."""
        return self.world.oidc_provider

    @cached_property
    def ldap_servers(self) -> LdapServers:
        """The directories that are configured."""
        vault, dialect = self.installation.vault, self.settings.dialect
        return LdapServers(self.directory_authenticator_store, vault, dialect, self.listed)

    @cached_property
    def authenticator_service(self) -> AuthenticatorService:
        """Authenticators of all types."""
        made = super().authenticator_service
        return attrs.evolve(made, listed=self.world.authenticators_listed, installed=self.world.authenticator_types)

    @cached_property
    def federated_services(self) -> Mapping[str, FederatedService]:
        """Authenticators of third parties' tokens."""
        made = super().federated_services
        return {name: attrs.evolve(service, listed=self.world.authenticators_listed) for name, service in made.items()}

    @cached_property
    def watches(self) -> Watches:
        """Three watches at most."""
        return Watches(
            self.reactor, self.wall, self.world.changes.follow_changes, self.secret_store, 3, self.reading_counter
        )

    async def list_followers(self) -> list[str]:
        """The other servers that the test calls followers."""
        return await self.world.followers()

    @cached_property
    def loads(self) -> LocalLoads:
        """Loads in this process."""
        bounds = Bounds(records=self.world.records)
        return LocalLoads(MemoryPolicies(self.memory), self.installation.vault, self.settings.dialect, bounds)

    state = in_memory(MemoryState)
    account_store = in_memory(MemoryAccounts)
    role_store = in_memory(MemoryRoles)
    resource_store = in_memory(MemoryResources)
    credential_store = in_memory(MemoryCredentials)
    directory_credentials = in_memory(MemoryCredentials)
    authenticator_store = in_memory(MemoryAuthenticators)
    directory_authenticator_store = in_memory(MemoryAuthenticators)
    access_store = in_memory(MemoryAccess)
    event_store = in_memory(MemoryEvents)
    last_login_store = in_memory(MemoryLastLogins)
    host_factory_store = in_memory(MemoryHostFactories)
    idempotency_store = in_memory(MemoryKeptAnswers)
    expiration_store = in_memory(MemoryExpirations)
    upcoming_expiration_store = in_memory(MemoryEndings)
    public_key_store = in_memory(MemoryPublicKeys)
    deleted_store = in_memory(MemoryDeleted)
    effective_policy_store = in_memory(MemoryEffectivePolicies)
    ldap_mapping_store = in_memory(MemoryLdapMappings)
    directory_user_store = in_memory(MemoryDirectoryUsers)
    reading_store = in_memory(MemoryReads)
    session_store = in_memory(MemorySessions)
    policy_edit_store = in_memory(MemoryPolicyEdits)
    policy_edits = in_test(lambda server: PolicyEdits(server.policy_edit_store, server.world.records))
    rotators = in_test(
        lambda server: {"postgresql/password": PostgresPasswordRotator(server.reactor, cast(Any, None), client_tls)}
    )
    secret_store = in_test(lambda server: MemorySecrets(server.memory, server.settings.dialect.prefix))


class MemorySingletons(Singletons):
    """The parts that exist once per server; their loops aren't started."""

    @cached_property
    def checks_loop(self) -> ChecksLoop:
        """Two checks of health."""
        state = self.base.state
        return ChecksLoop(self.base.reactor, self.base.wall, [AuthzProbe(state)], DatabaseProbe(state), 5.0)

    async def list_certificates(self) -> Sequence[tuple[str, str, float]]:
        """The certificates that the test names."""
        return await cast(MemoryServer, self.base).world.certificates()

    @cached_property
    def provider_keys(self) -> Any:
        """The keys of the provider, at hand."""
        return cast(MemoryServer, self.base).world.provider

    @cached_property
    def reading_recorder(self) -> ReadingRecorder:
        """The recorder of reads, which writes to memory."""
        base, memory = self.base, cast(MemoryServer, self.base).memory
        store, retention = MemoryReads(memory), base.settings.readings_retention
        return ReadingRecorder(base.reactor, base.wall, store, memory.ensure_writable, {}, "here", retention)


async def _pass() -> None:
    """Return."""


class WorldCase(SynchronousTestCase):
    """A test of nouns, in one dialect."""

    dialect: Dialect = NATIVE
    records: RecordLimits = RECORD_LIMITS
    session_max: int = 43_200
    keys_dropped: float | None = None
    authenticators_listed: frozenset[str] = LISTED
    console: bool = False
    console_idle: int = 1800
    public_url: str | None = None

    def setUp(self) -> None:
        """Make the account, and a server of all nouns."""
        self.memory = memory = Memory()
        self.vault = Vault(b"k" * 32)
        self.clock = clock = Clock()
        clock.advance(NOW)
        self.provider, self.sts, self.directory = Provider(), Sts(), Directory()
        self.oidc_provider, self.threads, self.changes = OidcProvider(clock), Threads(), Changes()
        self.journal, self.at_followers = Chronicle(), list[str]()
        self.authenticator_types = [JWT.name, make_cloud_kind(self.dialect).name, GCP, IAM, OIDC, LDAP]
        self.server = server = self.make_server()
        self.keys, self.tokens, self.notes = server.keys, server.tokens, server.last_login_recorder
        self.by_api_key, self.ldap, self.ldap_servers = (
            server.api_key_authenticator,
            server.ldap_authenticator,
            server.ldap_servers,
        )
        assert server.throttle is not None
        assert isinstance(server.shared.refusals, RecentRefusals)
        self.throttle, self.refusals, self.watches = server.throttle, server.shared.refusals, server.watches
        self.login_service, self.oidc_routes, self.events = server.login_service, server.oidc_routes, MemoryEvents(memory)
        self.federated_authenticators = server.federated
        self.explainers, self.refresh_tokens = server.federated, server.session_service.refresh_tokens
        self.create_account = server.installation.create_account
        self.result_of(self.create_account(ACCOUNT, ADMIN_KEY))
        self.watches.startService()
        self.addCleanup(self.watches.stopService)
        self.client = Client(
            *server.routes,
            Documentation(server.routes, self.dialect),
            ensure_writable=memory.ensure_writable,
            journal=self.journal,
            dialect=self.dialect,
            refused=RefusalRecorder(self.refusals, clock),
            clock=clock,
        )

    def make_server(self) -> MemoryServer:
        """Make the server."""
        cloud_name = make_cloud_kind(self.dialect).name
        more = {f"{cloud_name}/prod", f"{cloud_name}/test", f"{LDAP}/corp", *OIDC_LISTED}
        settings = attrs.evolve(
            read_settings({"audit_file": "-"}, {}),
            dialect=self.dialect,
            authenticators=tuple(sorted(self.authenticators_listed | more)),
            annotations_limit=self.records.annotations,
            annotation_bytes_limit=self.records.annotation_bytes,
            permissions_limit=self.records.permissions,
            user_session_max=self.session_max,
            jwks_max_age=self.keys_dropped,
            jwks_stale_if_error=0.0,
            clock_skew=0.0,
            console=self.console,
            console_session=self.console_idle,
            public_url=self.public_url,
        )
        clock, nothing = self.clock, cast(Any, None)
        installation = Installation(
            clock=clock,
            wall=clock,
            dsn="",
            database=nothing,
            state=cast(Any, MemoryState(self.memory)),
            accounts=cast(Any, MemoryAccounts(self.memory)),
            data_keys=nothing,
            source=nothing,
            vault=self.vault,
            audit_key=b"k" * 32,
        )
        return MemoryServer(
            reactor=clock,
            settings=settings,
            installation=installation,
            services=MultiService(),
            commit_counters=CommitCounters.for_one_process(),
            make_console=load_console(settings),
            world=self,
        )

    def worded(self, message: str) -> str:
        """A message that begins with a code of the installed base, as this dialect has it: with the code or without
        (FAIL-40).
        """
        code, _, text = message.partition(" ")
        assert CODE.fullmatch(code), message
        return message if self.dialect is CONJUR else text

    async def certificates(self) -> list[tuple[str, str, float]]:
        """The certificates of the server."""
        return []

    async def followers(self) -> list[str]:
        """The other servers that are followers."""
        return self.at_followers

    def result_of(self, coroutine: Any) -> Any:
        """The result of a coroutine that waits for nothing."""
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    def load(
        self, text: str, policy: str = "root", role: RoleName = ADMIN, method: str = "POST", status: int = 201
    ) -> Answer:
        """Load policy, and return the answer, which must have this status."""
        path = _POLICY + policy.replace("/", "%2F")
        answer = self.client.request(method, path, body=text.encode("utf-8"), role=role)
        self.assertEqual(answer.status, status, answer.body)
        return answer

    def set_value(self, identifier: str, value: bytes = b"value", role: RoleName = ADMIN, status: int = 201) -> Answer:
        """Set a variable, and return the answer, which must have this status."""
        answer = self.client.post(f"/secrets/acme/variable/{identifier.replace('/', '%2F')}", value, role=role)
        self.assertEqual(answer.status, status, answer.body)
        return answer

    def error(self, answer: Answer, status: int, code: str) -> Any:
        """The message of an answer, which must have this status and code."""
        self.assertEqual(answer.status, status, answer.body)
        error = answer.json()["error"]
        self.assertEqual(error["code"], code)
        return error["message"]


def user(name: str) -> RoleName:
    """A user of the account."""
    return RoleName(ACCOUNT, "user", name)
