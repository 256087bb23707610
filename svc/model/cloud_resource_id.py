"""Resource ids of the cloud platform, ``/subscriptions/<s>/resourcegroups/<g>/providers/<namespace>/<type>/<name>``.

They name a workload, or an identity that workloads share (AUTH-37).

Note [By position]. Each part is identified only by its position: the keywords stand where they must, and all else is a name,
even ``providers``. Nothing is decoded, trimmed or skipped, and there are exactly eight segments: a text has only one
reading. A resource within another, such as a slot of an app, has more, and is refused (AUTH-37): a host that is bound only
to a resource group would admit it unintentionally. It logs in with an identity that is assigned to it.

Note [By namespace]. Only the namespace of the resource distinguishes an assigned identity from a workload's own (AUTH-39). A
resource of the namespace of identities is no workload, even if it has the name of one, or an object id that a host is bound
to.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from svc.model.text import quote_text

_FORM: Final = "/subscriptions/…/resourcegroups/…/providers/<namespace>/<type>/<name>"

#: The keywords by their positions.
_KEYWORDS: Final = {0: "subscriptions", 2: "resourcegroups", 4: "providers"}
_SEGMENTS: Final = 8

#: The namespace of identities that workloads share.
_SHARED: Final = "microsoft.managedidentity"

#: Audiences of Microsoft's own: any other is an application that somebody has registered.
_MICROSOFT: Final = re.compile(r"(?i)https?://([a-z0-9-]+\.)*(azure\.(com|net)|windows\.net|microsoft\.com)([:/]|\Z)")

#: A name that has only one reading: no escapes, and nothing that ends a path.
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[^/%\\?#]+")


@attrs.frozen(str=False)
class ResourceIdMalformed(ValueError):
    """A text is no resource id of a workload; ``nested`` when it names a resource within another."""

    why: str
    nested: bool = False

    def __str__(self) -> str:
        return self.why


@attrs.frozen
class ResourceId:
    """A resource of the platform. Names are kept as they were written."""

    subscription: str
    resource_group: str
    namespace: str
    type: str
    name: str

    @classmethod
    def parse(cls, text: str) -> ResourceId:
        """Read a resource id, whose first slash may be missing (Note [By position]).

        :raises ResourceIdMalformed: it is none.
        """
        segments = text.removeprefix("/").split("/", _SEGMENTS)
        for position, keyword in _KEYWORDS.items():
            if len(segments) <= position or not _same_word(segments[position], keyword):
                raise _malformed_error(text, f"{keyword!r} is not where it must be")
        if len(segments) != _SEGMENTS:
            rest = quote_text("/".join(segments[5:]))
            why = f"'providers' must be followed by three segments, and is by {rest}"
            raise _malformed_error(text, why, nested=len(segments) > _SEGMENTS)
        for segment in segments:
            if not segment.isprintable() or not _NAME.fullmatch(segment):
                raise _malformed_error(text, f"{quote_text(segment)} is no name")
        _, subscription, _, group, _, namespace, kind, name = segments
        return cls(subscription, group, namespace, kind, name)

    @property
    def is_shared_identity(self) -> bool:
        """Return whether it is an identity that was assigned to a workload (Note [By namespace])."""
        return _same_word(self.namespace, _SHARED)

    def __str__(self) -> str:
        return (
            f"/subscriptions/{self.subscription}/resourcegroups/{self.resource_group}"
            f"/providers/{self.namespace}/{self.type}/{self.name}"
        )


def _same_word(text: str, word: str) -> bool:
    """Return whether these are the same but for the case of ASCII letters (AUTH-37)."""
    return text.isascii() and text.lower() == word


def _malformed_error(text: str, why: str, *, nested: bool = False) -> ResourceIdMalformed:
    return ResourceIdMalformed(f"{quote_text(text)} is not of the form {_FORM}: {why}", nested)


def is_microsoft_audience(audience: object) -> bool:
    """Return whether a token's audience is one of Microsoft's own, for which tokens name the resource that has them."""
    return isinstance(audience, str) and _MICROSOFT.match(audience) is not None
