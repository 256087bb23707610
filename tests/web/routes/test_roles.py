"""Tests of ``svc.web.routes.roles``; its lists are in ``test_listing`` too."""

from __future__ import annotations

from typing import Any

from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from tests.statuses import hidden_role_status
from tests.web.support import Answer
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


class MembersCase(WorldCase):
    """A group with members of several kinds."""

    def setUp(self) -> None:
        """Load a policy with a group."""
        super().setUp()
        self.load(POLICY)

    def members(self, query: str = "", path: str = OPS) -> list[str]:
        """The ids of the members that the admin is told."""
        return [row["member"] for row in self.client.get(path + query, role=ADMIN).json()]


class MembersTests(MembersCase):
    """What both dialects have in common."""

    def test_records(self) -> None:
        """A record has its four fields and its policy; one that no policy made has no ``policy`` (ROLE-15)."""
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
        """Members come by id; ``limit`` and ``offset`` page, and an ``offset`` alone has pages of ten (ROLE-17, ROLE-19)."""
        self.assertEqual(self.members(), MEMBERS)
        self.assertEqual(self.members("&limit=2"), MEMBERS[:2])
        self.assertEqual(self.members("&limit=2&offset=3"), MEMBERS[3:])
        self.assertEqual(self.members("&offset=1"), MEMBERS[1:])
        self.assertEqual(self.members("&offset=9"), [])
        self.load("".join(f"- !user u{n}\n- !grant {{ role: !group ops, member: !user u{n} }}\n" for n in range(12)))
        self.assertEqual(len(self.members("&offset=1")), 10)
        self.assertEqual(len(self.members()), 17)

    def test_kinds(self) -> None:
        """``kind`` narrows the members, may be repeated, and doesn't touch the role's own kind; unknown ones match none
        (ROLE-18).
        """
        self.assertEqual(self.members("&kind=host"), MEMBERS[:1])
        self.assertEqual(self.members("&kind[]=layer&kind[]=host"), MEMBERS[:2])
        self.assertEqual(self.members("&kind=dragon"), [])
        self.assertEqual(self.members("&kind=Host"), [])

    def test_counts(self) -> None:
        """``count`` tells how many members of these kinds there are, whatever ``limit`` and ``offset`` (ROLE-21)."""
        for query, expected in (("&count=true", 5), ("&count", 5), ("&count=&limit=1&offset=3", 5), ("&count&kind=user", 3)):
            self.assertEqual(self.client.get(OPS + query, role=ADMIN).json(), {"count": expected}, query)

    def test_bad_numbers(self) -> None:
        """A ``limit`` that isn't positive, an ``offset`` that is negative, and either repeated or no number, is 422
        (ROLE-20).
        """
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
        """Who sees the group is told its members; without a token it is 401; a role that isn't there is 404 (ROLE-9,
        ROLE-11).
        """
        self.assertEqual(self.client.get(OPS, role=user("alice")).status, 200)
        self.assertEqual(self.client.get(OPS).status, 401)
        missing = self.client.get("/roles/acme/group/none?members", role=ADMIN)
        self.assertEqual(self.error(missing, 404, "not_found"), "Group 'none' not found in account 'acme'")
        self.assertEqual(self.client.get("/roles/other/group/ops?members", role=ADMIN).status, 404)
        self.assertEqual(self.client.get(OPS, role=user("gone")).status, 403)

    def test_other_routes(self) -> None:
        """A kind that no role has has no route, and neither has a change of anything but members (NAME-6, ROLE-38)."""
        for path in ("/roles/acme/variable/x?members", "/roles/acme/Group/ops?members", "/roles/acme/webservice/x"):
            self.assertEqual(self.client.get(path, role=ADMIN).status, 404, path)
        for path in ("/roles/acme/group/ops?member=acme:user:zoe", "/roles/acme/variable/x?members&member=acme:user:zoe"):
            for method in ("POST", "DELETE"):
                self.assertEqual(self.client.request(method, path, role=ADMIN).status, 404, path)
        self.assertEqual(self.client.put(OPS, role=ADMIN).status, 404)

    def test_hostile_identifiers(self) -> None:
        """An identifier is read once and strictly: what doesn't decode is 422, and what is no role is 404 (NAME-9)."""
        for path, status in (
            ("ops%00", 422),
            ("ops%FF", 422),
            ("ops%C0%AF", 422),
            ("ops%ED%A0%80", 422),
            ("ops%", 422),
            ("ops%zz", 422),
            ("x" * 1025, 422),
            ("%6fps", 200),
            ("%256fps", 404),
            ("ops/", 200),
            ("ops%2F", 404),
            ("ops//", 404),
            ("../group/ops", 404),
            ("..%2Fgroup%2Fops", 404),
            ("..", 404),
            ("'%3B%20DROP%20TABLE%20roles%3B%20--", 404),
        ):
            for query in ("members", "memberships", "all", "graph", ""):
                answer = self.client.get(f"/roles/acme/group/{path}?{query}", role=ADMIN)
                self.assertEqual(answer.status, status, (path, query))
        self.assertEqual(self.client.get("/roles/acme%2Fgroup/ops?members", role=ADMIN).status, 404)
        self.assertEqual(self.client.get("/roles/ac%20me/group/ops?members", role=ADMIN).status, 422)

    def test_head(self) -> None:
        """``HEAD`` answers as ``GET`` does, without the body (ROLE-13)."""
        self.assertEqual(self.client.head(OPS, role=ADMIN).status, 200)


class NativeMembersTests(MembersCase):
    """What is native."""

    def test_hidden_roles(self) -> None:
        """A role of the caller's account that it may not see is 403; one of another account is 404 (ROLE-10)."""
        self.assertEqual(self.client.get("/roles/acme/group/secret?members", role=user("alice")).status, 403)

    def test_count_is_a_boolean(self) -> None:
        """``count`` is true or false; anything else is 422 (ROLE-21)."""
        self.assertEqual(len(self.client.get(f"{OPS}&count=false", role=ADMIN).json()), 5)
        self.assertEqual(self.client.get(f"{OPS}&count=maybe", role=ADMIN).status, 422)


class ConjurMembersTests(MembersTests):
    """What the installed base does."""

    dialect = CONJUR

    def test_hidden_roles(self) -> None:
        """A role that the caller may not see is 404, as if it weren't there (ROLE-10)."""
        answer = self.client.get("/roles/acme/group/secret?members", role=user("alice"))
        self.assertEqual(self.error(answer, 404, "not_found"), "Group 'secret' not found in account 'acme'")

    def test_count_is_asked_by_presence(self) -> None:
        """``count`` counts whatever its value (ROLE-21)."""
        self.assertEqual(self.client.get(f"{OPS}&count=false", role=ADMIN).json(), {"count": 5})


FAMILY = """
- !policy
  id: p
  owner: !user /alice
  body:
  - !group top
  - !group inner
  - !host h
  - !grant { role: !group top, member: !group inner }
  - !grant { role: !group inner, member: !host h }
- !user zed
- !permit { role: !user zed, privilege: read, resource: !group p/top }
"""


class FamilyTests(WorldCase):
    """The other questions about a role, and changes of its members, in both dialects."""

    def setUp(self) -> None:
        """Load a policy whose owner is a user, and a group in a group."""
        super().setUp()
        self.load("- !user alice\n" + FAMILY)

    def ask(self, path: str, role: RoleName = ADMIN) -> Any:
        """What the caller is told of a role."""
        answer = self.client.get(f"/roles/acme/{path}", role=role)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json()

    def change(self, method: str, path: str, role: RoleName = ADMIN) -> Answer:
        """The answer to a change of members."""
        return self.client.request(method, f"/roles/acme/{path}", role=role)

    def test_show(self) -> None:
        """A role is shown with its time, its policy, and its members, the owner first (ROLE-14)."""
        shown = self.ask("group/p%2Finner")
        self.assertEqual(list(shown), ["created_at", "id", "policy", "members"])
        self.assertRegex(shown["created_at"], r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}\+00:00\Z")
        self.assertEqual((shown["id"], shown["policy"]), ("acme:group:p/inner", "acme:policy:root"))
        self.assertEqual(
            [(row["member"], row["ownership"]) for row in shown["members"]],
            [("acme:policy:p", True), ("acme:host:p/h", False)],
        )
        self.assertEqual(list(self.ask("policy/root")), ["created_at", "id", "members"])

    def test_memberships(self) -> None:
        """Memberships have the shape of members; ``kind`` and ``count`` concern the roles granted, and pages are as those of
        members (ROLE-28).
        """
        rows = self.ask("user/alice?memberships", role=ADMIN)
        self.assertEqual(
            rows,
            [
                {
                    "admin_option": True,
                    "ownership": True,
                    "role": "acme:policy:p",
                    "member": "acme:user:alice",
                    "policy": "acme:policy:root",
                }
            ],
        )
        self.assertEqual(self.ask("policy/p?memberships&kind=host")[0]["role"], "acme:host:p/h")
        whole = self.ask("policy/p?memberships")
        self.assertEqual((len(whole), self.ask("policy/p?memberships&limit=1&offset=1")), (3, whole[1:2]))
        self.assertEqual(self.ask("policy/p?memberships&offset=1"), whole[1:])
        self.assertEqual(self.ask("policy/p?memberships&limit=1&offset=2&count"), {"count": 3})
        page, found = self.client.get("/roles/acme/policy/p?memberships&limit=1", role=ADMIN), []
        while following := page.headers.get("link"):
            found += page.json()
            page = self.client.get(following[1:].partition(">")[0], role=ADMIN)
        self.assertEqual([*found, *page.json()], whole)
        first = self.ask("policy/p?memberships&kind=group&limit=1")
        self.assertEqual(first, [row for row in whole if ":group:" in row["role"]][:1])
        self.assertEqual(self.ask("policy/p?memberships&count&kind=group"), {"count": 2})
        self.assertEqual([row["role"] for row in self.ask("policy/p?memberships&search=inner")], ["acme:group:p/inner"])
        self.assertEqual(self.ask("policy/p?memberships&search="), [])

    def test_memberships_of_others(self) -> None:
        """``filter`` tells whose memberships may be listed, in two parts or three; others than the role's there are none
        (ROLE-29).
        """
        for asked in ("policy:p", "acme:policy:p", "host:x&filter[]=policy:p"):
            self.assertEqual(self.ask(f"policy/p?memberships&filter={asked}"), self.ask("policy/p?memberships"))
        self.assertEqual(self.ask("policy/p?memberships&filter=host:x"), [])
        self.assertEqual(self.ask("policy/p?memberships&count&filter=host:x"), {"count": 0})
        refused = self.client.get("/roles/acme/policy/p?memberships&filter=p", role=ADMIN)
        self.assertIn("at least 2 tokens", self.error(refused, 422, "argument_error"))

    def test_all(self) -> None:
        """``all`` tells the ids of the roles that a role holds, itself included; ``filter`` keeps some, ``count`` counts
        (ROLE-30).
        """
        held = ["acme:group:p/inner", "acme:group:p/top", "acme:host:p/h"]
        self.assertEqual(self.ask("host/p%2Fh?all"), held)
        self.assertEqual(self.ask("host/p%2Fh?all&count"), {"count": 3})
        chosen = "filter[]=group:p/top&filter[]=acme:host:p/h&filter=other:group:p/top&filter[]=user:none"
        self.assertEqual(self.ask(f"host/p%2Fh?all&{chosen}"), held[1:])
        self.assertEqual(self.ask(f"host/p%2Fh?all&count&{chosen}"), {"count": 2})
        self.assertEqual(self.ask("host/p%2Fh?all&filter[]=user:none"), [])
        for asked in ("all", "graph"):
            for part in ("limit=1", "limit", "offset=0", "cursor=x", "kind=group", "kind[]=group", "limit[0]=1", "search=x"):
                answer = self.client.get(f"/roles/acme/host/p%2Fh?{asked}&{part}", role=ADMIN)
                self.assertEqual(answer.status, 422, (asked, part))
                self.assertIn(f"has no effect here: {asked} lists all", answer.json()["error"]["message"])
        self.assertEqual(self.client.get("/roles/acme/host/p%2Fh?graph&count", role=ADMIN).status, 422)
        answer = self.client.get("/roles/acme/host/p%2Fh?all&filter[]=nonsense", role=ADMIN)
        self.assertIn("Expected at least 2 tokens in nonsense", self.error(answer, 422, "argument_error"))

    def test_graph(self) -> None:
        """The graph has the pairs around a role whose first the caller sees (ROLE-31)."""
        pairs = [(edge["parent"], edge["child"]) for edge in self.ask("group/p%2Ftop?graph", role=user("alice"))]
        self.assertEqual(
            pairs,
            [
                ("acme:group:p/inner", "acme:host:p/h"),
                ("acme:group:p/inner", "acme:policy:p"),
                ("acme:group:p/top", "acme:group:p/inner"),
                ("acme:group:p/top", "acme:policy:p"),
                ("acme:host:p/h", "acme:policy:p"),
                ("acme:policy:p", "acme:user:alice"),
            ],
        )
        self.assertEqual(len(self.ask("group/p%2Ftop?graph", role=user("zed"))), 2)

    def test_precedence(self) -> None:
        """Of several questions the first counts: graph, all, memberships, members; a flag counts whatever its value
        (ROLE-12).
        """
        self.assertIn("parent", self.ask("host/p%2Fh?members&memberships&all&graph=no")[0])
        self.assertEqual(len(self.ask("host/p%2Fh?members&memberships&all")), 3)
        self.assertEqual(self.ask("host/p%2Fh?members&memberships")[0]["member"], "acme:host:p/h")
        self.assertEqual(self.ask("host/p%2Fh?members=false")[0]["role"], "acme:host:p/h")

    def test_who_may_ask(self) -> None:
        """Every question is for those who see the role: 401 without a token, 403 for a role that is gone, 404 for none
        (ROLE-8, ROLE-9).
        """
        for question in ("", "?members", "?memberships", "?all", "?graph", "?members&transitive=true", "?members&count"):
            path = f"/roles/acme/group/p%2Finner{question}"
            self.assertEqual(self.client.get(path).status, 401)
            self.assertEqual(self.client.get(path, role=user("gone")).status, 403)
            self.assertEqual(self.client.get(path, role=user("zed")).status, hidden_role_status(self.dialect), question)
            self.assertEqual(self.client.get(path.replace("inner", "none"), role=ADMIN).status, 404)

    def test_add_and_remove(self) -> None:
        """A member is added and removed, each with 204 and nothing else; adding again changes nothing (ROLE-33, ROLE-34)."""
        for method, status, members in (
            ("POST", 204, 3),
            ("POST", 204, 3),
            ("DELETE", 204, 2),
            ("DELETE", 404, 2),
        ):
            answer = self.change(method, "group/p%2Finner?members&member=acme:user:zed")
            self.assertEqual((answer.status, answer.body if status == 204 else b""), (status, b""))
            self.assertEqual(len(self.ask("group/p%2Finner?members")), members)
        self.change("POST", "group/p%2Finner?members&member=acme%3Auser%3Azed")
        [row] = [row for row in self.ask("group/p%2Finner?members") if row["member"] == "acme:user:zed"]
        self.assertEqual((row["admin_option"], row["ownership"], "policy" in row), (False, False, False))

    def test_added_to_itself(self) -> None:
        """A role may be made its own member, and members of each other; every question still ends (ROLE-37)."""
        for role, member in (("inner", "p/inner"), ("inner", "p/top")):
            self.assertEqual(self.change("POST", f"group/p%2F{role}?members&member=acme:group:{member}").status, 204)
        for question in ("?members", "?memberships", "?all", "?graph", "?members&transitive=true"):
            self.assertTrue(self.ask(f"group/p%2Finner{question}"))

    def test_removed_from_policy(self) -> None:
        """A grant that a policy made is taken back as well; ownership is not (ROLE-34)."""
        self.assertEqual(self.change("DELETE", "group/p%2Finner?members&member=acme:host:p/h").status, 204)
        self.assertEqual(self.change("DELETE", "group/p%2Finner?members&member=acme:policy:p").status, 404)

    def test_who_may_change(self) -> None:
        """Adding takes ``create`` on the policy that recorded the role, removing ``update``; the role must be seen
        (ROLE-35).
        """
        target = "group/p%2Ftop?members&member=acme:user:zed"
        inner = "group/p%2Finner?members&member=acme:host:p/h"
        for method in ("POST", "DELETE"):
            self.assertEqual(self.change(method, target, role=user("zed")).status, 403)
            # The role is hers, the policy that recorded it is not.
            self.assertEqual(self.change(method, target, role=user("alice")).status, 403)
            self.assertEqual(self.change(method, inner, role=user("zed")).status, hidden_role_status(self.dialect))
            self.assertEqual(self.change(method, inner.replace("inner", "none")).status, 404)
            self.assertEqual(self.client.request(method, f"/roles/acme/{target}").status, 401)
            # Nobody recorded these.
            self.assertEqual(self.change(method, "user/admin?members&member=acme:user:zed").status, 403)
        self.load("- !permit { role: !user zed, privilege: create, resource: !policy root }\n")
        self.assertEqual(self.change("DELETE", target, role=user("zed")).status, 403)
        self.assertEqual(self.change("POST", target, role=user("zed")).status, 204)
        self.load("- !permit { role: !user zed, privilege: update, resource: !policy root }\n")
        self.assertEqual(self.change("DELETE", target, role=user("zed")).status, 204)

    def test_members_that_cannot_be(self) -> None:
        """A member that is missing, malformed or of another account is 422 by name; one that doesn't exist is 404
        (ROLE-36).
        """
        for method in ("POST", "DELETE"):
            for member in (
                "",
                "&member",
                "&member=",
                "&member=zed",
                "&member=user:zed",
                "&member=acme:variable:x",
                "&member=acme:user:",
                "&member=other:user:admin",
                "&member=acme:user:" + "x" * 1025,
                "&member=acme:user:zed&member=acme:user:zed",
                "&member[]=acme:user:zed",
                "&member=%00",
                "&member=%FF",
            ):
                answer = self.change(method, f"group/p%2Finner?members{member}")
                self.assertIn("member", self.error(answer, 422, "argument_error"), member)
            answer = self.change(method, "group/p%2Finner?members&member=acme:user:none")
            self.assertEqual(self.error(answer, 404, "not_found"), "User 'none' not found in account 'acme'")

    def test_standby(self) -> None:
        """A standby answers, and refuses changes with 405 (ROLE-39)."""
        self.memory.standby = True
        self.assertEqual(len(self.ask("group/p%2Finner?members")), 2)
        self.assertEqual(self.change("POST", "group/p%2Finner?members&member=acme:user:zed").status, 405)


class ConjurFamilyTests(FamilyTests):
    """The dialect of the installed base."""

    dialect = CONJUR
