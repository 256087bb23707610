"""Which modules the client's distribution has: what its library and its commands import, and nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.main import COMMANDS
from tests.test_architecture import OPERATORS, Module, modules_of

ROOT: Final = Path(__file__).resolve().parents[1]
FILES: Final = ROOT / "etc" / "client" / "files.txt"

#: What is no module.
DATA: Final = ("svc/py.typed", "svc/model/reasons.md")

#: What a program begins with.
ROOTS: Final = ("__main__", "cli.main", "client", "_version")

#: Libraries of the server, which a client never loads: Twisted alone is larger than all of the client's distribution.
SERVERS: Final = frozenset(
    (
        *("twisted", "treq", "klein", "zope", "cryptography", "OpenSSL", "service_identity", "psycopg2", "txpostgres"),
        *("jwt", "argon2", "httptools", "orjson", "prometheus_client", "ldaptor", "werkzeug"),
    )
)


def at_once(module: Module) -> set[str]:
    """What a module imports when it is imported: not what its functions import when they are called."""
    found: set[str] = set()

    def look(nodes: list[ast.stmt]) -> None:
        for node in nodes:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.add(f"{node.module}")
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
                look(node.body)

    look(module.tree.body)
    return found


def client_modules() -> dict[str, Module]:
    """The modules that the client's programs import, and all packages around them."""
    modules = {module.name: module for module in modules_of()}
    commands = {f"cli.{name}" for name, _ in COMMANDS.values()}
    waiting = {*ROOTS, *(commands - OPERATORS)}
    found: dict[str, Module] = {}
    while waiting:
        name = waiting.pop()
        if name in modules and name not in found:
            found[name] = modules[name]
            imported = {each.removeprefix("svc.") for each in at_once(modules[name]) if each.startswith("svc.")}
            waiting |= imported | {name.rpartition(".")[0]}
    return found


class DistributionTests(SynchronousTestCase):
    """The two distributions."""

    def test_files(self) -> None:
        """The client's distribution has the modules that its library and commands import (CLI-46)."""
        paths = {str(module.path.relative_to(ROOT)) for module in client_modules().values()}
        listed = FILES.read_text().splitlines()
        self.assertEqual(
            listed,
            sorted({*paths, *DATA, "svc/__init__.py"}),
            f"{FILES.relative_to(ROOT)} has a line for each file of the client: write it so",
        )

    def test_libraries(self) -> None:
        """None of them imports a library of the server's (CLI-46)."""
        wrong = [
            f"{name} imports {imported}"
            for name, module in client_modules().items()
            for imported in sorted(at_once(module))
            if imported.partition(".")[0] in SERVERS
        ]
        self.assertEqual(wrong, [], "keep Twisted in svc.workload's adapters, and in commands of OPERATORS")

    def test_without_them(self) -> None:
        """In a program that can't import these libraries, all modules of the client can be imported (CLI-46)."""
        names = ["svc." + name for name in sorted(client_modules()) if name and name != "__main__"]
        program = (
            "import importlib, sys\n"
            f"for name in {sorted(SERVERS)}: sys.modules[name] = None\n"
            f"for name in {names}: importlib.import_module(name)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_requirements(self) -> None:
        """Both distributions want the same of the libraries that both have."""
        theirs, ours = (
            dict(re.findall(r'^ +"([A-Za-z0-9-]+)(?:\[\w+\])? ([^"]+)"', (ROOT / name).read_text(), re.MULTILINE))
            for name in ("etc/client/setup.py", "setup.py")
        )
        both = {name: wanted for name, wanted in theirs.items() if name in ours}
        self.assertGreater(len(both), 3)
        self.assertEqual(both, {name: ours[name] for name in both})
