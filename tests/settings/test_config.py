"""Settings: where they come from, what is refused, and that the sample and the help know them all."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

import attrs
from twisted.trial.unittest import SynchronousTestCase

from svc.model.databases import ClusterMember
from svc.model.dialect import CONJUR, NATIVE
from svc.model.errors import ConfigurationInvalid
from svc.model.limits import Limits
from svc.settings.config import OPTIONS, Settings
from svc.settings.reading import MAX_FILE_BYTES, read_settings, reread_authenticators, unknown_variables
from svc.settings.systemd import SystemdUnit

SAMPLE = Path(__file__).resolve().parents[2] / "etc" / "svc.toml"


class ConfigTests(SynchronousTestCase):
    """Settings read from a command line, an environment and a file."""

    def file(self, text: str | bytes) -> str:
        """Write a file and return its path."""
        path = Path(self.mktemp()).resolve()
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    def read(self, toml: str | None = None, environ: dict[str, str] | None = None, **given: str | bool | None) -> Settings:
        """Read settings, from a file too when its text is given."""
        if toml is not None:
            given["config"] = self.file(toml)
        return read_settings(given, environ or {})

    def refusal(
        self, toml: str | None = None, environ: dict[str, str] | None = None, **given: str | bool | None
    ) -> ConfigurationInvalid:
        """How settings are refused."""
        refusal = self.assertRaises(ConfigurationInvalid, self.read, toml, environ, **given)
        assert isinstance(refusal, ConfigurationInvalid)
        return refusal

    def test_defaults(self) -> None:
        """Without a word from the operator the settings have the defaults of their table (CFG-8)."""
        settings = self.read()
        self.assertEqual(
            attrs.asdict(settings, recurse=False),
            {
                "config": None,
                "dialect": NATIVE,
                "conjur_version": "1.23.0",
                "account": None,
                "processes": 1,
                "listen": ("tcp:8080:interface=127.0.0.1",),
                "trusted_proxies": None,
                "public_url": None,
                "request_body_limit": 1 << 20,
                "policy_body_limit": 32 << 20,
                "request_line_limit": 64 << 10,
                "header_limit": 32 << 10,
                "identifier_limit": 1 << 10,
                "request_timeout": 30.0,
                "connection_limit": settings.connection_limit,
                "connection_limit_per_address": settings.connection_limit // 4,
                "console": False,
                "console_session": 1800,
                "database_url": None,
                "read_from": "primary",
                "data_dir": settings.data_dir,
                "data_key": None,
                "data_key_file": None,
                "data_key_command": None,
                "data_key_pace": 500,
                "statement_timeout": 5.0,
                "database_wait": 10.0,
                "memory_lag": 0.2,
                "memory_limit": 64 << 20,
                "serve_stale": 0.0,
                "deleted_retention": 604800.0,
                "deleted_limit": 256 << 20,
                "readings_retention": 34_560_000.0,
                "nesting_limit": 64,
                "alias_limit": 10_000,
                "annotations_limit": 1000,
                "annotation_bytes_limit": 256 * 1024,
                "permissions_limit": 10_000,
                "authenticators": ("authn",),
                "ignore_missing_issuer": False,
                "clock_skew": 0.0,
                "jwt_limit": 16 << 10,
                "allow_private_providers": (),
                "allow_http_providers": False,
                "allow_plain_ldap": False,
                "ldap_failures": 3,
                "ldap_failures_window": 900.0,
                "ldap_sync_interval": None,
                "jwks_max_age": None,
                "jwks_stale_if_error": 0.0,
                "jwks_refetch_interval": 10.0,
                "jwks_token_files": (),
                "google_issuer": "https://accounts.google.com",
                "aws_sts_regions": (),
                "aws_sts_url": None,
                "login_throttle": True,
                "user_token_ttl": 480,
                "host_token_ttl": 480,
                "user_session_max": 43_200,
                "health_interval": 5.0,
                "cluster": (),
                "cluster_ca": None,
                "expiration_interval": 10.0,
                "metrics_listen": None,
                "audit_file": None,
                "audit_syslog": None,
                "audit_failure": "refuse",
                "log_format": "text",
                "log_level": "info",
                "written": {},
                "unit": SystemdUnit(),
            },
        )

    def test_data_directory(self) -> None:
        """The data directory is an absolute path; root's is /var/lib/svc (CFG-8)."""
        directory = self.read().data_dir
        self.assertTrue(directory.is_absolute())
        if os.geteuid() == 0:
            self.assertEqual(directory, Path("/var/lib/svc"))

    def test_order(self) -> None:
        """The command line comes before the environment, the environment before the file, the file before the default
        (CFG-1).
        """
        toml = "user_token_ttl = 1"
        environ = {"SERVICE_USER_TOKEN_TTL": "2"}
        self.assertEqual(self.read(toml, environ, user_token_ttl="3").user_token_ttl, 3)
        self.assertEqual(self.read(toml, environ, user_token_ttl=None).user_token_ttl, 2)
        self.assertEqual(self.read(toml).user_token_ttl, 1)
        self.assertEqual(self.read("").user_token_ttl, 480)

    def test_every_setting_in_every_place(self) -> None:
        """Each setting can be given as an option, as a variable and as a key of the file, and remembers how it was
        (CFG-1).
        """
        for option in OPTIONS:
            if option.field in {"config", "data_key", "ignore_missing_issuer", "conjur_version"}:
                continue
            text, toml = example_values(option.field)
            expected = option.parser.from_text(text)
            for settings, key in (
                (read_settings({option.field: text}, {}), f"--{option.name}"),
                (self.read(environ={option.variable: text}), option.variable),
                (self.read(f"{option.field} = {toml}"), option.field),
            ):
                self.assertEqual((getattr(settings, option.field), settings.name_of(option.field)), (expected, key))

    def test_one_source_of_the_data_key(self) -> None:
        """Two places that give the data key are refused, by their names (CFG-2)."""
        for environ, written in (
            ({"SERVICE_DATA_KEY": "x", "SERVICE_DATA_KEY_FILE": "/k"}, "SERVICE_DATA_KEY"),
            ({"SERVICE_DATA_KEY_FILE": "/k", "SERVICE_DATA_KEY_COMMAND": "print"}, "SERVICE_DATA_KEY_FILE"),
        ):
            refusal = self.assertRaises(ConfigurationInvalid, read_settings, {}, environ)
            self.assertIn(f"so is {written}", refusal.message)

    def test_processes(self) -> None:
        """One process is the whole server unless there are to be more; auto is one for each core (CFG-28)."""
        self.assertEqual(self.read().serving_processes, 1)
        self.assertEqual(self.read(processes="3").serving_processes, 3)
        self.assertGreaterEqual(self.read(processes="auto").serving_processes, 1)

    def test_key_of_a_default(self) -> None:
        """A setting that wasn't given goes by the name of its option."""
        self.assertEqual(self.read().name_of("database_wait"), "--database-wait")

    def test_file_named_by_the_environment(self) -> None:
        """SERVICE_CONFIG names the file when --config doesn't."""
        environ = {"SERVICE_CONFIG": self.file("host_token_ttl = 7")}
        self.assertEqual(self.read(environ=environ).host_token_ttl, 7)
        self.assertEqual(self.read("host_token_ttl = 8", environ).host_token_ttl, 8)

    def test_flags(self) -> None:
        """A flag that is given on the command line is true; one that isn't leaves the word to the other places."""
        environ = {"SERVICE_ALLOW_HTTP_PROVIDERS": "yes"}
        self.assertTrue(self.read(allow_http_providers=True).allow_http_providers)
        self.assertTrue(self.read(environ=environ, allow_http_providers=False).allow_http_providers)
        self.assertFalse(self.read(allow_http_providers=False).allow_http_providers)

    def test_bad_value_names_the_key_as_written(self) -> None:
        """A refusal names the option, the variable or the key of the file, and the file (LIM-22, CFG-5)."""
        self.assertEqual(self.refusal(user_token_ttl="0").key, "--user-token-ttl")
        self.assertEqual(self.refusal(environ={"SERVICE_USER_TOKEN_TTL": "x"}).key, "SERVICE_USER_TOKEN_TTL")
        refusal = self.refusal("user_token_ttl = 18001")
        self.assertEqual(refusal.key, "user_token_ttl")
        self.assertRegex(refusal.message, r"must be a whole number from 1 to 18000, not '18001' \(in /.*\)")

    def test_hidden_bad_value(self) -> None:
        """A value that another place overrides isn't read (CFG-1)."""
        self.assertEqual(self.read(environ={"SERVICE_USER_TOKEN_TTL": "x"}, user_token_ttl="5").user_token_ttl, 5)

    def test_empty_variable(self) -> None:
        """A variable that is set to nothing is a bad value, not an absent one: a mistaken start is refused early (CFG-5)."""
        self.assertEqual(self.refusal(environ={"SERVICE_DATABASE_URL": ""}).key, "SERVICE_DATABASE_URL")

    def test_unknown_key_of_the_file(self) -> None:
        """A key or table that names no setting stops the start, by its name (CFG-5)."""
        for toml, key in {
            "listn = []": "listn",
            "[limits]\nbody = 5": "limits",
            "Listen = []": "Listen",
            "written = {}": "written",
        }.items():
            refusal = self.refusal(toml)
            self.assertEqual(refusal.key, key)
            self.assertIn("is no setting", refusal.message)

    def test_dashes_in_the_file(self) -> None:
        """A key that is written with dashes is refused with the right way to write it."""
        refusal = self.refusal("data-dir = '/d'")
        self.assertEqual(refusal.key, "data-dir")
        self.assertIn("data_dir", refusal.message)

    def test_data_key_in_the_file(self) -> None:
        """The data key is refused in the file, with the reason, and without being repeated (DATA-1, CFG-2)."""
        refusal = self.refusal("data_key = 'c2VjcmV0'")
        self.assertEqual(refusal.key, "data_key")
        self.assertIn("SERVICE_DATA_KEY", refusal.message)
        self.assertNotIn("c2VjcmV0", str(refusal))

    def test_data_key_on_the_command_line(self) -> None:
        """The data key comes from the environment alone (DATA-1, CFG-2)."""
        self.assertIsNone(self.read(data_key="c2VjcmV0").data_key)
        self.assertEqual(self.read(environ={"SERVICE_DATA_KEY": "c2VjcmV0"}).data_key, "c2VjcmV0")

    def test_file_in_the_file(self) -> None:
        """A file doesn't name another (CFG-2)."""
        self.assertEqual(self.refusal("config = '/etc/svc.toml'").key, "config")

    def test_no_file(self) -> None:
        """A file that isn't there, or can't be read, is refused by its path, under the name of what named it."""
        refusal = self.refusal(config="/nonexistent/svc.toml")
        self.assertEqual(refusal.key, "--config")
        self.assertIn("/nonexistent/svc.toml: No such file", refusal.message)
        self.assertEqual(self.refusal(environ={"SERVICE_CONFIG": "/"}).key, "SERVICE_CONFIG")

    def test_other_files(self) -> None:
        """What is no regular file, too large or nested too deeply is refused, and nothing waits for it (CFG-94)."""
        pipe = self.mktemp()
        os.mkfifo(pipe)
        listed = "authenticators = "
        before = len(os.listdir("/proc/self/fd"))
        for path, words in (
            (pipe, "it is no regular file"),
            ("/dev/zero", "it is no regular file"),
            ("/", "it is no regular file"),
            (self.file(f"#{'x' * MAX_FILE_BYTES}"), f"it has more than {MAX_FILE_BYTES} bytes"),
            (self.file(f"{listed}{'[' * 20_000}{']' * 20_000}"), "nested too deeply"),
        ):
            self.assertIn(words, self.refusal(config=path).message)
            refused = self.assertRaises(ConfigurationInvalid, reread_authenticators, Settings(config=Path(path)))
            self.assertIn(words, refused.message)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)
        self.assertEqual(self.read(config=self.file("# a comment\r\ndialect = 'conjur'\r\n")).dialect, CONJUR)

    def test_byte_order_mark(self) -> None:
        """A byte order mark before the text, as some editors write it, doesn't count (CFG-3)."""
        self.assertEqual(self.read(config=self.file(b"\xef\xbb\xbfdialect = 'conjur'")).dialect, CONJUR)

    def test_no_toml(self) -> None:
        """A file that isn't TOML is refused with the place of the fault."""
        refusal = self.refusal("listen = [\n  nothing\n]")
        self.assertEqual(refusal.key, "--config")
        self.assertIn("line 2", refusal.message)
        self.assertEqual(self.assertRaises(ConfigurationInvalid, self.read, config=self.file(b"\xff")).key, "--config")

    def test_secrets_are_not_shown(self) -> None:
        """The representation of settings holds neither the database's password nor the data key (DATA-6)."""
        environ = {"SERVICE_DATABASE_URL": "postgresql://u:hunter2@h/d", "SERVICE_DATA_KEY": "c2VjcmV0"}
        shown = repr(self.read(environ=environ))
        self.assertNotIn("hunter2", shown)
        self.assertNotIn("c2VjcmV0", shown)

    def test_authenticators_of_the_dialect(self) -> None:
        """Where SERVICE_AUTHENTICATORS is absent CONJUR_AUTHENTICATORS counts, in the conjur dialect alone (CFG-26)."""
        environ = {"CONJUR_AUTHENTICATORS": "authn-jwt/old"}
        settings = self.read(environ=environ, dialect="conjur")
        self.assertEqual((settings.authenticators, settings.dialect), (("authn-jwt/old",), CONJUR))
        self.assertEqual(settings.name_of("authenticators"), "CONJUR_AUTHENTICATORS")
        self.assertEqual(self.read(environ=environ).authenticators, ("authn",))
        environ["SERVICE_AUTHENTICATORS"] = "authn-jwt/new"
        self.assertEqual(self.read("dialect = 'conjur'", environ).authenticators, ("authn-jwt/new",))

    def test_unknown_authenticator(self) -> None:
        """An authenticator of unknown type stops the start, and is named."""
        refusal = self.refusal(environ={"SERVICE_AUTHENTICATORS": "authn,authn-nonsense/x"})
        self.assertEqual(refusal.key, "SERVICE_AUTHENTICATORS")
        self.assertIn("authn-nonsense/x", refusal.message)

    def test_cloud_authenticator(self) -> None:
        """The cloud authenticator is listed by the name that it has in the dialect; the other stops the start, with both
        (CFG-9).
        """
        for dialect, name, other in (
            ("native", "authn-cloud/a", "authn-azure/a"),
            ("conjur", "authn-azure/a", "authn-cloud/a"),
        ):
            self.assertEqual(self.read(dialect=dialect, authenticators=name).authenticators, (name,))
            refusal = self.refusal(dialect=dialect, authenticators=f"{name},{other}")
            self.assertEqual(refusal.key, "--authenticators")
            self.assertIn(repr(other), refusal.message)
            self.assertIn(repr(name), refusal.message)

    def test_ignore_missing_issuer(self) -> None:
        """The setting that concerns absent issuers is refused in the native dialect, unless it is off (CFG-9)."""
        self.assertTrue(self.read(dialect="conjur", ignore_missing_issuer=True).ignore_missing_issuer)
        self.assertEqual(self.refusal(ignore_missing_issuer=True).key, "--ignore-missing-issuer")
        self.assertFalse(self.read("ignore_missing_issuer = false").ignore_missing_issuer)

    def test_conjur_version(self) -> None:
        """The version that clients are told is that of the dialect, or another one, which is refused in native (CFG-47)."""
        self.assertEqual(self.read(dialect="conjur").dialect.reported_version, "1.23.0")
        told = self.read(dialect="conjur", conjur_version="1.29.0")
        self.assertEqual((told.dialect.reported_version, told.dialect.name), ("1.29.0", "conjur"))
        self.assertEqual(self.refusal(conjur_version="1.29.0").key, "--conjur-version")
        for text in ("1.29", "v1.29.0", "1.29.0-11", "01.2.3", "1.2.3<"):
            self.assertEqual(self.refusal(dialect="conjur", conjur_version=text).key, "--conjur-version")

    def test_cluster(self) -> None:
        """Other servers are listed by name and address; in a file they are tables, which may name an authority for each."""
        member = ClusterMember("b.example", "https://b.example:8443")
        self.assertEqual(self.read(cluster=" b.example = https://b.example:8443/ ,").cluster, (member,))
        toml = '[[cluster]]\nname = "b.example"\nurl = "https://b.example:8443"\n'
        self.assertEqual(self.read(toml).cluster, (member,))
        self.assertEqual(self.read(toml + 'ca = "/b.pem"').cluster, (attrs.evolve(member, ca=Path("/b.pem")),))
        self.assertEqual(self.read("cluster = []").cluster, ())

    def test_bad_cluster(self) -> None:
        """A fault of the list of servers is reported under the name that the user wrote."""
        self.assertEqual(self.refusal(cluster="b").key, "--cluster")
        self.assertEqual(self.refusal(environ={"SERVICE_CLUSTER": "b=ftp://b"}).key, "SERVICE_CLUSTER")
        self.assertEqual(self.refusal('cluster = ["b=https://b"]').key, "cluster")
        self.assertEqual(self.refusal('[[cluster]]\nname = "b"').key, "cluster")

    def test_limits(self) -> None:
        """The limits of requests are those of the edge by default, and each setting reaches its limit (LIM-1)."""
        limits = self.read().http_limits
        files = {"connections": limits.connections, "connections_per_address": limits.connections_per_address}
        self.assertEqual(limits, Limits(**files))
        changed = self.read(
            "request_body_limit = 1\npolicy_body_limit = 2\nrequest_line_limit = 300\nheader_limit = 400\n"
            "identifier_limit = 5\nrequest_timeout = 6.5\nconnection_limit = 70\nconnection_limit_per_address = 8"
        )
        self.assertEqual(
            changed.http_limits,
            Limits(
                body=1,
                policy_body=2,
                request_line=300,
                header_limit=400,
                identifier=5,
                request_seconds=6.5,
                connections=70,
                connections_per_address=8,
            ),
        )

    def test_connections_follow_open_files(self) -> None:
        """There may be as many connections as open files leave room for, a quarter of them from one address (LIM-7)."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for files, connections in ((1024, 640), (600, 300)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
            settings = self.read()
            self.assertEqual(
                (settings.connection_limit, settings.connection_limit_per_address), (connections, connections // 4)
            )
            # Commands that administer a server read its settings too, and serve nobody.
            self.assertEqual(self.read("connection_limit = 5000").connection_limit, 5000)
        self.assertEqual(self.read(connection_limit="3").connection_limit_per_address, 1)

    def test_identifiers_stay_within_the_index(self) -> None:
        """The limit of identifiers can't be raised above what the database can index (NAME-8, LIM-22)."""
        self.assertEqual(self.refusal(identifier_limit="1025").key, "--identifier-limit")

    def test_unknown_variables(self) -> None:
        """Variables that begin like ours and name no setting are listed, in order; they may come from a platform (CFG-5)."""
        environ = {"SERVICE_PORT": "tcp://1", "SERVICE_LISTN": "", "SERVICE_LISTEN": "", "SERVICE_DATA_KEY": "", "OTHER": ""}
        self.assertEqual(unknown_variables(environ), ["SERVICE_LISTN", "SERVICE_PORT"])

    def test_environment_of_the_process(self) -> None:
        """Without another environment that of the process is read."""
        for name, value in {"SERVICE_HOST_TOKEN_TTL": "9", "SERVICE_HSOT": ""}.items():
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name)
        self.assertEqual(read_settings({}).host_token_ttl, 9)
        self.assertIn("SERVICE_HSOT", unknown_variables())


class SampleTests(SynchronousTestCase):
    """The annotated sample, ``etc/svc.toml``."""

    def setUp(self) -> None:
        """Read the sample."""
        self.text = SAMPLE.read_text(encoding="utf-8")

    def settings(self, toml: str) -> Settings:
        """Read settings from a text."""
        path = Path(self.mktemp())
        path.write_text(toml, encoding="utf-8")
        return read_settings({"config": str(path)}, {})

    def test_unchanged(self) -> None:
        """As it is, the sample sets nothing."""
        self.assertEqual(self.settings(self.text).written.keys(), {"config"})

    def test_defaults(self) -> None:
        """With every default uncommented the settings are the defaults."""
        settings = self.settings(re.sub(r"(?m)^#([a-z_]+ =)", r"\1", self.text))
        self.assertGreater(len(settings.written), 15)
        plain = read_settings({}, {})
        self.assertEqual(attrs.evolve(settings, config=None, written={}), plain)

    def testexample_values(self) -> None:
        """Each example of a setting without default is a valid one."""
        examples = re.findall(r"(?m)^# ([a-z_]+ = .*)$", self.text)
        self.assertTrue(examples)
        for example in examples:
            self.assertEqual(len(self.settings(example).written), 2, example)

    def test_names_every_setting(self) -> None:
        """Every setting that a file may hold stands in the sample once, under the heading of its group."""
        shown: list[tuple[str, str]] = []
        for section in self.text.split("\n# -- ")[1:]:
            group = section.partition(" ")[0]
            shown.extend((group, field) for field in re.findall(r"(?m)^# ?([a-z_]+) = ", section))
        self.assertEqual(shown, [(option.group, option.field) for option in OPTIONS if option.in_file])


def example_values(field: str) -> tuple[str, str]:
    """A value of a setting that differs from its default, as text and as TOML."""
    special = {
        "dialect": "conjur",
        "account": "acme",
        "processes": "auto",
        "listen": "tcp:1",
        "trusted_proxies": "10.0.0.0/8",
        "public_url": "https://svc.example",
        "database_url": "dbname=svc",
        "read_from": "standby",
        "data_dir": "/d",
        "authenticators": "authn-jwt/ci",
        "allow_private_providers": "10.0.0.0/8",
        "google_issuer": "https://issuer.example",
        "aws_sts_regions": "xx-north-1",
        "aws_sts_url": "https://sts.example",
        "login_throttle": "off",
        "metrics_listen": "tcp:1",
        "audit_file": "/a",
        "audit_syslog": "tcp:h:1",
        "audit_failure": "continue",
        "log_format": "json",
        "log_level": "debug",
        "cluster_ca": "/ca.pem",
        "data_key_file": "/k",
        "data_key_command": "print-key",
    }
    if field == "jwks_token_files":
        return "https://k8s.example=/token", '["https://k8s.example=/token"]'
    if field == "cluster":
        return "b.example=https://b.example", '[{ name = "b.example", url = "https://b.example" }]'
    if field in {"allow_http_providers", "allow_plain_ldap", "console"}:
        return "true", "true"
    if field not in special:
        number = {"memory_lag": "1", "memory_limit": "2097152"}.get(field, "256")
        return number, number
    listed = field in {"listen", "trusted_proxies", "authenticators", "allow_private_providers", "aws_sts_regions"}
    return special[field], f'["{special[field]}"]' if listed else f'"{special[field]}"'
