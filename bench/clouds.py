"""The cost of a login from Google Cloud and of one from AWS, in turns with one by JWT on the same server. Needs ``wrk``.

AWS is a stand-in on the same machine, which answers over plain HTTP and at once: a login's true duration is that of a TLS
handshake with AWS and its answer, some tens of milliseconds. A signature admits once, so each request is sent once.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import attrs

from bench import settings
from bench.load import Figures, Request, demand_wrk, run, write_requests
from bench.report import Figure, Part
from bench.server import ACCOUNT, SERVICE, Server, say
from bench.sts import ACCOUNT as AWS_ACCOUNT
from bench.turns import Turns
from bench.world import AUDIENCE, ISSUER, Provider, by_jwt

HOSTS: Final = 2000
ONCE: Final = 20_000
SERVER_ID: Final = "svc.bench"

#: The least rates in that of a login by JWT.
GOOGLE_RATIO: Final = 0.9

_TYPES: Final = ("authn-jwt", "authn-iam")


def _policy() -> Iterator[str]:
    variables = {"authn-jwt": ("jwks-uri", "issuer", "audience", "token-app-property", "identity-path")}
    for name in (f"authn-jwt/{SERVICE}", f"authn-iam/{SERVICE}", "authn-gcp"):
        yield f"- !policy\n  id: svc/{name}\n  body:\n  - !webservice\n  - !group apps\n"
        kind = name.partition("/")[0]
        for variable in variables.get(kind, ("server-id",) if kind == "authn-iam" else ()):
            yield f"  - !variable {variable}\n"
        yield "  - !permit\n    role: !group apps\n    privileges: [read, authenticate]\n    resource: !webservice\n"
    yield "- !policy\n  id: apps\n  body:\n  - !group all\n"
    for number in range(HOSTS):
        yield f"  - !host\n    id: app-{number}\n    annotations:\n"
        for n in range(settings.ANNOTATIONS):
            yield f"      authn-jwt/{SERVICE}/claim{n}: value {n} of app-{number}\n"
        yield f'      authn-gcp/project-id: bench\n      authn-gcp/service-account-id: "{number}"\n'
        yield f"      authn-gcp/instance-name: app-{number}\n"
        yield f"  - !host {AWS_ACCOUNT}/app-{number}\n"
    yield "  - !grant\n    role: !group all\n    members:\n"
    yield from (f"    - !host app-{number}\n    - !host {AWS_ACCOUNT}/app-{number}\n" for number in range(HOSTS))
    for name in (f"authn-jwt/{SERVICE}", f"authn-iam/{SERVICE}", "authn-gcp"):
        yield f"- !grant\n  role: !group svc/{name}/apps\n  member: !group apps/all\n"


def _google(provider: Provider, number: int) -> Request:
    """A login with an identity token of Google."""
    machine = {"project_id": "bench", "instance_name": f"app-{number}"}
    claims = {"iss": provider.tenant, "sub": f"{number}", "aud": f"svc/{ACCOUNT}/host/apps/app-{number}"}
    token = provider.token({**claims, "google": {"compute_engine": machine}})
    form = ("Content-Type", "application/x-www-form-urlencoded")
    return Request("POST", f"/authn-gcp/{ACCOUNT}/authenticate", form, f"jwt={token}")


_SIGNED = itertools.count(1)


def _aws(number: int, date: str) -> Request:
    """A login with a signed request, another one each time."""
    names = "host;x-amz-date;x-amz-security-token;x-svc-server-id"
    credential = f"ASIABENCH{number:011d}/{date[:8]}/eu-west-1/sts/aws4_request"
    signature = f"{next(_SIGNED):064x}"
    headers = {
        "Host": "sts.eu-west-1.amazonaws.com",
        "X-Amz-Date": date,
        "X-Amz-Security-Token": "x" * 800,
        "X-Svc-Server-Id": f"{SERVER_ID}/{ACCOUNT}",
        "Authorization": f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}",
    }
    host = quote(f"host/apps/{AWS_ACCOUNT}/app-{number}", safe="")
    path = f"/authn-iam/{SERVICE}/{ACCOUNT}/{host}/authenticate"
    return Request("POST", path, ("Content-Type", "application/json"), json.dumps(headers))


def _once(folder: Path, server: Server, seconds: int = settings.SECONDS) -> Figures:
    """Send requests that were never sent before."""
    date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() - 1))
    requests = write_requests(folder, "aws", [_aws(number % HOSTS, date) for number in range(ONCE)])
    return run(server.url, requests, server.process.pid, seconds=seconds)


def _taken(folder: Path, sts: str) -> tuple[Turns, Turns]:
    """Logins from Google Cloud and from AWS, each in turns with those by JWT, on a server that asks AWS at ``sts``."""
    provider = Provider()
    listed = f"--authenticators=authn,authn-gcp,{','.join(f'{kind}/{SERVICE}' for kind in _TYPES)}"
    more = (listed, f"--google-issuer={provider.tenant}", f"--aws-sts-url={sts}")
    with Server.running(folder / "server", *more) as server:
        admin = server.admin()
        admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", "".join(_policy()).encode())
        for name, value in {
            f"authn-jwt/{SERVICE}/jwks-uri": provider.uri,
            f"authn-jwt/{SERVICE}/issuer": ISSUER,
            f"authn-jwt/{SERVICE}/audience": AUDIENCE,
            f"authn-jwt/{SERVICE}/token-app-property": "sub",
            f"authn-jwt/{SERVICE}/identity-path": "apps",
            f"authn-iam/{SERVICE}/server-id": SERVER_ID,
        }.items():
            admin.ask("POST", f"/secrets/{ACCOUNT}/variable/{quote(f'svc/{name}', safe='')}", value.encode())
        load = partial(run, server.url, server=server.process.pid)
        jwt = write_requests(folder, "jwt", [by_jwt(token) for token in provider.tokens(HOSTS)])
        google = write_requests(folder, "google", [_google(provider, number) for number in range(HOSTS)])
        for name, requests in (("JWT", jwt), ("Google", google)):
            say(f"{name}: every host for the first time")
            load(requests, seconds=settings.WARM_SECONDS // 2)
        _once(folder, server)
        by_google = Turns.taken("Google", partial(load, google), partial(load, jwt))
        by_aws = Turns.taken("AWS", partial(_once, folder, server), partial(load, jwt))
    return by_google, by_aws


def measure(folder: Path) -> Part:
    """Measure both.

    :raises SystemExit: there is no ``wrk``.
    """
    demand_wrk()
    sts = subprocess.Popen([sys.executable, "-m", "bench.sts"], stdout=subprocess.PIPE, text=True)
    try:
        assert sts.stdout is not None
        by_google, by_aws = _taken(folder, sts.stdout.readline().strip())
    finally:
        sts.kill()
        sts.wait()
    figures = [
        Figure("Google authenticate, of JWT authenticate", by_google.ratio(), "times", least=GOOGLE_RATIO),
        Figure("AWS authenticate, of JWT authenticate", by_aws.ratio(), "times"),
    ]
    rows = {"Google authenticate": by_google, "AWS authenticate": by_aws}
    part = Part.of(figures, {"routes": {name: attrs.asdict(turns) for name, turns in rows.items()}})
    return attrs.evolve(part, table=f"{_table(rows)}\n\n{part.table}")


def _table(rows: dict[str, Turns]) -> str:
    lines = [
        "| route | requests/s | p50 ms | p99 ms | server CPU µs | database CPU µs | JWT requests/s | its CPU µs | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, turns in rows.items():
        ours, theirs = turns.median, turns.beside
        cpu = f"{ours.server_cpu:.0f} | {ours.database_cpu:.0f}"
        lines.append(
            f"| {name} | {ours.rate:.0f} | {ours.p50:.1f} | {ours.p99:.1f} | {cpu} "
            f"| {theirs.rate:.0f} | {theirs.cpu:.0f} | **{turns.ratio():.2f}** |"
        )
    return "\n".join(lines)
