"""Tests of ``svc import``: what the command reads, prints and ends with."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import httpx
from click.testing import CliRunner, Result

from svc.cli import import_, import_run
from svc.cli.coroutines import Network
from svc.cli.import_run import ProgressLine
from svc.cli.main import main
from tests.client.small import WaitlessAsync, token
from tests.importing.conjur_stand_in import KEY, URL
from tests.importing.moving import ImportCase
from tests.web.world import ADMIN

ENVIRONMENT = {"SVC_URL": "https://svc.example", "SVC_ACCOUNT": "acme", "SVC_LOGIN": "admin", "SVC_API_KEY": "ours"}
CREDENTIALS = {"CONJUR_ACCOUNT": "myorg", "CONJUR_AUTHN_LOGIN": "admin", "CONJUR_AUTHN_API_KEY": KEY}


class ImportTests(ImportCase):
    """The command, with a stand-in for Conjur and a server in memory."""

    def setUp(self) -> None:
        """Put both behind the command's connections."""
        super().setUp()
        self.changed: list[str] = []
        self.patch(Network, "make_requester", lambda *_: self.waitless(self.answer))
        self.patch(import_, "AsyncExchange", lambda transport, limit: self.waitless(transport))
        self.patch(import_, "async_transport", lambda ca_file: self.source.answer)
        self.folder = Path(self.mktemp())
        self.folder.mkdir()

    def waitless(self, answer: Any) -> WaitlessAsync:
        """Return what sends requests to a function."""
        made = WaitlessAsync(httpx.MockTransport(answer), 1_000_000)
        object.__setattr__(made, "slept", [])
        return made

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer for the target."""
        path = request.url.raw_path.decode()
        if path.endswith("/authenticate"):
            return httpx.Response(200, text=token(1), headers={"content-encoding": "base64", "x-request-id": "r"})
        if request.method != "GET":
            self.changed.append(f"{request.method} {path}")
        headers = [
            (name, value)
            for name, value in request.headers.items()
            if name not in {"host", "authorization", "content-length"}
        ]
        answer = self.client.request(request.method, path, body=request.content, headers=headers, role=ADMIN)
        return httpx.Response(answer.status, content=answer.body, headers=answer.headers)

    def svc(self, *arguments: str, code: int = 0, given: str | None = None, environ: dict[str, str] | None = None) -> Result:
        """Run the command; nothing that it prints holds a secret."""
        surroundings = {**ENVIRONMENT, **(CREDENTIALS if environ is None else environ)}
        result = CliRunner().invoke(main, ["import", "conjur", URL, *arguments], env=surroundings, input=given)
        self.assertEqual(result.exit_code, code, (result.output, result.exception))
        for secret in (KEY, "a-secret-value", "ours\n"):
            self.assertNotIn(secret, result.output)
        return result

    def fill(self) -> None:
        """Make something to move."""
        self.source.add("group:g", "user:x", *(f"host:h{number}" for number in range(8)))
        self.source.add("group:all", members=[("user:x", True)])
        self.source.set_values("v", b"a-secret-value", permissions=[("group:g", "read")])
        self.source.add(*(f"user:a/{number}" for number in range(7)))

    def test_plan(self) -> None:
        """A plan is printed and changes nothing: counts, reasons, what to do, five names of each reason (IMP-17)."""
        self.fill()
        output = self.svc("--plan").output
        for text in (
            "From conjur 1.24.0 at https://conjur.example (account myorg) to https://svc.example (account acme)",
            "host\t8",
            "membership\t1",
            "permission\t1",
            "variable with values\t1",
            "Not moved:",
            "user:a/4 and 2 more (--all prints them): policy makes the id of a user with a slash another one",
            "1 values: reading each leaves a line in the source's audit",
            "nothing has been changed",
        ):
            self.assertIn(text, output)
        self.assertIn("user:a/6", self.svc("--plan", "--all").output)
        self.assertEqual(self.changed, [])

    def test_moved(self) -> None:
        """An import prints the plan and what was done; again it has nothing to do, and both are equal (IMP-11, IMP-19)."""
        self.fill()
        for name in [name for name in self.source.resources if name.startswith("user:a/")]:
            del self.source.resources[name]
        result = self.svc()
        self.assertIn("To make:", result.output)
        self.assertIn("1 versions of values set", result.output)
        self.assertIn("9 hosts and users have an API key here that nobody has seen", result.output)
        self.assertEqual(self.value("v"), b"a-secret-value")
        self.changed.clear()
        self.assertIn("1 variables had theirs already", self.svc().output)
        self.assertEqual(self.changed, [])
        self.assertTrue(self.svc("--verify").output.endswith("0 differences.\n"))
        self.source.resources["variable:v"].values[2] = b"another"
        result = self.svc("--verify", code=3)
        self.assertIn("newest value of variable:v", result.output)
        self.assertTrue(result.output.endswith("1 differences.\n"))

    def test_not_compared(self) -> None:
        """Where something wasn't compared, that is counted, and the exit code is 3 (MOVE-76, IMP-19, IMP-22)."""
        self.source.set_values("v", b"1")
        self.svc()
        self.source.unreadable.add("variable:v")
        output = self.svc("--verify", code=3).output
        self.assertIn("Not compared:", output)
        self.assertIn("0 differences; 2 not compared.", output)

    def test_clash(self) -> None:
        """Clashes are printed, and the exit code is 3 (IMP-11, IMP-19)."""
        self.source.add("host:h", restricted_to=["10.0.0.0/8"])
        self.load("- !host h")
        output = self.svc(code=3).output
        self.assertIn("Clashes, left as they are here:\n- host:h: it is here already with other networks", output)

    def test_stopped(self) -> None:
        """An import that ends early says why, what was done and how to go on: exit code 1 (IMP-8, IMP-19)."""
        self.source.set_values("v", b"1", b"2")
        self.source.intruders.append(lambda request: httpx.Response(418 + 100) if b"version" in request.url.query else None)
        output = self.svc(code=1).output
        self.assertIn("Stopped. 1 statements of policy were loaded, 0 versions of values set", output)
        self.assertIn("(status 518)", output)
        self.assertIn("run the same command again", output)
        self.source.intruders.clear()
        self.svc()
        self.assertEqual(self.value("v", 2), b"2")

    def test_new_keys(self) -> None:
        """Each host that had an API key gets a file; a second run writes none, with another option all (IMP-15)."""
        self.source.add("host:a/b", "user:x")
        self.source.add("host:none", annotations={"authn/api-key": "false"})
        keys = self.folder / "keys"
        result = self.svc("--new-keys", str(keys))
        self.assertIn("2 files with new API keys", result.output)
        self.assertEqual(sorted(os.listdir(keys)), ["host%2Fa%2Fb.env", "x.env"])
        first = (keys / "x.env").read_text()
        self.assertNotIn("SVC_API_KEY=\n", first)
        self.svc("--new-keys", str(keys))
        self.assertEqual((keys / "x.env").read_text(), first)
        others = self.folder / "others"
        self.assertIn("2 hosts and users were here before", self.svc("--new-keys", str(others)).output)
        self.assertEqual(os.listdir(others), [])
        self.svc("--new-keys", str(others), "--replace-keys")
        self.assertNotEqual((others / "x.env").read_text(), first)
        self.assertEqual(len(os.listdir(others)), 2)

    def test_unsafe_logins(self) -> None:
        """A login with a line break has no file and is listed, and nobody else's key is another one for it (IMP-52)."""
        keys = self.folder / "keys"
        self.source.add("user:alice")
        self.load("- !user alice")
        self.source.add("host:x\nalice", "host:$(id)", "host:good")
        output = self.svc("--new-keys", str(keys), code=3).output
        self.assertIn("rotate-api-key --role host:ID", output)
        self.assertEqual([path.name for path in keys.iterdir()], ["host%2Fgood.env"])
        self.svc("--new-keys", str(keys))
        self.assertEqual([path.name for path in keys.iterdir()], ["host%2Fgood.env"])
        self.svc("--new-keys", str(keys), "--replace-keys", code=3)
        self.assertEqual(sorted(path.name for path in keys.iterdir()), ["alice.env", "host%2Fgood.env"])
        keys.chmod(0o755)
        self.assertIn("mode 0700", self.svc("--new-keys", str(keys), code=1).output)

    def test_lost_keys(self) -> None:
        """A host whose key was in an answer that was lost gets another one in the next run (IMP-15)."""
        self.source.add("host:a")
        keys = self.folder / "keys"
        self.load("- !host a")
        keys.mkdir(mode=0o700)
        (keys / ".expected").write_text("host/a\n")
        self.svc("--new-keys", str(keys))
        self.assertEqual(os.listdir(keys), ["host%2Fa.env"])

    def test_credentials(self) -> None:
        """Login and key come from a file, standard input or the environment, never from an argument (IMP-16)."""
        path = self.folder / "source.txt"
        path.write_text(f"admin\n{KEY}\n")
        account = {"CONJUR_ACCOUNT": "myorg"}
        self.svc("--plan", "--credentials", str(path), environ=account)
        self.svc("--plan", "--credentials", "-", environ=account, given=f"admin\n{KEY}\n")
        for arguments, environ, given, words in (
            ((), account, None, "no login at the source"),
            (("--source-api-key", "x"), account, None, "set CONJUR_AUTHN_API_KEY"),
            ((), {**account, "CONJUR_AUTHN_LOGIN": "admin"}, None, "set both"),
            (("--credentials", "-"), account, "admin\n", "two lines"),
        ):
            self.assertIn(words, self.svc("--plan", *arguments, environ=environ, given=given, code=2).output)

    def test_refused(self) -> None:
        """Options that contradict each other, and a source over http, are refused before anything is asked (IMP-16)."""
        for arguments, words in (
            (("--plan", "--verify"), "give one of them"),
            (("--sample", "5"), "--sample is for --verify"),
            (("--new-keys", "x", "--plan"), "change nothing"),
            (("--replace-keys",), "are for --new-keys"),
        ):
            self.assertIn(words, self.svc(*arguments, code=2).output)
        result = CliRunner().invoke(main, ["import", "conjur", "http://conjur.example"], env={**ENVIRONMENT, **CREDENTIALS})
        self.assertEqual((result.exit_code, "over http" in result.output), (2, True))
        result = CliRunner().invoke(
            main, ["import", "conjur", "https://svc.example"], env={**ENVIRONMENT, **CREDENTIALS, "CONJUR_ACCOUNT": "acme"}
        )
        self.assertEqual((result.exit_code, "is the server and account that is moved into" in result.output), (2, True))
        self.assertEqual((self.source.requests, self.changed), ([], []))

    def test_busy_target(self) -> None:
        """A target that is busy or away is asked again, and nothing is made twice (IMP-11)."""
        self.source.set_values("v", b"1", b"2")
        real, troubles = self.answer, {"POST": 3, "GET": 3}

        def trouble(request: httpx.Request) -> httpx.Response:
            if "authenticate" not in request.url.path and troubles.get(request.method, 0) > 0:
                troubles[request.method] -= 1
                if troubles[request.method] == 1:
                    real(request)
                    raise httpx.ReadError("broken off")
                error = {"error": {"code": "policy_conflict", "message": "busy"}}
                return httpx.Response(503, json=error, headers={"x-request-id": "r", "retry-after": "1"})
            return real(request)

        self.answer = trouble  # type: ignore[method-assign] # for this test
        self.svc()
        self.assertEqual((troubles, self.value("v", 1), self.value("v", 2)), ({"POST": 0, "GET": 0}, b"1", b"2"))
        self.assertEqual(len(self.read_target().of_kind("variable")[0].versions), 2)


class ProgressTests(ImportCase):
    """How far an import is."""

    def test_lines(self) -> None:
        """Off a terminal there is a line every ten seconds; on one, a line that changes (IMP-18)."""
        now = [0.0]
        self.patch(import_run, "steady_seconds", lambda: now[0])
        stream = io.StringIO()
        line = ProgressLine(stream)
        for number in range(25):
            now[0] = float(number)
            line.show("variables", number * 1000, 50_000)
        line.close()
        self.assertEqual(stream.getvalue(), "variables: 11,000 of 50,000\nvariables: 22,000 of 50,000\n")
        terminal = io.StringIO()
        terminal.isatty = lambda: True  # type: ignore[method-assign] # for this test
        line = ProgressLine(terminal)
        line.show("roles", 1, None)
        line.show("roles", 2, None)
        line.close()
        self.assertEqual(terminal.getvalue(), "\r\x1b[Kroles: 1\r\x1b[K")
