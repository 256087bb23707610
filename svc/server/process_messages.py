"""The messages between the processes of one server, beside those of ``processes.workforce`` and other packages."""

from __future__ import annotations

import enum

import attrs

from svc.cluster.rival_primaries import Verdict
from svc.health.checks_loop import HealthReport
from svc.model.authentication import KeySource
from svc.model.data_keys import StoredDataKey
from svc.model.refusals import RefusalsQuery, RefusedRequest
from svc.settings.config import Settings


@attrs.frozen
class WorkerTask:
    """The task of a serving process: its number, the count of processes, and the server's settings and keys.

    ``refused`` are the addresses that are refused, with seconds.
    """

    number: int
    count: int
    settings: Settings = attrs.field(repr=False)
    daemon: bool
    dsn: str = attrs.field(repr=False)
    data_keys: tuple[bytes, ...] = attrs.field(repr=False)
    stored_keys: tuple[StoredDataKey, ...]
    audit_key: bytes = attrs.field(repr=False)
    news: ServerNews
    refused: tuple[tuple[str, float], ...]


@attrs.frozen
class ServerNews:
    """The state of the server."""

    report: HealthReport
    verdict: Verdict


@attrs.frozen
class DataKeysRead:
    """Data keys were read again."""

    keys: tuple[bytes, ...] = attrs.field(repr=False)


@attrs.frozen
class HungUp:
    """``SIGHUP`` came."""


@attrs.frozen
class AddressShut:
    """Attempts from what is counted under this name are refused for so many seconds."""

    name: str
    seconds: float


@attrs.frozen
class FailureSeen:
    """Reports a failed login as a role, from an address; the reply is its delay in seconds. ``late``: always delay it."""

    client_ip: str
    role: str
    late: bool


@attrs.frozen
class PressureWanted:
    """Asks how many logins as a role failed, and how long the answer to another failure would be delayed."""

    role: str


@attrs.frozen
class SignatureSeen:
    """Asks whether a signature was used, as in ``IUsedSignatures``; with ``lasting``, it is marked as used now."""

    signature: str = attrs.field(repr=False)
    address: str
    again: float
    lasting: float | None = None


@attrs.frozen
class ClientLeft:
    """A client of this address left before its answer."""

    client_ip: str


@attrs.frozen
class RefusalsSeen:
    """Requests were refused; ``complete``: none that should be here is missing."""

    refused: tuple[RefusedRequest, ...]
    complete: bool


@attrs.frozen
class RefusalsWanted:
    """Asks for the recent refusals of all processes."""

    query: RefusalsQuery


@attrs.frozen
class KeysUsed:
    """The keys of this source are in use."""

    source: KeySource


class Scarce(enum.Enum):
    """The scarce resources that processes take turns at."""

    HASHING = "hashing"
    LOADING = "loading"


@attrs.frozen
class TurnWanted:
    """Asks for a turn, under a number chosen by the process."""

    what: Scarce
    number: int
    whose: str


@attrs.frozen
class TurnOver:
    """Gives a turn back, or withdraws the request for one."""

    what: Scarce
    number: int


@attrs.frozen
class WriteWanted:
    """The question whether a write may begin; ``doubtful``: the database was away."""

    doubtful: bool


@attrs.frozen
class ChallengeSeen:
    """The question whether this is the challenge of a question of this server's own."""

    challenge: str


@attrs.frozen
class MemberWanted:
    """The question for the health of a member of the cluster."""

    name: str


@attrs.frozen
class CertificatesWanted:
    """A question for the certificates of the ports that the process that supervises has for itself."""


@attrs.frozen
class MembersWanted:
    """The question for the health of all members."""


@attrs.frozen
class CountersWanted:
    """The question for the counters of a process."""
