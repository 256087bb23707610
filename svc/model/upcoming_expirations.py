"""Values of expirations of all kinds: of values, tokens, keys and certificates, in the order of their time."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

import attrs


class ExpirationKind(enum.StrEnum):
    """The kinds of things that expire."""

    CERTIFICATE = "certificate"
    SIGNING_KEY = "signing-key"
    PROVIDER_KEYS = "provider-keys"
    API_KEY = "api-key"
    HOST_FACTORY_TOKEN = "host-factory-token"
    ROTATION = "rotation"
    VALUE = "value"


#: The kinds that are shown to those who may look at the whole account, and to nobody else.
SERVER_KINDS: Final = frozenset({ExpirationKind.CERTIFICATE, ExpirationKind.SIGNING_KEY, ExpirationKind.PROVIDER_KEYS})
#: The order of the kinds at one moment. A variable is of one of the last two kinds, and they are read together.
_RANKS: Final = {kind: min(rank, len(ExpirationKind) - 2) for rank, kind in enumerate(ExpirationKind)}


class ExpirationCursor(NamedTuple):
    """A place in the order: the moment, in epoch seconds, the rank of the kind, the id, and the part of its thing."""

    at: float
    rank: int
    id: str
    part: str

    def start_of_kind(self, kind: ExpirationKind) -> tuple[float, str, str]:
        """Return the moment, the id and the part after which the things of one kind begin that come after this place."""
        rank = _RANKS[kind]
        if rank == self.rank:
            return self.at, self.id, self.part
        return (self.at, "", "") if rank > self.rank else (self.at, AFTER_EVERY_ID, AFTER_EVERY_ID)


#: After every id.
AFTER_EVERY_ID: Final = "\U0010ffff"

#: Before everything.
EXPIRATIONS_START: Final = ExpirationCursor(0.0, -1, "", "")


@attrs.frozen
class UpcomingExpiration:
    """One thing that expires ``at`` a moment, in epoch seconds, or is too old from then on (``by_age``).

    ``id`` is the full id of the variable, the host factory, the role or the webservice; of a certificate the setting that
    names it, of a signing key its account. ``part`` says which one of several. ``since`` is when it was set, made or
    fetched. ``failures`` and ``fault`` are those of a rotation that doesn't succeed, and of keys that can't be fetched.
    """

    kind: ExpirationKind
    at: float
    id: str
    part: str = ""
    since: float | None = None
    by_age: bool = False
    failures: int = 0
    fault: str | None = None

    @property
    def cursor(self) -> ExpirationCursor:
        """Return where it stands in the order."""
        return ExpirationCursor(float(self.at), _RANKS[self.kind], self.id, self.part)


@attrs.frozen
class ExpirationsPage:
    """Things in order, and how far their kind has been read: ``None`` for up to the requested moment."""

    expirations: Sequence[UpcomingExpiration]
    last: ExpirationCursor | None
