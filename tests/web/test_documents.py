"""The examples in the documents are valid."""

from __future__ import annotations

import re
from pathlib import Path

from tests.web.world import WorldCase

ROOT = Path(__file__).resolve().parents[2]


def policies(document: str) -> list[str]:
    """The policies that a document shows."""
    return re.findall(r"(?ms)^```yaml\n(.*?)^```$", (ROOT / document).read_text(encoding="utf-8"))


class ExamplesTests(WorldCase):
    """Policies that operators are told to load."""

    def test_readme(self) -> None:
        """That of the first steps loads."""
        [policy] = policies("README.md")
        self.load(policy)

    def test_authenticators(self) -> None:
        """Those of each platform load, and its hosts have annotations for its authenticator."""
        authenticator, *platforms = policies("docs/authenticators.md")
        for service, policy in zip(("github", "gitlab", "k8s"), platforms, strict=True):
            self.load(authenticator.replace("github", service))
            self.load(policy)
            [host] = [name for name in self.memory.roles if name.startswith(f"acme:host:{service}/")]
            self.assertIn((f"acme:group:svc/authn-jwt/{service}/apps", host, False), self.memory.memberships)
            names = [name for resource, name in self.memory.annotations if resource == host]
            self.assertTrue(names)
            for name in names:
                self.assertTrue(name.startswith(f"authn-jwt/{service}/"), name)
