"""The examples in the documents are valid."""

from __future__ import annotations

import re
from pathlib import Path

from svc.authn.constraints import check_exclusive, check_permitted, check_required, own
from svc.model.names import RoleName
from tests.web.world import ADMIN, WorldCase

ROOT = Path(__file__).resolve().parents[3]

PROD = "authn-cloud/prod"


def policies(document: str) -> list[str]:
    """The policies that a document shows."""
    return re.findall(r"(?ms)^```yaml\n(.*?)^```$", (ROOT / document).read_text(encoding="utf-8"))


class ExamplesTests(WorldCase):
    """Policies that operators are told to load."""

    def test_readme(self) -> None:
        """That of the first steps loads, and lets operators ask how its authenticator stands."""
        [policy] = policies("README.md")
        self.load(policy)
        group, status = "acme:group:svc/authn-jwt/ci/operators", "acme:webservice:svc/authn-jwt/ci/status"
        self.assertIn((status, "read", group), self.memory.permissions)

    def test_authenticators(self) -> None:
        """Those of each platform load, and its hosts have annotations for its authenticator."""
        authenticator, *platforms, _, _ = policies("docs/authenticators.md")
        for service, policy in zip(("github", "gitlab", "k8s"), platforms, strict=True):
            self.load(authenticator.replace("github", service))
            self.load(policy)
            [host] = [name for name in self.memory.roles if name.startswith(f"acme:host:{service}/")]
            self.assertIn((f"acme:group:svc/authn-jwt/{service}/apps", host, False), self.memory.memberships)
            names = [name for resource, name in self.memory.annotations if resource == host]
            self.assertTrue(names)
            for name in names:
                self.assertTrue(name.startswith(f"authn-jwt/{service}/"), name)

    def test_cloud(self) -> None:
        """Those of the cloud load, and its hosts have what is required and one identity."""
        *_, authenticator, hosts = policies("docs/authenticators.md")
        self.load(authenticator)
        self.load(hosts)
        self.assertIn(("acme:group:svc/authn-cloud/prod/apps", "acme:group:azure/apps", False), self.memory.memberships)
        for host in ("billing", "reports", "audit"):
            full = f"acme:host:azure/{host}"
            written = {name: text for (of, name), (text, _) in self.memory.annotations.items() if of == full}
            found = own(written, PROD)
            check_required(found)
            check_permitted(found)
            check_exclusive(found)
            self.assertEqual(len(found), 3, host)

    def test_host_factories(self) -> None:
        """That of host factories loads, and what the page does with it works."""
        [policy] = policies("docs/host-factories.md")
        self.load(policy)
        form = b"host_factory=acme:host_factory:web/fleet&expiration=2050-01-01&count=2"
        made = self.client.post("/host_factory_tokens", form, role=ADMIN).json()
        headers = [("Authorization", f'Token token="{made[1]["token"]}"')]
        answer = self.client.post("/host_factories/hosts", b"id=web/frontend-17", headers=headers)
        self.assertEqual(answer.status, 201)
        self.set_value("web/tls-key", b"key")
        host = RoleName.parse(answer.json()["id"])
        self.assertEqual(self.client.get("/secrets/acme/variable/web%2Ftls-key", role=host).body, b"key")

    def test_accounts(self) -> None:
        """That of accounts loads into the service's own account."""
        self.result_of(self.create_account("!", "1operator"))
        [policy] = policies("docs/accounts.md")
        answer = self.client.post("/policies/!/policy/root", policy.encode(), role=RoleName("!", "user", "admin"))
        self.assertEqual(answer.status, 201)
        maker = RoleName("!", "user", "onboarding")
        self.assertEqual(self.client.post("/accounts", b"id=new", role=maker).status, 201)
        self.assertEqual(self.client.delete("/accounts/new", role=maker).status, 403)
