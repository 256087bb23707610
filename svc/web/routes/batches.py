"""Many secrets at once over HTTP (SEC-13 to SEC-15, SEC-37 to SEC-42)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Final, TypeVar

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from svc.model.errors import BadRequest, Forbidden, InvalidParameter, NotText, NoValue, TooLarge, WrongDataKey
from svc.model.strict_json import Malformed, parse_json_object
from svc.services.secret_batches import LONG, SHORT, BatchLimits, BatchService, SecretBatch
from svc.web.http.declarations import Answer, Body, Parameter, ParameterSource
from svc.web.http.messages import HeaderPairs, Json, Response, encode_json
from svc.web.http.preconditions import IF_NONE_MATCH, EntityTags, etag_header
from svc.web.http.refusal_responses import audit_reason
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import BOOLEAN, TEXT, array_shape, mapping_shape, object_shape
from svc.web.routes.secret_values import ERRORS, IDS, batch_fetched, error_json, is_base64, value_writer

T = TypeVar("T")

#: How many values, or bytes of values, are written as JSON before others get their turn.
_VALUES_PER_ITERATION: Final = 500
_BYTES_PER_ITERATION: Final = 256 * 1024


def _read_request(source: ParameterSource) -> tuple[list[str], bool]:
    """Read the body: the ids, and whether partial results are wanted."""
    try:
        document = parse_json_object(source.body)
    except Malformed as fault:
        raise BadRequest(f"the body can't be read as JSON: {fault}") from None
    ids, partial = document.get("variable_ids"), document.get("partial", False)
    try:
        together = "\n".join(ids) if isinstance(ids, list) else ""
    except TypeError:
        together = ""
    if not isinstance(ids, list) or not together:
        raise InvalidParameter("variable_ids", "'variable_ids' must be a list of full ids")
    if len(ids) > LONG.ids:
        raise InvalidParameter("variable_ids", f"'variable_ids' may name at most {LONG.ids} secrets at once")
    if "\x00" in together or not _is_unicode(together):
        raise InvalidParameter("variable_ids", "'variable_ids' has an element that is no full id")
    if not isinstance(partial, bool):
        raise InvalidParameter("partial", "'partial' must be true or false")
    return ids, partial


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


ENCODING: Final = Parameter.header("Accept-Encoding", "'base64' for values in base64", field="encoding")
BATCH_REQUEST: Final = Parameter.combine(
    "asked",
    _read_request,
    Parameter("variable_ids", _read_request, array_shape(TEXT), "full ids; a repeated one counts once", required=True),
    Parameter("partial", _read_request, BOOLEAN, "whether to return what can be read where something can't"),
)

_VALUES: Final = object_shape({"values": mapping_shape(TEXT)}, {"errors": ERRORS})
_NOT_MODIFIED: Final = Answer(304, "the client has the values", None, ("ETag",))
_FAULTS: Final = (Forbidden, NoValue, NotText, TooLarge, WrongDataKey)


@attrs.frozen
class SecretBatches:
    """The routes that read many secrets at once."""

    routes = Routes()

    batches: BatchService
    clock: IReactorTime

    @routes.add(
        "GET",
        "/secrets",
        caller=REQUIRED,
        query=(IDS,),
        headers=(ENCODING, IF_NONE_MATCH),
        answers=(
            Answer(200, "the newest values by the requested ids", mapping_shape(TEXT), ("ETag",)),
            Answer(200, "the same in base64, in lines of 60 characters", mapping_shape(TEXT), ("ETag", "Content-Encoding")),
            _NOT_MODIFIED,
        ),
        errors=_FAULTS,
        privileges="execute on each",
        serves_stale=True,
        audit=batch_fetched,
    )
    async def read(self, call: Call, *, ids: list[str], encoding: str | None, none_match: EntityTags | None) -> Response:
        """Return the newest values of several resources."""
        batch, headers = await self._read_batch(call, ids, SHORT, encoding, none_match, partial=False)
        if batch.known:
            return Response.empty(304, headers)
        members = b",".join(await self._encode_members(batch.values, value_writer(encoding)))
        return Response.content(b"{" + members + b"}", "application/json", headers=headers)

    @routes.add(
        "POST",
        "/secrets/batch",
        caller=REQUIRED,
        headers=(ENCODING, IF_NONE_MATCH),
        body=Body("what is wanted", ("application/json",), fields=(BATCH_REQUEST,)),
        answers=(
            Answer(200, "the newest values by the requested ids", _VALUES),
            Answer(200, "the same in base64, in lines of 60 characters", _VALUES, ("Content-Encoding",)),
            _NOT_MODIFIED,
        ),
        errors=(*_FAULTS, BadRequest, InvalidParameter),
        privileges="execute on each; for partial results on those that are returned",
        writes=False,
        serves_stale=True,
        audit=batch_fetched,
    )
    async def read_listed(
        self, call: Call, *, asked: tuple[list[str], bool], encoding: str | None, none_match: EntityTags | None
    ) -> Response:
        """Return the newest values of many resources, whose ids are in the body (SEC-37)."""
        ids, partial = asked
        batch, headers = await self._read_batch(call, ids, LONG, encoding, none_match, partial=partial)
        if batch.known:
            return Response.empty(304, headers)
        pieces = await self._encode_members(batch.values, value_writer(encoding))
        tail = b"}}"
        if partial:
            refused = await self._encode_members(batch.refused, lambda refusal: error_json(refusal, call.dialect))
            tail = b'},"errors":{' + b",".join(refused) + tail
        return await Response.json_pieces(_join_with_commas(pieces), headers, head=b'{"values":{', tail=tail)

    async def _read_batch(
        self,
        call: Call,
        ids: list[str],
        limits: BatchLimits,
        encoding: str | None,
        none_match: EntityTags | None,
        *,
        partial: bool,
    ) -> tuple[SecretBatch, HeaderPairs]:
        """Return a batch, and the headers of its answer."""
        # Values in base64 are another representation than values as they are.
        form = "-base64" if is_base64(encoding) else ""

        def is_known(tag: str) -> bool:
            return none_match is not None and f'"{tag}{form}"' in none_match.strong | none_match.weak

        asked = None if none_match is None or none_match.anything else is_known
        invocation = call.invocation
        batch = await self.batches.read_secrets(
            invocation.caller, call, ids, limits, is_known=asked, partial=partial, texts=not form
        )
        call.add_audit_facts(refused={text: audit_reason(refusal) for text, refusal in batch.refused.items()})
        headers = () if batch.tag is None else etag_header(f'W/"{batch.tag}{form}"')
        return batch, headers if batch.known or not form else (*headers, ("Content-Encoding", "base64"))

    async def _encode_members(self, values: Mapping[str, T], write: Callable[[T], Json]) -> list[bytes]:
        """Return the inside of a JSON object, in pieces without the commas between them, and let others work meanwhile."""
        pieces: list[bytes] = []
        some: dict[str, Json] = {}
        size = 0
        for text, what in values.items():
            some[text] = write(what)
            size += len(what) if isinstance(what, bytes) else 0
            if len(some) >= _VALUES_PER_ITERATION or size >= _BYTES_PER_ITERATION:
                pieces.append(encode_json(some)[1:-1])
                some, size = {}, 0
                await deferLater(self.clock, 0)
        return [*pieces, encode_json(some)[1:-1]] if some else pieces


async def _join_with_commas(pieces: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
    for number, piece in enumerate(pieces):
        yield b"," + piece if number else piece
