"""The console, put together where a server has it: no other imports its pages and their templates."""

from __future__ import annotations

from typing import Any

from svc.crypto.console_cookies import ConsoleCookies
from svc.server.graph import Server
from svc.services.console_sessions import ConsoleSessionService
from svc.web.console.audit import AuditPage
from svc.web.console.authenticators import AuthenticatorPages
from svc.web.console.changes import ChangePage
from svc.web.console.expirations import ExpirationsPage, InactiveRolesPage
from svc.web.console.home import HomePage
from svc.web.console.login_explanation import LoginExplanationPage
from svc.web.console.middleware import ConsoleAddress, ConsoleMiddleware
from svc.web.console.policies import PolicyTree
from svc.web.console.provider_sign_in import ProviderSignIn
from svc.web.console.refusals import RefusalsPage
from svc.web.console.rendering import PageRenderer
from svc.web.console.resources import ResourcePage
from svc.web.console.roles import RolePage
from svc.web.console.sign_in import SignIn


def make_console(server: Server) -> tuple[ConsoleMiddleware, list[Any]]:
    """Return the parts that all pages share, and the pages; their templates are compiled here."""
    cookies, own = ConsoleCookies(server.installation.vault), ConsoleAddress(server.settings.public_url)
    rendering, wall = PageRenderer(cookies), server.wall
    tokens, roles = server.access_token_service, server.role_store
    access, audit, refusals = server.access_service, server.audit_service, server.refusal_service
    resources, expiring, oidc = server.resource_service, server.upcoming_expiration_service, server.oidc_routes
    logins, keys, store, idle = (
        server.login_service,
        server.api_key_service,
        server.credential_store,
        server.settings.console_session,
    )
    sessions = ConsoleSessionService(logins, oidc.by_code, keys, store, cookies, wall, idle)
    return ConsoleMiddleware(sessions, cookies, rendering, own), [
        SignIn(rendering, sessions, server.revocation_service, oidc.oidc),
        ProviderSignIn(rendering, sessions, oidc.oidc, cookies, wall, own),
        HomePage(rendering, server.overview, audit, roles, tokens, expiring, refusals, wall, state=server.state),
        PolicyTree(rendering, resources, access),
        ResourcePage(rendering, resources, server.secret_service, access),
        RolePage(rendering, server.role_service, access, server.inactive_role_service, audit, server.revocation_service),
        AuditPage(rendering, audit),
        AuthenticatorPages(rendering, server.authenticator_service, server.federated_services, tokens, roles, refusals),
        ChangePage(rendering, server.policy_load_service, tokens),
        ExpirationsPage(rendering, expiring, wall),
        RefusalsPage(rendering, refusals),
        InactiveRolesPage(rendering, server.inactive_role_service),
        LoginExplanationPage(rendering, server.explanations, tokens),
    ]
