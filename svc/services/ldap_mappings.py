"""The use cases of mappings of LDAP authenticators (LDAP-1 to LDAP-7).

Note [Who may map]. A caller that sets a mapping makes strangers members of its roles: everybody who will ever have the name
in the directory. So each newly named role requires the authority to grant it, which ``update`` on the authenticator alone
doesn't give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs
from twisted.logger import Logger

from svc.model.authorization import Allowed, decide_visibility, require_privilege
from svc.model.dialect import Dialect
from svc.model.errors import Forbidden, InvalidName, InvalidParameter, RecordNotFound
from svc.model.events import NOTICE, Event
from svc.model.ldap_directories import (
    BYTES_MOST,
    GROUP,
    NAMES_MOST,
    ROLES_MOST,
    USER,
    DirectoryName,
    InvalidDirectoryName,
    LdapMapping,
    group_key,
)
from svc.model.names import ResourceName, RoleName, admin_of
from svc.policy.authority import authority_to_grant
from svc.services.authenticators import webservice_of
from svc.services.invocation import Invocation, printable_facts
from svc.services.policy_loads import find_lacking_authority
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.ldap_mappings import LdapMappingStore, MappingTransaction
from svc.storage.roles import RoleStore

_LDAP: Final = "authn-ldap"
_GROUP_BASE: Final = "ldap-authn/group_base_dn"

_log = Logger()

#: Returns the ids of roles that a request names; called once the caller may know; it may refuse what can't be read.
Wanted = Callable[[], Sequence[str]]


@attrs.frozen
class LdapMappingService:
    """The use cases of mappings, each of the authenticator ``authn-ldap/<service id>`` of an account."""

    store: LdapMappingStore
    roles: RoleStore
    annotations: AuthenticatorStore
    dialect: Dialect

    async def list_names(self, invocation: Invocation, account: str, service_id: str, kind: str) -> list[str]:
        """Return the names of a kind that are mapped; takes ``read`` on the webservice, or inspecting it.

        :raises RecordNotFound: there is no such authenticator, or the caller doesn't see it.
        :raises Forbidden: the caller lacks the privilege.
        """
        return await self.store.list_names(await self._require_readable(invocation, account, service_id), kind)

    async def read_mapping(self, invocation: Invocation, account: str, service_id: str, kind: str, name: str) -> LdapMapping:
        """Return a mapping; takes what ``list_names`` does.

        :raises RecordNotFound: as ``list_names``; or the name isn't mapped.
        :raises Forbidden: as ``list_names``.
        :raises InvalidName: no directory has the name.
        """
        webservice = await self._require_readable(invocation, account, service_id)
        found = await self.store.read_mapping(webservice, _directory_name(account, kind, name))
        if found is None:
            raise _mapping_not_found(account, kind, name)
        return found

    async def set_mapping(
        self, invocation: Invocation, account: str, service_id: str, kind: str, name: str, wanted: Wanted
    ) -> tuple[LdapMapping, bool]:
        """Map a name to roles and no others, and return the mapping, and whether the name had none (Note [Who may map]).

        :raises RecordNotFound: there is no such authenticator or role, or the caller doesn't see it.
        :raises Forbidden: the caller lacks ``update`` on the webservice, or may not grant a role that is newly named.
        :raises InvalidName: no directory has the name; or it is a plain one, and the authenticator has no place for these.
        :raises InvalidParameter: there are no roles, or too many, or others than groups; or too many names are mapped.
        :raises PolicyConflict: the authenticator or a role goes meanwhile.
        """
        webservice = await self._require_changeable(invocation, account, service_id)
        key = _directory_name(account, kind, name)
        if kind == GROUP and "=" not in name:
            if name != name.strip():
                why = "no group can be meant by a plain name that begins or ends with a blank"
                raise InvalidName("name", f"{why}: write it without, or write the distinguished name")
            await self._require_group_base(webservice)
        roles = _parse_groups(account, wanted())
        if any(len(f"{webservice}{key.key}{role}".encode()) > BYTES_MOST for role in roles):
            parts = "the name in the path, as it is compared, and the full ids of the webservice and of a role"
            raise InvalidParameter("name", f"{parts} have more than {BYTES_MOST} bytes together")

        async def change_mapping(transaction: MappingTransaction) -> bool:
            await transaction.lock_mappings(webservice)
            before = await transaction.read_mapping(webservice, key)
            if before is None and await transaction.count_names(webservice, kind) >= NAMES_MOST:
                raise InvalidParameter("name", f"{NAMES_MOST} names of the kind are mapped already: remove some first")
            had = () if before is None else before.roles
            await _require_grantable(transaction, invocation, [role for role in roles if str(role) not in had])
            named = [str(role) for role in roles]
            await self._record_losses(transaction, invocation, webservice, key, [role for role in had if role not in named])
            await transaction.set_mapping(webservice, key, name, named)
            await _write_events(transaction, invocation)
            return before is None

        made = await self.store.transact(change_mapping)
        self._log_mapping(invocation, webservice, kind, name, ", ".join(map(str, roles)))
        return LdapMapping(name, tuple(map(str, roles))), made

    async def remove_mapping(self, invocation: Invocation, account: str, service_id: str, kind: str, name: str) -> None:
        """Map a name no longer; takes ``update`` on the webservice.

        :raises RecordNotFound: as ``read_mapping``.
        :raises Forbidden: the caller lacks the privilege.
        :raises InvalidName: no directory has the name.
        """
        webservice = await self._require_changeable(invocation, account, service_id)
        key = _directory_name(account, kind, name)

        async def clear_mapping(transaction: MappingTransaction) -> None:
            await transaction.lock_mappings(webservice)
            before = await transaction.read_mapping(webservice, key)
            if before is None:
                raise _mapping_not_found(account, kind, name)
            await self._record_losses(transaction, invocation, webservice, key, before.roles)
            await transaction.set_mapping(webservice, key, name, ())
            await _write_events(transaction, invocation)

        await self.store.transact(clear_mapping)
        self._log_mapping(invocation, webservice, kind, name, "no role")

    async def _require_readable(self, invocation: Invocation, account: str, service_id: str) -> ResourceName:
        webservice = webservice_of(self.dialect, account, f"{_LDAP}/{service_id}")
        facts = await self.roles.access_facts(invocation.caller, webservice)
        if decide_visibility(facts) != Allowed() or not await self.roles.can_inspect(invocation.caller.role, webservice):
            require_privilege(facts, "read", webservice)
        return webservice

    async def _require_changeable(self, invocation: Invocation, account: str, service_id: str) -> ResourceName:
        webservice = webservice_of(self.dialect, account, f"{_LDAP}/{service_id}")
        require_privilege(await self.roles.access_facts(invocation.caller, webservice), "update", webservice)
        return webservice

    async def _require_group_base(self, webservice: ResourceName) -> None:
        """Refuse a plain name that means no group (LDAP-2)."""
        found = await self.annotations.read_annotations(webservice, (_GROUP_BASE,), 1)
        if not found.get(_GROUP_BASE, "").strip():
            why = f"the authenticator has no annotation {_GROUP_BASE}, below which the name would stand"
            raise InvalidName("name", f"no group can be meant by a plain name: {why}; write the distinguished name")

    async def _record_losses(
        self,
        transaction: MappingTransaction,
        invocation: Invocation,
        webservice: ResourceName,
        key: DirectoryName,
        roles: Sequence[str],
    ) -> None:
        """Record the memberships that are removed with a name's mapping to these roles."""
        service = webservice.identifier.removeprefix(f"{self.dialect.prefix}/")
        losing = await transaction.list_lost_memberships(webservice, key, roles) if roles else []
        invocation.recorder.add_audit_facts(rows=[_removal_event(role, member, service) for role, member in losing])

    def _log_mapping(self, invocation: Invocation, webservice: ResourceName, kind: str, name: str, roles: str) -> None:
        facts = printable_facts(role=invocation.caller.role, kind=kind, name=name, webservice=webservice, roles=roles)
        _log.info("{role} mapped the {kind} {name} of {webservice} to {roles}", **facts)


async def _require_grantable(transaction: MappingTransaction, invocation: Invocation, roles: Sequence[RoleName]) -> None:
    for role in roles:
        facts = await transaction.access_facts(invocation.caller, role)
        if not facts.caller_exists:
            raise Forbidden("role of the token no longer exists")
        if decide_visibility(facts) != Allowed():
            raise RecordNotFound.for_name(role, hidden=facts.exists)
    named = [str(role) for role in roles]
    required = authority_to_grant(named, await transaction.read_ownership(named, ()))
    for verb, full in await find_lacking_authority(transaction, invocation.caller.role, required):
        raise Forbidden(f"may not {verb} {full}", f"may not {verb} {full}")


async def _write_events(transaction: MappingTransaction, invocation: Invocation) -> None:
    if (trail := invocation.recorder.event_batch) is not None:
        await transaction.write_events(trail)


def _removal_event(role: str, member: str, service: str) -> Event:
    words = f"{member} from {role}, which followed from a mapping of {service} alone"
    subject = (("role", role), ("member", member))
    return Event("membership", "remove", subject, f"removed {words}", f"remove {words}", severity=NOTICE)


def _directory_name(account: str, kind: str, name: str) -> DirectoryName:
    """Return the name by which names are compared.

    :raises InvalidName: no directory has it, or nobody of the name could log in.
    """
    if not name.isprintable() or not name.strip():
        raise InvalidName("name", "the name in the path is blank, or has characters that can't be printed")
    if kind == USER:
        if name != name.strip():
            raise InvalidName("name", "a login that begins or ends with a blank is refused by directories' authenticators")
        role = RoleName.from_login(account, name)
        if role.kind != "user" or role == admin_of(account):
            raise InvalidName("name", "neither hosts nor admin log in by a directory")
        return DirectoryName(USER, role.identifier)
    try:
        return DirectoryName(GROUP, group_key(name))
    except InvalidDirectoryName as error:
        raise InvalidName("name", f"the name in the path is no distinguished name: {error}") from None


def _parse_groups(account: str, ids: Iterable[str]) -> list[RoleName]:
    """Return the groups that ids mean, each once, in order."""
    roles = {_parse_group(account, text) for text in ids}
    if not 0 < len(roles) <= ROLES_MOST:
        raise InvalidParameter("roles", f"'roles' are 1 to {ROLES_MOST} ids of groups")
    return sorted(roles, key=str)


def _parse_group(account: str, text: str) -> RoleName:
    identifier = text.removeprefix(f"{account}:") if text.startswith(f"{account}:group:") else text
    kind, colon, rest = identifier.partition(":")
    if not (colon and rest) or kind != "group":
        raise InvalidParameter("roles", "'roles' are ids of groups of the account, such as group:developers")
    return RoleName.from_parts(account, "group", rest)


def _mapping_not_found(account: str, kind: str, name: str) -> RecordNotFound:
    return RecordNotFound(account, "mapping", f"{kind} {name}")
