"""Logins, credentials, host factories and authenticators without HTTP."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, NoReturn

import attrs
from twisted.internet.defer import Deferred

from svc.authn.apikey import ApiKeyAuthenticator
from svc.crypto.tokens import AccessTokens, SigningKeys
from svc.crypto.vault import Vault
from svc.model.authentication import Admitted, LoginRequest
from svc.model.errors import (
    AuthenticationRefused,
    CredentialImpossible,
    CredentialInsufficient,
    CredentialUnknown,
    Forbidden,
    ReadOnlyStandby,
    RecordNotFound,
    Refusal,
)
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import Caller
from svc.model.reasons import Reason, RefusalKind
from svc.services.authenticators import AuthenticatorService, FederatedService
from svc.services.credentials import CredentialService, Named
from svc.services.host_factories import HostFactoryService, TokensRequest
from svc.services.invocation import Invocation, NullRecorder
from svc.services.login import AccessTokenService, ApiKeyService, LoginService
from tests.memory import MemoryAccounts, MemoryAuthenticators, MemoryCredentials, MemoryKeptAnswers, MemoryRoles
from tests.memory_factories import MemoryHostFactories
from tests.memory_resources import MemoryResources
from tests.threads import passwords_in
from tests.web.routes.test_authenticators import Explainer
from tests.web.support import NOW
from tests.web.world import ADMIN, WorldCase, user

ADDRESS = "192.0.2.7"
UNRECORDED = NullRecorder()
FLEET = ResourceName.from_parts("acme", "host_factory", "fleet")

POLICY = """
- !user alice
- !user bob
- !user eve
- !group ops
- !layer web
- !host-factory { id: fleet, layers: [ !layer web ] }
- !policy { id: svc/authn-jwt/ci, body: [ !webservice , !webservice status ] }
- !permit { role: !user alice, privileges: [ read ], resource: !user bob }
- !permit { role: !user alice, privileges: [ update ], resource: !group ops }
- !permit { role: !user alice, privileges: [ read ], resource: !host-factory fleet }
- !permit { role: !user alice, privileges: [ read ], resource: !webservice svc/authn-jwt/ci }
"""

ALICE, BOB, EVE, OPS = user("alice"), user("bob"), user("eve"), RoleName("acme", "group", "ops")


def invocation(role: RoleName) -> Invocation:
    """A use case that a role asks for."""
    return Invocation(Caller(role, NOW), ADDRESS, UNRECORDED)


def naming(role: RoleName) -> Named:
    """What names a role."""
    return lambda: role


def unread() -> NoReturn:
    """A parameter that nobody may read yet."""
    raise AssertionError("a parameter was read too early")


class LoginsTests(WorldCase):
    """Use cases on the in-memory store."""

    def setUp(self) -> None:
        """Load the policy, and make the services."""
        super().setUp()
        made = self.load(POLICY).json()["created_roles"]
        self.api_key = made["acme:user:alice"]["api_key"].encode("ascii")
        memory, roles = self.memory, MemoryRoles(self.memory)
        passwords, store = passwords_in(self.threads), MemoryCredentials(memory)
        by_api_key = ApiKeyAuthenticator(store, self.vault, passwords, self.clock)
        self.noted: list[Admitted] = []
        self.login, self.api_keys = (
            LoginService(by_api_key.authenticate, self.tokens, self.noted.append),
            ApiKeyService(by_api_key.api_key),
        )
        self.access_tokens = AccessTokenService(roles, self.keys)
        self.credentials = CredentialService(self.api_keys, store, roles, self.vault, passwords, MemoryKeptAnswers(memory))
        self.factories = HostFactoryService(
            MemoryHostFactories(memory), roles, MemoryResources(memory), self.vault, self.dialect, self.clock
        )
        authenticators, listed = MemoryAuthenticators(memory), frozenset({"authn-jwt/ci"})
        self.authenticators = AuthenticatorService(authenticators, roles, ("authn-jwt",), listed, self.dialect)
        self.federated = FederatedService(
            "authn-jwt", Explainer(), authenticators, roles, listed, self.dialect, 1000, self.clock, self.clock
        )

    async def may_write(self) -> None:
        """Let everything be written."""

    async def may_not_write(self) -> None:
        """Let nothing be written."""
        raise ReadOnlyStandby

    def refused(self, coroutine: Any, refusal: type[Refusal]) -> Any:
        """The refusal that a use case ends in."""
        return self.failureResultOf(Deferred.fromCoroutine(coroutine), refusal).value

    def request(self, evidence: bytes, login: str = "alice") -> LoginRequest:
        """A request to log in."""
        return LoginRequest("acme", login, evidence, ADDRESS)

    def test_a_login(self) -> None:
        """An API key is exchanged for an access token, which proves the role; another key is refused with its reason."""
        token = self.result_of(self.login.authenticate(self.request(self.api_key), UNRECORDED))
        caller = self.result_of(self.tokens.find_caller(b'Token token="%s"' % b64encode(token)))
        self.assertEqual(caller.role, ALICE)
        self.assertEqual(self.result_of(self.api_keys.read_api_key(self.request(self.api_key), UNRECORDED)), self.api_key)
        self.result_of(self.access_tokens.check_caller(caller))
        self.assertEqual(len(self.result_of(self.access_tokens.list_public_keys("acme"))), 1)
        for use_case in (self.login.authenticate, self.api_keys.read_api_key):
            for login, reason in (("alice", Reason.CREDENTIALS_WRONG), ("nobody", Reason.ROLE_UNKNOWN)):
                refusal = self.refused(use_case(self.request(b"wrong", login), UNRECORDED), AuthenticationRefused)
                self.assertEqual((refusal.reason, refusal.kind), (reason, RefusalKind.UNPROVEN))
        self.refused(self.access_tokens.check_caller(Caller(user("nobody"), NOW)), Forbidden)
        for account in ("nowhere", "no such name"):
            self.refused(self.access_tokens.list_public_keys(account), RecordNotFound)

    def test_last_logins(self) -> None:
        """A login is noted when its token is issued; not one that is refused, nor a token that can't be issued, nor an API
        key that is told (END-20).
        """
        self.refused(self.login.authenticate(self.request(b"wrong"), UNRECORDED), AuthenticationRefused)
        self.result_of(self.api_keys.read_api_key(self.request(self.api_key), UNRECORDED))
        self.assertEqual(self.noted, [])
        self.result_of(self.login.authenticate(self.request(self.api_key), UNRECORDED))
        self.assertEqual([admitted.role for admitted in self.noted], [ALICE])
        keys = SigningKeys(MemoryAccounts(self.memory), Vault(b"x" * 32), self.clock)
        broken = attrs.evolve(self.login, tokens=AccessTokens(keys, self.clock, 480, 480))
        self.refused(broken.authenticate(self.request(self.api_key), UNRECORDED), AuthenticationRefused)
        self.assertEqual(len(self.noted), 1)

    def test_credentials(self) -> None:
        """One's own API key is rotated by itself, another's by a token and ``update``."""
        rotated = self.result_of(
            self.credentials.rotate_api_key(self.request(self.api_key), lambda: None, ADDRESS, UNRECORDED)
        )
        self.refused(self.api_keys.read_api_key(self.request(self.api_key), UNRECORDED), AuthenticationRefused)
        rotation = self.result_of(
            self.credentials.read_rotation(self.request(rotated.encode("ascii")), naming(ALICE), UNRECORDED)
        )
        self.assertEqual(rotation.role, ALICE)
        for role, refusal in (
            (ALICE, CredentialInsufficient),
            (BOB, Forbidden),
            (EVE, CredentialUnknown),
            (OPS, CredentialImpossible),
        ):
            asked = self.credentials.read_rotation(Caller(ALICE, NOW), naming(role), UNRECORDED)
            self.refused(asked, refusal)

    def test_a_host_of_a_factory(self) -> None:
        """Who may makes a token, and the token makes a host, whose API key logs it in; a revoked one makes none."""
        wanted = TokensRequest(1, "2023-11-14T23:13:20Z")
        made = self.result_of(self.factories.create_tokens(invocation(ADMIN), FLEET, lambda: wanted))
        [token] = made.texts

        def host_id() -> str:
            return "web-1"

        arguments = (host_id, dict, ADDRESS, UNRECORDED)
        host = self.result_of(self.factories.create_host(token, self.may_write, *arguments))
        self.assertEqual(host.role, RoleName("acme", "host", "web-1"))
        self.result_of(self.login.authenticate(self.request(host.api_key.encode("ascii"), "host/web-1"), UNRECORDED))
        self.refused(self.factories.revoke_token(invocation(ALICE), token), Forbidden)
        self.refused(self.factories.revoke_token(invocation(EVE), token), RecordNotFound)
        self.result_of(self.factories.revoke_token(invocation(ADMIN), token))
        self.refused(self.factories.create_host(token, self.may_write, *arguments), AuthenticationRefused)

    def test_what_is_asked_for_is_read_late(self) -> None:
        """Nothing of what is asked for is read, and so none of it refused, until the caller is known to be allowed."""
        ci, credentials, wrong = ("acme", "ci"), self.credentials, self.request(b"wrong")
        factories, wanted = self.factories, TokensRequest(1, "2023-11-15")
        token = self.result_of(factories.create_tokens(invocation(ADMIN), FLEET, lambda: wanted)).texts[0]
        for use_case, refusal in (
            (
                credentials.change_password(wrong, unread, b"x", ADDRESS, UNRECORDED),
                AuthenticationRefused,
            ),
            (credentials.rotate_api_key(wrong, unread, ADDRESS, UNRECORDED), AuthenticationRefused),
            (credentials.read_rotation(wrong, unread, UNRECORDED), AuthenticationRefused),
            (factories.create_tokens(invocation(EVE), FLEET, unread), RecordNotFound),
            (factories.create_tokens(invocation(ALICE), FLEET, unread), Forbidden),
            (factories.create_host(None, unread, unread, unread, ADDRESS, UNRECORDED), AuthenticationRefused),
            (factories.create_host("forged", unread, unread, unread, ADDRESS, UNRECORDED), AuthenticationRefused),
            (factories.create_host(token, self.may_not_write, unread, unread, ADDRESS, UNRECORDED), ReadOnlyStandby),
            (self.authenticators.switch_authenticator(invocation(ALICE), "acme", "authn-jwt/ci", unread), Forbidden),
            (
                self.authenticators.switch_authenticator(invocation(ALICE), "other", "authn-jwt/ci", unread),
                AuthenticationRefused,
            ),
            (self.federated.explain_token(invocation(ALICE), *ci, None, unread), Forbidden),
            (self.federated.explain_token(invocation(ALICE), "other", "ci", None, unread), RecordNotFound),
        ):
            self.refused(use_case, refusal)

    def test_numbers_of_tokens(self) -> None:
        """No more tokens are made at once than may be, for any caller."""
        for count in (0, 1001):
            self.assertRaises(ValueError, TokensRequest, count, "2023-11-15")
        attrs.evolve(TokensRequest(1, "2023-11-15"), count=1000)

    def test_authenticators(self) -> None:
        """An authenticator is known by its webservice, switched by its owner, and reported on to those who may read that."""
        self.assertEqual(self.result_of(self.authenticators.list_authenticators()).enabled, ["authn", "authn-jwt/ci"])
        self.result_of(self.authenticators.switch_authenticator(invocation(ADMIN), "acme", "authn-jwt/ci", lambda: False))
        self.assertEqual(self.result_of(self.authenticators.list_authenticators()).enabled, ["authn"])
        self.assertTrue(self.result_of(self.federated.read_status(invocation(ADMIN), "acme", "ci")).listed)
        self.result_of(self.federated.distrust_key(invocation(ADMIN), "acme", "ci", "key"))
        report = self.result_of(self.federated.read_status(invocation(ADMIN), "acme", "ci"))
        self.assertEqual([(key.key, key.by) for key in report.status.distrusted], [("key", str(ADMIN))])
        self.refused(self.federated.trust_key(invocation(ALICE), "acme", "ci", "key"), Forbidden)
