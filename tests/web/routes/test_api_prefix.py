"""``/api`` before the paths of the API."""

from __future__ import annotations

from typing import Final

from svc.model.dialect import CONJUR, NATIVE
from tests.web.world import ADMIN, WorldCase

#: A method, a path with ``/api``, a body, and the status with a token of the admin and without any.
ASKED: Final = (
    ("GET", "/api", b"", 200, 200),
    ("GET", "/api/", b"", 200, 200),
    ("GET", "/api/authenticators", b"", 200, 200),
    ("GET", "/api/whoami", b"", 200, 401),
    ("POST", "/api/authn/acme/admin/authenticate", b"wrong", 401, 401),
    ("GET", "/api/secrets/acme/variable/x", b"", 200, 401),
    ("GET", "/api/secrets/acme/variable/a%2Fb", b"", 404, 401),
    ("POST", "/api/secrets/acme/variable/x", b"new", 201, 401),
    ("GET", "/api/resources/acme?kind=variable", b"", 200, 401),
    ("GET", "/api/resources/acme/variable/api/x", b"", 404, 401),
    ("GET", "/api/roles/acme/user/admin?members", b"", 200, 401),
    ("POST", "/api/policies/acme/policy/root", b"- !user u", 201, 401),
    ("GET", "/api/public_keys/acme/user/u", b"", 200, 200),
    # What stays without a route.
    ("GET", "/apix", b"", 404, 404),
    ("GET", "/apiwhoami", b"", 404, 404),
    ("GET", "/API/whoami", b"", 404, 404),
    ("GET", "/api/api/whoami", b"", 404, 404),
    ("GET", "/api//whoami", b"", 404, 404),
    ("GET", "//api/whoami", b"", 404, 404),
    ("GET", "/api/none", b"", 404, 404),
    ("GET", "/api/ui", b"", 404, 404),
    ("GET", "/api/ui/sign-in", b"", 404, 404),
    ("GET", "/api/docs", b"", 404, 404),
    ("GET", "/api/openapi.json", b"", 404, 404),
    ("DELETE", "/api/whoami", b"", 404, 404),
)


class ConjurPrefixTests(WorldCase):
    """The dialect ``conjur``, whose clients have it."""

    dialect = CONJUR
    served = True

    def test_paths(self) -> None:
        """Behind ``/api`` paths of the API are what they are without it, once, and what needs a token does (WIRE-58)."""
        self.load("- !variable x\n")
        self.client.post("/secrets/acme/variable/x", b"value", role=ADMIN)
        for method, path, body, with_token, without in ASKED:
            for role, status in ((None, without), (ADMIN, with_token)):
                answer = self.client.request(method, path, body=body, role=role)
                expected = status if self.served else 404
                self.assertEqual(answer.status, expected, (method, path, role, answer.body))
        self.assertEqual(self.client.get("/secrets/acme/variable/x", role=ADMIN).body, b"new" if self.served else b"value")

    def test_links(self) -> None:
        """The address of the next page begins as the request's does, and has that page (WIRE-58, ROLE-24)."""
        self.load("- !group g\n- !user u\n- !user v\n- !grant\n  role: !group g\n  members: [!user u, !user v]\n")
        for prefix in ("", "/api") if self.served else ("",):
            for question in ("members", "members&transitive"):
                asked = f"{prefix}/roles/acme/group/g?{question}&limit=1"
                for target in (asked, f"http://svc.example{asked}"):
                    link = self.client.get(target, role=ADMIN).headers["link"]
                    following = link.partition("<")[2].partition(">")[0]
                    self.assertTrue(following.startswith(f"{prefix}/roles/acme/group/g?"), link)
                    self.assertEqual(self.client.get(following, role=ADMIN).status, 200)


class NativePrefixTests(ConjurPrefixTests):
    """The dialect ``native`` has no other paths for anything."""

    dialect = NATIVE
    served = False
