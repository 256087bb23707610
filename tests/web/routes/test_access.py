"""Questions about who can do what, over HTTP, in both dialects."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any, Final

from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from tests.web.world import ADMIN, WorldCase, user

POLICY: Final = """
- !user ann
- !user bob
- !user eve
- !group ops
- !group team
- !policy
  id: db
  body:
  - !variable password
  - !variable hidden
- !host runner
- !grant { role: !group ops, member: !group team }
- !grant { role: !group team, members: [ !user ann, !host runner ] }
- !permit { role: !group ops, privileges: [ read, execute ], resource: !variable db/password }
- !permit { role: !user eve, privileges: [ see ], resources: [ !variable db/password, !group team, !host runner ] }
"""

PASSWORD: Final = "/resources/acme/variable/db%2Fpassword"
RUNNER: Final = RoleName("acme", "host", "runner")
EVE, BOB, ANN = user("eve"), user("bob"), user("ann")


def steps(*pairs: tuple[str | None, str]) -> list[dict[str, str | None]]:
    """A way in JSON."""
    return [{"role": None if role is None else f"acme:{role}", "by": by} for role, by in pairs]


class AccessCase(WorldCase):
    """A variable, and those who come to it."""

    def setUp(self) -> None:
        """Load the policy."""
        super().setUp()
        self.load(POLICY)

    def ask(self, path: str, role: RoleName = ADMIN, status: int = 200) -> Any:
        """The answer, which must have this status; ``None`` when it is empty."""
        answer = self.client.get(path, role=role)
        self.assertEqual(answer.status, status, answer.body)
        return answer.json() if answer.body else None


class AccessTests(AccessCase):
    """Who can, one role, and what a role reaches."""

    def test_who_can(self) -> None:
        """Each role comes with a way whose steps lead to the resource, the shortest first (ACC-1, ACC-2, ACC-3)."""
        member, permitted, owner = "member", "permitted", "owner"
        found = self.ask(f"{PASSWORD}?who_can&privilege=execute")
        self.assertIsNone(found["after"])
        self.assertEqual(
            [(holder["role"], holder["way"]) for holder in found["holders"]],
            [
                ("acme:group:ops", steps(("group:ops", permitted))),
                ("acme:policy:db", steps(("policy:db", owner))),
                ("acme:group:team", steps(("group:team", member), ("group:ops", permitted))),
                ("acme:user:admin", steps(("user:admin", member), ("group:ops", permitted))),
                ("acme:host:runner", steps(("host:runner", member), ("group:team", member), ("group:ops", permitted))),
                ("acme:user:ann", steps(("user:ann", member), ("group:team", member), ("group:ops", permitted))),
            ],
        )
        everybody = self.ask(f"{PASSWORD}?permitted_roles&privilege=execute")
        self.assertEqual(sorted(holder["role"] for holder in found["holders"]), everybody)

    def test_hidden(self) -> None:
        """Roles that the caller doesn't see are not named, but for the first, and several are one step (ACC-4)."""
        found = self.ask(f"{PASSWORD}?who_can&privilege=execute", EVE)
        ways = {holder["role"]: holder["way"] for holder in found["holders"]}
        self.assertEqual(ways["acme:group:ops"], steps(("group:ops", "permitted")))
        self.assertEqual(ways["acme:user:ann"], steps(("user:ann", "member"), ("group:team", "member"), (None, "permitted")))
        self.load("- !deny { role: !user eve, privileges: [ see ], resource: !group team }", method="PATCH", status=201)
        found = self.ask(f"{PASSWORD}?who_can&privilege=execute", EVE)
        ways = {holder["role"]: holder["way"] for holder in found["holders"]}
        self.assertEqual(ways["acme:user:ann"], steps(("user:ann", "member"), (None, "permitted")))
        self.assertNotIn("group:ops", str(ways["acme:user:ann"]))

    def test_pages(self) -> None:
        """A page goes on where ``after`` says, which the last one lacks; a made-up one leads to nothing else (ACC-5)."""
        whole = self.ask(f"{PASSWORD}?who_can&privilege=execute")["holders"]
        for limit in (1, 2, 4):
            found: list[Any] = []
            after: str | None = ""
            while after is not None:
                page = self.ask(f"{PASSWORD}?who_can&privilege=execute&limit={limit}{after and f'&after={after}'}")
                self.assertLessEqual(len(page["holders"]), limit)
                found += page["holders"]
                after = page["after"]
            self.assertEqual(found, whole)
        for wrong in ("0", "1001", "x", "01", ""):
            self.ask(f"{PASSWORD}?who_can&privilege=execute&limit={wrong}", status=422)
        for fields in ([2, 1, "acme:group:secret", "acme:"], [3, 0], [900, 1, "a"], [1, 0, "\U0010ffff"]):
            text = b"\x02" + json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
            cursor = urlsafe_b64encode(text).rstrip(b"=").decode()
            answer = self.client.get(f"{PASSWORD}?who_can&privilege=execute&after={cursor}", role=ADMIN)
            self.assertIn(answer.status, {200, 422})
            if answer.status == 200:
                self.assertTrue(all(holder in whole for holder in answer.json()["holders"]), fields)
        for raw in (
            b"",
            b"\x01x",
            b"\x02",
            b"\x02[",
            b"\x02[1]",
            b"\x02[0,1]",
            b"\x02[1.0,1]",
            b"\x02[true,1]",
            b"\x02[1, 1]",
            b'\x02[1,1,"\\u0000"]',
            b"\x02[1,1,7]",
            b"\x02" + b"[" * 3000,
            b'\x02{"a":1,"b":2}',
        ):
            cursor = urlsafe_b64encode(raw).rstrip(b"=").decode()
            self.ask(f"{PASSWORD}?who_can&privilege=execute&after={cursor}", status=422)
        reached = self.ask("/roles/acme/user/admin?reach&limit=1")
        self.ask(f"{PASSWORD}?who_can&privilege=execute&after={reached['after']}", status=422)

    def test_direct_and_count(self) -> None:
        """Those who have it themselves can be asked for alone, and how many there are (ACC-6)."""
        found = self.ask(f"{PASSWORD}?who_can&privilege=execute&direct=true")["holders"]
        self.assertEqual([holder["role"] for holder in found], ["acme:group:ops", "acme:policy:db"])
        for more, count in (("", 6), ("&direct", 2), ("&direct=false", 6)):
            self.assertEqual(self.ask(f"{PASSWORD}?who_can&privilege=execute&count{more}"), {"count": count})
        self.assertEqual(len(self.ask(f"{PASSWORD}?who_can&privilege=execute&count=false")["holders"]), 6)
        self.ask(f"{PASSWORD}?who_can&privilege=execute&count=x", status=422)

    def test_far(self) -> None:
        """A list whose ways are too long to be followed is refused (ACC-7)."""
        text = b"\x02[5000,1]"
        cursor = urlsafe_b64encode(text).rstrip(b"=").decode()
        error = self.error(
            self.client.get(f"{PASSWORD}?who_can&privilege=read&after={cursor}", role=ADMIN), 422, "unprocessable_entity"
        )
        self.assertIn("500", error)

    def test_can(self) -> None:
        """A yes comes with a way, a no with what is missing and what the role has; both agree with a check (ACC-8, ACC-9,
        ACC-10).
        """
        path = f"{PASSWORD}?can&role={RUNNER}&privilege"
        way = steps(("host:runner", "member"), ("group:team", "member"), ("group:ops", "permitted"))
        yes = {"can": True, "way": way, "missing": [], "privileges": []}
        self.assertEqual(self.ask(f"{path}=execute"), yes)
        missing = steps(("policy:db", "owner"))
        no = {"can": False, "way": None, "missing": missing, "privileges": ["execute", "read"]}
        self.assertEqual(self.ask(f"{path}=update"), no)
        self.assertEqual(self.ask(f"{path}=update", EVE)["missing"], [])
        other = self.ask(f"{PASSWORD}?can&role={BOB}&privilege=execute")
        self.assertEqual(other["missing"], steps(("group:ops", "permitted"), ("policy:db", "owner")))
        owning = self.ask(f"{PASSWORD}?can&role={ADMIN}&privilege=juggle")
        self.assertEqual((owning["can"], owning["privileges"]), (True, []))
        self.assertEqual(owning["way"], steps(("user:admin", "member"), ("policy:db", "owner")))

    def test_role_is_needed(self) -> None:
        """No role, and what is none, are 422 (ACC-11)."""
        for role in (
            "",
            "&role",
            "&role=ann",
            "&role=user:ann",
            "&role=acme:variable:x",
            "&role=acme:user:a&role=acme:user:b",
        ):
            self.ask(f"{PASSWORD}?can&privilege=read{role}", status=422)

    def test_reach(self) -> None:
        """What a role reaches comes in order, with its privileges and a way (ACC-12)."""
        way = steps(("host:runner", "member"), ("group:team", "member"), ("group:ops", "permitted"))
        one = {"resource": "acme:variable:db/password", "privileges": ["read", "execute"], "way": way}
        self.assertEqual(self.ask("/roles/acme/host/runner?reach"), {"resources": [one], "after": None})
        found = self.ask("/roles/acme/host/runner?reach&privilege=execute&privilege=juggle")
        self.assertEqual(found["resources"], [one | {"privileges": ["execute"]}])
        self.assertEqual(self.ask("/roles/acme/host/runner?reach&privilege=update")["resources"], [])
        self.ask("/roles/acme/host/runner?reach&" + "&".join(f"privilege=p{number}" for number in range(11)), status=422)
        owned = self.ask("/roles/acme/policy/db?reach")["resources"]
        self.assertEqual([each["resource"] for each in owned], ["acme:variable:db/hidden", "acme:variable:db/password"])
        self.assertEqual([each["privileges"] for each in owned], [["read", "execute", "update"]] * 2)

    def test_reach_of_what_is_seen(self) -> None:
        """Resources that the caller doesn't see are absent, and pages go on where ``after`` says (ACC-13)."""
        self.load("- !permit { role: !user eve, privileges: [ see ], resource: !policy db }", status=201)
        found = self.ask("/roles/acme/policy/db?reach", EVE)["resources"]
        self.assertEqual([each["resource"] for each in found], ["acme:variable:db/password"])
        names: list[str] = []
        after: str | None = ""
        while after is not None:
            page = self.ask(f"/roles/acme/user/admin?reach&limit=2{after and f'&after={after}'}")
            names += [each["resource"] for each in page["resources"]]
            after = page["after"]
        self.assertEqual(names, sorted(self.memory.resources))
        for cursor in ("", "x", "A" * 3000, urlsafe_b64encode(b"\x03none").decode()):
            self.ask(f"/roles/acme/user/admin?reach&after={cursor}", status=422)

    def test_who_may_ask(self) -> None:
        """The resource must be seen, and the role seen or held (ACC-14)."""
        for question in ("who_can", "who_can&count", f"can&role={BOB}"):
            self.ask(f"{PASSWORD}?{question}&privilege=read", BOB, 404)
            self.ask(f"/resources/acme/variable/none?{question}&privilege=read", ADMIN, 404)
            self.ask(f"{PASSWORD}?{question}&privilege=read", user("gone"), 403)
        hidden = 404 if self.dialect.hides_roles else 403
        for role, status in (("user:bob", hidden), ("user:eve", 200), ("host:runner", 200), ("user:none", 404)):
            self.ask(f"{PASSWORD}?can&privilege=read&role=acme:{role}", EVE, status)
            self.ask(f"/roles/acme/{role.replace(':', '/')}?reach", EVE, status)
        for held in ("user/ann", "group/team", "group/ops"):
            self.ask(f"/roles/acme/{held}?reach", ANN)
        self.ask(f"{PASSWORD}?can&privilege=read&role=other:user:admin", ADMIN, 404)
        self.ask("/roles/acme/user/bob?reach", user("gone"), 403)

    def test_own_way(self) -> None:
        """Who doesn't see the roles that it holds learns that there is a way, and not by which of them (ACC-4, ACC-14)."""
        found = self.ask(f"{PASSWORD}?can&privilege=read&role={ANN}", ANN)
        self.assertEqual(found["way"], steps(("user:ann", "member"), (None, "permitted")))

    def test_privilege_is_needed(self) -> None:
        """Without a privilege it is 422; flags have an order (ACC-15)."""
        for question in ("who_can", "can"):
            for path in (PASSWORD, "/resources/acme/variable/none"):
                self.assertEqual(self.ask(f"{path}?{question}&role=x", status=422)["error"]["message"], "privilege")
        self.assertEqual(self.ask(f"{PASSWORD}?who_can&privilege=")["holders"][0]["role"], "acme:policy:db")
        self.assertIsNone(self.ask(f"{PASSWORD}?who_can&can&check&privilege=read", status=204))
        self.assertIsInstance(self.ask(f"{PASSWORD}?who_can&can&permitted_roles&privilege=read"), list)
        self.assertIn("holders", self.ask(f"{PASSWORD}?who_can&can&privilege=read"))
        self.assertIsInstance(self.ask("/roles/acme/group/ops?reach&all"), list)

    def test_follower(self) -> None:
        """A follower answers (ACC-16)."""
        self.memory.standby = True
        for path in (
            f"{PASSWORD}?who_can&privilege=read",
            f"{PASSWORD}?can&privilege=read&role={ANN}",
            "/roles/acme/user/ann?reach",
        ):
            self.ask(path)


class ConjurAccessTests(AccessTests):
    """The same in the other dialect (ACC-16)."""

    dialect = CONJUR
