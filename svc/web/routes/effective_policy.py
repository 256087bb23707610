"""The route for the effective policy: the loaded parts, and all else that a policy holds now."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from svc.model.errors import Forbidden, RecordNotFound, WrongDataKey
from svc.model.events import Event
from svc.model.names import RoleName
from svc.model.policy_loads import version_tag
from svc.policy.statement_writer import write_json, write_yaml
from svc.services.effective_policy import LIMIT_MOST, EffectivePolicyService
from svc.web.http.declarations import Answer, Parameter, ParameterSource, PathName
from svc.web.http.messages import Response
from svc.web.http.preconditions import etag_header
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import ANY, array_shape, integer_shape, raw_shape

#: The greatest depth; it is unlimited unless the request limits it, or something would be missing (POL-81).
MAX_DEPTH: Final = 64

#: How many pieces of text are written before others get their turn.
PIECES_PER_ITERATION: Final = 1000

_INTEGER: Final = re.compile("[0-9]{1,19}", re.ASCII)


def _bounded_parameter(name: str, most: int, description: str) -> Parameter[int | None]:
    def read(source: ParameterSource) -> int | None:
        if not source.query.has_flag(name):
            return None
        text = source.query.text(name)
        if text is None or not _INTEGER.fullmatch(text) or int(text) > most:
            raise ValueError(name)
        return int(text)

    # The coroutine reads it, since a ``ValueError`` has an answer of its own.
    return Parameter(name, read, integer_shape(0, most), description, late=True)


DEPTH: Final = _bounded_parameter("depth", MAX_DEPTH, "how many more slashes than the policy's an id may have")
LIMIT: Final = _bounded_parameter(
    "limit", LIMIT_MOST, "how many resources, annotations and permissions there may be together"
)
CONTENT_TYPE: Final = Parameter.header("Content-Type", "application/json asks for JSON")


def policy_read(call: Call) -> list[Event]:
    """The contents of a policy were read."""
    name = call.path_full_id("policy")
    return [Event("policy", "read", (("policy", name),), f"read {name}", f"read {name}")]


@attrs.frozen
class EffectivePolicies:
    """The route that reads policies (POL-75 to POL-81)."""

    routes = Routes()

    policies: EffectivePolicyService
    clock: IReactorTime

    @routes.add(
        "GET",
        "/policies/<flat:account>/policy/<tail:identifier>",
        name=PathName("policy", RoleName.from_parts, "policy"),
        caller=REQUIRED,
        query=(DEPTH, LIMIT),
        headers=(CONTENT_TYPE,),
        answers=(
            Answer(200, "statements in YAML", raw_shape("application/x-yaml"), ("ETag",)),
            Answer(200, "statements in JSON, each an object with its tag for a name", array_shape(ANY), ("ETag",)),
            Answer(400, "depth or limit is no whole number in its range"),
        ),
        errors=(RecordNotFound, Forbidden, WrongDataKey),
        privileges="owns or inspects the policy; of records that it doesn't see there, only the kinds are returned",
        audit=policy_read,
    )
    async def show(self, call: Call, policy: RoleName, *, content_type: str | None) -> Response:
        """Print the effective policy: in JSON where the request says that this is its content type, else in YAML."""
        try:
            depth, limit = call.read_late(DEPTH), call.read_late(LIMIT)
        except ValueError:
            return Response.empty(400)
        limit = LIMIT_MOST if limit is None else limit
        reading = await self.policies.read_policy(call.invocation, policy, depth, limit)
        statements, headers = reading.statements, etag_header(version_tag(reading.version))
        if (content_type or "").partition(";")[0].strip().lower() == "application/json":
            return Response.json_from_text(await self._join_pieces(write_json(statements)), headers=headers)
        text = await self._join_pieces(write_yaml(statements))
        return Response.content(text.encode("utf-8"), "application/x-yaml", headers=headers)

    async def _join_pieces(self, pieces: Iterable[str]) -> str:
        """Put a text together, and let others work meanwhile."""
        text = []
        for step, piece in enumerate(pieces, 1):
            text.append(piece)
            if not piece or not step % PIECES_PER_ITERATION:
                await deferLater(self.clock, 0)
        return "".join(text)
