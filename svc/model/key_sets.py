"""Key sets of identity providers, and tokens signed with their keys, as values (``crypto.key_sets``, ``crypto.jws``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NewType

import attrs

from svc.model.reasons import Reason

#: The supported algorithms, by their exact names (RFC 7518 3.1, RFC 8037 3.1), in the order in which they are listed.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA")

#: Aliases of them: that of RFC 9864 2.2, which is what ``EdDSA`` means here.
SYNONYMS: Final[Mapping[str, str]] = {"Ed25519": "EdDSA"}

#: Those that an authenticator takes unless its operator sets others (AUTH-17).
DEFAULT_ALGORITHMS: Final = ALGORITHMS[:3]

#: The form of a bearer token that is shown where keys are fetched (RFC 6750 2.1), and how many characters it may have.
TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)
TOKEN_LIMIT: Final = 16 * 1024

#: The most reasons that a message names why a set has no usable key.
_REASONS: Final = 5

#: How their message begins, its text for an empty set, and how its end begins where another algorithm would help: it is
#: passed on as text, and remedies search for these.
UNUSABLE: Final = "it has no usable key: "
EMPTY: Final = "the set is empty"
ALLOWING: Final = "the variable algorithms could allow "


@attrs.frozen(eq=False)
class ProviderKey:
    """A usable public key; ``thumbprint`` is that of RFC 7638, SHA-256, in base64url; ``algorithms`` those to accept."""

    key_id: str | None
    thumbprint: str
    algorithms: frozenset[str]
    public: Any = attrs.field(repr=False)


@attrs.frozen(eq=False)
class KeySet:
    """The usable keys of one document, the faults of others, and those for another purpose, a sentence each.

    Keys of one id are for different algorithms; a key without id is alone in its set (AUTH-41). Sets from separate fetches
    are never equal. ``wanted`` are the algorithms that would make an unused key usable, were they allowed. ``document`` is
    the text that they were read from, if it was fetched, and ``issuer`` the provider's issuer by its own document, if that
    was fetched.
    """

    keys: tuple[ProviderKey, ...]
    problems: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    document: bytes = attrs.field(default=b"", repr=False)
    issuer: str | None = None
    by_use: Mapping[tuple[str | None, str], ProviderKey] = attrs.field(init=False, repr=False)

    @by_use.default
    def _index_by_use(self) -> Mapping[tuple[str | None, str], ProviderKey]:
        return {(key.key_id, algorithm): key for key in self.keys for algorithm in key.algorithms}

    @property
    def why_unusable(self) -> str:
        """Return a message, without its full stop, about a set without usable key, with the first few of the reasons."""
        reasons = [reason.removesuffix(".") for reason in (*self.problems, *self.unused)]
        if not reasons:
            return f"{UNUSABLE}{EMPTY}"
        more = [] if len(reasons) <= _REASONS else [f"and {len(reasons) - _REASONS} more"]
        wanted = [f"{ALLOWING}{' or '.join(self.wanted)}"] if self.wanted else []
        return f"{UNUSABLE}{'; '.join([*reasons[:_REASONS], *more, *wanted])}"


#: The claims of a token whose signature has been verified. ``crypto.jws`` alone makes them.
SignedClaims = NewType("SignedClaims", Mapping[str, object])


@attrs.frozen
class UnverifiedJws:
    """A well-formed token, of which nothing is known to be true. Only its header has been read."""

    algorithm: str
    key_id: str | None
    signing_input: bytes = attrs.field(repr=False)
    payload: bytes = attrs.field(repr=False)
    signature: bytes = attrs.field(repr=False)


@attrs.frozen(str=False)
class EvidenceRefused(Exception):
    """A token proves nothing; raised by its readers and the checks of its claims, and turned into a ``Refused``.

    ``detail`` is for operators: bounded, without control characters, never the token. ``retry_after`` is in seconds.
    """

    reason: Reason
    detail: str
    retry_after: int | None = None

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"
