"""Many secrets at once: batches, those that haven't changed, logins that read, and watches. Needs ``wrk``."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import attrs

from bench import settings
from bench.client import Client
from bench.load import Request, demand_wrk, run, write_requests
from bench.loop import Lateness, Watched
from bench.processes import cpu_seconds, memory
from bench.report import Figure, Part
from bench.server import ACCOUNT, SERVICE, Server, say
from bench.turns import Turns
from bench.world import AUDIENCE, ISSUER, Provider, by_api_key, by_jwt

#: Variables in so many folders, and how many of them a batch that is compared has, and a login reads.
VARIABLES: Final = 10_000
FOLDERS: Final = 10
COMPARED: Final = 1000
WITH_LOGIN: Final = 4

#: Hosts that log in by JWT, each allowed to read what a login reads.
HOSTS: Final = 150

#: The most that may cost: a batch that hasn't changed, in single reads; a login that reads, in logins.
KNOWN_MOST: Final = 3.0
LOGIN_MOST: Final = 1.3

#: How long the largest batch may block the event loop, in milliseconds; and how often it is requested.
BLOCKED_MOST: Final = 20.0
RUNS: Final = 5

#: Watches, by how many megabytes the server may grow with them, and seconds for which nothing happens to them.
WATCHES: Final = 1000
MEGABYTES_MOST: Final = 10.0
QUIET_SECONDS: Final = 20
_FILES: Final = 600


def measure(folder: Path) -> Part:
    """Measure all of it on one server.

    :raises SystemExit: there is no ``wrk``.
    """
    demand_wrk()
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(files, WATCHES + _FILES), most))
    server = Server.started(folder / "server")
    try:
        scene = Scene.laid(server)
    finally:
        server.stop()
    # One that has filled nothing is small.
    server = Server.started(folder / "server", watched=True)
    scene = attrs.evolve(scene, server=server)
    try:
        figures = [*_watches(scene), *_large(scene, Watched(server.url, server.loop_record))]
        turns = dict(_turns(folder, scene))
    finally:
        server.stop()
    known, full, by_key, by_token = turns.values()
    figures += [
        Figure(f"batch of {COMPARED} with its tag, of a single read", 1 / known.ratio(), "times", KNOWN_MOST, _cpu(known)),
        Figure(f"batch of {COMPARED} without, of a single read", 1 / full.ratio(), "times", origin=_cpu(full)),
        Figure(f"API key login that reads {WITH_LOGIN}, of one", 1 / by_key.ratio(), "times", LOGIN_MOST, _cpu(by_key)),
        Figure(f"JWT login that reads {WITH_LOGIN}, of one", 1 / by_token.ratio(), "times", LOGIN_MOST, _cpu(by_token)),
    ]
    return Part.of(figures, {"turns": {name: attrs.asdict(each) for name, each in turns.items()}})


def _cpu(turns: Turns) -> str:
    ours, theirs = turns.median, turns.beside
    return f"{ours.cpu:.0f} µs of CPU beside {theirs.cpu:.0f} µs, {turns.ratio('cpu'):.2f} times"


@attrs.frozen
class Scene:
    """A server with variables, a host that may read all of them, and hosts that log in by JWT."""

    server: Server
    header: tuple[str, str]
    login: Request
    tokens: Sequence[str]
    #: The admin's token.
    token: str

    @property
    def admin(self) -> Client:
        """The admin."""
        return Client(self.server.url, self.token)

    @classmethod
    def laid(cls, server: Server) -> Scene:
        """Load the policy, and set all values."""
        say(f"many: {VARIABLES} variables …")
        admin, provider = server.admin(), Provider()
        loaded = json.loads(admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", "".join(_policy()).encode()))
        for name, value in (
            ("jwks-uri", provider.uri),
            ("issuer", ISSUER),
            ("audience", AUDIENCE),
            ("token-app-property", "sub"),
            ("identity-path", "apps"),
        ):
            path = quote(f"svc/authn-jwt/{SERVICE}/{name}", safe="")
            admin.ask("POST", f"/secrets/{ACCOUNT}/variable/{path}", value.encode())
        for number in range(VARIABLES):
            admin.ask("POST", f"/secrets/{ACCOUNT}/variable/{quote(_name(number), safe='')}", b"s" * 32)
        key = loaded["created_roles"][f"{ACCOUNT}:host:apps/reader"]["api_key"]
        login = by_api_key("apps/reader", key)
        header = Client(server.url).logged_in(login.path, login.body.encode()).header
        return cls(server, header, login, provider.tokens(HOSTS), admin.token)


def _name(number: int) -> str:
    return f"apps/folder-{number % FOLDERS}/secret-{number}"


def _ids(count: int) -> list[str]:
    return [f"{ACCOUNT}:variable:{_name(number)}" for number in range(count)]


def _policy() -> Iterator[str]:
    yield f"- !policy\n  id: svc/authn-jwt/{SERVICE}\n  body:\n  - !webservice\n  - !group apps\n"
    yield from (
        f"  - !variable {name}\n" for name in ("jwks-uri", "issuer", "audience", "token-app-property", "identity-path")
    )
    yield "  - !permit\n    role: !group apps\n    privileges: [read, authenticate]\n    resource: !webservice\n"
    yield "- !policy\n  id: apps\n  body:\n  - !group all\n  - !host reader\n"
    for number in range(HOSTS):
        yield f"  - !host\n    id: app-{number}\n    annotations:\n"
        for n in range(settings.ANNOTATIONS):
            yield f"      authn-jwt/{SERVICE}/claim{n}: value {n} of app-{number}\n"
    yield "  - !grant\n    role: !group all\n    members:\n    - !host reader\n"
    yield from (f"    - !host app-{number}\n" for number in range(HOSTS))
    for number in range(VARIABLES):
        yield f"  - !variable {_name(number).partition('/')[2]}\n"
    yield "  - !permit\n    role: !group all\n    privileges: [read, execute]\n    resources:\n"
    yield from (f"    - !variable {_name(number).partition('/')[2]}\n" for number in range(VARIABLES))
    yield f"- !grant\n  role: !group svc/authn-jwt/{SERVICE}/apps\n  member: !group apps/all\n"


def _batch(scene: Scene, count: int, tag: str = "") -> Request:
    """A batch of so many, with a tag that the client has."""
    name, value = scene.header
    body = json.dumps({"variable_ids": _ids(count)}, separators=(",", ":"))
    # The load sends one header: a vertical tab in its value begins another one.
    return Request("POST", "/secrets/batch", (name, f"{value}\vIf-None-Match: {tag}" if tag else value), body)


def _tag(scene: Scene, count: int) -> str:
    """The tag of a batch."""
    request = _batch(scene, count)
    return _answered(scene.server.url, request, dict([request.header]))[1]["etag"]


def _answered(url: str, request: Request, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to a request."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    connection.request(request.method, request.path, request.body or None, headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


def _turns(folder: Path, scene: Scene) -> Iterator[tuple[str, Turns]]:
    """Runs of each load, in turns with what it is compared with."""
    url, process = scene.server.url, scene.server.process.pid
    path = f"/secrets/{ACCOUNT}/variable/{quote(_name(0), safe='')}"
    single = [Request("GET", path, scene.header)]
    tag = _tag(scene, COMPARED)
    secrets = quote(",".join(_ids(WITH_LOGIN)), safe="")
    by_token = [by_jwt(token) for token in scene.tokens]

    def reading(login: Request) -> Request:
        return attrs.evolve(login, path=f"{login.path}?secrets={secrets}")

    loads = {
        "batch with its tag": ([_batch(scene, COMPARED, tag)], single),
        "batch": ([_batch(scene, COMPARED)], single),
        "API key login that reads": ([reading(scene.login)], [scene.login]),
        "JWT login that reads": ([reading(each) for each in by_token], by_token),
    }
    for number, (name, (ours, theirs)) in enumerate(loads.items()):
        mine, other = write_requests(folder, f"ours-{number}", ours), write_requests(folder, f"theirs-{number}", theirs)
        for warming in (mine, other):
            run(url, warming, process, seconds=2)
        yield name, Turns.taken(name, partial(run, url, mine, process), partial(run, url, other, process))


def _large(scene: Scene, loop: Watched) -> Iterator[Figure]:
    """How long the loop is blocked by the largest batch, first of all, with its tag, and where half of it can't be read."""
    url = scene.server.url
    request = _batch(scene, VARIABLES)
    headers = dict([request.header])
    missing = [f"{full}-missing" if number % 2 else full for number, full in enumerate(_ids(VARIABLES))]
    partly = attrs.evolve(request, body=json.dumps({"variable_ids": missing, "partial": True}))
    tag = {"If-None-Match": _tag(scene, VARIABLES)}
    for name, asked, more, status in (
        ("", request, {}, 200),
        (" with its tag", request, tag, 304),
        (", half of them missing", partly, {}, 200),
    ):
        say(f"many: a batch of {VARIABLES}{name}")
        spans: list[float] = []
        action = partial(_timed, spans, url, asked, headers | more, status)
        latest = [Lateness.during(loop, action) for _ in range(RUNS)]
        # Blocking by the program itself occurs in every run.
        calmest = min(latest, key=lambda each: each.blocked)
        origin = f"{calmest.late:.0f} ms late, {calmest.probe:.0f} ms for a probe; the batch took {min(spans):.0f} ms"
        yield Figure(f"loop blocked by a batch of {VARIABLES}{name}", calmest.blocked, "ms", BLOCKED_MOST, origin)


def _timed(spans: list[float], url: str, request: Request, headers: dict[str, str], status: int) -> None:
    """Ask, and note how many milliseconds the answer took, which must have this status."""
    began = time.perf_counter()
    told, _, _ = _answered(url, request, headers)
    spans.append((time.perf_counter() - began) * 1000)
    if told != status:
        raise SystemExit(f"{request.method} {request.path}: {told}")


def _watches(scene: Scene) -> Iterator[Figure]:
    """The cost of idle watches, and how soon all of them get a change."""
    url, process = scene.server.url, scene.server.process.pid
    single = Request("GET", f"/secrets/{ACCOUNT}/variable/{quote(_name(0), safe='')}", scene.header)
    for _ in range(200):
        _answered(url, single, dict([scene.header]))
    time.sleep(settings.IDLE_SECONDS)
    alone, quiet = memory(process, "VmRSS"), _used(process)
    say(f"many: {WATCHES} watches")
    lines = [_watching(url, scene) for _ in range(WATCHES)]
    time.sleep(settings.IDLE_SECONDS)
    watched, busy = memory(process, "VmRSS"), _used(process)
    size = f"{alone:.0f} MB before, {watched:.0f} MB with them"
    yield Figure(f"RSS grown by {WATCHES} watches", watched - alone, "MB", MEGABYTES_MOST, size)
    for number, name in enumerate(("server", "database")):
        used, before = busy[number] * 1000, quiet[number] * 1000
        origin = f"{before:.1f} ms without them"
        yield Figure(f"{WATCHES} watches to which nothing happens, CPU of the {name} a second", used, "ms", origin=origin)
    began = time.perf_counter()
    scene.admin.ask("POST", f"/secrets/{ACCOUNT}/variable/{quote(_name(0), safe='')}", b"another")
    for line in lines:
        while b"event: versions" not in line.recv(65536):
            pass
    told = (time.perf_counter() - began) * 1000
    yield Figure(f"all {WATCHES} told of a change after", told, "ms")
    for line in lines:
        line.close()


def _used(process: int) -> tuple[float, float]:
    """The CPU time that server and database take in a second, while nobody asks for anything."""
    before = cpu_seconds(process)
    time.sleep(QUIET_SECONDS)
    after = cpu_seconds(process)
    ours, database = ((late - early) / QUIET_SECONDS for early, late in zip(before, after, strict=True))
    return ours, database


def _watching(url: str, scene: Scene) -> socket.socket:
    """A connection that watches four secrets, the first event read."""
    parts = urlsplit(url)
    line = socket.create_connection((parts.hostname or "", parts.port or 0), 60)
    name, value = scene.header
    path = f"/secrets/watch?variable_ids={quote(','.join(_ids(WITH_LOGIN)), safe='')}"
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: bench\r\n{name}: {value}\r\n\r\n".encode())
    told = b""
    while b"event: versions" not in told:
        told += line.recv(65536)
    return line
