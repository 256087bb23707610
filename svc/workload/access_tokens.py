"""Access tokens as a client keeps them."""

from __future__ import annotations

import base64
import math
from typing import Any, Final, Self

import attrs

from svc.workload.replies import parse_json

#: The parts of a token's life between which it is renewed (``svc.workload.calls``, Note [Fresh tokens]).
_RENEWAL_FRACTIONS: Final = (0.7, 0.85)


@attrs.frozen
class CachedToken:
    """An access token; ``renew_at`` and ``ends_at`` are moments of this machine's clock for durations."""

    text: str = attrs.field(repr=False)
    renew_at: float = math.inf
    ends_at: float = math.inf

    @classmethod
    def parse(cls, text: str, began: float, chance: float) -> Self:
        """Read a token that was requested at ``began``; ``chance`` of [0, 1) says when it is renewed.

        :raises ValueError: it is none, or never expires.
        """
        try:
            claims = token_claims(text)
            life = float(claims["exp"] - claims["iat"])
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError("it is no access token") from error
        if not math.isfinite(life):
            raise ValueError("it never ends")
        early, late = _RENEWAL_FRACTIONS
        return cls(text, began + life * (early + (late - early) * chance), began + life)


def token_claims(token: str) -> dict[str, Any]:
    """Return the claims inside an access token, unverified: when it was made, and when it expires.

    :raises ValueError, KeyError: it is no access token.
    """
    payload = parse_json(base64.b64decode(token, validate=True))["payload"]
    claims = parse_json(base64.b64decode(payload))
    if not isinstance(claims, dict):
        raise ValueError("the claims are no object")
    return claims
