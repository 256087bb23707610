"""The offboarding of users over HTTP (CLI-66 to CLI-69, CLI-84)."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from svc.model.errors import Forbidden, PolicyConflict, PolicyInvalid, RecordNotFound
from svc.model.events import NOTICE, Event
from svc.model.names import RoleName
from svc.services.offboarding import Offboarding, OffboardingService, ReachableNames, RevokedGrants
from svc.web.http.declarations import NO_BODY, Answer, PathName
from svc.web.http.messages import Json, Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import BOOLEAN, INTEGER, TEXT, array_shape, object_shape
from svc.web.routes.readers import ROLE_READS_SHAPE, role_reads_json

_NAMES: Final = object_shape({"ids": array_shape(TEXT), "complete": BOOLEAN})
_GRANT: Final = object_shape({"role": TEXT, "admin_option": BOOLEAN})
_POLICY: Final = object_shape(
    {"policy": TEXT, "may_update": BOOLEAN, "revoked": array_shape(_GRANT), "document": TEXT},
)
_MEMBERS: Final = {
    "user": TEXT,
    "sessions": INTEGER,
    "policies": array_shape(_POLICY),
    "owns": array_shape(TEXT),
    "variables": _NAMES,
    "read": ROLE_READS_SHAPE,
}
_PLAN: Final = object_shape(_MEMBERS)
_DONE: Final = object_shape({**_MEMBERS, "remaining": _NAMES})


def offboarding_planned(call: Call) -> list[Event]:
    """It was shown what the offboarding of a user would end and change."""
    user = call.path_full_id("user")
    words = f"what offboarding {user} would do"
    return [Event("role", "offboarding", (("role", user),), f"read {words}", f"read {words}")]


def user_offboarded(call: Call) -> list[Event]:
    """A user was offboarded; an event for each membership that was revoked comes with it."""
    user = call.path_full_id("user")
    own = Event("role", "offboard", (("role", user),), f"offboarded {user}", f"offboard {user}", severity=NOTICE)
    return [own, *call.audit_facts.get("rows", ())]


@attrs.frozen
class Offboardings:
    """The routes of leavers."""

    routes = Routes()
    _user_route = partial(
        routes.add,
        path="/offboarding/<flat:account>/user/<tail:identifier>",
        name=PathName("user", RoleName.from_parts, "user"),
        caller=REQUIRED,
    )

    offboarding: OffboardingService

    @_user_route(
        "GET",
        answers=(Answer(200, "what would end, and the policy that would be written", _PLAN),),
        errors=(Forbidden, RecordNotFound, PolicyInvalid),
        privileges="update on the user",
        audit=offboarding_planned,
    )
    async def plan(self, call: Call, user: RoleName) -> Response:
        """Return what the offboarding of a user would end and change, and the variables that it has read and can read."""
        return Response.json(_offboarding_json(await self.offboarding.plan(call.invocation, user)))

    @_user_route(
        "POST",
        body=NO_BODY,
        answers=(Answer(200, "what has ended, the policy that was written, and what the user still reaches", _DONE),),
        errors=(Forbidden, RecordNotFound, PolicyConflict, PolicyInvalid),
        privileges="update on the user, and on each policy that recorded a membership of it",
        audit=user_offboarded,
    )
    async def offboard(self, call: Call, user: RoleName) -> Response:
        """End the access tokens, sessions, API key and password of a user, and revoke its memberships."""
        done = await self.offboarding.offboard(call.invocation, user)
        remaining = await self.offboarding.list_remaining(call.invocation, user)
        return Response.json({**_offboarding_json(done), "remaining": _names_json(remaining)})


def _offboarding_json(found: Offboarding) -> dict[str, Json]:
    return {
        "user": str(found.user),
        "sessions": found.sessions,
        "policies": [_policy_json(each) for each in found.grants],
        "owns": list(found.owned),
        "variables": _names_json(found.variables),
        "read": role_reads_json(found.read),
    }


def _policy_json(grants: RevokedGrants) -> dict[str, Json]:
    revoked: list[Json] = [{"role": row.role, "admin_option": row.admin_option} for row in grants.memberships]
    return {
        "policy": str(grants.policy),
        "may_update": grants.permitted,
        "revoked": revoked,
        "document": grants.document,
    }


def _names_json(found: ReachableNames) -> dict[str, Json]:
    return {"ids": list(found.names), "complete": found.complete}
