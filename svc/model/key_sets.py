"""Key sets of identity providers as values; ``crypto.key_sets`` reads them, and ``crypto.signatures`` verifies with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

#: The algorithms that exist here, by their exact names (RFC 7518 3.1, RFC 8037 3.1), in the order in which they are told.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "PS256", "PS384", "PS512", "EdDSA")

#: Those that an authenticator takes whose operator says nothing (AUTH-17).
DEFAULT_ALGORITHMS: Final = ALGORITHMS[:3]

#: The form of a bearer token that is shown where keys are fetched (RFC 6750 2.1), and how many characters it may have.
TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)
TOKEN_LIMIT: Final = 16 * 1024


@attrs.frozen(eq=False)
class ProviderKey:
    """A usable public key; ``thumbprint`` is that of RFC 7638, SHA-256, in base64url; ``algorithms`` those to accept."""

    key_id: str | None
    thumbprint: str
    algorithms: frozenset[str]
    public: Any = attrs.field(repr=False)


@attrs.frozen(eq=False)
class KeySet:
    """The usable keys of one document, what was wrong with others, and which are for something else, a sentence each.

    Keys have distinct ids; a key without id is alone in its set (AUTH-41). What was fetched later is another set.
    ``document`` is what they were read from, where it was fetched.
    """

    keys: tuple[ProviderKey, ...]
    problems: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    document: bytes = attrs.field(default=b"", repr=False)
    by_id: Mapping[str | None, ProviderKey] = attrs.field(init=False, repr=False)

    @by_id.default
    def _index(self) -> Mapping[str | None, ProviderKey]:
        return {key.key_id: key for key in self.keys}

    @property
    def why_unusable(self) -> str:
        """Return a message about a set without usable key, with the first few of its problems."""
        return " ".join(["it has no usable key.", *self.problems[:5]])
