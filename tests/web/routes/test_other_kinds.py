"""Records of kinds that policies make up, in every mode and through every route."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from svc.web.http.refusal_responses import V2
from tests.web.routes.test_installed_policies import DELETED, MODES, InstalledCase
from tests.web.world import ADMIN, user

ANN: Final = user("ann")
BOB: Final = user("bob")
COOK: Final = "!role { kind: job, id: cook }"
PIZZA: Final = "!resource { kind: food, id: pizza }"
#: Records that the rows of the table refer to.
BOTH: Final = f"- {COOK}\n- {PIZZA}\n- !user ann\n- !group g\n"

#: Documents, what they are loaded into, and what is there afterwards.
MADE_UP: Final = (
    (f"- {PIZZA}", "root", "food:pizza"),
    (f"- {COOK}", "root", "job:cook"),
    ("- !resource { kind: food, id: p/q/pizza, owner: !user admin, annotations: { a: b } }", "root", "food:p/q/pizza"),
    ("- !role { kind: job, id: cook, owner: !group g, annotations: { a: b } }\n- !group g", "root", "job:cook"),
    (f"- !policy {{ id: team, body: [ {COOK}, {PIZZA} ] }}", "root", "job:team/cook", "food:team/pizza"),
    ("- !policy { id: team, body: [ !resource { kind: food }, !variable v ] }", "root", "food:team"),
    (f"- {COOK}\n- !resource {{ kind: food }}\n", "team", "job:team/cook", "food:team"),
    (f"{BOTH}- !grant {{ role: {COOK}, members: [ !user ann, {{ role: !group g, admin: true }} ] }}", "root", "job:cook"),
    (f"{BOTH}- !grant {{ role: !group g, member: {COOK} }}", "root", "job:cook"),
    (f"{BOTH}- !grant {{ role: {{ kind: job, id: cook }}, member: {{ kind: user, id: ann }} }}", "root", "job:cook"),
    (f"{BOTH}- !permit {{ role: {COOK}, privileges: [ read, eat ], resource: {PIZZA} }}", "root", "food:pizza"),
    (f"{BOTH}- !permit {{ role: !group g, privilege: read, resource: {{ kind: food, id: pizza }} }}", "root", "food:pizza"),
    (f"{BOTH}- !variable {{ id: v, owner: {COOK} }}\n- !host {{ id: h, owner: {COOK} }}", "root", "variable:v", "host:h"),
    (f"- &c {COOK}\n- !group g\n- !grant {{ role: !group g, member: *c }}", "root", "job:cook"),
    ("- !resource { kind: food, id: x, annotations: { a: b } }\n- !role { kind: food, id: x }", "root", "food:x"),
    ("- !role { kind: food, id: x }\n- !group g\n- !resource { kind: food, id: x, owner: !group g }", "root", "food:x"),
    ("- !role { kind: job, id: 'user:ann' }\n- !role { kind: job, id: 'acme:user:x' }", "root", "job:user:ann"),
    ("- !resource { kind: cf-service-instance, id: '7' }\n- !role { kind: Job, id: a }", "root", "Job:a", "-job:a"),
    ("- !role { kind: job, id: a }\n- !role { kind: job-a, id: a }\n- !role { kind: job2, id: a }", "root", "job2:a"),
    ("- !resource { kind: variable, id: v }\n- !role { kind: user, id: u }", "root", "variable:v", "user:u"),
)

#: What takes something away where :data:`BOTH` is, with grants and permissions: how many of these stay, and of the records.
TAKEN: Final = (
    (f"- !delete {{ record: {PIZZA} }}", 2, 0, "-food:pizza", "job:cook"),
    (f"- !delete {{ record: {COOK} }}", 0, 0, "-job:cook", "food:pizza"),
    (f"- !delete {{ records: [ {PIZZA}, {{ kind: job, id: cook }} ] }}", 0, 0, "-job:cook", "-food:pizza"),
    (f"- !revoke {{ role: {COOK}, member: !user ann }}", 1, 1, "job:cook"),
    (f"- !revoke {{ role: !group g, member: {COOK} }}", 1, 1, "job:cook"),
    (f"- !deny {{ role: {COOK}, privilege: read, resource: {PIZZA} }}", 2, 0, "food:pizza"),
)
GIVEN: Final = (
    f"- !grant {{ role: {COOK}, member: !user ann }}\n- !grant {{ role: !group g, member: {COOK} }}\n"
    f"- !permit {{ role: {COOK}, privilege: read, resource: {PIZZA} }}\n"
)
#: Kinds that nobody makes up, as YAML.
REFUSED: Final = ("User", "users", "policies", "host-factory", "'a b'", "a.b", "'a:b'", "a/b", "'@'", "é", "''", "x" * 65)


class OtherKindTests(InstalledCase):
    """Kinds beyond ours, in the vocabulary of the installed base."""

    dialect = CONJUR

    def read(self, path: str, role: RoleName = ADMIN, status: int = 200) -> object:
        """What a route answers, as JSON."""
        answer = self.client.get(path, role=role)
        self.assertEqual(answer.status, status, (path, answer.body))
        return answer.json() if status == 200 else None

    def ids(self, path: str, role: RoleName = ADMIN) -> list[str]:
        """The ids that a list of resources has."""
        found = self.read(path, role)
        assert isinstance(found, list)
        return [each["id"].removeprefix("acme:") for each in found]

    def test_stored(self) -> None:
        """They are made in every mode, are roles and resources at once, get no key, and are read back (POL-93, POL-77)."""
        for document, into, *expected in MADE_UP:
            before = "- !policy team\n" if into == "team" else ""
            self.everywhere(document, *expected, into=into, before=before)
            for mode in MODES:
                self.assertEqual(self.load(document, into, method=mode).json()["created_roles"], {})
            for record in expected:
                kind, _, identifier = record.partition(":")
                if kind.lower() in {"food", "job"}:
                    self.assertNotIn(f"acme:{record}", self.memory.credentials)
                    owner = f"acme:{self.owner(record)}"
                    self.assertIn((f"acme:{record}", owner, True), self.memory.memberships)
                    self.read(f"/roles/acme/{kind}/{quote(identifier, safe='')}")
                    self.read(f"/resources/acme/{kind}/{quote(identifier, safe='')}")
            self.reads_back()

    def test_declared_twice(self) -> None:
        """A role with nothing but its name may stand beside a resource of that name; anything else is declared twice
        (POL-93, POL-22).
        """
        for text in (
            "- !resource { kind: food, id: x }\n- !resource { kind: food, id: x }",
            "- !role { kind: food, id: x }\n- !role { kind: food, id: x }",
            "- !role { kind: food, id: x }\n- !resource { kind: food, id: x }\n- !role { kind: food, id: x }",
            "- !role { kind: food, id: x, annotations: { a: b } }\n- !resource { kind: food, id: x }",
            "- !role { kind: user, id: x }\n- !resource { kind: user, id: x }",
        ):
            self.assertIn(" 'x' is declared more than once", self.invalid(text))
        self.assertIn("absolute id", self.invalid("- !resource { kind: food, id: x }\n- !role { kind: food, id: /x }"))

    def test_taken_away(self) -> None:
        """They are revoked, denied and deleted, and a dry run reports the same (POL-93, POL-70)."""
        for document, grants, permissions, *expected in TAKEN:
            for mode in ("PATCH", "PUT"):
                self.setUp()
                self.load(BOTH + GIVEN)
                text = document if mode == "PATCH" else BOTH + GIVEN + document
                path = "/policies/acme/policy/root?dryRun"
                tried = self.client.request(mode, path, body=text.encode(), role=ADMIN).json()
                before = set(self.memory.resources)
                self.load(text, method=mode)
                told = {item["identifier"] for item in tried["deleted"]["items"]}
                self.assertEqual(told, before - set(self.memory.resources), document)
                left = [key for key in self.memory.memberships if not key[2]]
                self.assertEqual((len(left), len(self.memory.permissions)), (grants, permissions), document)
                for record in expected:
                    self.assertEqual(self.exists(record.removeprefix("-")), record[0] != "-", document)

    def test_tried(self) -> None:
        """A dry run tells them as roles, with their members and permissions (POL-69, POL-93)."""
        self.load(BOTH)
        answer = self.client.post("/policies/acme/policy/root?dryRun", GIVEN.encode(), role=ADMIN).json()
        items = {item["identifier"]: item for item in answer["updated"]["after"]["items"]}
        cook, pizza = items["acme:job:cook"], items["acme:food:pizza"]
        self.assertEqual((cook["type"], cook["id"], cook["permissions"]), ("job", "cook", {"read": ["acme:food:pizza"]}))
        self.assertEqual((cook["members"], cook["memberships"]), (["acme:user:admin", "acme:user:ann"], ["acme:group:g"]))
        self.assertEqual((pizza["type"], pizza["members"]), ("food", ["acme:user:admin"]))
        self.assertEqual(pizza["permitted"], {"read": ["acme:job:cook"]})
        gains = answer["access"]["gains"]
        self.assertIn("acme:food:pizza", json.dumps(gains))
        self.setUp()
        answer = self.client.post("/policies/acme/policy/root?dryRun", (BOTH + GIVEN).encode(), role=ADMIN).json()
        created = {item["identifier"] for item in answer["created"]["items"]}
        self.assertLess({"acme:job:cook", "acme:food:pizza"}, created)

    def test_listed(self) -> None:
        """Lists have them in the order of full ids, whole or by kind; a kind that none has matches nothing (RES-3)."""
        kinds = ("job", "job-a", "job2", "Job", "job_a")
        self.load("".join(f"- !role {{ kind: {kind}, id: a }}\n" for kind in kinds) + "- !user ann\n- !variable v")
        found = ["Job:a", "job-a:a", "job2:a", "job:a", "job_a:a", "policy:root", "user:admin", "user:ann", "variable:v"]
        self.assertEqual(self.ids("/resources/acme"), found)
        self.assertEqual(self.ids("/resources/acme?kind=job&kind=job-a&kind=job2"), ["job-a:a", "job2:a", "job:a"])
        self.assertEqual(self.ids("/resources/acme/job"), ["job:a"])
        self.assertEqual(self.ids("/resources?kind=job-a"), ["job-a:a"])
        self.assertEqual(self.ids("/resources/acme?search=job2"), ["job2:a"])
        self.assertEqual(self.ids("/resources/acme?kind=jo"), [])
        self.assertEqual(self.ids("/resources/acme?kind=users&kind=a.b"), [])
        self.assertEqual(self.read("/resources/acme/job?count"), {"count": 1})
        self.read("/resources/acme/job", ANN, status=404)
        self.assertEqual(self.ids("/resources/acme/job?offset=7"), [])
        self.assertEqual(self.ids("/resources/acme?kind=job", ANN), [])
        for kind in ("users", "Variable", "a.b", "none"):
            self.read(f"/resources/acme/{kind}", status=404)
            self.read(f"/resources/acme/{kind}/a", status=404)

    def test_roles(self) -> None:
        """Members and memberships are shown, listed by kind, added and removed; checks and questions find ways through them
        (POL-93).
        """
        self.load(BOTH + GIVEN + f"- !permit {{ role: {COOK}, privilege: eat, resource: !group g }}")
        cook, pizza = "/roles/acme/job/cook", "/resources/acme/food/pizza"
        members = self.read(f"{cook}?members&kind=user")
        assert isinstance(members, list)
        self.assertEqual([each["member"] for each in members], ["acme:user:admin", "acme:user:ann"])
        self.assertEqual(self.read(f"{cook}?members&kind=job&count"), {"count": 0})
        held = self.read("/roles/acme/user/ann?memberships&kind=job&kind=users")
        assert isinstance(held, list)
        self.assertEqual([each["role"] for each in held], ["acme:job:cook"])
        self.assertEqual(self.read("/roles/acme/user/ann?all"), ["acme:group:g", "acme:job:cook", "acme:user:ann"])
        self.assertEqual(self.read("/roles/acme/user/ann?all&filter=job:cook"), ["acme:job:cook"])
        self.read(f"{pizza}?check&privilege=read&role=acme:user:ann", status=204)
        self.read(f"{pizza}?check&privilege=read&role=acme:job:cook", status=204)
        self.read(f"{pizza}?check&privilege=eat", ANN, status=404)
        self.assertIn("acme:job:cook", json.dumps(self.read(f"{pizza}?permitted_roles&privilege=read")))
        self.assertIn('"can": true', json.dumps(self.read(f"{pizza}?can&privilege=read&role=acme:user:ann")))
        reach = self.read(f"{cook}?reach")
        self.assertIn("acme:food:pizza", json.dumps(reach))
        self.assertIn("acme:job:cook", json.dumps(self.read("/roles/acme/user/ann?graph")))
        for method, there in (("POST", True), ("DELETE", False)):
            self.load("- !role { kind: job, id: b }")
            answer = self.client.request(method, f"{cook}?members&member=acme:job:b", role=ADMIN)
            self.assertEqual((answer.status, self.granted("job:cook", "job:b")), (204, there), answer.body)
        listed = self.ids("/resources/acme?role=acme:job:cook")
        self.assertEqual(listed, ["food:pizza", "group:g"])
        self.assertEqual(self.ids("/resources/acme?owner=job:cook"), [])

    def test_nothing_else(self) -> None:
        """They neither log in nor have keys, tokens, values or addresses of their own (POL-93, NAME-5)."""
        self.load(BOTH + "- !user { id: job/cook }\n- !role { kind: job, id: 'user:ann' }")
        for login in ("job/cook", "job:cook", "acme:job:cook", "role/job/cook"):
            answer = self.client.post(f"/authn/acme/{quote(login, safe='')}/authenticate", b"x" * 50)
            self.assertEqual(answer.status, 401, login)
        for role, status in (
            ("job:cook", 405),
            ("acme:job:cook", 405),
            ("job:none", 404),
            ("acme:food:pizza", 405),
            ("job:user:ann", 404),
            ("acme:job:user:ann", 405),
            ("users:ann", 404),
        ):
            answer = self.client.request("PUT", f"/authn/acme/api_key?role={role}", role=ADMIN)
            self.assertEqual(answer.status, status, (role, answer.body))
        self.assertEqual([name for name in self.memory.credentials if ":job:" in name or ":food:" in name], [])
        for method in ("GET", "POST"):
            answer = self.client.request(method, "/secrets/acme/food/pizza", body=b"v", role=ADMIN)
            self.assertEqual(answer.status, 404, answer.body)
        text = "- !role { kind: job, id: cook, restricted_to: 10.0.0.0/8 }"
        self.assertIn("No such attribute 'restricted_to'", self.at(text)[2])
        self.assertIn("No such attribute 'body'", self.at("- !resource { kind: food, id: x, body: [] }")[2])

    def test_kept(self) -> None:
        """A deleted record is kept, and restored with its grants and permissions (POL-93, DEL-1)."""
        self.load(BOTH + GIVEN)
        held, permitted = dict(self.memory.memberships), dict(self.memory.permissions)
        self.load(f"- !delete {{ records: [ {COOK}, {PIZZA} ] }}", method="PATCH")
        listed = self.read(DELETED)
        assert isinstance(listed, list)
        self.assertEqual({each["id"] for each in listed}, {"acme:job:cook", "acme:food:pizza"})
        numbers = "&".join(f"number={each['number']}" for each in listed)
        answer = self.client.post(f"{DELETED}?{numbers}", b"", role=ADMIN)
        self.assertEqual((answer.status, answer.json()["left"]), (200, []), answer.body)
        self.assertEqual((self.memory.memberships.keys(), self.memory.permissions.keys()), (held.keys(), permitted.keys()))

    def test_authority(self) -> None:
        """To replace a policy takes ``update`` on what it has of such kinds, too, and they hide like others (POL-41)."""
        self.load("- !user ann\n- !user bob\n- !policy { id: team, owner: !user ann }\n")
        self.load(f"- {COOK}\n- !resource {{ kind: food, id: pizza, owner: !user /bob }}\n", policy="team")
        self.load("[]", policy="team", role=ANN, method="PUT", status=403)
        self.load(f"- !delete {{ record: {PIZZA} }}", policy="team", role=ANN, method="PATCH", status=403)
        text = self.client.get("/policies/acme/policy/team", role=ANN).body.decode()
        self.assertIn("- !resource\n      id: '/[REDACTED]'\n      kind: food\n", text)
        self.assertNotIn("pizza", text)
        self.assertIn("kind: job", text)
        self.read("/resources/acme/food/team%2Fpizza", ANN, status=404)
        self.load(f"- !grant {{ role: {COOK}, member: !user ann }}", policy="team", role=BOB, status=404)
        self.load("- !policy other\n- !permit { role: !user bob, privileges: [ create, update ], resource: !policy other }")
        self.load(
            "- !grant { role: !role { kind: job, id: /team/cook }, member: !user /bob }",
            policy="other",
            role=BOB,
            status=403,
        )
        self.load(f"- {COOK}", policy="team", method="PATCH", role=ANN)
        answer = self.client.request("DELETE", "/branches/acme/team", role=ANN, headers=(("Accept", V2),))
        self.assertIn(answer.status, {403, 404}, answer.body)
        answer = self.client.request("DELETE", "/branches/acme/team", role=ADMIN, headers=(("Accept", V2),))
        self.assertEqual(answer.status, 204, answer.body)
        self.assertFalse(self.exists("food:team/pizza") and self.exists("job:team/cook"))

    def test_refused(self) -> None:
        """A kind that looks like one of ours, or has other characters, is refused, in records and references (NAME-30)."""
        self.load("- !group g")
        for kind in REFUSED:
            for text in (
                f"- !resource {{ kind: {kind}, id: x }}",
                f"- !role {{ kind: {kind}, id: x }}",
                f"- !grant {{ role: !group g, member: {{ kind: {kind}, id: x }} }}",
                f"- !permit {{ role: !group g, privilege: read, resource: {{ kind: {kind}, id: x }} }}",
                f"- !delete {{ record: !resource {{ kind: {kind}, id: x }} }}",
            ):
                words = self.at(text)[2]
                self.assertTrue(words.startswith("Unknown kind '"), words)
                self.assertTrue(words.endswith("underscores that don't look like one of these"), words)
        self.assertIn("Unknown kind 'variable' of type Role", self.at("- !role { kind: variable, id: x }")[2])
        self.assertIn(
            "Food 'none' not found",
            self.invalid("- !permit { role: !group g, privilege: r, resource: { kind: food, id: none } }"),
        )
        for field in ("owner: !resource { kind: job, id: x }", "owner: !role { kind: webservice, id: x }"):
            self.at(f"- !group {{ id: h, {field} }}")
        self.at("- !host-factory { id: f, layers: [ { kind: job, id: x } ] }")

    def test_limit(self) -> None:
        """An account has a hundred kinds of its own at most, whatever loads made them up (LIM-24)."""
        for start in (0, 60):
            kinds = range(start, start + 50)
            self.load("".join(f"- !resource {{ kind: k{number}, id: x }}\n" for number in kinds))
        for text in ("- !resource { kind: more, id: x }", "- !role { kind: more, id: x }\n- !group g"):
            self.assertIn("would have 101 kinds of its own; it may have 100", self.invalid(text))
        self.load("- !resource { kind: k7, id: y }\n- !group g")


class NativeKindTests(InstalledCase):
    """Kinds beyond ours in the dialect ``native``."""

    def test_refused(self) -> None:
        """They are refused as likely mistakes, and the words list the kinds that there are (POL-93, POL-90)."""
        roles = "there are group, host, host_factory, layer, policy, user"
        ours = "there are configuration, group, host, host_factory, layer, policy, public_key, user, variable, webservice"
        for mode in MODES:
            for text, listed in ((f"- {PIZZA}", ours), (f"- {COOK}", roles), ("- !resource { kind: Users, id: x }", ours)):
                answer = self.load(text, method=mode, status=422)
                self.assertTrue(answer.json()["error"]["message"].endswith(listed), answer.body)
        self.assertEqual(self.client.get("/resources/acme/food/pizza", role=ADMIN).status, 404)
        self.assertEqual(self.client.get("/resources/acme?kind=food", role=ADMIN).json(), [])
