"""The command line of ``twistd svc``, and what it refuses before anything starts."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.application.service import IService, IServiceMaker
from twisted.internet.testing import MemoryReactor
from twisted.plugin import getPlugins
from twisted.trial.unittest import SynchronousTestCase

from svc._version import VERSION
from svc.crypto.vault import new_data_key
from svc.model.errors import ConfigurationInvalid
from svc.policy.document import Bounds
from svc.server.lifecycle import ServerService
from svc.server.startup import Launch
from svc.settings.config import OPTIONS, Settings
from svc.settings.reading import read_settings
from svc.tap import Options, build_server, makeService
from tests.certificates import LEAF_KEY, chain, pem
from tests.server.test_endpoints import key_pem


class OptionsTests(SynchronousTestCase):
    """Options, made from the table of settings."""

    def given(self, *arguments: str) -> dict[str, str | bool | None]:
        """What a command line gives, without what it leaves out."""
        options = Options()
        options.parseOptions(arguments)
        return {field: value for field, value in options.given_settings().items() if value not in (None, False)}

    def printed(self, *arguments: str) -> str:
        """Return the text printed on standard output before the program exits with 0."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(self.assertRaises(SystemExit, Options().parseOptions, arguments).code, 0)
        return out.getvalue()

    def test_nothing(self) -> None:
        """An empty command line gives nothing, so that other places are asked."""
        self.assertEqual(self.given(), {})

    def test_values(self) -> None:
        """Options arrive under the names of their settings, a flag as true."""
        self.assertEqual(
            self.given("--data-dir", "/d", "--allow-http-providers", "--user-token-ttl=5"),
            {"data_dir": "/d", "allow_http_providers": True, "user_token_ttl": "5"},
        )

    def test_every_option(self) -> None:
        """Every setting but the data key is an option that the settings' reader understands."""
        for option in OPTIONS:
            if option.parser.metavar is None:
                self.assertEqual(self.given(f"--{option.name}"), {option.field: True})
            elif option.on_command_line:
                self.assertEqual(list(self.given(f"--{option.name}", "x")), [option.field])

    def test_repeated_endpoints(self) -> None:
        """``--listen`` adds up; the last of any other option counts (CFG-3)."""
        settings = read_settings(self.given("--listen", "tcp:1", "--listen", "tcp:2", "--account=a", "--account=b"), {})
        self.assertEqual((settings.listen, settings.account), (("tcp:1", "tcp:2"), "b"))

    def test_no_data_key(self) -> None:
        """The data key is no option: others could read it in the list of processes (CFG-2)."""
        self.assertIn("data-key", str(self.assertRaises(SystemExit, Options().parseOptions, ["--data-key", "x"]).code))

    def test_help(self) -> None:
        """Help documents every option with its default, and tells of the other places and of the data key."""
        text = " ".join(self.printed("--help").split())
        for option in OPTIONS:
            if option.on_command_line:
                self.assertIn(f"--{option.name}", text)
        self.assertIn("How long a user's access token lives. [default: 480 seconds]", text)
        self.assertIn("[default: tcp:8080:interface=127.0.0.1]", text)
        self.assertIn("until a login needs newer ones. [default: off]", text)
        self.assertIn("SERVICE_SOME_NAME", text)
        self.assertIn("SERVICE_DATA_KEY", text)

    def test_version(self) -> None:
        """``--version`` tells that of the program."""
        self.assertEqual(self.printed("--version"), f"svc {VERSION}\n")

    def test_mistakes(self) -> None:
        """A mistake on the command line ends the program with a message, and so with exit code 1."""
        for arguments, message in (
            (["--nonsense"], "--nonsense"),
            (["--data-dir"], "--data-dir"),
            (["--allow-http-providers=yes"], "allow-http-providers"),
            (["stray"], "arguments"),
        ):
            code = self.assertRaises(SystemExit, Options().parseOptions, arguments).code
            self.assertIn(message, str(code))


class MakeServiceTests(SynchronousTestCase):
    """Services, as ``twistd`` makes them."""

    def options(self, *arguments: str) -> Options:
        """Read a command line."""
        options = Options()
        options.parseOptions(["--data-dir", os.path.abspath(self.mktemp()), *arguments])
        return options

    def refused(self, *arguments: str) -> str:
        """Why there is no service."""
        return str(self.assertRaises(SystemExit, makeService, self.options(*arguments)).code)

    def test_plugin(self) -> None:
        """``twistd`` knows the plugin by the name ``svc``, and gets options and services from here (CFG-1)."""
        [maker] = [plugin for plugin in getPlugins(IServiceMaker) if plugin.tapname == "svc"]
        self.assertIs(maker.options, Options)
        self.assertIs(maker.makeService, makeService)

    def test_service(self) -> None:
        """With good settings there is a service; nothing has happened yet, not even to the data directory."""
        options = self.options("--listen", "tcp:0:interface=127.0.0.1")
        service = makeService(options)
        self.assertIsInstance(service, Launch)
        self.assertTrue(IService.providedBy(service))
        self.assertFalse(os.path.exists(options["data-dir"]))

    def test_passwords_of_keys(self) -> None:
        """Several processes can't ask for the password of a key: the start is refused (CFG-39)."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        (folder / "cert.pem").write_text(pem(*chain("the host's name").certificates))
        (folder / "key.pem").write_text(key_pem(LEAF_KEY))
        endpoint = f"ssl:0:privateKey={folder}/key.pem:certKey={folder}/cert.pem"
        makeService(self.options("--processes=2", f"--listen={endpoint}"))
        (folder / "key.pem").write_text(f"# ENCRYPTED\n{key_pem(LEAF_KEY)}")
        makeService(self.options(f"--listen={endpoint}"))
        self.assertIn("whose key has a password", self.refused("--processes=2", f"--listen={endpoint}"))

    def test_more_connections_than_files(self) -> None:
        """A server that may not open files for as many connections as it is to take doesn't start (CFG-11)."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        makeService(self.options("--connection-limit=640"))
        said = self.refused("--connection-limit=641")
        self.assertIn("--connection-limit is 641", said)
        self.assertIn("leaves room for 640", said)

    def imported(self, program: str) -> str:
        """Which parts of the server a new process has imported when the program has run."""
        late = ("klein", "treq", "ldaptor", "svc.web", "svc.server.serving")
        program += f"\nprint(*(name for name in {late} if name in sys.modules))"
        return subprocess.run(
            [sys.executable, "-c", f"import sys, svc.tap\n{program}"], capture_output=True, text=True, check=True
        ).stdout.strip()

    def test_imported_later(self) -> None:
        """``twistd`` begins with what starts a database; what the rest consists of is imported while that is on its way."""
        self.assertEqual(self.imported("svc.tap.makeService"), "")

    def test_imported_before(self) -> None:
        """Where no database is to be started, all is imported before ``twistd`` may leave the file system's root."""
        program = (
            "from twisted.internet import reactor\nfrom svc.settings.reading import read_settings\n"
            f"environment = {{'SERVICE_DATA_KEY': {new_data_key()!r}}}\n"
            "given = {'database_url': 'dbname=svc', 'listen': 'tcp:0:interface=127.0.0.1'}\n"
            "svc.tap.build_server(reactor, read_settings(given, environment), None)"
        )
        self.assertEqual(self.imported(program), "klein treq svc.web svc.server.serving")

    def test_refusals(self) -> None:
        """Bad settings end the program with the key as it was written, and what is wrong with it (CFG-5)."""
        for arguments, message in (
            (["--user-token-ttl", "0"], "--user-token-ttl must be"),
            (["--config", "/nonexistent"], "--config names a file that can't be read: /nonexistent"),
            (["--listen", "nonsense:5"], "--listen has an endpoint that can't be used, 'nonsense:5'"),
            (["--listen", "tcp:port"], "--listen has an endpoint"),
            (["--listen", "tcp"], "--listen has an endpoint"),
            (["--listen", "ssl:0:privateKey=/nonexistent"], "No such file"),
            (["--audit-syslog", "nonsense:5"], "--audit-syslog has an endpoint that can't be used, 'nonsense:5'"),
            (["--metrics-listen", "nonsense:5"], "--metrics-listen has an endpoint that can't be used, 'nonsense:5'"),
            *(
                (
                    arguments,
                    f"{arguments[0]} has an endpoint that can't be used, {arguments[1]!r}: the port must be a number",
                )
                for arguments in (
                    ["--listen", "tcp:99999"],
                    ["--listen", "tcp:-1"],
                    ["--listen", "tcp:interface=127.0.0.1:port=65536"],
                    ["--listen", "tcp6:99999"],
                    ["--listen", "haproxy:tcp:99999:interface=127.0.0.1"],
                    ["--listen", "ssl:99999:privateKey=/nonexistent"],
                    ["--metrics-listen", "tcp:" + "9" * 5000],
                    ["--audit-syslog", "tcp:127.0.0.1:99999"],
                    ["--audit-syslog", "tls:syslog.example:port=0"],
                )
            ),
            (["--authenticators", "authn-x/y"], "authn-x/y"),
            (["--database-url", "dbname=svc"], "SERVICE_DATA_KEY must hold the data key"),
            (["--database-url", "dbname=svc"], "svc data-key generate"),
        ):
            refusal = self.refused(*arguments)
            self.assertTrue(refusal.startswith("svc did not start: "), refusal)
            self.assertIn(message, refusal)


class BuildTests(SynchronousTestCase):
    """Servers, as the command line makes them, too."""

    def build(self, environ: dict[str, str], **given: str) -> Any:
        """Build a server."""
        return build_server(MemoryReactor(), read_settings(given, environ), None)

    def test_server(self) -> None:
        """With good settings there is a server, which has not begun."""
        key = new_data_key()
        self.assertIsInstance(self.build({"SERVICE_DATA_KEY": key}, database_url="dbname=svc"), ServerService)

    def test_data_key(self) -> None:
        """A text that isn't a data key is refused before anything starts, and isn't repeated."""
        for key in ("c2VjcmV0", new_data_key()[:-1], f"{new_data_key()} c2VjcmV0"):
            refusal = self.assertRaises(ConfigurationInvalid, self.build, {"SERVICE_DATA_KEY": key})
            self.assertEqual(refusal.key, "SERVICE_DATA_KEY")
            self.assertNotIn(key.strip(), refusal.message)

    def test_certificate(self) -> None:
        """A key file that holds no key is refused."""
        path = Path(self.mktemp())
        path.write_text("no key")
        refusal = self.assertRaises(ConfigurationInvalid, self.build, {"SERVICE_LISTEN": f"ssl:0:privateKey={path}"})
        self.assertEqual(refusal.key, "SERVICE_LISTEN")

    def test_defaults_of_other_rooms(self) -> None:
        """The defaults of the settings are those of the rooms that they are for."""
        settings = Settings()
        self.assertEqual(Bounds(nesting=settings.nesting_limit, aliases=settings.alias_limit), Bounds())
