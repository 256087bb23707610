"""Who loads a policy acts as the policy, on what it owns (POL-56), and takes no host for its own (POL-66)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from tests.sshkeys import ONE
from tests.web.support import Answer
from tests.web.world import ADMIN, WorldCase, user

EVERY = ("POST", "PATCH", "PUT")
TAKING = ("PATCH", "PUT")

#: A policy with two beneath it: one of its own, and one of another owner. Bob may load it, and Una may only add to it.
ROOT = """
- !user lead
- !user other
- !user bob
- !user una
- !policy
  id: team
  owner: !user lead
  body:
  - !variable db
  - !group ops
  - !policy
    id: mine
    body: [ !variable v, !group g, !host h ]
  - !policy
    id: sub
    owner: !user /other
    body: [ !variable s, !group g, !host h, !layer l, !webservice w, !host-factory { id: f, layers: !layer l } ]
- !permit { role: !user bob, privileges: [ create, update ], resource: !policy team }
- !permit { role: !user una, privilege: create, resource: !policy team }
- !permit { role: !user bob, privilege: update, resources: [ !variable team/db, !group team/ops, !policy team/mine ] }
- !permit { role: !user bob, privilege: update, resources: [ !variable team/mine/v, !group team/mine/g, !host team/mine/h ] }
"""

#: What is done to a thing of each kind, with the modes that do it. ``{0}`` is the id of a policy beneath the loaded one.
STATEMENTS = (
    ("!grant {{ role: !group {0}/g, member: !user /bob }}", EVERY),
    ("!grant {{ role: !policy {0}, member: !user /bob }}", EVERY),
    ("!grant {{ roles: [ !group ops, !host {0}/h ], member: {{ role: !user /bob, admin: true }} }}", EVERY),
    ("!permit {{ role: !user /bob, privileges: [ read, execute ], resource: !variable {0}/v }}", EVERY),
    ("!permit {{ role: !user /bob, privilege: update, resources: [ !variable db, !policy {0} ] }}", EVERY),
    ("!policy {{ id: {0}, body: [ !permit {{ role: !user /bob, privilege: read, resource: !host h }} ] }}", EVERY),
    ("!policy {{ id: {0}, body: [ !variable new ] }}", EVERY),
    ("!policy {{ id: {0}, body: [ !policy {{ id: new, owner: !user /bob, body: [ !host h ] }} ] }}", EVERY),
    ("!host {0}/new", EVERY),
    ("!group {{ id: {0}/deep/er/new, owner: !user /bob }}", EVERY),
    ("!host-factory {{ id: fleet, layers: !layer {0}/l }}", EVERY),
    ("!policy {{ id: {0}, annotations: {{ new: annotation }} }}", EVERY),
    ("!host {{ id: {0}/h, annotations: {{ authn-jwt/ci/sub: bob }} }}", EVERY),
    ("!revoke {{ role: !group {0}/g, member: !user /other }}", TAKING),
    ("!deny {{ role: !user /other, privilege: read, resource: !variable {0}/v }}", TAKING),
    ("!delete {{ record: !variable {0}/v }}", TAKING),
    ("!delete {{ record: !group {0}/g }}", TAKING),
    ("!delete {{ records: [ !variable db, !host {0}/h ] }}", TAKING),
    ("!delete {{ record: !policy {0} }}", TAKING),
)

KEEP = "- !variable db\n- !group ops\n"


class OwnersTests(WorldCase):
    """A policy, another that it owns, and one beneath it that somebody else owns."""

    def setUp(self) -> None:
        """Make them, each with things of the same names."""
        super().setUp()
        self.load(ROOT)
        self.load("- !policy { id: team/sub, body: [ !variable v ] }\n- !policy { id: team/mine, body: [ !layer l ] }\n")
        self.stored = self.memory.copied()

    def statuses(self, text: str, role: RoleName, method: str, policy: str = "team", dry_run: bool = False) -> int:
        """How a load is answered. A refused one changes nothing, nor does a dry run."""
        path = f"/policies/acme/policy/{policy.replace('/', '%2F')}{'?dryRun' if dry_run else ''}"
        answer = self.client.request(method, path, body=text.encode(), role=role)
        if dry_run or answer.status >= 400:
            self.assertEqual(self.memory.copied(), self.stored, text)
        self.memory.restore(self.stored)
        return answer.status

    def test_what_others_own(self) -> None:
        """A role that may load a policy, even its owner, disposes of nothing beneath it that somebody else owns, in no mode
        (POL-56).
        """
        for statement, modes in STATEMENTS:
            for method in modes:
                # What would replace the policy takes ``update`` on what is beneath it anyway.
                for role in (user("lead"), user("bob"), user("una")) if method == "POST" else (user("lead"), user("bob")):
                    for dry_run in (False, True):
                        text = f"{KEEP}- {statement.format('sub')}\n"
                        self.assertEqual(self.statuses(text, role, method, dry_run=dry_run), 403, (text, method, role))

    def test_what_the_policy_owns(self) -> None:
        """All of it may be done to what the policy owns, directly or through a policy of its own (POL-55, POL-56)."""
        for statement, modes in STATEMENTS:
            for method in set(modes) - {"PUT"}:
                for role in (user("lead"), user("bob"), user("una")) if method == "POST" else (user("lead"), user("bob")):
                    for dry_run in (False, True):
                        text = f"{KEEP}- {statement.format('mine')}\n"
                        status = 200 if dry_run else 201
                        self.assertEqual(self.statuses(text, role, method, dry_run=dry_run), status, (text, method, role))

    def test_those_who_may(self) -> None:
        """Who owns both, as the admin does, may do it through either, and so may who is their owner's role (POL-58)."""
        self.load("- !grant { role: !user other, member: !user lead }")
        self.stored = self.memory.copied()
        for statement, modes in STATEMENTS:
            for method in modes:
                for role in (ADMIN, user("lead")):
                    text = f"{KEEP}- {statement.format('sub')}\n"
                    self.assertEqual(self.statuses(text, role, method), 201, (text, method, role))

    def test_what_was_given_away(self) -> None:
        """What a policy recorded and gave away is the new owner's: neither changed, taken back, nor disposed of (POL-59)."""
        self.load(
            "- !group { id: gift, owner: !user /other }\n- !user { id: eve, owner: !user /other }\n", "team", user("lead")
        )
        self.stored = self.memory.copied()
        for statement, modes in (
            ("!grant { role: !group gift, member: !user /bob }", EVERY),
            ("!grant { role: !user eve, member: !user /bob }", EVERY),
            ("!permit { role: !user /bob, privilege: read, resource: !group gift }", EVERY),
            ("!group { id: gift, annotations: { a: b }, owner: !user /other }", EVERY),
            ("!user { id: eve, restricted_to: 10.0.0.1, owner: !user /other }", EVERY),
            ("!group gift", TAKING),
            ("!group { id: gift, owner: !user /bob }", TAKING),
            ("!delete { record: !group gift }", TAKING),
            ("!delete { record: !user eve }", TAKING),
            ("!variable other", ("PUT",)),
        ):
            for method in modes:
                for role in (user("lead"), user("bob")):
                    self.assertEqual(self.statuses(f"{KEEP}- {statement}\n", role, method), 403, (statement, method))

    def test_what_a_replacement_drops(self) -> None:
        """A replacement neither deletes nor bares what was given away, of which nothing beneath the policy's id tells
        (POL-59).
        """
        fay = "- !user { id: fay, owner: !user /other }\n"
        eve = f"- !user {{ id: eve, owner: !user /other, annotations: {{ a: b }}, restricted_to: 10.0.0.1 }}\n{fay}"
        self.load("- !policy { id: other-team, owner: !user bob }")
        self.load(eve, "other-team", user("bob"))
        self.stored = self.memory.copied()
        self.assertEqual(self.statuses(eve, user("bob"), "PUT", "other-team"), 201)
        for text in (
            eve.replace(fay, ""),
            eve.replace("annotations: { a: b }, ", ""),
            eve.replace("b }", "c }"),
            eve.replace(", restricted_to: 10.0.0.1", ""),
            eve.replace("/other", "/bob"),
        ):
            self.assertEqual(self.statuses(text, user("bob"), "PUT", "other-team"), 403, text)
            self.assertEqual(self.statuses(text, ADMIN, "PUT", "other-team"), 201, text)

    def test_the_same_once_more(self) -> None:
        """Who loads the same again, in which things were given away with grants and permissions, is not refused for that
        (POL-64).
        """
        text = """
- !policy
  id: theirs
  owner: !user /other
  body:
  - !variable v
  - !group g
  - !grant { role: !group g, member: !user /lead }
  - !permit { role: !group g, privilege: read, resource: !variable v }
- !variable { id: w, owner: !user /other, annotations: { a: b } }
- !permit { role: !user /una, privilege: read, resource: !variable w }
"""
        self.load(text, "team", user("lead"))
        self.stored = self.memory.copied()
        for role, method in ((user("una"), "POST"), (user("lead"), "POST"), (user("bob"), "PATCH")):
            self.assertEqual(self.statuses(text, role, method), 201)
            self.assertEqual(self.statuses(text.replace("read", "update"), role, method), 403)

    def test_owners_prove_nothing(self) -> None:
        """That somebody else named the policy for the owner gives the policy's loaders no power over things outside
        (POL-56).
        """
        self.load("- !policy { id: giver, owner: !user other }")
        self.load(
            "- !group { id: g, owner: !policy /team }\n- !variable { id: v, owner: !policy /team }", "giver", user("other")
        )
        self.stored = self.memory.copied()
        for text in (
            "- !grant { role: !group /giver/g, member: !user /bob }",
            "- !permit { role: !user /bob, privilege: read, resource: !variable /giver/v }",
        ):
            self.assertEqual(self.statuses(text, user("bob"), "POST"), 403)
            self.assertEqual(self.statuses(text, user("lead"), "POST"), 201)

    def test_the_root(self) -> None:
        """To the root belongs what is the admin's directly or through policies; a policy of another owner doesn't
        (POL-61).
        """
        self.load(
            "- !permit { role: !user una, privileges: [ create, update ], resource: !policy root }\n"
            "- !policy { id: plain, body: [ !group g, !variable v ] }\n- !group staff\n"
        )
        self.stored = self.memory.copied()
        for target, status in (("plain", 201), ("team", 403), ("team/mine", 403), ("team/sub", 403)):
            for statement in (
                f"!permit {{ role: !user una, privilege: read, resource: !policy {target} }}",
                f"!grant {{ role: !policy {target}, member: !user una }}",
                f"!variable {target}/new",
                f"!policy {{ id: {target}, body: [ !host new ] }}",
            ):
                for method in ("POST", "PATCH"):
                    self.assertEqual(self.statuses(f"- {statement}", user("una"), method, "root"), status, statement)
        for text in ("- !policy { id: team, owner: !user una }", "- !delete { record: !policy team }"):
            self.assertEqual(self.statuses(text, user("una"), "PATCH", "root"), 403)
        self.assertEqual(
            self.statuses("- !grant { role: !group staff, member: !user una }", user("una"), "POST", "root"), 201
        )

    def test_things_of_the_policys_own_name(self) -> None:
        """What has no id has that of the policy: its delegates make it, and dispose of it where it is the policy's
        (POL-25).
        """
        records = ("!group", "!layer", "!webservice", "!variable")
        for role in (user("lead"), user("bob"), user("una")):
            for record in records:
                self.assertEqual(self.statuses(f"- {record}\n", role, "POST"), 201)
                self.assertEqual(self.statuses(f"- {record}\n", role, "POST", "team/sub"), 404)
        for record in records:
            self.load(f"- !policy {{ id: team, owner: !user lead, body: [ {record} ] }}", method="PATCH")
        self.stored = self.memory.copied()
        for record in records:
            text = f"- {record} {{ annotations: {{ a: b }} }}\n"
            text += f"- !permit {{ role: !user /bob, privilege: x, resource: {record}  }}\n"
            for role in (user("lead"), user("bob"), user("una")):
                self.assertEqual(self.statuses(text, role, "POST"), 201, text)

    def test_things_of_a_nested_policys_own_name(self) -> None:
        """So do the owner and the delegates of a policy that stands in another, be that somebody else's (POL-63)."""
        nested = "[ !policy team/sub, !policy team/mine ]"
        self.load(f"- !user dee\n- !permit {{ role: !user dee, privilege: create, resources: {nested} }}\n")
        self.stored = self.memory.copied()
        for role, policy in ((user("other"), "team/sub"), (user("dee"), "team/sub"), (user("dee"), "team/mine")):
            for record in ("!group", "!layer", "!webservice", "!variable"):
                self.assertEqual(self.statuses(f"- {record}\n", role, "POST", policy), 201, (record, role))
                self.assertEqual(self.statuses(f"- {record} /team/new\n", role, "POST", policy), 422, (record, role))
            self.assertEqual(self.statuses(f"- !host /{policy}\n", role, "POST", policy), 422, role)

    def test_records_without_ids(self) -> None:
        """A user, a host or a host factory without an id is the policy's own, for all who may load the policy, and a policy
        without one is 422 for all (POL-25, POL-63).
        """
        for record in (
            "!policy",
            "!policy { body: [ !variable v ] }",
            "!policy { id: ' ' }",
            "!resource { kind: policy }",
        ):
            for text in (f"- {record}", f"- !policy {{ id: new, body: [ {record} ] }}"):
                for role in (ADMIN, user("lead"), user("una")):
                    self.assertEqual(self.statuses(text, role, "POST"), 422, text)
        for record in (
            "!user",
            f"!user {{ public_key: {ONE} laptop }}",
            "!host",
            "!host ' '",
            "!host { id: '', owner: !user /bob }",
            "!host-factory { layers: !layer l }",
            "!role { kind: host }",
            "!role { kind: user, id: ~ }",
        ):
            for text in (f"- {record}\n- !layer l", f"- !policy {{ id: new, body: [ {record}, !layer l ] }}"):
                for role in (ADMIN, user("lead"), user("una")):
                    self.assertEqual(self.statuses(text, role, "POST"), 201, text)


class ConjurOwnersTests(OwnersTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


#: Two teams, of which one has a host factory, as has the root.
TEAMS = """
- !user lead-a
- !user lead-b
- !user keeper
- !policy
  id: A
  owner: !user lead-a
  body: [ !layer l, !host-factory { id: f, layers: !layer l } ]
- !policy { id: B, owner: !user lead-b, body: [ !variable s, !layer l, !host-factory { id: f, layers: !layer l } ] }
- !layer l
- !host-factory { id: f, layers: !layer l }
- !permit { role: !user keeper, privileges: [ create, update ], resource: !policy B }
- !permit { role: !user keeper, privilege: update, resources: [ !variable B/s, !layer B/l, !host-factory B/f ] }
"""


class FactoryCase(WorldCase):
    """Hosts that are made with tokens of these factories."""

    def setUp(self) -> None:
        """Make the teams."""
        super().setUp()
        self.load(TEAMS)

    def make(self, factory: str, host: str) -> Answer:
        """Have a factory make a host."""
        fields: Mapping[str, str] = {"host_factory": f"acme:host_factory:{factory}", "expiration": "2099-01-01T00:00:00Z"}
        form = [("Content-Type", "application/x-www-form-urlencoded")]
        made = self.client.post("/host_factory_tokens", urlencode(fields).encode(), headers=form, role=ADMIN)
        token = [("Authorization", f"Token token={made.json()[0]['token']}")]
        return self.client.post("/host_factories/hosts", urlencode({"id": host}).encode(), headers=[*form, *token])

    def refused(
        self, text: str, policy: str = "B", role: RoleName = ADMIN, method: str = "POST", host: str = "B/app0"
    ) -> None:
        """A document is 403 that names a host, also in a dry run, and nothing of it is applied."""
        before = self.memory.copied()
        for query in ("", "?dryRun"):
            answer = self.client.request(method, f"/policies/acme/policy/{policy}{query}", body=text.encode(), role=role)
            message = self.error(answer, 403, "forbidden")
            self.assertEqual(
                message, f"Host '{host}' was made by somebody else. Delete it before it is declared, or give it another id."
            )
            self.assertEqual(self.memory.copied(), before)


class FactoryTests(FactoryCase):
    """Which hosts a factory makes."""

    def test_ids(self) -> None:
        """A factory makes hosts of its own policy, and of ids that no policy's begins; an id of another policy's is 403
        (HF-19).
        """
        self.load("- !policy { id: B/x, body: [ !policy y ] }\n- !policy A/sub\n")
        for factory, host, status in (
            ("A/f", "A/h", 201),
            ("A/f", "A/deep/er/h", 201),
            ("A/f", "h", 201),
            ("A/f", "C/h", 201),
            ("A/f", "B", 201),
            ("A/f", "Bee/h", 201),
            ("f", "root-h", 201),
            ("f", "root/h", 201),
            ("B/f", "B/h", 201),
            ("A/f", "B/app0", 403),
            ("A/f", "B/deep/er/app0", 403),
            ("A/f", "B/x/app0", 403),
            ("A/f", "B/x/y/z/app0", 403),
            ("A/f", "A/sub/app0", 403),
            ("B/f", "B/x/app0", 403),
            ("B/f", "A/app0", 403),
            ("f", "B/app0", 403),
            ("f", "A/app0", 403),
        ):
            answer = self.make(factory, host)
            self.assertEqual((answer.status, host), (status, host), answer.body)
            self.assertEqual(f"acme:host:{host}" in self.memory.roles, status == 201)
            if status == 403:
                self.assertEqual(answer.body, b"")

    def test_whose_factory(self) -> None:
        """A factory isn't a policy's own for being called like one of its own, nor for an owner that somebody named
        (HF-19).
        """
        self.load(
            "- !layer l\n- !host-factory { id: f, layers: !layer l, owner: !policy /B }\n", "A", user("lead-a"), "PATCH"
        )
        self.assertEqual(self.make("A/f", "B/app0").status, 403)
        for owner in ("!policy /A", "!user /admin", "!user /lead-b"):
            self.setUp()
            self.load(f"- !layer l\n- !host-factory {{ id: C/f, layers: !layer l, owner: {owner} }}\n", "A", user("lead-a"))
            self.load("- !policy { id: A/C, owner: !user lead-b }")
            self.assertEqual(self.make("A/C/f", "A/C/app0").status, 403)
        self.load("- !host-factory { id: B/given, layers: !layer l, owner: !user lead-a }\n")
        self.assertEqual(self.make("B/given", "B/app0").status, 403)
        self.load("- !host-factory { id: B/above, layers: !layer l, owner: !user lead-b }\n")
        self.assertEqual(self.make("B/above", "B/app1").status, 201)

    def test_again(self) -> None:
        """What a factory has made it gives another key, also when a policy has come to stand around it (HF-20)."""
        self.make("A/f", "C/h")
        self.load("- !policy C\n")
        self.assertEqual(self.make("A/f", "C/h").status, 201)
        self.assertEqual(self.make("A/f", "C/other").status, 403)


class DeclaredHostTests(FactoryCase):
    """Hosts that were made before a policy declares them."""

    def early(self) -> None:
        """Team A's factory makes a host; then there is a policy of that name."""
        self.load("- !delete { record: !policy B }\n", method="PATCH")
        self.assertEqual(self.make("A/f", "B/app0").status, 201)
        self.load(TEAMS)
        self.load(TEAMS, method="PATCH")

    def test_hosts_of_factories(self) -> None:
        """A host that another policy's factory made is declared by nobody: 403 that names it (POL-66)."""
        self.early()
        document = "- !variable s\n- !layer l\n- !host-factory { id: f, layers: !layer l }\n- !host app0\n"
        permit = "- !permit { role: !host app0, privilege: execute, resource: !variable s }\n"
        for role in (user("lead-b"), user("keeper"), ADMIN):
            for method in EVERY:
                self.refused(document + permit, role=role, method=method)
                self.refused("- !host app0", role=role, method=method)
        self.refused("- !policy { id: B, body: [ !host app0 ] }", "root")
        self.refused("- !host B/app0", "root")
        self.assertNotIn(("acme:variable:B/s", "execute", "acme:host:B/app0"), self.memory.permissions)

    def test_hosts_at_the_root(self) -> None:
        """So it is at the root: a host that another policy's factory made isn't the root's, one that its own made is
        (POL-66).
        """
        self.make("A/f", "app0")
        self.make("f", "app1")
        for method in ("POST", "PATCH"):
            self.refused("- !host app0", "root", method=method, host="app0")
        answer = self.load("- !host app1")
        self.assertIn("Host 'app1' was not recorded by this policy", answer.json()["warnings"][0])
        self.load("- !delete { record: !host app0 }", method="PATCH")
        self.assertEqual(list(self.load("- !host app0").json()["created_roles"]), ["acme:host:app0"])

    def test_hosts_with_their_factory(self) -> None:
        """A host of another policy's factory is left as it is by a document that names the factory as its owner, if the role
        has authority over the host, and unless the document creates a policy around it (POL-66, POL-95).
        """
        self.early()
        before = self.memory.resources["acme:host:B/app0"]
        text = "- !host {{ id: {}, owner: !host-factory /{} }}\n"
        for method in ("POST", "PATCH"):
            answer = self.load(text.format("B/app0", "A/f"), method=method)
            self.assertIn("Host 'B/app0' was not recorded by this policy", answer.json()["warnings"][0])
        self.assertEqual((self.memory.resources["acme:host:B/app0"], before[1]), (before, None))
        for owner in ("B/f", "f"):
            self.refused(text.format("B/app0", owner), "root")
        self.load(text.format("app0", "A/f"), "B", user("keeper"), status=403)
        self.load(text.format("app0", "A/f"), "B", user("lead-b"), status=403)
        self.make("A/f", "N/app0")
        self.refused(text.format("N/app0", "A/f") + "- !policy N\n", "root", host="N/app0")

    def test_hosts_of_a_new_policy(self) -> None:
        """Nor does a host become a new policy's that a factory made before, be it one of the policy that declares both
        (POL-66).
        """
        self.make("A/f", "N/app0")
        self.make("f", "N/app1")
        self.make("B/f", "B/n/app2")
        self.refused("- !policy { id: N, body: [ !host app0 ] }", "root", host="N/app0")
        self.refused("- !host N/app1\n- !policy N\n", "root", host="N/app1")
        self.refused("- !policy { id: n, body: [ !host app2 ] }", "B", host="B/n/app2")
        self.load("- !host N/app1")
        self.load("- !host n/app2", "B")

    def test_hosts_of_its_own_factory(self) -> None:
        """A host that the policy's own factory made is left as it is, with a warning, and may be permitted what is there
        (POL-65).
        """
        self.make("B/f", "B/app1")
        text = "- !host app1\n- !permit { role: !host app1, privilege: execute, resource: !variable s }\n"
        for role in (user("lead-b"), user("keeper")):
            for method in ("POST", "PATCH"):
                answer = self.load(text, "B", role, method)
                self.assertEqual(
                    answer.json()["warnings"], ["Host 'B/app1' was not recorded by this policy, and is left as it is."]
                )
        self.assertEqual(self.memory.resources["acme:host:B/app1"], ("acme:host_factory:B/f", None))

    def test_hosts_from_above(self) -> None:
        """A host that the root declared for the policy, as the policy's or as of one who owns it, is left as it is
        (POL-65).
        """
        self.load("- !policy { id: B, body: [ !host app0 ] }\n- !host B/app1\n- !host { id: B/app2, owner: !user lead-b }\n")
        answer = self.load("- !host app0\n- !host app1\n- !host app2\n", "B", user("lead-b"))
        self.assertEqual(len(answer.json()["warnings"]), 3)
        self.load("- !host { id: B/app3, owner: !user lead-a }")
        self.refused("- !host app3", role=user("lead-b"), host="B/app3")

    def test_hosts_of_a_policy_around(self) -> None:
        """What the policy around had made before the policy was, is somebody else's unless the one owns the other
        (POL-66).
        """
        for owner in ("!policy /A", "!user /admin", "!user /lead-b"):
            self.setUp()
            self.load(f"- !host {{ id: C/app0, owner: {owner} }}\n- !group C/g\n- !host D/app0\n", "A", user("lead-a"))
            self.load("- !policy { id: A/C, owner: !user lead-b }\n- !policy { id: A/D, owner: !policy A }\n")
            self.refused("- !host app0", "A%2FC", user("lead-b"), host="A/C/app0")
            self.load("- !group g\n", "A/C", user("lead-b"), status=403)
            self.load("- !host app0\n", "A/D")

    def test_deleted(self) -> None:
        """A role that may update the policy that the id begins with may delete the host, and then the policy may declare it
        (POL-67).
        """
        for role, method in ((user("lead-b"), "PATCH"), (user("keeper"), "PATCH"), (user("keeper"), "PUT"), (ADMIN, "PUT")):
            self.setUp()
            self.early()
            document = "- !variable s\n- !layer l\n- !host-factory { id: f, layers: !layer l }\n"
            self.load(f"{document}- !delete {{ record: !host app0 }}\n", "B", role, method)
            self.assertNotIn("acme:host:B/app0", self.memory.resources)
            made = self.load(f"{document}- !host app0\n", "B", role, method).json()["created_roles"]
            self.assertEqual(list(made), ["acme:host:B/app0"])
            self.assertEqual(self.memory.resources["acme:host:B/app0"], ("acme:policy:B", "acme:policy:B"))

    def test_deleted_from_elsewhere(self) -> None:
        """From another policy, too, it is deleted by a role that may update the policy that its id begins with, or owns it
        (POL-67).
        """
        self.early()
        self.load("- !user carl\n- !policy { id: C, owner: !user carl }\n")
        delete = "- !delete { record: !host /B/app0 }"
        self.load(delete, "C", user("carl"), "PATCH", 403)
        for power in (
            "- !permit { role: !user carl, privilege: update, resource: !policy B }",
            "- !grant { role: !user lead-b, member: !user carl }",
            "- !grant { role: !user lead-a, member: !user carl }",
        ):
            before = self.memory.copied()
            self.load(power)
            self.load(delete, "C", user("carl"), "PATCH")
            self.memory.restore(before)
        self.load("- !permit { role: !user carl, privilege: create, resource: !policy B }")
        self.load("- !permit { role: !user carl, privilege: [ create, update ], resource: !policy A }")
        self.load(delete, "C", user("carl"), "PATCH", 403)

    def test_replaced(self) -> None:
        """Such a host doesn't keep anybody from replacing the policy, who leaves it where it is (POL-67)."""
        self.early()
        document = "- !variable s\n- !layer l\n- !host-factory { id: f, layers: !layer l }\n"
        for role in (user("lead-b"), user("keeper")):
            self.load(document, "B", role, "PUT")
        self.assertEqual(self.memory.resources["acme:host:B/app0"], ("acme:host_factory:A/f", None))

    def test_users(self) -> None:
        """A user whom another policy made isn't taken for one's own for having been given its name as owner (POL-62,
        POL-65).
        """
        self.load("- !policy { id: a/b, owner: !user lead-a }\n- !policy { id: a-b, owner: !user lead-b }\n")
        self.load("- !user { id: dave, owner: !policy /a-b }\n", "a/b", user("lead-a"))
        for method in EVERY:
            self.load("- !user dave\n", "a-b", user("lead-b"), method, 403)
        self.load("- !policy { id: a-b, body: [ !user eve ] }\n")
        self.assertEqual(len(self.load("- !user eve\n", "a-b", user("lead-b")).json()["warnings"]), 1)


class ConjurDeclaredHostTests(DeclaredHostTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR
