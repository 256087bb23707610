"""Tests of ``svc.web.routes.groups``."""

from __future__ import annotations

from collections.abc import Callable

from svc.model.dialect import CONJUR
from tests.web.v2 import ALICE, BOB, V2Case
from tests.web.world import ADMIN

POLICY = """
- !user alice
- !user bob
- !host app
- !group top
- !policy
  id: data
  body:
    - !group g
    - !group { id: foreign, owner: !user /bob }
    - !host h
    - !user carol
- !grant { role: !group data/g, member: !user bob }
- !permit { role: !user alice, privileges: [ create, update ], resource: !policy data }
- !permit { role: !user alice, privilege: read, resource: !group data/g }
- !permit { role: !user alice, privilege: read, resource: !group data/foreign }
- !permit { role: !user alice, privilege: read, resource: !host data/h }
"""

GROUP = "/groups/acme/data/g/members"
HOST = {"kind": "host", "id": "data/h"}


class _Meeting(set[str]):
    """The policies that are locked; before one is, another request comes."""

    def __init__(self, other: Callable[[], object]) -> None:
        super().__init__()
        self._other = other

    def add(self, policy: str) -> None:
        """Lock a policy."""
        self._other()
        super().add(policy)


class GroupMembersTests(V2Case):
    """Members of groups in the native dialect."""

    def setUp(self) -> None:
        """Load policy."""
        super().setUp()
        self.load(POLICY)

    def members(self, group: str = "data/g") -> list[str]:
        """The members of a group, as another interface shows them."""
        answer = self.client.get(f"/roles/acme/group/{group}?members", role=ADMIN)
        return [row["member"].removeprefix("acme:") for row in answer.json() if not row["ownership"]]

    def test_add(self) -> None:
        """A role becomes a member without admin option, as recorded by the group's own policy; other interfaces show it
        (NEWER-20, NEWER-21).
        """
        self.assertEqual(self.told("POST", GROUP, {"kind": "host", "id": "/data/h"}, role=ALICE, status=201), HOST)
        self.assertEqual(
            self.memory.memberships["acme:group:data/g", "acme:host:data/h", False], (False, "acme:policy:root")
        )
        self.assertEqual(self.members(), ["host:data/h", "user:bob"])
        self.assertIn(("add", {"role": "acme:group:data/g", "member": "acme:host:data/h"}), self.policy_events())
        [version] = self.memory.versions["acme:policy:data"].values()
        self.assertEqual(version.text, "---\n- !grant\n  role: !group g\n  member: !host /data/h\n")
        effective = self.client.get("/policies/acme/policy/root", role=ADMIN).body
        self.assertIn(b"!host /data/h", effective)
        self.told("POST", "/groups/acme/data%2Fg/members", {"kind": "user", "id": "carol@data"}, status=201)
        self.told("POST", "/groups/acme/top/members", {"kind": "group", "id": "data/g"}, status=201)
        self.assertEqual(
            (self.members(), self.members("top")), (["host:data/h", "user:bob", "user:carol@data"], ["group:data/g"])
        )

    def test_gone_meanwhile(self) -> None:
        """A group that is deleted after the request has seen it is missing, whether a member is added or removed (NEWER-22,
        NEWER-24).
        """
        for method, path, body in (("POST", GROUP, HOST), ("DELETE", f"{GROUP}/user/bob", None)):
            self.memory.locked = _Meeting(lambda: self.memory.delete_resources(["acme:group:data/g"]))
            told = self.told(method, path, body, status=404)
            self.assertIn("Group 'data/g' not found in account 'acme'", told["message"], method)

    def test_add_refused(self) -> None:
        """The branch that holds the group comes first, then the fields, the group, the member, and whether it is one already
        (NEWER-21, NEWER-22).
        """
        for path, body, role, status, message in (
            (GROUP, {"kind": "x", "id": "y"}, BOB, 404, "Branch 'data' not found in account 'acme'"),
            ("/groups/acme/no/g/members", HOST, ADMIN, 404, "Branch 'no' not found in account 'acme'"),
            ("/groups/acme/top/members", HOST, ALICE, 404, "Branch '/' not found in account 'acme'"),
            (GROUP, {"kind": "layer", "id": "y"}, ALICE, 422, "Kind 'layer' is not a valid member kind"),
            (GROUP, {"kind": "host", "id": "y z"}, ALICE, 422, "Id Wrong path 'y z'"),
            ("/groups/acme/data/no/members", HOST, ALICE, 404, "Group 'data/no' not found in account 'acme'"),
            (GROUP, {"kind": "host", "id": "app"}, ALICE, 422, "Host 'app' not found in account 'acme'"),
            (GROUP, {"kind": "host", "id": "no"}, ALICE, 422, "Host 'no' not found in account 'acme'"),
            (GROUP, {"kind": "host"}, ALICE, 422, self.worded("CONJ00190W Missing required parameter: id")),
            (GROUP, {**HOST, "x": 1}, ALICE, 422, "Unexpected parameters: x"),
            (GROUP, b"{}", ALICE, 400, "Empty request body"),
        ):
            self.assertEqual(self.refusal(status, "POST", path, body, role=role), message)
        itself = self.refusal(422, "POST", GROUP, {"kind": "group", "id": "data/g"}, role=ALICE)
        told = self.worded("CONJ00191W The value in the Member ID parameter is not valid. Error: ")
        self.assertTrue(itself.startswith(told), itself)
        self.told("POST", GROUP, HOST, role=ALICE, status=201)
        again = self.worded("CONJ00180W '/data/h' (kind='host') is already a member of 'acme:group:data/g'")
        self.assertEqual(self.refusal(409, "POST", GROUP, HOST, role=ALICE), again)

    def test_authority(self) -> None:
        """To make changes in a branch is to act as its policy, which may not own the group (NEWER-23)."""
        path = "/groups/acme/data/foreign/members"
        self.assertEqual(self.ask("POST", path, HOST, role=ALICE, status=403).body, b"")
        self.told("POST", path, HOST, status=201)
        self.ask("DELETE", f"{path}/host/data/h", role=ALICE, status=403)
        self.ask("DELETE", f"{path}/host/data/h", status=204)

    def test_remove(self) -> None:
        """A member goes, whatever policy or request made it one (NEWER-24)."""
        self.told("POST", GROUP, HOST, status=201)
        self.client.post("/roles/acme/group/data%2Fg?members&member=acme:user:alice", role=ADMIN)
        for path in ("host/data/h", "user/bob", "user/alice"):
            self.ask("DELETE", f"{GROUP}/{path}", status=204)
        self.assertEqual(self.members(), [])
        self.assertIn(("remove", {"role": "acme:group:data/g", "member": "acme:user:bob"}), self.policy_events())
        for path, status, message in (
            ("user/bob", 404, "Member 'user/bob' not found in account 'acme'"),
            ("host/no", 422, "Host 'no' not found in account 'acme'"),
            ("layer/no", 422, "Kind 'layer' is not a valid member kind"),
        ):
            self.assertEqual(self.refusal(status, "DELETE", f"{GROUP}/{path}"), message)
        self.refusal(404, "DELETE", f"{GROUP}/user/bob", role=BOB)
        self.ask("DELETE", f"{GROUP}/user/bob", accept=None, status=400)

    def test_ownership_stays(self) -> None:
        """Who owns a group by policy is no member by that, and may be made one and taken out again (NEWER-24)."""
        path = "/groups/acme/data/foreign/members"
        self.refusal(404, "DELETE", f"{path}/user/bob")
        self.told("POST", path, {"kind": "user", "id": "bob"}, status=201)
        self.ask("DELETE", f"{path}/user/bob", status=204)
        self.assertIn(("acme:group:data/foreign", "acme:user:bob", True), self.memory.memberships)

    def test_audit(self) -> None:
        """A change of a member is an event, in the journal and with its transaction (NEWER-20)."""
        self.journal.told()
        self.told("POST", GROUP, HOST, status=201)
        self.refusal(409, "POST", GROUP, HOST)
        self.ask("DELETE", f"{GROUP}/host/data/h", status=204)
        subject = {"role": "acme:group:data/g", "member": "acme:host:data/h"}
        told = self.journal.told()
        expected = [
            ("membership", "add", subject, None),
            ("policy", "add", subject, None),
            ("membership", "add", subject, "conflict"),
            ("membership", "remove", subject, None),
            ("policy", "remove", subject, None),
        ]
        self.assertEqual(told, expected)
        stored = [event.msgid for _, event in self.memory.events.values()][-4:]
        self.assertEqual(stored, ["membership", "policy", "membership", "policy"])

    def test_list(self) -> None:
        """Members are listed by id, without who owns the group; ``count`` is of all (NEWER-45)."""
        path = "/groups/acme/data/foreign/members"
        self.assertEqual(self.told("GET", path), {"members": [], "count": 0})
        for kind, name in (("user", "bob"), ("user", "alice"), ("host", "app"), ("group", "top")):
            self.told("POST", path, {"kind": kind, "id": name}, status=201)
        expected = [("group", "top"), ("host", "app"), ("user", "alice"), ("user", "bob")]
        listed = [{"kind": kind, "id": name} for kind, name in expected]
        self.assertEqual(self.told("GET", path), {"members": listed, "count": 4})
        for offset in range(5):
            part = self.told("GET", f"{path}?limit=2&offset={offset}")
            self.assertEqual(part, {"members": listed[offset : offset + 2], "count": 4})
        self.told("GET", path, role=ALICE)
        self.told("GET", path, role=BOB)
        self.refusal(404, "GET", GROUP, role=BOB)
        self.refusal(422, "GET", f"{path}?x=1")


class GroupsTests(V2Case):
    """Groups in the native dialect."""

    def setUp(self) -> None:
        """Load policy."""
        super().setUp()
        self.load(POLICY)

    def test_create(self) -> None:
        """A group is made in a branch, whose policy owns it, as a load would; it takes ``create`` (NEWER-40, NEWER-41)."""
        body = {"name": "new", "branch": "data", "annotations": {"a": "b"}}
        made = self.told("POST", "/groups/acme", body, role=ALICE, status=201)
        created_at = made.pop("created_at")
        self.assertTrue(created_at.endswith("+00:00"), created_at)
        self.assertEqual(made, body)
        self.assertEqual(self.memory.resources["acme:group:data/new"], ("acme:policy:data", "acme:policy:data"))
        top = self.told("POST", "/groups/acme", {"name": "x", "branch": "/"}, status=201)
        self.assertEqual((top["branch"], self.memory.resources["acme:group:x"][0]), ("/", "acme:user:admin"))
        self.assertEqual(
            self.refusal(409, "POST", "/groups/acme", body, role=ALICE), 'Group "acme:group:data/new" already exists'
        )
        owned = {**body, "owner": {"kind": "user", "id": "bob"}}
        self.assertEqual(self.refusal(422, "POST", "/groups/acme", owned), "Unexpected parameters: owner")
        self.refusal(404, "POST", "/groups/acme", {"name": "y", "branch": "data"}, role=BOB)
        self.refusal(422, "POST", "/groups/acme", {"name": "a/b", "branch": "data"})

    def test_read(self) -> None:
        """Groups on which the caller has ``read``, or that it inspects, are listed and shown (NEWER-42)."""

        def names(**more: object) -> list[str]:
            return [item["name"] for item in self.told("GET", "/groups/acme", **more)["groups"]]

        self.assertEqual((names(), names(role=ALICE)), (["foreign", "g", "top"], ["foreign", "g"]))
        self.assertEqual(names(role=BOB), ["foreign"])
        self.assertEqual(self.told("GET", "/groups/acme?limit=1")["count"], 3)
        shown = self.ask("GET", "/groups/acme/data/g", role=ALICE)
        self.ask("GET", "/groups/acme/data%2Fg", status=304, headers=(("If-None-Match", shown.headers["etag"]),))
        message = self.refusal(404, "GET", "/groups/acme/data/g", role=BOB)
        self.assertEqual(message, "Group 'data/g' not found in account 'acme'")

    def test_update(self) -> None:
        """Annotations are merged, and removed one by one; both take ``read`` and ``update`` (NEWER-43)."""
        path = "/groups/acme/data/g"
        changed = self.told("PATCH", path, {"annotations": {"a": "b", "c": "d"}})
        self.assertEqual(changed["annotations"], {"a": "b", "c": "d"})
        self.ask("DELETE", f"{path}/annotations/a", status=204)
        self.assertEqual(self.told("GET", path)["annotations"], {"c": "d"})
        message = self.refusal(404, "DELETE", f"{path}/annotations/a")
        self.assertEqual(message, "Annotation 'a' not found in account 'acme'")
        self.refusal(404, "PATCH", path, {"annotations": {"a": "b"}}, role=ALICE)
        self.refusal(404, "DELETE", f"{path}/annotations/c", role=ALICE)
        self.ask("DELETE", f"{path}/annotations/c", status=412, headers=(("If-Match", '"x"'),))
        self.refusal(422, "PATCH", path, {"annotations": {"a": 1}})
        self.assertIn(("remove", {"resource": "acme:group:data/g", "annotation": "a"}), self.policy_events())

    def test_delete(self) -> None:
        """A group goes with what it owns, which takes ``update`` on all of it; its members stay (NEWER-44)."""
        self.load("- !variable { id: of-g, owner: !group data/g }")
        self.load("- !permit { role: !user alice, privilege: update, resource: !group data/g }")
        self.refusal(404, "DELETE", "/groups/acme/data/g", role=ALICE)
        self.ask("DELETE", "/groups/acme/data/g", status=204)
        self.assertNotIn("acme:variable:of-g", self.memory.resources)
        self.assertIn("acme:user:bob", self.memory.resources)
        self.refusal(404, "GET", "/groups/acme/data/g")

    def test_audit(self) -> None:
        """Requests about groups are events (NEWER-40)."""
        self.journal.told()
        self.told("POST", "/groups/acme", {"name": "n", "branch": "data"}, status=201)
        self.ask("GET", "/groups/acme")
        self.ask("DELETE", "/groups/acme/data/n", status=204)
        told = [event[:3] for event in self.journal.told() if event[0] == "group"]
        subject = {"resource": "acme:group:data/n"}
        expected = [("group", "create", subject), ("group", "list", {"account": "acme"}), ("group", "delete", subject)]
        self.assertEqual(told, expected)


class ConjurGroupsTests(GroupsTests):
    """Groups in the other dialect."""

    dialect = CONJUR


class ConjurGroupMembersTests(GroupMembersTests):
    """Members of groups in the other dialect."""

    dialect = CONJUR
