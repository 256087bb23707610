"""A world for the JWT authenticator: a store, a provider, and one host that is admitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_network
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.authn.evaluation import AuthenticatorKind, FederatedAuthenticator
from svc.authn.jwt import JWT
from svc.crypto.key_sets import parse_key_set
from svc.crypto.vault import Vault
from svc.model.authentication import (
    ANNOTATIONS_LIMIT,
    Admitted,
    AuthenticatorSettings,
    AuthenticatorStatus,
    CandidateFacts,
    Explanation,
    ExplanationStep,
    IProviderKeys,
    KeySource,
    KeysState,
    LoginRequest,
    Refused,
)
from svc.model.dialect import NATIVE, Dialect
from svc.model.errors import KeysUnavailable, StoreUnavailable
from svc.model.key_sets import KeySet
from svc.model.listed_authenticators import ListedAuthenticators
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import Sealed
from svc.model.reasons import Reason
from svc.storage.authenticators import AuthenticatorStore
from tests.fakes import Fake
from tests.signing import jwks, token
from tests.statuses import refusal_status

NOW = 1_700_000_000.0
URI = "https://idp.example/keys"
ISSUER = "https://idp.example"
HOST = RoleName("acme", "host", "jwt-apps/build")

#: The number of every role.
CREATION = 7

PROVIDER = "https://oidc.example"
ALICE = RoleName("acme", "user", "alice")

CLAIMS: Mapping[str, object] = {"iss": ISSUER, "app": "build", "repo": "org/app", "exp": NOW + 60, "iat": NOW, "nbf": NOW}


@attrs.define
class Webservice:
    """One authenticator in the store: its variables, what operators told it, and a count that rises with each change."""

    variables: dict[str, Sealed | None] = attrs.Factory(dict)
    changes: int = 0
    switched: bool | None = None
    distrusted: frozenset[str] = frozenset()
    refreshes: int = 0
    annotations: dict[str, str] = attrs.Factory(dict)


class Readings(Fake, AuthenticatorStore):
    """A store of one account, ``acme``, with a vault beside it."""

    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self.webservices: dict[str, Webservice] = {}
        self.annotations: dict[RoleName, dict[str, str]] = {}
        self.permitted: set[RoleName] = set()
        self.restrictions: dict[RoleName, tuple[str, ...]] = {}
        self.asked: list[str] = []
        self.before_candidate: Callable[[], None] = lambda: None
        self.webservice_missing = False
        self.down = False

    def set(self, branch: str, **variables: str | None) -> None:
        """Declare variables, and set those that aren't ``None``; underscores stand for dashes."""
        webservice = self.webservices.setdefault(branch, Webservice())
        for key, value in variables.items():
            name = key.replace("_", "-")
            full = f"acme:variable:{branch}/{name}"
            webservice.variables[name] = None if value is None else self.vault.seal(full, value.encode("utf-8"))
            webservice.changes += 1

    def unset(self, branch: str, *names: str) -> None:
        """Remove declarations."""
        for name in names:
            del self.webservices[branch].variables[name]
            self.webservices[branch].changes += 1

    def tell(self, branch: str, **told: Any) -> None:
        """Switch the authenticator, distrust keys there, or wish for newer ones."""
        webservice = self.webservices.setdefault(branch, Webservice())
        for name, value in told.items():
            setattr(webservice, name, value)
            webservice.changes += 1

    def _edition(self, account: str, branch: str) -> str:
        found = self.webservices.get(branch) if account == "acme" else None
        return "none" if found is None else str(found.changes)

    async def read_settings(self, account: str, branch: str, names: Sequence[str]) -> AuthenticatorSettings:
        """The variables."""
        self.asked.append("settings")
        if self.down:
            raise StoreUnavailable("down")
        found = self.webservices.get(branch) if account == "acme" else None
        if found is None:
            return AuthenticatorSettings("none", {})
        variables = {name: found.variables[name] for name in names if name in found.variables}
        return AuthenticatorSettings(str(found.changes), variables, found.switched, found.distrusted, found.refreshes)

    async def read_candidate(
        self,
        role: RoleName,
        branch: str,
        names: Sequence[str],
        annotated: str,
        *,
        afresh: bool = False,
    ) -> CandidateFacts:
        """All the rest."""
        self.asked.append(f"applicant {role}")
        self.before_candidate()
        if self.down:
            raise StoreUnavailable("down")
        known = role.account == "acme"
        under = {name: text for name, text in self.annotations.get(role, {}).items() if name.startswith(f"{annotated}/")}
        return CandidateFacts(
            etag=self._edition(role.account, branch),
            account_exists=known,
            role_exists=role in self.annotations,
            webservice_exists=known and branch in self.webservices and not self.webservice_missing,
            may_authenticate=role in self.permitted,
            annotations=None if len(under) > ANNOTATIONS_LIMIT else under,
            signing_key="signing-key" if known else None,
            restrictions=tuple(ip_network(text) for text in self.restrictions.get(role, ())),
            creation=CREATION,
        )

    async def read_annotations(self, webservice: ResourceName, names: Sequence[str], limit: int) -> Mapping[str, str]:
        """Those of the webservice's policy branch."""
        self.asked.append("annotations")
        found = self.webservices.get(webservice.identifier)
        told = {} if found is None or webservice.account != "acme" else found.annotations
        return {name: told[name][:limit] for name in names if name in told}


@implementer(IProviderKeys)
class Provider:
    """A provider whose keys change when a test says so.

    ``refused`` is why it can't be asked, if it can't; ``spent``: whether it was just asked for newer keys. ``wanted`` counts
    who wanted some. ``issuers`` has what a provider's document calls it, where that isn't its address.
    """

    def __init__(self) -> None:
        self.cached: dict[KeySource, KeySet] = {}
        self.granted: dict[KeySource, int] = {}
        self.published: dict[str, bytes] = {URI: jwks(), PROVIDER: jwks()}
        self.issuers: dict[str, str] = {}
        self.refused: str | None = None
        self.spent = False
        self.unusable = KeySet(())
        self.fetches = self.wanted = 0

    def _fetch(self, source: KeySource) -> KeySet:
        if self.refused is not None or source.uri not in self.published:
            raise KeysUnavailable(self.refused or f"{source.uri}: nobody there", 7)
        self.fetches += 1
        keys = parse_key_set(self.published[source.uri], source.algorithms)
        if not keys.keys:
            self.unusable = keys
            raise KeysUnavailable(f"{source.uri}: {keys.why_unusable}", 7, keys.problems, keys.unused)
        issuer = self.issuers.get(source.uri, source.uri) if source.discovered else None
        self.cached[source] = attrs.evolve(keys, issuer=issuer)
        return self.cached[source]

    async def current_keys(self, source: KeySource, refreshes: int = 0, request: LoginRequest | None = None) -> KeySet:
        """The set at hand, fetched again when an operator wishes for it, if that succeeds."""
        if source in self.cached and refreshes <= self.granted[source]:
            return self.cached[source]
        self.granted[source] = refreshes
        try:
            return self._fetch(source)
        except KeysUnavailable:
            if source not in self.cached:
                raise
            return self.cached[source]

    async def fetch_newer_keys(self, source: KeySource, seen: KeySet, request: LoginRequest | None = None) -> KeySet:
        """Another set, unless this is the newest."""
        self.wanted += 1
        return seen if self.spent else self._fetch(source)

    def keys_state(self, source: KeySource) -> KeysState:
        """What was fetched last."""
        keys = self.cached.get(source)
        if keys is None:
            return KeysState((), self.unusable.problems, None, NOW, self.refused, self.unusable.unused)
        named = tuple((key.key_id, key.thumbprint) for key in keys.keys)
        return KeysState(named, keys.problems, NOW, NOW, self.refused, keys.unused)


class Case(SynchronousTestCase):
    """An authenticator ``ci`` that takes the identity from the claim ``app``, and one host it admits."""

    dialect: Dialect = NATIVE
    kind: AuthenticatorKind = JWT

    def setUp(self) -> None:
        """A world in which ``token(CLAIMS)`` admits ``HOST``."""
        self.branch = f"{self.dialect.prefix}/{self.kind.name}/ci"
        self.vault = Vault(bytes(32))
        self.readings = Readings(self.vault)
        self.provider = Provider()
        self.clock = Clock()
        self.clock.advance(NOW)
        self.readings.set(self.branch, jwks_uri=URI, issuer=ISSUER, token_app_property="app", identity_path="/jwt-apps")
        self.readings.annotations[HOST] = {f"{self.kind.name}/ci/repo": "org/app", "description": "builds"}
        self.readings.permitted.add(HOST)
        self.authenticator = self.made()

    def made(self, **options: Any) -> FederatedAuthenticator:
        """An authenticator on the same world."""
        defaults = {"clock_skew": 0.0, "token_limit": 16_384, "ignore_missing_issuer": False}
        self.listed = ListedAuthenticators([f"{self.kind.name}/ci", f"{self.kind.name}/bare"])
        return FederatedAuthenticator(
            self.kind,
            self.readings,
            self.provider,
            self.vault,
            self.clock,
            self.dialect,
            self.listed,
            **{**defaults, **options},
        )

    def attempt(self, evidence: bytes, **options: Any) -> Admitted | Refused:
        """Try to log in, as ``trying`` says."""
        request = self.trying(evidence, **options)
        decision: Admitted | Refused = self.successResultOf(Deferred.fromCoroutine(self.authenticator.authenticate(request)))
        return decision

    def trying(
        self,
        evidence: bytes,
        login: str | None = None,
        service: str | None = "ci",
        account: str = "acme",
        client_ip: str = "192.0.2.1",
        fault: tuple[Reason, str] | None = None,
    ) -> LoginRequest:
        """An attempt."""
        return LoginRequest(account, login, evidence, client_ip, service, fault)

    def explained(self, evidence: bytes, **options: Any) -> Explanation:
        """What operators are told of an attempt; it never holds a part of the token."""
        request = self.trying(evidence, **options)
        explanation: Explanation = self.successResultOf(Deferred.fromCoroutine(self.authenticator.explain(request)))
        for step in explanation.steps:
            self.assert_fit(step.detail, evidence)
        return explanation

    def failed(self, evidence: bytes, **options: Any) -> ExplanationStep | None:
        """The check that fails, if one does."""
        failed = [step for step in self.explained(evidence, **options).steps if step.outcome == "failed"]
        self.assertLess(len(failed), 2)
        return failed[0] if failed else None

    def status(self, account: str = "acme", service: str | None = "ci") -> AuthenticatorStatus:
        """How the authenticator stands."""
        status: AuthenticatorStatus = self.successResultOf(
            Deferred.fromCoroutine(self.authenticator.read_status(account, service))
        )
        return status

    def assert_fit(self, detail: str, evidence: bytes) -> None:
        """The detail can be shown, and holds no part of the token."""
        self.assertTrue(detail.isprintable(), detail)
        for part in evidence.split(b"."):
            if len(part) > 20:
                self.assertNotIn(part.decode("latin-1"), detail)

    def assert_admitted(self, evidence: bytes, role: RoleName = HOST, **options: Any) -> None:
        """The token admits the role, which belongs to no directory then (LDAP-20)."""
        admitted = self.attempt(evidence, **options)
        self.assertEqual(admitted, Admitted(role, "signing-key", CREATION))
        assert isinstance(admitted, Admitted)
        self.assertEqual(admitted.directory, "")

    def refusal(self, reason: Reason, evidence: bytes, status: int = 401, **options: Any) -> Refused:
        """The refusal for this reason, which has no part of the token in its detail."""
        refused = self.attempt(evidence, **options)
        assert isinstance(refused, Refused), refused
        self.assertEqual((refused.reason, refusal_status(refused)), (reason, status), refused.detail)
        self.assert_fit(refused.detail, evidence)
        return refused

    def claims(self, **changes: object) -> bytes:
        """A good token with other claims; those that are ``...`` are left out."""
        return token({name: value for name, value in {**CLAIMS, **changes}.items() if value is not ...})
