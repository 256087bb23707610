"""The authenticators of a serving process: throttled for guessers, logged, counted, and answering refusals at a pace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs

from svc.authn.apikey import ApiKeyAuthenticator
from svc.authn.cloud import make_cloud_kind
from svc.authn.evaluation import AuthenticatorKind
from svc.authn.federated import FederatedAuthenticator
from svc.authn.gcp import make_gcp_kind
from svc.authn.iam import make_iam_kind
from svc.authn.jwt import JWT
from svc.authn.ldap.authenticator import LdapAuthenticator
from svc.authn.ldap.directory_rounds import MissingEntries
from svc.authn.ldap.mapped_roles import MappedRoles
from svc.authn.oidc import OidcKinds, make_oidc_kinds
from svc.authn.oidc_settings import NAME as OIDC
from svc.authn.providers.oidc_endpoints import OidcEndpoints
from svc.authn.sessions import SessionAuthenticator
from svc.authn.throttling import LDAP_STEP, MAX_DELAYED, RefusalPace, Throttle
from svc.crypto.passwords import MAX_WAITING, LowPriorityPool, Passwords
from svc.crypto.refresh_tokens import RefreshTokens
from svc.model.authentication import Authenticate, Explain, ReadApiKey
from svc.server.fine_timer import FineTimer
from svc.server.stores import Stores
from svc.services.authenticators import DEFAULT
from svc.services.login import ApiKeyService, LastLoginRecorder, LoginService, log_refusals
from svc.services.login_explanations import KeyExplanations
from svc.services.sessions import SessionService

#: How many threads hash passwords at most.
_HASHING_THREADS: Final = 4


def count_hashing_threads() -> int:
    """Return how many threads of a server hash passwords: half of the machine's cores, and no more than a few."""
    return min(_HASHING_THREADS, max(1, (os.cpu_count() or 1) // 2))


@attrs.frozen(slots=False, eq=False, kw_only=True)
class Logins(Stores):
    """The authenticators of a serving process, as it uses them."""

    @cached_property
    def passwords(self) -> Passwords:
        """The threads that hash passwords."""
        pool = LowPriorityPool(0, count_hashing_threads(), "passwords")
        waiting = -(-MAX_WAITING // self.shared.processes)
        return Passwords(self.reactor, pool, waiting=waiting, turns=self.shared.hashing)

    @cached_property
    def throttle(self) -> Throttle | None:
        """The throttle of failed logins."""
        failures = self.shared.failures
        return None if failures is None else Throttle(self.reactor, failures, -(-MAX_DELAYED // self.shared.processes))

    @cached_property
    def fine_timer(self) -> FineTimer:
        """Waits that end to some ten microseconds."""
        return FineTimer(self.reactor)

    @cached_property
    def pace(self) -> RefusalPace:
        """The pace of refusals."""
        return RefusalPace(
            self.reactor, _return_at_once if self.cache is None else self.cache.equalize_timing, self.fine_timer.wait_seconds
        )

    @cached_property
    def directory_pace(self) -> RefusalPace:
        """The pace of refusals where directories are queried."""
        return attrs.evolve(self.pace, step=LDAP_STEP)

    @cached_property
    def last_login_recorder(self) -> LastLoginRecorder:
        """Last logins, written down later."""
        return LastLoginRecorder(self.reactor, self.wall, self.last_login_store, self.demand_primary)

    def log_in_by(
        self,
        authenticate: Authenticate,
        name: str,
        *,
        pace: RefusalPace | None = None,
        throttled: bool = True,
        by_token: bool = False,
    ) -> LoginService:
        """Return logins by an authenticator of this name; ``by_token`` is as in ``LoginService``."""
        if throttled and self.throttle is not None:
            authenticate = self.throttle.throttle_failures(authenticate)
        if self.metrics is not None:
            authenticate = self.metrics.count_decisions(authenticate, name)
        decide = (pace or self.pace).pace_refusals(log_refusals(authenticate, name))
        return LoginService(decide, self.tokens, self.last_login_recorder.note_login, by_token)

    def _read_keys_by(self, read_key: ReadApiKey, name: str, pace: RefusalPace) -> ApiKeyService:
        if self.throttle is not None:
            read_key = self.throttle.throttle_failures(read_key)
        return ApiKeyService(pace.pace_refusals(log_refusals(read_key, name)))

    def _explain(self, name: str, explain: Explain, pace: RefusalPace) -> KeyExplanations:
        if self.throttle is not None:
            explain = self.throttle.throttle_explanations(explain)
        guarded = pace.pace_refusals(log_refusals(explain, name))
        return KeyExplanations(name, guarded, self.role_store, self.settings.dialect)

    @cached_property
    def api_key_authenticator(self) -> ApiKeyAuthenticator:
        """The authenticator by API keys and passwords."""
        return ApiKeyAuthenticator(self.credential_store, self.installation.vault, self.passwords, self.wall)

    @cached_property
    def login_service(self) -> LoginService:
        """Logins by API key."""
        return self.log_in_by(self.api_key_authenticator.authenticate, DEFAULT)

    @cached_property
    def api_key_service(self) -> ApiKeyService:
        """API keys for passwords."""
        return self._read_keys_by(self.api_key_authenticator.api_key, DEFAULT, self.pace)

    @cached_property
    def explanations(self) -> KeyExplanations:
        """Explanations of logins by API key."""
        return self._explain(DEFAULT, self.api_key_authenticator.explain, self.pace)

    @cached_property
    def session_service(self) -> SessionService:
        """Sessions of people, whose renewals are logins too."""
        longest, refresh_tokens = self.settings.user_session_max, RefreshTokens(self.installation.vault)
        renewals = SessionAuthenticator(self.session_store, refresh_tokens, self.wall, longest)
        renewed = self.log_in_by(renewals.authenticate, "session")
        return SessionService(
            self.login_service, renewed, self.session_store, self.role_store, refresh_tokens, self.wall, longest
        )

    def make_federated(self, kind: AuthenticatorKind) -> FederatedAuthenticator:
        """Return an authenticator of a kind that trusts third parties; all share the sets of keys."""
        settings = self.settings
        return FederatedAuthenticator(
            kind,
            self.authenticator_store,
            self.shared.provider_keys,
            self.installation.vault,
            self.wall,
            settings.dialect,
            self.listed,
            clock_skew=settings.clock_skew,
            token_limit=settings.jwt_limit,
            ignore_missing_issuer=settings.ignore_missing_issuer,
        )

    @cached_property
    def federated(self) -> Mapping[str, FederatedAuthenticator]:
        """The authenticators that trust third parties' tokens, by name."""
        settings = self.settings
        aws = make_iam_kind(self.security_tokens, self.shared.signatures, settings.aws_sts_regions)
        kinds = JWT, make_cloud_kind(settings.dialect), make_gcp_kind(settings.google_issuer), aws
        return {kind.name: self.make_federated(kind) for kind in kinds}

    @cached_property
    def oidc_providers(self) -> OidcEndpoints:
        """The providers of OpenID Connect."""
        return OidcEndpoints(self.provider_client, self.reactor, self.wall, self.settings.jwks_refetch_interval)

    @cached_property
    def oidc_kinds(self) -> OidcKinds:
        """The kinds of authenticators of OpenID Connect."""
        return make_oidc_kinds(self.oidc_providers, self.settings.dialect)

    @cached_property
    def explained(self) -> Mapping[str, FederatedAuthenticator]:
        """The authenticators whose logins operators have explained, by name."""
        return {**self.federated, OIDC: self.make_federated(self.oidc_kinds.explanation)}

    @cached_property
    def ldap_authenticator(self) -> LdapAuthenticator:
        """The authenticator that asks a directory."""
        return LdapAuthenticator(
            reader=self.directory_authenticator_store,
            credentials=self.directory_credentials,
            servers=self.ldap_servers,
            directories=lambda: self.directories,
            vault=self.installation.vault,
            dialect=self.settings.dialect,
            enabled=self.listed,
            wall=self.wall,
            mapped_roles=MappedRoles(self.ldap_mapping_store, self.journal, self.demand_primary),
            missing_entries=MissingEntries(self.directory_user_store, self.journal, self.demand_primary),
            note_directory=self.last_login_recorder.note_directory,
        )


async def _return_at_once() -> None:
    """Return: without the read cache each refusal has queried the database."""
