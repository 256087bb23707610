"""``python -m tests.neighbours NAME``: start a neighbour, run its table, exit with 0 when nothing deviates."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import tests.neighbours
from tests.neighbours.table import run_rows


def list_neighbours() -> dict[str, ModuleType]:
    """Return the modules of this package that are neighbours, by their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(tests.neighbours.__path__) if module.name != "__main__")
    modules = {name: importlib.import_module(f"tests.neighbours.{name}") for name in names}
    return {
        getattr(module, "NAME", name.replace("_", "-")): module
        for name, module in modules.items()
        if hasattr(module, "SUMMARY")
    }


def main(arguments: list[str]) -> int:
    """Run the neighbours that are named; return 0, 1 with deviations, or 2 where a program is missing."""
    neighbours = list_neighbours()
    parser = argparse.ArgumentParser(prog="python -m tests.neighbours", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*neighbours, []], help="samba, keycloak, …")
    parser.add_argument("--list", action="store_true", help="name the neighbours, and whether they can be run here")
    options = parser.parse_args(arguments)
    if options.list or not options.names:
        for name, module in neighbours.items():
            print(f"{name:<16}{module.SUMMARY}\n{'':<16}{module.missing() or 'can be run here'}")
        return 0 if options.list else 2
    worst = 0
    for name in options.names:
        worst = max(worst, _run(name, neighbours[name]))
    return worst


def _run(name: str, module: ModuleType) -> int:
    if (missing := module.missing()) is not None:
        print(f"{name} can't be run here: {missing}", file=sys.stderr)
        return 2
    count = 0

    def notify(line: str) -> None:
        nonlocal count
        count += 1
        print(line, flush=True)

    with tempfile.TemporaryDirectory(prefix=f"svc-{name}-") as directory, ExitStack() as stack:
        Path(directory).chmod(0o755)
        deviations = list(run_rows(module.rows(stack, Path(directory)), notify))
    print(f"{name}: {count} cases, {len(deviations)} deviations")
    return 1 if deviations or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
