"""Tests of ``svc.cli.doctor``: what the running server is asked, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

from click.testing import CliRunner, Result
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import doctor
from svc.cli.doctor import ServerInspector, find_plain_url, loopback_url
from svc.cli.main import main
from svc.health.doctor_checks import Risk, ServerFacts
from svc.model.dialect import CONJUR
from svc.settings.config import Settings
from svc.workload.faults import Unreachable
from svc.workload.replies import Reply
from tests.cli.completing import complete

HERE: Final = {
    "name": "this server",
    "here": True,
    "services": {"core": "ok"},
    "database": "ok",
    "lag_seconds": None,
    "version": "1.2",
}
OTHER: Final = {"name": "b", "here": False, "services": {}, "database": "ok", "lag_seconds": 31.5}
COUNTERS: Final = "# TYPE svc_memory_evicted counter\nsvc_memory_evicted_total 7\nsvc_memory_misses_total 9\n"


class Answers:
    """An exchange with a server that gives these answers, by the address; others are refused."""

    def __init__(self, **answers: object) -> None:
        self.answers = {path: text if isinstance(text, str) else json.dumps(text) for path, text in answers.items()}
        self.asked: list[str] = []

    async def ask(self, method: str, url: str, *, headers: dict[str, str], within: float) -> Reply:
        """Answer."""
        self.asked.append(url)
        name = url.rpartition("/")[2] or "root"
        if name not in self.answers:
            raise Unreachable(url, "no connection")
        return Reply(200, self.answers[name].encode())


class ServerQuestionsTests(SynchronousTestCase):
    """The running server."""

    def asked(self, answers: Answers, url: str | None = None, **settings: Any) -> ServerFacts | None:
        """What it says."""
        given = {"listen": ("ssl:1", "tcp:8080"), "metrics_listen": "tcp:9:interface=\\:\\:1", **settings}
        exchange: Any = answers
        questions = ServerInspector(exchange, Settings(**given), url)
        return self.successResultOf(Deferred.fromCoroutine(questions.fetch_facts()))

    def test_well(self) -> None:
        """Its health, its version, the lags of others and its counters are asked for (CLI-40)."""
        answers = Answers(health={"servers": [HERE, OTHER]}, metrics=COUNTERS)
        expected = ServerFacts(version="1.2", failing=[], lags=[("b", 31.5)], evicted=7.0, misses=9.0)
        self.assertEqual(self.asked(answers), expected)
        paths = ["http://127.0.0.1:8080/ui/health", "http://[::1]:9/metrics"]
        self.assertEqual(answers.asked, paths)
        facts = self.asked(answers, "https://a.example", metrics_listen=None, dialect=CONJUR)
        self.assertEqual(facts, ServerFacts(version="1.2", failing=[], lags=[("b", 31.5)], has_metrics=False))
        self.assertEqual(answers.asked[2:], ["https://a.example/ui/health"])

    def test_version(self) -> None:
        """The version is that of the program in its health report, whatever version clients are told; it is unknown where
        the report has none (CLI-40).
        """
        for told, version in (({"version": "1.2"}, "1.2"), ({"version": ""}, None), ({"version": 7}, None), ({}, None)):
            here = {name: value for name, value in HERE.items() if name != "version"} | told
            facts = self.asked(Answers(health={"servers": [here]}, root={"version": "1.23.0"}))
            self.assertIsNotNone(facts)
            self.assertEqual(facts and facts.version, version)

    def test_ill(self) -> None:
        """What fails is named; a server that is away, or isn't one, is too (CLI-40)."""
        ill = HERE | {"services": {"core": "failed", "audit": "ok"}, "database": "stale"}
        facts = self.asked(Answers(health={"servers": [ill]}, metrics="nonsense {"))
        self.assertEqual(facts, ServerFacts(version="1.2", failing=["core failed", "database stale"], lags=[]))
        away = self.asked(Answers())
        self.assertIn("no connection", away.fault if away and away.fault else "")
        strange: object
        for strange in ("<html>", [], {"servers": []}, {"servers": 7}, {"servers": [{}]}):
            facts = self.asked(Answers(health=strange))
            self.assertIn("isn't svc", facts.fault if facts and facts.fault else "", strange)
        self.assertIsNone(self.asked(Answers(), listen=("ssl:1", "unix:/a")))

    def test_addresses(self) -> None:
        """Ports of TCP without TLS have an address on this machine."""
        for text, expected in (
            ("tcp:8080", "http://127.0.0.1:8080"),
            ("tcp:port=8080:interface=0.0.0.0", "http://127.0.0.1:8080"),
            ("tcp:1:interface=10.0.0.1", "http://10.0.0.1:1"),
            ("tcp:1:interface=\\:\\:", "http://[::1]:1"),
            ("tcp:0", None),
            ("tcp:x", None),
            ("tcp", None),
            ("ssl:8443", None),
            ("systemd:domain=INET:index=0", None),
        ):
            self.assertEqual(loopback_url(text), expected, text)


class DoctorTests(SynchronousTestCase):
    """``svc doctor``."""

    def run_command(self, found: list[Risk], *arguments: str, code: int, environ: dict[str, str] | None = None) -> Result:
        """Run the command, which finds these, and must end with this exit code."""

        async def facts(*_: object, **__: object) -> None:
            """Nothing needs to be known."""

        react: Callable[[Callable[[Any], Coroutine[Any, Any, None]]], None] = complete
        self.patch(doctor, "run_reactor", react)
        self.patch(doctor, "collect_facts", facts)
        self.patch(doctor, "find_risks", lambda _: found)
        variables: dict[str, str | None] = {"SVC_URL": None, **(environ or {})}
        outcome = CliRunner().invoke(main, ["doctor", "--listen", "unix:/a", *arguments], env=variables)
        self.assertEqual(outcome.exit_code, code, outcome.output)
        return outcome

    def test_address(self) -> None:
        """An address of another form is refused, as by commands that speak to a server (CLI-9)."""
        said = self.run_command([], "--url", "nonsense", code=2).output
        self.assertIn("must have the form https://svc.example.org", " ".join(said.split()))

    def test_printed(self) -> None:
        """Each finding is printed with what to do; the exit code is 1 when one is a risk, notes alone make none (CLI-41)."""
        risk, note = Risk("a-risk", "it is\x1b[31m bad", "mend it"), Risk("a-note", "it is so", "think", severe=False)
        said = self.run_command([risk, note], code=1).stdout
        lines = ["RISK a-risk: it is\\x1b[31m bad", "     mend it", "note a-note: it is so", "     think", "1 risk, 1 note"]
        self.assertEqual(said.splitlines(), lines)
        self.assertEqual(self.run_command([note, note], code=0).stdout.splitlines()[-1], "0 risks, 2 notes")
        outcome = self.run_command([], code=0)
        self.assertEqual(outcome.stdout, "0 risks, 0 notes\n")
        self.assertTrue(outcome.stderr.startswith("Evaluated are the given settings: "), outcome.stderr)

    def test_json(self) -> None:
        """With --json it is a list of objects, and the exit code is the same (CLI-41)."""
        found = json.loads(self.run_command([Risk("a", "b", "c")], "--json", code=1).stdout)
        self.assertEqual(found, [{"name": "a", "found": "b", "action": "c", "severe": True}])
        self.assertEqual(json.loads(self.run_command([], "--json", code=0).stdout), [])

    def test_plain_urls(self) -> None:
        """Of the addresses of the running server the first on this machine without TLS is used (CLI-81)."""
        for urls, expected in (
            (["https://127.0.0.1:1", "http://10.0.0.1:2", "http://127.0.0.1:3"], "http://127.0.0.1:3"),
            (["http://[::1]:4"], "http://[::1]:4"),
            (["https://svc.example"], None),
        ):
            self.assertEqual(find_plain_url(urls), expected)

    def test_authorities(self) -> None:
        """Where the server is, and whose certificates to trust, may come from the variables of other commands (CLI-40)."""
        trusted: list[str] = []
        self.patch(doctor, "http_client", lambda _, authorities: trusted.append(str(authorities)))
        self.run_command([], environ={"SVC_CA_FILE": "a.pem"}, code=0)
        self.run_command([], "--ca-file", "b.pem", code=0)
        self.run_command([], "--ca", "c.pem", code=0)
        self.assertEqual(trusted, ["a.pem", "b.pem", "c.pem"])

    def test_bad_settings(self) -> None:
        """Settings that can't be are named, and nothing is looked at."""
        self.assertIn("--memory-lag", self.run_command([], "--memory-lag", "x", code=1).stderr)
