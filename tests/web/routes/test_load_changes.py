"""What the answers to loads say that these did, and what they leave out."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from svc.model.policy_loads import SUMMARY_NAMES, ChangeSummary
from svc.policy.change_summary import count_by_kind
from tests.sshkeys import ONE, TWO
from tests.strategies import EDITS
from tests.web.world import ADMIN, WorldCase, user

BASE = """
- !policy
  id: team
  owner: !user lead
  body:
    - &hosts [ !host web, !host db ]
    - !layer all
    - !grant { role: !layer all, members: *hosts }
- !user lead
- !variable { id: v, annotations: { note: one } }
- !permit { role: !user lead, privileges: [ read, execute ], resource: !variable v }
"""

NOTHING: dict[str, Any] = {"records": [], "grants": 0, "permissions": 0}


def counted(grants: int = 0, permissions: int = 0, **names: list[str]) -> dict[str, Any]:
    """What is counted of each kind, and named."""
    records = [
        {"kind": kind, "count": len(ids), "first": [f"acme:{kind}:{each}" for each in ids]} for kind, ids in names.items()
    ]
    return {"records": records, "grants": grants, "permissions": permissions}


class ChangesTests(WorldCase):
    """The member ``changes``."""

    def summary(self, text: str, policy: str = "root", method: str = "POST", role: RoleName = ADMIN) -> dict[str, Any]:
        """What a load says that it did, without what it says nothing of; the dry run before it says the same."""
        tried = self.load(text, f"{policy}?dryRun=true", role, method, 200).json()["changes"]
        made: dict[str, Any] = self.load(text, policy, role, method).json()["changes"]
        self.assertEqual(tried, made)
        self.assertEqual(set(made), {"created", "changed", "deleted", "unchanged", "absent"})
        return {name: rows for name, rows in made.items() if rows != NOTHING}

    def test_first_and_again(self) -> None:
        """A load says what it created; once more it is all unchanged (POL-49, POL-98)."""
        everything = counted(2, 2, host=["team/db", "team/web"], layer=["team/all"], policy=["team"])
        everything["records"] += counted(user=["lead"], variable=["v"])["records"]
        self.assertEqual(self.summary(BASE), {"created": everything})
        for method in ("POST", "PATCH", "PUT"):
            self.assertEqual(self.summary(BASE, method=method), {"unchanged": everything})

    def test_changed(self) -> None:
        """A record is changed by its owner, annotations, restrictions or key, a grant by its option (POL-98)."""
        self.load("- !group g\n- !user lead\n- !host h\n- !grant { role: !group g, member: !host h }\n")
        for attributes in (
            "annotations: { a: b }",
            "annotations: { a: c }",
            "owner: !user lead",
            "restricted_to: 10.0.0.0/8, owner: !user lead",
            "owner: !user lead",
        ):
            text = f"- !host {{ id: h, {attributes} }}"
            self.assertEqual(self.summary(text, method="PATCH"), {"changed": counted(host=["h"])}, text)
        text = "- !grant { role: !group g, member: { role: !host h, admin: true } }"
        self.assertEqual(self.summary(text, method="PATCH"), {"changed": counted(1)})
        self.assertEqual(self.summary(text), {"unchanged": counted(1)})

    def test_public_keys(self) -> None:
        """A public key is a record, which its text changes, unless the mode only adds (POL-98)."""
        one, two = (f"- !user {{ id: bob, public_keys: [ '{key} laptop' ] }}" for key in (ONE, TWO))
        self.load(one)
        key, bob = counted(public_key=["user/bob/laptop"]), counted(user=["bob"])
        both = counted(public_key=["user/bob/laptop"], user=["bob"])
        self.assertEqual(self.summary(two), {"unchanged": both})
        # A dry run seals the text that it finds different, too.
        self.assertEqual(self.summary(two, method="PATCH"), {"changed": key, "unchanged": bob})
        self.assertEqual(self.summary(two, method="PUT"), {"unchanged": both})

    def test_deleted(self) -> None:
        """What goes with an owner or a policy counts; grants and permissions that go so don't (POL-99)."""
        self.load(BASE)
        self.load("- !variable secret\n- !permit { role: !host web, privilege: read, resource: !variable secret }\n", "team")
        gone = counted(host=["team/db", "team/web"], layer=["team/all"], policy=["team"], variable=["team/secret"])
        self.assertEqual(self.summary("- !delete { record: !policy team }", method="PATCH"), {"deleted": gone})

    def test_left_out(self) -> None:
        """Replacing a policy deletes what the document leaves out, grants and permissions as well (POL-99)."""
        self.load(BASE)
        left = "- !policy { id: team, owner: !user lead, body: [ !host web ] }\n- !user lead\n"
        found = self.summary(left, method="PUT")
        gone = counted(2, 2, host=["team/db"], layer=["team/all"], variable=["v"])
        kept = counted(host=["team/web"], policy=["team"], user=["lead"])
        self.assertEqual(found, {"deleted": gone, "unchanged": kept})
        # Only rows, and no record.
        grants = "- !group g\n- !grant { role: !group g, members: [ !user lead, !host team/web ] }\n"
        self.load(f"{left}{grants}", method="PUT")
        found = self.summary(f"{left}{grants.replace(', !host team/web', '')}", method="PUT")
        self.assertEqual((found["deleted"], found["unchanged"]["grants"]), (counted(1), 1))

    def test_created_and_gone(self) -> None:
        """A record that is given to one which goes with a deleted policy counts as deleted, a new one nowhere (POL-99)."""
        self.load("- !policy team\n- !host old\n")
        self.load("- !group ops\n", "team")
        text = "- !host { id: old, owner: !group team/ops }\n- !host { id: new, owner: !group team/ops }\n"
        found = self.summary(f"{text}- !delete {{ record: !policy team }}\n", method="PATCH")
        self.assertEqual(found, {"deleted": counted(group=["team/ops"], host=["old"], policy=["team"])})
        self.assertNotIn("acme:host:new", self.memory.resources)

    def test_absent(self) -> None:
        """Removing nothing is no fault, and the answer says so (POL-23, POL-101)."""
        self.load(BASE)
        text = """
- !delete { records: [ !host gone, !variable gone ] }
- !revoke { role: !layer team/all, members: [ !host team/web, !user lead ] }
- !deny { role: !user lead, privileges: [ read, update ], resource: !variable v }
"""
        found = self.summary(text, method="PATCH")
        self.assertEqual(found, {"deleted": counted(1, 1), "absent": counted(1, 1, host=["gone"], variable=["gone"])})
        self.assertEqual(self.summary(text, method="PATCH"), {"absent": counted(2, 2, host=["gone"], variable=["gone"])})

    def test_hidden_names(self) -> None:
        """A name that the document doesn't have is left out if the caller doesn't see it; it counts (POL-100)."""
        self.load(BASE)
        self.load(
            "- !user eve\n- !permit { role: !user eve, privilege: update, resource: !policy team }\n"
            "- !permit { role: !user eve, privilege: read, resource: !layer team/all }\n"
            "- !permit { role: !user eve, privilege: update, resource: !host team/web }\n"
            "- !permit { role: !user eve, privilege: update, resource: !host team/db }\n"
            "- !permit { role: !user eve, privilege: update, resource: !layer team/all }\n"
        )
        self.load("- !layer inner\n- !variable { id: w, owner: !layer inner }\n", "team", user("lead"))
        eve = user("eve")
        deleted = self.load("- !delete { record: !layer inner }\n", "team", eve, "PATCH").json()["changes"]["deleted"]
        self.assertEqual(
            deleted["records"],
            [
                {"kind": "layer", "count": 1, "first": ["acme:layer:team/inner"]},
                {"kind": "variable", "count": 1, "first": []},
            ],
        )

    def test_many(self) -> None:
        """Counts are exact, and the first twenty are named, in order (POL-98)."""
        text = "".join(f"- !variable v{number:03}\n" for number in reversed(range(130)))
        [counts] = self.summary(text)["created"]["records"]
        self.assertEqual((counts["kind"], counts["count"]), ("variable", 130))
        self.assertEqual(counts["first"], [f"acme:variable:v{number:03}" for number in range(SUMMARY_NAMES)])

    def test_repeated(self) -> None:
        """A load that is asked for again with its key says the same (POL-98)."""
        headers = [("Idempotency-Key", '"k-1"')]
        path = "/policies/acme/policy/root"
        first, again = (self.client.post(path, BASE.encode(), role=ADMIN, headers=headers) for _ in range(2))
        self.assertEqual(first.json(), again.json())
        self.assertTrue(first.json()["changes"]["created"]["records"])


class ConjurTests(ChangesTests):
    """The same in the other dialect (POL-98)."""

    dialect = CONJUR


class PropertyTests(WorldCase):
    """What holds for all loads."""

    @given(
        st.lists(
            st.tuples(st.sampled_from(["root", "a", "a/b"]), st.sampled_from(["POST", "PATCH", "PUT"]), EDITS), max_size=4
        )
    )
    def test_exact(self, loads: list[tuple[str, str, str]]) -> None:
        """Whatever is loaded, the counts are those of the records that are there before and after (POL-98, POL-99)."""
        self.setUp()
        self.load("- !policy a\n- !policy a/b\n- !user me\n- !layer l\n")
        for policy, method, text in loads:
            before = copy.deepcopy(self.memory.resources)
            granted = {key for key in self.memory.memberships if not key[2]}
            permitted = set(self.memory.permissions)
            path = f"/policies/acme/policy/{policy.replace('/', '%2F')}"
            answer = self.client.request(method, path, body=text.encode(), role=ADMIN)
            if answer.status != 201:
                continue
            after, found = self.memory.resources, answer.json()["changes"]
            for name, expected in (("created", after.keys() - before.keys()), ("deleted", before.keys() - after.keys())):
                kinds = Counter(full.split(":")[1] for full in expected)
                self.assertEqual({each["kind"]: each["count"] for each in found[name]["records"]}, dict(kinds), name)
                self.assertEqual([each for kind in found[name]["records"] for each in kind["first"]], sorted(expected))
            new = {key for key in self.memory.memberships if not key[2]} - granted
            self.assertEqual(found["created"]["grants"], len(new))
            self.assertEqual(found["created"]["permissions"], len(self.memory.permissions.keys() - permitted))
            unchanged = found["unchanged"]
            self.assertGreaterEqual(unchanged["grants"], 0)
            self.assertGreaterEqual(unchanged["permissions"], 0)
            again = self.client.request(method, path, body=text.encode(), role=ADMIN).json()["changes"]
            if method == "POST":
                for row in ("grants", "permissions"):
                    self.assertEqual(again["unchanged"][row], unchanged[row] + found["created"][row], row)
            moved = {full for full in before.keys() & after.keys() if before[full][0] != after[full][0]}
            self.assertLessEqual(moved, {each for kind in found["changed"]["records"] for each in kind["first"]})


class CountTests(SynchronousTestCase):
    """Counts by kind, and their form."""

    def test_kinds(self) -> None:
        """Kinds are in the order of full ids, and hidden names are left out (POL-98, POL-100)."""
        names = ["a:user:b", "a:user:a", "a:host:c", "a:user-x:d"]
        found = [(each.kind, each.count, each.first) for each in count_by_kind(names, {"a:user:a"})]
        self.assertEqual(found, [("host", 1, ("a:host:c",)), ("user-x", 1, ("a:user-x:d",)), ("user", 2, ("a:user:b",))])

    def test_json(self) -> None:
        """What is kept of an answer is read back as it was (POL-98)."""
        summary = ChangeSummary()
        self.assertEqual(ChangeSummary.from_json(summary.as_json()), summary)
