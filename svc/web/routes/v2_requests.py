"""The common parts of the routes of the newer interface: order of checks, parameters, bodies (NEWER-3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from svc.model.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    NotAcceptable,
    PolicyConflict,
    PolicyInvalid,
    PreconditionFailed,
    RecordNotFound,
    Unprocessable,
)
from svc.model.events import NOTICE, Event
from svc.model.names import RoleName
from svc.services.branch_rules import (
    OWNERS,
    branch_at,
    refuse_faults,
    wrong_annotations,
    wrong_name,
    wrong_path,
    wrong_role,
)
from svc.services.branches import NewEntry
from svc.services.login import AccessTokenService
from svc.web.http.declarations import Parameter, ParameterSource
from svc.web.http.preconditions import IF_MATCH, IF_NONE_MATCH, Preconditions
from svc.web.http.routing import AuditEventsFunction, Call
from svc.web.http.shapes import TEXT, mapping_shape, object_shape, string_shape
from svc.web.http.v2 import HEAD, require_media_type
from svc.web.routes.secrets import value_fetched


def entry_events(msgid: str, operation: str, did: str, does: str) -> AuditEventsFunction:
    """Return the function for requests about a branch or a group, whose id is in the path, or recorded as ``name``."""

    def events(call: Call) -> list[Event]:
        name = call.audit_facts.get("name") or call.values.get("identifier")
        kind = "policy" if msgid == "branch" else msgid
        subject = (("account", call.values["account"]),)
        if name is not None:
            subject = (("resource", f"{call.values['account']}:{kind}:{name}"),)
        words = f"{msgid}es" if name is None and msgid == "branch" else f"{msgid}s" if name is None else f"{msgid} {name}"
        own = Event(msgid, operation, subject, f"successfully {did} {words}", f"{does} {words}", severity=NOTICE)
        return [own, *call.audit_facts.get("rows", ())]

    return events


def membership_events(operation: str, did: str, does: str, preposition: str) -> AuditEventsFunction:
    """Return the function for requests that change a member of a group."""

    def events(call: Call) -> list[Event]:
        account = call.values["account"]
        role = f"{account}:group:{call.values['identifier']}"
        member = call.audit_facts.get("member", "-")
        subject, words = (("role", role), ("member", member)), f"{member} {preposition} {role}"
        own = Event("membership", operation, subject, f"successfully {did} {words}", f"{does} {words}", severity=NOTICE)
        return [own, *call.audit_facts.get("rows", ())]

    return events


def authenticator_events(operation: str, did: str, does: str) -> AuditEventsFunction:
    """Return the function for requests about authenticators; each value that is returned is an event, as reading it is."""

    def events(call: Call) -> list[Event]:
        values, facts = call.values, call.audit_facts
        kind, name = facts.get("kind") or values.get("kind"), facts.get("name") or values.get("name")
        service = None if kind is None else f"authn-{kind}" + ("" if name is None else f"/{name}")
        words = "authenticators" if service is None else f"the authenticator {service}"
        words += {None: "", True: " on", False: " off"}[facts.get("enabled")]
        subject = (("account", values["account"]), *((("authenticator", service),) if service is not None else ()))
        own = Event("authenticator", operation, subject, f"successfully {did} {words}", f"{does} {words}", severity=NOTICE)
        fetched = [value_fetched(full, None) for full in facts.get("fetched", ())]
        return [own, *facts.get("rows", ()), *fetched]

    return events


members_listed = entry_events("group", "members", "listed the members of", "list the members of")
member_added = membership_events("add", "added", "add", "to")
member_removed = membership_events("remove", "removed", "remove", "from")
authenticator_created = authenticator_events("create", "created", "create")
authenticators_listed = authenticator_events("list", "listed", "list")
authenticator_read = authenticator_events("get", "retrieved", "retrieve")
authenticator_switched = authenticator_events("update", "switched", "switch")
authenticator_deleted = authenticator_events("delete", "deleted", "delete")


#: How many a page has: at most, and where only ``offset`` is given.
MAX_LIMIT: Final = 1000
DEFAULT_PAGE: Final = 10


def _bounded_reader(name: str, most: int | None) -> Callable[[ParameterSource], int | None]:
    def read(source: ParameterSource) -> int | None:
        given = source.query.text(name)
        if not source.query.has_flag(name):
            return None
        word = name.capitalize()
        digits = (given or "").removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
            raise Unprocessable(f"{word} must be an integer")
        number = int(given or "")
        if number < 0:
            raise Unprocessable(f"{word} must be greater than or equal to 0")
        if most is not None and number > most:
            raise Unprocessable(f"{word} must be less than or equal to {most}")
        return number

    return read


LIMIT: Final = Parameter(
    "limit", _bounded_reader("limit", MAX_LIMIT), TEXT, f"how many the page has at most, up to {MAX_LIMIT}", late=True
)
OFFSET: Final = Parameter(
    "offset", _bounded_reader("offset", None), TEXT, "how many before the page are left out", late=True
)

_MATCH: Final = attrs.evolve(IF_MATCH, late=True)
_NONE_MATCH: Final = attrs.evolve(IF_NONE_MATCH, late=True)

#: Of requests that read one thing, of those that change one, and of others.
READ_HEADERS: Final = (HEAD, _MATCH, _NONE_MATCH)
CHANGE_HEADERS: Final = (HEAD, _MATCH)
HEADERS: Final = (HEAD,)

#: The refusals of all, of those that read one, and of those that change policy.
ERRORS: Final = (Forbidden, NotAcceptable, Unprocessable)
READ_ERRORS: Final = (*ERRORS, RecordNotFound, PreconditionFailed)
CHANGE_ERRORS: Final = (*READ_ERRORS, BadRequest, Conflict, PolicyConflict, PolicyInvalid)

OWNER_SHAPE: Final = object_shape({"kind": string_shape(*OWNERS), "id": TEXT})
ANNOTATIONS_SHAPE: Final = mapping_shape(TEXT)


async def begin_request(call: Call, tokens: AccessTokenService, known: Sequence[str] = ()) -> str:
    """Check what comes first of a request, and return the content type of its answer; ``known`` are parameters of the query.

    :raises Forbidden: the caller's role is gone.
    :raises NotAcceptable: it doesn't accept the media type.
    :raises Unprocessable: it has other parameters.
    """
    await tokens.check_caller(call.caller)
    head = call.read_late(HEAD)
    accept = require_media_type(head)
    refuse_unexpected([name for name in head.names if name not in known])
    return accept


def refuse_unexpected(names: Sequence[str]) -> None:
    """Refuse unknown parameters.

    :raises Unprocessable: there are some.
    """
    if names:
        raise Unprocessable(f"Unexpected parameters: {', '.join(name[:100] for name in names[:20])}")


def page_bounds(call: Call) -> tuple[int, int]:
    """Return the limit and the offset of a list."""
    limit, offset = call.read_late(LIMIT), call.read_late(OFFSET)
    if limit is None:
        limit = MAX_LIMIT if offset is None else DEFAULT_PAGE
    return limit, offset or 0


def check_members(
    document: Mapping[str, object], required: Sequence[str], optional: Sequence[str] = ()
) -> Mapping[str, object]:
    """Return the members of a body.

    :raises BadRequest: it has none.
    :raises Unprocessable: one is missing, or there are others.
    """
    if not document:
        raise BadRequest("Empty request body")
    missing = [name for name in required if document.get(name) in (None, "")]
    if missing:
        raise Unprocessable(f"Missing required parameter: {', '.join(missing)}", "CONJ00190W")
    refuse_unexpected([name for name in document if name not in {*required, *optional}])
    return document


def wrong_owner(owner: object) -> list[str]:
    """Return what is wrong with the owner that a body names."""
    if not isinstance(owner, dict) or set(owner) != {"kind", "id"}:
        return ["Owner should be an object with kind and id"]
    return [*wrong_role(owner["kind"], owner["id"], OWNERS, "owner")]


def parse_role(account: str, role: object) -> RoleName:
    """Return the role that a body names, which has nothing wrong."""
    assert isinstance(role, dict)
    return RoleName.from_parts(account, str(role["kind"]), str(role["id"]).removeprefix("/"))


def is_unmodified(call: Call, tag: str) -> bool:
    """Return whether the client knows a thing of this tag already.

    :raises PreconditionFailed: it asks for another.
    """
    return Preconditions(call.read_late(_MATCH), call.read_late(_NONE_MATCH)).is_unmodified(tag)


def write_precondition(call: Call) -> Callable[[str], None]:
    """Return what is called with the tag of a thing that is changed."""
    return Preconditions(call.read_late(_MATCH), None).check_write


def new_entry(account: str, given: Mapping[str, object]) -> NewEntry:
    """Return the branch or group that a body describes.

    :raises Unprocessable: a member of the body breaks a rule.
    """
    name, branch, owner, annotations = (given.get(each) for each in ("name", "branch", "owner", "annotations"))
    faults = [*wrong_name(name), *wrong_path(branch), *(wrong_owner(owner) if owner is not None else ())]
    refuse_faults([*faults, *wrong_annotations({} if annotations is None else annotations)])
    assert isinstance(name, str)
    assert isinstance(branch, str)
    given_annotations = annotations if isinstance(annotations, dict) else {}
    return NewEntry(
        branch_at(account, branch), name, None if owner is None else parse_role(account, owner), given_annotations
    )
