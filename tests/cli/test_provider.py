"""Tests of ``svc.cli.provider``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from treq.testing import StubTreq
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.provider import Provider
from svc.jose import parse_compact, parse_key_set

NOW = 1_700_000_000.5


class ProviderTests(SynchronousTestCase):
    """The quickstart's provider."""

    def test_its_tokens_verify_with_its_key_set(self) -> None:
        """What it signs verifies with what it publishes, and says what it was asked to say."""
        provider = Provider.kept_at(Path(self.mktemp()), "https://issuer.example")
        treq: Any = StubTreq(provider.site().resource())
        response = self.successResultOf(treq.get("http://provider.example/.well-known/jwks.json"))
        document = self.successResultOf(response.content())
        token = provider.token({"workload": "billing"}, "svc", NOW).encode()
        claims = parse_key_set(document).verify(parse_compact(token))
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
        first = Provider.kept_at(path, "i").token({}, "a", NOW)
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(Provider.kept_at(path, "i").token({}, "a", NOW), first)
        self.assertNotIn("PRIVATE", json.dumps(repr(Provider.kept_at(path, "i"))))
