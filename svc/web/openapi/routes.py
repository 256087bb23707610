"""The document over HTTP, and the page that shows it to people: both are public, as the declarations are.

Note [Half a megabyte for strangers]. Both are long, and anybody may request them and then not read. So they are written in
pieces, as the client takes them: a few of these are buffered, and not a copy of the whole.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import AsyncGenerator, Sequence
from typing import Final

import attrs

from svc.model.dialect import Dialect
from svc.web.http.declarations import Answer, Unaudited
from svc.web.http.messages import HeaderPairs, Response, encode_json
from svc.web.http.preconditions import IF_NONE_MATCH, EntityTags, Preconditions, etag_header
from svc.web.http.routing import PUBLIC, Call, ResourceRoutes, Routes
from svc.web.http.shapes import ANY, raw_shape
from svc.web.openapi.document import TaggedRoutes, build_document, tag_routes

_HTML: Final = "text/html; charset=utf-8"

#: Clients may cache both, and revalidate them each time.
_CACHE_CONTROL: Final = "no-cache"

#: Bytes that are written at a time (Note [Half a megabyte for strangers]).
_PIECE_SIZE: Final = 16 * 1024


@functools.lru_cache(8)
def _encode_document(resources: tuple[TaggedRoutes, ...], dialect: Dialect) -> tuple[bytes, str]:
    return _with_tag(encode_json(build_document(resources, dialect)))


@functools.lru_cache(8)
def _encode_page(resources: tuple[TaggedRoutes, ...], dialect: Dialect) -> tuple[bytes, str, str]:
    # Its library takes time to load, and few servers get a request for the page.
    from svc.web.openapi.page import render_page  # noqa: PLC0415

    page, policy = render_page(build_document(resources, dialect))
    return *_with_tag(page), policy


def _with_tag(body: bytes) -> tuple[bytes, str]:
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


@attrs.frozen
class Documentation:
    """The description of this interface: its OpenAPI document, and a page that shows it."""

    routes = Routes()

    resources: Sequence[ResourceRoutes]
    dialect: Dialect

    @property
    def _tagged_routes(self) -> tuple[TaggedRoutes, ...]:
        return tag_routes((*self.resources, self))

    @routes.add(
        "GET",
        "/openapi.json",
        caller=PUBLIC,
        headers=(IF_NONE_MATCH,),
        answers=(
            Answer(200, "the document that you read", ANY, ("ETag",)),
            Answer(304, "the client has the document", None, ("ETag",)),
        ),
        privileges="none",
        audit=Unaudited("it tells what the program is, and nothing of what it keeps"),
    )
    async def document(self, call: Call, *, none_match: EntityTags | None) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return the OpenAPI document of this server's interface (OAS-1)."""
        body, tag = _encode_document(self._tagged_routes, self.dialect)
        return _revalidated_response(body, "application/json", etag_header(tag), none_match, tag)

    @routes.add(
        "GET",
        "/docs",
        caller=PUBLIC,
        headers=(IF_NONE_MATCH,),
        answers=(
            Answer(200, "a page", raw_shape(_HTML), ("Content-Security-Policy", "ETag")),
            Answer(304, "the client has the page", None, ("ETag",)),
        ),
        privileges="none",
        audit=Unaudited("it tells what the program is, and nothing of what it keeps"),
    )
    async def page(self, call: Call, *, none_match: EntityTags | None) -> Response:  # noqa: ARG002
        """Return a page that shows the document to people (OAS-10)."""
        body, tag, policy = _encode_page(self._tagged_routes, self.dialect)
        headers = (("Content-Security-Policy", policy), ("Referrer-Policy", "no-referrer"), *etag_header(tag))
        return _revalidated_response(body, _HTML, headers, none_match, tag)


def _revalidated_response(
    body: bytes, content_type: str, headers: HeaderPairs, none_match: EntityTags | None, tag: str
) -> Response:
    if Preconditions(None, none_match).is_unmodified(tag):
        return attrs.evolve(Response.empty(304, etag_header(tag)), cache_control=_CACHE_CONTROL)
    return Response(200, b"", content_type, headers, _CACHE_CONTROL, _split_body(body))


async def _split_body(body: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(body), _PIECE_SIZE):
        yield body[start : start + _PIECE_SIZE]
