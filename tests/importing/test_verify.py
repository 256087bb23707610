"""Tests of ``svc.importing.verify``: which differences are found, and what counts as not compared."""

from __future__ import annotations

import httpx

from tests.importing.moving import ImportCase
from tests.web.world import ADMIN


class VerifyTests(ImportCase):
    """Two servers that were equal, and a change of one of them."""

    def setUp(self) -> None:
        """Make them equal."""
        super().setUp()
        source = self.source
        source.add("user:x", "user:y", "group:inner")
        source.add("group:g", members=[("group:inner", False), ("user:y", False)])
        source.resources["group:inner"].members = [("user:x", False)]
        source.add("host:h", restricted_to=["10.0.0.0/8"], annotations={"a": "1"})
        source.set_values("v", b"1", b"2", permissions=[("group:g", "read"), ("group:g", "frob")])
        source.set_values("w", b"1", permissions=[("group:g", "read"), ("group:g", "frob")])
        self.move()
        self.assert_same()

    def differing(self) -> list[str]:
        """What differs."""
        return [each.what for each in self.verify().differences]

    def policy(self, text: str) -> None:
        """Change the target."""
        self.assertEqual(self.client.patch("/policies/acme/policy/root", text.encode(), role=ADMIN).status, 201)

    def test_closures(self) -> None:
        """A lost membership is found, and so are all closures that it is in (MOVE-71, IMP-20)."""
        self.policy("- !revoke { role: !group g, member: !group inner }")
        found = self.differing()
        self.assertIn("membership of group:inner in group:g", found)
        self.assertIn("roles that user:x holds", found)
        self.assertIn("roles that group:inner holds", found)
        self.assertIn("roles with 'read' on variable:v and 1 like it", found)

    def test_permissions(self) -> None:
        """A lost or another permission is found, whatever the privilege's name (MOVE-71, MOVE-73, IMP-20)."""
        self.policy("- !deny { role: !group g, privilege: frob, resource: !variable w }\n")
        found = self.differing()
        self.assertIn("'frob' of group:g on variable:w", found)
        self.assertIn("roles with 'frob' on variable:w", found)
        self.assertNotIn("roles with 'frob' on variable:v", found)
        self.policy("- !permit { role: !user x, privilege: update, resource: !variable v }\n")
        self.assertIn("'update' of user:x on variable:v", self.differing())

    def test_records(self) -> None:
        """Annotations, owners and networks are compared: a lost network opens a door (MOVE-50, MOVE-75, IMP-20)."""
        self.policy(
            "- !host { id: h, restricted_to: [10.0.0.0/8, 11.0.0.0/8], owner: !user y, annotations: { a: '2', b: '3' } }"
        )
        found = self.differing()
        for what in ("annotation a of host:h", "annotation b of host:h", "owner of host:h", "restricted_to of host:h"):
            self.assertIn(what, found)
        self.policy("- !delete { record: !host h }")
        self.assertIn("host:h", self.differing())

    def test_admin_options(self) -> None:
        """Admin options are compared (MOVE-75, IMP-20)."""
        self.policy("- !grant { role: !group g, member: !member { role: !user y, admin: true } }")
        self.assertEqual(self.differing(), ["membership of user:y in group:g"])

    def test_values(self) -> None:
        """Values are compared by digests of their bytes, versions by their places (MOVE-75, IMP-21)."""
        self.client.post("/secrets/acme/variable/v", b"a-secret-value", role=ADMIN)
        [difference] = self.verify().differences
        self.assertEqual(difference.what, "newest value of variable:v (by SHA-256)")
        self.assertNotIn("a-secret-value", str(difference))
        self.source.set_values("v", b"0", b"a-secret-value", permissions=self.source.resources["variable:v"].permissions)
        [difference] = self.verify().differences
        self.assertEqual(difference.what, "older versions of variable:v (by SHA-256)")
        self.source.set_values("v", b"a-secret-value", first=2, permissions=self.source.resources["variable:v"].permissions)
        self.assert_same()

    def test_value_missing(self) -> None:
        """A variable with a value on one side alone is found (IMP-21)."""
        self.source.set_values("none", b"1")
        self.policy("- !variable none")
        self.assertEqual(self.differing(), ["value of variable:none"])

    def test_not_seen(self) -> None:
        """Anything that the source doesn't show or give is counted beside the differences (MOVE-72, MOVE-76, IMP-22)."""
        self.source.unreadable.add("variable:v")
        compared = self.verify()
        self.assertEqual(compared.differences, [])
        self.assertTrue([each for each in compared.unseen if "variable:v" in each])
        self.source.unreadable.clear()
        for status, body in ((404, b""), (403, b""), (404, b'{"error": {}}')):

            def refuse(request: httpx.Request, status: int = status, body: bytes = body) -> httpx.Response | None:
                return httpx.Response(status, content=body) if b"all" in request.url.query else None

            self.source.intruders = [refuse]
            compared = self.verify()
            self.assertEqual(compared.differences, [])
            self.assertIn("user:x: the source doesn't answer that question of it", compared.unseen)

    def test_sample(self) -> None:
        """A sample compares so many roles and variables, the same each time, and tells the rest (IMP-22)."""
        compared = self.verify(sample=1)
        self.assertEqual((compared.compared["closures of memberships"], compared.compared["variables' values"]), (1, 1))
        self.assertEqual(
            [each.partition(":")[0] for each in compared.unseen], ["6 of 7 roles' closures", "1 of 2 variables' values"]
        )
        asked = [path for path in self.source.asked("/roles") if "all" in path][-1]
        self.source.requests.clear()
        self.verify(sample=1)
        self.assertEqual([path for path in self.source.asked("/roles") if "all" in path], [asked])

    def test_decisions_are_asked(self) -> None:
        """Both servers are asked who may, one of each group of equal resources for each privilege (MOVE-71, IMP-20)."""
        self.source.requests.clear()
        self.verify()
        for asked in (self.source.asked("/resources/myorg/variable"), [p for p in self.target.asked if "permitted" in p]):
            questions = [path for path in asked if "permitted" in path and "variable" in path]
            privileges = {path.partition("privilege=")[2] for path in questions}
            self.assertEqual(privileges, {"read", "frob", "execute"})

    def test_decision_that_differs(self) -> None:
        """A server that decides in another way than its rows say is found (MOVE-71, IMP-20)."""

        def lie(request: httpx.Request) -> httpx.Response | None:
            if b"permitted_roles" in request.url.query and request.url.path.endswith("/variable/v"):
                return httpx.Response(200, json=["myorg:user:admin"])
            return None

        self.source.intruders.append(lie)
        found = self.differing()
        self.assertEqual(len(found), 2)
        self.assertTrue(all("variable:v" in each for each in found))

    def test_authenticators(self) -> None:
        """Whether authenticators are enabled is compared (MOVE-56, IMP-20)."""
        self.source.add("webservice:conjur/authn-jwt/cd")
        self.policy("- !webservice conjur/authn-jwt/cd")
        self.source.enabled.append("authn-jwt/cd")
        self.assertEqual(self.differing(), ["authenticator authn-jwt/cd"])
