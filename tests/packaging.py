"""Looks into the built distributions: what users need is in, what they don't is out."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

NEEDED = {
    "svc/py.typed",
    "svc/tap.py",
    "svc/storage/schema/0001_start.sql",
    "svc/cli/sample/cloud.yml",
    "svc/cli/reasons.md",
    "svc/cli/sample/policy.yml",
    "twisted/plugins/svc_plugin.py",
}


def main(folder: str) -> int:
    """Check the wheel and the source distribution in ``folder``; return the exit code."""
    (wheel,) = Path(folder).glob("*.whl")
    (source,) = Path(folder).glob("*.tar.gz")
    inside = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(source) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    faults = [f"the wheel lacks {name}" for name in sorted(NEEDED - inside)]
    faults += [f"the wheel holds {name}" for name in sorted(inside) if name.startswith(("tests/", "bench/"))]
    faults += [f"the source distribution lacks {name}" for name in sorted((NEEDED | {"LICENSE", "README.md"}) - packed)]
    print("\n".join(faults) or f"{wheel.name} and {source.name} hold what they should")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
