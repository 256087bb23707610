"""How long a backup takes: made, tried, and restored, of many resources on the embedded PostgreSQL."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg2

from bench import settings
from bench.report import Figure, Part
from bench.server import ACCOUNT, Server, say
from svc.crypto.vault import Vault

_RESOURCES: Final = f"""
    INSERT INTO resources (resource_id, owner_id, policy_id)
    SELECT '{ACCOUNT}:variable:app-' || number / 100 || '/secret-' || number, root, root
    FROM generate_series(0, %s - 1) AS number, (VALUES ('{ACCOUNT}:policy:root')) AS policy (root)
"""
_PERMISSIONS: Final = f"""
    INSERT INTO permissions (resource_id, privilege, role_id, policy_id)
    SELECT resource_id, 'execute', '{ACCOUNT}:user:admin', '{ACCOUNT}:policy:root' FROM resources
    WHERE starts_with(resource_id, '{ACCOUNT}:variable:')
"""


def measure(folder: Path) -> Part:
    """Measure each command once, with values of a tenth of the resources."""
    total, place = settings.BACKED_UP, folder / "backed-up"
    say(f"backup: {total} resources")
    with Server.running(place) as server:
        _fill(server, total)
        dump = folder / "svc.dump"
        made = _timed("create", str(dump), f"--data-dir={server.folder}")
    verified = _timed("verify", str(dump), f"--data-dir={place}")
    key = folder / "key"
    shutil.copyfile(place / "data-key", key)
    key.chmod(0o600)
    restored = _timed("restore", str(dump), f"--data-dir={folder / 'restored'}", f"--data-key-file={key}")
    size = dump.stat().st_size / 1e6
    origin = f"{total} resources, {total // 10} values, {size:.0f} MB, load {os.getloadavg()[0]:.0f}"
    seconds = {"svc backup create": made, "svc backup verify": verified, "svc backup restore": restored}
    return Part.of([Figure(name, taken, "s", origin=origin) for name, taken in seconds.items()], {"bytes": size * 1e6})


def _fill(server: Server, total: int) -> None:
    vault = Vault(base64.b64decode((server.folder / "data-key").read_text()))

    def rows() -> Iterator[tuple[str, bytes]]:
        for number in range(0, total, 10):
            name = f"{ACCOUNT}:variable:app-{number // 100}/secret-{number}"
            yield name, vault.seal(name, b"s" * 32)

    with psycopg2.connect(server.database) as connection:
        cursor: Any = connection.cursor()
        cursor.execute(_RESOURCES, (total,))
        cursor.execute(_PERMISSIONS)
        cursor.executemany("INSERT INTO secrets (resource_id, version, sealed) VALUES (%s, 1, %s)", rows())
    connection.close()


def _timed(*arguments: str) -> float:
    command = [sys.executable, "-c", "from svc.cli.main import main; main()", "backup", *arguments]
    begun = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - begun
