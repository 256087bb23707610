"""Tests of ``svc.web.routes.deleted``: what was deleted, over HTTP."""

from __future__ import annotations

from typing import Any

from svc.services.deleted_records import BATCH_MOST
from tests.web.support import Answer
from tests.web.world import ADMIN, WorldCase, user

ALICE, BOB = user("alice"), user("bob")
PATH = "/deleted/acme/policy/app"

BASE = """
- !user alice
- !user bob
- !policy app
- !permit { role: !user alice, privileges: [ read, create, update ], resource: !policy app }
- !permit { role: !user bob, privileges: [ read ], resource: !policy app }
"""
DELETE = "- !delete { record: !variable db }"


class DeletedTests(WorldCase):
    """A variable that was deleted."""

    def setUp(self) -> None:
        """Delete it."""
        super().setUp()
        self.load(BASE)
        self.load("- !variable db", "app")
        self.set_value("app/db", b"one")
        self.set_value("app/db", b"two")
        self.load(DELETE, "app", method="PATCH")

    def listed(self) -> list[Any]:
        """What can be had back."""
        answer = self.client.get(PATH, role=ALICE)
        self.assertEqual(answer.status, 200, answer.body)
        found: list[Any] = answer.json()
        return found

    def restore(self, *numbers: object, role: Any = ALICE) -> Answer:
        """Have numbers back."""
        return self.client.post(PATH + "?" + "&".join(f"number={number}" for number in numbers), b"", role=role)

    def test_listed(self) -> None:
        """A list says what there is, whose it was, until when, and never a value (DEL-6)."""
        (found,) = self.listed()
        self.assertEqual(
            found,
            {
                "number": 1,
                "id": "acme:variable:app/db",
                "owner": "acme:policy:app",
                "overwritten": False,
                "versions": [1, 2],
                "deleted_at": "2023-11-14T22:13:20.250+00:00",
                "kept_until": "2023-11-21T22:13:20.250+00:00",
            },
        )

    def test_restored(self) -> None:
        """What is had back is said, and what isn't, with the reason; the values are there again (DEL-12, DEL-13)."""
        answer = self.restore(1, 7)
        self.assertEqual(answer.status, 200)
        self.assertEqual(
            answer.json(),
            {
                "restored": [{"number": 1, "id": "acme:variable:app/db", "versions": [1, 2]}],
                "left": [{"number": 7, "reason": "not-kept"}],
                "rows_left_out": 0,
            },
        )
        self.assertEqual(self.client.get("/secrets/acme/variable/app%2Fdb", role=ADMIN).body, b"two")
        self.assertEqual(self.listed(), [])

    def test_purged(self) -> None:
        """A number is purged, and so is all, as often as one likes (DEL-23)."""
        self.assertEqual(self.client.delete(f"{PATH}?number=7", role=ALICE).json(), {"purged": 0})
        self.assertEqual(self.client.delete(f"{PATH}?number=1&number=1", role=ALICE).json(), {"purged": 1})
        self.load("- !variable db", "app")
        self.load(DELETE, "app", method="PATCH")
        self.assertEqual([self.client.delete(PATH, role=ALICE).json() for _ in range(2)], [{"purged": 1}, {"purged": 0}])
        self.assertEqual(self.listed(), [])

    def test_refused(self) -> None:
        """Who has no ``update`` on the policy is refused, and others aren't told that it exists; so with every route
        (DEL-6).
        """
        for method in ("GET", "POST", "DELETE"):
            path = f"{PATH}?number=1"
            for role, status in ((None, 401), (BOB, 403), (ALICE, 200)):
                self.assertEqual(self.client.request(method, path, role=role).status, status, (method, role))
            for other in ("/deleted/acme/policy/none?number=1", "/deleted/other/policy/app?number=1"):
                self.assertEqual(self.client.request(method, other, role=ADMIN).status, 404, (method, other))
            self.load("- !deny { role: !user bob, privileges: [ read ], resource: !policy app }", method="PATCH")
            self.assertEqual(self.client.request(method, path, role=BOB).status, 404)
            self.load("- !permit { role: !user bob, privileges: [ read ], resource: !policy app }")

    def test_bad_numbers(self) -> None:
        """What is no number, none, or too many are refused (DEL-12)."""
        for numbers in ((), ("",), ("x",), ("0",), ("-1",), ("9" * 19,), range(1, BATCH_MOST + 2)):
            self.error(self.restore(*numbers), 422, "argument_error")
        self.error(self.client.delete(f"{PATH}?number=x", role=ALICE), 422, "argument_error")
        self.error(self.client.get(f"{PATH}?limit=1001", role=ALICE), 422, "argument_error")
        self.assertEqual(len(self.listed()), 1)

    def test_policy_being_loaded(self) -> None:
        """While the policy is loaded nothing of it is had back (DEL-12)."""
        self.memory.locked.add("acme:policy:app")
        self.error(self.restore(1), 409, "policy_conflict")
        # Who may have nothing back can't keep others from loading it, and isn't told that somebody does.
        self.assertEqual(self.restore(1, role=BOB).status, 403)

    def test_follower(self) -> None:
        """A follower lists, and changes nothing (DEL-24)."""
        self.memory.standby = True
        self.assertEqual(len(self.listed()), 1)
        self.assertEqual(self.restore(1).status, 405)
        self.assertEqual(self.client.delete(PATH, role=ALICE).status, 405)

    def test_tokens(self) -> None:
        """A token of a host from before its deletion proves nothing after it was had back (DEL-20)."""
        self.load("- !host web", "app")
        host = ADMIN.__class__("acme", "host", "app/web")
        self.assertEqual(self.client.get("/whoami", role=host).status, 200)
        self.load("- !delete { record: !host web }", "app", method="PATCH")
        self.assertEqual(self.restore(2).json()["restored"][0]["id"], "acme:host:app/web")
        token = self.client.get("/whoami", role=host)
        self.assertEqual(token.status, 401)

    def test_audited(self) -> None:
        """Each record, and each row that came with it, has an event in the database; so has what is purged (DEL-24)."""
        self.load("- !permit { role: !user bob, privileges: [ read ], resource: !variable app/db }", status=422)
        self.load("- !variable db\n- !permit { role: !user /bob, privileges: [ read ], resource: !variable db }", "app")
        self.load(DELETE, "app", method="PATCH")
        before = len(self.memory.events)
        self.restore(2)
        told = [event for number, (_, event) in self.memory.events.items() if number > before]
        self.assertEqual(
            [(event.msgid, event.operation, event.did) for event in told],
            [
                ("deleted", "restore", "restored acme:variable:app/db"),
                ("policy", "add", "added resource acme:variable:app/db"),
                ("policy", "add", "added permission of acme:user:bob to read on acme:variable:app/db"),
            ],
        )
        self.client.delete(f"{PATH}?number=1", role=ALICE)
        self.client.delete(PATH, role=ALICE)
        self.client.get(PATH, role=BOB)
        policy = {"policy": "acme:policy:app"}
        self.assertEqual(
            self.journal.told()[-2:],
            [
                ("deleted", "purge", {"resource": "acme:variable:app/db", **policy}, None),
                ("deleted", "list", policy, "forbidden"),
            ],
        )
