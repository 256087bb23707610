"""Who has read a secret, and what nobody reads: counted from requests, and answered by requests."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

from svc.cluster.peer_claims import PeerClaims
from svc.crypto.vault import Vault
from svc.model.authentication import DAY, day_of, iso_day
from svc.model.dialect import CONJUR
from svc.model.readings import ReadersCursor, ReadingBatch
from svc.services import readers, watches
from svc.web.routes.cluster import ClusterReadings
from svc.web.routes.cursors import reader_cursor
from tests.memory_reads import MemoryReads, reads_of
from tests.web.support import NOW, Client
from tests.web.world import ADMIN, WorldCase, user

ALICE, BOB = user("alice"), user("bob")

POLICY = """
- !user alice
- !user bob
- !user ida
- !user olga
- !variable password
- !variable key
- !variable empty
- !variable hidden
- !permit { role: !user alice, privileges: [ read, execute ], resources: [ !variable password, !variable key ] }
- !permit { role: !user alice, privileges: [ read, execute ], resource: !variable empty }
- !permit { role: !user bob, privileges: [ read, execute ], resource: !variable key }
- !policy
  id: shop
  owner: !user olga
  body:
    - !variable db
- !permit { role: !user ida, privileges: [ inspect ], resource: !policy shop }
- !policy
  id: svc/authn-jwt/ci
  body:
    - !webservice
    - !variable jwks-uri
"""

PASSWORD, KEY, EMPTY, HIDDEN, DB = (f"acme:variable:{name}" for name in ("password", "key", "empty", "hidden", "shop/db"))
TODAY = day_of(NOW)


class ReadersCase(WorldCase):
    """An account with variables. The database's clock shows the time of the server's."""

    def setUp(self) -> None:
        """Make them, and values of all but one."""
        super().setUp()
        self.memory.now = self.memory.made_at = float(NOW)
        self.made = self.load(POLICY.replace("svc/", f"{self.dialect.prefix}/")).json()["created_roles"]
        for name in ("password", "key", "hidden", "shop/db"):
            self.set_value(name)
        self.recorder = self.server.singletons.reading_recorder

    def counted(self) -> dict[str, dict[str, int]]:
        """How often each role has read each variable, after all is written."""
        self.server.reading_counter.hand_over()
        self.result_of(self.recorder.write_counts())
        return reads_of(self.memory)

    def ask(self, name: str, query: str = "", role: Any = ADMIN, status: int = 200) -> Any:
        """Ask who has read a variable."""
        self.counted()
        answer = self.client.get(f"/resources/acme/variable/{quote(name, safe='')}?readers{query}", role=role)
        self.assertEqual(answer.status, status, answer.body)
        return answer.json() if status == 200 else None

    def unread(self, query: str = "", role: Any = ADMIN) -> list[Any]:
        """All that nobody reads, page by page."""
        self.counted()
        found: list[Any] = []
        after = ""
        while True:
            answer = self.client.get(f"/unused?secrets{query}{after}", role=role)
            self.assertEqual(answer.status, 200, answer.body)
            found += answer.json()["unused"]
            if answer.json()["after"] is None:
                return found
            after = f"&after={answer.json()['after']}"


class CountedTests(ReadersCase):
    """What counts as a read."""

    def test_single(self) -> None:
        """A value counts, of any version, and a 304 too; what is refused, or has no value, doesn't (READ-2)."""
        path = "/secrets/acme/variable/"
        tag = self.client.get(f"{path}password", role=ALICE).headers["etag"]
        self.assertEqual(self.client.get(f"{path}password?version=1", role=ALICE).status, 200)
        known = self.client.get(f"{path}password", role=ALICE, headers=[("If-None-Match", tag)])
        self.assertEqual(known.status, 304)
        for name, status in (("hidden", 404), ("empty", 404), ("password?version=9", 404)):
            self.assertEqual(self.client.get(f"{path}{name}", role=ALICE).status, status)
        self.assertEqual(self.client.get(f"{path}password", role=BOB).status, 404)
        self.assertEqual(self.counted(), {"user:alice": {"password": 3}})

    def test_batches(self) -> None:
        """Of a batch each value counts once, also where the client has them; of a partial one those returned (READ-2)."""
        query = f"/secrets?variable_ids={PASSWORD},{KEY},{KEY}"
        tag = self.client.get(query, role=ALICE).headers["etag"]
        self.assertEqual(self.counted(), {"user:alice": {"password": 1, "key": 1}})
        self.assertEqual(self.client.get(query, role=ALICE, headers=[("If-None-Match", tag)]).status, 304)
        self.assertEqual(self.counted(), {"user:alice": {"password": 2, "key": 2}})
        self.assertEqual(self.client.get(f"/secrets?variable_ids={PASSWORD},{HIDDEN}", role=ALICE).status, 404)
        body = b'{"variable_ids": ["%b", "%b", "%b"], "partial": true}' % (KEY.encode(), HIDDEN.encode(), EMPTY.encode())
        headers = [("Content-Type", "application/json")]
        self.assertEqual(self.client.post("/secrets/batch", body, role=ALICE, headers=headers).status, 200)
        self.assertEqual(self.counted(), {"user:alice": {"password": 2, "key": 3}})

    def test_login(self) -> None:
        """Secrets that come with a login count for the role that logs in (READ-2)."""
        key = self.made["acme:user:alice"]["api_key"].encode()
        answer = self.client.post(f"/authn/acme/alice/authenticate?secrets={KEY},{PASSWORD}", key)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(self.counted(), {"user:alice": {"key": 1, "password": 1}})

    def test_watch(self) -> None:
        """A watch counts when it begins, and once on each day, of what has a value; not all at once (READ-2)."""
        self.patch(watches, "_COUNTED", 1)
        streams = [
            self.client.begin("GET", f"/secrets/watch?variable_ids={ids}", role=role)
            for ids, role in ((f"{PASSWORD},{EMPTY}", ALICE), (KEY, BOB))
        ]
        self.assertEqual(self.counted(), {"user:alice": {"password": 1}, "user:bob": {"key": 1}})
        self.clock.pump([1] * 5)
        self.assertEqual(self.counted(), {"user:alice": {"password": 1}, "user:bob": {"key": 1}})
        self.clock.advance(DAY)
        self.assertEqual(sum(sum(reads.values()) for reads in self.counted().values()), 3)
        self.clock.advance(1)
        self.assertEqual(self.counted(), {"user:alice": {"password": 2}, "user:bob": {"key": 2}})
        self.assertEqual([day["days"] for day in self.ask("key")["readers"]], [[iso_day(TODAY + 1), iso_day(TODAY)]])
        del streams

    def test_authenticator(self) -> None:
        """A setting that the newer interface shows counts for who is shown it (READ-2)."""
        self.set_value("svc/authn-jwt/ci/jwks-uri", b"https://ci.example.org/jwks")
        answer = self.client.get(
            "/authenticators/acme/jwt/ci", role=ADMIN, headers=[("Accept", "application/x.secretsmgr.v2beta+json")]
        )
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(self.counted(), {"user:admin": {"svc/authn-jwt/ci/jwks-uri": 1}})


class ReadersTests(ReadersCase):
    """Who has read a variable."""

    def test_listed(self) -> None:
        """Readers come with their days and how often they read, those that did last first (READ-1, READ-10, READ-11)."""
        for role, day in ((ALICE, 0), (BOB, 1), (ALICE, 2), (BOB, 2), (BOB, 2)):
            self.clock.advance(NOW + day * DAY - self.clock.seconds())
            self.client.get("/secrets/acme/variable/key", role=role)
        found = self.ask("key")
        days = [iso_day(TODAY + day) for day in range(3)]
        self.assertEqual(
            found["readers"],
            [
                {"role": "acme:user:alice", "last_read": days[2], "count": 2, "days": [days[2], days[0]]},
                {"role": "acme:user:bob", "last_read": days[2], "count": 3, "days": [days[2], days[1]]},
            ],
        )
        self.assertEqual((found["variable"], found["missing"], found["after"]), (KEY, [], None))
        self.clock.advance(2 * DAY)
        self.assertEqual(len(self.ask("key", f"&since={2 * DAY}")["readers"]), 2)
        self.assertEqual(len(self.ask("key", f"&since={DAY}")["readers"]), 0)
        self.assertEqual(self.ask("password")["readers"], [])

    def test_pages(self) -> None:
        """Pages of any size make the same list; a cursor that wasn't given out is refused (READ-11)."""
        for role in (ALICE, BOB, ADMIN):
            self.client.get("/secrets/acme/variable/key", role=role)
        whole = self.ask("key")["readers"]
        self.assertEqual([each["role"] for each in whole], [f"acme:user:{name}" for name in ("admin", "alice", "bob")])
        for limit in (1, 2, 3):
            found, page = [], self.ask("key", f"&limit={limit}")
            while page["after"] is not None:
                self.assertEqual(len(page["readers"]), limit)
                found += page["readers"]
                page = self.ask("key", f"&limit={limit}&after={page['after']}")
            self.assertEqual(found + page["readers"], whole)
        for odd in (
            "x",
            "",
            reader_cursor(ReadersCursor(2_000_000, "acme:user:bob")),
            reader_cursor(ReadersCursor(1, "bob")),
        ):
            self.ask("key", f"&after={odd}", status=422)
        self.ask("key", "&limit=1001", status=422)
        self.ask("key", "&since=-1", status=422)

    def test_who_may_ask(self) -> None:
        """Owners and auditors may ask; others who see the variable are refused, and it is hidden from the rest (READ-10)."""
        for name, role, status in (
            ("shop/db", user("olga"), 200),
            ("shop/db", user("ida"), 200),
            ("shop/db", ADMIN, 200),
            ("key", ALICE, 403),
            ("hidden", ALICE, 404),
            ("none", ADMIN, 404),
            ("key", user("ida"), 404),
        ):
            with self.subTest(name=name, role=role):
                self.ask(name, role=role, status=status)
        self.assertEqual(self.client.get("/resources/acme/policy/shop?readers", role=user("olga")).status, 404)
        self.assertEqual(self.client.get("/resources/other/variable/key?readers", role=ADMIN).status, 404)

    def test_certain(self) -> None:
        """It is uncertain who read before reads were kept, where reads were lost or a server is missing (READ-12)."""
        self.memory.reads_kept_since = NOW - 10 * DAY
        self.assertTrue(self.ask("key", f"&since={9 * DAY}")["certain"])
        self.assertFalse(self.ask("key", f"&since={11 * DAY}")["certain"])
        found = self.ask("key")
        self.assertEqual((found["certain"], found["kept_since"]), (False, "2023-11-04T22:13:20.000+00:00"))
        self.memory.reading_losses[TODAY - 5] = None
        self.assertTrue(self.ask("key", f"&since={4 * DAY}")["certain"])
        self.assertFalse(self.ask("key", f"&since={5 * DAY}")["certain"])
        self.result_of(MemoryReads(self.memory).record_servers(["west"], []))
        found = self.ask("key", f"&since={DAY}")
        self.assertEqual((found["certain"], found["missing"]), (False, ["west"]))

    def test_retention(self) -> None:
        """Nothing is known from before the retention (READ-9, READ-12)."""
        self.memory.reads_kept_since = 0.0
        self.assertEqual(self.ask("key")["kept_since"], "2022-10-10T22:13:20.000+00:00")
        self.assertFalse(self.ask("key", f"&since={401 * DAY}")["certain"])

    def test_audit(self) -> None:
        """Each question is in the audit, also a refused one (READ-10)."""
        self.journal.told()
        self.ask("key")
        self.ask("key", role=ALICE, status=403)
        self.unread()
        event = ("resource", "readers", {"resource": KEY})
        self.assertEqual(self.journal.told(), [(*event, None), (*event, "forbidden"), ("endings", "unread", {}, None)])

    def test_follower(self) -> None:
        """A follower answers both questions (READ-15)."""
        self.client.get("/secrets/acme/variable/key", role=ALICE)
        self.counted()
        self.memory.standby = True
        self.client.get("/secrets/acme/variable/key", role=BOB)
        self.assertEqual([each["role"] for each in self.ask("key")["readers"]], ["acme:user:alice"])
        self.assertEqual(self.unread(), [])
        self.assertEqual([read.role for read in self.recorder.hand_out("", 0).reads], ["acme:user:bob"])


class DeletionTests(ReadersCase):
    """Who has read what a dry run would delete."""

    def tried(self, document: str, role: Any = ADMIN) -> Any:
        """What a dry run says of readers, ``None`` if it says nothing."""
        self.counted()
        return self.load(document, "root?dryRun=true", role, "PATCH", 200).json().get("readers")

    def test_deleted(self) -> None:
        """The readers of the last 30 days of each variable that would be deleted are named, those that did last first, the
        first of them; not those of a load that deletes none (POL-112).
        """
        self.memory.reads_kept_since = 0.0
        for role in (ALICE, BOB):
            self.client.get("/secrets/acme/variable/key", role=role)
        self.client.get("/secrets/acme/variable/password", role=ALICE)
        document = "- !delete { record: !variable key }\n- !delete { record: !variable hidden }\n"
        found = self.tried(document)
        day = iso_day(day_of(NOW))
        whole = [{"role": f"acme:user:{name}", "last_read": day, "count": 1} for name in ("alice", "bob")]
        self.assertEqual(found["variables"], [{"variable": KEY, "readers": whole, "more": False}])
        self.assertEqual((found["certain"], found["complete"], found["missing"]), (True, True, []))
        self.assertEqual(found["since"], iso_day(day_of(NOW) - 30))
        self.assertIsNone(self.tried("- !user carol\n"))
        self.patch(readers, "NAMED_READERS", 1)
        self.assertEqual(self.tried(document)["variables"], [{"variable": KEY, "readers": whole[:1], "more": True}])
        both = f"{document}- !delete {{ record: !variable password }}\n"
        self.assertEqual([each["variable"] for each in self.tried(both)["variables"]], [KEY, PASSWORD])
        self.patch(readers, "NAMED_VARIABLES", 1)
        some = self.tried(both)
        self.assertEqual(([each["variable"] for each in some["variables"]], some["complete"]), ([KEY], False))
        self.memory.reads_kept_since = NOW - 29.0 * DAY
        self.assertFalse(self.tried(document)["certain"])
        self.clock.advance(31 * DAY)
        self.memory.reads_kept_since = 0.0
        self.assertEqual((self.tried(document)["variables"], self.tried(document)["certain"]), ([], True))

    def test_whose(self) -> None:
        """Who may delete a variable, and neither owns nor inspects it, isn't shown who reads it (POL-112)."""
        self.load("- !user lead\n- !permit { role: !user lead, privileges: [ read, update ], resource: !policy root }\n")
        self.client.get("/secrets/acme/variable/key", role=ALICE)
        self.assertIsNone(self.tried("- !delete { record: !variable key }\n", user("lead")))
        self.load("- !permit { role: !user lead, privileges: [ inspect ], resource: !policy root }\n")
        (only,) = self.tried("- !delete { record: !variable key }\n", user("lead"))["variables"]
        self.assertEqual([each["role"] for each in only["readers"]], ["acme:user:alice"])

    def test_bounded(self) -> None:
        """Of a load that deletes very much only the first part is read, and the answer says so (POL-112)."""
        self.memory.reads_kept_since = 0.0
        document = "- !delete { record: !variable key }\n- !delete { record: !variable hidden }\n"
        self.client.get("/secrets/acme/variable/key", role=ALICE)
        self.assertTrue(self.tried(document)["complete"])
        self.patch(readers, "READ_VARIABLES", 0)
        self.assertFalse(self.tried(document)["complete"])
        self.patch(readers, "READ_VARIABLES", 1)
        self.assertTrue(self.tried(document)["complete"])
        self.patch(readers, "WINDOW", 1)
        self.assertFalse(self.tried(document)["complete"])


class UnreadTests(ReadersCase):
    """What nobody reads."""

    def names(self, query: str = "", role: Any = ADMIN) -> list[str]:
        """The variables."""
        return [each["variable"].split(":", 2)[2] for each in self.unread(query, role)]

    def test_listed(self) -> None:
        """Variables are listed that were made before and have no read since, but for those of authenticators (READ-14)."""
        self.clock.advance(50 * DAY)
        self.client.get("/secrets/acme/variable/password", role=ALICE)
        self.clock.advance(50 * DAY)
        self.client.get("/secrets/acme/variable/key", role=ALICE)
        self.assertEqual(self.names(), ["empty", "hidden", "shop/db"])
        self.assertEqual(self.names(f"&since={40 * DAY}"), ["empty", "hidden", "password", "shop/db"])
        self.assertEqual(self.names(f"&since={101 * DAY}"), [])
        (password,) = [each for each in self.unread(f"&since={40 * DAY}") if each["variable"] == PASSWORD]
        day = iso_day(TODAY + 50)
        self.assertEqual((password["last_read"], password["unread_since"], password["certain"]), (day, day, True))

    def test_who_may_ask(self) -> None:
        """Owners and auditors are told of their variables, and those of the root policy of all (READ-14)."""
        self.clock.advance(100 * DAY)
        self.assertEqual(self.names(role=user("olga")), ["shop/db"])
        self.assertEqual(self.names(role=user("ida")), ["shop/db"])
        self.assertEqual(self.names(role=ALICE), [])
        self.assertEqual(self.client.get("/unused?secrets", role=user("gone")).status, 403)
        self.load("- !permit { role: !user ida, privileges: [ inspect ], resource: !policy root }")
        self.assertEqual(self.names(role=user("ida")), self.names())

    def test_pages(self) -> None:
        """Pages of any size, and windows of any size, make the same list (READ-14)."""
        self.clock.advance(100 * DAY)
        for role in (ADMIN, user("olga")):
            whole = self.unread(role=role)
            for window in (1, 2):
                for limit in (1, 2, 5):
                    self.patch(readers, "WINDOW", window)
                    self.patch(readers, "WINDOWS", 1)
                    self.assertEqual(self.unread(f"&limit={limit}", role), whole)
        self.assertEqual(self.client.get("/unused?secrets&after=x", role=ADMIN).status, 422)

    def test_certain(self) -> None:
        """It is uncertain before reads were kept, where reads were lost, and while a server is missing (READ-14)."""
        self.clock.advance(100 * DAY)
        self.memory.reads_kept_since = NOW + 50 * DAY
        (found, *_) = self.unread()
        self.assertEqual((found["last_read"], found["unread_since"], found["certain"]), (None, iso_day(TODAY + 50), False))
        self.assertTrue(self.unread(f"&since={40 * DAY}")[0]["certain"])
        self.memory.reading_losses[TODAY + 70] = None
        self.assertFalse(self.unread(f"&since={40 * DAY}")[0]["certain"])
        self.assertTrue(self.unread(f"&since={20 * DAY}")[0]["certain"])
        self.memory.reading_servers["west"] = (None, self.memory.now)
        self.assertFalse(self.unread(f"&since={20 * DAY}")[0]["certain"])


class ConjurTests(ReadersCase):
    """The same in the other dialect."""

    dialect = CONJUR

    def test_both(self) -> None:
        """Both questions have the same answers (READ-15)."""
        self.client.get("/secrets/acme/variable/key", role=ALICE)
        self.assertEqual([each["role"] for each in self.ask("key")["readers"]], ["acme:user:alice"])
        self.clock.advance(100 * DAY)
        self.assertNotIn("conjur/authn-jwt/ci/jwks-uri", str(self.unread()))


class DeliveryTests(WorldCase):
    """The route by which a server hands out its counts."""

    def setUp(self) -> None:
        """A server that has a batch, and another that asks."""
        super().setUp()
        self.asked: list[tuple[str, int]] = []
        self.batch = ReadingBatch("here", 3, 20_000, (), (20_000,))

        async def hand_out(source: str, confirmed: int) -> ReadingBatch:
            self.asked.append((source, confirmed))
            return self.batch

        self.others = PeerClaims(Vault(b"k" * 32))
        self.near = Client(ClusterReadings(PeerClaims(self.vault), hand_out))

    def get(self, challenge: str, code: str, source: str = "here", confirmed: int = 2) -> Any:
        """Ask."""
        query = f"challenge={challenge}&code={code}&source={source}&confirmed={confirmed}"
        return self.near.get(f"/cluster/readings?{query}")

    def test_delivered(self) -> None:
        """Who knows the data key gets the counts, sealed for this challenge (READ-7)."""
        challenge, code = self.others.new_readings_question("here", 2)
        answer = self.get(challenge, code)
        self.assertEqual(answer.status, 200)
        self.assertEqual(self.others.open_readings(challenge, answer.body), self.batch)
        self.assertEqual(self.asked, [("here", 2)])
        self.assertNotIn(b"here", base64.b64decode(answer.json()["readings"]))
        self.assertIsNone(self.others.open_readings(self.others.new_readings_question("", 0)[0], answer.body))
        self.assertIsNone(PeerClaims(Vault(b"x" * 32)).open_readings(challenge, answer.body))
        for odd in (b"", b"{}", b'{"readings": 1}', b'{"readings": "AAAA"}', answer.body[:-9] + b'AAAAAA"}'):
            self.assertIsNone(self.others.open_readings(challenge, odd))

    def test_strangers(self) -> None:
        """To others the route isn't there, and what was added can't be altered (READ-7)."""
        challenge, code = self.others.new_readings_question("here", 2)
        foreign, theirs = PeerClaims(Vault(b"x" * 32)).new_readings_question("here", 2)
        plain, simple = self.others.new_challenge()
        for asked in (
            (challenge, theirs),
            (foreign, theirs),
            (plain, simple),
            (challenge, code, "here", 3),
            (challenge, code, "there", 2),
            (challenge, code, "%C3%A9", 2),
            ("x", code),
        ):
            self.assertEqual(self.get(*asked).status, 404, asked)
        self.assertEqual(self.near.get("/cluster/readings").status, 404)
        self.assertEqual(self.asked, [])
