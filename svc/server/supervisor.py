"""The supervisor of a server of several processes: it has the parts that exist once, and accepts no requests.

Note [Heard of soon]. The others answer ``/health`` from the last news that they got. News is sent when something has
changed, which is checked four times a second, and once a second in any case.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from svc.audit.recent_refusals import RecentRefusals
from svc.audit.shared_turn import SharedTurn
from svc.authn.ldap.bind_guard import AccountWanted, BindOver, EntryMissed, EntryWanted, LookWanted
from svc.authn.providers.copies import KeysAnswer, KeysQuestion, SharedKeys
from svc.authn.throttling import Failures
from svc.authn.used_signatures import UsedSignatures
from svc.model.errors import LoadsUnavailable, PasswordsBusy
from svc.model.turns import SharedTurns
from svc.processes.spawned import Spawned
from svc.processes.workforce import IOwner, Workforce, WorkforceProbe
from svc.server.bootstrap import Installation
from svc.server.duties import Duties, Ground, prepare, serve_metrics
from svc.server.lifecycle import ServerService, child
from svc.server.listening import Endpoint, listen, url_of
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
from svc.server.serverlog import Said
from svc.server.shared_page import make_page, slots_of
from svc.server.wrapped_logins import hashing_threads
from svc.settings.config import Settings
from svc.telemetry.exposition import Sums, metrics_site
from svc.telemetry.metrics import Metrics
from svc.worker import pool

#: Seconds between two checks for news, and checks after which it is sent in any case.
LOOK: Final = 0.25
LOOKS: Final = 4

#: Seconds that processes may take to send their counters, and between two requests for them by the server itself.
COUNTING: Final = 1.0
COUNTED: Final = 5.0

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
            port: Any = await listen(endpoint, _Nobody())
            # In the same turn of the reactor, so that no connection was accepted.
            port.stopReading()
            self._ports.append(port)
        return [url_of(port) for port in self._ports]

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


class Office(Service):
    """Answers the questions of serving processes, and sends them the news (Note [Heard of soon])."""

    name = "office"

    def __init__(self, ground: Ground, *, daemon: bool) -> None:
        self._ground, self._daemon = ground, daemon
        reactor, settings = ground.reactor, ground.settings
        self._failures = Failures(reactor, settings.trusted_proxies or (), self._refuse)
        assert ground.binds is not None
        self._binds = ground.binds
        self._signatures = UsedSignatures(reactor)
        self._refusals = RecentRefusals(ground.installation.wall)
        make = ground.parts.provider_keys
        self._keys = SharedKeys(reactor, make, self._tell)
        self._turns = {
            # Each process refuses what is more than its share of those that may wait.
            Scarce.HASHING: SharedTurns(hashing_threads(), sys.maxsize, sys.maxsize, lambda _: PasswordsBusy()),
            Scarce.LOADING: SharedTurns(pool.WORKERS, pool.WAITING, pool.EACH, LoadsUnavailable),
        }
        self._sums = None if ground.metrics is None else Sums(ground.metrics)
        self._told: ServerNews | None = None
        self._looks = 0
        self._loops = [(LoopingCall(self._look), LOOK), (LoopingCall(self._count), COUNTED)]
        for loop, _ in self._loops:
            loop.clock = reactor
        self._force: Workforce | None = None
        self._duties: Duties | None = None

    def open(self, force: Workforce, duties: Duties) -> None:
        """Begin to answer: these exist by now."""
        self._force, self._duties = force, duties
        self._ground.renewals.at_hangup(lambda: force.tell(HungUp()))
        self._ground.data_keys.told = lambda keys: force.tell(DataKeysRead(tuple(keys)))
        if (metrics := self._ground.metrics) is not None:
            metrics.watch_key_sets(self._keys.keys.ages)
            metrics.watch_workers(lambda: (force.serving, force.replaced))
            duties.watch(metrics)

    async def serve_counters(self, server: MultiService, endpoint: Endpoint) -> None:
        """Serve the counters of all processes."""
        if self._sums is not None:
            await serve_metrics(server, endpoint, metrics_site(self._sums, self._gather))

    def startService(self) -> None:
        """Begin to send news."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        for loop, seconds in self._loops:
            loop.start(seconds).addErrback(lambda failure: log.failure("Workers aren't told news any more", failure))

    def stopService(self) -> None:
        """Tell no more."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        for loop, _ in self._loops:
            if loop.running:
                loop.stop()

    def task(self, number: int) -> WorkerTask:
        """See ``IOffice``."""
        settings, installation = self._ground.settings, self._ground.installation
        return WorkerTask(
            number,
            settings.serving_processes,
            settings,
            self._daemon,
            installation.dsn,
            installation.vault.given,
            tuple(installation.vault.stored),
            installation.audit_key,
            self._news(),
            tuple(self._failures.refused()),
        )

    def heard(self, number: int, notice: object) -> None:
        """See ``IOffice``."""
        match notice:
            case Said() as said:
                said.log(f"worker {number}" if number else "a worker")
            case ClientLeft(client_ip=client_ip):
                self._failures.left(client_ip)
            case RefusalsSeen(refused=refused, complete=complete):
                self._refusals.hear(refused, complete=complete)
            case KeysUsed(source=source):
                self._keys.touch(source)
            case TurnOver(what=what, number=turn):
                self._turns[what].end(number, turn)
            case BindOver() as over:
                self._binds.end(number, over)

    async def asked(self, number: int, question: object) -> object:
        """See ``IOffice``."""
        duties = self._duties
        assert duties is not None
        match question:
            case FailureSeen(client_ip=client_ip, role=role, late=late):
                return await self._failures.failed(client_ip, role, late=late)
            case LookWanted() | AccountWanted() | EntryWanted() | EntryMissed():
                return await self._binds.answer(number, question)
            case SignatureSeen(signature=signature, address=address, again=again, lasting=lasting):
                if lasting is None:
                    return await self._signatures.used(signature, address, again)
                return await self._signatures.claim(signature, address, again, lasting)
            case PressureWanted(role=role):
                return await self._failures.pressure(role)
            case RefusalsWanted(query=query):
                return await self._refusals.recent(query)
            case KeysQuestion() as wanted:
                return await self._keys.answer(wanted)
            case TurnWanted(what=what, number=turn, whose=whose):
                await self._turns[what].take(number, turn, whose)
                return None
            case WriteWanted(doubtful=doubtful):
                if doubtful:
                    duties.rivals.doubt()
                await duties.rivals.demand()
                return None
            case ChallengeSeen(challenge=challenge):
                return self._ground.claims.is_own(challenge)
            case MemberWanted(name=name):
                return await duties.members.answer(name)
            case MembersWanted():
                return await duties.members.overview()
            case CertificatesWanted():
                return self._ground.port_certificates()
            case _:
                raise TypeError(f"{question} is no question to the process that supervises")

    def buried(self, number: int) -> None:
        """See ``IOffice``."""
        for turns in self._turns.values():
            turns.end(number)
        self._binds.bury(number)
        self._refusals.hear((), complete=False)  # it may have had some that it hadn't handed over
        if self._sums is not None:
            self._sums.bury(number)

    def _news(self) -> ServerNews:
        assert self._duties is not None
        return ServerNews(self._duties.checks_loop.report(self._ground.settings.dialect), self._duties.rivals.verdict)

    def _look(self) -> None:
        news = self._news()
        self._looks += 1
        if news != self._told or self._looks >= LOOKS:
            self._told, self._looks = news, 0
            self._tell(news)

    def _count(self) -> Deferred[None] | None:
        return None if self._sums is None else Deferred.fromCoroutine(self._gather())

    async def _gather(self) -> None:
        if self._force is not None and self._sums is not None:
            await self._force.ask_each(CountersWanted(), COUNTING, self._sums.keep)

    def _refuse(self, name: str, seconds: float) -> None:
        self._tell(AddressShut(name, seconds))

    def _tell(self, notice: ServerNews | AddressShut | KeysAnswer) -> None:
        if self._force is not None:
            self._force.tell(notice)


@attrs.frozen
class Supervision:
    """Make the process that supervises; as ``Composition``."""

    reactor: Any
    settings: Settings
    endpoints: Sequence[Endpoint]
    metrics_endpoint: Endpoint | None
    tell_admin_key: Callable[[str], bool] | None
    audit_syslog: IStreamClientEndpoint | None = None

    async def compose(self, server: ServerService, installation: Installation) -> Sequence[str]:
        """Make every part, each when those below it stand, and return the URLs of the ports."""
        reactor, settings, daemon = self.reactor, self.settings, self.tell_admin_key is None
        page = make_page(settings.serving_processes + 1)
        metrics = None if self.metrics_endpoint is None else Metrics()
        ground = Ground.lay(server, reactor, settings, installation, metrics, slots_of(page, 0))
        ground.watch_certificates(*filter(None, [self.metrics_endpoint]))
        await prepare(server, ground, self.tell_admin_key)
        office = Office(ground, daemon=daemon)
        ports = SharedPorts(self.endpoints)

        def start(owner: IOwner) -> Spawned:
            return Spawned.start(reactor, owner, [page, *ports.descriptors()])

        force = Workforce(reactor, settings.serving_processes, start, office, server.give_up)
        journal = functools.partial(ground.journal, server, self.audit_syslog, SharedTurn(page), daemon=daemon)
        duties = await Duties.assume(server, ground, journal, WorkforceProbe(force))
        office.open(force, duties)
        urls = await ports.open()
        child(server, office)
        child(server, force)
        child(server, ports)
        if self.metrics_endpoint is not None:
            await office.serve_counters(server, self.metrics_endpoint)
        await force.all_serve()
        server.answers = lambda: force.answers
        await duties.checks_loop.first_round()
        return urls
