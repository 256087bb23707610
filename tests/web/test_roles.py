"""Tests of ``svc.web.roles``: the role-members route."""

from __future__ import annotations

from svc.dialect import CONJUR, NATIVE
from tests.web.world import ADMIN, WorldCase, user

POLICY = """
- !group ops
- !group secret
- !user alice
- !user zoe
- !host web@1/a+b&c
- !layer fleet
- !grant { role: !group ops, members: [ !member { role: !user alice, admin: true }, !user zoe ] }
- !grant { role: !group ops, members: [ !host web@1/a+b&c, !layer fleet ] }
- !permit { role: !user alice, privilege: read, resource: !group ops }
"""

OPS = "/roles/acme/group/ops?members"
MEMBERS = ["acme:host:web@1/a+b&c", "acme:layer:fleet", "acme:user:admin", "acme:user:alice", "acme:user:zoe"]


class MembersTests(WorldCase):
    """What both dialects have in common."""

    def setUp(self) -> None:
        """Load a policy with a group."""
        super().setUp()
        self.load(POLICY)

    def members(self, query: str = "", path: str = OPS) -> list[str]:
        """The ids of the members that the admin is told."""
        return [row["member"] for row in self.client.get(path + query, role=ADMIN).json()]

    def test_records(self) -> None:
        """A record has the fields of the source document; one that no policy made has no ``policy``."""
        rows = {row["member"]: row for row in self.client.get(OPS, role=ADMIN).json()}
        self.assertEqual(
            rows["acme:user:alice"],
            {
                "admin_option": True,
                "ownership": False,
                "role": "acme:group:ops",
                "member": "acme:user:alice",
                "policy": "acme:policy:root",
            },
        )
        [row] = self.client.get("/roles/acme/policy/root?members", role=ADMIN).json()
        self.assertEqual(
            row, {"admin_option": True, "ownership": True, "role": "acme:policy:root", "member": "acme:user:admin"}
        )

    def test_order_and_pages(self) -> None:
        """Members come by id; ``limit`` and ``offset`` page, and an ``offset`` alone has pages of ten."""
        self.assertEqual(self.members(), MEMBERS)
        self.assertEqual(self.members("&limit=2"), MEMBERS[:2])
        self.assertEqual(self.members("&limit=2&offset=3"), MEMBERS[3:])
        self.assertEqual(self.members("&offset=1"), MEMBERS[1:])
        self.assertEqual(self.members("&offset=9"), [])
        self.load("".join(f"- !user u{n}\n- !grant {{ role: !group ops, member: !user u{n} }}\n" for n in range(12)))
        self.assertEqual(len(self.members("&offset=1")), 10)
        self.assertEqual(len(self.members()), 17)

    def test_kinds(self) -> None:
        """``kind`` narrows the members, may be repeated, and doesn't touch the role's own kind; unknown ones match none."""
        self.assertEqual(self.members("&kind=host"), MEMBERS[:1])
        self.assertEqual(self.members("&kind[]=layer&kind[]=host"), MEMBERS[:2])
        self.assertEqual(self.members("&kind=dragon"), [])
        self.assertEqual(self.members("&kind=Host"), [])

    def test_counts(self) -> None:
        """``count`` tells how many members of these kinds there are, whatever ``limit`` and ``offset``."""
        for query, expected in (("&count=true", 5), ("&count", 5), ("&count=&limit=1&offset=3", 5), ("&count&kind=user", 3)):
            self.assertEqual(self.client.get(OPS + query, role=ADMIN).json(), {"count": expected}, query)

    def test_bad_numbers(self) -> None:
        """A ``limit`` that isn't positive, an ``offset`` that is negative, and either repeated or no number, is 422."""
        for name, values in (
            ("limit", ("0", "-1", "abc", "1e9", "01", "", "+1", str(2**64), "1&limit=1", "%00")),
            ("offset", ("-1", "abc", "1.0", "", "00", "1&offset=1")),
        ):
            for value in values:
                for count in ("", "&count=true"):
                    answer = self.client.get(f"{OPS}&{name}={value}{count}", role=ADMIN)
                    self.assertEqual(answer.status, 422, value)
                    self.assertIn(name, answer.json()["error"]["message"])
        self.assertEqual(self.client.get(f"{OPS}&limit", role=ADMIN).status, 422)

    def test_encoded_identifiers(self) -> None:
        """Identifiers in paths are percent-encoded; ``+`` is a plus; a raw slash and an encoded one mean the same."""
        self.load("- !group a/b@c+d&e\n")
        for path in ("a%2Fb%40c%2Bd%26e", "a/b@c+d&e", "a%2Fb@c+d%26e"):
            self.assertEqual(self.members(path=f"/roles/acme/group/{path}?members"), ["acme:user:admin"], path)

    def test_privileges(self) -> None:
        """Who sees the group is told its members; without a token it is 401; a role that isn't there is 404."""
        self.assertEqual(self.client.get(OPS, role=user("alice")).status, 200)
        self.assertEqual(self.client.get(OPS).status, 401)
        missing = self.client.get("/roles/acme/group/none?members", role=ADMIN)
        self.assertEqual(self.error(missing, 404, "not_found"), "Group 'none' not found in account 'acme'")
        self.assertEqual(self.client.get("/roles/other/group/ops?members", role=ADMIN).status, 404)
        self.assertEqual(self.client.get(OPS, role=user("gone")).status, 403)

    def test_other_routes(self) -> None:
        """A kind that no role has, and a role without ``members``, have no route."""
        for path in ("/roles/acme/variable/x?members", "/roles/acme/Group/ops?members", "/roles/acme/group/ops"):
            self.assertEqual(self.client.get(path, role=ADMIN).status, 404, path)

    def test_head(self) -> None:
        """``HEAD`` answers as ``GET`` does, without the body."""
        self.assertEqual(self.client.head(OPS, role=ADMIN).status, 200)


class NativeMembersTests(MembersTests):
    """What is native."""

    dialect = NATIVE

    def test_hidden_roles(self) -> None:
        """A role of the caller's account that he may not see is 403; one of another account is 404."""
        self.assertEqual(self.client.get("/roles/acme/group/secret?members", role=user("alice")).status, 403)

    def test_count_is_a_boolean(self) -> None:
        """``count`` is true or false; anything else is 422."""
        self.assertEqual(len(self.client.get(f"{OPS}&count=false", role=ADMIN).json()), 5)
        self.assertEqual(self.client.get(f"{OPS}&count=maybe", role=ADMIN).status, 422)


class ConjurMembersTests(MembersTests):
    """What the installed base does."""

    dialect = CONJUR

    def test_hidden_roles(self) -> None:
        """A role that the caller may not see is 404, as if it weren't there."""
        answer = self.client.get("/roles/acme/group/secret?members", role=user("alice"))
        self.assertEqual(self.error(answer, 404, "not_found"), "Group 'secret' not found in account 'acme'")

    def test_count_is_asked_by_presence(self) -> None:
        """``count`` counts whatever its value."""
        self.assertEqual(self.client.get(f"{OPS}&count=false", role=ADMIN).json(), {"count": 5})
