"""Wiring of the authenticators of OpenID Connect."""

from __future__ import annotations

from typing import Self

import attrs

from svc.authn.federated import FederatedAuthenticator
from svc.authn.oidc import oidc
from svc.authn.oidc_offered import OidcSettingsReader
from svc.authn.oidc_settings import NAME
from svc.authn.pacing import Pace
from svc.authn.providers.oidc_endpoints import OidcEndpoints
from svc.authn.providers.oidc_offers import OidcOffers
from svc.authn.throttling import Throttle, ThrottledAuthenticator
from svc.model.authentication import IProviderKeys
from svc.server.duties import Ground
from svc.server.wrapped_logins import watched
from svc.services.batches import BatchService
from svc.services.login import LoginService
from svc.services.oidc import OidcService
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.driver.statements import Statements
from svc.web.routes.oidc import OidcAuthn


@attrs.frozen
class Oidc:
    """The OIDC parts of a process: use cases, logins by code and by id token, and the one that operators inspect."""

    service: OidcService
    by_code: LoginService
    by_token: LoginService
    operated: FederatedAuthenticator
    routes: OidcAuthn

    @classmethod
    def make(
        cls,
        ground: Ground,
        keys: IProviderKeys,
        statements: Statements,
        login: LoginService,
        throttle: Throttle | None,
        pace: Pace,
        batches: BatchService,
    ) -> Self:
        """Make it; ``login`` issues the tokens, and is notified of logins."""
        settings, vault, store = ground.settings, ground.installation.vault, AuthenticatorStore(statements)
        wall, interval = ground.installation.wall, settings.jwks_refetch_interval
        endpoints = OidcEndpoints(ground.parts.guarded(), ground.reactor, wall, interval)
        kinds = oidc(endpoints, settings.dialect)
        federate = ground.parts.federate(keys, statements)

        def logins(authenticator: FederatedAuthenticator) -> LoginService:
            throttled = authenticator if throttle is None else ThrottledAuthenticator(authenticator, throttle)
            wrapped = watched(throttled, NAME, ground.metrics, pace)
            return attrs.evolve(login, authenticator=wrapped, by_token=True)

        reader = OidcSettingsReader(store, store, vault, settings.dialect, frozenset(settings.authenticators))
        service = OidcService(OidcOffers(reader, endpoints, ground.reactor))
        by_code, by_token = logins(federate(kinds.code)), logins(federate(kinds.token))
        routes = OidcAuthn(service, by_code, by_token, settings.dialect.tells_devices, batches)
        return cls(service, by_code, by_token, federate(kinds.explained), routes)
