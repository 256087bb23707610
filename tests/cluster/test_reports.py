"""Health reports of other servers: which are taken for some, and what is shown of them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cluster.reports import INVALID, member_health, parse_reply
from svc.model.clocks import iso_seconds
from svc.model.databases import AttachedStandby

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class ProbeReplyTests(SynchronousTestCase):
    """An answer is a report or it isn't (HEALTH-19)."""

    def test_reports(self) -> None:
        """A JSON object whose ok is a boolean that fits the status is a report, which is handed on as it was written
        (HEALTH-19).
        """
        for status, body in ((200, b'{"ok": true}'), (502, b' {"x": [1e400, "\xc3\xa9"], "ok":false}\n')):
            read = parse_reply(status, body)
            self.assertEqual((read.fault, read.body, read.ok), ("", body, status == 200))

    def test_contradictions(self) -> None:
        """With an ok that doesn't fit the status, or is no boolean, an answer is no report (HEALTH-19)."""
        for status, ok in ((200, False), (502, True), (200, 1), (502, 0), (200, "true"), (502, None), (200, [True])):
            self.assertEqual(parse_reply(status, json.dumps({"ok": ok}).encode()).fault, INVALID)
        self.assertEqual(parse_reply(200, b"{}").fault, INVALID)

    def test_other_statuses(self) -> None:
        """With a status other than 200 and 502 an answer is no report, whatever its body (HEALTH-19)."""
        for status in (201, 204, 301, 302, 401, 404, 500, 503):
            for body in (b'{"ok": true}', b'{"ok": false}'):
                self.assertEqual((parse_reply(status, body).fault, parse_reply(status, body).ok), (INVALID, False))

    def test_not_json(self) -> None:
        """A text that isn't JSON, is no object, or could be read in two ways is no report (HEALTH-19)."""
        for body in (
            b"",
            b"<html>ok</html>",
            b"true",
            b'[{"ok": true}]',
            b'"ok"',
            b'{"ok": true',
            b'{"ok": true} {}',
            b'{"ok": false, "ok": true}',
            b'{"ok": true, "services": {"a": 1, "a": 2}}',
            b'{"ok": true, "x": NaN}',
            b'{"ok": true, "x": -Infinity}',
            b'{"ok": true, "x": "\xff"}',
            b'\xef\xbb\xbf{"ok": true}',
            '{"ok": true}'.encode("utf-16"),
            b'{"ok": true, "x": ' + b"9" * 5000 + b"}",
            b'{"ok": true, "x": ' + b"[" * 30000 + b"]" * 30000 + b"}",
        ):
            self.assertEqual(parse_reply(200, body).fault, INVALID, body[:60])

    @given(st.sampled_from([200, 502]), st.binary(max_size=80) | JSON.map(lambda value: json.dumps(value).encode()))
    def test_any_answer_is_judged(self, status: int, body: bytes) -> None:
        """Whatever is answered, it is a report whose ok fits, or none."""
        read = parse_reply(status, body)
        self.assertEqual(read.fault or read.document["ok"], read.fault or status == 200)


class MemberHealthTests(SynchronousTestCase):
    """The parts of a report that are shown."""

    def see(self, **document: Any) -> Any:
        """See a report."""
        return member_health("b", document, here=False, changed=None, age=0.0)

    def test_primary_and_follower(self) -> None:
        """A server that tells its lag is a follower, one whose database is well and has none the primary."""
        database = {"ok": True, "connect": {"main": "ok"}, "replication_status": {"db_current_xlog_location": "0/1"}}
        seen = self.see(ok=True, services={"core": "ok", "ok": True}, database=database)
        self.assertEqual((seen.role, seen.database, seen.services, seen.ok), ("primary", "ok", {"core": "ok"}, True))
        database["replication_status"] = {"lag_seconds": 1.5, "lag_bytes": 96}
        seen = self.see(ok=True, database=database)
        self.assertEqual((seen.role, seen.lag_seconds, seen.lag_bytes), ("follower", 1.5, 96))
        database["ok"] = False
        self.assertEqual(self.see(ok=False, database=database).role, "")

    def test_primaries(self) -> None:
        """What a server says of primaries is shown, if it is a word."""
        for cluster, shown in (
            ({"ok": False, "primaries": "two"}, "two"),
            ({"primaries": [1]}, ""),
            ("two", ""),
            (None, ""),
        ):
            self.assertEqual(self.see(ok=False, cluster=cluster).primaries, shown)

    def test_node(self) -> None:
        """A server's own words on its versions, its database and its standbys are shown, each if it can be one; when its
        state changed is what it says itself (HEALTH-23).
        """
        standby: dict[str, Any] = {
            "name": "two",
            "state": "streaming",
            "sync": "sync",
            "lag_bytes": 7,
            "lag_seconds": 0.5,
            "since": 9.0,
        }
        node = {"version": "1.2", "release": "18.1", "schema": 15, "timeline": 3, "since": 8.0, "changed": 6.0}
        seen = self.see(ok=True, cluster={"primaries": "ok", "node": {**node, "standbys": [standby, {}, 1]}})
        self.assertEqual({name: getattr(seen, name) for name in node}, node)
        self.assertEqual(seen.standbys, [AttachedStandby(**standby)])
        strange = {"version": 1, "release": "x" * 33, "schema": "15", "timeline": -1, "since": True, "changed": "now"}
        seen = self.see(ok=True, cluster={"node": {**strange, "standbys": {}}})
        self.assertEqual({getattr(seen, name) for name in (*strange, "standbys")}, {"", None})
        many = [{"name": f"s{n}", "since": n} for n in range(99)]
        seen = self.see(ok=True, cluster={"node": {"standbys": many}})
        self.assertEqual(seen.standbys, [AttachedStandby(f"s{n}", "", "", None, None, n) for n in range(16)])

    def test_impossible_moments(self) -> None:
        """A moment that no page can write as a date isn't shown (HEALTH-23)."""
        for moment, shown in (((1 << 36) - 1, "4147-08-20T07:32:15Z"), (1 << 36, None), (1e15, None), (1 << 62, None)):
            node = {"since": moment, "changed": moment, "standbys": [{"name": "two", "since": moment}]}
            seen = self.see(ok=True, cluster={"node": node})
            moments = {seen.since, seen.changed, *(each.since for each in seen.standbys)}
            self.assertEqual({each and iso_seconds(each) for each in moments}, {shown})

    def test_impossible_lags(self) -> None:
        """A lag that no number of seconds is isn't shown."""
        for lag in (True, "1", -1, 1e400, 1 << 70, None, [1]):
            database = {"ok": True, "replication_status": {"lag_seconds": lag}}
            self.assertIsNone(self.see(ok=True, database=database).lag_seconds)

    def test_strange_words(self) -> None:
        """Names and words that are long or can't be printed aren't shown, and of many services some."""
        services = {"a": "x" * 33, "b" * 33: "ok", "c": "\x1b[31m", "d\n": "ok", "e": 1, "f": "", "g": "ok"}
        self.assertEqual(self.see(services=services).services, {"g": "ok"})
        self.assertEqual(len(self.see(services={f"s{n}": "ok" for n in range(99)}).services), 32)

    @given(st.dictionaries(st.sampled_from(["ok", "services", "database", "cluster"]), JSON), JSON, JSON)
    def test_any_report_is_seen(self, document: dict[str, Any], connect: Any, replication: Any) -> None:
        """Whatever stands in a report, it can be shown, and written as JSON."""
        self.see(**document)
        json.dumps(self.see(cluster={"node": {"standbys": [connect], "since": replication}}).document(), allow_nan=False)
        database = {"ok": True, "connect": connect, "replication_status": replication}
        json.dumps(self.see(ok=True, database=database).document(), allow_nan=False)
