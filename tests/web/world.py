"""All nouns of the server in memory, on one account ``acme``: ``WorldCase`` has ``self.client`` and loads policy into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.audit.recent_refusals import RecentRefusals
from svc.authn.apikey import ApiKeyAuthenticator
from svc.authn.cloud import cloud
from svc.authn.federated import FederatedAuthenticator
from svc.authn.gcp import NAME as GCP
from svc.authn.gcp import gcp
from svc.authn.iam import NAME as IAM
from svc.authn.iam import iam
from svc.authn.jwt import JWT
from svc.authn.ldap.authenticator import LdapAuthenticator
from svc.authn.ldap.directory_rounds import MissingEntries
from svc.authn.ldap.directory_settings import NAME as LDAP
from svc.authn.ldap.directory_settings import LdapServers
from svc.authn.ldap.mapped_roles import MappedRoles
from svc.authn.login_notes import LoginNotes
from svc.authn.sessions import SessionAuthenticator
from svc.authn.throttling import Failures, Throttle, ThrottledAuthenticator, ThrottledExplainer, ThrottledLogin
from svc.authn.used_signatures import UsedSignatures
from svc.crypto.key_sets import parse_key_set
from svc.crypto.keyring import AccessTokens, AccountKeys, new_signing_key
from svc.crypto.refresh_tokens import RefreshTokens
from svc.crypto.vault import Vault, api_key_name
from svc.model.authentication import IProviderKeys, KeySource, KeysState, LoginRequest
from svc.model.changes import IChanges, TouchedRecords
from svc.model.dialect import NATIVE, Dialect
from svc.model.directory_users import EntryState
from svc.model.errors import KeysUnavailable
from svc.model.events import EventBatch
from svc.model.kept_answers import Once
from svc.model.key_sets import KeySet
from svc.model.ldap_directories import DirectoryBase, DirectoryRefused, IDirectories, LdapServer
from svc.model.limits import RECORD_LIMITS, RecordLimits
from svc.model.names import RoleName, admin_of
from svc.model.reasons import Reason
from svc.policy.document import Bounds
from svc.services.access import AccessService
from svc.services.accounts import AccountService
from svc.services.audit_reading import AuditService
from svc.services.authenticators import AuthenticatorService, DirectoryService
from svc.services.batches import BatchService
from svc.services.branches import branches, groups
from svc.services.configured_authenticators import ConfiguredAuthenticatorService
from svc.services.credentials import CredentialService
from svc.services.deleted import DeletedService
from svc.services.effective_policy import EffectivePolicyService
from svc.services.expiring import ExpiringService, KeyEndings
from svc.services.explanations import KeyExplanations
from svc.services.group_members import GroupMemberService
from svc.services.host_factories import HostFactoryService
from svc.services.ldap_mappings import LdapMappingService
from svc.services.login import AccessTokenService, ApiKeyService, LoginService
from svc.services.policy_edits import PolicyEdits
from svc.services.policy_loads import Loads, PolicyLoadService
from svc.services.public_keys import PublicKeyService
from svc.services.refusals import RefusalService
from svc.services.resources import ResourceService
from svc.services.revocation import RevocationService
from svc.services.roles import RoleService
from svc.services.secrets import SecretService
from svc.services.sessions import SessionService
from svc.services.unused import UnusedService
from svc.services.watches import Watches
from svc.web.http.refused import RefusalWatch
from svc.web.http.routing import ResourceRoutes
from svc.web.openapi.routes import Documentation
from svc.web.routes.accounts import Accounts
from svc.web.routes.audit import Audit
from svc.web.routes.authenticators import Authenticators, DirectoryAuthenticators
from svc.web.routes.authn import Authn, FederatedAuthn, LdapAuthn
from svc.web.routes.batches import SecretBatches
from svc.web.routes.branches import Branches
from svc.web.routes.configured_authenticators import ConfiguredAuthenticators
from svc.web.routes.credentials import Credentials
from svc.web.routes.deleted import DeletedRecords
from svc.web.routes.effective_policy import EffectivePolicies
from svc.web.routes.expiring import Endings
from svc.web.routes.explanations import KeyLogins
from svc.web.routes.groups import GroupMembers, Groups
from svc.web.routes.host_factories import HostFactories
from svc.web.routes.ldap_mappings import LdapMappings
from svc.web.routes.policies import Policies
from svc.web.routes.public_keys import PublicKeys
from svc.web.routes.refusals import Refusals
from svc.web.routes.resources import Resources
from svc.web.routes.revocation import Revocation
from svc.web.routes.roles import Roles
from svc.web.routes.secrets import Secrets
from svc.web.routes.sessions import Sessions
from svc.web.routes.signed_authn import SignedAuthn
from svc.web.routes.status import Status
from svc.web.routes.watches import SecretWatches
from tests.aws import Sts
from tests.chronicle import Chronicle
from tests.memory import (
    Memory,
    MemoryAccounts,
    MemoryAuthenticatorReadings,
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
from tests.memory_resources import MemoryResources
from tests.memory_sessions import MemorySessions
from tests.signing import jwks
from tests.threads import Threads, passwords_in
from tests.web.oidc_world import OidcProvider, oidc_routes
from tests.web.support import NOW, Answer, Client

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

    async def current(self, source: KeySource, refreshes: int = 0, request: LoginRequest | None = None) -> KeySet:
        """Return the only set."""
        self.asked.append(source)
        if self.down:
            raise KeysUnavailable(f"{source.uri} is down", 3)
        return parse_key_set(self.document, source.algorithms)

    async def newer(self, source: KeySource, seen: KeySet, request: LoginRequest | None = None) -> KeySet:
        """There is never a newer one."""
        raise KeysUnavailable("there is no newer set")

    def state(self, source: KeySource) -> KeysState:
        """Nothing is told of it."""
        return KeysState()


@implementer(IChanges)
class Changes:
    """Changes that a test tells of."""

    def __init__(self) -> None:
        self.followers: list[Callable[[TouchedRecords], None]] = []

    def follow(self, told: Callable[[TouchedRecords], None]) -> Callable[[], None]:
        """See ``IChanges``."""
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

    async def prove(self, server: LdapServer, login: str, password: bytes, *, asked: bool = False) -> None:
        """Compare the password."""
        self.asked.append((server, login, password))
        await self.reach(server, asked=asked)
        if login not in self.passwords:
            raise DirectoryRefused(Reason.LDAP_ENTRY_UNKNOWN, "nobody")
        if self.passwords[login] != password:
            raise DirectoryRefused(Reason.CREDENTIALS_WRONG, "49")

    async def groups(
        self, server: LdapServer, login: str, password: bytes, mapped: Sequence[str] = (), *, asked: bool = False
    ) -> Sequence[str]:
        """Compare the password, and tell the groups; ``mapped`` are noted."""
        self.mapped = mapped
        await self.prove(server, login, password, asked=asked)
        if self.groups_refused is not None:
            raise self.groups_refused
        return self.groups_of.get(login, ())

    async def reach(self, server: LdapServer, within: float | None = None, *, asked: bool = False) -> None:
        """Be there, or not."""
        self.by_operators.append(asked)
        if self.refused is not None:
            raise self.refused

    async def bases(self, server: LdapServer) -> Sequence[DirectoryBase]:
        """Read the entries."""
        await self.reach(server)
        return [DirectoryBase("ldap-authn/base_dn", server.base_dn, self.base_fault)]

    async def states(self, server: LdapServer, logins: Sequence[str]) -> Sequence[EntryState]:
        """Look for the entries."""
        await self.reach(server)
        if self.base_fault is not None:
            raise DirectoryRefused(Reason.LDAP_SEARCH_REFUSED, self.base_fault)
        return [self.states_of.get(login, EntryState.PRESENT) for login in logins]


class WorldCase(SynchronousTestCase):
    """A test of nouns, in one dialect."""

    dialect: Dialect = NATIVE
    records: RecordLimits = RECORD_LIMITS
    session_max: int = 43_200
    keys_dropped: float | None = None
    authenticators_listed: frozenset[str] = LISTED

    def setUp(self) -> None:
        """Make the account, and a server of all nouns."""
        self.memory = memory = Memory()
        self.vault = vault = Vault(b"k" * 32)
        self.clock = clock = Clock()
        clock.advance(NOW)
        self.provider = Provider()
        self.sts = Sts()
        self.oidc_provider = OidcProvider(clock)
        accounts = MemoryAccounts(memory)
        self.keys = AccountKeys(accounts, vault, clock)
        self.tokens = AccessTokens(self.keys, clock, 480, 480)
        self.result_of(self.create_account(ACCOUNT, ADMIN_KEY))
        self.threads = Threads()
        passwords = passwords_in(self.threads)
        credentials = MemoryCredentials(memory)
        self.by_api_key = by_api_key = ApiKeyAuthenticator(credentials, vault, passwords, clock)
        self.throttle = Throttle(clock, Failures(clock))
        api_keys = ApiKeyService(ThrottledLogin(by_api_key, self.throttle))
        cloud_kind = cloud(self.dialect)
        federated = [
            FederatedAuthenticator(
                kind,
                MemoryAuthenticatorReadings(memory),
                self.provider,
                vault,
                clock,
                self.dialect,
                self.authenticators_listed | {f"{cloud_kind.name}/prod", f"{cloud_kind.name}/test"},
                clock_skew=0.0,
                token_limit=16384,
                ignore_missing_issuer=False,
            )
            for kind in (JWT, cloud_kind, gcp(GOOGLE), iam(self.sts, UsedSignatures(clock)))
        ]
        self.explainers = {"authn-jwt": federated[0], cloud_kind.name: federated[1]}
        readings, store = MemoryAuthenticatorReadings(memory), MemoryAuthenticators(memory)
        self.journal = Chronicle()
        last_logins = MemoryLastLogins(memory)
        self.notes = notes = LoginNotes(clock, clock, last_logins, memory.demand_primary)
        self.directory = Directory()
        corp = self.authenticators_listed | {f"{LDAP}/corp"}
        self.ldap_servers = LdapServers(readings, store, vault, self.dialect, corp)
        self.ldap = LdapAuthenticator(
            readings,
            credentials,
            self.ldap_servers,
            lambda: self.directory,
            vault,
            self.dialect,
            corp,
            clock,
            MappedRoles(MemoryLdapMappings(memory), self.journal, memory.demand_primary),
            MissingEntries(MemoryDirectoryUsers(memory), self.journal, memory.demand_primary),
            notes.note_directory,
        )
        roles, resources, secrets = MemoryRoles(memory), MemoryResources(memory), MemorySecrets(memory, self.dialect.prefix)
        authenticators = AuthenticatorService(
            store=MemoryAuthenticators(memory),
            roles=roles,
            installed=(JWT.name, cloud_kind.name, GCP, IAM, "authn-oidc", LDAP),
            listed=self.authenticators_listed,
            dialect=self.dialect,
        )
        access_tokens = AccessTokenService(roles, self.keys)
        self.api_key_service = api_keys
        self.authenticator_service = authenticators
        self.federated_authenticators = dict(zip((JWT.name, cloud_kind.name, GCP, IAM), federated, strict=True))
        access = AccessService(MemoryAccess(memory), roles, resources, self.dialect)
        slowed = ThrottledAuthenticator(by_api_key, self.throttle)
        self.login_service = login = LoginService(slowed, self.tokens, notes.note)
        self.refresh_tokens = RefreshTokens(Vault(b"k" * 32))
        sessions = MemorySessions(memory)
        renewals = SessionAuthenticator(sessions, self.refresh_tokens, clock, self.session_max)
        renewed = LoginService(ThrottledAuthenticator(renewals, self.throttle), self.tokens, notes.note)
        self.events = MemoryEvents(memory)
        self.policy_load_service = PolicyLoadService(
            Loads(MemoryPolicies(memory), vault, self.dialect, Bounds(records=self.records)),
            roles,
            self.events,
            self.journal,
        )
        self.authenticator_types = list(authenticators.installed)
        self.edits = PolicyEdits(MemoryPolicyEdits(memory), self.records)
        of_groups = groups(self.edits, roles, resources)
        self.refusals = RecentRefusals(clock)
        self.expiring = ExpiringService(
            MemoryEndings(memory),
            roles,
            KeyEndings(
                accounts,
                resources,
                self.federated_authenticators,
                self.dialect,
                clock,
                clock,
                self.keys_dropped,
            ),
            self.certificates,
            clock,
        )
        self.at_followers = list[str]()
        self.explanations = KeyExplanations("authn", ThrottledExplainer(by_api_key, self.throttle), roles, self.dialect)
        self.unused = UnusedService(last_logins, roles, self.followers, clock)
        self.refusal_service = RefusalService(self.refusals, roles)
        turns = Clock()
        batches = BatchService(secrets, vault, turns)
        self.oidc_routes = oidc_routes(
            memory, vault, clock, self.dialect, self.provider, self.oidc_provider, login, self.throttle, batches
        )
        self.changes = Changes()
        self.watches = Watches(turns, turns, self.changes, secrets, 3)
        self.watches.startService()
        self.addCleanup(self.watches.stopService)
        nouns: list[ResourceRoutes] = [
            Authn(login, api_keys, access_tokens, batches),
            Sessions(
                SessionService(login, renewed, sessions, roles, self.refresh_tokens, clock, self.session_max),
            ),
            Credentials(CredentialService(api_keys, credentials, roles, vault, passwords, MemoryKeptAnswers(memory))),
            Revocation(RevocationService(roles, credentials, accounts)),
            FederatedAuthn(JWT.name, LoginService(federated[0], self.tokens, notes.note, by_token=True), batches),
            FederatedAuthn(cloud_kind.name, LoginService(federated[1], self.tokens, notes.note, by_token=True), batches),
            FederatedAuthn(GCP, LoginService(federated[2], self.tokens, notes.note, by_token=True), batches),
            SignedAuthn(
                IAM,
                LoginService(ThrottledAuthenticator(federated[3], self.throttle), self.tokens, notes.note, by_token=True),
                batches,
            ),
            self.oidc_routes,
            LdapAuthn(
                LoginService(ThrottledAuthenticator(self.ldap, self.throttle), self.tokens, notes.note),
                ApiKeyService(ThrottledLogin(self.ldap, self.throttle)),
                batches,
            ),
            LdapMappings(LdapMappingService(MemoryLdapMappings(memory), roles, readings, self.dialect)),
            Authenticators(authenticators),
            DirectoryAuthenticators(DirectoryService(self.ldap, roles, self.refusals, self.dialect)),
            KeyLogins(
                self.explanations,
                KeyExplanations(LDAP, ThrottledExplainer(self.ldap, self.throttle), roles, self.dialect),
            ),
            Resources(ResourceService(resources, roles, self.dialect), access),
            Roles(RoleService(roles, self.dialect, last_logins), access),
            Policies(self.policy_load_service),
            Audit(AuditService(self.events, roles)),
            Refusals(self.refusal_service),
            Endings(self.expiring, self.unused),
            EffectivePolicies(
                EffectivePolicyService(MemoryEffectivePolicies(memory), roles, vault, self.dialect, clock), clock
            ),
            Secrets(SecretService(secrets, MemoryExpirations(memory), vault)),
            SecretBatches(batches, turns),
            SecretWatches(self.watches),
            DeletedRecords(DeletedService(MemoryDeleted(memory), self.records)),
            HostFactories(HostFactoryService(MemoryHostFactories(memory), roles, resources, vault, self.dialect, clock)),
            PublicKeys(PublicKeyService(MemoryPublicKeys(memory), secrets, vault)),
            Branches(branches(self.edits, roles, resources, self.dialect), access_tokens),
            Groups(of_groups, access_tokens),
            GroupMembers(GroupMemberService(self.edits, of_groups, roles), access_tokens),
            ConfiguredAuthenticators(
                ConfiguredAuthenticatorService(
                    self.edits, roles, resources, secrets, vault, self.dialect, self.authenticator_types
                ),
                access_tokens,
            ),
            Accounts(AccountService(accounts, roles, self.keys, self.create_account, vault)),
            Status(MemoryState(memory), access_tokens, authenticators, self.dialect),
        ]
        self.client = Client(
            *nouns,
            Documentation(nouns, self.dialect),
            demand_primary=memory.demand_primary,
            journal=self.journal,
            dialect=self.dialect,
            refused=RefusalWatch(self.refusals, clock),
            clock=turns,
        )

    async def create_account(
        self, account: str, api_key: str, trail: EventBatch | None = None, once: Once[None] | None = None
    ) -> None:
        """Make an account, as the server does."""
        admin_key = self.vault.seal(api_key_name(admin_of(account)), api_key.encode())
        signing_key = new_signing_key(self.vault, account, NOW)
        await MemoryAccounts(self.memory).create(account, admin_key, signing_key, trail, once)

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
