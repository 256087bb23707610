"""The messages between the processes of one server, beside those of ``svc.processes``."""

from __future__ import annotations

import enum
from typing import Any

import attrs

from svc.cluster.split_brain import WriteDecision
from svc.health.checks_loop import HealthReport
from svc.model.data_keys import StoredDataKey
from svc.settings.config import Settings


@attrs.frozen
class RemoteCall:
    """A call of a function that the other process exposes under a name: as a question its result is the answer."""

    name: str
    arguments: tuple[Any, ...] = attrs.field(default=(), repr=False)


@attrs.frozen
class ServerNews:
    """The state of the server; ``authenticators`` are those that its configuration lists now."""

    report: HealthReport
    decision: WriteDecision
    authenticators: tuple[str, ...]


@attrs.frozen
class WorkerTask:
    """The task of a serving process: its number, the count of processes, and the server's settings and keys.

    ``refused_addresses`` are the addresses that are refused, with seconds.
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
    refused_addresses: tuple[tuple[str, float], ...]


class PermitKind(enum.Enum):
    """The scarce resources whose permits the processes share."""

    HASHING = "hashing"
    LOADING = "loading"
    SEARCHING = "searching"
