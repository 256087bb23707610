"""Tests of ``svc.cli.authenticator``: what is asked of the server, and what is said of its answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import connection
from svc.cli.connection import ApiAnswer, ApiConnection
from svc.cli.main import main
from svc.model.dialect import NATIVE
from svc.model.errors import RecordNotFound
from svc.model.key_sets import UNUSABLE
from svc.web.http.refusal_responses import response_to
from tests.cli.completing import complete

KEYS: dict[str, Any] = {
    "source": "jwks-uri",
    "uri": "https://ci.example/jwks",
    "count": 2,
    "ids": ["k1", None],
    "thumbprints": ["t1", "t2"],
    "age": 90.5,
    "last_fetch": {"at": "2026-01-01T00:00:00.000+00:00", "outcome": "ok"},
    "problems": ["key 3 is weak"],
    "unused": ["key 4 is for something else"],
}
NO_KEYS: dict[str, Any] = {**dict.fromkeys(KEYS), "count": 0, "ids": [], "thumbprints": [], "problems": [], "unused": []}

OK = {
    "status": "ok",
    "problems": [],
    "algorithms": ["RS256", "ES256"],
    "keys": KEYS,
    "distrusted": [{"key": "k0", "since": "2026-01-01T00:00:00.000+00:00", "by": "a:user:max"}],
    "clock_offset": -1.5,
    "recent_tokens": 7,
}
BAD = {
    **OK,
    "status": "error",
    "error": "It is blank.",
    "problems": [{"what": "It is \x1b[2Jblank.", "remedy": "Set it."}],
    "algorithms": [],
    "keys": NO_KEYS,
    "distrusted": [],
    "clock_offset": None,
}
EXPLAINED: dict[str, Any] = {
    "admitted": False,
    "role": None,
    "steps": [
        {"check": "token", "outcome": "passed", "detail": "RS256", "reason": None},
        {"check": "signature", "outcome": "failed", "detail": "no key \x1b[2Jk9", "reason": "key-unknown"},
        {"check": "role", "outcome": "not reached", "detail": "", "reason": None},
    ],
}


DIRECTORY: dict[str, Any] = {
    "status": "error",
    "error": "49",
    "problems": [{"what": "It is \x1b[2Jrefused.", "remedy": "Mend it."}],
    "listed": True,
    "bind": {"account": "cn=svc", "outcome": "refused", "again": 1800},
    "bases": [{"annotation": "ldap-authn/base_dn", "dn": "dc=x", "fault": None}],
    "refusals": [{"at": "2026-01-01T00:00:00.000+00:00", "request_id": "r1", "reason": "credentials-wrong"}],
}


class Server:
    """What a command sees of a connection: it keeps what was asked, and answers in turn, the last time for good."""

    account = "a/b"
    encode_path = staticmethod(ApiConnection.encode_path)

    def __init__(
        self, status: int, answer: object = None, *later: tuple[int, object], headers: dict[str, str] | None = None
    ) -> None:
        self.asked: list[tuple[Any, ...]] = []
        answers = ((status, answer), *later)
        bodies = [(status, b"" if told is None else json.dumps(told).encode()) for status, told in answers]
        self._answers = [ApiAnswer(status, body, {"x-request-id": "r-1", **(headers or {})}) for status, body in bodies]

    async def request_with_token(self, method: str, path: str, body: bytes | None = None, **_: str) -> ApiAnswer:
        """Answer."""
        self.asked.append((method, path, body))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    request = request_with_token


class CommandsCase(SynchronousTestCase):
    """Commands, from the command line to the request and from the answer to what is said."""

    def run_command(self, server: Server, *arguments: str, code: int = 0, given: str = "", colour: bool = False) -> Result:
        """Run a command, which must end with this exit code."""
        self.patch(connection, "run_asyncio", complete)
        self.patch(connection, "ApiConnection", lambda *_: server)
        line = ["authenticator", *arguments, "--url", "http://127.0.0.1:1"]
        if arguments[0] != "list":
            line += ["--account-name", "a/b"]
        outcome = CliRunner().invoke(main, line, input=given, color=colour)
        self.assertEqual(outcome.exit_code, code, outcome.output)
        return outcome


class ReadingTests(CommandsCase):
    """Commands that only ask."""

    def test_list(self) -> None:
        """Authenticators are listed with where they are named; help says what the columns are."""
        answer = {"installed": ["authn"], "configured": ["authn", "authn-jwt/ci"], "enabled": ["authn", "authn-jwt/cd"]}
        server = Server(200, answer)
        said = self.run_command(server, "list").stdout
        self.assertEqual(said, "authn\tyes\tyes\nauthn-jwt/cd\tno\tyes\nauthn-jwt/ci\tyes\tno\n")
        self.assertEqual(server.asked, [("GET", "/authenticators", None)])
        self.assertEqual(json.loads(self.run_command(server, "list", "--json").stdout), answer)
        told = " ".join(self.run_command(server, "list", "--help").stdout.split())
        self.assertIn("whether policy declares it, and whether it is enabled", told)

    def test_status(self) -> None:
        """A status is told line by line."""
        server = Server(200, OK)
        said = self.run_command(server, "status", "authn-jwt/c i").stdout.splitlines()
        self.assertEqual(server.asked, [("GET", "/authn-jwt/c%20i/a%2Fb/status", None)])
        self.assertEqual(
            said,
            [
                "status\tok",
                "algorithms\tRS256, ES256",
                "keys from\tjwks-uri https://ci.example/jwks",
                "key\tk1 (thumbprint t1)",
                "key\twithout id (thumbprint t2)",
                "age\t90.5 s",
                "last fetch\t2026-01-01T00:00:00.000+00:00: ok",
                "unusable key\tkey 3 is weak",
                "unused key\tkey 4 is for something else",
                "distrusted key\tk0 (since 2026-01-01T00:00:00.000+00:00, by a:user:max)",
                "clocks\tthe provider's clock is ahead of this server's by 1.5 s, judging by 7 recent tokens",
            ],
        )

    def test_faulty_status(self) -> None:
        """A faulty one ends with exit code 1, after every problem and what to do; nothing speaks to the terminal
        (CLI-13).
        """
        outcome = self.run_command(Server(500, BAD), "status", "ci", code=1)
        self.assertEqual(
            outcome.stdout.splitlines(),
            ["status\terror", "keys from\tnowhere", "PROBLEM  It is \\x1b[2Jblank.", "  to do  Set it."],
        )
        self.assertIn("ci does not work", outcome.stderr)
        outcome = self.run_command(Server(500, BAD), "status", "ci", "--json", code=1)
        self.assertEqual(json.loads(outcome.stdout), BAD)

    def test_no_usable_key(self) -> None:
        """Each key that can't be used has a line of its own, and no sentence repeats why (CLI-13)."""
        why = f"https://ci.example/jwks: the answer is not usable: {UNUSABLE}key 1 is refused: it is weak; key 2 is not used"
        keys = {
            **NO_KEYS,
            "source": "jwks-uri",
            "uri": "https://ci.example/jwks",
            "problems": ["key 1 is refused: it is weak"],
        }
        keys |= {"unused": ["key 2 is not used"], "last_fetch": {"at": "2026-01-01T00:00:00.000+00:00", "outcome": why}}
        bad = {**BAD, "keys": keys, "problems": [{"what": f"There are no keys: {why}.", "remedy": "Set it."}]}
        brief = "https://ci.example/jwks: the answer is not usable: it has no usable key."
        of_keys = [
            "keys from\tjwks-uri https://ci.example/jwks",
            f"last fetch\t2026-01-01T00:00:00.000+00:00: {brief}",
            "unusable key\tkey 1 is refused: it is weak",
            "unused key\tkey 2 is not used",
            f"PROBLEM  There are no keys: {brief}",
            "  to do  Set it.",
        ]
        outcome = self.run_command(Server(500, bad), "status", "ci", code=1)
        self.assertEqual(outcome.stdout.splitlines(), ["status\terror", *of_keys])
        outcome = self.run_command(Server(200, bad), "refresh-keys", "ci", code=1)
        self.assertEqual(outcome.stdout.splitlines(), of_keys)
        self.assertEqual(json.loads(self.run_command(Server(500, bad), "status", "ci", "--json", code=1).stdout), bad)

    def test_directory_status(self) -> None:
        """The status of a directory is told line by line, its faults with what to do; exit code 1 (AUTH-58)."""
        server = Server(500, DIRECTORY)
        said = self.run_command(server, "status", "authn-ldap/corp", code=1).stdout
        self.assertEqual(server.asked, [("GET", "/authn-ldap/corp/a%2Fb/status", None)])
        for line in (
            "status\terror", "account\tcn=svc", "bind\trefused, tried again in 1800 s", "ldap-authn/base_dn\tdc=x: found",
            "refusal\t2026-01-01T00:00:00.000+00:00 credentials-wrong (request r1)", "  to do  Mend it.",
        ):  # fmt: skip
            self.assertIn(line, said)
        self.assertNotIn("\x1b[2J", said)
        self.run_command(Server(200, OK), "refresh-keys", "authn-ldap/corp", code=2)

    def test_no_status(self) -> None:
        """Other answers are faults: denials, and what goes wrong in the server itself."""
        for status, answer, said in (
            (403, {"status": "error", "error": "CONJ00006E lacks read"}, "403): lacks read"),
            (404, {"status": "error", "error": "CONJ00005E"}, "not found"),
            (500, {"error": {"code": "internal_error", "message": "incident 7"}}, "incident 7"),
        ):
            outcome = self.run_command(Server(status, answer), "status", "ci", code=1)
            self.assertEqual(outcome.stdout, "")
            self.assertIn(said, outcome.stderr)

    def test_no_webservice(self) -> None:
        """Where policy declares no status, or not the authenticator, it is told so in words, with what to do."""
        refusal = response_to(RecordNotFound("a/b", "webservice", "svc/authn-jwt/ci/status"), NATIVE)
        assert refusal is not None
        other = {"status": "error", "error": "CONJ00005E Webservice 'svc/authn-jwt/ci/status' not found"}
        for answer in (json.loads(refusal.body), other):
            for command in ("status", "explain", "refresh-keys"):
                said = self.run_command(Server(404, answer), command, "ci", code=1).stderr
                self.assertIn("a/b has no authn-jwt/ci, or policy declares no `!webservice status` beneath it", said)
                self.assertNotIn("{", said)

    def test_explain(self) -> None:
        """A refusal is a checklist that reads without colours, says where to read on, and ends with exit code 1 (CLI-13)."""
        server = Server(200, EXPLAINED)
        outcome = self.run_command(server, "explain", "ci", given=" a+b.c.d\n", code=1)
        self.assertEqual(server.asked, [("POST", "/authn-jwt/ci/a%2Fb/explain", b"jwt=a%2Bb.c.d")])
        self.assertEqual(
            outcome.stdout.splitlines(),
            [
                "ok      token      RS256",
                "FAILED  signature  key-unknown: no key \\x1b[2Jk9",
                "        what to do: svc explain-reason key-unknown",
                "-       role",
            ],
        )
        self.assertEqual(outcome.stderr, "Error: this token would be refused: key-unknown\n")
        self.assertNotIn("a+b.c.d", outcome.output)
        outcome = self.run_command(server, "explain", "ci", "--json", code=1)
        self.assertEqual(json.loads(outcome.stdout), EXPLAINED)

    def test_colours(self) -> None:
        """Where there are colours, what failed is red and what passed green."""
        said = self.run_command(Server(200, EXPLAINED), "explain", "ci", code=1, colour=True).stdout.splitlines()
        self.assertTrue(said[0].startswith("\x1b[32mok"))
        self.assertTrue(said[1].startswith("\x1b[31mFAILED"))
        self.assertEqual(said[3], "-       role\x1b[0m")

    def test_admitted(self) -> None:
        """An admission says as whom, and the token may come from a file, with the host beside it; the option has the name
        that it has everywhere, and the one that it had before (CLI-62).
        """
        path = self.mktemp()
        with open(path, "w", encoding="ascii") as file:
            file.write("a.b.c\n")
        for option in ("--jwt-file", "--jwt"):
            server = Server(200, {**EXPLAINED, "admitted": True, "role": "a:host:web", "steps": EXPLAINED["steps"][:1]})
            said = self.run_command(server, "explain", "authn-jwt/ci", option, path, "--host", "host/web").stdout
            self.assertEqual(server.asked, [("POST", "/authn-jwt/ci/a%2Fb/host%2Fweb/explain", b"jwt=a.b.c")])
            self.assertEqual(said, "ok      token  RS256\nThis token would be admitted as a:host:web.\n")


class KeyTests(CommandsCase):
    """Logins by key and password, explained."""

    FOUND: Final = {
        "admitted": None,
        "role": "a/b:host:web",
        "steps": [
            {"check": "role", "outcome": "passed", "detail": "it is there", "reason": None},
            {"check": "credentials", "outcome": "not tried", "detail": "", "reason": None},
        ],
    }

    def test_without_a_key(self) -> None:
        """Without a key nothing is tried, and what is told says so (REF-10)."""
        server = Server(200, self.FOUND)
        outcome = self.run_command(server, "explain", "authn", "--of", "host/web", "--from", "10.0.0.7")
        self.assertEqual(server.asked, [("POST", "/authn/a%2Fb/host%2Fweb/explain", b"address=10.0.0.7")])
        self.assertIn("?       credentials", outcome.stdout)
        self.assertIn("Nothing but the key or password, which was not tried, decides", outcome.stdout)

    def test_with_a_key(self) -> None:
        """A key is read from a file, without the end of its line, and is never among the arguments (REF-10)."""
        with CliRunner().isolated_filesystem():
            Path("key").write_bytes(b"1 + key\r\n")
            server = Server(200, {**self.FOUND, "admitted": True})
            self.run_command(server, "explain", "authn-ldap/corp", "--of", "alice", "--key", "key")
        self.assertEqual(server.asked, [("POST", "/authn-ldap/corp/a%2Fb/alice/explain", b"evidence=1+%2B+key")])

    def test_usage(self) -> None:
        """Whose login it is must be said; a token has other options."""
        self.run_command(Server(200), "explain", "authn", code=2)
        self.run_command(Server(200), "explain", "authn-jwt/ci", "--of", "alice", code=2)


class ChangingTests(CommandsCase):
    """Commands that change something."""

    def test_refresh(self) -> None:
        """What is known of the keys then is told."""
        server = Server(200, {"keys": KEYS, "problems": []})
        said = self.run_command(server, "refresh-keys", "ci").stdout
        self.assertEqual(server.asked, [("POST", "/authn-jwt/ci/a%2Fb/refresh-keys", None)])
        self.assertIn("key\tk1 (thumbprint t1)\n", said)
        self.assertIn("keys", json.loads(self.run_command(server, "refresh-keys", "ci", "--json").stdout))

    def test_failed_refresh(self) -> None:
        """A fetch that failed, or couldn't be tried, ends with exit code 1 and says why."""
        failed = {**KEYS, "last_fetch": {"at": "2026-01-01T00:00:00.000+00:00", "outcome": "timed out"}}
        outcome = self.run_command(Server(200, {"keys": failed, "problems": []}), "refresh-keys", "ci", code=1)
        self.assertIn("not refreshed: timed out", outcome.stderr)
        outcome = self.run_command(Server(200, {"keys": NO_KEYS, "problems": BAD["problems"]}), "refresh-keys", "ci", code=1)
        self.assertIn("to do  Set it.", outcome.stdout)

    def test_keys(self) -> None:
        """A key is distrusted and trusted again, by its name as one segment of the path."""
        server = Server(204)
        said = self.run_command(server, "distrust-key", "ci", "k/1").stderr
        self.assertEqual(said, "ci distrusts the key k/1.\n")
        said = self.run_command(server, "trust-key", "ci", "k/1").stderr
        self.assertEqual(said, "ci no longer distrusts the key k/1.\n")
        path = "/authn-jwt/ci/a%2Fb/distrusted-keys/k%2F1"
        status = "/authn-jwt/ci/a%2Fb/status"
        self.assertEqual(server.asked, [("PUT", path, None), ("GET", status, None), ("DELETE", path, None)])
        self.assertIn("not found", self.run_command(Server(404), "trust-key", "ci", "k", code=1).stderr)

    def test_nothing_to_trust(self) -> None:
        """Trust in a key that isn't distrusted fails with that, not with doubt whether the authenticator exists."""
        for kind, identifier, said in (
            ("key", "k1", "Error: ci doesn't distrust k1: "),
            ("webservice", "Key k1", "Error: not found"),
        ):
            answer = response_to(RecordNotFound("a/b", kind, identifier), NATIVE)
            assert answer is not None
            outcome = self.run_command(Server(404, json.loads(answer.body)), "trust-key", "ci", "k1", code=1)
            self.assertTrue(outcome.stderr.startswith(said), outcome.stderr)

    def test_distrust_of_nothing(self) -> None:
        """A distrusted key that none at hand has is distrusted, with a warning that names those at hand."""
        for answer in ((200, OK), (500, {**BAD, "keys": KEYS})):
            for key in ("k1", "t2"):
                said = self.run_command(Server(204, None, answer), "distrust-key", "ci", key).stderr
                self.assertEqual(said, f"ci distrusts the key {key}.\n")
            said = self.run_command(Server(204, None, answer), "distrust-key", "ci", "k7").stderr
            self.assertTrue(said.startswith("ci distrusts the key k7.\nwarning: no key at hand"), said)
            self.assertTrue(said.endswith(": k1 (thumbprint t1), without id (thumbprint t2)\n"), said)
        said = self.run_command(Server(204, None, (500, BAD)), "distrust-key", "ci", "k7").stderr
        self.assertTrue(said.endswith("at hand: none\n"), said)

    def test_distrust_without_status(self) -> None:
        """Where the status can't be read, a key is distrusted without a warning."""
        fault = {"error": {"code": "internal_error", "message": "incident 7"}}
        for answer in ((403, BAD), (404, BAD), (500, fault), (500, None)):
            said = self.run_command(Server(204, None, answer), "distrust-key", "ci", "k7").stderr
            self.assertEqual(said, "ci distrusts the key k7.\n")

    def test_switch(self) -> None:
        """Authenticators of every type are switched, JWT ones also by their short names."""
        server = Server(204)
        for name, path in (
            ("ci", "/authn-jwt/ci/a%2Fb"),
            ("authn-jwt/a/b", "/authn-jwt/a%2Fb/a%2Fb"),
            ("authn-other", "/authn-other/a%2Fb"),
            ("authn", "/authn/a%2Fb"),
        ):
            self.assertIn("on", self.run_command(server, "enable", name).stderr)
            self.assertIn("off", self.run_command(server, "disable", name).stderr)
            asked = [("PATCH", path, b"enabled=true"), ("PATCH", path, b"enabled=false")]
            self.assertEqual(server.asked[-2:], asked)

    def test_list_counts(self) -> None:
        """When the switch is not what counts, the command says what the server's list has to do with it, and what to write
        where; the pattern fits the name (CLI-80).
        """
        for word, name, usable, words in (
            ("enable", "ci", "false", "doesn't list authn-jwt/ci. Add it, or the pattern authn-jwt/*: where"),
            ("enable", "authn-gcp", "false", "doesn't list authn-gcp. Add it: where"),
            ("disable", "ci", "true", "logins there go on, since the server's setting authenticators lists authn-jwt/ci."),
        ):
            said = self.run_command(Server(204, headers={"svc-enabled": usable}), word, name).stderr
            self.assertIn("\nwarning: ", said)
            for part in (words, "--config", "SIGHUP", "SERVICE_AUTHENTICATORS"):
                self.assertIn(part, said)
        for word, usable in (("enable", "true"), ("disable", "false")):
            said = self.run_command(Server(204, headers={"svc-enabled": usable}), word, "ci").stderr
            self.assertNotIn("warning", said)
        self.assertNotIn("warning", self.run_command(Server(204), "enable", "ci").stderr)

    def test_nothing_to_switch(self) -> None:
        """The bare 401 by which servers say that an authenticator doesn't exist isn't taken for a lack of login."""
        outcome = self.run_command(Server(401), "enable", "none", code=1)
        self.assertIn("account a/b has no authenticator none", outcome.stderr)
        told = "CONJ00005E Webservice 'svc/authn-jwt/none' not found in account 'a/b'"
        outcome = self.run_command(
            Server(401, {"error": {"code": "unauthorized", "message": told}}), "enable", "none", code=1
        )
        self.assertIn(f"account a/b has no authenticator none: {told.partition(' ')[2]}", outcome.stderr)
        outcome = self.run_command(Server(403), "enable", "ci", code=1)
        self.assertIn("lacks the privilege", outcome.stderr)

    def test_cloud(self) -> None:
        """Cloud authenticators are named in full, by their names in either vocabulary."""
        for kind in ("authn-cloud", "authn-azure"):
            server = Server(200, OK)
            self.run_command(server, "status", f"{kind}/prod")
            self.run_command(server, "enable", f"{kind}/prod", code=1)
            path = f"/{kind}/prod/a%2Fb"
            self.assertEqual(server.asked, [("GET", f"{path}/status", None), ("PATCH", path, b"enabled=true")])

    def test_google(self) -> None:
        """Of Google's an account has one, which has no service id (GCP-1)."""
        server = Server(200, OK)
        self.run_command(server, "status", "authn-gcp")
        self.run_command(server, "enable", "authn-gcp", code=1)
        self.run_command(server, "status", "authn-gcp/prod", code=2)
        path = "/authn-gcp/a%2Fb"
        self.assertEqual(server.asked, [("GET", f"{path}/status", None), ("PATCH", path, b"enabled=true")])

    def test_other_types(self) -> None:
        """What only authenticators that trust third parties have is a usage error for others."""
        server = Server(200, OK)
        for arguments in (("status", "authn"), ("explain", "authn-other/x"), ("refresh-keys", "authn-jwt")):
            self.assertIn("authn-jwt/ci", self.run_command(server, *arguments, code=2).stderr)
        self.assertEqual(server.asked, [])
