"""Key sets of identity providers as values; ``crypto.key_sets`` reads them, and ``crypto.signatures`` verifies with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

#: Problems of keys that one message shows.
_NAMED: Final = 5


@attrs.frozen(eq=False)
class ProviderKey:
    """A usable public key of a set. ``thumbprint`` is the one of RFC 7638, SHA-256, in base64url.

    ``public`` is the key as the library wants it that verifies.
    """

    key_id: str | None
    thumbprint: str
    algorithms: frozenset[str]
    public: Any = attrs.field(repr=False)


@attrs.frozen(eq=False)
class KeySet:
    """The usable keys that one document held, and what was wrong with others, a sentence each.

    Keys have distinct ids; a key without id is alone in its set (rulings 2.5). Two sets are never equal: what was fetched
    later is another set.
    """

    keys: tuple[ProviderKey, ...]
    problems: tuple[str, ...] = ()
    by_id: Mapping[str | None, ProviderKey] = attrs.field(init=False, repr=False)

    @by_id.default
    def _index(self) -> Mapping[str | None, ProviderKey]:
        return {key.key_id: key for key in self.keys}

    @property
    def why_unusable(self) -> str:
        """What to say of a set without usable key, with the first few of its problems."""
        return " ".join(["it has no usable key.", *self.problems[:_NAMED]])
