"""The route classes of a server, for the command that prints the OpenAPI document without a server.

A server builds its own document from the objects that it serves; tests compare the two.
"""

from __future__ import annotations

from typing import Final

from svc.model.dialect import SIGNED_TYPES, SINGLE_TYPES, Dialect
from svc.web.openapi.document import TaggedRoutes
from svc.web.openapi.routes import Documentation
from svc.web.routes.accounts import Accounts
from svc.web.routes.audit import Audit
from svc.web.routes.audit_records import AuditRecords, PeerRecords
from svc.web.routes.authenticators import Authenticators, DirectoryAuthenticators, FederatedAuthenticators
from svc.web.routes.authn import Authn, FederatedAuthn, LdapAuthn, SignedAuthn
from svc.web.routes.batches import SecretBatches
from svc.web.routes.branches import Branches
from svc.web.routes.cluster import Cluster, ClusterReadings
from svc.web.routes.configured_authenticators import ConfiguredAuthenticators
from svc.web.routes.credentials import Credentials
from svc.web.routes.deleted import DeletedRecords
from svc.web.routes.effective_policy import EffectivePolicies
from svc.web.routes.expirations import Endings
from svc.web.routes.groups import GroupMembers, Groups
from svc.web.routes.health import Health
from svc.web.routes.host_factories import HostFactories
from svc.web.routes.ldap_mappings import LdapMappings
from svc.web.routes.login_explanations import KeyLogins
from svc.web.routes.offboarding import Offboardings
from svc.web.routes.oidc import OidcAuthn
from svc.web.routes.policies import Policies
from svc.web.routes.public_keys import PublicKeys
from svc.web.routes.refusals import Refusals
from svc.web.routes.resources import Resources
from svc.web.routes.revocation import Revocation
from svc.web.routes.roles import Roles
from svc.web.routes.secrets import Secrets
from svc.web.routes.sessions import Sessions
from svc.web.routes.status import Status
from svc.web.routes.watches import SecretWatches

#: The classes of routes that each server has once.
_ROUTE_CLASSES: Final = (
    *(AuditRecords, PeerRecords),
    *(Accounts, Audit, Authenticators, Authn, Branches, Cluster, ClusterReadings),
    *(ConfiguredAuthenticators, Credentials, DeletedRecords),
    *(
        DirectoryAuthenticators,
        Documentation,
        EffectivePolicies,
        Endings,
        GroupMembers,
        Groups,
        Health,
        HostFactories,
        KeyLogins,
        LdapAuthn,
    ),
    *(LdapMappings, OidcAuthn, Policies, PublicKeys, Refusals, Resources, Revocation, Roles, SecretBatches, Secrets),
    *(Offboardings, SecretWatches, Sessions, Status),
)


def routes_of_dialect(dialect: Dialect) -> tuple[TaggedRoutes, ...]:
    """Return the tagged routes of a server of this dialect."""
    names = ("authn-jwt", dialect.cloud, *SINGLE_TYPES, *SIGNED_TYPES)
    return (
        *(TaggedRoutes.from_class(resource, None, resource.routes) for resource in _ROUTE_CLASSES),
        *(_tag_named_routes(SignedAuthn if name in SIGNED_TYPES else FederatedAuthn, name) for name in names),
        *(_tag_named_routes(FederatedAuthenticators, name) for name in (*names, "authn-oidc")),
    )


def _tag_named_routes(resource: type[SignedAuthn | FederatedAuthn | FederatedAuthenticators], name: str) -> TaggedRoutes:
    absent = ("service_id", "login") if name in SINGLE_TYPES else ()
    return TaggedRoutes.from_class(resource, name, resource.declared.with_prefix(name, *absent))
