"""Tests of ``svc.web.routes.batches``."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from svc.services.secret_batches import LONG, PIECE, PIECE_BYTES
from tests.web.support import Answer
from tests.web.world import ADMIN, WorldCase, user

ALICE, BOB, EVE = user("alice"), user("bob"), user("eve")

POLICY: Final = """
- !user alice
- !user bob
- !user eve
- !variable password
- !variable key
- !variable empty
- !variable hidden
- !permit
  role: !user alice
  privileges: [ read, execute ]
  resources: [ !variable password, !variable key, !variable empty ]
- !permit { role: !user bob, privileges: [ read ], resource: !variable password }
- !permit { role: !user bob, privileges: [ read, execute ], resource: !variable key }
"""

PASSWORD, KEY, EMPTY, HIDDEN = (f"acme:variable:{name}" for name in ("password", "key", "empty", "hidden"))


class BatchCase(WorldCase):
    """Variables with values, and who may read some of them."""

    def setUp(self) -> None:
        """Load a policy with variables, and set some."""
        super().setUp()
        self.load(POLICY)
        for name in ("password", "key", "hidden"):
            self.set_value(name, f"the {name}".encode())
        self.journal.told()

    def ask(self, ids: Any, role: RoleName = ALICE, headers: Iterable[tuple[str, str]] = (), **more: Any) -> Answer:
        """Ask for a batch."""
        body = json.dumps({"variable_ids": ids, **more}).encode()
        return self.client.post("/secrets/batch", body, role=role, headers=headers)

    def ask_by_query(self, ids: Sequence[str], role: RoleName = ALICE, headers: Iterable[tuple[str, str]] = ()) -> Answer:
        """Ask for a batch whose ids are in the query."""
        return self.client.get(f"/secrets?variable_ids={','.join(ids)}", role=role, headers=headers)


class BatchesTests(BatchCase):
    """Batches with a body, and tags."""

    def test_values(self) -> None:
        """Values are answered by the full ids in the body, of which a repeated one counts once (SEC-37)."""
        answer = self.ask([PASSWORD, KEY, PASSWORD])
        self.assertEqual(answer.json(), {"values": {PASSWORD: "the password", KEY: "the key"}})
        self.assertEqual(answer.headers["cache-control"], "no-store")

    def test_base64(self) -> None:
        """Values that are no texts are answered in base64 (SEC-37, SEC-15)."""
        value = bytes(range(256))
        self.set_value("key", value)
        answer = self.ask([KEY, PASSWORD], headers=[("Accept-Encoding", "base64")])
        self.assertEqual(base64.b64decode(answer.json()["values"][KEY]), value)
        self.assertEqual(answer.headers["content-encoding"], "base64")
        self.assertIn(KEY, self.error(self.ask([KEY, PASSWORD]), 406, "not_acceptable"))

    def test_bad_bodies(self) -> None:
        """A body that is no JSON object is 400, and one without a list of ids 422, whoever asks for whatever (SEC-37)."""
        for body in (b"", b"[]", b"{", b"variable_ids=x", b'{"variable_ids":["x"],"variable_ids":["x"]}', b"\xff"):
            self.error(self.client.post("/secrets/batch", body, role=EVE), 400, "bad_request")
        wrong: list[Any] = [
            None,
            [],
            {},
            PASSWORD,
            [1],
            [PASSWORD, None],
            [[PASSWORD]],
            ["a\x00"],
            ["\ud800"],
            [KEY, "\udfff"],
        ]
        for ids in wrong:
            self.assertIn("variable_ids", self.error(self.ask(ids, EVE), 422, "argument_error"))
        for partial in ("true", 1, None):
            self.assertIn("partial", self.error(self.ask([PASSWORD], EVE, partial=partial), 422, "argument_error"))
        self.assertEqual(self.client.post("/secrets/batch", b"{}").status, 401)

    def test_refused(self) -> None:
        """What is seen without ``execute`` is refused first, then what isn't seen or isn't there, then what has no value
        (SEC-37, SEC-14).
        """
        missing = "acme:variable:none"
        answer = self.ask([missing, HIDDEN, EMPTY, PASSWORD], BOB)
        self.assertEqual((answer.status, answer.body), (403, b""))
        for ids in (
            [EMPTY, HIDDEN, missing],
            [EMPTY, missing, HIDDEN],
            [EMPTY, "", HIDDEN],
            [EMPTY],
            ["other:variable:x", EMPTY],
        ):
            told = next((each for each in ids if each != EMPTY), EMPTY)
            message = self.error(self.ask(ids), 404, "not_found")
            self.assertEqual(message, self.worded(f"CONJ00076E Variable {told} is empty or not found."))
        self.assertEqual(self.ask([EMPTY], user("gone")).status, 403)

    def test_partial(self) -> None:
        """Partial results are the values that can be read, and for each other one what a read of it alone tells, where what
        is hidden and what isn't there are alike (SEC-38).
        """
        self.set_value("key", b"\xff")
        missing = "acme:variable:none"
        answer = self.ask([PASSWORD, HIDDEN, missing, EMPTY, KEY, "x"], partial=True)
        told = answer.json()
        self.assertEqual(told["values"], {PASSWORD: "the password"})
        alone = {
            name: self.client.get(f"/secrets/acme/variable/{name}", role=ALICE).json()["error"]
            for name in ("hidden", "none", "empty")
        }
        for name, error in alone.items():
            expected = {"code": error["code"], "message": error["message"]}
            self.assertEqual(told["errors"].pop(f"acme:variable:{name}"), expected)
        self.assertEqual(
            {name: error["code"] for name, error in told["errors"].items()}, {KEY: "not_acceptable", "x": "not_found"}
        )
        self.assertNotIn("etag", answer.headers)
        self.assertEqual(self.ask([PASSWORD], BOB, partial=True).json()["errors"][PASSWORD]["code"], "forbidden")
        self.assertEqual(self.ask([PASSWORD], partial=True).json(), {"values": {PASSWORD: "the password"}, "errors": {}})
        self.assertEqual(self.ask([PASSWORD], user("gone"), partial=True).status, 403)

    def test_partial_with_what_does_not_open(self) -> None:
        """A value that doesn't open keeps no other from being told (SEC-38, SEC-6)."""
        self.memory.secrets[KEY] = self.memory.secrets[PASSWORD]
        told = self.ask([PASSWORD, KEY], partial=True).json()
        self.assertEqual((told["values"], told["errors"][KEY]["code"]), ({PASSWORD: "the password"}, "data_key_invalid"))
        self.error(self.ask([PASSWORD, KEY]), 422, "data_key_invalid")

    def test_sizes_of_others(self) -> None:
        """What the caller may not read doesn't count as bytes, however large it is (SEC-38)."""
        self.load("".join(f"- !variable big/{number}\n" for number in range(5)))
        ids = [f"acme:variable:big/{number}" for number in range(5)]
        for full in ids:
            self.set_value(full.split(":")[2], b"x" * (PIECE_BYTES - 100))
        self.assertEqual(self.error(self.ask(ids, ADMIN, partial=True), 413, "too_large").count(str(LONG.bytes)), 1)
        told = self.ask([*ids, PASSWORD], partial=True).json()
        self.assertEqual((told["values"], set(told["errors"])), ({PASSWORD: "the password"}, set(ids)))

    def test_large_values(self) -> None:
        """Values that are too large to be read at once are read in parts (SEC-41)."""
        self.load("".join(f"- !variable big/{number}\n" for number in range(3)))
        values = {f"acme:variable:big/{number}": str(number) * (PIECE_BYTES - 100) for number in range(3)}
        for full, value in values.items():
            self.set_value(full.split(":")[2], value.encode())
        self.assertEqual(self.ask([*values, KEY], ADMIN).json()["values"], {**values, KEY: "the key"})
        self.error(self.ask_by_query([*values], ADMIN), 413, "too_large")

    def test_many(self) -> None:
        """As many as are allowed are read in pieces, and one more is refused; what can't be read is found in each piece
        (SEC-37, SEC-41).
        """
        names = [f"many/{number}" for number in range(LONG.ids)]
        self.load("".join(f"- !variable {name}\n" for name in names))
        ids = [f"acme:variable:{name}" for name in names]
        for full in ids:
            self.memory.add_value(full, self.vault.seal(full, full.encode()))
        answer = self.ask(ids, ADMIN)
        self.assertEqual(answer.json()["values"], {full: full for full in ids})
        known = self.ask(ids, ADMIN, headers=[("If-None-Match", answer.headers["etag"])])
        self.assertEqual((known.status, known.body), (304, b""))
        self.set_value("many/9999", b"another")
        self.assertEqual(self.ask(ids, ADMIN, headers=[("If-None-Match", answer.headers["etag"])]).status, 200)
        self.assertIn("10000", self.error(self.ask([*ids, KEY], ADMIN), 422, "argument_error"))
        self.load("- !delete { record: !variable many/5000 }", method="PATCH")
        message = self.error(self.ask(ids, ADMIN), 404, "not_found")
        self.assertIn("many/5000", message)
        told = self.ask(ids, ADMIN, partial=True).json()
        self.assertEqual((len(told["values"]), list(told["errors"])), (LONG.ids - 1, ["acme:variable:many/5000"]))

    def test_followers(self) -> None:
        """A follower answers (SEC-37)."""
        self.memory.standby = True
        self.assertEqual(self.ask([PASSWORD]).status, 200)

    def test_tags(self) -> None:
        """A batch has a weak tag, the same for every caller and by either route, which doesn't tell values; another one in
        another order, in base64, and after a change, also when a variable comes back with the same value and version
        (SEC-39).
        """
        ids = [PASSWORD, KEY]
        first = self.ask(ids).headers["etag"]
        self.assertRegex(first, r'^W/"[0-9a-f]{32}"$')
        same = [self.ask(ids), self.ask(ids, ADMIN), self.ask(ids, partial=True), self.ask_by_query(ids)]
        self.assertEqual({answer.headers["etag"] for answer in same}, {first})
        others = [self.ask([KEY, PASSWORD]), self.ask([KEY]), self.ask(ids, headers=[("Accept-Encoding", "base64")])]
        self.set_value("key", b"another")
        others.append(self.ask(ids))
        self.load("- !delete { record: !variable key }", method="PATCH")
        self.load(POLICY)
        for value in (b"the key", b"another"):
            self.set_value("key", value)
        others.append(self.ask(ids))
        self.assertEqual(len({first, *(answer.headers["etag"] for answer in others)}), 6)

    def test_known(self) -> None:
        """Who has the batch by its tag gets 304; anyone who has another one, or names none, gets the values (SEC-40)."""
        for ask in (self.ask, self.ask_by_query):
            for encoding in ([], [("Accept-Encoding", "base64")]):
                tag = ask([PASSWORD, KEY], headers=encoding).headers["etag"]
                for header in (tag, tag.removeprefix("W/"), f'"x", {tag}'):
                    answer = ask([PASSWORD, KEY], headers=[*encoding, ("If-None-Match", header)])
                    self.assertEqual((answer.status, answer.body, answer.headers["etag"]), (304, b"", tag))
                    self.assertNotIn("content-length", answer.headers)
                for header, value in (("If-None-Match", "*"), ("If-None-Match", '"x"'), ("If-Match", '"x"')):
                    answer = ask([PASSWORD, KEY], headers=[*encoding, (header, value)])
                    self.assertEqual((answer.status, answer.headers["etag"]), (200, tag))
                answer = ask([KEY, PASSWORD], headers=[*encoding, ("If-None-Match", tag)])
                self.assertEqual(answer.status, 200)
            self.error(ask([PASSWORD], headers=[("If-None-Match", "x")]), 422, "argument_error")
        tag = self.ask([PASSWORD, KEY]).headers["etag"]
        answer = self.ask([PASSWORD, KEY], headers=[("If-None-Match", tag), ("Accept-Encoding", "base64")])
        self.assertEqual(answer.status, 200)

    def test_tags_tell_strangers_nothing(self) -> None:
        """A caller that may not read all of it is answered as without a condition, and told no tag (SEC-40)."""
        tag = self.ask([KEY, PASSWORD]).headers["etag"]
        for role in (BOB, EVE, user("gone")):
            for value in (tag, '"x"', "*"):
                plain, conditional = (
                    self.ask([KEY, PASSWORD], role, headers=headers) for headers in ((), [("If-None-Match", value)])
                )
                self.assertEqual((plain.status, plain.body), (conditional.status, conditional.body))
                self.assertNotIn("etag", conditional.headers)

    def test_a_privilege_that_was_taken(self) -> None:
        """A caller that may no longer read one of them isn't told that it has all (SEC-40)."""
        tag = self.ask([KEY, PASSWORD]).headers["etag"]
        self.load("- !deny { role: !user alice, privilege: execute, resource: !variable key }", method="PATCH")
        self.assertEqual(self.ask([KEY, PASSWORD], headers=[("If-None-Match", tag)]).status, 403)

    def test_what_expired(self) -> None:
        """A value that ends is missing from the batch from then on, whatever tag the client has (SEC-22, SEC-40)."""
        self.load("- !variable { id: short, annotations: { expiration/ttl: PT1H } }")
        self.set_value("short", b"one")
        ids = [PASSWORD, "acme:variable:short"]
        tag = self.ask(ids, ADMIN).headers["etag"]
        known = [("If-None-Match", tag)]
        self.assertEqual(self.ask(ids, ADMIN, headers=known).status, 304)
        self.memory.now += 3600
        self.assertIn("expired", self.error(self.ask(ids, ADMIN, headers=known), 404, "not_found"))
        self.assertIn("expired", self.ask(ids, ADMIN, partial=True).json()["errors"][ids[1]]["message"])

    def test_audit(self) -> None:
        """A batch leaves a record for each id, and one for itself with its tag and size; a 304 one with both (SEC-42)."""
        tag = self.ask([PASSWORD, KEY]).headers["etag"].strip('W/"')
        each = [("fetch", "fetch", {"resource": full}, None) for full in (PASSWORD, KEY)]
        about = {"batch": tag, "count": "2"}
        self.assertEqual(self.journal.told(), [*each, ("fetch", "batch", about, None)])
        self.ask([PASSWORD, KEY], headers=[("If-None-Match", f'W/"{tag}"')])
        self.assertEqual(self.journal.told(), [("fetch", "confirm", about, None)])
        self.ask([PASSWORD, KEY], BOB, headers=[("If-None-Match", f'W/"{tag}"')])
        self.assertEqual(
            self.journal.told(), [("fetch", "fetch", {"resource": full}, "forbidden") for full in (PASSWORD, KEY)]
        )
        self.ask([])
        self.assertEqual(self.journal.told(), [("fetch", "fetch", {"resource": "-"}, "invalid")])

    def test_audit_of_partial_results(self) -> None:
        """Of a partial answer the record of what wasn't told says why (SEC-42)."""
        self.ask([PASSWORD, HIDDEN, EMPTY], partial=True)
        told = [(dict(event.subject), event.reason, outcome.reason) for _, event, outcome in self.journal.taken]
        reasons = {PASSWORD: None, HIDDEN: "forbidden", EMPTY: "not-found"}
        self.assertEqual(told, [({"resource": full}, reason, None) for full, reason in reasons.items()])

    def test_pieces(self) -> None:
        """The limits are those that the rules have (SEC-37, SEC-41, LIM-16)."""
        self.assertEqual((LONG.ids, LONG.bytes, PIECE, PIECE_BYTES), (10_000, 4 * 2**20, 1000, 2**20))


class ConjurBatchesTests(BatchesTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR
