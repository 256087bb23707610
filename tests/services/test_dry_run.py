"""Tests of ``svc.services.policy_loads`` and ``svc.policy.differences``: dry runs."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, given, settings

from svc.cli.changes import change_sentences
from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from svc.model.policy_loads import LoadMode
from svc.services import policy_loads
from tests.sshkeys import ONE
from tests.strategies import LOAD_MODES, STATEMENTS, document
from tests.web.routes.test_policies import LEAD, TEAM
from tests.web.support import Answer
from tests.web.world import ADMIN, WorldCase, user

METHODS = {LoadMode.APPEND: "POST", LoadMode.UPDATE: "PATCH", LoadMode.REPLACE: "PUT"}


class DryRunCase(WorldCase):
    """Where dry runs are made."""

    def dry_run(
        self,
        text: str,
        policy: str = "root",
        role: RoleName = ADMIN,
        method: str = "PATCH",
        status: int = 200,
        flag: str = "true",
    ) -> Any:
        """Make a dry run, which must change nothing, and return the JSON of its answer, which must have this status."""
        before = copy.deepcopy(self.memory)
        answer: Answer = self.client.request(
            method, f"/policies/acme/policy/{policy}?dryRun={flag}", body=text.encode(), role=role
        )
        self.assertEqual(answer.status, status, answer.body)
        self.assertEqual(self.memory, before)
        return answer.json() if answer.body else None


class DryRunTests(DryRunCase):
    """``?dryRun=true`` (POL-68 to POL-74)."""

    def setUp(self) -> None:
        """Load a policy with a team's own inside."""
        super().setUp()
        self.load(TEAM)

    def said(self, *more: Any, **asked: Any) -> list[str]:
        """What the command line says of a dry run."""
        return [sentence.text for sentence in change_sentences(self.dry_run(*more, **asked))]

    def test_nothing(self) -> None:
        """A load that changes nothing has no items; nothing is stored, and no version consumed (POL-68)."""
        nothing: dict[str, object] = {"items": []}
        expected = {
            "status": "Valid YAML",
            "created": nothing,
            "updated": {"before": nothing, "after": nothing},
            "deleted": nothing,
            "access": {
                "gains": [],
                "losses": [],
                "untold": {"gains": False, "new_gains": False, "losses": False},
                "complete": True,
                "advice": None,
            },
        }
        for method in ("POST", "PATCH", "PUT"):
            found = self.dry_run(TEAM, method=method)
            changes = found.pop("changes")
            self.assertEqual(found, expected)
            counted = [name for name, counts in changes.items() if any(counts.values())]
            self.assertEqual(counted, ["unchanged"])
        self.assertEqual(self.load(TEAM).json()["version"], 2)

    def test_flag(self) -> None:
        """The flag is ``true`` or ``false`` in any case, blanks around it aside, or empty, which is true; nothing else
        (POL-68).
        """
        for flag in ("true", "TRUE", "%20True+", ""):
            self.dry_run("- !user new\n", flag=flag)
        for flag, status in (("false", 201), ("False+", 201), ("yes", 422), ("1", 422), ("truee", 422)):
            path = f"/policies/acme/policy/root?dryRun={flag}"
            self.assertEqual(self.client.post(path, b"- !group g\n", role=ADMIN).status, status)
        self.assertEqual(self.client.post("/policies/acme/policy/root?dryRun", b"[]\n", role=ADMIN).status, 200)

    def test_created(self) -> None:
        """What comes is told in the shape of its kind (POL-69)."""
        text = (
            "- !host { id: h, annotations: { a: b } }\n- !variable v\n- !grant { role: !group ops, member: !host h }\n"
            "- !permit { role: !host h, privileges: [ read, execute ], resource: !variable v }\n"
        )
        answer = self.dry_run(text, policy="team", role=LEAD, method="POST")
        host, variable = answer["created"]["items"]
        self.assertEqual(
            host,
            {
                "identifier": "acme:host:team/h",
                "id": "team/h",
                "type": "host",
                "owner": "acme:policy:team",
                "policy": "acme:policy:team",
                "permissions": {"execute": ["acme:variable:team/v"], "read": ["acme:variable:team/v"]},
                "annotations": {"a": "b"},
                "members": ["acme:policy:team"],
                "memberships": ["acme:group:team/ops"],
                "restricted_to": [],
            },
        )
        self.assertEqual(
            variable,
            {
                "identifier": "acme:variable:team/v",
                "id": "team/v",
                "type": "variable",
                "owner": "acme:policy:team",
                "policy": "acme:policy:team",
                "permitted": {"execute": ["acme:host:team/h"], "read": ["acme:host:team/h"]},
                "annotations": {},
            },
        )

    def test_owners(self) -> None:
        """Who comes to own a role, or owns it no more, is told as changed only where the dialect says so; who comes to own
        what is no role isn't. The command line says nothing about it (POL-71).
        """
        self.load("- !group old\n- !variable w\n", policy="team")
        keep = "- !variable db\n- !group ops\n"
        for text, method, role in (
            ("- !group new\n", "POST", "new"),
            (f"{keep}- !group old\n- !group new\n- !variable v\n", "PATCH", "new"),
            (keep, "PUT", "old"),
            ("- !delete { record: !group old }\n", "PATCH", "old"),
        ):
            answer = self.dry_run(text, policy="team", method=method)
            before, after = (answer["updated"][when]["items"] for when in ("before", "after"))
            if not self.dialect.dry_run_lists_owners:
                self.assertEqual((before, after), ([], []))
                continue
            self.assertEqual([item["identifier"] for item in (*before, *after)], ["acme:policy:team"] * 2)
            memberships = [set(item.pop("memberships")) for item in (*before, *after)]
            self.assertEqual(before, after)
            self.assertEqual(memberships[0] ^ memberships[1], {f"acme:group:team/{role}"})
            self.assertFalse([said for said in self.said(text, policy="team", method=method) if "policy team is" in said])
        self.assertEqual(self.dry_run("- !variable v\n", policy="team")["updated"]["after"]["items"], [])

    def test_restrictions(self) -> None:
        """From where somebody may log in is told before and after, and public keys go with their user."""
        self.load(f"- !user {{ id: bob, restricted_to: 10.0.0.0/8, public_keys: {ONE} home }}\n")
        answer = self.dry_run("- !user { id: bob, restricted_to: [ 10.1.0.0/16, 10.0.0.0/8 ] }\n")
        before, after = (answer["updated"][when]["items"] for when in ("before", "after"))
        self.assertEqual([item["restricted_to"] for item in before], [["10.0.0.0/8"]])
        self.assertEqual([item["restricted_to"] for item in after], [["10.0.0.0/8", "10.1.0.0/16"]])
        answer = self.dry_run("- !delete { record: !user bob }\n")
        deleted = [item["identifier"] for item in answer["deleted"]["items"]]
        self.assertEqual(deleted, ["acme:public_key:user/bob/home", "acme:user:bob"])

    def test_updated(self) -> None:
        """What differs is told as it was and as it would be, both ends of a membership among it (POL-69)."""
        answer = self.dry_run("- !grant { role: !group team/ops, member: !user alice }\n")
        before, after = (answer["updated"][when]["items"] for when in ("before", "after"))
        self.assertEqual([item["identifier"] for item in before], ["acme:group:team/ops", "acme:user:alice"])
        self.assertEqual([item["identifier"] for item in after], ["acme:group:team/ops", "acme:user:alice"])
        self.assertEqual(before[0]["members"], ["acme:policy:team"])
        self.assertEqual(after[0]["members"], ["acme:policy:team", "acme:user:alice"])
        self.assertEqual((before[1]["memberships"], after[1]["memberships"]), ([], ["acme:group:team/ops"]))
        self.assertEqual((answer["created"], answer["deleted"]), ({"items": []}, {"items": []}))

    def test_deleted(self) -> None:
        """What goes is told with everything that goes along, also what others recorded (POL-69)."""
        self.load("- !host h\n- !grant { role: !group ops, member: !host h }\n", policy="team", role=LEAD)
        self.load("- !variable { id: w, owner: !group team/ops }\n- !grant { role: !group admins, member: !host team/h }\n")
        answer = self.dry_run("- !user lead\n- !user alice\n- !group admins\n- !variable crown-jewels\n", method="PUT")
        deleted = [item["identifier"] for item in answer["deleted"]["items"]]
        names = ["group:team/ops", "host:team/h", "policy:team", "variable:team/db", "variable:w"]
        self.assertEqual(deleted, [f"acme:{name}" for name in names])
        owners = ["lead"] if self.dialect.dry_run_lists_owners else []
        self.assertEqual([item["id"] for item in answer["updated"]["before"]["items"]], ["admins", *owners])
        self.assertEqual(answer["updated"]["after"]["items"][0]["members"], ["acme:user:admin"])

    def test_words(self) -> None:
        """The command line tells who gains and who loses which access, not which rows change."""
        self.load(
            "- !host shop\n- !grant { role: !group team/ops, member: !user alice }\n"
            "- !permit { role: !user alice, privileges: [ read, update ], resource: !variable team/db }\n"
        )
        base = TEAM.replace("- !variable crown-jewels\n", "")
        text = base + (
            "- !host shop\n- !user bob\n"
            "- !grant { role: !group admins, members: [ !user bob, !host shop ] }\n"
            "- !permit { role: !host shop, privileges: [ read, execute ], resource: !variable team/db }\n"
        )
        self.assertEqual(
            self.said(text, method="PUT"),
            [
                "variable crown-jewels and its values will be deleted",
                "user bob will be created, owned by user admin",
                "user alice may no longer read or update variable team/db",
                "host shop may now execute and read variable team/db",
                "user alice is no longer a member of group team/ops",
                "host shop is now a member of group admins",
                "user bob is now a member of group admins",
            ],
        )
        self.assertEqual(
            self.said("- !variable { id: team/db, owner: !user alice, annotations: { a: b } }\n"),
            [
                "variable team/db will be owned by user alice, no longer by policy team",
                "variable team/db has other annotations: a",
            ],
        )

    def test_authorization(self) -> None:
        """It takes what the load takes, and tells no more to those who may not (POL-58)."""
        bob = user("bob")
        self.load("- !user bob\n- !permit { role: !user bob, privilege: create, resource: !policy team }\n")
        self.dry_run("[]", policy="team", role=bob, method="POST")
        self.dry_run("[]", policy="team", role=bob, method="PUT", status=403)
        self.dry_run("[]", policy="root", role=bob, status=404)
        self.dry_run("- !grant { role: !group /admins, member: !user /lead }\n", policy="team", role=LEAD, status=403)
        self.assertEqual(self.client.post("/policies/acme/policy/root?dryRun=true", b"[]").status, 401)

    def test_redaction(self) -> None:
        """What the caller may not see has no name: in lists, as an owner, and as an item of its own (POL-72)."""
        self.load(
            "- !user hidden\n- !group staff\n- !permit { role: !user lead, privilege: read, resource: !group staff }\n"
        )
        text = (
            "- !variable v\n- !permit { role: !user /hidden, privilege: execute, resource: !variable v }\n"
            "- !grant { role: !group ops, members: [ !user /hidden, !group /staff ] }\n"
            "- !host { id: h, owner: !user /hidden }\n"
        )
        answer = self.dry_run(text, policy="team", role=LEAD)
        host, variable = answer["created"]["items"]
        self.assertEqual(variable["permitted"], {"execute": ["acme:user:[REDACTED]"]})
        self.assertEqual(host, {"identifier": "acme:host:[REDACTED]", "type": "host"})
        items = {item["identifier"]: item for item in answer["updated"]["after"]["items"]}
        self.assertEqual(items["acme:user:[REDACTED]"], {"identifier": "acme:user:[REDACTED]", "type": "user"})
        self.assertEqual(
            items["acme:group:team/ops"]["members"], ["acme:group:staff", "acme:policy:team", "acme:user:[REDACTED]"]
        )
        self.assertEqual(items["acme:group:staff"]["owner"], "acme:user:[REDACTED]")
        self.assertNotIn("hidden", str(answer).replace("hidden from", ""))
        words = self.said(text, policy="team", role=LEAD)
        self.assertIn("a user that you may not see may now execute variable team/v", words)
        self.assertIn("1 of kind user that you may not see will change", words)

    def test_invalid(self) -> None:
        """A document with faults is 422, with their places, messages and advice; each missing reference is one."""
        answer = self.dry_run("- !variable ok\n- !gruop x\n", status=422)
        [error] = answer["errors"]
        self.assertEqual(answer["status"], "Invalid YAML")
        self.assertEqual((error["line"], error["column"]), (2, 3))
        self.assertEqual(error["context"], {"policy_id": "root", "offending_lines": [2]})
        message, advice = error["message"].split("\n")
        self.assertEqual(message, "Unrecognized data type '!gruop'")
        self.assertTrue(advice.endswith("."))
        text = "- !grant { role: !group no, member: !user nobody }\n- !user alice\n"
        errors = self.dry_run(text, policy="team", status=422)["errors"]
        self.assertEqual(
            [error["message"].partition("\n")[0] for error in errors],
            [
                "Group 'team/no' not found in account 'acme'",
                "User 'nobody@team' not found in account 'acme'",
            ],
        )
        self.assertEqual({error["context"]["policy_id"] for error in errors}, {"team"})

    def test_faults_without_a_place(self) -> None:
        """A fault that has no place in the document is told without one (POL-73)."""
        self.load("- !group { id: keepers, owner: !user /lead }\n", policy="team", role=LEAD)
        self.load("- !policy { id: team, owner: !group team/keepers, body: [ !variable db, !group ops ] }\n", method="PATCH")
        [error] = self.dry_run("- !group ops\n", policy="team", role=LEAD, method="PUT", status=422)["errors"]
        self.assertIn("deleted with its owner", error["message"])
        self.assertEqual((error["context"]["offending_lines"], "line" in error), ([], False))

    def test_warnings(self) -> None:
        """Warnings are told as those of a load (POL-69)."""
        self.assertEqual(len(self.dry_run("- !variable { id: v, annotations: { owner: me } }\n")["warnings"]), 1)

    def test_concurrent_loads(self) -> None:
        """While the policy is being loaded, it is 409 (POL-50)."""
        self.memory.locked.add("acme:policy:root")
        answer = self.client.post("/policies/acme/policy/root?dryRun=true", b"[]", role=ADMIN)
        self.assertEqual((answer.status, "retry-after" in answer.headers), (409, True))

    def test_much(self) -> None:
        """Of what stays as it is, long lists tell a part; of what changes, everything, and nothing that isn't so
        (POL-74).
        """
        hosts = "".join(f"- !host h{number}\n" for number in range(1500))
        members = ", ".join(f"!host h{number}" for number in range(1500))
        self.load(f"- !group all\n- !group more\n{hosts}- !grant {{ role: !group all, members: [ {members} ] }}\n")
        self.assertEqual(
            self.said("- !grant { role: !group all, member: !user alice }\n"), ["user alice is now a member of group all"]
        )
        answer = self.dry_run("- !grant { role: !group all, member: !user alice }\n")
        lists = [answer["updated"][when]["items"][0]["members"] for when in ("before", "after")]
        self.assertEqual(set(lists[1]) - set(lists[0]), {"acme:user:alice"})
        self.assertLess(len(lists[1]), 1100)

    def test_too_much(self) -> None:
        """A load that touches more rows than a dry run tells is refused, whether it makes them or they go with others
        (POL-74, LIM-17).
        """
        self.patch(policy_loads, "ROWS_MOST", 6)
        for text, method in (("- !group g0\n- !group g1\n- !group g2\n- !group g3\n", "POST"), ("[]", "PUT")):
            answer = self.dry_run(text, method=method, status=422)
            self.assertEqual(answer["error"]["code"], "unprocessable_entity")
            self.assertIn("more than 6 rows", answer["error"]["message"])
        self.dry_run("- !group g\n", method="POST")

    @given(STATEMENTS, STATEMENTS, LOAD_MODES)
    @settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
    def test_agrees_with_the_load(self, first: list[str], second: list[str], mode: LoadMode) -> None:
        """Whatever is loaded, the dry run has told just the things that came, went and changed hands (POL-70)."""
        self.setUp()
        for statement in first:
            self.client.post("/policies/acme/policy/root", f"- {statement}\n".encode(), role=ADMIN)
        body, path = document(second).encode(), "/policies/acme/policy/root"
        told = self.client.request(METHODS[mode], f"{path}?dryRun=true", body=body, role=ADMIN)
        before = dict(self.memory.resources)
        loaded = self.client.request(METHODS[mode], path, body=body, role=ADMIN)
        self.assertEqual(told.status, {201: 200}.get(loaded.status, loaded.status))
        if loaded.status != 201:
            return
        after, answer = self.memory.resources, told.json()
        created, deleted = ({item["identifier"] for item in answer[when]["items"]} for when in ("created", "deleted"))
        self.assertEqual(created, after.keys() - before.keys())
        self.assertEqual(deleted, before.keys() - after.keys())
        moved = {name for name in before.keys() & after.keys() if before[name] != after[name]}
        updated = {item["identifier"]: item for item in answer["updated"]["after"]["items"]}
        self.assertLessEqual(moved, updated.keys())
        for name, item in {**updated, **{item["identifier"]: item for item in answer["created"]["items"]}}.items():
            self.assertEqual(item["owner"], after[name][0])
            annotations = {key: value for (thing, key), (value, _) in self.memory.annotations.items() if thing == name}
            self.assertEqual(item["annotations"], annotations)
            if "members" in item:
                members = {member for role, member, _ in self.memory.memberships if role == name}
                self.assertEqual(set(item["members"]), members)
            else:
                permitted = {(privilege, role) for thing, privilege, role in self.memory.permissions if thing == name}
                self.assertEqual({(key, role) for key, roles in item["permitted"].items() for role in roles}, permitted)


class ConjurDryRunTests(DryRunTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR
