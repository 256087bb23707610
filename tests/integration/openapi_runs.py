"""A long run of requests made up from the OpenAPI document: ``python -m tests.integration.openapi_runs --requests N``.

It starts a server with a PostgreSQL of its own, sends requests until there were N of them or the time is up, prints figures,
and ends with exit code 1 if there was an answer that the document doesn't tell, one of 5xx that isn't meant, or a hang.
``--variants`` says how many variants follow each request that schemathesis made up: with 200 of them a million takes a part
of an hour.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from svc.model.dialect import CONJUR, NATIVE, find_dialect
from tests.integration.openapi_fuzz import OPTIONS, Fuzz

_READY = re.compile(r"API key for admin: (\S+)\n(?:.*\n)*?svc ready: (\S+)\n")


def _started(folder: str, dialect: str) -> tuple[subprocess.Popen[str], str, str]:
    """Start a server, and return it with the admin's API key and its address."""
    twistd = str(Path(sys.executable).with_name("twistd"))
    options = [f"--dialect={dialect}", "--listen=tcp:0:interface=127.0.0.1", *OPTIONS]
    log = Path(folder, "log")
    with log.open("w", encoding="utf-8") as said:
        command = [twistd, "-n", "--pidfile=", "svc", *options, f"--data-dir={folder}/data"]
        surroundings = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "PATH": os.defpath, "HOME": folder}
        server = subprocess.Popen(command, cwd=folder, env=surroundings, stdout=said, stderr=said, text=True)
    for _ in range(600):
        if found := _READY.search(log.read_text(encoding="utf-8")):
            return server, found[1], found[2].split()[0]
        if server.poll() is not None:
            break
        time.sleep(0.1)
    server.kill()
    raise SystemExit(log.read_text(encoding="utf-8"))


def main() -> None:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000, help="how many requests")
    parser.add_argument("--seconds", type=float, default=86_400, help="how long at most")
    parser.add_argument("--each", type=int, default=25, help="how many of one operation before the next one's")
    parser.add_argument("--variants", type=int, default=0, help="how many variants of each request are sent, too")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first round")
    parser.add_argument("--dialect", choices=[NATIVE.name, CONJUR.name], default=NATIVE.name)
    parser.add_argument("--log", help="where the server's log is kept, which has the tracebacks of faults")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # Where this is root, PostgreSQL runs as another user.
        Path(folder).chmod(0o755)
        server, key, url = _started(folder, chosen.dialect)
        began = time.monotonic()
        dialect = find_dialect(chosen.dialect)
        fuzz = Fuzz(url, key, began + chosen.seconds, dialect, chosen.variants, chosen.requests)
        try:
            fuzz.run(each=chosen.each, number=chosen.seed)
        finally:
            server.terminate()
            server.wait(60)
            if chosen.log is not None:
                shutil.copy(Path(folder, "log"), chosen.log)
    took = time.monotonic() - began
    sys.stdout.write(f"{fuzz.told()}; {took:.0f} s, {fuzz.sent / took:.0f} a second\n")
    for fault, request in fuzz.faults.items():
        sys.stdout.write(f"{fault}\n  {request}\n")
    sys.exit(1 if fuzz.faults else 0)


if __name__ == "__main__":
    main()
