"""Conditional requests: ``If-Match`` and ``If-None-Match`` (RFC 9110 13)."""

from __future__ import annotations

import re
from typing import Final, Self

import attrs

from svc.model.errors import InvalidParameter, PreconditionFailed
from svc.web.http.declarations import Parameter, ParameterSource
from svc.web.http.messages import HeaderPairs
from svc.web.http.shapes import TEXT

_TAG: Final = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAG_EXPRESSION: Final = re.compile(_TAG)

#: A list of tags; elements of lists may be empty (RFC 9110 5.6.1).
_TAG_LIST: Final = re.compile(rf"[ \t,]*{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*[ \t,]*")


@attrs.frozen
class EntityTags:
    """The value of one of the two headers: ``*``, which is ``anything``, or entity tags, those that are ``weak`` apart."""

    anything: bool
    strong: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()

    @classmethod
    def from_header(cls, text: str, header: str) -> Self:
        """Read the value of this header.

        :raises InvalidParameter: it is neither ``*`` nor a list of entity tags.
        """
        if text.strip(" \t") == "*":
            return cls(True)
        if not _TAG_LIST.fullmatch(text):
            raise InvalidParameter(header, f'{header} must be * or entity tags such as "1-abc", in their quotation marks')
        tags = frozenset(_TAG_EXPRESSION.findall(text))
        strong = frozenset(tag for tag in tags if not tag.startswith("W/"))
        return cls(False, strong, frozenset(tag.removeprefix("W/") for tag in tags - strong))


def _tags_parameter(header: str, description: str, field: str) -> Parameter[EntityTags | None]:
    def read_tags(source: ParameterSource) -> EntityTags | None:
        text = source.header(header)
        return None if text is None else EntityTags.from_header(text, header)

    return Parameter(header, read_tags, TEXT, description, field=field, key=header.lower().encode("ascii"))


IF_MATCH: Final = _tags_parameter("If-Match", "tags of which the thing must have one", "match")
IF_NONE_MATCH: Final = _tags_parameter("If-None-Match", "tags of which the thing must have none", "none_match")


@attrs.frozen
class Preconditions:
    """The conditions of a request on the tag that the thing has at the moment; a thing that isn't there has none."""

    _match: EntityTags | None
    _none_match: EntityTags | None

    def check_write(self, tag: str | None) -> None:
        """Return when a write may go on; ``tag`` is that of what it would replace, ``None`` when there is nothing.

        :raises PreconditionFailed: it may not.
        """
        self._check_match(tag)
        if self._includes_tag(self._none_match, tag):
            raise PreconditionFailed("If-None-Match", tag)

    def is_unmodified(self, tag: str) -> bool:
        """Return whether the client has this version already, so that 304 suffices.

        :raises PreconditionFailed: the request requires another one.
        """
        if self._match is not None:
            self._check_match(tag)
        return self._none_match is not None and self._includes_tag(self._none_match, tag)

    def _check_match(self, tag: str | None) -> None:
        # A weak tag never matches here: representations with the same one may differ in their bytes (RFC 9110 13.1.1).
        tags = self._match
        if tags is not None and (tag is None or not (tags.anything or tag in tags.strong)):
            raise PreconditionFailed("If-Match", tag)

    def _includes_tag(self, tags: EntityTags | None, tag: str | None) -> bool:
        return tags is not None and tag is not None and (tags.anything or tag in tags.strong | tags.weak)


def etag_header(tag: str) -> HeaderPairs:
    """Return the header with the tag of an answer."""
    return (("ETag", tag),)
