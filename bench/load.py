"""Load by ``wrk``, and what it and the kernel say about it."""

from __future__ import annotations

import re
import resource
import shutil
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import attrs

from bench.processes import cpu_seconds
from bench.settings import CONNECTIONS, SECONDS, THREADS

#: Sends the prepared requests of a file in turn, from any of them on: each line is a method, a path, headers and a body,
#: separated by tabs.
_SCRIPT: Final = """
local requests, next_one = {}, 0
function init(args)
  for line in io.lines(args[1]) do
    local method, path, name, value, body = line:match("^([^\\t]*)\\t([^\\t]*)\\t([^\\t]*)\\t([^\\t]*)\\t(.*)$")
    local headers = {}
    if name ~= "" then headers[name] = value:gsub("\\v", "\\r\\n") end
    if body == "" then body = nil end
    requests[#requests + 1] = wrk.format(method, path, headers, body)
  end
  math.randomseed(os.time())
  next_one = math.random(#requests)
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
    """One prepared request; ``header`` is a name and a value, in which a vertical tab begins another header."""

    method: str
    path: str
    header: tuple[str, str] = ("", "")
    body: str = ""


@attrs.frozen
class Figures:
    """The measurements of one run: answers, their rate per second, latencies in milliseconds, CPU microseconds of a request:
    of the server, of its database, and of the load itself.
    """

    requests: float
    rate: float
    p50: float
    p99: float
    server_cpu: float
    database_cpu: float
    load_cpu: float

    @property
    def cpu(self) -> float:
        """The server's and its database's."""
        return self.server_cpu + self.database_cpu

    @classmethod
    def median(cls, runs: Sequence[Self]) -> Self:
        """The median of each figure."""
        return cls(*(statistics.median(values) for values in zip(*map(attrs.astuple, runs), strict=True)))


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
    server: int,
    *,
    refused: bool = False,
    seconds: int = SECONDS,
    connections: int = CONNECTIONS,
) -> Figures:
    """Send the requests for some seconds; every answer must be a success, or a refusal where they are to be ``refused``.

    ``server`` is the process whose CPU time is charged, with its children's.
    """
    script = requests.with_name("wrk.lua")
    if not script.exists():  # Another load may be reading it.
        script.write_text(_SCRIPT)
    before = *cpu_seconds(server), _load_seconds()
    command = ["wrk", f"-t{THREADS}", f"-c{connections}", f"-d{seconds}s", "-s", str(script), url, "--", str(requests)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = *cpu_seconds(server), _load_seconds()
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)", output)
    assert found, output
    count, microseconds, refusals, failed, p50, p99 = map(int, found.groups())
    if refusals != (count if refused else 0) or failed or not count:
        raise SystemExit(f"{url}: {refusals} of {count} answers were refusals, {failed} requests failed\n{output}")
    server_cpu, database_cpu, load_cpu = ((late - early) / count * 1e6 for early, late in zip(before, after, strict=True))
    rate = count / (microseconds / 1e6)
    return Figures(count, rate, p50 / 1000, p99 / 1000, server_cpu, database_cpu, load_cpu)


def _load_seconds() -> float:
    """The CPU time of all runs of ``wrk`` so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
