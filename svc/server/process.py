"""A serving process, one of several: it makes the parts that answer requests, and asks the supervisor for the rest."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory
from twisted.logger import Logger, globalLogBeginner
from twisted.python.failure import Failure

from svc.audit.file_lock import SharedFileLock
from svc.audit.recent_refusals import RemoteRefusals
from svc.authn.ldap.bind_guard import BindGuard
from svc.authn.providers.copies import RemoteKeys
from svc.authn.providers.fetch_waiters import BUDGET_BYTES
from svc.authn.throttling import RemoteFailures
from svc.authn.used_signatures import RemoteSignatures
from svc.cluster.remote_write_gate import SupervisorWriteGate
from svc.cluster.reports import MemberHealth, ProbeReply
from svc.crypto.vault import Vault
from svc.health.checks_loop import RemoteHealth
from svc.health.liveness import Liveness
from svc.model.background import PeriodicService
from svc.model.clocks import use_steady_clock
from svc.model.databases import DatabaseIdentity
from svc.model.errors import Refusal, StartRefused, StoreUnavailable
from svc.model.listed_authenticators import ListedAuthenticators
from svc.model.permits import RemotePermits
from svc.model.readings import ReadingBatch
from svc.processes.channel import ANSWER_TIMEOUT, ProcessChannel
from svc.processes.spawned import CONNECTION, INHERITED
from svc.processes.workforce import CannotServe, Ping, Pong, Ready, ServingStarted, StopServing
from svc.server.bootstrap import Installation
from svc.server.certificates import Certificate
from svc.server.endpoints import client_endpoint, inherited_endpoint
from svc.server.graph import Server
from svc.server.lifecycle import OrderedMultiService, add_child
from svc.server.listening import Endpoint
from svc.server.process_messages import PermitKind, RemoteCall, ServerNews, WorkerTask
from svc.server.serverlog import ForwardingObserver, RepeatFilter, RepeatReporter
from svc.server.serving import load_console
from svc.server.shared_page import map_commit_counters
from svc.server.shares import limit_settings, share_sessions
from svc.server.startup import describe_refusal
from svc.services.reading_counts import Counts
from svc.telemetry.metrics import Metrics

#: Seconds that another process may take over what itself may wait for another server.
_LONG: Final = 8.0

log = Logger()


@attrs.frozen
class Remote:
    """The functions that the supervisor exposes (``supervisor``, Note [Remote calls])."""

    channel: ProcessChannel

    async def call(self, name: str, *arguments: object, within: float | None = ANSWER_TIMEOUT) -> Any:
        """Return the result of a function, which may take so many seconds; raises as ``ProcessChannel.send_question``."""
        return await self.channel.send_question(RemoteCall(name, arguments), within)

    def send(self, name: str, *arguments: object, droppable: bool = True) -> None:
        """Call a function whose result isn't needed."""
        self.channel.send_notice(RemoteCall(name, arguments), droppable=droppable)


@attrs.frozen
class _RemoteMembers:
    """Provides ``IMembers`` by the process that polls the members."""

    remote: Remote

    async def fetch_health(self, name: str) -> ProbeReply | None:
        """See ``IMembers``."""
        reply: ProbeReply | None = await self.remote.call("fetch_member_health", name, within=_LONG)
        return reply

    async def list_health(self) -> list[MemberHealth]:
        """See ``IMembers``."""
        members: list[MemberHealth] = await self.remote.call("list_members", within=_LONG)
        return members


@attrs.frozen(slots=False, eq=False)
class RemoteSingletons:
    """Provides ``SharedParts`` by the supervisor: copies of its state, and remote calls."""

    server: WorkerServer
    remote: Remote
    task: WorkerTask

    @property
    def processes(self) -> int:
        """How many processes serve."""
        return self.task.count

    @cached_property
    def hashing(self) -> RemotePermits:
        """The permits to hash passwords."""
        return self._permits(PermitKind.HASHING)

    @cached_property
    def loading(self) -> RemotePermits:
        """The permits to load large policies."""
        return self._permits(PermitKind.LOADING)

    @cached_property
    def searching(self) -> RemotePermits:
        """The permits to search the audit's files."""
        return self._permits(PermitKind.SEARCHING)

    def _permits(self, what: PermitKind) -> RemotePermits:
        # A permit takes as long as its holder needs; waiting callers have deadlines of their own.
        return RemotePermits(
            partial(self.remote.call, "take_permit", what, within=None),
            partial(self.remote.send, "release_permit", what, droppable=False),
        )

    @cached_property
    def health(self) -> RemoteHealth:
        """The last report of the health checks."""
        server, report = self.server, self.task.news.report
        return RemoteHealth(server.reactor, server.wall, server.settings.health_interval, report)

    @cached_property
    def write_gate(self) -> SupervisorWriteGate:
        """The last decision on writes beside other primaries."""
        demand = partial(self.remote.call, "ensure_writable", within=_LONG)
        return SupervisorWriteGate(self.server.reactor, self.task.news.decision, demand)

    @cached_property
    def members(self) -> _RemoteMembers:
        """The health of the other servers."""
        return _RemoteMembers(self.remote)

    @cached_property
    def failures(self) -> RemoteFailures | None:
        """The count of failed logins."""
        if not self.server.settings.login_throttle:
            return None
        failures = RemoteFailures(
            self.server.reactor,
            self._fail_login,
            partial(self.remote.send, "count_client_left"),
            partial(self.remote.call, "read_throttle"),
        )
        for name, seconds in self.task.refused_addresses:
            failures.refuse_address(name, seconds)
        return failures

    async def _fail_login(self, client_ip: str, role: str, late: bool) -> float:
        try:
            delay: float = await self.remote.call("fail_login", client_ip, role, late)
        except StoreUnavailable:
            return 0.0  # the answer was late enough
        return delay

    @cached_property
    def provider_keys(self) -> RemoteKeys:
        """The key sets of third parties."""
        return RemoteKeys(
            self.server.reactor,
            partial(self.remote.call, "fetch_keys", within=None),
            partial(self.remote.send, "note_keys_used"),
            self.server.settings.jwks_max_age,
            BUDGET_BYTES // self.task.count,
        )

    @cached_property
    def refusals(self) -> RemoteRefusals:
        """The requests that all processes refused in the last hour."""
        return RemoteRefusals(
            self.server.reactor,
            self.server.wall,
            lambda refused, complete: self.remote.channel.send_notice(
                RemoteCall("note_refusals", (refused, complete)), droppable=True
            ),
            partial(self.remote.call, "list_refusals"),
        )

    @cached_property
    def signatures(self) -> RemoteSignatures:
        """The signatures that have admitted somebody."""
        return RemoteSignatures(partial(self.remote.call, "is_signature_used"), partial(self.remote.call, "claim_signature"))

    @cached_property
    def liveness(self) -> Liveness:
        """The liveness of this process's sessions with the database."""
        return self.server.make_liveness(self.write_gate.require_poll, lambda: None)

    async def identify_database(self, challenge: str) -> DatabaseIdentity | None:
        """See ``SharedParts``."""
        if await self.remote.call("is_own_challenge", challenge):
            return None
        return await self.server.replication.read_identity()

    async def list_certificates(self) -> Sequence[Certificate]:
        """See ``SharedParts``: those that this process shows, and the supervisor's."""
        return [*self.server.certificates.describe_all(), *await self.remote.call("list_port_certificates")]

    def add_readings(self, counts: Counts, lost_days: Collection[int]) -> None:
        """See ``SharedParts``: the supervisor writes them."""
        self.remote.send("add_readings", counts, lost_days, droppable=False)

    async def hand_out_readings(self, source: str, confirmed: int) -> ReadingBatch:
        """See ``SharedParts``."""
        batch: ReadingBatch = await self.remote.call("hand_out_readings", source, confirmed)
        return batch


@attrs.frozen(slots=False, eq=False, kw_only=True)
class WorkerServer(Server):
    """A process that serves, one of several."""

    remote: Remote
    task: WorkerTask

    @cached_property
    def shared(self) -> RemoteSingletons:
        """The parts that exist once per server."""
        return RemoteSingletons(self, self.remote, self.task)

    @cached_property
    def listed(self) -> ListedAuthenticators:
        """The authenticators that the server's configuration lists now: it may have been read again since the start."""
        return ListedAuthenticators(self.task.news.authenticators)

    @cached_property
    def bind_guard(self) -> BindGuard:
        """The questions before a bind: the supervisor counts the refusals."""
        return BindGuard(
            partial(self.remote.call, "guard_bind", within=None),
            partial(self.remote.send, "end_bind", droppable=False),
            self.installation.audit_key,
        )

    async def serve(self, endpoints: Sequence[Endpoint]) -> None:
        """Start all, in this order.

        :raises StartRefused: audit records can't be written, or an endpoint can't be listened at.
        """
        self.start()
        await self.open_journal()
        self.shared.liveness.start(self.services)
        failed, interval = "Retired keys could not be looked for", self.settings.health_interval
        PeriodicService(self.reactor, interval, self._refresh_keys, log, failed, at_once=False).startService()
        await self.open(endpoints)

    async def _refresh_keys(self) -> None:
        """Read with each round of health which signing keys are retired."""
        try:
            await self.keys.refresh()
        except Refusal:
            """The next round tries again, and the pool logs it."""

    def update_news(self, news: ServerNews) -> None:
        """Keep the state of the server that the supervisor sends."""
        self.shared.health.receive_report(news.report)
        self.shared.write_gate.receive_decision(news.decision)
        if news.authenticators != self.listed.items:
            self.listed.replace_items(news.authenticators)

    def refuse_address(self, name: str, seconds: float) -> None:
        """Refuse logins from an address for so many seconds."""
        if self.shared.failures is not None:
            self.shared.failures.refuse_address(name, seconds)

    @property
    def exposed(self) -> Mapping[str, Callable[..., object]]:
        """The functions that the supervisor may call."""
        return {
            "update_news": self.update_news,
            "refuse_address": self.refuse_address,
            "update_keys": self.shared.provider_keys.receive_response,
            "adopt_data_keys": self.installation.vault.set_keys,
            # As if the signal had come here: its handlers are called.
            "hang_up": lambda: os.kill(os.getpid(), signal.SIGHUP),
            "list_counters": lambda: [] if self.metrics is None else self.metrics.collect_families(),
        }


class Worker:
    """The process: it waits for its task, serves until it has to stop, and ends at once when the supervisor is gone."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._channel = ProcessChannel(reactor, self._answer, self._hear, lambda: os._exit(1))
        self._services = OrderedMultiService()  # type: ignore[no-untyped-call] # Twisted's
        #: The server that this process is, once it has its task, and the calls that came while it was made.
        self._server: WorkerServer | None = None
        self._early_calls: list[RemoteCall] = []

    def begin(self) -> None:
        """Say that the modules have been read."""
        repeats = RepeatFilter(
            ForwardingObserver(self._reactor, lambda event: self._channel.send_notice(event, droppable=True)), self._reactor
        )
        globalLogBeginner.beginLoggingTo([repeats], redirectStandardIO=False)
        add_child(self._services, RepeatReporter(repeats, self._reactor))
        self._reactor.adoptStreamConnection(CONNECTION, socket.AF_UNIX, Factory.forProtocol(lambda: self._channel))
        os.close(CONNECTION)
        self._channel.send_notice(Ready())

    async def _answer(self, question: object) -> object:
        match question:
            case RemoteCall(name=name, arguments=arguments) if self._server is not None:
                return self._server.exposed[name](*arguments)
            case _:
                raise TypeError(f"{question} is no question to a process that serves")

    def _hear(self, notice: object) -> None:
        match notice:
            case Ping():
                trouble = None if self._server is None else self._server.journal.failure
                self._channel.send_notice(Pong(trouble), droppable=True)
            case RemoteCall() as call if self._server is None:
                self._early_calls.append(call)
            case RemoteCall(name=name, arguments=arguments) if self._server is not None:
                self._server.exposed[name](*arguments)
            case WorkerTask() as task:
                Deferred.fromCoroutine(self._serve(task)).addErrback(self._report_failure)
            case StopServing():
                Deferred.fromCoroutine(self._stop_serving())

    async def _serve(self, task: WorkerTask) -> None:
        reactor, services = self._reactor, self._services
        services.startService()  # type: ignore[no-untyped-call] # Twisted's
        settings = limit_settings(task.settings, task.count)
        page, sockets = INHERITED, range(INHERITED + 1, INHERITED + 1 + len(settings.listen))
        endpoints = [
            self._inherit_endpoint(text, descriptor) for text, descriptor in zip(settings.listen, sockets, strict=True)
        ]
        vault = Vault(*task.data_keys)
        vault.use_stored_keys(task.stored_keys)
        installation = await Installation.join_running(
            services, reactor, settings, task.dsn, vault, task.audit_key, share_sessions(task.count)
        )
        server = self._server = WorkerServer(
            reactor=reactor,
            settings=settings,
            installation=installation,
            services=services,
            commit_counters=map_commit_counters(page, task.number),
            metrics=None if settings.metrics_listen is None else Metrics(),
            endpoints=endpoints,
            audit_syslog=None if settings.audit_syslog is None else client_endpoint(reactor, settings.audit_syslog),
            audit_lock=SharedFileLock(page),
            daemon=task.daemon,
            worker=task.number,
            make_console=load_console(settings),
            remote=Remote(self._channel),
            task=task,
        )
        for call in self._early_calls:
            server.exposed[call.name](*call.arguments)
        await server.serve(endpoints)
        gc.collect()
        gc.freeze()  # ``startup``, Note [Garbage]
        self._channel.send_notice(ServingStarted())

    def _inherit_endpoint(self, text: str, descriptor: int) -> Endpoint:
        try:
            return inherited_endpoint(self._reactor, text, descriptor)
        except Exception as error:  # the types of endpoints are plugins, and raise what they like
            raise StartRefused(f"{text} can't be listened at: {error}") from None

    def _report_failure(self, failure: Failure) -> None:
        match failure.value:
            case Refusal() as refusal:
                why = describe_refusal(refusal)
            case error:
                log.failure("A worker met a fault in the program", failure)
                why = f"a fault in the program: {type(error).__name__}: {error}"
        self._channel.send_notice(CannotServe(why))
        self._reactor.callLater(0.1, os._exit, 1)

    async def _stop_serving(self) -> None:
        if self._services.running:
            await self._services.stopService()
        self._reactor.stop()


def main() -> None:
    """Run the process."""
    from twisted.internet import reactor as installed  # noqa: PLC0415 - the process has just been started

    reactor: Any = installed
    use_steady_clock(reactor)
    _ignore_signals()
    reactor.callWhenRunning(_ignore_signals)  # the reactor has put up handlers of its own
    reactor.callWhenRunning(Worker(reactor).begin)
    reactor.run()


def _ignore_signals() -> None:
    """Ignore signals: a terminal and an init system send them to all processes; this one obeys the supervisor."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
