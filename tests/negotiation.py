"""Content negotiation as the API server of Kubernetes does it, for every stand-in of one and of a provider.

It has its key set as one type and its discovery document as another, takes the bare types and ``*/*`` in ``Accept``,
whatever their weights, and answers 406 otherwise: ``application/*`` fits nothing. ``python -m tests.neighbours
kube-apiserver`` asks a real one the same (``CASES``).
"""

from __future__ import annotations

from typing import Final

KEY_SET: Final = "application/jwk-set+json"
DOCUMENT: Final = "application/json"

#: Each ``Accept``, and whether the key set and the document come.
CASES: Final = (
    (None, True, True),
    ("*/*", True, True),
    ("*/*;q=0.1", True, True),
    (KEY_SET, True, False),
    (DOCUMENT, False, True),
    ("application/*", False, False),
    ("text/html", False, False),
    (f"{KEY_SET}, {DOCUMENT}, */*;q=0.1", True, True),
    (f"{KEY_SET};q=0.5,{DOCUMENT};q=0.1", True, True),
)


def media_type(path: str) -> str:
    """Return the type of what a provider has at a path."""
    return DOCUMENT if path.endswith("/.well-known/openid-configuration") else KEY_SET


def is_acceptable(accept: str | None, path: str) -> bool:
    """Return whether what is at a path may be the answer to a request with this header ``Accept``."""
    named = {part.partition(";")[0].strip() for part in (accept or "*/*").split(",")}
    return not named.isdisjoint({"*/*", media_type(path)})
