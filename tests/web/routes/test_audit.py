"""The audit over HTTP."""

from __future__ import annotations

from urllib.parse import quote

from tests.model.test_clocks import EXTREME
from tests.web.world import ADMIN, WorldCase, user

POLICY = """
- !user alice
- !user bob
- !group ops
- !grant {role: !group ops, member: !user bob}
- !policy
  id: app
  owner: !user alice
  body:
  - !variable db
- !permit {role: !user bob, privileges: [read], resources: !variable app/db}
"""

ALICE, BOB = user("alice"), user("bob")
DB = "acme:variable:app/db"


class AuditTests(WorldCase):
    """The events of an account."""

    def setUp(self) -> None:
        """Change something."""
        super().setUp()
        self.load(POLICY)
        self.set_value("app/db", role=ALICE)

    def list(self, path: str = "/audit", role: object = ADMIN, status: int = 200) -> list[dict[str, object]]:
        """The events of an answer, which must have this status."""
        answer = self.client.get(path, role=role)
        self.assertEqual(answer.status, status, answer.body)
        return answer.json() if status in {200, 404} else []

    def test_newest_first(self) -> None:
        """The newest event comes first, with all that its record has (AUD-27, AUD-28)."""
        events = self.list()
        self.assertEqual(
            events[0] | {"number": 0},
            {
                "timestamp": "2023-11-14T22:13:20.250+00:00",
                "facility": 10,
                "severity": 6,
                "hostname": "machine",
                "appname": "svc",
                "procid": events[0]["procid"],
                "msgid": "update",
                "sdata": {
                    "subject@43868": {"resource": DB},
                    "auth@43868": {"user": "acme:user:alice"},
                    "client@43868": {"ip": "192.0.2.7"},
                    "action@43868": {"result": "success", "operation": "update"},
                },
                "message": f"acme:user:alice updated {DB}",
                "number": 0,
            },
        )
        self.assertEqual({event["msgid"] for event in events[1:]}, {"policy"})
        self.assertEqual([event["number"] for event in events], sorted((e["number"] for e in events), reverse=True))

    def test_pages(self) -> None:
        """A list has as many as it is asked for, from where it is asked for, and 100 without a word (AUD-30)."""
        events = self.list()
        self.assertEqual(self.list("/audit?limit=2&offset=1"), events[1:3])
        for bad in ("limit=0", "limit=x", "limit=1001", "offset=-1", "limit=1&limit=2"):
            self.list(f"/audit?{bad}", status=422)

    def test_filters(self) -> None:
        """Filters leave what is equal; none at all is 404 with an empty list (AUD-27, AUD-30)."""
        self.assertEqual(len(self.list("/audit?msgid=update")), 1)
        self.assertEqual(len(self.list("/audit?severity=6&facility=10")), 1)
        self.assertEqual(len(self.list(f"/audit?subject@43868/resource={DB}&action@43868/operation=update")), 1)
        self.assertEqual(len(self.list("/audit?subject%4043868%2Fresource=acme:user:bob")), 1)
        self.assertEqual(len(self.list("/audit?what=update")), 1)
        self.assertEqual({event["msgid"] for event in self.list("/audit?what=add")}, {"policy"})
        every = len(self.list())
        at = "2023-11-14T22:13:20"
        self.assertEqual(len(self.list(f"/audit?since={at}.250Z&until={at}.251%2B00:00")), every)
        self.assertEqual(self.list(f"/audit?since={at}.251Z", status=404), [])
        self.assertEqual(self.list(f"/audit?until={at}.250Z", status=404), [])
        for bad in ("since=yesterday", "until=2023-11-14T22:13:20", "since=2023-11-14", f"until={quote(EXTREME[1])}"):
            self.list(f"/audit?{bad}", status=422)
        self.assertEqual(self.list("/audit?msgid=absent", status=404), [])
        self.assertEqual(self.list("/audit?hostname=other", status=404), [])

    def test_bad_filters(self) -> None:
        """A filter that can't be is told so (AUD-30, LIM-16)."""
        for bad in (
            "facility=24",
            "facility=x",
            "severity=8",
            "severity=-1",
            "msgid=%00",
            "subject@1/role=x",
            "client@43868/port=1",
            "action@43868/result=success",
            "subject@43868/role=a&subject@43868/role=b",
        ):
            self.list(f"/audit?{bad}", status=422)

    def test_of_something(self) -> None:
        """The events of a resource, of a role, and of whatever has an id (AUD-27)."""
        self.assertEqual([event["msgid"] for event in self.list(f"/audit/resources/{DB}")], ["update", "policy", "policy"])
        self.assertEqual(
            [event["msgid"] for event in self.list("/audit/resources/acme%3Avariable%3Aapp%2Fdb?limit=1")], ["update"]
        )
        roles = self.list("/audit/roles/acme:group:ops")
        self.assertEqual({event["sdata"]["subject@43868"]["role"] for event in roles}, {"acme:group:ops"})  # type: ignore[index]
        entities = self.list("/audit/entities/acme:user:bob")
        self.assertGreater(len(entities), len(self.list("/audit/roles/acme:user:bob")))
        self.assertEqual(self.list("/audit/resources/acme:variable:absent", status=404), [])
        self.assertEqual(self.list(f"/audit/resources/{DB}?subject@43868/resource=acme:user:bob", status=404), [])
        self.list("/audit/resources/nonsense", status=422)

    def test_who_may(self) -> None:
        """The whole belongs to who owns the root policy; a part to the owner of what it tells of; to others nothing
        (AUD-29).
        """
        self.list(role=ALICE, status=403)
        self.list(role=BOB, status=403)
        self.assertTrue(self.list(f"/audit/resources/{DB}", role=ALICE))
        self.list(f"/audit/resources/{DB}", role=BOB, status=403)
        self.assertEqual(self.client.get("/audit/resources/acme:user:alice", role=BOB).status, 404)
        self.assertEqual(self.client.get("/audit/entities/acme:variable:absent", role=ALICE).status, 404)
        self.assertEqual(self.client.get("/audit").status, 401)

    def test_who_was_made_owner(self) -> None:
        """Who holds the role that owns the root policy reads all, like its admin (AUD-29)."""
        self.load("- !grant {role: !user admin, member: !user alice}")
        self.assertTrue(self.list(role=ALICE))

    def test_other_accounts(self) -> None:
        """Nobody reads what another account did, not even an admin (AUD-26, AUD-29)."""
        self.result_of(self.create_account("other", "1other"))
        stranger = type(ADMIN)("other", "user", "admin")
        self.assertEqual(self.list(role=stranger, status=404), [])
        self.assertEqual(self.client.get(f"/audit/resources/{DB}", role=stranger).status, 404)
        self.assertEqual(self.client.get("/audit/entities/other:user:admin", role=ADMIN).status, 404)

    def test_it_is_audited(self) -> None:
        """That the audit was read is an event, too, be it refused (AUD-31)."""
        self.journal.told()
        self.list()
        self.list(f"/audit/resources/{DB}", role=BOB, status=403)
        self.assertEqual(
            self.journal.told(),
            [("audit", "list", {}, None), ("audit", "list", {"resource": DB}, "forbidden")],
        )

    def test_no_store(self) -> None:
        """Without its store the audit can't be read."""
        self.memory.down = True
        self.assertEqual(self.client.get("/audit", role=ADMIN).status, 503)
