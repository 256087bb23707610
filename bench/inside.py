"""The cost of a request inside one process, without a parser and a database: from its head to its answer, in µs of CPU.

The routes, use cases, stores and authenticators are the service's own, with its audit in a file. Their database answers at
once with the rows that PostgreSQL would return. So this is the cost of our own Python, with the cryptography.
"""

from __future__ import annotations

import base64
import json
import statistics
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from bench import settings
from bench.report import Figure, Part
from bench.server import ACCOUNT, SERVICE, say
from bench.world import AUDIENCE, ISSUER, SUBSCRIPTION, Provider
from bench.world import GROUP as RESOURCE_GROUP
from svc.authn.providers.keys import ProviderKeys
from svc.authn.throttling import RefusalPace
from svc.crypto.key_sets import parse_key_set
from svc.crypto.tokens import new_signing_key
from svc.crypto.vault import Vault, api_key_name
from svc.health.checks_loop import ChecksLoop
from svc.model.authentication import Admitted, KeySource
from svc.model.clocks import MachineClock, WallClock
from svc.model.counts import PoolCounts
from svc.model.databases import ReplicationPosition
from svc.model.dialect import NATIVE
from svc.model.key_sets import KeySet
from svc.model.names import RoleName
from svc.model.probes import IProbe
from svc.model.versions import StateVersion
from svc.server.bootstrap import Installation
from svc.server.graph import Server
from svc.server.singletons import Singletons
from svc.settings.reading import read_settings
from svc.storage.accounts import AccountStore
from svc.storage.cache.commit_counters import CommitCounters
from svc.storage.database_state import DatabaseState
from svc.storage.driver.statements import Statement
from svc.telemetry.metrics import Metrics
from svc.web.http.messages import IncomingRequest, Response
from svc.web.http.request_reader import Fields
from svc.web.routes.health import Health

#: Hosts that ask in turn, seconds of each run of a route, and runs, of which the median counts.
HOSTS: Final = 150
SECONDS: Final = 0.3
RUNS: Final = 5

KEY: Final = b"0123456789abcdefghjkmnpqrstvwxyz0123456789abcdefghjk"

_SERVICES: Final = ("core", "authz", "host-factory", "pubkeys", "authn", "audit", "ldap", "expiration")


#: The caller's rights on every resource, as a row of the database.
_FACTS: Final = (True, True, False, ["read", "execute"], False, f"{ACCOUNT}:policy:root")

Rows = list[tuple[Any, ...]]


@attrs.frozen
class Prepared:
    """A request that can be sent again and again, and the status of its answer."""

    method: str
    target: str
    headers: Fields
    body: bytes = b""
    status: int = 200


class _Polled:
    """A session in which the read cache polls for changes, and finds none."""

    server = "one"
    lost = False

    def run(self, sql: str, parameters: Sequence[object] = ()) -> Deferred[Rows]:
        """Answer a poll, in the manner of ``Session.run``."""
        del parameters
        return succeed([] if sql.startswith("PREPARE") else [("10:10:", False, "0", "1", None, None, None)])

    def drop(self, reason: Exception) -> None:
        """Do nothing: it is in memory."""


class Answering:
    """A database that has every row at hand."""

    uses_standbys = False

    def __init__(self, vault: Vault, provider: Provider, wall: WallClock) -> None:
        self._signing = new_signing_key(vault, ACCOUNT, wall.seconds())
        variables = {
            "authn-jwt": {
                "jwks-uri": provider.uri,
                "issuer": ISSUER,
                "audience": AUDIENCE,
                "token-app-property": "sub",
                "identity-path": "apps",
            },
            "authn-cloud": {"provider-uri": provider.tenant, "audience": AUDIENCE},
        }
        self._sealed = {
            f"{ACCOUNT}:variable:svc/{kind}/{SERVICE}/{name}": vault.seal(
                f"{ACCOUNT}:variable:svc/{kind}/{SERVICE}/{name}", value.encode()
            )
            for kind, values in variables.items()
            for name, value in values.items()
        }
        roles = [RoleName(ACCOUNT, "host", f"apps/app-{number}") for number in range(HOSTS)]
        self._keys = {str(role): vault.seal(api_key_name(role), KEY) for role in roles}
        names = [f"{ACCOUNT}:variable:apps/secret-{number}" for number in range(HOSTS)]
        self._secrets = {name: vault.seal(name, b"s" * 32) for name in names}
        member = f"{ACCOUNT}:group:apps/ten", f"{ACCOUNT}:host:apps/app-1", False, False, f"{ACCOUNT}:policy:apps"
        listed = [(*member, None)] * settings.MEMBERS_PAGE
        self._members: Rows = [(json.dumps(_FACTS), *(None,) * len(member)), *listed]
        self._readings: dict[str, Callable[..., Rows]] = {
            "signing_keys_named": lambda *_: [tuple(attrs.astuple(self._signing))],
            "authenticator_settings": self._settings,
            "login_candidate": self._candidate,
            "credential": lambda role, _: [
                (True, [7, 0], self._keys.get(role), self.signing_key_id, None, None, [], 0, False)
            ],
            "role_present": lambda *_: [(True,)],
            "standing": lambda *_: [_FACTS],
            "secret_read_newest": lambda _, name, *__: [(*_FACTS, self._secrets[name], 1, None, None)],
            "members_first_judged": lambda *_: self._members,
        }

    @property
    def signing_key_id(self) -> str:
        """The id of the account's signing key."""
        return self._signing.key_id

    async def fetch(self, statement: Statement, *parameters: object) -> Rows:
        """Answer, in the manner of ``Database.fetch``."""
        return self._readings[statement.name](*parameters)

    async def fetch_uncached(self, statement: Statement, *parameters: object) -> Rows:
        """Do the same."""
        return await self.fetch(statement, *parameters)

    async def fetch_with_server(self, statement: Statement, *parameters: object) -> tuple[Rows, str]:
        """Answer the read cache, which is also sent a name that the rows depend on."""
        rows = self._readings[statement.name.removesuffix("_remembered")](*parameters)
        return [(*row, [f"*:{ACCOUNT}"], None, True) for row in rows], _Polled.server

    def count_read_sessions(self) -> PoolCounts:
        """Count one session, which is idle."""
        return PoolCounts(1, 0, 0, 0, 0.0, 0)

    async def open_session(self, lost: Callable[[Exception], None]) -> Any:
        """Open the session of the read cache."""
        del lost
        return _Polled()

    def _settings(self, variables: str, _: str) -> Rows:
        names = [name.strip('"') for name in variables.strip("{}").split(",")]
        found = [(position, self._sealed[name]) for position, name in enumerate(names, 1) if name in self._sealed]
        return [("1", *map(list, zip(*found, strict=True)), None, [], 0)]

    def _candidate(self, role: str, _: str, __: str, begin: str, *___: object) -> Rows:
        host, known = role.rpartition("/")[2], role in self._keys
        if begin.startswith("authn-jwt"):
            pairs = [[f"{begin}claim{n}", f"value {n} of {host}"] for n in range(settings.ANNOTATIONS)]
        else:
            identity = f"oid-{host.rpartition('-')[2]}"
            pairs = [
                ["authn-cloud/subscription-id", SUBSCRIPTION],
                ["authn-cloud/resource-group", RESOURCE_GROUP],
                [f"authn-cloud/{SERVICE}/system-assigned-identity", identity],
            ]
        return [("1", True, [7, 0] if known else None, True, known, pairs if known else [], self.signing_key_id, [])]


@implementer(IProbe)
@attrs.frozen
class _Well:
    """A probe that finds all well."""

    service: str

    async def check(self) -> None:
        """Return."""


class _WellDatabase:
    """The same of the database."""

    async def check(self) -> ReplicationPosition:
        """Return where its log is."""
        return ReplicationPosition("0/1", 1, False)

    async def write(self) -> None:
        """Return."""


@attrs.frozen(slots=False, eq=False, kw_only=True)
class InsideServer(Server):
    """A server whose database and provider answer at once, and whose checks find all well."""

    database: Any
    provider: Provider

    @cached_property
    def read_source(self) -> Any:
        """The database."""
        return self.database

    @cached_property
    def pace(self) -> RefusalPace:
        """A pace that nobody waits for: the figures are of the work."""

        async def after(_: float) -> None:
            """Return at once."""

        return RefusalPace(self.reactor, self.ensure_writable, after)

    @cached_property
    def singletons(self) -> Singletons:
        """The parts that exist once."""
        return _InsideSingletons(self)

    async def ensure_writable(self) -> None:
        """Return: this is one."""

    @cached_property
    def wait_for_versions(self) -> Any:
        """Return at once: no request has a version token."""

        async def reached(versions: Sequence[StateVersion], role: RoleName) -> None:
            """Return."""

        return reached

    @cached_property
    def health_routes(self) -> Sequence[Any]:
        """The routes of health."""
        return [Health(self.shared.health, NATIVE, lambda: True, lambda: True)]


class _Reactor(Clock):
    #: Nothing is looked up.
    nameResolver = None  # noqa: N815 - Twisted's


class _InsideSingletons(Singletons):
    @cached_property
    def provider_keys(self) -> ProviderKeys:
        """The keys of the provider, at hand."""
        key_set = cast(InsideServer, self.base).provider.key_set

        async def fetched(source: KeySource) -> KeySet:
            return parse_key_set(key_set, source.algorithms)

        return ProviderKeys(fetched, self.base.reactor, 10.0)

    @cached_property
    def checks_loop(self) -> ChecksLoop:
        """Checks that find all well."""
        probes: list[IProbe] = [_Well(name) for name in _SERVICES]
        return ChecksLoop(self.base.reactor, self.base.wall, probes, cast(Any, _WellDatabase()), 5.0)


class Inside:
    """A server's parts in this process, and requests to it."""

    def __init__(
        self, folder: Path, *, wall: WallClock | None = None, metrics: Metrics | None = None, cached: bool = False
    ) -> None:
        wall, vault, provider = wall or MachineClock(), Vault(bytes(32)), Provider()
        clock = self.clock = _Reactor()
        database: Any = Answering(vault, provider, wall)
        nothing = cast(Any, None)
        settled = read_settings({}, {})
        server = self.server = InsideServer(
            reactor=clock,
            metrics=metrics,
            settings=attrs.evolve(
                settled,
                authenticators=(f"authn-jwt/{SERVICE}", f"authn-cloud/{SERVICE}"),
                audit_file=folder / "audit",
                data_dir=folder,
                memory_lag=settled.memory_lag if cached else 0.0,
                clock_skew=0.0,
                user_token_ttl=18_000,
                host_token_ttl=18_000,
            ),
            installation=Installation(
                clock=clock,
                wall=wall,
                dsn="",
                database=database,
                state=DatabaseState(database),
                accounts=AccountStore(database),
                data_keys=nothing,
                source=nothing,
                vault=vault,
                audit_key=bytes(32),
            ),
            services=MultiService(),
            commit_counters=CommitCounters.for_one_process(),
            database=database,
            provider=provider,
        )
        finished(server.journal.open())
        server.journal.startService()
        server.singletons.checks_loop.startService()
        if server.cache is not None:
            server.cache.startService()
            clock.advance(0)
        self.router, tokens = server.router, server.tokens
        bearers = []
        for number in range(HOSTS):
            admitted = Admitted(RoleName(ACCOUNT, "host", f"apps/app-{number}"), database.signing_key_id, 7)
            token = base64.b64encode(finished(tokens.issue_token(admitted)))
            bearers.append((b"Authorization", b'Token token="' + token + b'"'))
        self.requests = dict(_requests(provider, bearers))

    def ask(self, prepared: Prepared) -> Response:
        """Ask one request, whose body has arrived with its head, and return the answer."""
        body = prepared.body
        incoming = IncomingRequest(
            prepared.method, prepared.target, prepared.headers, "127.0.0.1", "0123456789abcdef", len(body), 1024 * 1024
        )
        if body:
            incoming.append_body(body)
        incoming.end_body()
        response: Response = finished(self.router.respond(incoming))
        return response

    def microseconds(self, requests: Sequence[Prepared]) -> float:
        """Ask requests in turn, and return how many microseconds of the processor one takes."""
        count, began = 0, time.process_time()
        while (taken := time.process_time() - began) < SECONDS:
            for prepared in requests:
                response = self.ask(prepared)
                assert response.status == prepared.status, response
            count += len(requests)
        return taken / count * 1e6


def finished(work: Deferred[Any] | Coroutine[Any, Any, Any]) -> Any:
    """Return the result of what waits for nothing."""
    results: list[Any] = []
    (work if isinstance(work, Deferred) else Deferred.fromCoroutine(work)).addBoth(results.append)
    (result,) = results
    if isinstance(result, Failure):
        result.raiseException()
    return result


def _requests(provider: Provider, bearers: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[str, list[Prepared]]]:
    hosts, form = range(HOSTS), (b"Content-Type", b"application/x-www-form-urlencoded")
    by_jwt = f"/authn-jwt/{SERVICE}/{ACCOUNT}/authenticate"

    def login(target: str, token: str, status: int = 200) -> Prepared:
        return Prepared("POST", target, _headers(form), f"jwt={token}".encode(), status)

    yield "JWT login", [login(by_jwt, token) for token in provider.tokens(HOSTS)]
    for why, refused in provider.refused_tokens(HOSTS).items():
        yield f"JWT login refused, {why}", [login(by_jwt, token, 401) for token in refused]
    yield (
        "cloud login",
        [
            login(f"/authn-cloud/{SERVICE}/{ACCOUNT}/host%2Fapps%2Fapp-{number}/authenticate", token)
            for number, token in enumerate(provider.cloud_tokens(HOSTS))
        ],
    )
    by_key = f"/authn/{ACCOUNT}/host%2Fapps%2Fapp-{{}}/authenticate"
    yield "API key login", [Prepared("POST", by_key.format(number), _headers(form), KEY) for number in hosts]
    secret = f"/secrets/{ACCOUNT}/variable/apps%2Fsecret-{{}}"
    for name, target in (
        ("secret read", secret),
        ("whoami", "/whoami"),
        ("privilege check", f"/resources/{ACCOUNT}/variable/apps%2Fsecret-{{}}?check&privilege=execute"),
        ("role members (10)", f"/roles/{ACCOUNT}/group/apps%2Ften?members"),
    ):
        status = 204 if "check" in name else 200
        yield name, [Prepared("GET", target.format(n), _headers(bearers[n]), b"", status) for n in hosts]
    for name in ("health", "livez"):
        yield name, [Prepared("GET", f"/{name}", _headers())]


def _headers(*more: tuple[bytes, bytes]) -> Fields:
    return {name.lower(): [value] for name, value in ((b"Host", b"127.0.0.1:8080"), *more)}


def measure(folder: Path) -> Part:
    """Measure every route."""
    say("inside: a server without a parser and a database …")
    inside = Inside(folder)
    runs: dict[str, list[float]] = {name: [] for name in inside.requests}
    for _ in range(RUNS):
        for name, requests in inside.requests.items():
            runs[name].append(inside.microseconds(requests))
    figures = [Figure(f"processor time of {name}", statistics.median(taken), "µs") for name, taken in runs.items()]
    return Part.of(figures, {"inside": runs})
