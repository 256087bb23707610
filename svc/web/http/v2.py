"""The newer interface (v2): its media type, which requests have to accept, and the form of answers (NEWER-1 to NEWER-6)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

import attrs

from svc.model.errors import BadRequest, MediaTypeMissing
from svc.model.strict_json import Malformed, json_object
from svc.web.http.declarations import WHOLE, Body, Parameter, Source
from svc.web.http.faults import V2 as MEDIA_TYPE
from svc.web.http.incoming import Incoming
from svc.web.http.json_bytes import Json, written, written_any
from svc.web.http.response import HeaderPairs, Response
from svc.web.http.shapes import Shape

_ACCEPT: Final = Parameter.header("Accept", f"must name {MEDIA_TYPE}", required=True)


@attrs.frozen
class V2Head:
    """The parts of a request that are checked first: its ``Accept``, and the names of all parameters in its query."""

    accept: str | None
    names: tuple[str, ...]


def _head(source: Source) -> V2Head:
    return V2Head(source.header("Accept"), tuple(dict.fromkeys(name for name, _ in source.query.pairs)))


#: Each route of the newer interface declares it.
HEAD: Final = Parameter.together("head", _head, _ACCEPT, late=True)

#: The codes of refusals whose form is that of other routes (NEWER-5).
_KEPT: Final = frozenset({"argument_error", "validation_failed", "policy_invalid", 405})

_VERSIONED: Final = re.compile(re.escape(MEDIA_TYPE))


def gate(head: V2Head) -> str:
    """Return the text of ``Accept``, which names the media type, and is the content type of the answer.

    :raises MediaTypeMissing: it doesn't.
    """
    if head.accept is None or not _VERSIONED.search(head.accept):
        raise MediaTypeMissing
    return head.accept


def answer(accept: str, document: Json, status: int = 200, headers: HeaderPairs = ()) -> Response:
    """Return an answer under the content type that the client named."""
    return Response.content(written(document), accept, status, headers)


def answer_any(accept: str, document: object, status: int = 200) -> Response:
    """Return an answer that may have fractions."""
    return Response.content(written_any(document), accept, status)


def reshaped(incoming: Incoming, response: Response) -> Response:
    """Return the answer to a refusal in the form of the newer interface, if the client accepts nothing else."""
    if incoming.header(b"Accept") != MEDIA_TYPE:
        return response
    if response.status == 401:
        return Response.empty(401)
    if response.content_type != "application/json":
        return response
    error = json.loads(response.body)["error"]
    if error["code"] in _KEPT:
        return response
    body = written({"code": str(response.status), "message": error["message"]})
    return attrs.evolve(response, body=body, content_type=MEDIA_TYPE)


def shaped(shape: Shape) -> Shape:
    """Return the shape of an answer under the media type."""
    return attrs.evolve(shape, media_type=MEDIA_TYPE)


def _document(source: Source) -> Mapping[str, object]:
    try:
        return json_object(source.body)
    except Malformed as error:
        raise BadRequest(f"Invalid JSON body: {error}") from None


def document(shape: Shape) -> Parameter[Mapping[str, object]]:
    """Declare the JSON object that is a body, whatever content type the client names."""
    return Parameter(WHOLE, _document, shape, "the object", late=True, required=True)


def body(description: str, parameter: Parameter[Mapping[str, object]]) -> Body:
    """Declare a body that is a JSON object."""
    return Body(description, ("application/json",), fields=(parameter,))
