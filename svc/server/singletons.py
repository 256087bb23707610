"""The parts that exist once per server, however many processes it has.

They run in the only process, or in the one that supervises. A process that serves reaches them as :class:`SharedParts`: in
the only process that is :class:`Singletons` itself, in a worker the remote calls of ``svc.server.process``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Protocol, TypeVar

import attrs

from svc.audit.expiration_events import AuditedExpirations, LoggedExpirations
from svc.audit.recent_refusals import RecentRefusals
from svc.audit.recoveries import RecoveryReporter
from svc.audit.retention import EventRetention
from svc.audit.search_permits import SearchPermits
from svc.authn.ldap.directory_rounds import DirectoryRounds, MissingEntries
from svc.authn.providers.keys import ProviderKeys
from svc.authn.throttling import Failures, IFailures
from svc.authn.used_signatures import UsedSignatures
from svc.cluster.members import IMembers, Members
from svc.cluster.remote_write_gate import IWriteGate
from svc.cluster.split_brain import SplitBrainDetector, primaries_of
from svc.health.ages import AgesPoller
from svc.health.checks_loop import NEEDED_TO_SERVE, ChecksLoop, IHealth, longest_check
from svc.health.ldap import SHARE_OF_CHECK, LdapProbe
from svc.health.liveness import Liveness
from svc.health.probes import (
    AuditProbe,
    AuthzProbe,
    CoreProbe,
    DatabaseProbe,
    ExpirationProbe,
    HostFactoryProbe,
    PublicKeysProbe,
)
from svc.health.signing import AuthnProbe
from svc.model.authentication import IProviderKeys
from svc.model.aws import IUsedSignatures
from svc.model.databases import DatabaseIdentity
from svc.model.dialect import NATIVE
from svc.model.permits import IPermits, make_local_permits
from svc.model.probes import IProbe
from svc.model.readings import ReadingBatch
from svc.model.refusals import IRefusals
from svc.rotation.rotation_loop import ExpirationLoop
from svc.rotation.runner import RotationRunner
from svc.server.certificates import Certificate
from svc.server.data_keys import Resealer
from svc.server.foundation import Foundation
from svc.server.lifecycle import add_child
from svc.services.kept_counts import FILE, CountsFile
from svc.services.reading_counts import Counts, ReadingRecorder
from svc.storage.cache.trimming import ChangeTrimming
from svc.storage.deleted_records import DeletedStore
from svc.storage.directory_users import DirectoryUserStore
from svc.storage.events import RETENTION, EventStore
from svc.storage.expirations import ExpirationStore
from svc.storage.host_factories import HostFactoryStore
from svc.storage.idempotency import IdempotencyStore
from svc.storage.public_keys import PublicKeyStore
from svc.storage.purging import PurgeService
from svc.storage.readings import ReadingStore
from svc.telemetry.metrics import Metrics

S = TypeVar("S")


class SharedParts(Protocol):
    """The parts that exist once per server, as a serving process reaches them.

    Permits (``hashing``, ``loading``) are ``None`` where there is no other process to share with, and ``failures`` where
    logins aren't throttled. ``processes`` share the limits of what may wait for an answer or a thread.
    """

    @property
    def processes(self) -> int: ...
    @property
    def hashing(self) -> IPermits | None: ...
    @property
    def loading(self) -> IPermits | None: ...
    @property
    def searching(self) -> IPermits: ...
    @property
    def health(self) -> IHealth: ...
    @property
    def write_gate(self) -> IWriteGate: ...
    @property
    def members(self) -> IMembers: ...
    @property
    def failures(self) -> IFailures | None: ...
    @property
    def provider_keys(self) -> IProviderKeys: ...
    @property
    def refusals(self) -> IRefusals: ...
    @property
    def signatures(self) -> IUsedSignatures: ...
    @property
    def liveness(self) -> Liveness: ...

    async def identify_database(self, challenge: str) -> DatabaseIdentity | None:
        """Return the identity of the database; ``None`` if the challenge is this server's own."""

    async def list_certificates(self) -> Sequence[Certificate]:
        """Return the certificates of all processes."""

    def add_readings(self, counts: Counts, lost_days: Collection[int]) -> None:
        """Take the counts of reads of a process, and the days on which some were lost."""

    async def hand_out_readings(self, source: str, confirmed: int) -> ReadingBatch:
        """Return the counts that wait, for a server that can write them, as ``ReadingRecorder.hand_out``."""


def _part(make: Callable[[Singletons], S]) -> cached_property[S]:
    """Return a part, which ``make`` makes of the other singletons, and of those of ``base``, when it is first used."""
    return cached_property(make)


@attrs.frozen(slots=False, eq=False)
class Singletons:
    """The parts that exist once per server, made like those of ``base``; ``probes`` are more checks of health."""

    base: Foundation
    probes: Sequence[IProbe] = ()

    processes = 1
    hashing = None
    loading = None

    async def start(self) -> None:
        """Start what runs once per server, in this order.

        :raises StartRefused: audit records can't be written where they are to go.
        """
        base = self.base
        reactor, installation, services = base.reactor, base.installation, base.services
        events = EventStore(installation.database)
        add_child(services, self.split_brain)
        add_child(services, EventRetention(reactor, base.wall, events, RETENTION, self.ensure_writable))
        add_child(services, ChangeTrimming(reactor, installation.database, self.ensure_writable))
        add_child(services, self.purging)
        await base.open_journal()
        add_child(services, RecoveryReporter(reactor, installation.accounts.list_recovered, base.journal))
        for service in (self.expirations, self.directory_rounds, self.checks_loop, self.resealing):
            add_child(services, service)
        self.liveness.start(services)
        add_child(services, self.members)
        add_child(services, self.ages)
        add_child(services, self.reading_recorder)

    def watch(self, metrics: Metrics) -> None:
        """Export these as metrics."""
        metrics.watch_checks(self.checks_loop.list_findings)
        metrics.watch_other_primaries(self.split_brain.count_by_timeline)
        metrics.watch_deleted(self.purging.purge_counts)
        metrics.watch_data_key(self.resealing.key_age, self.resealing.count_values)
        metrics.watch_replication(lambda: self.checks_loop.last_report(NATIVE).position)
        metrics.watch_ages(lambda: self.ages.current, self.base.wall.seconds)

    async def ensure_writable(self) -> None:
        """Check that the database is a primary and that no other primary forbids writes."""
        await self.base.replication.require_primary()
        await self.split_brain.wait_until_writable()

    async def identify_database(self, challenge: str) -> DatabaseIdentity | None:
        """See ``SharedParts``; its caller has answered this server's own challenges already."""
        del challenge
        return await self.base.replication.read_identity()

    async def list_certificates(self) -> Sequence[Certificate]:
        """See ``SharedParts``."""
        return self.base.certificates.describe_all()

    def add_readings(self, counts: Counts, lost_days: Collection[int]) -> None:
        """See ``SharedParts``."""
        self.reading_recorder.add_counts(counts, lost_days)

    async def hand_out_readings(self, source: str, confirmed: int) -> ReadingBatch:
        """See ``SharedParts``."""
        return self.reading_recorder.hand_out(source, confirmed)

    searching = _part(lambda _: make_local_permits(SearchPermits()))
    health = _part(lambda s: s.checks_loop)
    write_gate = _part(lambda s: s.split_brain)
    refusals = _part(lambda s: RecentRefusals(s.base.wall))
    signatures = _part(lambda s: UsedSignatures(s.base.reactor))
    # A database that was away may have come back as a different one.
    liveness = _part(lambda s: s.base.make_liveness(s.split_brain.require_poll, s.checks_loop.check_soon))
    ages = _part(lambda s: AgesPoller(s.base.reactor, s.base.state))

    @cached_property
    def provider_keys(self) -> ProviderKeys:
        return self.base.make_provider_keys()

    @cached_property
    def failures(self) -> IFailures | None:
        settings = self.base.settings
        return Failures(self.base.reactor, settings.trusted_proxies or ()) if settings.login_throttle else None

    @cached_property
    def split_brain(self) -> SplitBrainDetector:
        """The detector of other primaries, which queries the other servers for their databases."""
        base, clients = self.base, self.base.member_clients.items()
        fetches = {name: functools.partial(client.fetch_database_identity, base.claims) for name, client in clients}
        interval = base.settings.health_interval
        return SplitBrainDetector(base.reactor, base.wall, base.replication.read_identity, fetches, interval)

    @cached_property
    def members(self) -> Members:
        """The client that polls the health of the other servers."""
        fetches = {name: client.fetch_health for name, client in self.base.member_clients.items()}
        return Members(self.base.reactor, self.base.wall, fetches, self.base.settings.health_interval)

    @cached_property
    def reading_recorder(self) -> ReadingRecorder:
        """The recorder of the reads that all processes of this server count."""
        base, clients = self.base, self.base.member_clients.items()
        fetches = {name: functools.partial(client.fetch_readings, base.claims) for name, client in clients}
        store, source = ReadingStore(base.installation.database), os.urandom(16).hex()
        retention = base.settings.readings_retention
        file = CountsFile(base.settings.data_dir / FILE)
        return ReadingRecorder(base.reactor, base.wall, store, self.ensure_writable, fetches, source, retention, file)

    @cached_property
    def purging(self) -> PurgeService:
        """The removal of records whose retention is over."""
        base, database = self.base, self.base.installation.database
        deleted = DeletedStore(database, base.settings.retention)
        return PurgeService(base.reactor, deleted, IdempotencyStore(database), self.ensure_writable)

    @cached_property
    def expirations(self) -> ExpirationLoop:
        """The loop that expires and rotates values."""
        base, database = self.base, self.base.installation.database
        events = AuditedExpirations(LoggedExpirations(), base.journal)
        store = ExpirationStore(database, base.settings.retention)
        return ExpirationLoop(
            base.reactor,
            base.wall,
            store,
            HostFactoryStore(database),
            RotationRunner(store, base.installation.vault, base.reactor, events),
            [*base.rotators.values()],
            events,
            interval=base.settings.expiration_interval,
            ensure_writable=self.ensure_writable,
        )

    @cached_property
    def directory_rounds(self) -> DirectoryRounds:
        """The rounds that check whether users still have an entry in the directories."""
        base, interval = self.base, self.base.settings.ldap_sync_interval
        missing = MissingEntries(DirectoryUserStore(base.installation.database), base.journal, self.ensure_writable)
        return DirectoryRounds(base.reactor, base.ldap_servers, lambda: base.directories, missing, interval)

    @cached_property
    def checks_loop(self) -> ChecksLoop:
        """The loop of health checks; the rounds of ``AuthnProbe`` are also how retired signing keys are noticed."""
        base, rounds, state, interval = self.base, self.directory_rounds, self.base.state, self.base.settings.health_interval
        within = SHARE_OF_CHECK * longest_check(interval)
        probes = [
            CoreProbe(state, base.data_keys.open_canary),
            AuthzProbe(state),
            HostFactoryProbe(HostFactoryStore(base.read_source)),
            PublicKeysProbe(PublicKeyStore(base.read_source)),
            AuthnProbe(base.keys, base.tokens, base.reactor),
            AuditProbe(base.journal),
            LdapProbe(base.ldap_servers, lambda: base.directories, within, lambda: rounds.failure, rounds.repeat),
            ExpirationProbe(self.expirations, base.reactor),
            *self.probes,
        ]
        needed = NEEDED_TO_SERVE | ({AuditProbe.service} if base.settings.audit_failure == "refuse" else set())
        primaries = primaries_of(self.split_brain, lambda: base.installation.database.contested, base.wall)
        return ChecksLoop(base.reactor, base.wall, probes, DatabaseProbe(state), interval, needed, primaries)

    @cached_property
    def resealing(self) -> Resealer:
        """The encryption of values under a new data key."""
        base, pace = self.base, self.base.settings.data_key_pace
        keys, vault = base.installation.data_keys, base.installation.vault
        return Resealer(base.reactor, keys, vault, pace, self.ensure_writable)
