"""All nouns of the server in memory, on one account ``acme``: ``WorldCase`` has ``self.client`` and loads policy into it."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.authn.apikey import ApiKeyAuthenticator
from svc.authn.cloud import cloud
from svc.authn.federated import FederatedAuthenticator
from svc.authn.jwt import JWT
from svc.authn.ldap.authenticator import LdapAuthenticator
from svc.authn.ldap.directory_settings import NAME as LDAP
from svc.authn.ldap.directory_settings import LdapServers
from svc.authn.throttling import Throttle, ThrottledAuthenticator, ThrottledLogin
from svc.crypto.key_sets import parse_key_set
from svc.crypto.keyring import AccessTokens, AccountKeys, new_signing_key
from svc.crypto.vault import Vault, api_key_name
from svc.model.authentication import IProviderKeys, KeySource, KeysState, LoginRequest
from svc.model.dialect import NATIVE, Dialect
from svc.model.errors import KeysUnavailable
from svc.model.events import EventBatch
from svc.model.key_sets import KeySet
from svc.model.ldap_directories import DirectoryRefused, IDirectories, LdapServer
from svc.model.limits import RECORD_LIMITS, RecordLimits
from svc.model.names import RoleName, admin_of
from svc.model.reasons import Reason
from svc.policy.document import Bounds
from svc.services.accounts import AccountService
from svc.services.audit_reading import AuditService
from svc.services.authenticators import AuthenticatorService
from svc.services.credentials import CredentialService
from svc.services.effective_policy import EffectivePolicyService
from svc.services.host_factories import HostFactoryService
from svc.services.login import AccessTokenService, ApiKeyService, LoginService
from svc.services.policy_loads import Loads, PolicyLoadService
from svc.services.public_keys import PublicKeyService
from svc.services.resources import ResourceService
from svc.services.roles import RoleService
from svc.services.secrets import SecretService
from svc.web.routes.accounts import Accounts
from svc.web.routes.audit import Audit
from svc.web.routes.authenticators import Authenticators
from svc.web.routes.authn import Authn, FederatedAuthn, LdapAuthn
from svc.web.routes.credentials import Credentials
from svc.web.routes.effective_policy import EffectivePolicies
from svc.web.routes.host_factories import HostFactories
from svc.web.routes.policies import Policies
from svc.web.routes.public_keys import PublicKeys
from svc.web.routes.resources import Resources
from svc.web.routes.roles import Roles
from svc.web.routes.secrets import Secrets
from svc.web.routes.status import Status
from tests.chronicle import Chronicle
from tests.memory import (
    Memory,
    MemoryAccounts,
    MemoryAuthenticatorReadings,
    MemoryAuthenticators,
    MemoryCredentials,
    MemoryRoles,
    MemorySecrets,
    MemoryState,
)
from tests.memory_effective import MemoryEffectivePolicies
from tests.memory_events import MemoryEvents
from tests.memory_expirations import MemoryExpirations
from tests.memory_factories import MemoryHostFactories, MemoryPublicKeys
from tests.memory_policies import MemoryPolicies
from tests.memory_resources import MemoryResources
from tests.signing import jwks
from tests.threads import Threads, passwords_in
from tests.web.support import NOW, Answer, Client

ACCOUNT: Final = "acme"
ADMIN: Final = admin_of(ACCOUNT)
ADMIN_KEY: Final = "1admin"

#: The authenticators in the configuration.
LISTED: Final = frozenset({"authn", "authn-jwt/ci"})

_POLICY = "/policies/acme/policy/"


@implementer(IProviderKeys)
class Provider:
    """A JWT provider's keys, at hand; ``down`` makes them unavailable."""

    def __init__(self) -> None:
        self.down = False

    async def current(self, source: KeySource, refreshes: int = 0, request: LoginRequest | None = None) -> KeySet:
        """Return the only set."""
        if self.down:
            raise KeysUnavailable(f"{source.uri} is down", 3)
        return parse_key_set(jwks())

    async def newer(self, source: KeySource, seen: KeySet, request: LoginRequest | None = None) -> KeySet:
        """There is never a newer one."""
        raise KeysUnavailable("there is no newer set")

    def state(self, source: KeySource) -> KeysState:
        """Nothing is told of it."""
        return KeysState()


@implementer(IDirectories)
class Directory:
    """Directories that all know the same people; ``refused`` says why none can be asked, if that is so."""

    def __init__(self) -> None:
        self.passwords: dict[str, bytes] = {}
        self.refused: DirectoryRefused | None = None
        self.asked: list[tuple[LdapServer, str, bytes]] = []

    async def prove(self, server: LdapServer, login: str, password: bytes) -> None:
        """Compare the password."""
        self.asked.append((server, login, password))
        await self.reach(server)
        if login not in self.passwords:
            raise DirectoryRefused(Reason.LDAP_ENTRY_UNKNOWN, "nobody")
        if self.passwords[login] != password:
            raise DirectoryRefused(Reason.CREDENTIALS_WRONG, "49")

    async def reach(self, server: LdapServer) -> None:
        """Be there, or not."""
        if self.refused is not None:
            raise self.refused


class WorldCase(SynchronousTestCase):
    """A test of nouns, in one dialect."""

    dialect: Dialect = NATIVE
    records: RecordLimits = RECORD_LIMITS

    def setUp(self) -> None:
        """Make the account, and a server of all nouns."""
        self.memory = memory = Memory()
        self.vault = vault = Vault(b"k" * 32)
        self.clock = clock = Clock()
        clock.advance(NOW)
        self.provider = Provider()
        accounts = MemoryAccounts(memory)
        self.keys = AccountKeys(accounts, vault, clock)
        self.tokens = AccessTokens(self.keys, clock, 480, 480)
        self.result_of(self.create_account(ACCOUNT, ADMIN_KEY))
        self.threads = Threads()
        passwords = passwords_in(self.threads)
        credentials = MemoryCredentials(memory)
        by_api_key = ApiKeyAuthenticator(credentials, vault, passwords, clock)
        self.throttle = Throttle(clock)
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
                LISTED | {f"{cloud_kind.name}/prod", f"{cloud_kind.name}/test"},
                clock_skew=0.0,
                token_limit=16384,
                ignore_missing_issuer=False,
            )
            for kind in (JWT, cloud_kind)
        ]
        readings, store = MemoryAuthenticatorReadings(memory), MemoryAuthenticators(memory)
        self.directory = Directory()
        corp = LISTED | {f"{LDAP}/corp"}
        self.ldap_servers = LdapServers(readings, store, vault, self.dialect, corp)
        self.ldap = LdapAuthenticator(
            readings, credentials, self.ldap_servers, lambda: self.directory, vault, self.dialect, corp, clock
        )
        roles, resources, secrets = MemoryRoles(memory), MemoryResources(memory), MemorySecrets(memory, self.dialect.prefix)
        authenticators = AuthenticatorService(
            store=MemoryAuthenticators(memory),
            roles=roles,
            installed=(JWT.name, cloud_kind.name, LDAP),
            listed=LISTED,
            dialect=self.dialect,
        )
        access_tokens = AccessTokenService(roles, self.keys)
        self.journal = Chronicle()
        self.events = MemoryEvents(memory)
        self.client = Client(
            Authn(
                LoginService(ThrottledAuthenticator(by_api_key, self.throttle), self.tokens),
                api_keys,
                access_tokens,
            ),
            Credentials(CredentialService(api_keys, credentials, roles, vault, passwords)),
            FederatedAuthn(JWT.name, LoginService(federated[0], self.tokens)),
            FederatedAuthn(cloud_kind.name, LoginService(federated[1], self.tokens)),
            LdapAuthn(
                LoginService(ThrottledAuthenticator(self.ldap, self.throttle), self.tokens),
                ApiKeyService(ThrottledLogin(self.ldap, self.throttle)),
            ),
            Authenticators(authenticators),
            Resources(ResourceService(resources, roles)),
            Roles(RoleService(roles, self.dialect)),
            Policies(
                PolicyLoadService(
                    Loads(MemoryPolicies(memory), vault, self.dialect, Bounds(records=self.records)),
                    roles,
                    self.events,
                    self.journal,
                )
            ),
            Audit(AuditService(self.events, roles)),
            EffectivePolicies(EffectivePolicyService(MemoryEffectivePolicies(memory), roles, vault, clock), clock),
            Secrets(SecretService(secrets, MemoryExpirations(memory), vault)),
            HostFactories(HostFactoryService(MemoryHostFactories(memory), roles, resources, vault, self.dialect, clock)),
            PublicKeys(PublicKeyService(MemoryPublicKeys(memory), secrets, vault)),
            Accounts(AccountService(accounts, roles, self.keys, self.create_account)),
            Status(MemoryState(memory), access_tokens, authenticators, self.dialect),
            demand_primary=memory.demand_primary,
            journal=self.journal,
            dialect=self.dialect,
        )

    async def create_account(self, account: str, api_key: str, trail: EventBatch | None = None) -> None:
        """Make an account, as the server does."""
        admin_key = self.vault.seal(api_key_name(admin_of(account)), api_key.encode())
        await MemoryAccounts(self.memory).create(account, admin_key, new_signing_key(self.vault, account, NOW), trail)

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
