"""Tests of ``svc.cli.reason``."""

from __future__ import annotations

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.reason import explain_all_reasons, explain_reason
from svc.model.reasons import Reason


class ExplainReasonTests(SynchronousTestCase):
    """What reasons mean, as the installed program tells."""

    def test_every_reason(self) -> None:
        """Every reason for which a login may be refused has its cause and its remedy, without marks of a page (FAIL-23)."""
        known = explain_all_reasons()
        self.assertLessEqual({reason.value for reason in Reason}, known.keys())
        for code, text in known.items():
            self.assertRegex(text, r"(?s)\ACause\. .+\nRemedy\. .+", code)
            self.assertNotRegex(text, r"[`*]|\]\(|.{101}", code)

    def test_directories(self) -> None:
        """The faults that OpenSSL has with chains, and a connection that the directory closes, are explained by their words
        (NET-3, FAIL-23).
        """
        chains, closed = explain_all_reasons()["ldap-tls-failed"], explain_all_reasons()["ldap-unavailable"]
        for words in ("certificate has expired", "unable to get local issuer certificate", "self-signed certificate"):
            self.assertIn(f'"{words}": ', " ".join(chains.split()))
        self.assertIn('"self-signed certificate in certificate chain": ', " ".join(chains.split()))
        self.assertIn('"closed the connection", compare connect_type and port', " ".join(closed.split()))

    def test_one(self) -> None:
        """One is told by its code; without a code all codes are listed, and what is no code is a fault with a guess
        (FAIL-23, CLI-17).
        """
        one = CliRunner().invoke(explain_reason, ["key-unknown"])
        self.assertEqual((one.exit_code, one.output), (0, explain_all_reasons()["key-unknown"] + "\n"))
        self.assertEqual(CliRunner().invoke(explain_reason, []).output.split(), list(explain_all_reasons()))
        wrong = CliRunner().invoke(explain_reason, ["key-unknow"])
        self.assertEqual(wrong.exit_code, 1)
        self.assertIn("did you mean key-unknown", wrong.output)
        self.assertIn("lists them all", CliRunner().invoke(explain_reason, ["?"]).output)
