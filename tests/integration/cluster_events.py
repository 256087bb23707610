"""What happens to a cluster, under a load of what workloads do all day, and what they notice of it.

Two kinds of clients come through each proxy. Those that read log in with a JWT and with an API key, read a secret and a
batch, and expect to succeed every time. Those that write give one variable after the other a value, and keep what was
acknowledged: that must be there for ever. Nothing is sent twice.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

import attrs
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.web.client import ResponseNeverReceived

from tests.integration.client import Answer, Api, now, workload_token
from tests.integration.cluster_nodes import Cluster, Node, Proxy
from tests.signing import jwks

reactor: Any = installed_reactor

#: Clients of each kind behind each proxy, and the pauses between their requests, in seconds.
READERS: Final = 3
WRITERS: Final = 3
PAUSE: Final = 0.1

#: How many variables are written; more than in any one event.
VARIABLES: Final = 2000

#: How long etcd is away, in seconds: longer than ``ttl`` in ``etc/patroni/patroni.yml``.
ETCD_AWAY: Final = 25.0

POLICY: Final = """
- !policy
  id: svc/authn-jwt/ci
  body:
    - !webservice
    - !variable public-keys
    - !variable issuer
    - !variable audience
    - !variable token-app-property
    - !variable identity-path
    - !group apps
    - !permit
      role: !group apps
      privileges: [ read, authenticate ]
      resource: !webservice
- !policy
  id: apps
  body:
    - !host
      id: shop
      annotations:
        authn-jwt/ci/project: acme/shop
        authn-jwt/ci/branch: main
    - !variable password
    - !variable other
    - !permit
      role: !host shop
      privileges: [ read, execute ]
      resources: [ !variable password, !variable other ]
- !grant
  role: !group svc/authn-jwt/ci/apps
  member: !host apps/shop
- !policy
  id: written
  body:
"""

VALUES: Final = {
    "svc/authn-jwt/ci/public-keys": json.dumps({"type": "jwks", "value": json.loads(jwks())}),
    "svc/authn-jwt/ci/issuer": "https://ci.example",
    "svc/authn-jwt/ci/audience": "svc",
    "svc/authn-jwt/ci/token-app-property": "app",
    "svc/authn-jwt/ci/identity-path": "apps",
    "apps/password": "s3cret",
    "apps/other": "0ther",
}

BATCH: Final = "/secrets?variable_ids=acme:variable:apps%2Fpassword,acme:variable:apps%2Fother"


def variable(number: int) -> str:
    """The id of one of those that are written."""
    return f"written/v{number}"


@attrs.define
class Written:
    """What is known of the value of each variable: the one acknowledged last, and those that may have been made since."""

    acknowledged: dict[int, str] = attrs.Factory(dict)
    possible: dict[int, set[str]] = attrs.Factory(dict)
    next: int = 0

    def good(self) -> dict[int, set[str]]:
        """The values that each may have now, of those of which one was acknowledged."""
        return {number: {value, *self.possible[number]} for number, value in self.acknowledged.items()}


@attrs.define
class Noticed:
    """What the clients of one proxy noticed during one event; times in seconds.

    ``acknowledged`` are the moments of acknowledgements, ``refused`` counts what writers got instead.
    """

    proxy: str
    began: float
    reads: int = 0
    failures: list[str] = attrs.Factory(list)
    slowest: float = 0.0
    acknowledged: list[float] = attrs.Factory(list)
    refused: Counter[str] = attrs.Factory(Counter)
    ended: float = 0.0

    @property
    def gap(self) -> float:
        """The longest time without an acknowledgement."""
        moments = [self.began, *self.acknowledged, self.ended]
        return max(later - earlier for earlier, later in itertools.pairwise(moments))


class Load:
    """The clients of one proxy."""

    def __init__(self, cluster: Cluster, proxy: Proxy, written: Written) -> None:
        self._cluster, self._proxy, self._written = cluster, proxy, written
        self._jwt, self._jwt_made = b"", float("-inf")
        self._going = True
        self.noticed = Noticed(proxy.name, now())
        clients = [*(self._read for _ in range(READERS)), *(self._write for _ in range(WRITERS))]
        self._clients = [Deferred.fromCoroutine(client(proxy.api())) for client in clients]

    async def stop(self) -> None:
        """Let them end what they do."""
        self._going = False
        for client in self._clients:
            await client

    def begin(self) -> None:
        """Note from here on."""
        self.noticed = Noticed(self._proxy.name, now())

    def end(self) -> Noticed:
        """Return what was noticed."""
        self.noticed.ended = now()
        return self.noticed

    def workload_token(self) -> bytes:
        """A JWT that is valid for some minutes yet."""
        if now() - self._jwt_made > 60:
            self._jwt, self._jwt_made = workload_token(), now()
        return self._jwt

    async def _read(self, api: Api) -> None:
        login = f"/authn/acme/{quote('host/apps/shop', safe='')}/authenticate"
        while self._going:
            presented = await self._expect("JWT login", api.present(self.workload_token()), None)
            token = "" if presented is None else presented.body.decode()
            for what, path, body in (
                ("secret", api.variable("apps/password"), b"s3cret"),
                ("batch", BATCH, {"acme:variable:apps/password": "s3cret", "acme:variable:apps/other": "0ther"}),
            ):
                if token:
                    await self._expect(what, api.ask("GET", path, token=token), body)
            key = self._cluster.host_key.encode()
            answer = await self._expect("API-key login", api.ask("POST", login, key, Accept_Encoding="base64"), None)
            if answer is not None:
                await self._expect(
                    "secret", api.ask("GET", api.variable("apps/password"), token=answer.body.decode()), b"s3cret"
                )
            await deferLater(reactor, PAUSE)

    async def _expect(self, what: str, asked: Awaitable[Answer], body: object) -> Answer | None:
        """Await an answer that must be right."""
        began = now()
        answer: Answer | None = None
        said = ""
        try:
            answer = await asked
        except Exception as error:  # whatever a client can meet is a failure
            said = repr(error)
        took = now() - began
        self.noticed.reads += 1
        self.noticed.slowest = max(self.noticed.slowest, took)
        if answer is not None and (answer.status != 200 or (body is not None and body not in (answer.body, _json(answer)))):
            said, answer = str(answer), None
        if answer is None:
            at = began - self.noticed.began
            self.noticed.failures.append(f"{what}, {at:.1f} s after the beginning, for {took:.1f} s: {said}")
        return answer

    async def _write(self, api: Api) -> None:
        token, made = "", float("-inf")
        written = self._written
        while self._going:
            if now() - made > 120:
                answer = await self._expect("admin's login", _login(api, self._cluster.admin_key), None)
                if answer is None:
                    await deferLater(reactor, PAUSE)
                    continue
                token, made = answer.body.decode(), now()
            written.next = (written.next + 1) % VARIABLES
            number, value = written.next, f"{self._proxy.name} {now():.6f}"
            # Not known until it is acknowledged: what is seen of it meanwhile is no fault.
            written.possible.setdefault(number, set()).add(value)
            try:
                answer = await api.ask("POST", api.variable(variable(number)), value.encode(), token)
                said = str(answer.status)
                if answer.status == 503:
                    said += f" {answer.json()['error'].get('code', '')}"
            except Exception as error:  # whatever a client can meet: it isn't known then
                said = type(error).__name__
            if said == "201":
                written.acknowledged[number] = value
                written.possible[number] = set()
                self.noticed.acknowledged.append(now())
            else:
                self.noticed.refused[said] += 1
            await deferLater(reactor, PAUSE)


def _json(answer: Answer) -> object:
    try:
        return answer.json()
    except ValueError:
        return None


def _login(api: Api, key: str) -> Awaitable[Answer]:
    return api.ask("POST", "/authn/acme/admin/authenticate", key.encode(), Accept_Encoding="base64")


@attrs.frozen
class Outcome:
    """What came of one event: ``lost`` acknowledged writes, and those that the losing side acknowledged."""

    event: str
    noticed: list[Noticed]
    lost: list[str]
    losers: list[str]

    @property
    def bad(self) -> bool:
        """Whether something happened that may not happen."""
        return bool(self.lost or self.losers or any(each.failures for each in self.noticed))


class Scene:
    """A cluster with policy, under load. ``events`` has what can happen to it, by name."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.written = Written()
        self._loads: list[Load] = []
        #: Writes that were acknowledged on a machine that was cut off.
        self._losers: list[str] = []
        self.events: dict[str, Callable[[], Awaitable[None]]] = {
            "planned switchover": self.switchover,
            "the synchronous standby killed": self.standby_killed,
            "the primary killed": self.primary_killed,
            "the former primary comes back": self.comes_back,
            "the primary's PostgreSQL and Patroni crash, and their unit starts them": self.primary_crashes,
            "etcd gone": self.etcd_gone,
        }
        if cluster.net.divided:
            self.events["the primary cut off"] = self.primary_cut_off
        self._dead: Node | None = None
        self._cut = False
        #: What a client on a machine that was cut off got, by status.
        self.inside: Counter[str] = Counter()

    async def start(self) -> None:
        """Start the cluster and the load."""
        await self.cluster.start()
        api = self.cluster.proxies[0].api()
        policy = POLICY + "".join(f"    - !variable v{number}\n" for number in range(VARIABLES))
        loaded = await self._done(api, "/policies/acme/policy/root", policy)
        self.cluster.host_key = loaded.json()["created_roles"]["acme:host:apps/shop"]["api_key"]
        for proxy in self.cluster.proxies:
            for name, value in VALUES.items():
                await self._done(proxy.api(), api.variable(name), value)
        await self.cluster.until(self._everywhere, "what was written doesn't reach everybody")
        self._loads = [Load(self.cluster, proxy, self.written) for proxy in self.cluster.proxies]

    async def _done(self, api: Api, path: str, body: str) -> Answer:
        """Make a change as the admin, as soon as somebody takes changes."""
        answers: list[Answer] = []

        async def made() -> bool:
            try:
                token = (await _login(api, self.cluster.admin_key)).body.decode()
                answers.append(await api.ask("POST", path, body.encode(), token))
            except (ConnectError, ResponseNeverReceived):
                return False  # the proxy is starting
            return answers[-1].status == 201

        await self.cluster.until(made, f"{path} isn't changed")
        return answers[-1]

    async def _everywhere(self) -> bool:
        """Whether each svc has what was written."""
        primary = self.cluster.nodes[await self.cluster.primary()]
        behind = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_insert_lsn()"
        return primary.sql(behind) == "2"

    async def stop(self) -> None:
        """End the load."""
        for load in self._loads:
            await load.stop()

    async def happen(self, event: str) -> Outcome:
        """Let it happen, and return what came of it when all is well again."""
        self._losers = []
        for load in self._loads:
            load.begin()
        await self.events[event]()
        await self._written_on()
        noticed = [load.end() for load in self._loads]
        return Outcome(event, noticed, await self.lost(), self._losers)

    async def _written_on(self) -> None:
        """Wait until each load has had twenty more acknowledgements."""
        before = [len(load.noticed.acknowledged) for load in self._loads]

        async def enough() -> bool:
            return all(len(load.noticed.acknowledged) >= n + 20 for load, n in zip(self._loads, before, strict=True))

        await self.cluster.until(enough, "writes aren't acknowledged again")

    async def lost(self) -> list[str]:
        """Read every variable that was written, at the primary; return those with a value that they may not have."""
        before = self.written.good()
        api = self.cluster.nodes[await self.cluster.primary()].api()
        token = (await _login(api, self.cluster.admin_key)).body.decode()
        found: dict[str, str] = {}
        numbers = sorted(before)
        for first in range(0, len(numbers), 200):
            ids = [f"acme:variable:{variable(number)}" for number in numbers[first : first + 200]]
            answer = await api.ask("GET", f"/secrets?variable_ids={quote(','.join(ids), safe=',')}", token=token)
            assert answer.status == 200, answer
            found |= answer.json()
        # Writers go on meanwhile.
        after = self.written.good()
        return [
            f"{variable(number)} is {found.get(f'acme:variable:{variable(number)}')!r}, not any of {before[number]}"
            for number in numbers
            if found.get(f"acme:variable:{variable(number)}") not in before[number] | after[number]
        ]

    async def _another(self, former: str) -> None:
        """Wait until another machine is the primary."""

        async def other() -> bool:
            return await self.cluster.primary() not in {"", former}

        await self.cluster.until(other, f"{former} has no successor")

    async def _whole(self) -> None:
        await self.cluster.until(self.cluster.whole, "the cluster doesn't become whole")

    async def switchover(self) -> None:
        """Have the synchronous standby take over, as patronictl does."""
        former = await self.cluster.primary()
        said = await self.cluster.nodes[former].patroni("POST", "/switchover", {"leader": former})
        assert said is not None, f"no switchover from {former}"
        await self._another(former)
        await self._whole()

    async def standby_killed(self) -> None:
        """Its machine is gone until another standby confirms writes."""
        name = await self.cluster.standby()
        node = self.cluster.nodes[name]
        node.end_database()

        async def other() -> bool:
            return await self.cluster.standby() not in {"", name}

        await self.cluster.until(other, f"{name} has no successor")
        await self._written_on()
        node.resume_database()
        await self._whole()

    async def primary_killed(self) -> None:
        """Its machine is gone; a standby takes over."""
        name = await self.cluster.primary()
        self._dead = self.cluster.nodes[name]
        self._dead.end_database()
        await self._another(name)

    async def comes_back(self) -> None:
        """The machine that is gone boots."""
        assert self._dead is not None
        self._dead.resume_database()
        self._dead = None
        await self._whole()

    async def primary_crashes(self) -> None:
        """Both programs die, and their unit starts them again."""
        name = await self.cluster.primary()
        node = self.cluster.nodes[name]
        restarts = node.programs["patroni"].restarts
        node.crash_database()

        async def restarted() -> bool:
            return node.programs["patroni"].restarts > restarts and bool(node.postgres())

        await self.cluster.until(restarted, f"{name} isn't started again")
        await self._whole()

    async def etcd_gone(self) -> None:
        """All members of etcd are gone for longer than a primary's lease, and come back."""
        for node in self.cluster.nodes.values():
            node.programs["etcd"].end()
        await deferLater(reactor, ETCD_AWAY)
        for node in self.cluster.nodes.values():
            node.programs["etcd"].start()
        await self._whole()

    async def primary_cut_off(self) -> None:
        """The primary's machine reaches nobody, and nobody reaches it, but a client on it; then it does again."""
        name = await self.cluster.primary()
        node = self.cluster.nodes[name]
        token = (await _login(node.api(), self.cluster.admin_key)).body.decode()
        self.cluster.net.cut(node.number)
        self._cut = True
        inside = deferToThread(self._write_inside, node, token)
        await self._another(name)
        await self._written_on()
        self._cut = False
        self._losers = await inside
        self.cluster.net.mend(node.number)
        await self._whole()

    def _write_inside(self, node: Node, token: str) -> list[str]:
        """Write on the machine that is cut off until it no longer is; return what was acknowledged. Blocks."""
        acknowledged, number = [], 0
        while self._cut:
            number += 1
            url = f"https://{node.address}:8443{node.api().variable(variable(0))}"
            command = ["curl", "--silent", "--max-time", "20", "--cacert", f"{node.folder}/etc/svc/ca.pem"]
            command += ["--header", f'Authorization: Token token="{token}"', "--data-binary", f"cut off {number}"]
            command += ["--output", "/dev/null", "--write-out", "%{http_code}", url]
            done = subprocess.run([*node.inside, *command], check=False, capture_output=True, text=True)
            self.inside[done.stdout] += 1
            if done.stdout.startswith("2"):
                acknowledged.append(f"cut off {number}")
        return acknowledged


HEADINGS: Final = (
    *("event", "layout", "times", "reads and logins", "failed", "slowest"),
    *("writes acknowledged", "lost", "no writes for"),
)


def described(outcomes: Sequence[Outcome]) -> str:
    """A table of what was noticed, with a line for each event and proxy; then what may not happen, if it did."""
    rows: list[tuple[object, ...]] = [HEADINGS, tuple("-" for _ in HEADINGS)]
    faults: list[str] = []
    for event in dict.fromkeys(outcome.event for outcome in outcomes):
        these = [outcome for outcome in outcomes if outcome.event == event]
        lost = sum(len(outcome.lost) + len(outcome.losers) for outcome in these)
        for proxy in (each.proxy for each in these[0].noticed):
            noticed = [each for outcome in these for each in outcome.noticed if each.proxy == proxy]
            gaps = sorted(each.gap for each in noticed)
            failures = [failure for each in noticed for failure in each.failures]
            rows.append(
                (
                    event,
                    proxy,
                    len(these),
                    sum(each.reads for each in noticed),
                    len(failures),
                    f"{max(each.slowest for each in noticed):.1f} s",
                    sum(len(each.acknowledged) for each in noticed),
                    lost,
                    f"{gaps[len(gaps) // 2]:.1f} s, at most {gaps[-1]:.1f} s",
                )
            )
            faults += failures[:5]
        faults += [fault for outcome in these for fault in (*outcome.lost[:5], *outcome.losers[:5])]
    return "\n".join([*("| " + " | ".join(map(str, each)) + " |" for each in rows), *faults])
