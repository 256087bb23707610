"""The parts that every process of a server has, whether it serves, supervises, or is the only one.

Each part is made when it is first used, of the parts that it names: in a line by ``_part``, whose ``s`` is the object that
has the parts, or as a cached property. Making a part starts nothing: what runs is started by :meth:`Foundation.start`, in
the order written there, and stops in the reverse one. A test substitutes a store, a clock or a connection by a subclass that
overrides its part.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint

from svc._version import VERSION
from svc.audit.file_lock import SharedFileLock
from svc.audit.journal import Journal
from svc.authn.ldap.bind_guard import BindGuard
from svc.authn.ldap.directory_settings import LdapServers
from svc.authn.ldap.refused_binds import RefusedBinds
from svc.authn.providers.discovery import KeySetFetcher
from svc.authn.providers.keys import ProviderKeys
from svc.authn.providers.sts import SecurityTokenService, StsAddress
from svc.cluster.member_client import MemberClient, load_trust
from svc.cluster.peer_claims import PeerClaims
from svc.cluster.record_questions import RecordQuestions
from svc.crypto.tokens import AccessTokens, SigningKeys
from svc.health.liveness import DatabaseLiveness, Liveness
from svc.model.authentication import KeySource
from svc.model.errors import StartRefused
from svc.model.expiration import IRotator
from svc.model.ldap_directories import IDirectories
from svc.model.listed_authenticators import ListedAuthenticators
from svc.model.versions import StateVersion
from svc.net.fetch import GuardedClient
from svc.net.lookup import HostResolver
from svc.net.trust import Trust, client_tls, web_tls
from svc.rotation.postgresql import PostgresPasswordRotator
from svc.server.audit_output import AuditOutput
from svc.server.authenticator_list import reread_list
from svc.server.bootstrap import Installation
from svc.server.certificates import ServerCertificates
from svc.server.data_keys import KeyPoller
from svc.server.effective_settings import EffectiveSettingsFile
from svc.server.lifecycle import add_child
from svc.server.listening import Endpoint
from svc.server.reloading import FileReloader, Reloadable
from svc.settings.config import Settings
from svc.storage.accounts import AccountStore
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.cache.commit_counters import CommitCounters
from svc.storage.database_state import DatabaseState
from svc.storage.driver.database import Database
from svc.storage.driver.replication import Replication
from svc.storage.driver.standbys import Standbys
from svc.storage.read_routing import ReadRouter
from svc.storage.replicas import Replicas
from svc.telemetry.metrics import Metrics, ReactorLag

S = TypeVar("S")


def _part(make: Callable[[Foundation], S]) -> cached_property[S]:
    """Return a part of a process, which ``make`` makes of the process's other parts when it is first used."""
    return cached_property(make)


@attrs.frozen(slots=False, eq=False, kw_only=True)
class Foundation:
    """The parts that every process of a server has.

    ``commit_counters`` counts the commits of this process. ``endpoints`` are those whose certificates this process shows,
    ``worker`` its number if another process supervises it. ``audit_lock`` orders the writes of several processes.
    """

    reactor: Any
    settings: Settings
    installation: Installation
    services: MultiService
    commit_counters: CommitCounters
    metrics: Metrics | None = None
    endpoints: Sequence[Endpoint] = ()
    audit_syslog: IStreamClientEndpoint | None = None
    audit_lock: SharedFileLock | None = None
    daemon: bool = False
    worker: int | None = None

    def start(self) -> None:
        """Start the services of every process, each before those that depend on it."""
        database = self.installation.database
        counters = self.commit_counters
        database.report_commits(self.count_commit, lambda: counters.written_versions(counters.read_counters()).timeline)
        lag = None if self.metrics is None else ReactorLag(self.reactor, self.metrics.observe_lag)
        for service in (self.replicas, self.replication, self.file_reloader, self.data_keys, lag):
            if service is not None:
                add_child(self.services, service)
        if self.worker is None:
            self.file_reloader.at_hangup(lambda: Deferred.fromCoroutine(self.data_keys.reread_source()))
            self.file_reloader.at_hangup(lambda: reread_list(self.settings, self.listed))
            add_child(self.services, self.effective_settings)
            self.file_reloader.at_hangup(self.effective_settings.write)
        for endpoint in self.endpoints:
            if endpoint.certificate is not None:
                self.file_reloader.watch(endpoint.certificate)
        if self.metrics is not None:
            self.metrics.watch_process(VERSION, platform.python_version(), self.wall.seconds())
            self.metrics.watch_sessions(self.read_source.count_sessions)
            self.metrics.watch_certificates(lambda: [attrs.astuple(each) for each in self.certificates.read_all()])

    def count_commit(self, confirmed: bool, version: StateVersion | None) -> None:
        """Count a commit of this process, as ``Database.report_commits`` has it."""
        self.commit_counters.count_commit(confirmed=confirmed, version=version)

    def distribute_data_keys(self, keys: Sequence[bytes]) -> None:
        """Pass data keys that were read again on to the processes that this one supervises: here there are none."""

    wall = _part(lambda s: s.installation.wall)
    file_reloader = _part(lambda s: FileReloader(s.reactor))
    replication = _part(lambda s: Replication(s.installation.database, s.reactor, beats=s.worker is None))

    @cached_property
    def listed(self) -> ListedAuthenticators:
        """The authenticators that the configuration lists, which it may do anew at SIGHUP."""
        return ListedAuthenticators(self.settings.authenticators)

    @cached_property
    def effective_settings(self) -> EffectiveSettingsFile:
        """The file by which others know the settings in force."""
        return EffectiveSettingsFile(self.settings, self.listed, self.wall, lambda: self.audit_output.path)

    @cached_property
    def replicas(self) -> Replicas | None:
        """The primary and the standby in use, where reads may go to standbys."""
        if not self.settings.reads_from_standby:
            return None
        standbys = Standbys(self.reactor, self.installation.dsn, self.installation.database)
        return Replicas(self.reactor, self.installation.database, standbys, self.commit_counters)

    @cached_property
    def read_source(self) -> Database | ReadRouter:
        """The source of reads, for requests and for health checks."""
        return self.installation.database if self.replicas is None else ReadRouter(self.reactor, self.replicas)

    state = _part(lambda s: DatabaseState(s.installation.database, s.read_source))
    account_store = _part(lambda s: AccountStore(s.read_source))
    keys = _part(lambda s: SigningKeys(s.account_store, s.installation.vault, s.wall))
    tokens = _part(lambda s: AccessTokens(s.keys, s.wall, s.settings.user_token_ttl, s.settings.host_token_ttl))
    claims = _part(lambda s: PeerClaims(s.installation.vault))
    certificates = _part(lambda s: ServerCertificates(s.endpoints, s.settings))

    @cached_property
    def data_keys(self) -> KeyPoller:
        """The data keys in use, and those that the other servers report."""
        installation, replication = self.installation, self.replication
        number = "" if self.worker is None else f", worker {self.worker}"
        return KeyPoller(
            self.reactor,
            installation.data_keys,
            installation.vault,
            process=os.urandom(8).hex(),
            place=f"{os.uname().nodename} (process {os.getpid()}{number})",
            writable=lambda: replication.is_writable,
            source=installation.source if self.worker is None else None,
            on_read=self.distribute_data_keys,
        )

    # Directories and other third parties.

    @cached_property
    def ldap_servers(self) -> LdapServers:
        store = AuthenticatorStore(self.read_source)
        return LdapServers(store, self.installation.vault, self.settings.dialect, self.listed)

    @cached_property
    def refused_binds(self) -> RefusedBinds:
        """The counter of the binds that directories refuse, for all processes of the server."""
        failures, window = self.settings.ldap_failures, self.settings.ldap_failures_window
        return RefusedBinds(self.reactor, self.wall, failures, window, self.settings.data_dir)

    @cached_property
    def bind_guard(self) -> BindGuard:
        return self.refused_binds.make_guard(self.installation.audit_key)

    @cached_property
    def directories(self) -> IDirectories:
        # Few servers use a directory, and the library takes time to load.
        from svc.authn.ldap.client import DirectoryClient  # noqa: PLC0415

        plain = self.settings.allow_plain_ldap
        return DirectoryClient(self.reactor, self.look_ups, client_tls, guard=self.bind_guard, allow_plain=plain)

    look_ups = _part(lambda s: HostResolver(s.reactor, s.reactor.nameResolver, s.settings.allow_private_providers))

    @cached_property
    def provider_client(self) -> GuardedClient:
        """The HTTP client for providers, at the allowed addresses."""
        http, private = self.settings.allow_http_providers, self.settings.allow_private_providers
        return GuardedClient(self.reactor, self.reactor.nameResolver, web_tls, allow_http=http, private_networks=private)

    def make_provider_keys(self, changed: Callable[[KeySource], object] = lambda _: None) -> ProviderKeys:
        """Return the key sets of third parties, fetched by this process; ``changed`` is called when one was."""
        settings = self.settings
        fetch = KeySetFetcher(self.provider_client, dict(settings.jwks_token_files)).fetch_key_set
        age, stale, interval = settings.jwks_max_age, settings.jwks_stale_if_error, settings.jwks_refetch_interval
        return ProviderKeys(fetch, self.reactor, interval, max_age=age, stale_if_error=stale, on_fetched=changed)

    @cached_property
    def security_tokens(self) -> SecurityTokenService:
        """The client of AWS's Security Token Service.

        :raises StartRefused: its address has no TLS, which the settings don't allow.
        """
        url = self.settings.aws_sts_url
        instead = None if url is None else StsAddress.parse(url)
        if instead is not None and not instead.secure and not self.settings.allow_http_providers:
            raise StartRefused(f"{self.settings.name_of('aws_sts_url')} is not https, and allow_http_providers is off")
        return SecurityTokenService(self.reactor, self.reactor.nameResolver, web_tls, instead)

    def make_liveness(self, written: Callable[[], object], read: Callable[[], object]) -> Liveness:
        """Return the liveness of the database: for writes and for reads, which are one unless those may go to standbys.

        ``written`` and ``read`` are called when it has gone or come back; ``read`` also when there is a primary again, since
        a round of checks is what makes this server ready to write.
        """
        database, connected = self.installation.database, self.installation.state.check_connection

        def changed() -> None:
            """Call both."""
            written()
            read()

        if not self.settings.reads_from_standby:
            both = DatabaseLiveness(self.reactor, connected, database.count_read_sessions, changed)
            return Liveness(both, both)
        writes = DatabaseLiveness(self.reactor, connected, database.count_write_sessions, changed, serves="changes")
        writes.setName("liveness of the primary")  # type: ignore[no-untyped-call] # Twisted's
        return Liveness(
            DatabaseLiveness(self.reactor, self.state.check_connection, self.read_source.count_read_sessions, read), writes
        )

    @cached_property
    def rotators(self) -> Mapping[str, IRotator]:
        """The ways in which values are rotated, by their names."""
        postgresql: IRotator = PostgresPasswordRotator(self.reactor, self.look_ups, client_tls)
        return {postgresql.name: postgresql}

    # The other servers of the cluster.

    @cached_property
    def member_clients(self) -> Mapping[str, MemberClient]:
        """The clients of the other servers of the cluster, each with the authorities that the settings name."""
        settings, reactor = self.settings, self.reactor
        common = self._trust(settings.cluster_ca, "cluster_ca")
        return {
            each.name: MemberClient(reactor, each, common if each.ca is None else self._trust(each.ca, "cluster"))
            for each in settings.cluster
        }

    def _trust(self, path: Path | None, field: str) -> Callable[[], Trust]:
        """Return the trust in the authorities of the file that a setting names; without one, in the platform's."""
        if path is None:
            return Trust
        key = self.settings.name_of(field)
        file = self.file_reloader.watch(Reloadable(f"{key} {path}", [path], lambda: load_trust(path, key)))
        return lambda: file.current

    record_questions = _part(lambda s: RecordQuestions(s.installation.vault, s.wall))

    # Audit.

    audit_output = _part(
        lambda s: AuditOutput(s.settings, s.installation.audit_key, s.audit_lock, s.audit_syslog, daemon=s.daemon)
    )

    @cached_property
    def journal(self) -> Journal:
        """The audit.

        :raises StartRefused: records can't be written where they are to go.
        """
        count_lost = None if self.metrics is None else self.metrics.count_lost_records
        return self.audit_output.make_journal(self.reactor, self.wall, count_lost)

    async def open_journal(self) -> None:
        """Start the audit, which stops after all that may record something; raises as ``journal``."""
        await add_child(self.services, self.journal).open()
        if self.audit_output.path is not None:
            self.file_reloader.at_hangup(self.journal.reopen)
        self.audit_output.log_destination()
        if self.metrics is not None:
            self.metrics.watch_backlogs(self.journal.backlog_sizes)
