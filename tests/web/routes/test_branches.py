"""Tests of ``svc.web.routes.branches``."""

from __future__ import annotations

from svc.model.dialect import CONJUR
from svc.model.errors import PolicyConflict
from svc.web.http.refusal_responses import V2
from tests.web.v2 import ALICE, BOB, V2Case
from tests.web.world import ADMIN, user

BOUNDS = "1 to 120 characters without <, > and '"

POLICY = """
- !user alice
- !user bob
- !group ops
- !policy
  id: data
  annotations: { team: red }
  body:
    - !variable secret
    - !group inner
    - !policy
      id: sub
      body: [ !variable deep, !host app ]
- !policy lone/child
- !permit { role: !user alice, privileges: [ read, create ], resource: !policy data }
- !permit { role: !user alice, privilege: execute, resource: !policy data/sub }
"""


class BranchesTests(V2Case):
    """Branches in the native dialect."""

    def setUp(self) -> None:
        """Load policy."""
        super().setUp()
        self.load(POLICY)

    def names(self, query: str = "", **more: object) -> list[str]:
        """The paths of the branches that a list has."""
        found = self.told("GET", f"/branches/acme{query}", **more)
        return [item["name"] if item["branch"] == "/" else f"{item['branch']}/{item['name']}" for item in found["branches"]]

    # -- reading ------------------------------------------------------------------------------------------------------

    def test_list(self) -> None:
        """A list has the policies that the caller may read, by id, without the root, and without those whose branch isn't
        there; ``count`` is of all (NEWER-14).
        """
        self.assertEqual(self.names(), ["data", "data/sub"])
        self.assertEqual(self.names(role=ALICE), ["data"])
        self.assertEqual(self.names(role=BOB), [])
        self.assertEqual(self.names("?limit=1&offset=1"), ["data/sub"])
        self.assertEqual(self.told("GET", "/branches/acme?limit=0"), {"branches": [], "count": 2})
        self.assertEqual(self.names("?offset=1"), ["data/sub"])
        self.load("- !policy inspected\n- !permit { role: !user bob, privilege: inspect, resource: !policy data }")
        self.assertEqual(self.names(role=BOB), ["data", "data/sub"])

    def test_pages(self) -> None:
        """Ten branches are listed where only ``offset`` is given; a bad page is 422 (NEWER-7)."""
        self.load("".join(f"- !policy p{number:02}\n" for number in range(12)))
        self.assertEqual(len(self.names("?offset=0")), 10)
        self.assertEqual(len(self.names()), 14)
        for query, message in (
            ("limit=-1", "Limit must be greater than or equal to 0"),
            ("limit=1001", "Limit must be less than or equal to 1000"),
            ("limit=x", "Limit must be an integer"),
            ("offset=-1", "Offset must be greater than or equal to 0"),
            ("offset=", "Offset must be an integer"),
            ("limit", "Limit must be an integer"),
            ("limit=1&foo=2&bar", "Unexpected parameters: foo, bar"),
        ):
            self.assertEqual(self.refusal(422, "GET", f"/branches/acme?{query}"), message)

    def test_show(self) -> None:
        """A branch has its name, its branch, its owner and its annotations; the root is one
        (NEWER-10, NEWER-13).
        """
        self.assertEqual(
            self.told("GET", "/branches/acme/data"),
            {"name": "data", "branch": "/", "owner": {"kind": "user", "id": "admin"}, "annotations": {"team": "red"}},
        )
        sub = {"name": "sub", "branch": "data", "owner": {"kind": "policy", "id": "data"}, "annotations": {}}
        for path in ("data/sub", "data%2Fsub"):
            self.assertEqual(self.told("GET", f"/branches/acme/{path}"), sub)
        self.assertEqual(
            self.told("GET", "/branches/acme/root"),
            {"name": "root", "branch": "/", "owner": {"kind": "user", "id": "admin"}, "annotations": {}},
        )

    def test_hidden(self) -> None:
        """What is missing, hidden, or visible without ``read`` is 404 alike; one without a branch around it names that
        (NEWER-11, NEWER-14).
        """
        for path, role in (("absent", ADMIN), ("data", BOB), ("data/sub", ALICE)):
            message = self.refusal(404, "GET", f"/branches/acme/{path}", role=role)
            self.assertEqual(message, f"Branch '{path}' not found in account 'acme'")
        self.assertEqual(self.refusal(404, "GET", "/branches/acme/lone/child"), "Branch 'lone' not found in account 'acme'")
        self.assertEqual(self.refusal(404, "GET", "/branches/other/x"), "Branch 'x' not found in account 'other'")
        self.ask("DELETE", "/branches/acme", status=404)

    def test_auditor(self) -> None:
        """A role that inspects a policy reads it as a branch (NEWER-14)."""
        self.load("- !permit { role: !user bob, privilege: inspect, resource: !policy root }")
        self.assertEqual(self.told("GET", "/branches/acme/data", role=BOB)["name"], "data")
        self.refusal(404, "PATCH", "/branches/acme/data", {"annotations": {"a": "b"}}, role=BOB)

    def test_tags(self) -> None:
        """A branch has an entity tag: who knows it is told so, and changes are bound to it (NEWER-9)."""
        tag = self.ask("GET", "/branches/acme/data").headers["etag"]
        answer = self.ask("GET", "/branches/acme/data", status=304, headers=(("If-None-Match", tag),))
        self.assertEqual((answer.body, answer.headers["etag"]), (b"", tag))
        self.ask("PATCH", "/branches/acme/data", {"annotations": {"a": "b"}}, status=412, headers=(("If-Match", '"x"'),))
        self.ask("DELETE", "/branches/acme/data", status=412, headers=(("If-Match", '"x"'),))
        other = self.ask("PATCH", "/branches/acme/data", {"annotations": {"a": "b"}}, headers=(("If-Match", tag),))
        self.assertNotEqual(other.headers["etag"], tag)
        self.assertEqual(self.ask("GET", "/branches/acme/data").headers["etag"], other.headers["etag"])
        self.ask("GET", "/branches/acme/data", status=200, headers=(("If-None-Match", tag),))

    # -- making -------------------------------------------------------------------------------------------------------

    def test_create(self) -> None:
        """A branch is made as a load of its policy into the one around it would; all interfaces show it (NEWER-15)."""
        made = self.told("POST", "/branches/acme", {"name": "new", "branch": "data"}, role=ALICE, status=201)
        self.assertEqual(
            made, {"name": "new", "branch": "data", "owner": {"kind": "policy", "id": "data"}, "annotations": {}}
        )
        shown = self.client.get("/resources/acme/policy/data%2Fnew", role=ADMIN).json()
        self.assertEqual((shown["owner"], shown["policy"]), ("acme:policy:data", "acme:policy:data"))
        history = self.client.get("/resources/acme/policy/data", role=ADMIN).json()["policy_versions"]
        self.assertEqual([(row["version"], row["role"]) for row in history], [(1, "acme:user:alice")])
        self.assertEqual(
            self.policy_events()[-3:],
            [
                ("add", {"role": "acme:policy:data/new"}),
                ("add", {"resource": "acme:policy:data/new", "owner": "acme:policy:data"}),
                ("add", {"role": "acme:policy:data/new", "owner": "acme:policy:data"}),
            ],
        )
        effective = self.client.get("/policies/acme/policy/data", role=ADMIN).body
        self.assertIn(b"- !policy new", effective)
        self.load("- !variable v", "data/new")
        self.assertEqual(self.names(), ["data", "data/new", "data/sub"])

    def test_create_at_the_top(self) -> None:
        """At the root a branch belongs to the admin, and ``branch`` may be written in several ways; an owner and annotations
        may be named (NEWER-15).
        """
        for number, branch in enumerate(("/", "root", "/root")):
            made = self.told("POST", "/branches/acme", {"name": f"b{number}", "branch": branch}, status=201)
            self.assertEqual((made["branch"], made["owner"]), ("/", {"kind": "user", "id": "admin"}))
        body = {
            "name": "own",
            "branch": "/data/sub",
            "owner": {"kind": "group", "id": "/ops"},
            "annotations": {"a": "b", "c": "../d"},
        }
        made = self.told("POST", "/branches/acme", body, status=201)
        owner = {"kind": "group", "id": "ops"}
        expected = {"name": "own", "branch": "data/sub", "owner": owner, "annotations": body["annotations"]}
        self.assertEqual(made, expected)

    def test_create_refused(self) -> None:
        """A branch takes ``create`` on the one around it, else that is missing; one that is there is 409; its owner and the
        branch above must be there (NEWER-15).
        """
        for body, role, status, message in (
            ({"name": "x", "branch": "data"}, BOB, 404, "Branch 'data' not found in account 'acme'"),
            ({"name": "x", "branch": "data/sub"}, ALICE, 404, "Branch 'data/sub' not found in account 'acme'"),
            ({"name": "x", "branch": "absent"}, ADMIN, 404, "Branch 'absent' not found in account 'acme'"),
            ({"name": "sub", "branch": "data"}, ALICE, 409, 'Branch "acme:branch:data/sub" already exists'),
            ({"name": "root", "branch": "/"}, ADMIN, 409, 'Branch "acme:branch:root" already exists'),
            ({"name": "x", "branch": "lone/child"}, ADMIN, 404, "Branch 'lone' not found in account 'acme'"),
        ):
            self.assertEqual(self.refusal(status, "POST", "/branches/acme", body, role=role), message)
        absent = {"name": "x", "branch": "/", "owner": {"kind": "group", "id": "absent"}}
        self.assertEqual(self.refusal(404, "POST", "/branches/acme", absent), "Group 'absent' not found in account 'acme'")
        before = self.memory.copied()
        self.assertEqual(before["resources"].keys(), self.memory.resources.keys())

    def test_create_while_loading(self) -> None:
        """While the branch around it is being loaded, it is 409 as a load is, and can be tried again (NEWER-6)."""
        self.memory.locked.add("acme:policy:data")
        answer = self.ask("POST", "/branches/acme", {"name": "x", "branch": "data"}, status=409)
        self.assertEqual(answer.headers["retry-after"], str(PolicyConflict().retry_after))

    def test_bodies(self) -> None:
        """A body is an object with the members that the request takes (NEWER-4)."""
        for body, status, message in (
            (b"", 400, "Invalid JSON body: it is not JSON"),
            (b"[]", 400, "Invalid JSON body: it is no JSON object, or not only one"),
            (b'{"name":1,"name":2}', 400, "Invalid JSON body: it names a member twice"),
            (b"{}", 400, "Empty request body"),
            ({"owner": None}, 422, self.worded("CONJ00190W Missing required parameter: name, branch")),
            ({"name": "x", "branch": "/", "a": 1, "b": 2}, 422, "Unexpected parameters: a, b"),
        ):
            self.assertEqual(self.refusal(status, "POST", "/branches/acme", body), message)
        self.assertEqual(self.refusal(422, "POST", "/branches/acme?a=1", b""), "Unexpected parameters: a")
        self.assertEqual(self.refusal(400, "PATCH", "/branches/acme/data", b"{}"), "Empty request body")
        self.assertEqual(self.refusal(422, "PATCH", "/branches/acme/data", {"name": "x"}), "Unexpected parameters: name")
        listed = self.refusal(422, "PATCH", "/branches/acme/data", {"annotations": []})
        self.assertEqual(listed, "Annotations should be an object")

    def test_field_rules(self) -> None:
        """Names, paths, owners and annotations have rules, and all that is broken is told in one sentence (NEWER-12)."""
        good = {"name": "x", "branch": "/"}
        deep = "/".join("abcdefghijklmno")
        for more, message in (
            ({"name": "a/b"}, "Name Wrong name 'a/b'"),
            ({"name": "x" * 61, "branch": "a b"}, f"Name Wrong name '{'x' * 61}' and Branch Wrong path 'a b'"),
            (
                {"name": 6, "branch": 7, "owner": {"kind": "layer", "id": "x"}},
                "Name Wrong name '6', Branch Wrong path '7', and Kind 'layer' is not a valid owner kind",
            ),
            ({"branch": "x" * 501}, f"Branch Wrong path '{'x' * 100}…'"),
            ({"owner": {"kind": "host", "id": "a@b"}}, "Id Wrong path 'a@b'"),
            ({"owner": {"kind": "user", "id": "/"}}, "Id Wrong path '/'"),
            ({"owner": "me"}, "Owner should be an object with kind and id"),
            ({"owner": {"kind": "user", "id": "x", "more": 1}}, "Owner should be an object with kind and id"),
            ({"annotations": []}, "Annotations should be an object"),
            ({"annotations": {"key": 6}}, "Key should have string value but got 6"),
            ({"annotations": {"<": "x"}}, "Annotation key '<' should have 1 to 120 characters without <, > and '"),
            (
                {"annotations": {"a": "x" * 121}},
                "Annotation a should have a value of 1 to 120 characters without <, > and '",
            ),
            ({"annotations": {"a": "\x00"}}, "Annotation a should have a value of 1 to 120 characters without <, > and '"),
            ({"branch": deep}, "The number of identifier nesting exceeds maximum depth of 15"),
        ):
            self.assertEqual(self.refusal(422, "POST", "/branches/acme", {**good, **more}), message)

    # -- changing -----------------------------------------------------------------------------------------------------

    def test_update(self) -> None:
        """Annotations are merged, whatever policy recorded them, and none goes (NEWER-16)."""
        changed = self.told("PATCH", "/branches/acme/data", {"annotations": {"team": "blue", "a": "b"}})
        self.assertEqual(changed["annotations"], {"a": "b", "team": "blue"})
        self.told("PATCH", "/branches/acme/data/sub", {"annotations": {"x": "y"}})
        self.assertEqual(self.memory.annotations["acme:policy:data", "team"], ("blue", "acme:policy:root"))
        self.assertEqual(self.memory.annotations["acme:policy:data/sub", "x"], ("y", "acme:policy:data"))
        rows = [subject for operation, subject in self.policy_events() if operation == "change"]
        self.assertEqual(rows, [{"resource": "acme:policy:data", "annotation": "team"}])
        before = len(self.memory.versions["acme:policy:root"])
        self.told("PATCH", "/branches/acme/data", {"annotations": {"team": "blue"}})
        self.assertEqual(len(self.memory.versions["acme:policy:root"]), before)

    def test_owner(self) -> None:
        """A new owner has the branch and its role, and the old one has neither (NEWER-16)."""
        owner = {"kind": "user", "id": "bob"}
        self.assertEqual(self.told("PATCH", "/branches/acme/data", {"owner": owner})["owner"], owner)
        self.assertEqual(self.memory.resources["acme:policy:data"], ("acme:user:bob", "acme:policy:root"))
        members = [key[1:] for key in self.memory.memberships if key[0] == "acme:policy:data"]
        self.assertEqual(members, [("acme:user:bob", True)])
        self.assertEqual(self.names(role=BOB), ["data", "data/sub"])

    def test_update_refused(self) -> None:
        """To change a branch takes ``read`` and ``update`` on it; to give it away, authority over it. Nothing owns what owns
        it; in ``native`` nothing owns itself (NEWER-16).
        """
        annotated = {"annotations": {"a": "b"}}
        self.refusal(404, "PATCH", "/branches/acme/data", annotated, role=ALICE)
        self.refusal(404, "PATCH", "/branches/acme/lone/child", annotated)
        self.load("- !permit { role: !user alice, privilege: update, resource: !policy data }")
        self.told("PATCH", "/branches/acme/data", annotated, role=ALICE)
        mine = {"owner": {"kind": "user", "id": "alice"}}
        self.assertEqual(self.ask("PATCH", "/branches/acme/data", mine, role=ALICE, status=403).body, b"")
        for path, owner, status, message in (
            ("data", ("policy", "data"), 422, "Policy 'data' belongs to what it would own"),
            ("data", ("host", "data/sub/app"), 422, "Host 'data/sub/app' belongs to what it would own"),
            ("data", ("user", "absent"), 404, "User 'absent' not found in account 'acme'"),
            ("root", ("user", "bob"), 422, "The owner of the root can't be changed"),
        ):
            body = {"owner": {"kind": owner[0], "id": owner[1]}}
            if not (self.dialect.lenient_policy and owner == ("policy", path)):
                self.assertEqual(self.refusal(status, "PATCH", f"/branches/acme/{path}", body), message)

    # -- deleting -----------------------------------------------------------------------------------------------------

    def test_delete(self) -> None:
        """With a branch goes everything beneath it by name, and what that owns; users of others stay, and what only looks
        like it; it can be had back (NEWER-17).
        """
        self.load("- !policy dat_\n- !policy datax\n- !variable data-base\n- !user bob@data")
        self.ask("DELETE", "/branches/acme/data", status=204)
        left = [name for name in self.memory.resources if "data" in name]
        self.assertEqual(sorted(left), ["acme:policy:datax", "acme:user:bob@data", "acme:variable:data-base"])
        self.refusal(404, "GET", "/branches/acme/data")
        kept = self.client.get("/deleted/acme/policy/root", role=ADMIN).json()
        self.assertIn("acme:variable:data/secret", [record["id"] for record in kept])
        self.assertIn(("remove", {"resource": "acme:policy:data", "owner": "acme:user:admin"}), self.policy_events())
        self.ask("DELETE", "/branches/acme/lone/child", status=204)

    def test_delete_refused(self) -> None:
        """Deleting takes ``update`` on all that goes: what lacks it is named where the caller sees it, else the branch is
        as good as missing, and nothing goes; the root never goes (NEWER-17).
        """
        self.refusal(404, "DELETE", "/branches/acme/data", role=ALICE)
        self.load("- !permit { role: !user alice, privilege: update, resource: !policy data }")
        before = dict(self.memory.resources)
        message = self.refusal(404, "DELETE", "/branches/acme/data", role=ALICE)
        self.assertEqual(message, "Policy 'data/sub' not found in account 'acme'")
        self.load("- !deny { role: !user alice, privilege: execute, resource: !policy data/sub }", method="PATCH")
        message = self.refusal(404, "DELETE", "/branches/acme/data", role=ALICE)
        self.assertEqual(message, "Branch 'data' not found in account 'acme'")
        self.assertEqual(self.memory.resources, before)
        self.assertEqual(self.refusal(422, "DELETE", "/branches/acme/root"), "The root branch can't be deleted")
        self.load("- !group { id: data/owner, owner: !policy data }")
        self.told("POST", "/branches/acme", {"name": "inner", "branch": "data"}, status=201)

    def test_delete_what_it_owns_elsewhere(self) -> None:
        """What a branch owns elsewhere goes too, and takes ``update`` as well; what would take the branch above along is
        refused (NEWER-17).
        """
        self.load("- !policy { id: mine, owner: !user alice }\n- !variable { id: shared, owner: !policy mine }")
        self.load("- !policy { id: mine/a, owner: !group ops }\n- !group { id: mine/a/g, owner: !group ops }")
        self.refusal(404, "DELETE", "/branches/acme/mine", role=ALICE)
        self.ask("DELETE", "/branches/acme/mine", status=204)
        self.assertNotIn("acme:variable:shared", self.memory.resources)
        self.load("- !policy up\n- !policy up/down\n- !group { id: up/down/g }")
        self.load("- !policy { id: up, owner: !group up/down/g }", method="PATCH")
        answer = self.ask("DELETE", "/branches/acme/up/down", status=422)
        self.assertIn("policy around it", answer.json()["error"]["message"])
        self.assertIn("acme:policy:up", self.memory.resources)

    # -- what all have in common --------------------------------------------------------------------------------------

    def test_gate(self) -> None:
        """A request that doesn't accept the media type is 400, once its caller is known (NEWER-1, NEWER-2)."""
        message = self.worded(
            'CONJ00194W The api belongs to v2 APIs but it missing the version "application/x.secretsmgr.v2beta+json" in the '
            "Accept header"
        )
        for accept in (None, "*/*", "application/json", "application/x.secretsmgr.v1beta+json"):
            self.assertEqual(self.refusal(400, "GET", "/branches/acme?foo=1", accept=accept), message)
        listed = f"{V2}, */*"
        answer = self.ask("GET", "/branches/acme/data", accept=listed)
        self.assertEqual(answer.headers["content-type"], listed)
        answer = self.ask("GET", "/branches/acme/absent", accept=listed, status=404)
        self.assertEqual(answer.json()["error"]["code"], "not_found")
        self.ask("GET", "/branches/acme", headers=(("Contract-Version", "1.29.0"),))

    def test_order(self) -> None:
        """A token comes first, then the role, then the media type, the query, the body, its fields, privileges (NEWER-3)."""
        bad = b"{"
        self.assertEqual(self.ask("POST", "/branches/acme?x=1", bad, role=None, status=401).body, b"")
        self.assertEqual(
            self.ask("GET", "/branches/acme", role=None, accept=None, status=401).body, b"Authorization missing"
        )
        gone = self.ask("POST", "/branches/acme?x=1", bad, role=user("gone"), accept=None, status=403)
        self.assertEqual(gone.body, b"")
        self.refusal(400, "POST", "/branches/acme?x=1", bad, accept=None, role=BOB)
        self.refusal(422, "POST", "/branches/acme?x=1", bad, role=BOB)
        self.refusal(400, "POST", "/branches/acme", bad, role=BOB)
        self.refusal(422, "POST", "/branches/acme", {"name": "<", "branch": "data"}, role=BOB)
        self.refusal(404, "POST", "/branches/acme", {"name": "sub", "branch": "data"}, role=BOB)

    def test_kept_forms(self) -> None:
        """Refusals that name an argument, and of a follower, keep the form of other routes (NEWER-5)."""
        answer = self.ask("GET", "/branches/acme/%FF", status=422)
        self.assertEqual(answer.json()["error"]["code"], "argument_error")
        self.memory.standby = True
        answer = self.ask("POST", "/branches/acme", {"name": "x", "branch": "/"}, status=405)
        self.assertEqual(answer.json()["error"]["code"], 405)

    def test_audit(self) -> None:
        """Each request is an event, and each row that it changes (NEWER-8)."""
        self.journal.told()
        self.ask("POST", "/branches/acme", {"name": "x", "branch": "data"}, status=201)
        self.ask("GET", "/branches/acme")
        self.ask("GET", "/branches/acme/data", role=BOB, status=404)
        told = self.journal.told()
        self.assertEqual(told[0], ("branch", "create", {"resource": "acme:policy:data/x"}, None))
        self.assertEqual([event[:2] for event in told[1:4]], [("policy", "add")] * 3)
        self.assertEqual(told[4], ("branch", "list", {"account": "acme"}, None))
        self.assertEqual(told[5], ("branch", "get", {"resource": "acme:policy:data"}, "forbidden"))


class ConjurBranchesTests(BranchesTests):
    """Branches in the other dialect."""

    dialect = CONJUR
