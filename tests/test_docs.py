"""The examples in the documents are valid: policies load, commands and their options exist, requests have a route.
So are the paths in the documents for developers.

What the pages tell to do step by step is done in ``tests/integration``: ``test_cli`` follows the first steps,
``test_platforms`` and ``test_operations`` their pages.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import click
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.cloud import check_exclusive, check_permitted, check_required, select_annotations
from svc.cli.main import main
from svc.model.names import RoleName
from svc.server.bootstrap import POOL_SIZE, WRITERS
from svc.settings.reading import read_settings
from svc.tap import Options
from tests.authn.verified import annotated
from tests.aws import Keys, body, signed
from tests.pictures import PAGE, draw_layers, shown
from tests.signing import token as signed_token
from tests.test_architecture import FLOORS
from tests.web.support import NOW
from tests.web.world import ADMIN, GOOGLE, WorldCase

ROOT = Path(__file__).resolve().parent.parent

PROD = "authn-cloud/prod"


def policies(document: str) -> list[str]:
    """The policies that a document shows."""
    return re.findall(r"(?ms)^```yaml\n(.*?)^```$", (ROOT / document).read_text(encoding="utf-8"))


@attrs.frozen
class Example:
    """A block of a page: where it is, its language and its text."""

    place: str
    language: str
    text: str


def examples(*languages: str) -> Iterator[Example]:
    """The blocks of all pages in these languages."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"(?ms)^```(\w+)\n(.*?)^```$", text):
            if block[1] in languages:
                line = text.count("\n", 0, block.start()) + 1
                yield Example(f"{page.relative_to(ROOT)}:{line}", block[1], block[2])


def commands(shell: str) -> Iterator[list[str]]:
    """The simple commands of a script, each with its arguments, those within ``$(…)`` as well; redirections are left out."""
    for inner in re.findall(r"\$\(([^()]*(?:\([^()]*\)[^()]*)*)\)", shell):
        yield from commands(inner)
    shell = re.sub(r"(?m)^\$ ", "", re.sub(r"\$\((?:[^()]|\([^()]*\))*\)", "x", shell).replace("\\\n", " "))
    for line in shell.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        skip = False
        for token in [*lexer, ";"]:
            if re.fullmatch(r"[<>]+", token):
                skip = True
            elif re.fullmatch(r"[;|&()]+", token):
                while words and re.match(r"\w+=", words[0]):
                    words.pop(0)
                if words:
                    yield words
                words = []
            elif skip:
                skip = False
            else:
                words.append(token)


def read_command(command: click.Command, arguments: list[str], parent: click.Context | None = None) -> None:
    """Read a command line as ``svc`` would, without doing anything; files need not be there.

    :raises click.UsageError: there is no such command, or it doesn't take these arguments.
    """
    try:
        context = command.make_context(command.name, list(arguments), parent=parent)
    except click.BadParameter as error:
        if type(error) is click.BadParameter and re.search("No such file|does not exist", error.message):
            return
        raise
    if isinstance(command, click.Group):
        _, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert inner is not None
        read_command(inner, rest, context)


class BlocksTests(SynchronousTestCase):
    """Every block of every page, by its language."""

    def test_every_block_is_looked_at(self) -> None:
        """No block is in a language that no test knows; SQL, Go, and files of platforms are tried in ``integration``.

        Text is that of pictures, which ``tests/pictures.py`` draws.
        """
        known = ("sh", "console", "yaml", "yml", "json", "toml", "python", "sql", "go", "text")
        pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md")]
        every = [language for page in pages for language in re.findall(r"(?m)^```(\w+)$", page)]
        self.assertGreater(len(every), 40)
        self.assertEqual(set(every) - set(known), set())

    def patch_environment(self, name: str, value: str) -> None:
        """Give a variable of the environment a value until the test ends."""
        before = os.environ.get(name)
        os.environ[name] = value
        self.addCleanup(lambda: os.environ.pop(name) if before is None else os.environ.update({name: before}))

    def test_commands(self) -> None:
        """Commands of ``svc`` exist and take the arguments that pages give them; so do options of the server."""
        for name in ("SVC_URL", "SVC_ACCOUNT", "SVC_LOGIN", "SVC_API_KEY"):
            self.patch_environment(name, "http://127.0.0.1:8080")
        found = 0
        for example in examples("sh", "console"):
            for name, *arguments in commands(example.text):
                try:
                    if name in {"svc", "as_svc", "/opt/svc/bin/svc"} and arguments:
                        found += 1
                        read_command(main, arguments)
                        if arguments[0] == "server":
                            Options().parseOptions(arguments[1:])
                    elif name == "twistd" or name.endswith("/twistd"):
                        found += 1
                        options = [word for word in arguments if word != "-n"]
                        self.assertEqual(options.pop(0), "svc")
                        if options != ["--help"]:
                            Options().parseOptions(options)
                except click.exceptions.Exit as end:
                    self.assertEqual(end.exit_code, 0)
                except Exception as error:
                    self.fail(f"{example.place}: {name} {shlex.join(arguments)}: {error!r}")
        self.assertGreater(found, 40)

    def test_keys_in_files(self) -> None:
        """Where a page has a data key written to a file, nobody else may read that."""
        found = 0
        for example in examples("sh"):
            before = ""
            for line in example.text.splitlines(keepends=True):
                before += line
                if "data-key generate" in line and re.search(r">\s*(?!/dev/null)[\w./-]+", line):
                    found += 1
                    self.assertIn("umask 077", before, example.place)
        self.assertGreater(found, 3)

    def test_a_wrong_command_is_found(self) -> None:
        """A command that doesn't exist, and an option that it doesn't take, are found, also in a pipe and in ``$(…)``."""
        for shell in ("svc polcy load root x", "printf x | svc variable set a --flie b", 'x="$(svc health --al)"'):
            [arguments] = [words[1:] for words in commands(shell) if words[0] == "svc"]
            with self.assertRaises(click.UsageError):
                read_command(main, arguments)

    def test_files(self) -> None:
        """JSON is JSON, Python compiles, and settings are settings."""
        for example in examples("json", "python", "toml"):
            match example.language:
                case "json":
                    text = example.text
                    json.loads(text if text.startswith(("{", "[")) else "{" + text + "}")
                case "python":
                    compile(example.text, example.place, "exec")
                case "toml":
                    tomllib.loads(example.text)
                    if example.place.startswith("docs/guides/agent.md"):
                        continue  # read in tests/agent/test_samples.py
                    folder = Path(self.mktemp())
                    folder.mkdir()
                    file = folder / "svc.toml"
                    file.write_text(example.text)
                    read_settings({"config": str(file)}, {})


#: A request of curl: its options, and the path on a server of ours.
_CURL: Final = re.compile(
    r"\bcurl\b((?:(?!\bcurl\b)[\s\S])*?)https?://(?:svc\.example\.org|127\.0\.0\.1:8080)(/[^\s\"')]*)([^\n]*)"
)


class ExamplesTests(WorldCase):
    """Policies that operators are told to load, and the requests that workloads are told to make."""

    def test_requests(self) -> None:
        """What pages ask of the server with curl has a route of that method."""
        found = 0
        for example in examples("sh", "console", "yml"):
            for before, path, behind in _CURL.findall(example.text.replace("\\\n", " ")):
                found += 1
                method = "POST" if "--data" in before + behind else "GET"
                answer = self.client.request(method, path)
                self.assertNotIn(b"there is no route", answer.body, f"{example.place}: {method} {path}")
        self.assertGreater(found, 9)
        self.assertIn(b"there is no route", self.client.request("GET", "/secret/acme/variable/x").body)

    def test_readme(self) -> None:
        """That of the first steps loads, and lets operators ask how its authenticator stands."""
        [policy] = policies("docs/start/first-steps.md")
        self.load(policy)
        group, status = "acme:group:svc/authn-jwt/ci/operators", "acme:webservice:svc/authn-jwt/ci/status"
        self.assertIn((status, "read", group), self.memory.permissions)

    def test_authenticators(self) -> None:
        """The authenticator of the general page loads; those of each platform are in ``test_platform_pages``."""
        [authenticator] = policies("docs/guides/authenticators.md")
        self.load(authenticator)
        group, webservice = "acme:group:svc/authn-jwt/github/apps", "acme:webservice:svc/authn-jwt/github"
        self.assertIn((webservice, "authenticate", group), self.memory.permissions)

    def test_cloud(self) -> None:
        """Those of the cloud load, and its hosts have what is required and one identity."""
        authenticator, hosts = policies("docs/guides/azure.md")
        self.load(authenticator)
        self.load(hosts)
        self.assertIn(("acme:group:svc/authn-cloud/prod/apps", "acme:group:azure/apps", False), self.memory.memberships)
        for host in ("billing", "reports", "audit"):
            full = f"acme:host:azure/{host}"
            written = {name: text for (of, name), (text, _) in self.memory.annotations.items() if of == full}
            found = select_annotations(written, PROD)
            evaluation = annotated(found)
            check_required(evaluation)
            check_permitted(evaluation)
            check_exclusive(evaluation)
            self.assertEqual(len(found), 3, host)
            self.assertTrue(self.memory.api_key_off(full))

    def test_host_factories(self) -> None:
        """That of host factories loads, and what the page does with it works."""
        [policy] = policies("docs/guides/host-factories.md")
        self.load(policy)
        form = b"host_factory=acme:host_factory:web/fleet&expiration=2050-01-01&count=2"
        made = self.client.post("/host_factory_tokens", form, role=ADMIN).json()
        headers = [("Authorization", f'Token token="{made[1]["token"]}"')]
        answer = self.client.post("/host_factories/hosts", b"id=web/frontend-17", headers=headers)
        self.assertEqual(answer.status, 201)
        self.set_value("web/tls-key", b"key")
        host = RoleName.parse(answer.json()["id"])
        self.assertEqual(self.client.get("/secrets/acme/variable/web%2Ftls-key", role=host).body, b"key")

    def test_google(self) -> None:
        """That of Google Cloud loads, and admits each of its hosts with a token that says what its annotations say."""
        [policy] = policies("docs/guides/google.md")
        self.load(policy)
        machine = {"compute_engine": {"project_id": "shop-prod", "instance_name": "gateway-1"}}
        for host, claims in (
            ("billing", {"sub": "107517467455664443765"}),
            ("reports", {"sub": "1", "email": "reports@shop-prod.iam.gserviceaccount.com", "email_verified": True}),
            ("gateway", {"sub": "1", "google": machine}),
        ):
            common = {"iss": GOOGLE, "aud": f"svc/acme/host/google/{host}", "iat": NOW, "exp": NOW + 60}
            for more, status in ((claims, 200), ({"sub": "1"}, 401)):
                answer = self.client.post("/authn-gcp/acme/authenticate", b"jwt=" + signed_token({**common, **more}))
                self.assertEqual(answer.status, status, host)
        self.assert_read("google/billing")

    def test_aws(self) -> None:
        """That of AWS loads, and admits each of its hosts with a request that its role has signed."""
        [policy] = policies("docs/guides/aws.md")
        self.load(policy)
        self.set_value("svc/authn-iam/prod/server-id", b"svc.example.org")
        for role in ("billing", "reports"):
            keys = Keys(arn=f"arn:aws:sts::123456789012:assumed-role/{role}/i-1", secret=role)
            self.sts.keys = [keys]
            evidence = body(signed(NOW, keys, x_svc_server_id="svc.example.org/acme"))
            for host, status in ((role, 200), ("billing" if role == "reports" else "reports", 401)):
                path = f"/authn-iam/prod/acme/host%2Faws%2F123456789012%2F{host}/authenticate"
                self.assertEqual(self.client.post(path, evidence).status, status)
        self.assert_read("aws/123456789012/billing")

    def assert_read(self, host: str) -> None:
        """A host reads the secret of its page."""
        self.set_value("shop/database/password", b"secret")
        answer = self.client.get("/secrets/acme/variable/shop%2Fdatabase%2Fpassword", role=RoleName("acme", "host", host))
        self.assertEqual(answer.body, b"secret")

    def test_accounts(self) -> None:
        """That of accounts loads into the service's own account."""
        self.result_of(self.create_account("!", "1operator"))
        [policy] = policies("docs/guides/accounts.md")
        answer = self.client.post("/policies/!/policy/root", policy.encode(), role=RoleName("!", "user", "admin"))
        self.assertEqual(answer.status, 201)
        maker = RoleName("!", "user", "onboarding")
        self.assertEqual(self.client.post("/accounts", b"id=new", role=maker).status, 201)
        self.assertEqual(self.client.delete("/accounts/new", role=maker).status, 403)


#: A text in backticks that looks like a file or a folder, in the repository or in ``svc``.
_PATH: Final = re.compile(r"`((?:\w+/)+(?:\w+(?:\.\w+)?)?|\w+\.py)`")

#: The pages that name modules and folders.
MAPS: Final = ("docs/architecture.md", "docs/index.md", "docs/glossary.md", "CONTRIBUTING.md")

#: What only looks like a path.
LOGINS: Final = {"host/ci/runner"}


def lost(page: str) -> list[str]:
    """Return the paths that a page names and that don't exist, with ``.py`` or without; files that it tells to create
    stand alone on a line, before a colon, and are left out, like blocks.
    """
    prose = re.sub(r"(?ms)^```.*?^```$|^`[^`\n]+`:$", "", page)
    named = sorted(set(_PATH.findall(prose)) - LOGINS)
    return [
        path
        for path in named
        if not any((base / f"{path}{end}").exists() for base in (ROOT, ROOT / "svc") for end in ("", ".py"))
    ]


class SessionsTests(SynchronousTestCase):
    """How many sessions a server has with PostgreSQL."""

    def test_agree(self) -> None:
        """Pages and sample settings agree on the sessions of a server, and of loads and commands beside it."""
        self.assertEqual(POOL_SIZE + WRITERS, 12)
        for name, words in (
            ("etc/postgresql/primary.conf", ("twelve connections", "up to four more", "commands up to twelve")),
            ("etc/patroni/patroni.yml", ("twelve connections",)),
            ("docs/operations/servers.md", ("twelve sessions", "up to four more")),
            ("docs/operations/postgresql.md", ("12 sessions", "up to four more", "up to 12\n  for a command")),
            ("docs/operations/capacity.md", ("8 for reads, 4 for changes", "up to 4 more", "up to 12, while")),
        ):
            text = (ROOT / name).read_text(encoding="utf-8")
            for said in words:
                self.assertIn(said, text, name)


class MapsTests(SynchronousTestCase):
    """The pages that say where things are."""

    def test_paths(self) -> None:
        """Every module and folder that a page for developers names exists."""
        for name in MAPS:
            self.assertEqual(lost((ROOT / name).read_text(encoding="utf-8")), [], f"{name}: correct these paths")

    def test_a_lost_path_is_found(self) -> None:
        """A path that doesn't exist is found, however it is written; a file to create, a block and a login are none."""
        page = (
            "`web/http/router.py`, `services/`,\n`crypto/vault`, `host/ci/runner` and `%s`\n\n"
            "`svc/new.py`:\n\n```python\n`no/such`\n```\n"
        )
        for path in ("web/router", "expiration/", "storage/pool.py", "svc/new.py", "succession.py"):
            self.assertEqual(lost(page % path), [path])
        self.assertEqual(lost(page % "tests/memory.py"), [])

    def test_layers(self) -> None:
        """The page on architecture shows the layers and imports of the rooms, and says what each room is for."""
        page = PAGE.read_text(encoding="utf-8")
        self.assertEqual(shown(page, "layers"), draw_layers(), "run python -m tests.pictures")
        self.assertEqual(set(re.findall(r"(?m)^\| `([\w.]+)` \| ", page)), set().union(*FLOORS))

    def test_short(self) -> None:
        """The page on architecture has 3,000 words at most, pictures included, in lines of 125 columns at most."""
        page = PAGE.read_text(encoding="utf-8")
        self.assertLessEqual(len(page.split()), 3000, "move details to the docstrings of their modules")
        self.assertEqual([line for line in page.splitlines() if len(line) > 125], [])
