"""Measures the service beside references, in one run: ``python -m bench [PART …] [--json]``.

Most parts need ``wrk`` (Debian's package of that name); all need ``pip install ./etc/client '.[embedded]'``. All if none
is named.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench import (
    access,
    audit,
    audit_search,
    backup,
    capacity,
    clouds,
    console,
    cores,
    driver,
    followers,
    growth,
    health,
    inside,
    many,
    memory,
    path,
    pipelining,
    policy,
    refusals,
    resealing,
    routes,
    settings,
    storm,
)
from bench.report import Part

PARTS: Final[Mapping[str, Callable[[Path], Part]]] = {
    "routes": routes.measure,
    "clouds": clouds.measure,
    "refusals": refusals.measure,
    "many": many.measure,
    "memory": memory.measure,
    "processes": cores.measure,
    "followers": followers.measure,
    "policy": policy.measure,
    "growth": growth.measure,
    "access": access.measure,
    "storm": storm.measure,
    "audit": audit.measure,
    "audit-search": audit_search.measure,
    "backup": backup.measure,
    "capacity": capacity.measure,
    "console": console.measure,
    "health": health.measure,
    "pipelining": pipelining.measure,
    "driver": driver.measure,
    "inside": inside.measure,
    "path": path.measure,
    "resealing": resealing.measure,
}


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return 0 when every promised figure was reached."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures the service beside references.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them without any")
    parser.add_argument("--json", action="store_true", help="print everything that was measured, as JSON")
    parser.add_argument("--list", action="store_true", help="of path, also print every function, in order")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts).difference(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    measured: dict[str, Part] = {}
    for name in options.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="svc-bench-") as folder:
            Path(folder).chmod(0o755)
            measured[name] = PARTS[name](Path(folder))
        if not options.json:
            print(f"{measured[name].table}\n", flush=True)
        if options.list and not options.json:
            for request, starts in measured[name].details.get("paths", {}).items():
                print(f"{request}:", *(f"  {file} {function}" for file, function in starts), sep="\n", end="\n\n")
    python, cores, system = platform.python_version(), os.cpu_count(), platform.platform()
    if options.json:
        pinned = {name: value for name, value in vars(settings).items() if name.isupper()}
        machine = {"python": python, "cores": cores, "system": system}
        details = {name: part.details for name, part in measured.items()}
        print(json.dumps({"settings": pinned, "machine": machine, **details}, indent=2))
    else:
        print(f"Python {python}, {cores} cores, {system}.")
    return int(not all(part.kept for part in measured.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
