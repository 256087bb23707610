"""Tests of ``svc.web.routes.effective_policy`` and ``svc.policy.effective_policy``: what is printed, for whom, and that it
loads back.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from tests.memory import Memory
from tests.sshkeys import ONE, RSA
from tests.strategies import STATEMENTS
from tests.web.support import Answer
from tests.web.world import ADMIN, WorldCase, user

DEV = """
- !policy
  id: dev
  owner: !user alice
  annotations: { description: The developers' own }
  body:
    - !user bob
    - !policy
      id: db
      body:
        - !variable { id: password, kind: secret }
        - !layer
    - !host { id: h, owner: !user /alice }
    - !group ops
    - !grant { role: !group ops, members: [ !user bob, { role: !user /alice, admin: true } ] }
    - !permit { role: !group ops, privileges: [ read, execute ], resource: !variable db/password }
    - !webservice api
- !user alice
- !grant { role: !group dev/ops, member: !host dev/h }
- !permit { roles: [ !user alice, !host dev/h ], privilege: read, resource: !layer dev/db }
"""

ROOT_PRINTED = """\
- !user admin
- !user alice
- !policy
  id: dev
  owner: !user /alice
  annotations:
    description: 'The developers'' own'
  body:
    - !user bob
    - !policy
      id: db
      body:
        - !variable
          id: password
          annotations:
            {prefix}/kind: secret
        - !layer
        - !permit
          roles:
            - !host /dev/h
            - !user /alice
          privileges: [ read ]
          resource: !layer
        - !permit
          role: !group /dev/ops
          privileges: [ execute, read ]
          resource: !variable password
    - !webservice api
    - !host
      id: h
      owner: !user /alice
    - !group ops
    - !grant
      role: !group ops
      members:
        - !host /dev/h
        - !member
          role: !user /alice
          admin: true
        - !user /bob@dev
"""

#: What stands around the policy that a property loads into.
AROUND = "- !group ops\n- !user alice\n- !policy { id: a, owner: !user alice }\n- !policy a-b\n- !layer a\n- !policy a/b\n"


def rows(memory: Memory, *, recorders: bool = True) -> list[dict[Any, Any]]:
    """All rows, with the policies that recorded them or without."""
    if recorders:
        tables: list[dict[Any, Any]] = [memory.resources, memory.memberships, memory.permissions, memory.annotations]
        return copy.deepcopy([*tables, memory.restrictions])
    return [
        {key: owner for key, (owner, _) in memory.resources.items()},
        {key: admin for key, (admin, _) in memory.memberships.items()},
        dict.fromkeys(memory.permissions),
        {key: value for key, (value, _) in memory.annotations.items()},
        dict(memory.restrictions),
    ]


def rows_but_of(memory: Memory, others: Collection[str]) -> list[dict[Any, Any]]:
    """All rows without their recorders, but for memberships, permissions and annotations of other records."""
    resources, *about = rows(memory, recorders=False)
    return [resources, *({key: value for key, value in table.items() if key[0] not in others} for table in about)]


def known_by_recorder(memory: Memory, policy: str) -> bool:
    """Return whether a policy holds a user, or a thing called like it, that only its recorder tells to be of it (POL-75)."""
    policy_owner, _ = memory.resources[f"acme:policy:{policy}"]

    def within(full: str | None) -> bool:
        return full is not None and (full == f"acme:policy:{policy}" or full.split(":", 2)[2].startswith(f"{policy}/"))

    return any(
        within(recorder) and not within(owner) and (kind == "user" or (identifier == policy and owner != policy_owner))
        for (_, kind, identifier), (owner, recorder) in ((full.split(":", 2), row) for full, row in memory.resources.items())
    )


class EffectiveTests(WorldCase):
    """Reading policy (POL-75 to POL-81)."""

    def show(self, policy: str = "root", role: RoleName = ADMIN, status: int = 200, query: str = "", **more: Any) -> Answer:
        """Read a policy, and return the answer, which must have this status."""
        answer = self.client.get(f"/policies/acme/policy/{policy.replace('/', '%2F')}{query}", role=role, **more)
        self.assertEqual(answer.status, status, answer.body)
        return answer

    def printed(self, policy: str = "root", **more: Any) -> str:
        """The text of a policy behind the mark with which it begins (POL-75)."""
        answer = self.show(policy, **more)
        self.assertEqual(answer.headers["content-type"], "application/x-yaml")
        mark, _, text = answer.body.decode().partition("\n")
        self.assertEqual(mark, "---")
        return text

    def load_leniently(self, statements: list[str], policy: str = "root") -> None:
        """Load statements one by one, those that can be."""
        path = f"/policies/acme/policy/{policy.replace('/', '%2F')}"
        for statement in statements:
            answer = self.client.post(path, f"- {statement}\n".encode(), role=ADMIN)
            self.assertIn(answer.status, {201, 422}, answer.body)

    def test_root(self) -> None:
        """Root is printed with no policy around it: bodies in order, owners that are not the default, users by path (POL-75,
        POL-78).
        """
        self.load(DEV)
        self.assertEqual(self.printed(), ROOT_PRINTED.replace("{prefix}", self.dialect.prefix))

    def test_actors(self) -> None:
        """Restrictions, public keys and the layers of host factories are told, wherever the layers stand, and load back."""
        text = (
            "- !policy\n  id: dev\n  body:\n"
            "    - !user\n      id: bob\n      restricted_to: [ '10.0.0.0/8' ]\n"
            f"      public_keys: [ '{RSA} bob@home', {ONE} key/2 ]\n"
            "    - !layer inner\n"
            "    - !host-factory\n      id: hf\n      layers:\n        - !layer /dev/inner\n        - !layer /outer\n"
            "- !layer outer\n"
        )
        self.load(text)
        printed = self.printed()
        self.assertEqual(printed, "- !user admin\n" + text)
        self.assertEqual(self.printed("dev"), text.removesuffix("- !layer outer\n"))
        before = rows(self.memory)
        key = "acme:public_key:user/bob@dev/key/2"
        values = self.memory.secrets[key]
        self.load(printed, method="PUT")
        self.assertEqual((rows(self.memory), self.memory.secrets[key]), (before, values))

    def test_what_would_not_be_found(self) -> None:
        """A host factory whose layers are gone can't be declared in ``native``, and so nothing refers to it; in ``conjur``
        it has an empty list of them (POL-16, POL-90).
        """
        self.load(
            "- !layer l\n- !host-factory { id: hf, layers: !layer l }\n- !group g\n"
            "- !grant { role: !group g, member: !host-factory hf }\n"
        )
        self.load("- !delete { record: !layer l }\n", method="PATCH")
        if not self.dialect.lenient_policy:
            left_out = "- 'acme:host_factory:hf'\n# - the member 'acme:host_factory:hf' of 'acme:group:g'\n"
            comment = f"# Left out, because no document can declare it:\n# {left_out}"
            self.assertEqual(self.printed(), f"{comment}- !user admin\n- !group g\n")
            return
        before, printed = rows(self.memory), self.printed()
        self.assertIn("layers: [  ]", printed)
        self.load(printed, method="PUT")
        self.assertEqual(rows(self.memory), before)

    def test_policy(self) -> None:
        """Any other policy is printed as one statement, relative to the policy around it (POL-75, POL-78)."""
        self.load(DEV)
        printed = self.printed("dev")
        self.assertTrue(printed.startswith("- !policy\n  id: dev\n  owner: !user /alice\n"), printed)
        self.assertEqual(printed, ROOT_PRINTED.replace("{prefix}", self.dialect.prefix).partition("!user alice\n")[2])
        self.assertTrue(self.printed("dev/db").startswith("- !policy\n  id: db\n  body:\n    - !variable\n"))

    def test_json(self) -> None:
        """With the content type of JSON it is JSON, whatever the request accepts (POL-75, POL-79)."""
        self.load("- !policy { id: p, body: [ !layer , !host <h> ] }\n")
        headers = [("Content-Type", "Application/JSON; charset=utf-8"), ("Accept", "application/x-yaml")]
        answer = self.show("p", headers=headers)
        self.assertEqual(answer.json(), [{"policy": {"id": "p", "body": [{"host": {"id": "<h>"}}, {"layer": {}}]}}])
        self.assertNotIn(b"<", answer.body)
        self.printed("p", headers=[("Accept", "application/json")])

    def test_ownership(self) -> None:
        """It takes ownership: 403 for a role that sees the policy and doesn't own it, 404 for all others (POL-76)."""
        self.load(
            DEV + "- !user carol\n- !permit { role: !user carol, privileges: [ read, update ], resource: !policy dev }\n"
        )
        self.printed("dev", role=user("alice"))
        self.show("dev/db", role=user("alice"))
        self.show("dev", role=user("carol"), status=403)
        for policy, role in (("dev/db", user("carol")), ("root", user("alice")), ("none", ADMIN)):
            message = self.error(self.show(policy, role=role, status=404), 404, "not_found")
            self.assertEqual(message, f"Policy '{policy}' not found in account 'acme'")
        self.assertEqual(self.client.get("/policies/acme/policy/root").status, 401)

    def test_parameters(self) -> None:
        """``depth`` is 0 to 64 and ``limit`` 0 to 100,000; anything else is 400 with an empty body (POL-81)."""
        self.load(DEV)
        for query in ("depth=0", "depth=64", "limit=100000", "depth=3;limit=50", "depth=1&limit=99"):
            self.show(query=f"?{query}")
        for value in ("-1", "abc", "", "1e3", "1.0", "0x1", "%20", "9" * 30):
            for name in ("depth", "limit"):
                self.assertEqual(self.show(query=f"?{name}={value}", status=400).body, b"")
        for query in ("depth=65", "limit=100001", "depth", "limit"):
            self.assertEqual(self.show(query=f"?{query}", status=400).body, b"")
        self.show(query="?limit=50&limit=60", status=422)

    def test_depth(self) -> None:
        """Ids with more slashes than ``depth`` are left out, and what is said of them; users are always there (POL-81)."""
        self.load(DEV)
        shallow = self.printed(query="?depth=0")
        self.assertIn("- !user bob\n", shallow)
        self.assertNotIn("!host h", shallow)
        self.assertNotIn("!grant", shallow)
        deeper = self.printed(query="?depth=1")
        self.assertIn("      role: !group ops\n", deeper)
        self.assertNotIn("password", deeper)
        self.assertEqual(self.printed(query="?depth=2"), self.printed())

    def test_limit(self) -> None:
        """More objects than ``limit`` are refused: resources, annotations and permissions count (POL-81, LIM-17)."""
        self.load(DEV)
        # Nine resources beside admin and root, two annotations, four permissions.
        for query, limit in (("?limit=2", 2), ("?limit=16", 16)):
            message = self.error(self.show(query=query, status=422), 422, "unprocessable_entity")
            told = f"CONJ00164E Policy max allowed 'limit' = {limit} exceeded. Value for policy is: 17"
            self.assertEqual(message, self.worded(told))
        self.show(query="?limit=17")

    def test_users_of_ambiguous_policies(self) -> None:
        """A user stands in the policy that owns it where several fit, in the first where none does, else at the top
        (POL-78).
        """
        self.load(
            "- !policy { id: a/b, body: [ !user x ] }\n- !policy { id: a-b, body: [ !user v ] }\n- !user z@a-b\n"
            "- !user u@no\n"
        )
        printed = self.printed()
        self.assertIn("id: a/b\n  body:\n    - !user x\n", printed)
        self.assertIn("id: a-b\n  body:\n    - !user v\n    - !user\n      id: z\n      owner: !user /admin\n", printed)
        self.assertIn("\n- !user u@no\n", f"\n{printed}")

    def test_others_users_stay_hidden(self) -> None:
        """The owner of a policy isn't told of users and things that only look like theirs."""
        self.load(
            "- !user lead\n- !policy { id: a/b, body: [ !user x ] }\n- !policy { id: a-b, owner: !user lead }\n- !host a-b\n"
        )
        self.assertEqual(self.printed("a-b", role=user("lead")), "- !policy\n  id: a-b\n  owner: !user /lead\n")

    def test_what_is_hidden(self) -> None:
        """Of records beneath a policy that its owner doesn't see he is told no id, and what he is told doesn't load back
        (POL-80).
        """
        self.load(
            "- !user lead\n- !user carol\n- !policy\n  id: a\n  owner: !user lead\n  body:\n    - !group g\n"
            "    - !host { id: secret, owner: !user /carol, annotations: { of: a merger }, restricted_to: 192.0.2.1 }\n"
            "    - !policy { id: plans, owner: !user /carol, body: [ !variable bid , !user eve ] }\n"
            "    - !grant { role: !group g, member: !user /carol }\n"
            "    - !permit { role: !user /carol, privilege: read, resource: !group g }\n"
        )
        lead, carol = user("lead"), user("carol")
        printed = self.printed("a", role=lead)
        self.assertEqual(
            printed,
            "- !policy\n  id: a\n  owner: !user /lead\n  body:\n    - !user '/[REDACTED]'\n    - !policy '/[REDACTED]'\n"
            "    - !variable '/[REDACTED]'\n    - !host '/[REDACTED]'\n    - !group g\n    - !grant\n      role: !group g\n"
            "      member: !user /carol\n"
            "    - !permit\n      role: !user /carol\n      privileges: [ read ]\n      resource: !group g\n",
        )
        group = self.client.get("/resources/acme/group/a%2Fg", role=lead).json()
        members = self.client.get("/roles/acme/group/a%2Fg?members", role=lead).json()
        self.assertEqual(group["permissions"][0]["role"], str(carol))
        self.assertIn(str(carol), [row["member"] for row in members])
        for name in ("host/a%2Fsecret", "policy/a%2Fplans", "variable/a%2Fplans%2Fbid", "user/eve@a-plans", "user/carol"):
            self.assertEqual(self.client.get(f"/resources/acme/{name}", role=lead).status, 404, name)
        for method in ("POST", "PATCH", "PUT"):
            self.assertIn(
                "Illegal absolute id", self.error(self.load(printed, method=method, status=422), 422, "policy_invalid")
            )
        self.assertIn(b"/[REDACTED]", self.show("a", role=lead, headers=[("Content-Type", "application/json")]).body)
        whole = self.printed("a")
        self.assertNotIn("REDACTED", whole + self.printed())
        before = rows(self.memory, recorders=False)
        self.load(whole, method="PATCH")
        self.assertEqual(rows(self.memory, recorders=False), before)

    def test_annotations_of_root(self) -> None:
        """The root policy itself is printed when a document has annotated it, and loads back."""
        self.load("- !policy { id: root, annotations: { note: hello } }\n")
        self.assertEqual(self.printed(), "- !policy\n  id: root\n  annotations:\n    note: hello\n- !user admin\n")
        self.load(self.printed(), method="PUT")

    def test_deep_policies(self) -> None:
        """Policies that stand deeper in each other than documents may nest are printed so that they load back."""
        path = ""
        for number in range(40):
            path = f"{path}/p{number}".lstrip("/")
            self.load(f"- !policy {path}\n")
        self.load("- !host h\n", policy=path)
        before = rows(self.memory, recorders=False)
        printed = self.printed()
        self.setUp()
        self.load(printed, method="PUT")
        self.assertEqual(rows(self.memory, recorders=False), before)

    def test_what_is_left_out(self) -> None:
        """A membership, a permission or an annotation that no document can declare is named by a comment; a document in JSON
        has none (POL-96).
        """
        self.load("- !host ../x\n- !variable v\n- !policy { id: p, body: [ !layer l, !group g ] }\n")
        for target in ("layer/p%2Fl?members&member=acme:host:../x", "group/p%2Fg?members&member=acme:user:admin"):
            self.assertEqual(self.client.post(f"/roles/acme/{target}", role=ADMIN).status, 204)
        self.memory.permissions[("acme:variable:v", "read", "acme:host:../x")] = None
        self.memory.annotations[("acme:group:p/g", "path")] = ("../y", None)
        left_out = (
            "# Left out, because no document can declare it:\n"
            "# - the annotation path of 'acme:group:p/g'\n"
            "# - the member 'acme:host:../x' of 'acme:layer:p/l'\n"
            "# - the privilege read of 'acme:host:../x' on 'acme:variable:v'\n"
        )
        printed = self.printed()
        self.assertEqual(printed.partition("- !")[0], left_out)
        self.assertIn("- !host '../x'\n", printed)
        self.assertIn("member: !user /admin", printed)
        self.load(printed, method="PUT")
        told = self.show(headers=[("Content-Type", "application/json")])
        self.assertNotIn(b"Left out", told.body)
        self.assertIsInstance(told.json(), list)

    def test_much_is_left_out(self) -> None:
        """The comment names 100 things and counts the others, and an id with line ends is one line of it (POL-96)."""
        self.load('- !group g\n- !host "../a\\n- !group h"\n' + "".join(f"- !host ../h{n}\n" for n in range(120)))
        for full in [full for full in self.memory.resources if ":host:" in full]:
            self.memory.memberships[("acme:group:g", full, False)] = (False, None)
        lines = [line for line in self.printed().splitlines() if line.startswith("#")]
        self.assertEqual((len(lines), lines[-1]), (102, "# - and 21 more"))
        self.assertIn('"acme:host:../a\\x0a- !group h"', lines[1])

    def test_hosts_of_factories(self) -> None:
        """The effective policy loads again where host factories have made hosts, at the root too, and changes nothing
        (POL-95).
        """
        self.load("- !policy\n  id: api\n  body:\n  - !layer l\n  - !host-factory { id: f, layers: [ !layer l ] }\n")
        asked = b"host_factory=acme:host_factory:api/f&expiration=2099-01-01T00:00:00Z"
        [made] = self.client.post("/host_factory_tokens", asked, role=ADMIN).json()
        for host in ("web-1", "api/web-2", "other/web-3"):
            header = [("Authorization", f"Token token={made['token']}")]
            answer = self.client.post("/host_factories/hosts", f"id={host}&annotations[n]=1".encode(), headers=header)
            self.assertEqual(answer.status, 201, answer.body)
        printed, before = self.printed(), rows(self.memory)
        for method in ("POST", "PATCH", "PUT"):
            answer = self.load(printed, method=method)
            self.assertEqual((answer.json()["created_roles"], rows(self.memory)), ({}, before))
        self.assertEqual(self.printed(), printed)

    def test_long_policies_pause(self) -> None:
        """While a long policy is printed, others get their turn."""
        self.load("".join(f"- !host h{number}\n" for number in range(3000)))
        connection = self.client.begin("GET", "/policies/acme/policy/root", role=ADMIN)
        self.assertEqual(connection.sent, b"")
        self.assertTrue([call for call in self.clock.getDelayedCalls() if call.getTime() == self.clock.seconds()])
        self.assertEqual(connection.answer().body.count(b"!host"), 3000)

    @given(STATEMENTS)
    @settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
    def test_root_loads_back(self, statements: list[str]) -> None:
        """What is printed of root, loaded into the root of another account of that name, makes the same rows (POL-77)."""
        self.setUp()
        self.load_leniently(statements)
        before, credentials = rows(self.memory), set(self.memory.credentials)
        printed = self.printed()
        self.load(printed, method="PUT")
        self.assertEqual(rows(self.memory), before)
        self.setUp()
        self.load(printed, method="PUT")
        self.assertEqual(rows(self.memory), before)
        self.assertEqual(set(self.memory.credentials), credentials)
        self.assertEqual(self.printed(), printed)

    @given(STATEMENTS, st.sampled_from(["a", "a/b", "a-b"]))
    @example(["!user {id: 'a', owner: !policy '/root'}"], "a")
    @example(["!layer {id: '', owner: !group '/ops'}"], "a-b")
    @example(["!grant {role: !policy '/root', member: !policy '/root'}"], "a")
    @settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
    def test_policies_load_back(self, statements: list[str], policy: str) -> None:
        """What is printed of a policy, loaded into the one around it, makes the same rows about what it holds; only the
        recorder is another. So the same is printed again, where it doesn't take the recorder to tell what the policy holds
        (POL-75, POL-77).
        """
        self.setUp()
        self.load(AROUND)
        own = f"acme:policy:{policy}"
        others = {full for full in self.memory.resources if full != own and not full.startswith(f"{own}/")}
        self.load_leniently(statements, policy)
        before, lasting = rows_but_of(self.memory, others), not known_by_recorder(self.memory, policy)
        printed = self.printed(policy)
        self.setUp()
        self.load(AROUND)
        self.load(printed, policy="a" if policy == "a/b" else "root", method="PATCH")
        self.assertEqual(rows_but_of(self.memory, others), before)
        if lasting:
            self.assertEqual(self.printed(policy), printed)


class ConjurEffectiveTests(EffectiveTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR
