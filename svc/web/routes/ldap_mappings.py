"""Mappings of LDAP authenticators over HTTP (LDAP-1 to LDAP-7)."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from svc.model.errors import BadRequest, Forbidden, InvalidParameter, PolicyConflict, RecordNotFound
from svc.model.ldap_directories import GROUP, USER, LdapMapping
from svc.model.strict_json import Malformed, parse_json_object
from svc.services.ldap_mappings import LdapMappingService
from svc.web.http.declarations import Answer, Body, Parameter, ParameterSource
from svc.web.http.messages import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import TEXT, array_shape, object_shape
from svc.web.routes import authenticator_events

_AUTHENTICATOR: Final = "/authn-ldap/<service_id>/<flat:account>"
_GROUPS: Final = f"{_AUTHENTICATOR}/groups"
_USERS: Final = f"{_AUTHENTICATOR}/users"

_READ: Final = "read on the authenticator's webservice, or inspects it"
_UPDATE: Final = "update on the authenticator's webservice"
_GRANT: Final = f"{_UPDATE}; and for each role that is newly named, to grant it"

_LISTED: Final = object_shape({"keys": array_shape(TEXT)})
#: The member of an answer that has the name, by its kind.
_NAME_MEMBERS: Final = {GROUP: "ldap_group", USER: "ldap_username"}


def _read_roles(source: ParameterSource) -> list[str]:
    """Read the roles from a JSON object, whatever the content type says."""
    try:
        roles = parse_json_object(source.body).get("roles")
    except Malformed as error:
        raise BadRequest(f"the body can't be read as JSON: {error}") from None
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise InvalidParameter("roles", "'roles' is a list of texts")
    return roles


_ROLES_DESCRIPTION: Final = "ids of groups, in full or without the account"
ROLES: Final = Parameter("roles", _read_roles, array_shape(TEXT), _ROLES_DESCRIPTION, required=True, late=True)


@attrs.frozen
class LdapMappings:
    """The routes of mappings."""

    routes = Routes()
    _read_route = partial(routes.add, "GET", caller=REQUIRED, errors=(Forbidden, RecordNotFound), privileges=_READ)
    _set_route = partial(
        routes.add,
        "POST",
        caller=REQUIRED,
        body=Body("the roles", ("application/json",), fields=(ROLES,)),
        errors=(BadRequest, Forbidden, InvalidParameter, PolicyConflict, RecordNotFound),
        privileges=_GRANT,
        audit=authenticator_events.mapping_set,
    )
    _remove_route = partial(
        routes.add,
        "DELETE",
        caller=REQUIRED,
        answers=(Answer(204, "the name is mapped no longer"),),
        errors=(Forbidden, PolicyConflict, RecordNotFound),
        privileges=_UPDATE,
        audit=authenticator_events.mapping_removed,
    )

    mappings: LdapMappingService

    @_read_route(
        path=_GROUPS,
        answers=(Answer(200, "names of groups, in order", _LISTED),),
        audit=authenticator_events.mappings_listed,
    )
    async def list_groups(self, call: Call, service_id: str, account: str) -> Response:
        """List the directory's groups that are mapped."""
        return await self._list_names(call, service_id, account, GROUP)

    @_read_route(
        path=_USERS, answers=(Answer(200, "logins, in order", _LISTED),), audit=authenticator_events.mappings_listed
    )
    async def list_users(self, call: Call, service_id: str, account: str) -> Response:
        """List the logins that are mapped."""
        return await self._list_names(call, service_id, account, USER)

    @_read_route(
        path=f"{_GROUPS}/<mapped:name>",
        answers=(Answer(200, "the mapping", object_shape({_NAME_MEMBERS[GROUP]: TEXT, "roles": array_shape(TEXT)})),),
        audit=authenticator_events.mapping_read,
    )
    async def show_group(self, call: Call, service_id: str, account: str, name: str) -> Response:
        """Return the roles that a group of the directory is mapped to."""
        return await self._show_mapping(call, service_id, account, GROUP, name)

    @_read_route(
        path=f"{_USERS}/<mapped:name>",
        answers=(Answer(200, "the mapping", object_shape({_NAME_MEMBERS[USER]: TEXT, "roles": array_shape(TEXT)})),),
        audit=authenticator_events.mapping_read,
    )
    async def show_user(self, call: Call, service_id: str, account: str, name: str) -> Response:
        """Return the roles that a login is mapped to."""
        return await self._show_mapping(call, service_id, account, USER, name)

    @_set_route(
        path=f"{_GROUPS}/<mapped:name>",
        answers=tuple(
            Answer(status, meaning, object_shape({_NAME_MEMBERS[GROUP]: TEXT, "roles": array_shape(TEXT)}))
            for status, meaning in ((200, "it has these roles now"), (201, "the group is mapped"))
        ),
    )
    async def set_group(self, call: Call, service_id: str, account: str, name: str) -> Response:
        """Map a group of the directory to roles, in place of those that it has."""
        return await self._set_mapping(call, service_id, account, GROUP, name)

    @_set_route(
        path=f"{_USERS}/<mapped:name>",
        answers=tuple(
            Answer(status, meaning, object_shape({_NAME_MEMBERS[USER]: TEXT, "roles": array_shape(TEXT)}))
            for status, meaning in ((200, "it has these roles now"), (201, "the login is mapped"))
        ),
    )
    async def set_user(self, call: Call, service_id: str, account: str, name: str) -> Response:
        """Map a login to roles, in place of those that it has."""
        return await self._set_mapping(call, service_id, account, USER, name)

    @_remove_route(path=f"{_GROUPS}/<mapped:name>")
    async def remove_group(self, call: Call, service_id: str, account: str, name: str) -> Response:
        """Map a group of the directory no longer."""
        return await self._remove_mapping(call, service_id, account, GROUP, name)

    @_remove_route(path=f"{_USERS}/<mapped:name>")
    async def remove_user(self, call: Call, service_id: str, account: str, name: str) -> Response:
        """Map a login no longer."""
        return await self._remove_mapping(call, service_id, account, USER, name)

    async def _list_names(self, call: Call, service_id: str, account: str, kind: str) -> Response:
        call.add_audit_facts(kind=kind)
        return Response.json({"keys": await self.mappings.list_names(call.invocation, account, service_id, kind)})

    async def _show_mapping(self, call: Call, service_id: str, account: str, kind: str, name: str) -> Response:
        call.add_audit_facts(kind=kind)
        return _mapping_response(kind, await self.mappings.read_mapping(call.invocation, account, service_id, kind, name))

    async def _set_mapping(self, call: Call, service_id: str, account: str, kind: str, name: str) -> Response:
        call.add_audit_facts(kind=kind)
        wanted = partial(call.read_late, ROLES)
        mapping, made = await self.mappings.set_mapping(call.invocation, account, service_id, kind, name, wanted)
        return _mapping_response(kind, mapping, 201 if made else 200)

    async def _remove_mapping(self, call: Call, service_id: str, account: str, kind: str, name: str) -> Response:
        call.add_audit_facts(kind=kind)
        await self.mappings.remove_mapping(call.invocation, account, service_id, kind, name)
        return Response.empty()


def _mapping_response(kind: str, mapping: LdapMapping, status: int = 200) -> Response:
    return Response.json({_NAME_MEMBERS[kind]: mapping.name, "roles": list(mapping.roles)}, status)
