"""Resource ids of the cloud platform: where a token's resource is, and its name.

A token names it as a path, ``/subscriptions/<s>/resourcegroups/<g>/providers/<namespace>/<type>/<name>`` (AUTH-37).
It is a workload, or an identity that workloads share.

Note [By position]. Each part is known by its place alone: the three keywords stand where they must, and whatever stands
elsewhere is a name, be it ``providers`` or ``my-subscriptions-rg``. Nothing is decoded, trimmed or skipped, and there are
eight segments, no more and no fewer: no two readers of one text find two resources in it. A resource within another, such as
a slot of an app, has more, and is refused (AUTH-37). A host that is bound to a resource group alone would let it
in unawares. It logs in with an identity that is assigned to it.

Note [By namespace]. Whether a token is of an identity that was assigned, or of the workload's own, is told by the namespace
of the resource and by nothing else (AUTH-39). No workload is of the namespace of identities, whatever types that
has one day. A resource there may be called like a workload, or have an object id that a host is bound to: it is none.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from svc.model.reasons import Reason
from svc.model.signed_claims import EvidenceRefused
from svc.model.text import shown

_FORM: Final = "/subscriptions/…/resourcegroups/…/providers/<namespace>/<type>/<name>"

#: The keywords by their positions.
_KEYWORDS: Final = {0: "subscriptions", 2: "resourcegroups", 4: "providers"}
_SEGMENTS: Final = 8

#: The namespace of identities that workloads share.
_SHARED: Final = "microsoft.managedidentity"

#: What can't be read in two ways: no escapes, and nothing that ends a path.
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[^/%\\?#]+")


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

        :raises EvidenceRefused: it is none.
        """
        segments = text.removeprefix("/").split("/", _SEGMENTS)
        for position, keyword in _KEYWORDS.items():
            if len(segments) <= position or not _same_word(segments[position], keyword):
                raise _refused(text, f"{keyword!r} is not where it must be")
        if len(segments) != _SEGMENTS:
            rest = shown("/".join(segments[5:]))
            raise _refused(text, f"'providers' must be followed by three segments, and is by {rest}")
        for segment in segments:
            if not segment.isprintable() or not _NAME.fullmatch(segment):
                raise _refused(text, f"{shown(segment)} is no name")
        _, subscription, _, group, _, namespace, kind, name = segments
        return cls(subscription, group, namespace, kind, name)

    @property
    def shared(self) -> bool:
        """Return whether it is an identity that was assigned to a workload, and no workload (Note [By namespace])."""
        return _same_word(self.namespace, _SHARED)

    def __str__(self) -> str:
        return (
            f"/subscriptions/{self.subscription}/resourcegroups/{self.resource_group}"
            f"/providers/{self.namespace}/{self.type}/{self.name}"
        )


def _same_word(text: str, word: str) -> bool:
    """Return whether these are the same but for case (AUTH-37), that of ASCII letters alone."""
    return text.isascii() and text.lower() == word


def _refused(text: str, why: str) -> EvidenceRefused:
    return EvidenceRefused(Reason.RESOURCE_ID_MALFORMED, f"{shown(text)} is not of the form {_FORM}: {why}")
