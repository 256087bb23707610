"""Authenticators of the installed base that are not served here, and their replacements (AUTH-66)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Sentences for users of an authenticator of these types.
UNSERVED: Final[Mapping[str, str]] = {
    "authn-k8s": (
        "authn-k8s is not served: pods log in at authn-jwt, with a projected service account token"
        " (docs/guides/kubernetes.md)"
    ),
    "authn-cert": (
        "authn-cert is not served: workloads log in at authn-jwt, with a token of their platform"
        " (docs/guides/authenticators.md)"
    ),
}
