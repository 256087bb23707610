"""Tests of ``svc.server.authenticator_list``: the list that is read again, and what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.model.errors import StoreUnavailable
from svc.model.listed_authenticators import ListedAuthenticators
from svc.server.authenticator_list import find_unlisted, name_some, report_unlisted, reread_list
from svc.settings.reading import read_settings
from tests.memory import MemoryAuthenticators
from tests.web.world import WorldCase


class RereadTests(SynchronousTestCase):
    """A file of settings that changes."""

    def setUp(self) -> None:
        """Write it, and start with it."""
        self.path = Path(self.mktemp()).resolve()
        self.path.write_text('authenticators = ["authn", "authn-jwt/ci"]')
        self.listed = ListedAuthenticators(["authn", "authn-jwt/ci"])

    def reread(self, text: str | None = None, environ: dict[str, str] | None = None, **given: str) -> list[str]:
        """Change the file, read it again, and return what was logged."""
        settings = read_settings({"config": str(self.path), **given}, environ or {})
        if text is not None:
            self.path.write_text(text)
        with capturedLogs() as logs:
            reread_list(settings, self.listed)
        return [f"{event['log_level'].name}: {event['log_format'].format(**event)}" for event in logs]

    def test_reread(self) -> None:
        """What the file lists is in force, and the log says what was added and taken away; an unchanged list leaves no line
        (CFG-91).
        """
        self.assertEqual(self.reread(), [])
        said = self.reread('authenticators = ["authn", "authn-jwt/*", "authn-gcp"]\nlog_level = "debug"')
        self.assertEqual(
            said,
            [
                f"info: The list of authenticators was read again from {self.path}:"
                " it also has authn-gcp, authn-jwt/*; it lacks authn-jwt/ci"
            ],
        )
        self.assertIn("authn-jwt/new", self.listed)
        self.assertEqual(len(self.reread("")), 1)
        self.assertEqual(self.listed.items, ("authn",))

    def test_unusable(self) -> None:
        """A file that is gone, is no TOML, or lists what can't be listed leaves the list as it was, and the log says why
        (CFG-91).
        """
        for text, why in (
            ('authenticators = ["authn", "authn-jwt/', "isn't TOML"),
            ('authenticators = ["authn-nonsense/x"]', "unknown type"),
            ('authenticators = ["authn-azure/x"]', "in the dialect native"),
            ('authenticators = "authn"', "list of texts"),
            ('authenticator = ["authn-gcp"]', "is no setting"),
        ):
            self.path.write_text("")
            [said] = self.reread(text)
            self.assertTrue(said.startswith("warn: "), said)
            self.assertIn(why, said)
            self.assertEqual(self.listed.items, ("authn", "authn-jwt/ci"))
        settings = read_settings({"config": str(self.path)} if self.path.write_text("") == 0 else {}, {})
        self.path.unlink()
        with capturedLogs() as logs:
            reread_list(settings, self.listed)
        self.assertEqual([event["log_level"].name for event in logs], ["warn"])
        self.assertEqual(self.listed.items, ("authn", "authn-jwt/ci"))

    def test_fixed(self) -> None:
        """A list of an option or of a variable stays, and the log says that it needs a new start (CFG-91)."""
        for environ, given, name in (
            ({"SERVICE_AUTHENTICATORS": "authn"}, {}, "SERVICE_AUTHENTICATORS"),
            ({}, {"authenticators": "authn"}, "--authenticators"),
        ):
            said = self.reread('authenticators = ["authn-gcp"]', environ, **given)
            self.assertEqual(
                said, [f"info: {name} lists the authenticators: a change there needs a new start of the server"]
            )
            self.assertEqual(self.listed.items, ("authn", "authn-jwt/ci"))

    def test_no_file(self) -> None:
        """Without a file there is nothing to read again (CFG-91)."""
        with capturedLogs() as logs:
            reread_list(read_settings({}, {}), self.listed)
        self.assertEqual((logs, self.listed.items), ([], ("authn", "authn-jwt/ci")))


class UnlistedTests(WorldCase):
    """Authenticators of policy."""

    def unlisted(self, *listed: str, dialect: Dialect = NATIVE) -> Any:
        """Those that a server with this list doesn't have."""
        return self.result_of(find_unlisted(MemoryAuthenticators(self.memory), ListedAuthenticators(listed), dialect))

    def test_unlisted(self) -> None:
        """An authenticator of policy that neither a name nor a pattern lists is found, its status, other types and those
        that somebody switched off are not; in ``conjur`` neither are those that somebody switched on (CFG-92).
        """
        for prefix in ("svc", "conjur"):
            for name in ("authn-jwt/ci", "authn-jwt/a/b", "authn-gcp", "authn-odd/x", "authn-gcp/x", "tools"):
                self.load(f"- !policy {{ id: {prefix}/{name}, body: [ !webservice , !webservice status ] }}\n")
            self.load(f"- !policy {{ id: {prefix}/authn-jwt, body: [ !webservice ] }}\n")
            self.memory.switches[f"acme:webservice:{prefix}/authn-jwt/a/b"] = True
        self.assertEqual(self.unlisted("authn"), ["authn-gcp", "authn-jwt/a/b", "authn-jwt/ci"])
        self.assertEqual(self.unlisted("authn", dialect=CONJUR), ["authn-gcp", "authn-jwt/ci"])
        self.assertEqual(self.unlisted("authn-jwt/*"), ["authn-gcp", "authn-jwt/a/b"])
        self.assertEqual(self.unlisted("authn-jwt/*", "authn-jwt/a/*", "authn-gcp"), [])
        self.memory.switches["acme:webservice:svc/authn-jwt/ci"] = False
        self.assertEqual(self.unlisted("authn"), ["authn-gcp", "authn-jwt/a/b"])

    def test_report(self) -> None:
        """A start names them in one line of the log, the first of many, and none without; without a database it goes on
        (CFG-92).
        """

        def report(*listed: str) -> list[str]:
            with capturedLogs() as logs:
                store = MemoryAuthenticators(self.memory)
                self.result_of(report_unlisted(store, ListedAuthenticators(listed), NATIVE))
            return [event["names"] for event in logs if "names" in event]

        self.assertEqual(report("authn"), [])
        self.load("- !policy { id: svc/authn-jwt/ci, body: [ !webservice ] }\n")
        self.assertEqual(report("authn"), ["authn-jwt/ci"])
        self.assertEqual(report("authn-jwt/*"), [])
        self.memory.down = True
        self.assertEqual(report("authn"), [])
        with self.assertRaises(StoreUnavailable):
            self.memory.ask()
        self.assertEqual(name_some([f"a{number}" for number in range(12)])[-13:], "a9 and 2 more")
