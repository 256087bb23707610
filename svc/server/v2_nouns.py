"""The newer interface: its use cases and its routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from svc.crypto.vault import Vault
from svc.services.branches import branches, groups
from svc.services.configured_authenticators import ConfiguredAuthenticatorService
from svc.services.group_members import GroupMemberService
from svc.services.login import AccessTokenService
from svc.services.policy_edits import PolicyEdits
from svc.settings.config import Settings
from svc.storage.driver.statements import Statements
from svc.storage.policy_edits import PolicyEditStore
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore
from svc.web.routes.branches import Branches
from svc.web.routes.configured_authenticators import ConfiguredAuthenticators
from svc.web.routes.groups import GroupMembers, Groups


def make_v2(
    statements: Statements, settings: Settings, tokens: AccessTokenService, vault: Vault, installed: Sequence[str]
) -> list[Any]:
    """Return the routes of the newer interface."""
    edits = PolicyEditStore(statements, settings.keeping)
    roles, resources = RoleStore(statements), ResourceStore(statements)
    changes = PolicyEdits(edits, settings.record_limits)
    secrets = SecretStore(statements, settings.dialect, settings.keeping)
    authenticators = ConfiguredAuthenticatorService(changes, roles, resources, secrets, vault, settings.dialect, installed)
    of_groups = groups(changes, roles, resources)
    return [
        Branches(branches(changes, roles, resources, settings.dialect), tokens),
        Groups(of_groups, tokens),
        GroupMembers(GroupMemberService(changes, of_groups, roles), tokens),
        ConfiguredAuthenticators(authenticators, tokens),
    ]
