"""The console, put together where a server has it: no other imports its pages and their templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svc.cluster.overview import Overview
from svc.crypto.console_cookies import ConsoleCookies
from svc.model.clocks import WallClock
from svc.model.ports import IDatabaseState, IRoles
from svc.services.access import AccessService
from svc.services.audit_reading import AuditService
from svc.services.authenticators import AuthenticatorService, FederatedService
from svc.services.console_sessions import ConsoleSessionService
from svc.services.expiring import ExpiringService
from svc.services.explanations import KeyExplanations
from svc.services.login import AccessTokenService
from svc.services.oidc import OidcService
from svc.services.policy_loads import PolicyLoadService
from svc.services.refusals import RefusalService
from svc.services.resources import ResourceService
from svc.services.revocation import RevocationService
from svc.services.roles import RoleService
from svc.services.secrets import SecretService
from svc.services.unused import UnusedService
from svc.web.console.audit import AuditPage
from svc.web.console.authenticators import AuthenticatorPages
from svc.web.console.changes import ChangePage
from svc.web.console.endings import ExpiringPage
from svc.web.console.gate import Gate, OwnAddress
from svc.web.console.home import Home
from svc.web.console.logins import LoginExplained
from svc.web.console.policies import PolicyTree
from svc.web.console.provider_sign_in import ProviderSignIn
from svc.web.console.refusals import RefusalsPage
from svc.web.console.rendering import Rendering
from svc.web.console.resources import ResourcePage
from svc.web.console.roles import RolePage
from svc.web.console.sign_in import SignIn
from svc.web.console.unused import IdleRolesPage


def make_console(
    sessions: ConsoleSessionService,
    cookies: ConsoleCookies,
    revocation: RevocationService,
    overview: Overview,
    audit: AuditService,
    roles: IRoles,
    tokens: AccessTokenService,
    resource_service: ResourceService,
    secret_service: SecretService,
    role_service: RoleService,
    access: AccessService,
    authenticators: AuthenticatorService,
    federated: Mapping[str, FederatedService],
    loads: PolicyLoadService,
    expiring: ExpiringService,
    unused: UnusedService,
    explanations: KeyExplanations,
    refusals: RefusalService,
    oidc: OidcService,
    wall: WallClock,
    public_url: str | None,
    state: IDatabaseState,
) -> tuple[Gate, list[Any]]:
    """Return what all pages have in common, and the pages; their templates are compiled here."""
    rendering = Rendering(cookies)
    own = OwnAddress(public_url)
    return Gate(sessions, cookies, rendering, own), [
        SignIn(rendering, sessions, revocation, oidc),
        ProviderSignIn(rendering, sessions, oidc, cookies, wall, own),
        Home(rendering, overview, audit, roles, tokens, expiring, refusals, expiring.wall, state),
        PolicyTree(rendering, resource_service, access),
        ResourcePage(rendering, resource_service, secret_service, access),
        RolePage(rendering, role_service, access, unused, audit, revocation),
        AuditPage(rendering, audit),
        AuthenticatorPages(rendering, authenticators, federated, tokens, roles, refusals),
        ChangePage(rendering, loads, tokens),
        ExpiringPage(rendering, expiring, expiring.wall),
        RefusalsPage(rendering, refusals),
        IdleRolesPage(rendering, unused),
        LoginExplained(rendering, explanations, tokens),
    ]
