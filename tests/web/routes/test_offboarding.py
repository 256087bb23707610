"""Tests of ``svc.web.routes.offboarding`` and of ``svc.services.offboarding``, with real access tokens."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from svc.model.authentication import DAY, day_of, iso_day
from svc.services import readers
from tests.web.world import ADMIN, WorldCase, user

PATH = "/offboarding/acme/user/leo"

POLICY = """
- !user leo
- !user boss
- !user peer
- !group ops
- !group desk
- !policy
  id: shop
  owner: !user boss
  body:
    - !group staff
    - !variable password
    - !permit { role: !group staff, privileges: [ read, execute ], resource: !variable password }
- !policy { id: mine, owner: !user leo }
- !variable own
- !permit { role: !user leo, privileges: [ execute ], resource: !variable own }
- !grant { role: !group ops, member: !member { role: !user leo, admin: true } }
- !grant { role: !group desk, member: !user leo }
- !grant { role: !group desk, member: !user peer }
- !permit { role: !user boss, privileges: [ read, update ], resource: !user leo }
- !permit { role: !user peer, privileges: [ read ], resource: !user leo }
"""


class OffboardingTests(WorldCase):
    """Leo leaves."""

    def setUp(self) -> None:
        """Load the policies, and log Leo in."""
        super().setUp()
        self.key = self.load(POLICY).json()["created_roles"]["acme:user:leo"]["api_key"].encode()
        self.load("- !grant { role: !group staff, member: !user /leo }", "shop")
        self.caller = self.log_in()
        self.opened = self.client.post("/authn/acme/leo/sessions?lifetime=600", self.key).json()

    def log_in(self, status: int = 200) -> Any:
        """Log in as Leo, and return the caller that the access token proves."""
        answer = self.client.post("/authn/acme/leo/authenticate", self.key, headers=[("Accept-Encoding", "base64")])
        self.assertEqual(answer.status, status)
        return self.result_of(self.tokens.find_caller(b'Token token="' + answer.body + b'"')) if status == 200 else None

    def lives(self) -> tuple[int, int, int]:
        """The statuses that Leo's access token, refresh token and API key get."""
        header = f'Token token="{self.caller.role}|{self.caller.creation},{self.caller.epoch}"'
        return (
            self.client.get("/whoami", headers=[("Authorization", header)]).status,
            self.client.post("/authn/acme/leo/renew", self.opened["refresh_token"].encode()).status,
            self.client.post("/authn/acme/leo/authenticate", self.key).status,
        )

    def groups(self) -> set[str]:
        """The roles of which Leo is a member."""
        return {role for role, member, ownership in self.memory.memberships if member == "acme:user:leo" and not ownership}

    def test_plan(self) -> None:
        """The plan names the sessions, what each policy would revoke, what is owned and what can be read, and changes
        nothing (CLI-66).
        """
        before = repr(self.memory.memberships)
        plan = self.client.get(PATH, role=ADMIN).json()
        self.assertEqual(plan["user"], "acme:user:leo")
        self.assertEqual(plan["sessions"], 1)
        self.assertEqual([each["policy"] for each in plan["policies"]], ["acme:policy:root", "acme:policy:shop"])
        self.assertEqual(
            [each["revoked"] for each in plan["policies"]],
            [
                [{"role": "acme:group:desk", "admin_option": False}, {"role": "acme:group:ops", "admin_option": True}],
                [{"role": "acme:group:shop/staff", "admin_option": False}],
            ],
        )
        self.assertEqual(plan["owns"], ["acme:policy:mine"])
        self.assertEqual(plan["variables"], {"ids": ["acme:variable:own", "acme:variable:shop/password"], "complete": True})
        self.assertEqual(repr(self.memory.memberships), before)
        self.assertEqual(self.lives(), (200, 200, 200))

    def count_reads(self, *names: str) -> None:
        """Count that Leo has read these variables now."""
        for name in names:
            self.set_value(name)
            self.assertEqual(self.client.get(f"/secrets/acme/variable/{quote(name, safe='')}", role=user("leo")).status, 200)
        self.server.reading_counter.hand_over()
        self.result_of(self.server.singletons.reading_recorder.write_counts())

    def read(self, role: Any = ADMIN) -> Any:
        """What Leo has read, as the plan has it."""
        answer = self.client.get(PATH, role=role)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.json()["read"]

    def test_read(self) -> None:
        """The plan, and what was done, have the variables that the user has read in the last 90 days; that is certain only
        where reads were counted all that time (CLI-84, READ-16).
        """
        self.memory.reads_kept_since = self.clock.seconds() - 90 * DAY + 1
        self.count_reads("shop/password")
        today = iso_day(day_of(self.clock.seconds()))
        row = {"variable": "acme:variable:shop/password", "last_read": today, "count": 1}
        found = self.read()
        self.assertEqual((found["variables"], found["certain"], found["hidden"]), ([row], False, False))
        self.memory.reads_kept_since = self.clock.seconds() - 90 * DAY - 1
        self.assertEqual((self.read()["certain"], self.read()["since"]), (True, iso_day(day_of(self.clock.seconds()) - 90)))
        self.memory.reading_servers["west"] = None, self.memory.now
        self.assertEqual((self.read()["certain"], self.read()["missing"]), (False, ["west"]))
        del self.memory.reading_servers["west"]
        self.assertEqual(self.client.post(PATH, role=ADMIN).json()["read"], {**found, "certain": True,
            "since": self.read()["since"], "kept_since": self.read()["kept_since"]})  # fmt: skip
        self.clock.advance(91 * DAY)
        self.assertEqual((self.read()["variables"], self.read()["certain"]), ([], True))

    def test_read_hidden(self) -> None:
        """Who neither owns nor inspects what was read doesn't get its name, and it isn't certain (READ-16)."""
        self.memory.reads_kept_since = 0.0
        self.count_reads("shop/password", "own")
        found = self.read(user("boss"))
        self.assertEqual([each["variable"] for each in found["variables"]], ["acme:variable:shop/password"])
        self.assertEqual((found["hidden"], found["certain"], found["complete"]), (True, False, True))
        self.patch(readers, "WINDOW", 1)
        self.assertEqual((self.read()["complete"], self.read()["certain"]), (False, False))

    def test_offboarded(self) -> None:
        """Access tokens, sessions, API key and password end, and all memberships go, at once; what the user still reaches by
        its own permissions and things is in the answer (CLI-67).
        """
        self.memory.passwords["acme:user:leo"] = self.memory.credentials["acme:user:leo"]
        done = self.client.post(PATH, role=ADMIN)
        self.assertEqual(done.status, 200, done.body)
        self.assertEqual(self.lives(), (401, 401, 401))
        self.assertEqual(self.groups(), set())
        self.assertNotIn("acme:user:leo", self.memory.passwords)
        self.assertIn(("acme:group:desk", "acme:user:peer", False), self.memory.memberships)
        self.assertIn("acme:user:leo", self.memory.roles)
        self.assertEqual(done.json()["variables"]["ids"], ["acme:variable:own", "acme:variable:shop/password"])
        self.assertEqual(done.json()["remaining"], {"ids": ["acme:policy:mine", "acme:variable:own"], "complete": True})
        again = self.client.post(PATH, role=ADMIN)
        self.assertEqual((again.status, again.json()["policies"]), (200, []))

    def test_policy(self) -> None:
        """Each policy gets a version with what was revoked there; its document is in the answer, and loads (CLI-68)."""
        documents = {each["policy"]: each["document"] for each in self.client.post(PATH, role=ADMIN).json()["policies"]}
        self.assertEqual(documents["acme:policy:shop"], "---\n- !revoke\n  role: !group /shop/staff\n  member: !user /leo\n")
        for policy in ("root", "shop"):
            shown = self.client.get(f"/resources/acme/policy/{policy}", role=ADMIN).json()["policy_versions"][-1]
            self.assertEqual(shown["policy_text"], documents[f"acme:policy:{policy}"])
        self.load("- !grant { role: !group staff, member: !user /leo }", "shop")
        self.load(documents["acme:policy:shop"], "shop", method="PATCH")
        self.assertEqual(self.groups(), set())

    def test_recorded(self) -> None:
        """The audit has an event for it, and one for each membership, in the store too (CLI-68)."""
        self.journal.told()
        before = max(self.memory.events)
        self.client.post(PATH, role=ADMIN)
        told = [(msgid, operation) for msgid, operation, _, reason in self.journal.told() if reason is None]
        self.assertEqual(told, [("role", "offboard"), *[("policy", "remove")] * 3])
        self.assertEqual(len([number for number in self.memory.events if number > before]), 4)

    def test_authority(self) -> None:
        """It takes ``update`` on the user, and on each policy that made a membership; otherwise nothing changes (CLI-69)."""
        for caller, method, path, status in (
            (user("peer"), "GET", PATH, 403),
            (user("peer"), "POST", PATH, 403),
            (user("leo"), "POST", PATH, 404),
            (ADMIN, "POST", "/offboarding/acme/user/nobody", 404),
            (ADMIN, "GET", "/offboarding/other/user/admin", 404),
            (user("boss"), "GET", PATH, 200),
            (user("boss"), "POST", PATH, 403),
        ):
            answer = self.client.request(method, path, role=caller)
            self.assertEqual(answer.status, status, (caller, method, path))
        self.assertEqual(len(self.groups()), 3)
        self.assertEqual(self.lives(), (200, 200, 200))
        plan = self.client.get(PATH, role=user("boss")).json()
        self.assertEqual({each["policy"]: each["may_update"] for each in plan["policies"]},
                         {"acme:policy:root": False, "acme:policy:shop": True})  # fmt: skip
        self.assertIn(b"offboard yourself", self.client.post("/offboarding/acme/user/admin", role=ADMIN).body)
        self.load("- !permit { role: !user boss, privileges: [ read, update ], resource: !policy root }")
        self.assertEqual(self.client.post(PATH, role=user("boss")).status, 200)
        self.assertEqual(self.groups(), set())

    def test_unrecorded(self) -> None:
        """A membership that no policy recorded is revoked in the policy that recorded its role (CLI-68)."""
        self.memory.memberships["acme:group:shop/staff", "acme:user:leo", False] = (False, None)
        [plan] = self.client.get(PATH, role=ADMIN).json()["policies"]
        self.assertEqual((plan["policy"], self.memory.roles["acme:group:shop/staff"]), ("acme:policy:root",) * 2)
        self.assertEqual(len(plan["revoked"]), 3)
        self.assertEqual(self.client.post(PATH, role=ADMIN).status, 200)
        self.assertEqual(self.groups(), set())

    def test_followers(self) -> None:
        """A follower shows the plan, and changes nothing (CLI-67)."""
        self.memory.standby = True
        self.assertEqual(self.client.get(PATH, role=ADMIN).status, 200)
        self.assertEqual(self.client.post(PATH, role=ADMIN).status, 405)

    def test_busy(self) -> None:
        """While one of the policies is being loaded it is refused as a load would be (CLI-67)."""
        self.memory.locked.add("acme:policy:shop")
        self.assertEqual(self.client.post(PATH, role=ADMIN).status, 409)
        self.assertEqual(json.loads(self.client.get(PATH, role=ADMIN).body)["sessions"], 1)
        self.assertEqual(len(self.groups()), 3)
