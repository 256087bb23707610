"""The tree keeps to ``docs/architecture.md``: which room may import which, and what is banned everywhere.

The tables below are the rules; a new arrow is a change of design, made here and in the architecture note at once.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import attrs
from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).resolve().parent.parent / "svc"

VALUES = {
    "names",
    "errors",
    "reasons",
    "clocks",
    "limits",
    "dialect",
    "records",
    "rows",
    "ownership",
    "events",
    "authentication",
    "credentials",
    "factories",
    "publickeys",
    "directories",
    "expirations",
}
DOMAIN = VALUES | {"access", "vault", "passwords", "tokens", "keyring", "jose", "interfaces"}

#: What a room may import of svc, beside itself. A room is a package, or a module at the top of ``svc``.
ARROWS: dict[str, set[str]] = {
    "_version": set(),
    "reasons": set(),
    "errors": {"reasons"},
    "clocks": set(),
    "limits": set(),
    "names": {"errors"},
    "dialect": {"errors"},
    "records": {"names", "errors"},
    "rows": {"names", "records", "events"},
    "ownership": {"names", "rows"},
    "events": {"names"},
    "rsakeys": set(),
    "jose": {"names", "errors", "reasons", "rsakeys"},
    "authentication": {"names", "errors", "reasons", "records", "jose"},
    "credentials": {"names", "records", "events"},
    "factories": {"names", "records", "events"},
    "publickeys": {"names", "records"},
    "directories": {"errors", "reasons"},
    "expirations": {"names", "errors", "records", "events", "factories"},
    "interfaces": {"names", "records", "rows", "ownership", "events", "authentication"},
    "forms": VALUES,
    "options": {"dialect", "errors", "forms"},
    "surroundings": {"forms"},
    "config": VALUES | {"forms", "options", "surroundings"},
    "keyfiles": VALUES | {"vault"},
    "renewal": set(),
    "listening": {"errors", "renewal"},
    "endpoints": {"listening", "renewal", "trust"},
    "trust": set(),
    "outgoing": {"errors", "trust"},
    "server": set(),
    "serverlog": set(),
    "startup": {"errors", "server", "serverlog", "renewal"},
    "foundation": DOMAIN | {"config", "keyfiles", "storage"},
    "backup": DOMAIN | {"storage"},
    "access": VALUES | {"interfaces"},
    "vault": VALUES,
    "passwords": {"errors"},
    "tokens": VALUES,
    "keyring": VALUES | {"tokens", "vault", "interfaces"},
    "audit": VALUES | {"interfaces"},
    "journal": VALUES | {"audit"},
    "metrics": VALUES | {"interfaces"},
    "throttling": VALUES,
    "policy": VALUES,
    "authenticators": DOMAIN,
    "providers": VALUES | {"interfaces", "jose", "outgoing", "trust"},
    "ldap": VALUES | {"providers", "trust"},
    "health": VALUES | {"interfaces"},
    "cluster": VALUES | {"outgoing", "trust"},
    "expiration": VALUES | {"interfaces", "vault", "providers", "trust"},
    "storage": VALUES | {"interfaces"},
    "web": DOMAIN | {"policy", "health", "cluster", "audit", "_version"},
    "worker": VALUES | {"interfaces", "policy"},
    "workload": {"clocks", "names", "errors", "trust"},
    "cli": {"clocks", "names", "errors", "_version", "workload"},
}

#: Where a server is put together, of parts from everywhere.
ROOTS: set[str] = {"tap", "composition", "parts"}

#: Modules that may import more than their room.
EXCEPTIONS: dict[str, set[str]] = {
    "cli.admin": {"tap", "config", "foundation", "startup", "credentials", "keyring", "vault"},
    "cli.backup": {"backup", "config", "foundation", "keyfiles", "server", "startup", "storage", "vault"},
    "cli.quickstart": {"tap", "config", "keyfiles", "startup"},
    "worker.main": {"storage", "vault", "web"},
}

#: Rooms whose modules import each other only through the modules named here.
SIBLINGS: dict[str, set[str]] = {
    "web": {
        "routing",
        "router",
        "response",
        "query",
        "paths",
        "faults",
        "incoming",
        "origin",
        "request",
        "basic",
        "connection",
        "stream",
        "cursors",
        "listing",
        "parameters",
        "description",
        "rehearsal",
        "loading",
        "auditing",
        "clusterpage",
        "preconditions",
    },
    "authenticators": {"claims", "annotations", "settings", "resourceid", "constraints", "trial", "checks", "ldapserver"},
}

#: Libraries that belong to the rooms named, and to no other.
LIBRARIES: dict[str, set[str]] = {
    # The quickstart's provider, in cli, has a key to sign with.
    "argon2": {"passwords"},
    "cryptography": {"vault", "tokens", "jose", "trust", "endpoints", "cli"},
    # Certificates of others are judged in trust; endpoints has those that this server shows.
    "OpenSSL": {"trust", "endpoints"},
    "service_identity": {"trust"},
    "idna": {"trust"},
    "ssl": set(),
    "jwt": {"tokens", "jose", "cli"},
    "psycopg2": {"storage"},
    "txpostgres": {"storage"},
    "klein": {"web", "cli"},
    "prometheus_client": {"metrics"},
    "werkzeug": {"web"},
    "ldaptor": {"ldap"},
    "treq": {"outgoing", "workload", "cli"},
    # In cli, for the file that says which variables of the environment hold which secrets.
    "yaml": {"policy", "cli"},
    "click": {"cli"},
    "tomllib": {"config"},
}

#: Attributes that read the wall clock or the process's surroundings, and the modules that may.
BANNED: dict[str, set[str]] = {
    "time.time": {"clocks"},
    "time.clock_gettime": {"clocks"},
    "time.monotonic": set(),
    "datetime.now": set(),
    "datetime.utcnow": set(),
    "datetime.today": set(),
    # Platforms speak to workloads by variables of the environment.
    "os.environ": {"config", "workload.metadata"},
    "os.getenv": set(),
}


#: Names by which TLS with another machine can begin, or is begun by default, and the modules that may have them: whatever
#: connects goes by ``svc.trust``. It has what verifies nothing, too, for the one user who may ask for that.
TLS: dict[str, set[str]] = {
    **{
        name: set()
        for name in (
            # Twisted's, public and private
            *("optionsForClientTLS", "CertificateOptions", "ClientContextFactory", "PrivateCertificate", "_sslverify"),
            *("platformTrust", "trustRootFromCertificates", "BrowserLikePolicyForHTTPS", "SSL4ClientEndpoint"),
            # the standard library's
            *("SSLContext", "create_default_context", "wrap_socket", "HTTPSConnection", "urlopen"),
        )
    },
    "clientFromString": {"endpoints"},
    "EncryptedOnly": {"trust", "expiration.postgresql"},
}


@attrs.frozen(slots=False)
class Module:
    """One source file under ``svc``: its dotted name without ``svc.``, and its syntax tree."""

    name: str
    tree: ast.Module
    lines: int

    @property
    def room(self) -> str:
        """The package, or the module itself at the top."""
        return self.name.partition(".")[0]

    @functools.cached_property
    def imports(self) -> frozenset[str]:
        """Every module that is imported, at the top or further in, by its dotted name."""
        return frozenset(self._imports())

    def _imports(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{self.name} has a relative import"
                yield f"{node.module}"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    def names(self) -> Iterator[str]:
        """Every name that is used, imported or read of something else, each without what stands before it."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name
                case ast.alias(name=name):
                    yield from name.split(".")
                case ast.ImportFrom(module=str(name)):
                    yield from name.split(".")

    def attributes(self) -> Iterator[str]:
        """Every ``name.attribute`` that is read."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                yield f"{node.value.id}.{node.attr}"


@functools.cache
def _modules() -> list[Module]:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        text = path.read_text(encoding="utf-8")
        found.append(Module(name, ast.parse(text), text.count("\n")))
    return found


def _stem_of(imported: str, modules: set[str]) -> str | None:
    """The module of svc that an import names, without ``svc.``; ``None`` for one from elsewhere."""
    if imported == "svc" or not imported.startswith("svc."):
        return None
    rest = imported.removeprefix("svc.")
    return rest if rest in modules else rest.rpartition(".")[0] or rest


class ArchitectureTests(SynchronousTestCase):
    """Rooms, arrows and bans."""

    def setUp(self) -> None:
        """Read the tree."""
        self.modules = _modules()
        self.names = {module.name for module in self.modules}

    def arrows(self) -> Iterator[tuple[Module, str]]:
        """Every import of one module of svc by another."""
        for module in self.modules:
            targets = {_stem_of(imported, self.names) for imported in module.imports}
            yield from ((module, target) for target in sorted(filter(None, targets)) if target != module.name)

    def test_imports_point_down(self) -> None:
        """A module imports only from its own room and from the rooms that the table allows."""
        wrong = []
        for module, target in self.arrows():
            room = target.partition(".")[0]
            if module.room in {room, *ROOTS, ""}:
                continue
            allowed = ARROWS.get(module.room, set()) | EXCEPTIONS.get(module.name, set())
            if room not in allowed:
                wrong.append(f"{module.name} imports {target}")
        self.assertEqual(wrong, [])

    def test_a_forbidden_import_is_found(self) -> None:
        """An import against the table is found, however it is written and wherever it stands."""
        for text in (
            "import svc.web.routing",
            "from svc.web import routing",
            "def f():\n    from svc.web.routing import Call",
        ):
            self.modules = [Module("policy.plan", ast.parse(text), 2)]
            self.assertRaises(self.failureException, self.test_imports_point_down)

    def test_every_room_is_in_the_table(self) -> None:
        """No room exists that the table does not know."""
        rooms = {module.room for module in self.modules} - {"", *ROOTS}
        self.assertEqual(rooms - ARROWS.keys(), set())

    def test_siblings_meet_only_where_they_may(self) -> None:
        """In rooms of independent nouns, a noun does not import another."""
        wrong = []
        for module, target in self.arrows():
            shared = SIBLINGS.get(module.room)
            if shared is None or target.partition(".")[0] != module.room or target == module.room:
                continue
            if target.partition(".")[2] not in shared and module.name.partition(".")[2] not in shared:
                wrong.append(f"{module.name} imports {target}")
        self.assertEqual(wrong, [])

    def test_libraries_stay_in_their_rooms(self) -> None:
        """A library that one room owns is imported by no other."""
        wrong = []
        for module in self.modules:
            for imported in sorted(module.imports):
                owners = LIBRARIES.get(imported.partition(".")[0])
                if owners is not None and module.room not in owners:
                    wrong.append(f"{module.name} imports {imported}")
        self.assertEqual(wrong, [])

    def test_tls_with_others_is_begun_in_one_place(self) -> None:
        """Nothing connects over TLS but by ``svc.trust``: no other module names what could, nor makes an agent that does."""
        wrong = []
        for module in self.modules:
            for name in sorted(set(module.names())):
                if module.name not in TLS.get(name, {module.name}):
                    wrong.append(f"{module.name} names {name}")
            agents = (node.func for node in ast.walk(module.tree) if isinstance(node, ast.Call))
            # Made so, an agent trusts by itself; usingEndpointFactory leaves that to the factory.
            if any(isinstance(agent, ast.Name) and agent.id == "Agent" for agent in agents) or "treq" in module.imports:
                wrong.append(f"{module.name} makes an agent of its own")
        self.assertEqual(wrong, [])

    def test_tls_elsewhere_is_found(self) -> None:
        """A connection that trusts in another way is found, however it comes by its names."""
        for text in (
            "from twisted.internet.ssl import optionsForClientTLS as o",
            "from twisted.internet import ssl\nssl.optionsForClientTLS('a')",
            "from twisted.internet import _sslverify",
            "from twisted.web.client import Agent\nAgent(reactor)",
            "import treq\ntreq.get('https://a.example')",
            "from twisted.internet.endpoints import clientFromString",
            "from svc.trust import EncryptedOnly",
        ):
            self.modules = [Module("providers.fetch", ast.parse(text), 2)]
            self.assertRaises(self.failureException, self.test_tls_with_others_is_begun_in_one_place)
        for text in ("import ssl", "from OpenSSL.SSL import Context", "import service_identity"):
            self.modules = [Module("providers.fetch", ast.parse(text), 2)]
            self.assertRaises(self.failureException, self.test_libraries_stay_in_their_rooms)

    def test_no_import_cycles(self) -> None:
        """The modules can be put in an order in which each imports only earlier ones."""
        waiting: dict[str, set[str]] = {module.name: set() for module in self.modules}
        for module, target in self.arrows():
            waiting[module.name].add(target)
        while ready := {name for name, targets in waiting.items() if not targets & waiting.keys()}:
            waiting = {name: targets for name, targets in waiting.items() if name not in ready}
        self.assertEqual(sorted(waiting), [])

    def test_the_reactor_is_imported_by_roots_alone(self) -> None:
        """Only ``tap``, ``worker.main`` and ``cli`` import the reactor: what a process begins with."""
        importers = {m.name for m in self.modules if "twisted.internet.reactor" in m.imports}
        roots = {name for name in importers if name in {"tap", "worker.main"} or name.startswith("cli.")}
        self.assertEqual(importers, roots)

    def test_every_reactor_runs_steadily(self) -> None:
        """What runs a reactor, whose timers would go by the machine's clock otherwise, has it run steadily."""
        runners = {m.name for m in self.modules if "twisted.internet.reactor" in m.imports or "task.react" in m.attributes()}
        self.assertEqual(runners, {m.name for m in self.modules if "svc.clocks.run_steadily" in m.imports})

    def test_surroundings_are_parameters(self) -> None:
        """No module reads the wall clock, and only ``config`` and ``workload.metadata`` the environment."""
        wrong = []
        for module in self.modules:
            for attribute in module.attributes():
                allowed = BANNED.get(attribute)
                if allowed is not None and module.name not in allowed:
                    wrong.append(f"{module.name} uses {attribute}")
        self.assertEqual(wrong, [])

    def test_no_type_checking_escapes(self) -> None:
        """No import hides behind TYPE_CHECKING."""
        self.assertEqual([m.name for m in self.modules if "typing.TYPE_CHECKING" in m.imports], [])

    def test_packages_hold_a_docstring_alone(self) -> None:
        """An ``__init__`` is a docstring: nothing is exported a second time."""
        packages = [ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("__init__.py")]
        self.assertTrue(packages)
        for tree in packages:
            self.assertEqual([type(node).__name__ for node in tree.body], ["Expr"])

    def test_modules_are_nouns_of_one_sitting(self) -> None:
        """No module is longer than 400 lines."""
        self.assertEqual([(m.name, m.lines) for m in self.modules if m.lines > 400], [])
