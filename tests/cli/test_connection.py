"""Tests of ``svc.cli.connection``."""

from __future__ import annotations

import json
from pathlib import Path

import click
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import connection
from svc.cli.connection import Answer


class AnswerTests(SynchronousTestCase):
    """What a command makes of an answer."""

    def test_expected(self) -> None:
        """An answer of an expected status is returned."""
        answer = Answer(201, b"{}")
        self.assertIs(answer.expect(200, 201), answer)
        self.assertEqual(answer.json(), {})

    def test_unexpected(self) -> None:
        """Any other is a fault that says what the server said, and what to do."""
        body = json.dumps({"error": {"message": "'limit' is no number"}}).encode()
        for answer, said in (
            (Answer(422, body), "'limit' is no number"),
            (Answer(401, b"Unauthorized: Invalid token"), "svc login"),
            (Answer(403, b""), "lacks the privilege"),
            (Answer(418, b"\xff short and stout"), "short and stout"),
        ):
            fault = self.assertRaises(click.ClickException, answer.expect, 200)
            self.assertIn(said, fault.message)
            self.assertIn(str(answer.status), fault.message)

    def test_not_json(self) -> None:
        """What is no JSON hardly comes from the service, and the fault says so."""
        fault = self.assertRaises(click.ClickException, Answer(200, b"<html>").json)
        self.assertIn("is this the address of the service?", fault.message)


class TokenTests(SynchronousTestCase):
    """The token that is kept between commands."""

    def setUp(self) -> None:
        """Keep tokens in a folder of the test's."""
        self.path = Path(self.mktemp()) / "state" / "tokens.json"
        self.patch(connection, "token_file", lambda: self.path)

    def test_kept(self) -> None:
        """Tokens are kept by server and account, in a file that nobody else reads."""
        connection.keep_token("http://a", "acme", "one")
        connection.keep_token("http://b", "acme", "two")
        connection.keep_token("http://a", "acme", "three")
        self.assertEqual(connection.kept_token("http://a", "acme"), "three")
        self.assertEqual(connection.kept_token("http://b", "acme"), "two")
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.path.parent.stat().st_mode & 0o777, 0o700)

    def test_missing(self) -> None:
        """Without one, the fault says how to get one; a damaged file counts as none."""
        for prepare in (lambda: None, lambda: self._write("no json"), lambda: self._write("[]")):
            prepare()
            fault = self.assertRaises(click.ClickException, connection.kept_token, "http://a", "acme")
            self.assertIn("svc login", fault.message)

    def _write(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text)
