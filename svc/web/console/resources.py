"""The page of one resource, and the press that shows a value."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Final

import attrs

from svc.model.access import HoldersCursor, PrivilegeHolder
from svc.model.errors import Forbidden, InvalidParameter, NoValue, RecordNotFound, TooManyRoles, WrongDataKey
from svc.model.events import Event
from svc.model.names import ResourceName, is_role_kind
from svc.model.query_results import Permission, Resource, ResourceAnnotation
from svc.services.access import REACH_PRIVILEGES, AccessService
from svc.services.resources import ResourceService
from svc.services.secrets import SecretService
from svc.web.console import links, pages
from svc.web.console.picture import HEIGHT, WIDTH, draw_picture
from svc.web.console.policies import enclosing_policies
from svc.web.console.rendering import PageRenderer, shorten_text
from svc.web.http.declarations import Parameter, ParameterSource
from svc.web.http.messages import Response
from svc.web.http.routing import Call, Routes
from svc.web.http.shapes import integer_shape
from svc.web.routes.access import AFTER_HOLDER, holders_listed_event
from svc.web.routes.cursors import position_cursor
from svc.web.routes.resources import resource_shown_event
from svc.web.routes.secrets import value_fetched

#: The most characters of a value that are shown.
MAX_VALUE_LENGTH: Final = 65_536

#: Characters that no browser shows; values with these are no text.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")

#: How many holders of each privilege are shown where several privileges are.
MAX_HOLDERS: Final = 20

_PATH: Final = "/ui/resources/<tail:name>"
_MAX_VERSION: Final = 2**31 - 1


def _read_version(source: ParameterSource) -> int | None:
    text = source.parse_form().text("version")
    if not text:
        return None
    if not text.isdecimal() or not text.isascii() or len(text) > 10 or int(text) > _MAX_VERSION:
        raise InvalidParameter("version", "'version' is the number of a version")
    return int(text)


VERSION: Final = Parameter(
    "version", _read_version, integer_shape(0, _MAX_VERSION), "the number of the version that is shown"
)


PRIVILEGE: Final = Parameter.text("privilege", "the one privilege whose holders are shown, instead of the usual ones")


@attrs.frozen
class ValueView:
    """A value as people read it: ``is_text`` unless it is shown in base64; ``version`` is ``None`` for the newest."""

    version: int | None
    text: str
    is_text: bool
    is_cut: bool


@attrs.define
class ResourceView:
    """A resource with as much of it as a page shows."""

    resource: Resource
    permissions: list[Permission] = attrs.field(factory=list)
    annotations: list[ResourceAnnotation] = attrs.field(factory=list)
    is_cut: bool = False

    def add_part(self, part: Resource) -> None:
        """Add a part; the last one has all that there is beside permissions and annotations."""
        self.resource = part
        self.permissions += part.permissions[: pages.ROWS + 1 - len(self.permissions)]
        self.annotations += part.annotations[: pages.ROWS + 1 - len(self.annotations)]
        if max(len(self.permissions), len(self.annotations)) > pages.ROWS:
            self.is_cut = True
            del self.permissions[pages.ROWS :], self.annotations[pages.ROWS :]


@attrs.frozen
class HoldersView:
    """Some of the roles that have a privilege, and the path of the page with more.

    ``holders`` is ``None`` if their ways are too long to be followed.
    """

    privilege: str
    holders: Sequence[PrivilegeHolder] | None
    more: str | None = None


def resource_events(call: Call) -> list[Event]:
    """A resource was shown, and who has privileges on it."""
    name, listed = call.values["name"], call.audit_facts.get("holders", ())
    holders = [holders_listed_event(name, privilege, (("limit", str(limit)),)) for privilege, limit in listed]
    return [resource_shown_event(name), *holders]


def value_events(call: Call) -> list[Event]:
    """A value was read, and with it the resource shown."""
    name, version = call.values["name"], call.audit_facts.get("version")
    return [value_fetched(name, version), *(resource_events(call) if call.audit_facts.get("read") else ())]


@attrs.frozen
class ResourcePage:
    """The page of a resource."""

    routes = Routes()

    renderer: PageRenderer
    resources: ResourceService
    secrets: SecretService
    access: AccessService

    @pages.declare_page(
        routes, _PATH, query=(PRIVILEGE, AFTER_HOLDER), privileges="sees the resource", audit=resource_events
    )
    async def show(self, call: Call, name: str, *, privilege: str | None, after: HoldersCursor | None) -> Response:
        """Return what there is to know of a resource, but for values (CON-25)."""
        resource, several = pages.parse_full_id(name), not privilege
        found = await self._read_resource(call, resource)
        asked = [(each, MAX_HOLDERS) for each in REACH_PRIVILEGES] if not privilege else [(privilege, pages.ROWS)]
        call.add_audit_facts(holders=asked)
        who = [await self._who_can(call, resource, *each, None if several else after) for each in asked]
        return await self._render_page(call, resource, found, None, who, None if several else privilege)

    @pages.declare_form_post(
        routes,
        _PATH,
        body=pages.form_body(VERSION),
        errors=(Forbidden, RecordNotFound, NoValue, WrongDataKey, InvalidParameter),
        privileges="execute on the variable",
        writes=False,
        audit=value_events,
    )
    async def show_value(self, call: Call, name: str, *, version: int | None) -> Response:
        """Return the same page with a value of the variable (CON-12)."""
        variable = pages.parse_full_id(name, "variable")
        call.add_audit_facts(version=None if version is None else str(version))
        secret = await self.secrets.read_value(call.invocation, variable, version)
        call.add_audit_facts(read=True)
        value = _decode_value(version, secret.value or b"")
        return await self._render_page(call, variable, await self._read_resource(call, variable), value, (), None)

    async def _who_can(
        self, call: Call, name: ResourceName, privilege: str, limit: int, after: HoldersCursor | None
    ) -> HoldersView:
        try:
            page = await self.access.list_holders(call.invocation, name, privilege, limit=limit, after=after)
        except TooManyRoles:
            return HoldersView(privilege, None)
        if page.after is None:
            return HoldersView(privilege, page.holders)
        cursor = (("privilege", privilege), ("after", position_cursor(page.after)))
        return HoldersView(privilege, page.holders, f"{links.with_query(links.resource(str(name)), cursor)}#who-can")

    async def _read_resource(self, call: Call, name: ResourceName) -> ResourceView:
        found: ResourceView | None = None
        async for portion in await self.resources.read_resource(call.invocation, name, texts=0):
            for part in portion:
                found = found or ResourceView(part)
                found.add_part(part)
        assert found is not None
        return found

    async def _render_page(
        self,
        call: Call,
        name: ResourceName,
        found: ResourceView,
        value: ValueView | None,
        who_can: Sequence[HoldersView],
        privilege: str | None,
    ) -> Response:
        resource, around = found.resource, await enclosing_policies(self.access, call, name)
        ways = [(each.privilege, holder.path) for each in who_can for holder in each.holders or ()]
        others = {each.privilege for each in found.permissions}.difference(REACH_PRIVILEGES, {privilege})
        return self.renderer.render_page(
            call.visit,
            "resource.html",
            title=name.identifier,
            name=str(name),
            above=around,
            is_role=is_role_kind(name.kind),
            resource=resource,
            versions=resource.secret_versions[::-1][: pages.ROWS],
            history=resource.history[::-1][: pages.ROWS],
            permissions=found.permissions,
            annotations=found.annotations,
            is_cut=found.is_cut or max(len(resource.history), len(resource.secret_versions)) > pages.ROWS,
            value=value,
            who_can=who_can,
            picture=draw_picture(str(name), ways) if ways else None,
            box=(WIDTH, HEIGHT),
            privilege=privilege,
            others=sorted(others),
            most=pages.ROWS,
            path=links.resource(str(name)),
        )


def _decode_value(version: int | None, value: bytes) -> ValueView:
    try:
        text, is_text = value.decode("utf-8"), True
        if _CONTROL.search(text):
            raise ValueError("no browser shows it as it is")
    except ValueError:
        text, is_text = base64.b64encode(value).decode("ascii"), False
    return ValueView(version, shorten_text(text, MAX_VALUE_LENGTH), is_text, len(text) > MAX_VALUE_LENGTH)
