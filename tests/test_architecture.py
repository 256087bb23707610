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
BENCH = ROOT.parent / "bench"

#: The most arguments that a call gives by position.
POSITIONS = 8

#: Lines of a module, docstring and imports included, below which it needs two importers.
SHORT = 80

#: How many interfaces of zope's there are in svc.
INTERFACES = 10

#: The floors, from the ground up. A room imports from floors below its own, and from nothing beside it. A room is a package
#: at the top of ``svc`` or one of its folders, or a module at the top.
FLOORS: tuple[set[str], ...] = (
    {"model", "_version"},
    {"net", "policy", "settings", "telemetry"},
    {"storage.driver", "storage.embedded", "workload"},
    {"client", "storage.sql"},
    {"agent", "importing", "storage"},
    {"audit", "crypto", "health"},
    {"authn.providers", "cluster", "rotation"},
    {"authn"},
    {"authn.ldap"},
    {"services"},
    {"web.http", "worker"},
    {"processes", "web.routes"},
    {"web.console", "web.openapi"},
    {"server"},
    {"tap"},
    {"cli"},
    {"__main__"},
)

#: Rooms that only those named here may import.
DOORS: dict[str, set[str]] = {
    "authn": {"authn.ldap", "services", "server"},
    "authn.ldap": {"services", "server"},
    "agent": {"cli"},
    "client": {"agent", "cli"},
    "importing": {"cli"},
    "authn.providers": {"authn", "services", "server"},
    "cluster": {"web.routes", "web.console", "server"},
    "net": {"authn", "authn.ldap", "authn.providers", "cluster", "rotation", "storage.driver", "workload", "server"},
    "processes": {"server"},
    "rotation": {"server"},
    "settings": {"server", "tap", "cli"},
    # A store is its own interface: those that are given one name its class.
    "storage": {
        *("audit", "authn", "authn.ldap", "crypto", "health", "rotation", "services", "web.console", "web.routes"),
        *("worker", "server", "cli"),
    },
    "storage.driver": {"storage.sql", "storage", "worker", "server", "cli"},
    "storage.embedded": {"storage", "server"},
    "storage.sql": {"storage"},
    "telemetry": {"server", "cli"},
    "web.console": {"server"},
    "web.http": {"web.routes", "web.console", "web.openapi", "server"},
    # A server has it as a noun, and a command prints what it tells.
    "web.openapi": {"server", "cli"},
    # The console takes from there what both say alike: the events of the audit, and the parameters of lists. The document
    # is made of all nouns' declarations.
    "web.routes": {"web.console", "web.openapi", "server"},
    "worker": {"server"},
    "workload": {"agent", "client", "importing", "cli"},
}

#: All that rooms may import which users load into programs and terminals of their own, but for modules that run a server.
ALONE: dict[str, set[str]] = {
    "workload": {
        *("model.clocks", "model.names", "model.errors", "model.text", "model.versions", "net.trust", "net.capped"),
        *("model.caller_identity", "model.cloud_resource_id", "model.strict_json"),
    },
    "agent": {"client", "model.clocks", "model.text", "workload"},
    "importing": {"model.clocks", "model.dialect", "model.names", "model.text", "workload"},
    "client": {"model.clocks", "model.versions", "_version", "workload"},
    "cli": {
        *(
            "model.access",
            "model.clocks",
            "model.dialect",
            "model.names",
            "model.errors",
            "model.interrupts",
            "model.reasons",
            "model.versions",
        ),
        *("_version", "agent", "client", "importing", "workload"),
    },
}
#: Commands that run or administer a server, and what only they use: modules of the server's distribution.
OPERATORS: set[str] = {
    *("cli.admin", "cli.audit_files", "cli.audit_proof", "cli.backup", "cli.doctor", "cli.follower", "cli.migrate"),
    *("cli.openapi", "cli.platform", "cli.provider", "cli.quickstart", "cli.quickstart_steps"),
    *("cli.quickstart_tour", "cli.reactor", "cli.server"),
}

#: Rooms whose modules import each other only through the modules named here.
SIBLINGS: dict[str, set[str]] = {
    "web.routes": {
        "access",
        "cursors",
        "listing",
        "audit",
        "resource_json",
        "secret_values",
        "authenticator_events",
        "health_json",
        "named_role",
        "v2_requests",
        "authn",
        "entries",
        "idempotency",
        "readers",
    },
    "authn": {
        "settings",
        "evaluation",
        "checks",
        "oidc_settings",
    },
}

#: Libraries that belong to the rooms or modules named, and to no other.
LIBRARIES: dict[str, set[str]] = {
    # The quickstart's provider, in cli, has a key to sign with.
    "argon2": {"crypto.passwords"},
    "cryptography": {"crypto", "net.trust", "server.endpoints", "server.certificates", "cli"},
    # Certificates of others are judged in trust; endpoints has those that this server shows.
    "OpenSSL": {"net.trust", "server.endpoints"},
    "service_identity": {"net.trust"},
    "idna": {"net.trust"},
    "ssl": {"client.tls"},
    "httpx": {"client"},
    "httpcore": {"client"},
    "hyperlink": {"workload.address"},
    "jwt": {"crypto", "cli"},
    "psycopg2": {"storage"},
    "txpostgres": {"storage"},
    "klein": {"web", "cli"},
    "prometheus_client": {"telemetry"},
    "werkzeug": {"web"},
    "ldaptor": {"authn.ldap"},
    "treq": {"net.outgoing", "workload", "cli"},
    # Statuses and JSON belong to those who speak HTTP; besides, there are tokens and policies, and what is kept, in JSON.
    "http": {"web", "workload"},
    "httptools": {"web.http"},
    "jinja2": {"agent.templates", "web.console.rendering", "web.openapi.page"},
    "markupsafe": set(),
    "json": {
        "agent.reporting",
        "importing",
        "web",
        "workload",
        "cluster",
        "crypto",
        "policy.statement_writer",
        "storage",
        "model.strict_json",
        "cli",
        "server.serverlog",
        "services.idempotency",
        "services.kept_counts",
    },
    "orjson": {"web.http.messages"},
    # In cli, for the file that says which variables of the environment hold which secrets.
    "yaml": {"policy", "cli"},
    "click": {"cli"},
    "tomllib": {"agent.configuration", "settings"},
}

#: Attributes that read the wall clock or the process's surroundings, and the modules that may.
BANNED: dict[str, set[str]] = {
    "time.time": {"model.clocks"},
    "time.clock_gettime": {"model.clocks"},
    "time.monotonic": set(),
    "datetime.now": set(),
    "datetime.utcnow": set(),
    "datetime.today": set(),
    # Platforms speak to workloads by variables of the environment.
    "os.environ": {"settings.reading", "workload.metadata"},
    "os.getenv": set(),
}


#: Names by which TLS with another machine can begin, or is begun by default, and the modules that may have them: whatever
#: connects goes by ``svc.net.trust``. It has what verifies nothing, too, for the one user who may ask for that.
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
    # The client for programs without Twisted is as strict; see tests/client/test_tls.py.
    "SSLContext": {"client.tls"},
    "clientFromString": {"server.endpoints"},
    "EncryptedOnly": {"net.trust", "rotation.postgresql"},
}


_COMMAND = "svc.cli.main imports a command by its name, and other commands load none of it"
_ROUND = "the singletons start this round, and its room has the subject"
_PUBLIC = "programs of others import it: tests/surface.txt"

#: Short modules that fewer than two others import and that stay by themselves, each with its reason.
SHORT_MODULES: dict[str, str] = {
    "audit.retention": _ROUND,
    "cli.completion": _COMMAND,
    "cli.openapi": _COMMAND,
    "cli.reason": "explain-reason asks no server: with explain-request, it would load all that connects, for 0.4 s",
    "cli.server": _COMMAND,
    "cli.sessions": _COMMAND,
    "cli.user": _COMMAND,
    "cli.versions": "it keeps files, and its importer, the connection, has 520 lines without it",
    "health.ages": _ROUND,
    "policy.advice": "a table of sentences about the messages of its room, which a use case of another room returns",
    "server.console": "it is imported where the settings want a console: its library takes time to load",
    "storage.audit_keys": "the store of one table; the server's bootstrap, which needs it, has no SQL",
    "storage.diagnostics": "the queries of `svc doctor`, which no server makes; its importer has no SQL",
    "storage.cache.version_barrier": "requests wait here for versions of the database and of its cache, two rooms",
    "storage.cache.trimming": _ROUND,
    "storage.purging": _ROUND,
    "web.openapi.served_routes": "routes may be imported by web alone, and the command that prints their document is in cli",
    "workload.capped_agent": _PUBLIC,
    "workload.client": _PUBLIC,
    "workload.shared_work": _PUBLIC,
}

_FLOOR_OF = {room: number for number, floor in enumerate(FLOORS) for room in floor}


def room_of(name: str) -> str:
    """Return the room of a module: the folder in a package where that is a room, else the package or the module itself."""
    first, _, rest = name.partition(".")
    folder = f"{first}.{rest.partition('.')[0]}"
    return folder if folder in _FLOOR_OF else first


@attrs.frozen(slots=False)
class Module:
    """One source file under ``svc``: its dotted name without ``svc.``, and its syntax tree."""

    name: str
    tree: ast.Module
    lines: int
    path: Path = ROOT

    @property
    def room(self) -> str:
        """The room that the module stands in."""
        return room_of(self.name)

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

    @functools.cached_property
    def calls(self) -> list[ast.Call]:
        """Every call."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]

    def attributes(self) -> Iterator[str]:
        """Every ``name.attribute`` that is read."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                yield f"{node.value.id}.{node.attr}"


@functools.cache
def modules_of(root: Path = ROOT) -> list[Module]:
    """Every module of svc, or of another package."""
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        text = path.read_text(encoding="utf-8")
        found.append(Module(name, ast.parse(text), text.count("\n"), path))
    return found


def _literals(call: ast.Call) -> Iterator[ast.Tuple | ast.List]:
    """Return the tuples and lists that are written in a call and unpacked there."""
    for each in call.args:
        if isinstance(each, ast.Starred) and isinstance(each.value, ast.Tuple | ast.List):
            yield each.value


def _stem_of(imported: str, modules: set[str]) -> str | None:
    """The module of svc that an import names, without ``svc.``; ``None`` for one from elsewhere."""
    if imported == "svc" or not imported.startswith("svc."):
        return None
    rest = imported.removeprefix("svc.")
    return rest if rest in modules else rest.rpartition(".")[0] or rest


def imported_modules(module: Module, modules: set[str]) -> Iterator[str]:
    """Every other module of svc that a module imports, without ``svc.``."""
    targets = {_stem_of(imported, modules) for imported in module.imports}
    yield from (target for target in sorted(filter(None, targets)) if target != module.name)


class ArchitectureTests(SynchronousTestCase):
    """Rooms, arrows and bans."""

    def setUp(self) -> None:
        """Read the tree."""
        self.modules = modules_of()
        self.names = {module.name for module in self.modules}

    def arrows(self) -> Iterator[tuple[Module, str]]:
        """Every import of one module of svc by another."""
        for module in self.modules:
            yield from ((module, target) for target in imported_modules(module, self.names))

    def test_imports_point_down(self) -> None:
        """A module imports from its own room and from rooms on floors below, as far as their doors allow."""
        wrong = []
        for module, target in self.arrows():
            room = room_of(target)
            if module.room == room or target == "web":
                continue
            if _FLOOR_OF[room] >= _FLOOR_OF[module.room]:
                wrong.append(f"{module.name} imports {target}, which is not on a floor below")
            elif module.room not in DOORS.get(room, _FLOOR_OF):
                wrong.append(f"{module.name} imports {target}; only {sorted(DOORS[room])} import {room}")
        self.assertEqual(wrong, [], "move what is needed down, or ask for it through a port; docs/architecture.md says how")

    def test_what_users_load_stands_alone(self) -> None:
        """The client library, and the commands that run no server, import of ``svc`` what ``ALONE`` names."""
        wrong = []
        for module, target in self.arrows():
            allowed = ALONE.get(module.room)
            if allowed is None or room_of(target) == module.room or module.name in OPERATORS:
                continue
            if not {target, room_of(target)} & allowed:
                wrong.append(f"{module.name} imports {target}")
        self.assertEqual(wrong, [], "a program that only calls the service shall not load the server")

    def test_a_forbidden_import_is_found(self) -> None:
        """An import against the table is found, however it is written and wherever it stands."""
        for text in (
            "import svc.web.http.routing",
            "from svc.web.http import routing",
            "def f():\n    from svc.web.http.routing import Call",
        ):
            self.modules = [Module("policy.plan", ast.parse(text), 2)]
            self.assertRaises(self.failureException, self.test_imports_point_down)

    def test_every_room_is_on_a_floor(self) -> None:
        """No room exists that has no floor, and no floor names a room that doesn't exist."""
        rooms = {module.room for module in self.modules} - {"", "web"}
        self.assertEqual(rooms, set(_FLOOR_OF), "put a new room on the lowest floor from which its imports point down")

    def test_siblings_meet_only_where_they_may(self) -> None:
        """In rooms of independent nouns, a noun does not import another."""
        wrong = []
        for module, target in self.arrows():
            shared = SIBLINGS.get(module.room)
            if shared is None or room_of(target) != module.room or target == module.room:
                continue
            if not {target.rpartition(".")[2], module.name.rpartition(".")[2]} & shared:
                wrong.append(f"{module.name} imports {target}")
        self.assertEqual(wrong, [], "what two nouns share is a module of its own, named in SIBLINGS")

    def test_libraries_stay_in_their_rooms(self) -> None:
        """A library that one room owns is imported by no other."""
        wrong = []
        for module in self.modules:
            for imported in sorted(module.imports):
                owners = LIBRARIES.get(imported.partition(".")[0])
                if owners is not None and not {module.name, module.room, module.name.partition(".")[0]} & owners:
                    wrong.append(f"{module.name} imports {imported}")
        self.assertEqual(wrong, [], "ask the room that owns the library, or name another owner in LIBRARIES")

    def test_tls_with_others_is_begun_in_one_place(self) -> None:
        """Nothing connects over TLS but by ``svc.net.trust``: no other names what could, nor makes an agent of its own."""
        wrong = []
        for module in self.modules:
            for name in sorted(set(module.names())):
                if module.name not in TLS.get(name, {module.name}):
                    wrong.append(f"{module.name} names {name}")
            agents = (node.func for node in ast.walk(module.tree) if isinstance(node, ast.Call))
            # Made so, an agent trusts by itself; usingEndpointFactory leaves that to the factory.
            if any(isinstance(agent, ast.Name) and agent.id == "Agent" for agent in agents) or "treq" in module.imports:
                wrong.append(f"{module.name} makes an agent of its own")
        self.assertEqual(wrong, [], "connect with a Trust of svc.net.trust, or by net.outgoing")

    def test_tls_elsewhere_is_found(self) -> None:
        """A connection that trusts in another way is found, however it comes by its names."""
        for text in (
            "from twisted.internet.ssl import optionsForClientTLS as o",
            "from twisted.internet import ssl\nssl.optionsForClientTLS('a')",
            "from twisted.internet import _sslverify",
            "from twisted.web.client import Agent\nAgent(reactor)",
            "import treq\ntreq.get('https://a.example')",
            "from twisted.internet.endpoints import clientFromString",
            "from svc.net.trust import EncryptedOnly",
        ):
            self.modules = [Module("net.fetch", ast.parse(text), 2)]
            self.assertRaises(self.failureException, self.test_tls_with_others_is_begun_in_one_place)
        for text in ("import ssl", "from OpenSSL.SSL import Context", "import service_identity"):
            self.modules = [Module("net.fetch", ast.parse(text), 2)]
            self.assertRaises(self.failureException, self.test_libraries_stay_in_their_rooms)

    def test_no_import_cycles(self) -> None:
        """The modules can be put in an order in which each imports only earlier ones."""
        waiting: dict[str, set[str]] = {module.name: set() for module in self.modules}
        for module, target in self.arrows():
            waiting[module.name].add(target)
        while ready := {name for name, targets in waiting.items() if not targets & waiting.keys()}:
            waiting = {name: targets for name, targets in waiting.items() if name not in ready}
        self.assertEqual(sorted(waiting), [], "move what both need into a module below them")

    def test_the_reactor_is_imported_by_roots_alone(self) -> None:
        """Only ``tap``, ``server.process``, ``worker.main`` and ``cli`` import the reactor: what a process begins with."""
        importers = {m.name for m in self.modules if "twisted.internet.reactor" in m.imports}
        roots = {name for name in importers if name in {"tap", "server.process", "worker.main"} or name.startswith("cli.")}
        self.assertEqual(importers, roots, "take the reactor as a parameter")

    def test_every_reactor_runs_steadily(self) -> None:
        """What runs a reactor, whose timers would go by the machine's clock otherwise, has it run steadily."""
        runners = {m.name for m in self.modules if "twisted.internet.reactor" in m.imports or "task.react" in m.attributes()}
        self.assertEqual(runners, {m.name for m in self.modules if "svc.model.clocks.use_steady_clock" in m.imports})

    def test_surroundings_are_parameters(self) -> None:
        """No module reads the wall clock, and only ``settings.reading`` and ``workload.metadata`` the environment."""
        wrong = []
        for module in self.modules:
            for attribute in module.attributes():
                allowed = BANNED.get(attribute)
                if allowed is not None and module.name not in allowed:
                    wrong.append(f"{module.name} uses {attribute}")
        self.assertEqual(wrong, [], "take a clock, a WallClock or a setting as a parameter")

    def test_no_type_checking_escapes(self) -> None:
        """No import hides behind TYPE_CHECKING."""
        self.assertEqual([m.name for m in self.modules if "typing.TYPE_CHECKING" in m.imports], [])

    def test_packages_hold_a_docstring_alone(self) -> None:
        """An ``__init__`` is a docstring: nothing is exported a second time, but for the names that programs import."""
        names = (path for path in ROOT.rglob("__init__.py") if path != ROOT / "client" / "__init__.py")
        packages = [ast.parse(path.read_text(encoding="utf-8")) for path in names]
        self.assertTrue(packages)
        for tree in packages:
            self.assertEqual([type(node).__name__ for node in tree.body], ["Expr"])

    def test_modules_are_nouns_of_one_sitting(self) -> None:
        """No module is longer than 600 lines."""
        self.assertEqual([(m.name, m.lines) for m in self.modules if m.lines > 600], [], "divide it by noun")

    def _unshared(self) -> set[str]:
        """Return the short modules that fewer than two others import, but for those that packages begin with."""
        importers: dict[str, set[str]] = {}
        for module, target in self.arrows():
            importers.setdefault(target, set()).add(module.name)
        return {
            module.name
            for module in self.modules
            if module.lines < SHORT and module.path.name not in {"__init__.py", "__main__.py"}
            if len(importers.get(module.name, ())) < 2
        }

    def test_short_modules_are_shared(self) -> None:
        """A module below 80 lines is imported by at least two others, or ``SHORT_MODULES`` says why it stays by itself."""
        found = self._unshared()
        mend = "put it into its only importer, or into the module of its noun in its room; or give a reason in SHORT_MODULES"
        self.assertEqual(sorted(found - SHORT_MODULES.keys()), [], mend)
        self.assertEqual(sorted(SHORT_MODULES.keys() - found), [], "take it off SHORT_MODULES: it is long, shared or gone")

    def test_an_unshared_short_module_is_found(self) -> None:
        """A module of 79 lines with one importer is found; one of 80 lines, or with another importer, isn't."""
        for lines, importers, found in ((79, 0, True), (79, 1, True), (79, 2, False), (80, 1, False)):
            texts = ("from svc.model import part", "def f():\n    from svc.model.part import g")
            others = [Module(f"policy.n{number}", ast.parse(text), 300) for number, text in enumerate(texts[:importers])]
            self.modules = [Module("model", ast.parse(""), 300), Module("model.part", ast.parse(""), lines), *others]
            self.names = {module.name for module in self.modules}
            self.assertEqual(self._unshared(), {"model.part"} if found else set(), (lines, importers))

    def test_interfaces_have_several_implementations(self) -> None:
        """Svc has at most ``INTERFACES`` interfaces of zope's: a class with one implementation is its own interface."""
        found = [
            f"{module.name}.{node.name}"
            for module in self.modules
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Interface" for base in node.bases)
        ]
        self.assertIn("model.authentication.IProviderKeys", found)
        self.assertLessEqual(len(found), INTERFACES, "name the class that implements it where its interface stands")

    def test_calls_give_few_arguments_by_position(self) -> None:
        """A call in svc or bench gives at most eight arguments by position; those of an unpacked literal count each."""
        wrong = []
        for module in (*self.modules, *modules_of(BENCH)):
            for call in module.calls:
                count = len(call.args) + sum(len(literal.elts) - 1 for literal in _literals(call))
                if count > POSITIONS:
                    wrong.append(f"{module.path}:{call.lineno} gives {count} to {ast.unparse(call.func)}")
        self.assertEqual(wrong, [], f"give the arguments after the first few by keyword: {POSITIONS} by position at most")

    def test_calls_unpack_no_literals(self) -> None:
        """No call in svc or bench unpacks a tuple or list that is written in it."""
        wrong = []
        for module in (*self.modules, *modules_of(BENCH)):
            wrong += [f"{module.path}:{call.lineno}" for call in module.calls if any(_literals(call))]
        self.assertEqual(wrong, [], "write the arguments out: f(a, b, c), not f(*(a, b), c)")

    def test_calls_against_the_rules_are_found(self) -> None:
        """Nine arguments by position are found, however written, and an unpacked literal; eight and keywords pass."""
        for text, many, unpacked in (
            ("f(1, 2, 3, 4, 5, 6, 7, 8, 9)", True, False),
            ("a.f(1)(*(1, 2, 3, 4, 5), *[6, 7, 8, 9])", True, True),
            ("f(*(1, 2), 3)", False, True),
            ("f(1, 2, 3, 4, 5, 6, 7, *rest, x=9, y=10, **more)", False, False),
        ):
            self.modules = [Module("policy.plan", ast.parse(text), 2)]
            for test, is_wrong in (
                (self.test_calls_give_few_arguments_by_position, many),
                (self.test_calls_unpack_no_literals, unpacked),
            ):
                if is_wrong:
                    self.assertRaises(self.failureException, test)
                else:
                    test()
