"""Load by ``wrk``, and what it and the kernel say about it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from bench.processes import cpu_seconds
from bench.settings import CONNECTIONS, SECONDS, THREADS

#: Sends the prepared requests of a file in turn: each line is a method, a path, headers and a body, separated by tabs.
_SCRIPT: Final = """
local requests, next_one, wrong = {}, 0, 0
function init(args)
  for line in io.lines(args[1]) do
    local method, path, name, value, body = line:match("^([^\\t]*)\\t([^\\t]*)\\t([^\\t]*)\\t([^\\t]*)\\t(.*)$")
    local headers = {}
    if name ~= "" then headers[name] = value end
    if body == "" then body = nil end
    requests[#requests + 1] = wrk.format(method, path, headers, body)
  end
end
function request()
  next_one = next_one % #requests + 1
  return requests[next_one]
end
function done(summary, latency, requests)
  io.write(string.format("RESULT %d %d %d %d %d %d\\n", summary.requests, summary.duration,
    summary.errors.status, summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
"""


@attrs.frozen
class Request:
    """One prepared request; ``header`` is a name and a value."""

    method: str
    path: str
    header: tuple[str, str] = ("", "")
    body: str = ""


@attrs.frozen
class Figures:
    """What one run measured: rate per second, latencies in milliseconds, CPU microseconds per request."""

    rate: float
    p50: float
    p99: float
    server_cpu: float
    database_cpu: float


def demand_wrk() -> None:
    """Return if there is a ``wrk``.

    :raises SystemExit: there is none.
    """
    if shutil.which("wrk") is None:
        raise SystemExit("the bench needs wrk, which Debian has as a package of that name: apt-get install wrk")


def write_requests(folder: Path, name: str, requests: Sequence[Request]) -> Path:
    """Write prepared requests to a file that :func:`run` can send."""
    path = folder / f"{name}.requests"
    with path.open("w") as file:
        for request in requests:
            file.write("\t".join((request.method, request.path, *request.header, request.body)) + "\n")
    return path


def run(
    url: str,
    requests: Path,
    server: Sequence[int],
    database: Sequence[int],
    *,
    refused: bool = False,
    seconds: int = SECONDS,
) -> Figures:
    """Send the requests for some seconds; every answer must be a success, or a refusal where they are to be ``refused``.

    ``server`` and ``database`` are the ids of the processes whose CPU time is charged.
    """
    script = requests.with_name("wrk.lua")
    script.write_text(_SCRIPT)
    before = cpu_seconds(server), cpu_seconds(database)
    command = ["wrk", f"-t{THREADS}", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(script), url, "--", str(requests)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = cpu_seconds(server), cpu_seconds(database)
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", output)
    assert found, output
    count, microseconds, refusals, failed, p50, p99 = map(int, found.groups())
    if refusals != (count if refused else 0) or failed or not count:
        raise SystemExit(f"{url}: {refusals} of {count} answers were refusals, {failed} requests failed\n{output}")
    return Figures(
        rate=count / (microseconds / 1e6),
        p50=p50 / 1000,
        p99=p99 / 1000,
        server_cpu=(after[0] - before[0]) / count * 1e6,
        database_cpu=(after[1] - before[1]) / count * 1e6,
    )
