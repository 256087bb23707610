"""The supervisor of a server of several processes: it has the parts that exist once, and accepts no requests.

Note [Heard of soon]. The others answer ``/health`` from the last news that they got. News is sent when something has
changed, which is checked four times a second, and once a second in any case.

Note [Remote calls]. A serving process calls functions of this one by name (``RemoteCall``): ``_expose`` lists them. Its
permits and binds are kept here under its number, and released when it dies.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import attrs
from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from svc.audit.file_lock import SharedFileLock
from svc.audit.recent_refusals import RecentRefusals
from svc.audit.search_permits import SearchPermits
from svc.authn.providers.copies import KeysResponse, SharedKeys
from svc.authn.throttling import Failures
from svc.authn.used_signatures import UsedSignatures
from svc.crypto.passwords import count_hashing_threads
from svc.model.background import PeriodicService
from svc.model.errors import LoadsUnavailable, PasswordsBusy
from svc.model.permits import PermitPool
from svc.processes.spawned import WorkerProcess
from svc.processes.workforce import IWorkerListener, Workforce, WorkforceProbe
from svc.server.bootstrap import StartPlan
from svc.server.first_account import prepare_account
from svc.server.foundation import Foundation
from svc.server.lifecycle import Started, add_child
from svc.server.listening import Endpoint, listen_at, port_url, serve_metrics
from svc.server.process_messages import PermitKind, RemoteCall, ServerNews, WorkerTask
from svc.server.serverlog import ForwardedEvent
from svc.server.shared_page import make_shared_page, map_commit_counters
from svc.server.singletons import Singletons
from svc.telemetry.exposition import AggregatedMetrics, metrics_site
from svc.telemetry.metrics import Metrics
from svc.worker import pool

#: Seconds between two checks for news, and checks after which it is sent in any case.
NEWS_INTERVAL: Final = 0.25
CHECKS_UNTIL_SENT: Final = 4

#: Seconds that processes may take to send their counters, and between two requests for them by the server itself.
COUNTERS_TIMEOUT: Final = 1.0
COUNTERS_INTERVAL: Final = 5.0

log = Logger()


class _Nobody(Factory):
    """Accepts no connections: the port is opened for other processes."""

    noisy = False

    def logPrefix(self) -> str:
        """Return what Twisted's log calls the port."""
        return "The port of the workers"


class SharedPorts(Service):
    """Ports that other processes accept at."""

    name = "ports"

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._ports: list[IListeningPort] = []

    async def open(self) -> list[str]:
        """Listen at every endpoint and return the URLs.

        :raises StartRefused: one of them can't be listened at.
        """
        for endpoint in self._endpoints:
            port: Any = await listen_at(endpoint, _Nobody())
            # In the same iteration of the reactor, so that no connection was accepted.
            port.stopReading()
            self._ports.append(port)
        return [port_url(port) for port in self._ports]

    def descriptors(self) -> list[int]:
        """Return the descriptors of the sockets."""
        ports: list[Any] = [*self._ports]
        return [port.fileno() for port in ports]

    def stopService(self) -> Deferred[None]:
        """Close the ports; other processes close their own copies."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        for port in self._ports:
            await maybeDeferred(port.stopListening)


class WorkerCoordinator(MultiService):
    """Answers the questions of serving processes, and sends them the news (Note [Heard of soon])."""

    name = "worker-coordinator"

    def __init__(self, supervisor: Supervisor) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Twisted's
        self._supervisor = supervisor
        reactor, settings = supervisor.reactor, supervisor.settings
        self._failures = Failures(reactor, settings.trusted_proxies or (), self._refuse_address)
        self._signatures = UsedSignatures(reactor)
        self._refusals = RecentRefusals(supervisor.wall)
        self.keys = SharedKeys(reactor, supervisor.make_provider_keys, self._send_keys)
        self._permits = {
            # Each process refuses what is more than its share of those that may wait.
            PermitKind.HASHING: PermitPool(count_hashing_threads(), sys.maxsize, sys.maxsize, lambda _: PasswordsBusy()),
            PermitKind.LOADING: PermitPool(pool.MAX_WORKERS, pool.MAX_WAITING, pool.MAX_PER_CALLER, LoadsUnavailable),
            PermitKind.SEARCHING: SearchPermits(),
        }
        self._exposed = self._expose()
        self.sums = None if supervisor.metrics is None else AggregatedMetrics(supervisor.metrics)
        self._sent: ServerNews | None = None
        self._checks_since_sent = 0
        failed = "Workers get no news"
        for interval, work in ((NEWS_INTERVAL, self._send_news), (COUNTERS_INTERVAL, self.gather_counters)):
            add_child(self, PeriodicService(reactor, interval, work, log, failed))

    def _expose(self) -> Mapping[str, Callable[..., object]]:
        """Return the functions that processes may call; each gets the number of its caller first."""
        supervisor, shared, binds = self._supervisor, self._supervisor.singletons, self._supervisor.refused_binds

        def ensure_writable(_: int, doubtful: bool) -> object:
            """Return when a write may begin; ``doubtful``: the process's database was away."""
            if doubtful:
                shared.split_brain.require_poll()
            return shared.split_brain.wait_until_writable()

        return {
            "fail_login": lambda _, address, role, late: self._failures.count_failure(address, role, late=late),
            "count_client_left": lambda _, address: self._failures.count_address_failure(address),
            "read_throttle": lambda _, role: self._failures.read_throttle(role),
            "note_refusals": lambda _, refused, complete: self._refusals.add_batch(refused, complete=complete),
            "list_refusals": lambda _, query: self._refusals.find_recent(query),
            "is_signature_used": lambda _, *used: self._signatures.is_used(*used),
            "claim_signature": lambda _, *claimed: self._signatures.claim_signature(*claimed),
            "fetch_keys": lambda _, question: self.keys.answer_request(question),
            "note_keys_used": lambda _, source: self.keys.mark_used(source),
            "take_permit": lambda number, what, permit, role: self._permits[what].acquire(number, permit, role),
            "release_permit": lambda number, what, permit: self._permits[what].release(number, permit),
            "guard_bind": binds.answer_request,
            "end_bind": binds.end_bind,
            "ensure_writable": ensure_writable,
            "is_own_challenge": lambda _, challenge: supervisor.claims.is_own_challenge(challenge),
            "fetch_member_health": lambda _, name: shared.members.fetch_health(name),
            "list_members": lambda _: shared.members.list_health(),
            "add_readings": lambda _, counts, lost_days: shared.add_readings(counts, lost_days),
            "hand_out_readings": lambda _, source, confirmed: shared.hand_out_readings(source, confirmed),
            "list_port_certificates": lambda _: supervisor.certificates.describe_ports(),
        }

    def make_task(self, number: int) -> WorkerTask:
        """See ``IWorkerCoordinator``."""
        settings, installation = self._supervisor.settings, self._supervisor.installation
        return WorkerTask(
            number=number,
            count=settings.serving_processes,
            settings=settings,
            daemon=self._supervisor.daemon,
            dsn=installation.dsn,
            data_keys=installation.vault.given_keys,
            stored_keys=tuple(installation.vault.stored),
            audit_key=installation.audit_key,
            news=self._build_news(),
            refused_addresses=tuple(self._failures.refused_addresses()),
        )

    def handle_notice(self, number: int, notice: object) -> None:
        """See ``IWorkerCoordinator``."""
        match notice:
            case ForwardedEvent() as event:
                event.log_locally(f"worker {number}" if number else "a worker")
            case RemoteCall(name=name, arguments=arguments):
                self._exposed[name](number, *arguments)

    async def answer_question(self, number: int, question: object) -> object:
        """See ``IWorkerCoordinator``."""
        if not isinstance(question, RemoteCall):
            raise TypeError(f"{question} is no question to the process that supervises")
        result = self._exposed[question.name](number, *question.arguments)
        return await result if inspect.isawaitable(result) else result

    def release_worker(self, number: int) -> None:
        """See ``IWorkerCoordinator``."""
        for permits in self._permits.values():
            permits.release(number)
        self._supervisor.refused_binds.release_process(number)
        self._refusals.add_batch((), complete=False)  # it may have had some that it hadn't handed over
        if self.sums is not None:
            self.sums.retire_process(number)

    def _build_news(self) -> ServerNews:
        singletons = self._supervisor.singletons
        return ServerNews(
            singletons.checks_loop.last_report(self._supervisor.settings.dialect),
            singletons.split_brain.decision,
            self._supervisor.listed.items,
        )

    def _send_news(self) -> None:
        news = self._build_news()
        self._checks_since_sent += 1
        if news != self._sent or self._checks_since_sent >= CHECKS_UNTIL_SENT:
            self._sent, self._checks_since_sent = news, 0
            self._supervisor.call_workers("update_news", news)

    async def gather_counters(self) -> None:
        """Query all processes for their counters."""
        if self.sums is not None:
            await self._supervisor.workforce.question_all(
                RemoteCall("list_counters"), COUNTERS_TIMEOUT, self.sums.update_process
            )

    def _refuse_address(self, name: str, seconds: float) -> None:
        self._supervisor.call_workers("refuse_address", name, seconds)

    def _send_keys(self, answer: KeysResponse) -> None:
        self._supervisor.call_workers("update_keys", answer)


@attrs.frozen(slots=False, eq=False, kw_only=True)
class Supervisor(Foundation):
    """The process that supervises; ``served`` are the endpoints at which others accept, and ``page`` their shared memory."""

    served: Sequence[Endpoint]
    page: int
    give_up: Callable[[str], object]

    @cached_property
    def ports(self) -> SharedPorts:
        """The ports at which the workers accept."""
        return SharedPorts(self.served)

    @cached_property
    def workforce(self) -> Workforce:
        """The processes that serve."""

        def start(owner: IWorkerListener) -> WorkerProcess:
            return WorkerProcess.start(self.reactor, owner, [self.page, *self.ports.descriptors()])

        return Workforce(self.reactor, self.settings.serving_processes, start, lambda: self.coordinator, self.give_up)

    @cached_property
    def singletons(self) -> Singletons:
        """The parts that exist once per server."""
        return Singletons(self, [WorkforceProbe(self.workforce)])

    @cached_property
    def coordinator(self) -> WorkerCoordinator:
        """The other end of the workers' questions."""
        return WorkerCoordinator(self)

    def call_workers(self, name: str, *arguments: object) -> None:
        """Call a function of all workers that serve."""
        self.workforce.notify_all(RemoteCall(name, arguments))

    def distribute_data_keys(self, keys: Sequence[bytes]) -> None:
        """Have the workers use data keys that were read again."""
        self.call_workers("adopt_data_keys", tuple(keys))


async def start_supervisor(plan: StartPlan) -> Started:
    """Start the process that supervises, and the processes that serve; as ``start_server``."""
    page = make_shared_page(plan.settings.serving_processes + 1)
    metrics = None if plan.metrics_endpoint is None else Metrics()
    supervisor = Supervisor(
        reactor=plan.reactor,
        settings=plan.settings,
        installation=plan.installation,
        services=plan.services,
        commit_counters=map_commit_counters(page, 0),
        metrics=metrics,
        endpoints=[*filter(None, [plan.metrics_endpoint])],
        audit_syslog=plan.audit_syslog,
        audit_lock=SharedFileLock(page),
        daemon=plan.show_admin_key is None,
        served=plan.endpoints,
        page=page,
        give_up=plan.services.give_up,
    )
    coordinator, force, singletons = supervisor.coordinator, supervisor.workforce, supervisor.singletons
    supervisor.start()
    announced = await prepare_account(supervisor, plan.show_admin_key)
    await singletons.start()
    supervisor.file_reloader.at_hangup(lambda: supervisor.call_workers("hang_up"))
    urls = await supervisor.ports.open()
    for service in (coordinator, force, supervisor.ports):
        add_child(plan.services, service)
    if plan.metrics_endpoint is not None and metrics is not None and coordinator.sums is not None:
        metrics.watch_key_sets(coordinator.keys.keys.key_set_ages)
        metrics.watch_workers(lambda: (force.serving_count, force.replaced))
        singletons.watch(metrics)
        site = metrics_site(coordinator.sums, coordinator.gather_counters)
        await serve_metrics(plan.services, plan.metrics_endpoint, site)
    await force.wait_until_serving()
    await singletons.checks_loop.first_round()
    supervisor.effective_settings.note_urls(urls)
    return Started(urls, announced, lambda: force.is_responsive)
