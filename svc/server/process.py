"""A serving process, one of several: it makes the parts that answer requests, and asks the supervisor for the rest."""

from __future__ import annotations

import gc
import os
import signal
import socket
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall
from twisted.logger import Logger, globalLogBeginner
from twisted.python.failure import Failure

from svc.audit.journal import Journal
from svc.audit.recent_refusals import ReportedRefusals
from svc.audit.shared_turn import SharedTurn
from svc.authn.ldap.bind_guard import BindGuard
from svc.authn.providers.copies import CopiedKeys, KeysAnswer
from svc.authn.providers.waiting import ROOM
from svc.authn.throttling import ReportedFailures
from svc.authn.used_signatures import AskedSignatures
from svc.cluster.reports import MemberHealth, ProbeReply
from svc.cluster.told_verdict import ToldVerdict
from svc.crypto.vault import Vault
from svc.health.told_health import ToldHealth
from svc.model.clocks import run_steadily
from svc.model.databases import DatabaseIdentity
from svc.model.errors import Refusal, StartRefused, StoreUnavailable
from svc.model.turns import AskedTurns
from svc.processes.channel import ProcessChannel
from svc.processes.spawned import CONNECTION, INHERITED
from svc.processes.workforce import Begun, CannotServe, Leave, Ping, Pong, Ready
from svc.server.bootstrap import Installation
from svc.server.composition import Seams, Serving
from svc.server.duties import Certificate, Ground
from svc.server.endpoints import client_endpoint, inherited_endpoint
from svc.server.lifecycle import OrderedMultiService, child
from svc.server.listening import Endpoint
from svc.server.process_messages import (
    AddressShut,
    CertificatesWanted,
    ChallengeSeen,
    ClientLeft,
    CountersWanted,
    DataKeysRead,
    FailureSeen,
    HungUp,
    KeysUsed,
    MembersWanted,
    MemberWanted,
    PressureWanted,
    RefusalsSeen,
    RefusalsWanted,
    Scarce,
    ServerNews,
    SignatureSeen,
    TurnOver,
    TurnWanted,
    WorkerTask,
    WriteWanted,
)
from svc.server.serverlog import Forwarding, Repeats, Telling
from svc.server.shared_page import slots_of
from svc.server.shares import sessions_of, share_of
from svc.server.startup import reason_of
from svc.telemetry.metrics import Metrics

#: Seconds that another process may take over what itself may wait for another server.
_LONG: Final = 8.0

log = Logger()


@attrs.frozen
class _AskedMembers:
    """Provides ``IMembers`` by the process that polls the members."""

    channel: ProcessChannel

    async def answer(self, name: str) -> ProbeReply | None:
        """See ``IMembers``."""
        reply: ProbeReply | None = await self.channel.ask(MemberWanted(name), _LONG)
        return reply

    async def overview(self) -> list[MemberHealth]:
        """See ``IMembers``."""
        members: list[MemberHealth] = await self.channel.ask(MembersWanted(), _LONG)
        return members


class Worker:
    """The process: it waits for its task, serves until it has to stop, and ends at once when the supervisor is gone."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._channel = ProcessChannel(reactor, self._asked, self._heard, lambda: os._exit(1))
        self._services = OrderedMultiService()  # type: ignore[no-untyped-call] # Twisted's
        self._metrics: Metrics | None = None
        self._vault: Vault | None = None
        self._journal: Journal | None = None
        self._health: ToldHealth | None = None
        self._verdict: ToldVerdict | None = None
        self._failures: ReportedFailures | None = None
        self._keys: CopiedKeys | None = None

    def begin(self) -> None:
        """Say that the modules have been read."""
        repeats = Repeats(Forwarding(self._reactor, lambda said: self._channel.tell(said, droppable=True)), self._reactor)
        globalLogBeginner.beginLoggingTo([repeats], redirectStandardIO=False)
        child(self._services, Telling(repeats, self._reactor))
        self._reactor.adoptStreamConnection(CONNECTION, socket.AF_UNIX, Factory.forProtocol(lambda: self._channel))
        os.close(CONNECTION)
        self._channel.tell(Ready())

    async def _asked(self, question: object) -> object:
        match question:
            case CountersWanted():
                return [] if self._metrics is None else self._metrics.families()
            case _:
                raise TypeError(f"{question} is no question to a process that serves")

    def _heard(self, notice: object) -> None:
        match notice:
            case Ping():
                self._channel.tell(Pong(None if self._journal is None else self._journal.trouble), droppable=True)
            case ServerNews(report=report, verdict=verdict):
                if self._health is not None and self._verdict is not None:
                    self._health.hear(report)
                    self._verdict.hear(verdict)
            case KeysAnswer() as answer:
                if self._keys is not None:
                    self._keys.hear(answer)
            case AddressShut(name=name, seconds=seconds):
                if self._failures is not None:
                    self._failures.refuse(name, seconds)
            case DataKeysRead(keys=data_keys):
                if self._vault is not None:
                    self._vault.give(data_keys)
            case HungUp():
                # As if it had come here: its handlers are called.
                os.kill(os.getpid(), signal.SIGHUP)
            case WorkerTask() as task:
                Deferred.fromCoroutine(self._serve(task)).addErrback(self._failed)
            case Leave():
                Deferred.fromCoroutine(self._leave())

    async def _serve(self, task: WorkerTask) -> None:
        reactor, channel, services = self._reactor, self._channel, self._services
        services.startService()  # type: ignore[no-untyped-call] # Twisted's
        settings = share_of(task.settings, task.count)
        page, sockets = INHERITED, range(INHERITED + 1, INHERITED + 1 + len(settings.listen))
        metrics = self._metrics = None if settings.metrics_listen is None else Metrics()
        endpoints = [self._endpoint(text, descriptor) for text, descriptor in zip(settings.listen, sockets, strict=True)]
        syslog = None if settings.audit_syslog is None else client_endpoint(reactor, settings.audit_syslog)
        sessions = sessions_of(task.count)
        vault = self._vault = Vault(*task.data_keys)
        vault.adopt(task.stored_keys)
        installation = await Installation.joined(services, reactor, settings, task.dsn, vault, task.audit_key, sessions)
        slots = slots_of(page, task.number)
        # An answer takes as long as the turn that it is about; its waiting callers have deadlines of their own.
        guard = BindGuard(lambda question: channel.ask(question, None), channel.tell, task.audit_key)
        ground = Ground.lay(services, reactor, settings, installation, metrics, slots, worker=task.number, guard=guard)
        ground.watch_certificates(*endpoints)
        journal = self._journal = await ground.journal(services, syslog, SharedTurn(page), daemon=task.daemon)
        health = self._health = ToldHealth(reactor, installation.wall, settings.health_interval, task.news.report)
        verdict = self._verdict = ToldVerdict(
            reactor, task.news.verdict, lambda doubtful: channel.ask(WriteWanted(doubtful), _LONG)
        )
        pulses = ground.pulses(services, verdict.doubt, lambda: None)
        self._refresh(ground, settings.health_interval)
        if settings.login_throttle:
            self._failures = ReportedFailures(
                reactor,
                self._delay,
                lambda client_ip: channel.tell(ClientLeft(client_ip), droppable=True),
                lambda role: channel.ask(PressureWanted(role)),
            )
            for name, seconds in task.refused:
                self._failures.refuse(name, seconds)
        keys = self._keys = CopiedKeys(
            reactor,
            lambda question: channel.ask(question, None),
            lambda source: channel.tell(KeysUsed(source), droppable=True),
            settings.jwks_max_age,
            ROOM // task.count,
        )

        async def identity(challenge: str) -> DatabaseIdentity | None:
            """Return the identity of the database, unless the challenge is this server's own."""
            own = await channel.ask(ChallengeSeen(challenge))
            return None if own else await ground.replication.identity()

        async def certificates() -> list[Certificate]:
            """Return the certificates of the server: those that this process shows, and the other one's."""
            return [*ground.certificates(), *await channel.ask(CertificatesWanted())]

        seams = Seams(
            health,
            verdict,
            _AskedMembers(channel),
            identity,
            certificates,
            self._failures,
            keys,
            ReportedRefusals(
                reactor,
                installation.wall,
                lambda refused, complete: channel.tell(RefusalsSeen(refused, complete), droppable=True),
                lambda query: channel.ask(RefusalsWanted(query)),
            ),
            AskedSignatures(
                lambda signature, address, again: channel.ask(SignatureSeen(signature, address, again)),
                lambda *claimed: channel.ask(SignatureSeen(*claimed)),
            ),
            self._turns(Scarce.HASHING),
            self._turns(Scarce.LOADING),
            task.count,
        )
        await Serving(services, ground, seams, journal, pulses).open(endpoints)
        gc.collect()
        gc.freeze()  # ``startup``, Note [Garbage]
        channel.tell(Begun())

    def _endpoint(self, text: str, descriptor: int) -> Endpoint:
        try:
            return inherited_endpoint(self._reactor, text, descriptor)
        except Exception as error:  # the types of endpoints are plugins, and raise what they like
            raise StartRefused(f"{text} can't be listened at: {error}") from None

    async def _delay(self, client_ip: str, role: str, late: bool) -> float:
        try:
            delay: float = await self._channel.ask(FailureSeen(client_ip, role, late))
        except StoreUnavailable:
            return 0.0  # the answer was late enough
        return delay

    def _turns(self, what: Scarce) -> AskedTurns:
        channel = self._channel
        return AskedTurns(
            lambda number, whose: channel.ask(TurnWanted(what, number, whose), None),
            lambda number: channel.tell(TurnOver(what, number)),
        )

    def _refresh(self, ground: Ground, interval: float) -> None:
        """Learn with each round of health which signing keys retire."""

        async def refresh() -> None:
            try:
                await ground.keys.refresh()
            except Refusal:
                """The next round tries again, and the pool says so in the log."""

        loop = LoopingCall(lambda: Deferred.fromCoroutine(refresh()))
        loop.clock = self._reactor
        loop.start(interval, now=False).addErrback(lambda failure: log.failure("Keys are not learnt to retire", failure))

    def _failed(self, failure: Failure) -> None:
        match failure.value:
            case Refusal() as refusal:
                why = reason_of(refusal)
            case error:
                log.failure("A worker met a fault in the program", failure)
                why = f"a fault in the program: {type(error).__name__}: {error}"
        self._channel.tell(CannotServe(why))
        self._reactor.callLater(0.1, os._exit, 1)

    async def _leave(self) -> None:
        if self._services.running:
            await self._services.stopService()
        self._reactor.stop()


def main() -> None:
    """Run the process."""
    from twisted.internet import reactor as installed  # noqa: PLC0415 - the process has just been started

    reactor: Any = installed
    run_steadily(reactor)
    _ignore_signals()
    reactor.callWhenRunning(_ignore_signals)  # the reactor has put up handlers of its own
    reactor.callWhenRunning(Worker(reactor).begin)
    reactor.run()


def _ignore_signals() -> None:
    """Ignore signals: a terminal and an init system send them to all processes; this one obeys the supervisor."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
