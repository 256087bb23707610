"""Programs that tests run and that a machine may lack: where they are found, and the words of a skip.

All of them are found by ``PATH`` alone, so that a machine without them can be had by a ``PATH`` without them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final
from unittest import SkipTest

#: The packages of Debian that programs come from, where these have other names.
_PACKAGES: Final = {
    "chromedriver": "chromium-driver",
    "etcd": "etcd-server",
    "ip": "iproute2",
    "nginx": "nginx-light",
    "node": "nodejs",
    "pg_ctlcluster": "postgresql",
    "promtool": "prometheus",
    "slapadd": "slapd",
    "slapcat": "slapd",
    "slapmodify": "slapd",
    "systemd-analyze": "systemd",
}


def find_program(name: str) -> str | None:
    """Return the path of a program, ``None`` where there is none.

    Debian keeps servers in folders ``sbin``, which only root has in its ``PATH``: those beside the folders ``bin`` of the
    ``PATH`` are searched as well.
    """
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    beside = [str(Path(folder).with_name("sbin")) for folder in folders if Path(folder).name == "bin"]
    return shutil.which(name, path=os.pathsep.join((*folders, *beside)))


def explain_missing(*names: str) -> str | None:
    """Return the reason to skip a test that needs these programs, ``None`` where all are there."""
    missing = [name for name in names if find_program(name) is None]
    if not missing:
        return None
    packages = sorted({_PACKAGES.get(name, name) for name in missing})
    return f"{', '.join(missing)} isn't installed: Debian has it in {', '.join(packages)}"


def require_programs(*names: str) -> list[str]:
    """Return the paths of programs.

    :raises SkipTest: one of them is missing.
    """
    if missing := explain_missing(*names):
        raise SkipTest(missing)
    return [find_program(name) or name for name in names]


def find_postgresql() -> Path | None:
    """Return the folder of the newest PostgreSQL of Debian's packages.

    It is in no ``PATH``; Debian's own commands, which find it, are.
    """
    if find_program("pg_ctlcluster") is None:
        return None
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parent.parent.name))
    return found[-1].parent if found else None
