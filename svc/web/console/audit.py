"""The page of the audit: the changes, newest first, with filters that are links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from svc.model.errors import InvalidName, InvalidParameter
from svc.model.events import Event, EventsQuery, StoredEvent
from svc.model.names import ResourceName
from svc.services.audit_events import AuditService
from svc.web.console import links, pages
from svc.web.console.rendering import PageRenderer
from svc.web.http.declarations import Parameter, ParameterSource
from svc.web.http.messages import Response
from svc.web.http.routing import Call, Routes
from svc.web.http.shapes import TEXT
from svc.web.routes.audit import audit_read, audit_read_event
from svc.web.routes.listing import OFFSET

#: The version that a load of a policy made, after the policy's full id.
_LOAD_EXPRESSION: Final = re.compile("(.+)@([1-9][0-9]{0,8})", re.ASCII | re.DOTALL)

#: The parameters of an event's subject by which ``what`` finds it.
_SUBJECT_PARAMETERS: Final = ("resource", "role", "member")


def _read_subject(source: ParameterSource) -> ResourceName | None:
    text = source.query.text("what")
    try:
        return ResourceName.parse(text) if text else None
    except InvalidName as refusal:
        raise InvalidParameter("what", f"'what' is no full id: {refusal.message}") from None


def _read_load(source: ParameterSource) -> tuple[str, int] | None:
    text = source.query.text("load")
    if not text:
        return None
    matched = _LOAD_EXPRESSION.fullmatch(text)
    if matched is None:
        raise InvalidParameter("load", "'load' is a policy's full id, @ and the number of a version")
    return matched[1], int(matched[2])


WHAT: Final = Parameter("what", _read_subject, TEXT, "the full id of a role, resource or member that the events tell of")
WHO: Final = Parameter.text("who", "the full id of the role that acted")
OPERATION: Final = Parameter.text("operation", "what it did, in the audit's word")
REQUEST: Final = Parameter.text("request", "the id of a request")
LOAD: Final = Parameter("load", _read_load, TEXT, "a load of a policy: its full id, @ and the version that it made")


@attrs.frozen
class EventView:
    """An event with what can be looked for by it."""

    event: StoredEvent
    who: str
    operation: str
    address: str
    about: tuple[str, ...]

    @staticmethod
    def from_event(event: StoredEvent) -> EventView:
        """Return an event as a page shows it."""
        subject = event.data.get("subject", {})
        about = dict.fromkeys(subject[name] for name in _SUBJECT_PARAMETERS if _is_full_id(subject.get(name)))
        return EventView(
            event,
            event.data.get("auth", {}).get("user", ""),
            event.data.get("action", {}).get("operation", ""),
            event.data.get("client", {}).get("ip", ""),
            tuple(about),
        )


def audit_page_read(call: Call) -> list[Event]:
    """The audit was read, or that of one thing, as by the routes of the audit; an invalid name is recorded as sent."""
    about = call.asked_value("what")
    return [audit_read_event(about)] if about else audit_read(call)


@attrs.frozen
class AuditPage:
    """The page of the audit."""

    routes = Routes()

    renderer: PageRenderer
    audit: AuditService

    @pages.declare_page(
        routes,
        links.AUDIT,
        query=(WHAT, WHO, OPERATION, REQUEST, LOAD, OFFSET),
        privileges="owns the root policy, or what is asked about",
        audit=audit_page_read,
    )
    async def show(
        self,
        call: Call,
        *,
        what: ResourceName | None,
        who: str | None,
        operation: str | None,
        request: str | None,
        load: tuple[str, int] | None,
        offset: int | None,
    ) -> Response:
        """Return events that changed something, the newest first (CON-27)."""
        given = (("auth", "user", who), ("action", "operation", operation))
        data = tuple((element, name, value) for element, name, value in given if value)
        query = EventsQuery("", procid=request or None, data=data, load=load, limit=pages.ROWS + 1, offset=offset or 0)
        found = await (
            self.audit.list_all_events(call.invocation, query)
            if what is None
            else self.audit.list_events_about(call.invocation, query, what)
        )
        filters: Mapping[str, str] = {
            name: value
            for name, value in (
                ("what", "" if what is None else str(what)),
                ("who", who),
                ("operation", operation),
                ("request", request),
                ("load", "" if load is None else f"{load[0]}@{load[1]}"),
            )
            if value
        }
        older = links.audit({**filters, "offset": str((offset or 0) + pages.ROWS)})
        return self.renderer.render_page(
            call.visit,
            "audit.html",
            title="Audit",
            events=[EventView.from_event(each) for each in found[: pages.ROWS]],
            filters=filters,
            without={name: links.audit({**filters, name: ""}) for name in filters},
            older=older if len(found) > pages.ROWS else None,
            newest=links.audit(filters) if offset else None,
        )


def _is_full_id(text: str | None) -> bool:
    try:
        return text is not None and bool(ResourceName.parse(text))
    except InvalidName:
        return False
