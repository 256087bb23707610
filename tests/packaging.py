"""Looks into the distributions of server and client: what users need is in, what they don't isn't, nothing is in both."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: What the wheels have, whatever else, and the source distributions.
NEEDED = {
    "svc": {
        "svc/tap.py",
        "svc/storage/schema/0001_start.sql",
        "svc/web/console/templates/layout.html",
        "svc/web/console/templates/style.css",
        "svc/cli/quickstart.py",
        "svc/cli/sample/cloud.yml",
        "svc/cli/sample/policy.yml",
        "svc/workload/client.py",
        "twisted/plugins/svc_plugin.py",
    },
    "svc-client": {
        "svc/__init__.py",
        "svc/py.typed",
        "svc/agent/core.py",
        "svc/cli/main.py",
        "svc/model/reasons.md",
        "svc/client/__init__.py",
    },
}

#: What metadata would have of the machine that built it.
PLACES = re.compile(r"file:|/home/|/root/|/tmp/|" + re.escape(str(ROOT)))


def look_into(folder: Path, name: str, faults: list[str]) -> set[str]:
    """Check the wheel and the source distribution of that name; return the files of the wheel."""
    stem = name.replace("-", "_")
    (wheel,) = folder.glob(f"{stem}-[0-9]*.whl")
    (source,) = folder.glob(f"{stem}-[0-9]*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        notes = {
            each: archive.read(each).decode("utf-8") for each in inside if ".dist-info/" in each and "LICENSE" not in each
        }
    with tarfile.open(source) as packed_files:
        packed = {each.partition("/")[2].removeprefix("src/") for each in packed_files.getnames()}
    faults += [f"{wheel.name} lacks {each}" for each in sorted(NEEDED[name] - inside)]
    faults += [f"{wheel.name} holds {each}" for each in sorted(inside) if each.startswith(("tests/", "bench/", "etc/"))]
    faults += [f"{source.name} lacks {each}" for each in sorted((NEEDED[name] | {"LICENSE", "README.md"}) - packed)]
    faults += [f"{wheel.name}: {each} names a place" for each, text in sorted(notes.items()) if PLACES.search(text)]
    return {each for each in inside if ".dist-info/" not in each}


def main(place: str) -> int:
    """Check what is in a folder; return the exit code."""
    folder, faults = Path(place), list[str]()
    server, client = (look_into(folder, name, faults) for name in NEEDED)
    faults += [f"both wheels hold {each}" for each in sorted(server & client)]
    files = (path for path in (ROOT / "svc").rglob("*") if path.is_file() and path.suffix != ".pyc")
    tree = {path.relative_to(ROOT).as_posix() for path in files}
    faults += [f"no wheel holds {each}" for each in sorted(tree - server - client)]
    print("\n".join(faults) or "both distributions hold what they should, and no file is in both")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
