"""Tests of ``svc.agent.configuration``."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from unittest import SkipTest

from svc.agent.configuration import MOST_VARIABLES, Command, LoginSettings, ProcessSettings
from svc.agent.files import Destination
from tests.agent.scene import HEAD, AgentCase

FILE = "[[file]]\ndestination = 'DIR/out'\nvariable = 'a'\n"
NOBODY = 65534


class ConfigurationTests(AgentCase):
    """Configurations that are read, and those that are refused."""

    def test_defaults(self) -> None:
        """What isn't said is what is safe: mode 0600, the agent's own user, watched, each minute (AGT-4, AGT-5)."""
        found = self.configured(FILE)
        [file] = found.files
        self.assertEqual(file.destination, Destination(self.folder / "out", os.geteuid(), os.getegid(), 0o600))
        self.assertEqual((file.variables, file.command, file.removed_when_refused), ({"a"}, None, False))
        self.assertEqual(
            (found.url, found.account, found.interval, found.watch), ("https://svc.example.org", "acme", 60, True)
        )
        self.assertEqual((found.login, found.warnings), (LoginSettings("api-key", "host/apps/shop", Path("/none/key")), ()))
        self.assertEqual((found.process, found.variables), (ProcessSettings(), {"a"}))

    def test_everything(self) -> None:
        """Templates from files, commands, an environment and declared variables are read (AGT-4, AGT-6, AGT-13)."""
        (self.folder / "x.tmpl").write_text('{{ secret("c") }}')
        found = self.configured(
            'variables = ["more"]\ninterval = 5\nca_file = "ca.pem"\n'
            + FILE.replace(
                "variable = 'a'", "template_file = 'x.tmpl'\ncommand = ['x', '']\ncommand_timeout = 2\nmode = '440'"
            )
            + "[environment]\nA = 'd'\nB = { template = '{{ secret(\"e\") }}' }\n"
            + "[process]\non_change = 'SIGHUP'\nstop_timeout = 0\n"
        )
        self.assertEqual(found.variables, {"more", "c", "d", "e"})
        self.assertEqual(found.files[0].command, Command(("x", ""), 2.0))
        self.assertEqual(found.files[0].destination.mode, 0o440)
        self.assertTrue(found.files[0].destination.has_command)
        self.assertEqual(found.ca_file, self.folder / "ca.pem")
        self.assertEqual(found.process, ProcessSettings(restarts=False, signal=1, stop_timeout=0))  # type: ignore[arg-type]

    def test_mistakes(self) -> None:
        """A mistake is refused, and the message says where it is and what to write (AGT-1, AGT-4, AGT-5, AGT-6, AGT-7)."""
        for text, told in (
            ("", "there is nothing to keep"),
            ("x = [", "agent.toml: "),
            ("url = 'x'", "agent.toml: "),
            (FILE + "moed = '0600'", "file[1].moed is no setting: did you mean mode?"),
            (FILE + "mode = 600", "file[1].mode must be a text"),
            (FILE + "mode = '0888'", "three octal digits"),
            (FILE + "mode = '4755'", "three octal digits"),
            (FILE + "mode = '0602'", "lets everybody write"),
            (FILE + "owner = 'no-such-user'", "file[1].owner: this machine has no no-such-user"),
            (FILE + "owner = '4294967295'", "file[1].owner: 4294967295 is larger than any number of a user or a group"),
            (FILE + "group = '99999999999999999999'", "file[1].group: this machine has no 99999999999999999999"),
            (FILE + "group = 'no-such-group'", "file[1].group: this machine has no no-such-group"),
            (FILE + "command = 'reload x'", "file[1].command must be a list"),
            (FILE + "command = []", "file[1].command is empty"),
            (FILE + "command = [1]", "must be a list of texts"),
            (FILE + "command_timeout = -1", "command_timeout must be a number"),
            (FILE + "on_forbidden = 'burn'", "on_forbidden is something else: it is one of keep, remove"),
            (FILE + "template = 'x'", "give one of template, template_file and variable"),
            (FILE.replace("variable = 'a'", ""), "give one of template, template_file and variable"),
            (FILE.replace("'a'", "7"), "file[1].variable must be a text"),
            (FILE.replace("'a'", '"a\\u0000"'), "NUL"),
            (FILE.replace("DIR/", "x/"), "begins with /"),
            (FILE.replace("DIR/", "DIR/../"), "without .."),
            (FILE.replace("variable = 'a'", "template_file = 'none'"), "none can't be read: No such file"),
            (
                FILE.replace("variable = 'a'", "template = '{{ x }}'"),
                f"the template of {self.folder}/out: nothing is called x",
            ),
            (FILE + FILE, "is the destination of two files"),
            (FILE.replace("[[file]]", "[file]"), "must be written [[file]]"),
            (FILE + "[environment]\n'A-B' = 'x'", "environment.A-B: a name has letters"),
            (FILE + "[environment]\nA = 7", "environment.A must be a table"),
            (FILE + "[environment]\nA = { variable = 'x', mode = '1' }", "environment.A.mode is no setting"),
            (FILE + "[process]\non_change = 'SIGKILL'", "process.on_change is something else"),
            ("interval = 0.5\n" + FILE, "interval must be a number of seconds, at least 1"),
            ("interval = nan\n" + FILE, "interval must be a number"),
            ("watch = 'yes'\n" + FILE, "watch must be true or false"),
            ("variables = [" + ",".join(f"'v{n}'" for n in range(MOST_VARIABLES + 1)) + "]\n" + FILE, "more than one agent"),
        ):
            self.assertIn(told, self.refusal(text), text[:200])

    def test_addresses(self) -> None:
        """An address that can't be one, or holds a password, is refused, and not repeated (AGT-1)."""
        for url in ("svc.example.org", "ftp://svc.example.org", "https://me:pass@svc.example.org"):
            message = self.refusal(FILE, HEAD.replace("https://svc.example.org", url))
            self.assertIn("url must have the form https://svc.example.org", message)
            self.assertNotIn("pass@", message)

    def test_logins(self) -> None:
        """Each kind of login says what it lacks; files begin at the configuration's folder, or in systemd's (AGT-3)."""
        head = 'url = "https://svc.example.org"\naccount = "acme"\n'
        for login, told in (
            ("", "login.kind is missing: it is one of api-key, jwt, azure, google, aws"),
            ('kind = "password"', "login.kind is something else"),
            ('kind = "api-key"', "login.api_key_file is missing"),
            ('kind = "api-key"\napi_key_file = "x"', "login.host is missing"),
            ('kind = "api-key"\napi_key = "x"', "login.api_key_file is missing"),
            ('kind = "jwt"\njwt_file = "x"', "login.service_id is missing"),
            ('kind = "azure"\nservice_id = "x"', "login.host is missing"),
            ('kind = "google"\nhost = "host/x"\njwt_file = "x"', "login.jwt_file is no setting"),
            ('kind = "jwt"\nservice_id = "ci"\njwt_file = "${CREDENTIALS_DIRECTORY}/x"', "LoadCredential="),
        ):
            self.assertIn(told, self.refusal(FILE, f"{head}[login]\n{login}\n"), login)
        inner = 'kind = "jwt"\nservice_id = "ci"\njwt_file = "${CREDENTIALS_DIRECTORY}/x"'
        found = self.configured(FILE, f"{head}[login]\n{inner}\n", {"CREDENTIALS_DIRECTORY": "/run/credentials/a"})
        self.assertEqual(found.login, LoginSettings("jwt", None, Path("/run/credentials/a/x"), "ci"))
        found = self.configured(FILE, head + '[login]\nkind = "jwt"\nservice_id = "ci"\njwt_file = "x"\n')
        self.assertEqual(found.login.file, self.folder / "x")

    def test_warnings(self) -> None:
        """A key and a file that everybody can read are worth a warning (AGT-5)."""
        key = self.folder / "key"
        key.write_text("x")
        head = HEAD.replace("/none/key", str(key))
        key.chmod(0o604)
        found = self.configured(FILE + "mode = '0644'", head)
        self.assertIn("can read the API key", found.warnings[0])
        self.assertIn("by its mode 0644", found.warnings[1])
        key.chmod(0o600)
        self.assertEqual(self.configured(FILE, head).warnings, ())

    def test_who_could_write(self) -> None:
        """A configuration or a template that others could write is refused (AGT-2)."""
        text = FILE.replace("variable = 'a'", "template_file = 'x.tmpl'")
        template = self.folder / "x.tmpl"
        template.write_text("x")
        self.configured(text)
        template.chmod(0o646)
        self.assertIn(f"everybody can write {template}: chmod o-w", self.refusal(text))
        if os.geteuid() != 0:
            raise SkipTest("only root gives files to others")
        template.chmod(0o664)
        self.configured(text)
        os.chown(template, 0, NOBODY)
        self.assertIn("can write", self.refusal(text))
        template.chmod(0o644)
        self.configured(text)
        os.chown(template, NOBODY, 0)
        self.assertIn(f"{template} belongs to user {NOBODY}", self.refusal(text))

    def test_links(self) -> None:
        """A template may be a link of root's, and not of somebody else's, who could show a file of root's in it (AGT-2)."""
        text = FILE.replace("variable = 'a'", "template_file = 'x.tmpl'")
        (self.folder / "y.tmpl").write_text("x")
        template = self.folder / "x.tmpl"
        template.symlink_to("y.tmpl")
        self.configured(text)
        if os.geteuid() != 0:
            raise SkipTest("only root gives links to others")
        os.chown(template, NOBODY, NOBODY, follow_symlinks=False)
        self.assertIn(f"{template} is a symbolic link of user {NOBODY}", self.refusal(text))

    def test_owners(self) -> None:
        """An owner without a group has the group that the user logs in with; numbers are taken as they are (AGT-5)."""
        if os.geteuid() != 0:
            raise SkipTest("only root gives files to others")
        user = pwd.getpwnam("daemon")
        [file] = self.configured(FILE + "owner = 'daemon'").files
        self.assertEqual((file.destination.uid, file.destination.gid), (user.pw_uid, user.pw_gid))
        [file] = self.configured(FILE + f"owner = '1234'\ngroup = '{grp.getgrgid(0).gr_name}'").files
        self.assertEqual((file.destination.uid, file.destination.gid), (1234, 0))

    def test_owners_of_a_user(self) -> None:
        """An agent that isn't root gives no file to others, nor to a group that it isn't in (AGT-5)."""
        self.patch(os, "geteuid", lambda: 1234)
        self.patch(os, "getegid", lambda: 1234)
        self.patch(os, "getgroups", lambda: [1234, 77])
        for path in (self.folder, self.folder / "agent.toml"):
            path.touch()
        if os.getuid() not in {0, 1234}:
            raise SkipTest("a configuration belongs to root or to the agent")
        self.assertIn("only root gives files to others", self.refusal(FILE + "owner = '1235'"))
        self.assertIn("is no member of it", self.refusal(FILE + "group = '78'"))
        [file] = self.configured(FILE + "group = '77'").files
        self.assertEqual((file.destination.uid, file.destination.gid), (1234, 77))

    def test_unreadable(self) -> None:
        """A file that isn't there, isn't text or is far too long is refused (AGT-1)."""
        self.assertIn("is longer than", self.refusal("#" * 1024 * 1024 + "\n" + FILE))
        (self.folder / "x.tmpl").write_bytes(b"\xff")
        self.assertIn("is not UTF-8", self.refusal(FILE.replace("variable = 'a'", "template_file = 'x.tmpl'")))
