"""The larger parts of the server, each made from the settings and the installation, for ``composition`` to put together."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

import attrs
from twisted.application.service import MultiService
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger

from svc.audit.backlog import ISink
from svc.audit.chain import Chain
from svc.audit.expiration_events import RecordedExpirations
from svc.audit.files import FileSink, StandardOutputSink
from svc.audit.journal import Journal
from svc.audit.refusals import LoggedExpirations
from svc.audit.shared_turn import SharedTurn
from svc.audit.syslog import SyslogSink
from svc.authn.cloud import cloud
from svc.authn.evaluation import Kind
from svc.authn.federated import FederatedAuthenticator
from svc.authn.gcp import gcp
from svc.authn.iam import iam
from svc.authn.jwt import JWT
from svc.authn.ldap.authenticator import LdapAuthenticator
from svc.authn.ldap.bind_guard import BindGuard
from svc.authn.ldap.directory_rounds import DirectoryRounds, MissingEntries
from svc.authn.ldap.directory_settings import LdapServers
from svc.authn.ldap.mapped_roles import MappedRoles
from svc.authn.ldap.refused_binds import RefusedBinds
from svc.authn.providers.discovery import Publications
from svc.authn.providers.keys import ProviderKeys
from svc.authn.providers.sts import SecurityTokenService, StsAddress
from svc.cluster.inquiry import Inquiry, trust_of
from svc.cluster.members import Members
from svc.cluster.peer_claims import PeerClaims
from svc.cluster.rival_primaries import Rivals
from svc.health.checks_loop import NEEDED_TO_SERVE, ChecksLoop
from svc.health.probes import AuditProbe, AuthzProbe, CoreProbe, DatabaseProbe, HostFactoryProbe, PublicKeysProbe
from svc.model.authentication import Admitted, IProviderKeys, KeySource
from svc.model.aws import IUsedSignatures
from svc.model.errors import StartRefused
from svc.model.events import IJournal
from svc.model.events import Server as EventServer
from svc.model.ldap_directories import IDirectories
from svc.model.ports import ILoads, IProbe
from svc.model.query_results import Sealed
from svc.model.turns import ITurns
from svc.net.fetch import GuardedClient
from svc.net.lookup import LookUps
from svc.net.trust import Trust, client_tls, web_tls
from svc.policy.document import Bounds
from svc.rotation.postgresql import PostgresPassword
from svc.rotation.rotation import Rotations
from svc.rotation.rotation_loop import Expirations
from svc.server.bootstrap import Installation
from svc.server.lifecycle import child
from svc.server.reloading import Renewable, Renewals
from svc.services.policy_loads import NEAR_ROWS, Loads, NearAndFar
from svc.settings.config import Settings
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.credentials import CredentialStore
from svc.storage.database_state import DatabaseState
from svc.storage.directory_users import DirectoryUserStore
from svc.storage.driver.commits import Written
from svc.storage.driver.replication import Replication
from svc.storage.driver.statements import ReadSource, Statements
from svc.storage.expirations import ExpirationStore
from svc.storage.host_factories import HostFactoryStore
from svc.storage.ldap_mappings import LdapMappingStore
from svc.storage.policies import PolicyStore
from svc.storage.public_keys import PublicKeyStore
from svc.telemetry.metrics import Metrics
from svc.worker.messages import Task
from svc.worker.pool import IDLE, Workers
from svc.worker.turns import LoadsInTurn

log = Logger()


def _stream(stream: TextIO | None) -> tuple[int, int] | None:
    """Return the device and the inode of a standard stream; ``None`` where it is closed."""
    try:
        status = os.fstat(stream.fileno()) if stream is not None else None
    except (OSError, ValueError):
        return None
    return None if status is None else (status.st_dev, status.st_ino)


@attrs.frozen
class Parts:
    """Make parts. Each part gets its dependencies as arguments."""

    reactor: Any
    settings: Settings
    installation: Installation
    renewals: Renewals
    #: The source of reads, for requests and for health checks.
    readings: ReadSource
    state: DatabaseState
    #: Counts commits of this server, as ``Database.tell_commits`` has it.
    written: Written

    async def journal(
        self,
        server: MultiService,
        metrics: Metrics | None,
        syslog: IStreamClientEndpoint | None,
        turn: SharedTurn | None = None,
        *,
        daemon: bool,
    ) -> Journal:
        """Return the journal, open; it stops after all that may record something.

        ``turn`` is that at writing, where other processes of the server record too; the first of them finds the chain's end.

        :raises StartRefused: records can't be written where they are to go.
        """
        reactor, settings = self.reactor, self.settings
        standard = sys.__stdout__
        path = settings.unit.audit_file(settings.audit_file, settings.data_dir, daemon=daemon, stdout=_stream(standard))
        if path is not None:
            if settings.audit_file is None:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            sinks: list[ISink] = [FileSink(reactor, path, turn, self._chain(turn, path))]
        elif standard is not None:
            sinks = [StandardOutputSink(reactor, standard.fileno(), turn, self._chain(turn, None))]
        else:
            raise StartRefused("there is no standard output for audit records: set --audit-file")
        if syslog is not None and settings.audit_syslog is not None:
            sinks.append(SyslogSink(reactor, syslog, settings.audit_syslog))
        this, refuses = EventServer(os.uname().nodename, settings.dialect.prefix), settings.audit_failure == "refuse"
        count_lost = None if metrics is None else metrics.count_lost_records
        journal = Journal(this, reactor, self.installation.wall, sinks, refuses=refuses, count_lost=count_lost)
        await child(server, journal).open()
        if path is not None:
            self.renewals.at_hangup(journal.reopen)
            log.info("Audit records are appended to {path}", path=str(path))
        elif daemon and syslog is None:
            log.warn("A daemon's standard output goes nowhere, and so do audit records: name a file as audit_file")
        elif settings.unit.is_journal(_stream(standard)):
            log.warn(
                "Audit records go to the journal, which drops what comes too fast unless the unit has"
                " LogRateLimitIntervalSec=0: name a file as audit_file"
            )
        return journal

    def _chain(self, turn: SharedTurn | None, path: Path | None) -> Chain:
        """Return the chain of records, which goes on where it ended (``audit.chain``, Note [The end])."""
        key, saved = self.installation.audit_key, self.settings.data_dir / "audit-chain"
        if turn is None or not turn.chained:
            chain = Chain(key, None if turn is None else turn.chain, saved)
            chain.begin(path)
            return chain
        return Chain(key, turn.chain)

    def inquiries(self) -> dict[str, Inquiry]:
        """Return the inquiries to the other servers of the cluster, each with the authorities that the settings name."""
        settings = self.settings
        common = self._trust(settings.cluster_ca, "cluster_ca")
        return {
            member.name: Inquiry(self.reactor, member, common if member.ca is None else self._trust(member.ca, "cluster"))
            for member in settings.cluster
        }

    def members(self, inquiries: Mapping[str, Inquiry]) -> Members:
        """Return the client that asks the other servers for their health."""
        asking = {name: inquiry.ask for name, inquiry in inquiries.items()}
        return Members(self.reactor, self.installation.wall, asking, self.settings.health_interval)

    def rivals(self, inquiries: Mapping[str, Inquiry], claims: PeerClaims, replication: Replication) -> Rivals:
        """Return the detector of other primaries, which asks the other servers for their databases."""
        asking = {name: functools.partial(inquiry.database, claims) for name, inquiry in inquiries.items()}
        return Rivals(self.reactor, self.installation.wall, replication.identity, asking, self.settings.health_interval)

    def _trust(self, path: Path | None, field: str) -> Callable[[], Trust]:
        """Return the trust in the authorities of the file that a setting names; without one, in the platform's."""
        if path is None:
            return Trust
        key = self.settings.key(field)
        file = self.renewals.watch(Renewable(f"{key} {path}", [path], lambda: trust_of(path, key)))
        return lambda: file.current

    def loads(self, server: MultiService, turns: ITurns | None) -> ILoads:
        """Return the loader of policies: small ones in this process, large ones in processes of their own.

        ``turns`` are those that all processes of the server share, if there are several.
        """
        settings = self.settings
        bounds = Bounds(nesting=settings.nesting_limit, aliases=settings.alias_limit, records=settings.record_limits)
        installation, dialect, keeping, vault = (
            self.installation,
            settings.dialect,
            settings.keeping,
            self.installation.vault,
        )
        task = Task(installation.dsn, settings.statement_timeout, vault.given, dialect, bounds, keeping)
        # A process without work would take the place of another one's.
        idle = IDLE if turns is None else 0.0
        workers = child(server, Workers(self.reactor, task, idle=idle, written=self.written, data_keys=lambda: vault.given))
        near = Loads(PolicyStore(installation.database, keeping), vault, dialect, bounds, NEAR_ROWS)
        return NearAndFar(near, workers if turns is None else LoadsInTurn(workers, turns))

    def expirations(self, journal: Journal, demand_primary: Callable[[], Awaitable[None]]) -> Expirations:
        """Return the loop that expires and rotates values."""
        reactor, interval, events = (
            self.reactor,
            self.settings.expiration_interval,
            RecordedExpirations(LoggedExpirations(), journal),
        )
        database, vault, wall = self.installation.database, self.installation.vault, self.installation.wall
        store, factories = ExpirationStore(database, self.settings.keeping), HostFactoryStore(database)
        rotations, rotators = (
            Rotations(store, vault, reactor, events),
            [PostgresPassword(reactor, self._look_ups(), client_tls)],
        )
        return Expirations(reactor, wall, store, factories, rotations, rotators, events, interval, demand_primary)

    def provider_keys(self, changed: Callable[[KeySource], object] = lambda _: None) -> ProviderKeys:
        """Return the key sets of third parties, which are fetched here; ``changed`` is called when one was."""
        settings = self.settings
        files, interval = dict(settings.jwks_token_files), settings.jwks_refetch_interval
        fetch = Publications(self.guarded(), files).key_set
        age, stale = settings.jwks_max_age, settings.jwks_stale_if_error
        return ProviderKeys(fetch, self.reactor, interval, max_age=age, stale_if_error=stale, changed=changed)

    def guarded(self) -> GuardedClient:
        """Return a client for providers, at the allowed addresses."""
        reactor, settings = self.reactor, self.settings
        http, private = settings.allow_http_providers, settings.allow_private_providers
        return GuardedClient(reactor, reactor.nameResolver, web_tls, allow_http=http, private_networks=private)

    def federated(
        self, keys: IProviderKeys, signatures: IUsedSignatures, statements: Statements
    ) -> dict[str, FederatedAuthenticator]:
        """Return the authenticators that trust third parties, by name; they share the sets of keys."""
        made, settings = self.federate(keys, statements), self.settings
        aws = iam(self._security_tokens(), signatures, settings.aws_sts_regions)
        return {kind.name: made(kind) for kind in (JWT, cloud(settings.dialect), gcp(settings.google_issuer), aws)}

    def federate(self, keys: IProviderKeys, statements: Statements) -> Callable[[Kind], FederatedAuthenticator]:
        """Return what makes an authenticator of a kind that trusts third parties."""
        settings = self.settings
        store, vault, wall = AuthenticatorStore(statements), self.installation.vault, self.installation.wall
        common = store, keys, vault, wall, settings.dialect, frozenset(settings.authenticators)
        skew, limit, lenient = settings.clock_skew, settings.jwt_limit, settings.ignore_missing_issuer
        return lambda kind: FederatedAuthenticator(
            kind, *common, clock_skew=skew, token_limit=limit, ignore_missing_issuer=lenient
        )

    def _security_tokens(self) -> SecurityTokenService:
        """Return the client of AWS's Security Token Service."""
        url, instead = self.settings.aws_sts_url, None
        if url is not None:
            address = urlsplit(url)
            secure = address.scheme == "https"
            if not secure and not self.settings.allow_http_providers:
                key = self.settings.key("aws_sts_url")
                raise StartRefused(f"{key} is not https, and allow_http_providers is off")
            instead = StsAddress(secure, address.hostname or "", address.port or (443 if secure else 80))
        return SecurityTokenService(self.reactor, self.reactor.nameResolver, web_tls, instead)

    def ldap_servers(self) -> LdapServers:
        """Return the directories that are configured."""
        store, settings = AuthenticatorStore(self.readings), self.settings
        return LdapServers(store, store, self.installation.vault, settings.dialect, frozenset(settings.authenticators))

    def ldap(
        self,
        servers: LdapServers,
        directories: Callable[[], IDirectories],
        journal: IJournal,
        demand_primary: Callable[[], Awaitable[None]],
        noted: Callable[[Admitted], object],
    ) -> LdapAuthenticator:
        """Return the authenticator by LDAP; ``noted`` is called with the role that gets its API key."""
        installation, dialect, enabled = self.installation, self.settings.dialect, frozenset(self.settings.authenticators)
        # Three reads decide together, and the directory takes longer than all of them: none is cached.
        store, credentials = AuthenticatorStore(self.readings), CredentialStore(self.readings)
        vault, wall = installation.vault, installation.wall
        mapped = MappedRoles(LdapMappingStore(self.readings), journal, demand_primary)
        missing = MissingEntries(DirectoryUserStore(self.readings), journal, demand_primary)
        settings = vault, dialect, enabled, wall
        return LdapAuthenticator(store, credentials, servers, directories, *settings, mapped, missing, noted)

    def directory_rounds(
        self,
        servers: LdapServers,
        directories: Callable[[], IDirectories],
        journal: IJournal,
        demand_primary: Callable[[], Awaitable[None]],
    ) -> DirectoryRounds:
        """Return the rounds that check whether users still have an entry in the directories."""
        missing = MissingEntries(DirectoryUserStore(self.installation.database), journal, demand_primary)
        return DirectoryRounds(self.reactor, servers, directories, missing, self.settings.ldap_sync_interval)

    def refused_binds(self) -> RefusedBinds:
        """Return the counter of the binds that directories refuse."""
        settings, installation = self.settings, self.installation
        failures, window = settings.ldap_failures, settings.ldap_failures_window
        return RefusedBinds(self.reactor, installation.wall, failures, window, settings.data_dir)

    def directories(self, guard: BindGuard) -> IDirectories:
        """Return the client of LDAP directories."""
        # Few servers use a directory, and the library takes time to load.
        from svc.authn.ldap.client import Directories  # noqa: PLC0415

        plain = self.settings.allow_plain_ldap
        return Directories(self.reactor, self._look_ups(), client_tls, guard=guard, allow_plain=plain)

    def _look_ups(self) -> LookUps:
        return LookUps(self.reactor, self.reactor.nameResolver, self.settings.allow_private_providers)

    def checks_loop(self, rivals: Rivals, open_canary: Callable[[Sealed], object], *others: IProbe) -> ChecksLoop:
        """Return the loop of health checks: those of the installation, and others."""
        installation, readings, state = self.installation, self.readings, self.state
        probes = [
            CoreProbe(state, open_canary),
            AuthzProbe(state),
            HostFactoryProbe(HostFactoryStore(readings)),
            PublicKeysProbe(PublicKeyStore(readings)),
            *others,
        ]
        needed = NEEDED_TO_SERVE | {AuditProbe.service} if self.settings.audit_failure == "refuse" else NEEDED_TO_SERVE

        def primaries() -> tuple[str, float] | None:
            word = rivals.word
            return None if word is None else (word, rivals.changed)

        database_probe, interval = DatabaseProbe(state), self.settings.health_interval
        return ChecksLoop(self.reactor, installation.wall, probes, database_probe, interval, needed, primaries)
