"""Authenticators as servers use them: slowed down for guessers, logged, counted, and answering at a pace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs

from svc.audit.refusals import LoggedAuthenticator, LoggedExplainer, LoggedLogin
from svc.authn.apikey import ApiKeyAuthenticator
from svc.authn.iam import NAME as IAM
from svc.authn.ldap.authenticator import LdapAuthenticator
from svc.authn.ldap.directory_settings import NAME as LDAP
from svc.authn.login_notes import LoginNotes
from svc.authn.pacing import LDAP_STEP, Pace, PacedAuthenticator, PacedExplainer, PacedLogin
from svc.authn.sessions import SessionAuthenticator
from svc.authn.throttling import Throttle, ThrottledAuthenticator, ThrottledExplainer, ThrottledLogin
from svc.crypto.refresh_tokens import RefreshTokens
from svc.model.authentication import IAuthenticator, IKeyExplainer, ILogin
from svc.model.dialect import SIGNED_TYPES, Dialect
from svc.model.refusals import IRefusals
from svc.server.duties import Ground
from svc.services.authenticators import DEFAULT, DirectoryService
from svc.services.batches import BatchService
from svc.services.explanations import KeyExplanations
from svc.services.ldap_mappings import LdapMappingService
from svc.services.login import ApiKeyService, LoginService
from svc.services.sessions import SessionService
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.ldap_mappings import LdapMappingStore
from svc.storage.roles import RoleStore
from svc.storage.sessions import SessionStore
from svc.telemetry.metrics import CountedAuthenticator, Metrics
from svc.web.routes.authenticators import DirectoryAuthenticators
from svc.web.routes.authn import FederatedAuthn, LdapAuthn
from svc.web.routes.explanations import KeyLogins
from svc.web.routes.ldap_mappings import LdapMappings
from svc.web.routes.signed_authn import SignedAuthn

#: How many threads hash passwords at most.
_HASHING_THREADS: Final = 4


async def at_once() -> None:
    """Return at once: without the read cache each refusal has queried the database."""


def slowed(inner: ApiKeyAuthenticator | LdapAuthenticator, throttle: Throttle | None) -> tuple[IAuthenticator, ILogin]:
    """Return the two ways to try a key or a password, slowed down alike for guessers if there is a throttle."""
    if throttle is None:
        return inner, inner
    return ThrottledAuthenticator(inner, throttle), ThrottledLogin(inner, throttle)


def by_tokens(
    authenticators: Mapping[str, IAuthenticator],
    throttle: Throttle | None,
    service: Callable[[IAuthenticator, str], LoginService],
    batches: BatchService,
) -> Iterator[FederatedAuthn | SignedAuthn]:
    """Yield the login routes of authenticators that trust third parties; guessers are throttled where logins query these."""
    for name, each in authenticators.items():
        slow = each if throttle is None or name != IAM else ThrottledAuthenticator(each, throttle)
        yield (SignedAuthn if name in SIGNED_TYPES else FederatedAuthn)(name, service(slow, name), batches)


def make_ldap(
    ground: Ground,
    ldap: LdapAuthenticator,
    throttle: Throttle | None,
    pace: Pace,
    notes: LoginNotes,
    batches: BatchService,
    roles: RoleStore,
    refusals: IRefusals,
) -> list[LdapAuthn | LdapMappings | DirectoryAuthenticators]:
    """Return the routes of logging in with a directory's password, of its status, and of what its names are mapped to."""
    dialect = ground.settings.dialect
    by_password, logging_in = slowed(ldap, throttle)
    pace = attrs.evolve(pace, step=LDAP_STEP)
    annotations = AuthenticatorStore(ground.readings)
    return [
        LdapAuthn(
            LoginService(watched(by_password, LDAP, ground.metrics, pace), ground.tokens, notes.note),
            ApiKeyService(PacedLogin(LoggedLogin(logging_in, LDAP), pace)),
            batches,
        ),
        LdapMappings(LdapMappingService(LdapMappingStore(ground.readings), roles, annotations, dialect)),
        DirectoryAuthenticators(DirectoryService(ldap, roles, refusals, dialect)),
    ]


def watched(authenticator: IAuthenticator, name: str, metrics: Metrics | None, pace: Pace) -> IAuthenticator:
    """Return an authenticator whose decisions are logged and, where metrics are served, counted; refusals at a pace."""
    counted = authenticator if metrics is None else CountedAuthenticator(authenticator, name, metrics)
    return PacedAuthenticator(LoggedAuthenticator(counted, name), pace)


def make_explanations(
    by_api_key: IKeyExplainer,
    by_ldap: IKeyExplainer,
    throttle: Throttle | None,
    pace: Pace,
    roles: RoleStore,
    dialect: Dialect,
) -> KeyLogins:
    """Return the routes that explain logins; attempts are throttled, logged and paced as logins are."""

    def explanations(name: str, inner: IKeyExplainer, pace: Pace) -> KeyExplanations:
        throttled = inner if throttle is None else ThrottledExplainer(inner, throttle)
        return KeyExplanations(name, PacedExplainer(LoggedExplainer(throttled, name), pace), roles, dialect)

    by_directory = explanations(LDAP, by_ldap, attrs.evolve(pace, step=LDAP_STEP))
    return KeyLogins(explanations(DEFAULT, by_api_key, pace), by_directory)


def hashing_threads() -> int:
    """Return how many threads of a server hash passwords: half of the machine's cores, and no more than a few."""
    return min(_HASHING_THREADS, max(1, (os.cpu_count() or 1) // 2))


def make_sessions(
    ground: Ground, login: LoginService, roles: RoleStore, throttle: Throttle | None, pace: Pace
) -> SessionService:
    """Return the use cases of sessions, whose renewals are logins too."""
    installation, longest = ground.installation, ground.settings.user_session_max
    store, tokens = SessionStore(ground.readings), RefreshTokens(installation.vault)
    renewals: IAuthenticator = SessionAuthenticator(store, tokens, installation.wall, longest)
    if throttle is not None:
        renewals = ThrottledAuthenticator(renewals, throttle)
    renewed = LoginService(watched(renewals, "session", ground.metrics, pace), ground.tokens, login.noted)
    return SessionService(login, renewed, store, roles, tokens, installation.wall, longest)
