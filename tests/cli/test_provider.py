"""Tests of ``svc.cli.provider``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from treq.testing import StubTreq
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.providers.discovery import parse_discovery
from svc.cli.provider import Provider, provider
from svc.crypto.jws import parse_compact, verify_token
from svc.crypto.key_sets import parse_key_set

NOW = 1_700_000_000.5
KEYS = "http://127.0.0.1:8089/.well-known/jwks.json"


class ProviderTests(SynchronousTestCase):
    """The quickstart's provider."""

    def test_its_tokens_verify_with_its_key_set(self) -> None:
        """What it signs verifies with what it publishes, and says what it was asked to say."""
        made = Provider.from_key_file(Path(self.mktemp()), "https://issuer.example")
        treq: Any = StubTreq(made.build_app().resource())
        response = self.successResultOf(treq.get("http://provider.example/.well-known/jwks.json"))
        document = self.successResultOf(response.content())
        token = made.sign_token({"workload": "billing"}, "svc", NOW).encode()
        claims = verify_token(parse_key_set(document), parse_compact(token))
        self.assertEqual(
            dict(claims),
            {
                "iss": "https://issuer.example",
                "aud": "svc",
                "iat": 1_700_000_000,
                "exp": 1_700_000_300,
                "workload": "billing",
            },
        )

    def test_it_keeps_its_key(self) -> None:
        """The key is kept in a file that nobody else reads, so that a second start has the same."""
        path = Path(self.mktemp())
        first = Provider.from_key_file(path, "i").sign_token({}, "a", NOW)
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(Provider.from_key_file(path, "i").sign_token({}, "a", NOW), first)
        self.assertNotIn("PRIVATE", json.dumps(repr(Provider.from_key_file(path, "i"))))

    def test_discovery(self) -> None:
        """It can be found by its issuer's address, as ``provider-uri`` has it."""
        made = Provider.from_key_file(Path(self.mktemp()), "http://127.0.0.1:8089")
        treq: Any = StubTreq(made.build_app().resource())
        response = self.successResultOf(treq.get("http://127.0.0.1:8089/.well-known/openid-configuration"))
        document = self.successResultOf(response.content())
        members = parse_discovery(document, "http://127.0.0.1:8089/")
        self.assertEqual(members["issuer"], "http://127.0.0.1:8089")
        self.assertEqual(members["jwks_uri"], "http://127.0.0.1:8089/.well-known/jwks.json")

    def test_tokens_of_the_command(self) -> None:
        """The command signs what it is asked to, with a key that it keeps, and refuses what it can't read."""
        folder = self.mktemp()
        said = ("token", "--dir", folder, "--claim", "workload=a=b", "--claim", "project=", "--expires-in", "2m")
        first = CliRunner().invoke(provider, [*said, "--audience", "svc"])
        self.assertEqual(first.exit_code, 0, first.output)
        treq: Any = StubTreq(Provider.from_key_file(Path(folder, "key.pem"), "i").build_app().resource())
        document = self.successResultOf(self.successResultOf(treq.get(KEYS)).content())
        claims: dict[str, Any] = dict(verify_token(parse_key_set(document), parse_compact(first.output.strip().encode())))
        times = {name: claims.pop(name) for name in ("iat", "exp")}
        self.assertEqual(times["exp"] - times["iat"], 120)
        self.assertEqual(claims, {"iss": "http://127.0.0.1:8089", "aud": "svc", "workload": "a=b", "project": ""})
        for wrong in (("--claim", "nothing"), ("--claim", "=x"), ("--expires-in", "1y")):
            self.assertEqual(CliRunner().invoke(provider, ["token", "--dir", folder, *wrong]).exit_code, 2, wrong)
        Path(folder, "key.pem").write_text("no key")
        broken = CliRunner().invoke(provider, list(said))
        self.assertEqual(broken.exit_code, 1)
        self.assertIn("the provider's key can't be had", broken.output)
