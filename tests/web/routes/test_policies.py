"""Tests of ``svc.web.routes.policies``: loads, their privileges and their answers."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from svc.model import policy_loads
from svc.model.dialect import CONJUR
from svc.model.policy_loads import ChangeSummary, DryRun, Item
from svc.policy import differences
from svc.web.http.messages import Response
from svc.web.routes import policies
from tests.web.world import ADMIN, WorldCase, user

TEAM = """
- !policy
  id: team
  owner: !user lead
  body:
    - !variable db
    - !group ops
- !user lead
- !user alice
- !group admins
- !variable crown-jewels
"""

LEAD = user("lead")


class LoadTests(WorldCase):
    """The three modes (POL-37 to POL-50)."""

    def setUp(self) -> None:
        """Load a policy with a team's own inside."""
        super().setUp()
        self.first = self.load(TEAM).json()

    def test_results(self) -> None:
        """The answer has the API keys of new users and hosts, once, and the version, which rises with each load (POL-37,
        POL-38).
        """
        self.assertEqual(self.first["version"], 1)
        self.assertEqual(set(self.first["created_roles"]), {"acme:user:lead", "acme:user:alice"})
        lead = self.first["created_roles"]["acme:user:lead"]
        self.assertEqual(lead["id"], "acme:user:lead")
        answer = self.client.post("/authn/acme/lead/authenticate", lead["api_key"].encode())
        self.assertEqual(answer.status, 200)
        again = self.load(TEAM).json()
        self.assertEqual((again["created_roles"], again["version"], again.keys()), ({}, 2, self.first.keys()))

    def test_any_content_type(self) -> None:
        """The body is the document, whatever content type it is sent with, or none (POL-37)."""
        for number, sent in enumerate((None, "application/x-www-form-urlencoded", "application/json", "text/plain")):
            headers = [] if sent is None else [("Content-Type", sent)]
            answer = self.client.post("/policies/acme/policy/root", b"- !group g%d\n" % number, role=ADMIN, headers=headers)
            self.assertEqual(answer.status, 201, sent)
            self.assertIn(f"acme:group:g{number}", self.memory.resources)

    def test_warnings(self) -> None:
        """An annotation that is called like an attribute draws a warning (POL-36)."""
        loaded = self.load("- !variable { id: v, annotations: { owner: me } }\n").json()
        self.assertEqual(len(loaded["warnings"]), 1)
        self.assertIn("'owner'", loaded["warnings"][0])

    def test_modes(self) -> None:
        """POST adds, PATCH changes too, PUT also deletes what the document doesn't have, with its secrets (POL-37,
        POL-42).
        """
        self.load("- !variable { id: v, annotations: { note: one } }\n")
        self.set_value("v")
        self.load("- !variable { id: v, annotations: { note: two } }\n")
        self.assertEqual(self.memory.annotations["acme:variable:v", "note"][0], "one")
        self.load("- !variable { id: v, annotations: { note: two } }\n", method="PATCH")
        self.assertEqual(self.memory.annotations["acme:variable:v", "note"][0], "two")
        self.load("- !variable db\n", policy="team", method="PUT")
        self.assertNotIn("acme:variable:db", self.memory.resources)
        self.assertIn("acme:variable:team/db", self.memory.resources)
        self.load(TEAM, method="PUT")
        self.assertNotIn("acme:variable:v", self.memory.resources)
        self.assertNotIn("acme:variable:v", self.memory.secrets)

    def test_privileges(self) -> None:
        """POST takes ``create``; PATCH and PUT take ``update``; who doesn't see the policy gets 404 (POL-40)."""
        bob = user("bob")
        self.load("- !user bob\n")
        for method in ("POST", "PATCH", "PUT"):
            answer = self.load("[]", policy="team", role=bob, method=method, status=404)
            self.assertEqual(self.error(answer, 404, "not_found"), "Policy 'team' not found in account 'acme'")
        self.load("- !permit { role: !user bob, privilege: create, resource: !policy team }\n")
        self.load("[]", policy="team", role=bob)
        self.load("[]", policy="team", role=bob, method="PATCH", status=403)
        self.load("- !permit { role: !user bob, privilege: update, resource: !policy team }\n")
        self.load("[]", policy="team", role=bob, method="PATCH")
        # It takes update on everything below, too.
        self.load("[]", policy="team", role=bob, method="PUT", status=403)
        self.load("[]", policy="team", role=LEAD, method="PUT")

    def test_missing_policies(self) -> None:
        """A policy that isn't there can't be loaded, nor one of another account (POL-40)."""
        self.load("[]", policy="none", status=404)
        self.assertEqual(self.client.post("/policies/other/policy/root", b"[]", role=ADMIN).status, 404)
        self.assertEqual(self.client.post("/policies/acme/group/root", b"[]", role=ADMIN).status, 404)

    def test_parser_errors(self) -> None:
        """An error of grammar says line and column, in the words of the installed base (POL-52)."""
        answer = self.load("- !variable ok\n- !gruop x\n", status=422)
        self.assertEqual(
            answer.json()["error"],
            {
                "code": "policy_invalid",
                "message": "Error at line 2, column 3 in policy : Unrecognized data type '!gruop'",
                "innererror": {"code": "policy_invalid", "filename": "policy", "line": 2, "column": 3},
            },
        )
        for text in ("- !user: [", "\t- x", "- !user\n  id: a\n  id: b", "- !user bob\n---\n- !user eve", "{", "plain"):
            self.assertEqual(self.error(self.load(text, status=422), 422, "policy_invalid")[:14], "Error at line ", text)

    def test_empty_documents(self) -> None:
        """Nothing at all is refused; a document that declares nothing is valid."""
        for text in ("", " \n"):
            message = self.error(self.load(text, status=422), 422, "validation_failed")
            self.assertEqual(message, "policy_text is not present")
        for text in ("[]", "---", "# only a comment\n"):
            self.load(text)

    def test_unknown_references(self) -> None:
        """What a document refers to must exist; the message says what doesn't (POL-35)."""
        for text, missing in (
            ("- !grant { role: !group no, member: !user alice }", "Group 'no'"),
            ("- !grant { role: !group admins, member: !host no }", "Host 'no'"),
            ("- !permit { role: !user no, privilege: read, resource: !variable crown-jewels }", "User 'no'"),
            ("- !permit { role: !user alice, privilege: read, resource: !variable no }", "Variable 'no'"),
            ("- !variable { id: v, owner: !group no }", "Group 'no'"),
        ):
            message = self.error(self.load(text, status=422), 422, "policy_invalid")
            self.assertEqual(message, f"{missing} not found in account 'acme'")

    def test_a_refused_load_changes_nothing(self) -> None:
        """Whatever a document is refused for, nothing of it is kept, not even a version (POL-48)."""
        self.load("[]", policy="team", role=LEAD)
        for text in (
            "- !variable fresh\n- !grant { role: !group no, member: !user alice }\n",
            "- !variable fresh\n- !variable fresh\n",
            "- !variable fresh\n- !nonsense\n",
            "- !variable fresh\n- !host { id: h, account: other }\n",
        ):
            for policy, role in (("root", ADMIN), ("team", LEAD)):
                before = copy.deepcopy(self.memory)
                self.load(text, policy=policy, role=role, status=422)
                self.assertEqual(self.memory, before)

    def test_delegated_owners_help_themselves_to_nothing(self) -> None:
        """The owner of a policy grants no role and permits no resource from outside of it, in any mode and spelling."""
        attacks = (
            "- !grant { role: !group /admins, member: !user /lead }",
            "- !grant { role: !policy /root, member: !user /lead }",
            "- !grant { roles: [ !group ops, !group /admins ], members: [ !user /lead ] }",
            "- !permit { role: !user /lead, privileges: [ read, execute ], resource: !variable /crown-jewels }",
            "- !permit { role: !user /lead, privilege: update, resources: [ !variable db, !variable /crown-jewels ] }",
            "- !permit { role: !group ops, privilege: update, resource: !policy /root }",
        )
        for text in attacks:
            for method in ("POST", "PATCH", "PUT"):
                before = copy.deepcopy(self.memory)
                document = f"- !variable db\n- !group ops\n- !variable bait\n{text}\n"
                self.load(document, policy="team", role=LEAD, method=method, status=403)
                self.assertEqual(self.memory, before, text)

    def test_users_of_others_are_not_taken_for_ones_own(self) -> None:
        """Users of two policies may fold to one id; the policy that comes second grants nothing to the other's user
        (POL-62).
        """
        self.load("- !policy { id: a/b, owner: !user lead }\n- !policy { id: a-b, owner: !user alice }\n")
        made = self.load("- !user dave\n", policy="a/b", role=LEAD).json()["created_roles"]
        self.assertEqual(list(made), ["acme:user:dave@a-b"])
        for method in ("POST", "PATCH", "PUT"):
            before = copy.deepcopy(self.memory)
            document = (
                "- !user dave\n- !variable s\n- !permit { role: !user dave, privilege: execute, resource: !variable s }\n"
            )
            self.load(document, policy="a-b", role=user("alice"), method=method, status=403)
            self.assertEqual(self.memory, before)

    def test_owners_dispose_of_what_is_theirs(self) -> None:
        """The owner of a policy grants and permits what lies inside, to anybody."""
        self.load(
            "- !grant { role: !group ops, member: !user /alice }\n"
            "- !permit { role: !user /alice, privilege: execute, resource: !variable db }\n",
            policy="team",
            role=LEAD,
        )

    def test_a_policy_does_not_saw_off_its_branch(self) -> None:
        """A policy that would go with an owner whom its own document drops is kept, and the document refused (POL-47)."""
        self.load("- !group { id: keepers, owner: !user /lead }\n", policy="team", role=LEAD)
        self.load("- !policy { id: team, owner: !group team/keepers, body: [ !variable db, !group ops ] }\n", method="PATCH")
        before = copy.deepcopy(self.memory)
        answer = self.load("- !group ops\n", policy="team", role=LEAD, method="PUT", status=422)
        self.assertIn("deleted with its owner", self.error(answer, 422, "policy_invalid"))
        self.assertEqual(self.memory, before)

    def test_concurrent_loads(self) -> None:
        """While a policy is being loaded, another load of it is 409 with ``Retry-After`` (POL-50)."""
        self.memory.locked.add("acme:policy:root")
        answer = self.load("- !variable v\n", status=409)
        self.assertEqual(answer.json()["error"]["message"], "Concurrent policy load in progress, please retry")
        self.assertGreaterEqual(int(answer.headers["retry-after"]), 1)

    def test_too_large(self) -> None:
        """A document may be 32 MiB; any other body 1 MiB (LIM-1)."""
        self.load("# " + "x" * (2 * 1024 * 1024))
        declared = ("Content-Length", str(33 * 1024 * 1024))
        connection = self.client.begin("POST", "/policies/acme/policy/root", role=ADMIN, headers=[declared])
        self.assertEqual(connection.answer().status, 413)

    def test_callers(self) -> None:
        """Without a token it is 401 (POL-40)."""
        for method in ("POST", "PATCH", "PUT"):
            self.assertEqual(self.client.request(method, "/policies/acme/policy/root", body=b"[]").status, 401)


class ConjurLoadTests(LoadTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


NAMES = st.text(max_size=12)
LISTS = st.lists(NAMES, max_size=9)
FIELDS = ("identifier", "type", "permissions", "annotations", "members")
VALUES = st.tuples(NAMES, NAMES, st.dictionaries(NAMES, LISTS, max_size=3), st.dictionaries(NAMES, NAMES, max_size=3), LISTS)
ITEMS = VALUES.map(lambda values: dict(zip(FIELDS, values, strict=True)))


class LongAnswerTests(WorldCase):
    """Answers whose parts are written down one by one."""

    @given(st.lists(ITEMS, max_size=5), st.lists(ITEMS, max_size=2), st.integers(1, 200), st.integers(1, 4))
    def test_items_in_parts(self, created: list[Item], deleted: list[Item], batch: int, part: int) -> None:
        """Items are written down the same, in whatever batches and parts they come."""
        for module in (differences, policy_loads):
            self.patch(module, "BATCH_CHARACTERS", batch)
        self.patch(differences, "_PART", part)
        batches = [differences._batch_items(items) for items in (created, [], created, deleted)]
        outcome = DryRun(batches[0], batches[1], batches[2], batches[3], ("a <b>",))
        items = [{"items": each} for each in (created, [], created, deleted)]
        expected = {
            "status": "Valid YAML",
            "created": items[0],
            "updated": {"before": items[1], "after": items[2]},
            "deleted": items[3],
            "access": {
                "gains": [],
                "losses": [],
                "untold": {"gains": False, "new_gains": False, "losses": False},
                "complete": True,
                "advice": None,
            },
            "changes": ChangeSummary().as_json(),
            "warnings": ["a <b>"],
        }
        self.assertEqual(b"".join(policies._encode_dry_run(outcome)), Response.json_with_floats(expected).body)

    def test_long_load(self) -> None:
        """The API keys of very many hosts are told, each once, in pieces of an answer that is whole JSON."""
        answer = self.load("".join(f"- !host h{number}\n" for number in range(1500)))
        self.assertEqual(answer.headers["transfer-encoding"], "chunked")
        made = answer.json()["created_roles"]
        self.assertEqual(len(made), 1500)
        self.assertEqual(made["acme:host:h7"]["id"], "acme:host:h7")
        key = made["acme:host:h7"]["api_key"].encode()
        self.assertEqual(self.client.post("/authn/acme/host%2Fh7/authenticate", key).status, 200)

    def test_dry_run_with_brackets(self) -> None:
        """A dry run that is asked for with brackets is 422, and no load (WIRE-21)."""
        before = self.memory.copied()
        for query in ("dryRun[]=true", "dryRun[0]=true", "dryRun[=true", "dryRun[]", "dryRun&dryRun[]=true"):
            for method in ("POST", "PATCH", "PUT"):
                self.load("- !user dora\n", f"root?{query}", method=method, status=422)
        self.assertEqual(self.memory.copied(), before)

    def test_many_faults(self) -> None:
        """A dry run tells every fault of a document, however many there are."""
        members = ", ".join(f"!user u{number}" for number in range(1500))
        text = f"- !group g\n- !grant {{ role: !group g, members: [ {members} ] }}\n"
        answer = self.load(text, "root?dryRun", status=422)
        self.assertEqual(len(answer.json()["errors"]), 1500)

    def test_long_item(self) -> None:
        """What has more names than a batch holds is one item, complete."""
        hosts = "".join(f"- !host {{ id: h{number}, annotations: {{ note: {'x' * 40} }} }}\n" for number in range(1500))
        members = ", ".join(f"!host h{number}" for number in range(1500))
        text = f"{hosts}- !group all\n- !grant {{ role: !group all, members: [ {members} ] }}\n"
        items = {item["identifier"]: item for item in self.load(text, "root?dryRun", status=200).json()["created"]["items"]}
        self.assertEqual(len(items), 1501)
        self.assertEqual(len(items["acme:group:all"]["members"]), 1501)
        self.assertEqual(items["acme:host:h1499"]["memberships"], ["acme:group:all"])
