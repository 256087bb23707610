"""The newer interface (v2): its media type, which requests have to accept, and the form of answers (NEWER-1 to NEWER-6)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

import attrs

from svc.model.errors import BadRequest, NotAcceptable
from svc.model.strict_json import Malformed, parse_json_object
from svc.web.http.declarations import WHOLE_BODY, Body, Parameter, ParameterSource
from svc.web.http.messages import HeaderPairs, IncomingRequest, Json, Response, encode_json, encode_json_with_floats
from svc.web.http.refusal_responses import V2 as MEDIA_TYPE
from svc.web.http.shapes import Shape

_ACCEPT: Final = Parameter.header("Accept", f"must name {MEDIA_TYPE}", required=True)


@attrs.frozen
class V2Head:
    """The parts of a request that are checked first: its ``Accept``, and the names of all parameters in its query."""

    accept: str | None
    names: tuple[str, ...]


def _read_head(source: ParameterSource) -> V2Head:
    return V2Head(source.header("Accept"), tuple(dict.fromkeys(name for name, _ in source.query.pairs)))


#: Each route of the newer interface declares it.
HEAD: Final = Parameter.combine("head", _read_head, _ACCEPT, late=True)

#: The codes of refusals whose form is that of other routes (NEWER-5).
_UNCHANGED_CODES: Final = frozenset({"argument_error", "validation_failed", "policy_invalid", 405})

_VERSIONED: Final = re.compile(re.escape(MEDIA_TYPE))


def require_media_type(head: V2Head) -> str:
    """Return the text of ``Accept``, which names the media type, and is the content type of the answer.

    :raises NotAcceptable: it doesn't.
    """
    if head.accept is None or not _VERSIONED.search(head.accept):
        raise NotAcceptable
    return head.accept


def v2_response(accept: str, document: Json, status: int = 200, headers: HeaderPairs = ()) -> Response:
    """Return an answer under the content type that the client named."""
    return Response.content(encode_json(document), accept, status, headers)


def v2_response_with_floats(accept: str, document: object, status: int = 200) -> Response:
    """Return an answer that may have fractions."""
    return Response.content(encode_json_with_floats(document), accept, status)


def reshape_refusal(incoming: IncomingRequest, response: Response) -> Response:
    """Return the answer to a refusal in the form of the newer interface, if the client accepts nothing else."""
    if incoming.header(b"Accept") != MEDIA_TYPE:
        return response
    if response.status == 401:
        return Response.empty(401)
    if response.content_type != "application/json":
        return response
    error = json.loads(response.body)["error"]
    if error["code"] in _UNCHANGED_CODES:
        return response
    body = encode_json({"code": str(response.status), "message": error["message"]})
    return attrs.evolve(response, body=body, content_type=MEDIA_TYPE)


def v2_shape(shape: Shape) -> Shape:
    """Return the shape of an answer under the media type."""
    return attrs.evolve(shape, media_type=MEDIA_TYPE)


def _read_document(source: ParameterSource) -> Mapping[str, object]:
    try:
        return parse_json_object(source.body)
    except Malformed as error:
        raise BadRequest(f"Invalid JSON body: {error}") from None


def document_parameter(shape: Shape) -> Parameter[Mapping[str, object]]:
    """Declare the JSON object that is a body, whatever content type the client names."""
    return Parameter(WHOLE_BODY, _read_document, shape, "the object", late=True, required=True)


def document_body(description: str, parameter: Parameter[Mapping[str, object]]) -> Body:
    """Declare a body that is a JSON object."""
    return Body(description, ("application/json",), fields=(parameter,))
