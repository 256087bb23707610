"""Values and ports of expiration and rotation, which annotations of a variable request.

With ``expiration/ttl`` its values expire so long after they were set; with ``rotation/rotator`` and ``rotation/ttl`` they
are replaced at that interval (SEC-21, SEC-28). Values that are rotated don't expire.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import attrs
from zope.interface import Attribute, Interface

from svc.model.errors import Refusal
from svc.model.events import EventBatch
from svc.model.host_factories import ExpiredToken
from svc.model.names import ResourceName
from svc.model.query_results import Sealed

LIFETIME: Final = "expiration/ttl"
ROTATOR: Final = "rotation/rotator"
ROTATION_LIFETIME: Final = "rotation/ttl"
ROTATION_PREFIX: Final = "rotation/"

_DURATION: Final = re.compile(
    r"P(?=.)(?:([0-9]{1,4})Y)?(?:([0-9]{1,5})M)?(?:([0-9]{1,5})W)?(?:([0-9]{1,6})D)?"
    r"(?:T(?=.)(?:([0-9]{1,7})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,10})(?:[.,]([0-9]{1,6}))?S)?)?",
    re.ASCII,
)


@attrs.frozen
class Duration:
    """A length of time: months and days are those of a calendar, and are added before the seconds."""

    months: int = 0
    days: int = 0
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Read a duration of ISO 8601, such as ``P30D``, ``P1M``, ``PT12H`` or ``P1DT2H30M``.

        :raises ValueError: it is none, or no time at all; the message ends a sentence that begins with its name.
        """
        match = _DURATION.fullmatch(text)
        if match is None:
            raise ValueError("must be a duration of ISO 8601, such as P30D or PT12H")
        years, months, weeks, days, hours, minutes, seconds = (int(group or 0) for group in match.groups()[:7])
        fraction = float(f"0.{match[8] or 0}")
        found = cls(years * 12 + months, weeks * 7 + days, hours * 3600 + minutes * 60 + seconds + fraction)
        if not (found.months or found.days or found.seconds):
            raise ValueError("must be a duration longer than none")
        if found.months > _LONGEST.months or found.days > _LONGEST.days or found.seconds > _LONGEST.seconds:
            raise ValueError("must be a duration of at most a thousand years")
        return found


#: The most of each, so that no moment is beyond what calendars can represent.
_LONGEST: Final = Duration(months=12_000, days=366_000, seconds=366_000 * 86_400.0)


def parse_lifetime(text: str | None) -> Duration | None:
    """Return the lifetime that the annotation gives to values; ``None`` when there is none, or none that can be read."""
    try:
        return None if text is None else Duration.parse(text)
    except ValueError:
        return None


def is_about_expiration(annotation: str) -> bool:
    """Return whether an annotation of that name concerns expiration or rotation."""
    return annotation == LIFETIME or annotation.startswith(ROTATION_PREFIX)


class RoundOwner(enum.Enum):
    """The server whose round it is: this one, another of the cluster, or one of a standby's primary."""

    OURS = "ours"
    OTHERS = "others"
    STANDBY = "standby"


@attrs.frozen
class DueVariable:
    """A variable that is due, as it stands.

    ``revision`` is passed back with each decision. ``changed``: the annotations have changed since it was last processed.
    ``value`` is the newest, even when it has expired. ``expires_at`` is when that expires or is to be replaced, and
    ``has_expired`` whether that moment has come. ``failures``: of its rotation, in a row.
    """

    variable: ResourceName
    revision: int
    annotations: Mapping[str, str]
    changed: bool = False
    value: Sealed | None = attrs.field(default=None, repr=False)
    expires_at: float | None = None
    has_expired: bool = False
    failures: int = 0

    @property
    def rotator_name(self) -> str | None:
        """Return the rotator that policy names."""
        return self.annotations.get(ROTATOR)


class IExpirationEvents(Interface):
    """Events of values and of host factories' tokens; recording those that are no batches may raise ``AuditUnavailable``."""

    def require_available() -> None:
        """Return when events can be taken now.

        :raises AuditUnavailable: they can't, and nothing is to be changed then.
        """

    def rotation_batch(variable: ResourceName, rotator: str) -> EventBatch | None:
        """Return the events of a rotation, for the transaction that makes the new value the newest."""

    def removal_batch(tokens: Sequence[ExpiredToken]) -> EventBatch | None:
        """Return the events of tokens that have expired, for the transaction that removes them."""

    async def record_expiration(variable: ResourceName, at: float) -> None:
        """Record that the newest value expired, at that moment in seconds since the epoch."""

    async def record_rotation(variable: ResourceName, rotator: str, version: int) -> None:
        """Record that a new value is in force, of this version."""

    async def record_failure(variable: ResourceName, rotator: str | None, why: str) -> None:
        """Record that a rotation failed, or that annotations can't be used, which may name no ``rotator``."""

    async def record_removal(tokens: Sequence[ExpiredToken]) -> None:
        """Record that expired tokens were removed."""


@attrs.frozen
class Rotation:
    """A value that is to replace another; if an earlier attempt was interrupted, ``candidate`` may be in force already.

    ``siblings`` are the values of the variables beside it, by the last part of their names, and ``annotations`` its own.
    """

    current: bytes = attrs.field(repr=False)
    candidate: bytes = attrs.field(repr=False)
    siblings: Mapping[str, str] = attrs.field(repr=False)
    annotations: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(str=False)
class RotationFailed(Refusal):
    """A value was not, or perhaps not, put in force; raised by rotators. ``why`` has no secret, and no text of others."""

    why: str


class IRotator(Interface):
    """One way to put new values in force where they are used."""

    name = Attribute("""By which policy asks for it: ``postgresql/password``.""")
    siblings = Attribute("""The variables beside the rotated one that it reads, by the last part of their names.""")
    optional = Attribute("""Those of them that need not be there.""")

    def find_annotation_fault(annotations: Mapping[str, str]) -> str | None:
        """Return what is wrong with the rotator's own annotations, by name; ``None`` for nothing."""

    def new_value(annotations: Mapping[str, str]) -> bytes:
        """Make a new value, according to annotations without objection."""

    async def rotate(rotation: Rotation) -> None:
        """Return when the candidate is in force. May be cancelled.

        :raises RotationFailed: it is not, or nobody knows.
        """


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
