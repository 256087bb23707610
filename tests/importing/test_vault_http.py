"""Requests to a Vault: what its answers mean, and which of them end the reading."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.importing.hcl import Number
from svc.importing.inventory import SourceStopped
from svc.importing.vault_http import TRIES, Absent, Found, Locked, Refused, VaultConnection, encode_segments
from svc.importing.vault_json import read_json, write_json
from svc.workload.faults import TooLong, Unreachable, Untrusted
from tests.importing.vault_stand_in import TOKEN, VaultStandIn, reply

URL = "https://vault.example.org"


class VaultTestCase(SynchronousTestCase):
    """A stand-in, and a connection to it."""

    def setUp(self) -> None:
        """Make them."""
        self.vault = VaultStandIn()
        self.connection = VaultConnection(URL, self.vault, TOKEN)

    def run_until_done(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a coroutine."""
        return asyncio.run(work)

    def stopped(self, work: Coroutine[Any, Any, Any]) -> SourceStopped:
        """Return the fault with which a coroutine ends, which has no secret in it."""
        fault: SourceStopped = self.assertRaises(SourceStopped, asyncio.run, work)
        self.assertNotIn(TOKEN, f"{fault} {fault.remedy}")
        self.assertTrue(fault.remedy)
        return fault


class OutcomeTests(VaultTestCase):
    """Single answers."""

    def test_refusals(self) -> None:
        """A dead token stops with what to do, a missing right is a line, whatever the path (MOVE-29)."""
        self.vault.refused = [("GET", "a")]
        self.assertEqual(self.run_until_done(self.connection.read("a")), Refused())
        self.vault.token = "s.another"
        fault = self.stopped(self.connection.read("a"))
        self.assertIn("takes the token no more", str(fault))
        self.assertIn("new token", fault.remedy)

    def test_absent(self) -> None:
        """An empty list is 404, that of SCAN 200 without names: both are empty (MOVE-2)."""
        self.vault.mounts = {"kv/": {}}
        self.assertEqual(self.run_until_done(self.connection.list_names("kv/")), ())
        found = self.run_until_done(self.connection.read("kv/", method="SCAN"))
        self.assertEqual(self.connection.names_in(found, "kv/"), ())
        self.assertEqual(
            self.run_until_done(self.connection.read("b")), Absent(('no handler for route "b". route entry not found.',))
        )

    def test_momentary(self) -> None:
        """Whatever may pass is asked for again after growing pauses, up to a bound; health isn't asked first (MOVE-30)."""
        for momentary in (
            reply(429, {"errors": ["request path: rate limit quota exceeded"]}),
            reply(503, {"errors": ["Vault is sealed"]}),
            reply(500, {"errors": ["local node not active but active cluster node not found"]}),
            reply(502, b"<html>bad gateway</html>"),
            Unreachable(URL, "the connection was lost"),
        ):
            with self.subTest(str(momentary)):
                self.vault.data, self.vault.slept = {"a": {"b": "c"}}, []
                self.vault.odd[("GET", "a")] = [momentary] * 3
                found = self.run_until_done(self.connection.read("a"))
                self.assertEqual(found.data, {"b": "c"})
                self.assertEqual(self.vault.slept, [0.5, 1.0, 2.0])
                self.vault.odd[("GET", "a")] = [momentary] * (TRIES + 1)
                fault = self.stopped(self.connection.read("a"))
                self.assertIn(f"after {TRIES} tries", str(fault))
                self.assertIn("it goes on where it stopped", fault.remedy)
                self.vault.odd.clear()
        self.assertNotIn(("GET", "sys/health"), self.vault.asked)
        self.vault.slept = []
        self.vault.odd[("GET", "a")] = [reply(429, {"errors": []}, **{"retry-after": "7"})]
        self.run_until_done(self.connection.read("a"))
        self.assertEqual(self.vault.slept, [7.0])

    def test_locked(self) -> None:
        """A locked namespace isn't asked again (MOVE-28)."""
        locked = {"errors": ["API access to this namespace has been locked"], "data": {"locked": True}}
        self.vault.odd[("GET", "team/a")] = [reply(503, locked)]
        self.assertEqual(self.run_until_done(self.connection.read("a", "team/")), Locked())
        self.assertEqual(self.vault.slept, [])

    def test_strange(self) -> None:
        """Any other answer stops, with what it is and without its contents (MOVE-30)."""
        for odd, part in (
            (reply(200, b"<html>password hunter2</html>"), "no JSON"),
            (reply(200, b'{"data": {"a": NaN}}'), "no JSON"),
            (reply(200, b'{"data": {"a": "\\ud800"}}'), "no JSON"),
            (reply(200, b'{"data":' + b"[" * 5000 + b"]" * 5000 + b"}"), "no JSON"),
            (reply(200, ["hunter2"]), "no JSON"),
            (reply(200, {"data": ["hunter2"]}), "no object"),
            (reply(418, {"errors": [f"teapot {TOKEN}"]}), "status 418, teapot …"),
            (
                reply(307, b"", location="https://active.example.org/v1/a?token=x"),
                "leads to https://active.example.org/v1/a:",
            ),
            (TooLong(URL, 5), "larger than 5 bytes"),
            (Untrusted(URL, "certificate verify failed"), "certificate is not to be trusted"),
        ):
            with self.subTest(part):
                self.vault.odd[("GET", "a")] = [odd]
                fault = self.stopped(self.connection.read("a"))
                self.assertIn(part, str(fault))
                self.assertNotIn("hunter2", str(fault))
        self.vault.odd[("LIST", "a")] = [reply(200, {"data": {"keys": [1]}})]
        self.assertIn("no names", str(self.stopped(self.connection.list_names("a"))))

    def test_certificate(self) -> None:
        """A refused certificate names the option for the source's authority, not those for the target's (IMP-41)."""
        for why, part in (("certificate verify failed", "--source-ca-file"), ("TLS failed: wrong version", "port")):
            with self.subTest(why):
                self.vault.odd["GET", "a"] = [Untrusted(URL, why)]
                fault = self.stopped(self.connection.read("a"))
                self.assertIn(part, fault.remedy)
                self.assertNotIn(" --ca-file", f"{fault} {fault.remedy}")
                self.assertNotIn("SVC_CA_FILE", f"{fault} {fault.remedy}")

    def test_paths(self) -> None:
        """Each segment is encoded by itself, and nothing is normalised, dots neither (MOVE-12)."""
        for path, expected in (
            ("a b/c+d/e%f", "a%20b/c%2Bd/e%25f"),
            ("q?x/h#y/*:\\", "q%3Fx/h%23y/%2A%3A%5C"),
            ("e\u0301/\u00e9", "e%CC%81/%C3%A9"),
            (" a/b ", "%20a/b%20"),
            ("a//.b", "a//.b"),
            ("a/../.", "a/%2E%2E/%2E"),
            ("...", "..."),
        ):
            with self.subTest(path):
                self.assertEqual(encode_segments(path), expected)

    def test_numbers(self) -> None:
        """Numbers and order stay as they came (MOVE-9)."""
        text = '{"z":12345678901234567890,"b":1.0,"c":1e3,"e":[9007199254740993,0.10000000000000000000001,-0],"a":"\u2028<"}'
        value = read_json(text.encode())
        self.assertEqual(write_json(value), text)
        assert isinstance(value, dict)
        self.assertEqual(value["b"], Number("1.0"))
        self.assertEqual(read_json(rb'"\u003c\u2028\u0000"'), "<\u2028\x00")


class TokenTests(VaultTestCase):
    """What a token can still do."""

    def test_limited(self) -> None:
        """A token with too few uses or too little time stops before anything is read (MOVE-31)."""
        for data, part in (
            ({"num_uses": 5, "ttl": 0}, "5 uses left"),
            ({"num_uses": -1, "ttl": 0}, "0 uses left"),
            ({"num_uses": 0, "ttl": 30}, "ends in 30 s"),
            ({"num_uses": "many"}, "another shape"),
        ):
            with self.subTest(part):
                self.vault.asked.clear()
                self.vault.data["auth/token/lookup-self"] = data
                self.assertIn(part, str(self.stopped(self.connection.check_token())))
                self.assertEqual(self.vault.asked, [("GET", "auth/token/lookup-self")])

    def test_enough(self) -> None:
        """A token that will do is described (MOVE-31)."""
        for data, expected in (
            ({"num_uses": 0, "ttl": 0}, ()),
            (
                {"num_uses": 5000, "ttl": 3600},
                ("the token ends in 3600 s", "the token has 5000 uses left"),
            ),
        ):
            self.vault.data["auth/token/lookup-self"] = data
            self.assertEqual(self.run_until_done(self.connection.check_token()), expected)
        self.vault.refused = [("GET", "auth/token/lookup-self")]
        self.assertIn("isn't known", self.run_until_done(self.connection.check_token())[0])

    def test_approle(self) -> None:
        """A login by AppRole gives a token, which is revoked at the end; a refused one says what to see to (MOVE-26)."""
        connection = VaultConnection(URL, self.vault)
        self.run_until_done(connection.login_by_approle("approle", "rid", "sid", "team/"))
        self.vault.data["a"] = {}
        self.assertIsInstance(self.run_until_done(connection.read("a")), Found)
        self.run_until_done(connection.end_login("team/"))
        self.assertEqual(self.vault.asked[-1], ("POST", "team/auth/token/revoke-self"))
        fault = self.stopped(connection.login_by_approle("approle", "rid", "hunter2"))
        self.assertNotIn("hunter2", str(fault))
        self.assertNotIn("hunter2", repr(connection))
        self.assertNotIn(TOKEN, repr(connection))
