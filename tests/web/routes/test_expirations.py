"""Tests of ``svc.web.routes.expirations``: what ends, and who doesn't log in any more."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

from svc.model.authentication import DAY, KeySource, KeysState, day_of, iso_day
from svc.model.dialect import CONJUR
from svc.model.expiration import ExpirationKind
from svc.services import inactive_roles, upcoming_expirations
from svc.web.routes.expirations import encode_cursor
from tests.memory import ExpirationRow
from tests.services.test_login_notes import TODAY
from tests.web.support import NOW
from tests.web.world import ACCOUNT, ADMIN, ADMIN_KEY, WorldCase, user

ALICE = user("alice")

POLICY = """
- !user alice
- !user bob
- !host web
- !group ops
- !variable
  id: short
  annotations: { expiration/ttl: P3D }
- !variable
  id: other
  annotations: { expiration/ttl: P2D }
- !variable
  id: turned
  annotations: { rotation/rotator: postgresql/password, rotation/ttl: P1D }
- !permit { role: !user alice, privileges: [ read ], resource: !variable short }
- !permit { role: !user alice, privileges: [ read ], resource: !host web }
- !layer machines
- !host-factory { id: factory, layers: [ !layer machines ] }
- !policy
  id: svc/authn-jwt/ci
  body:
    - !webservice
    - !webservice status
    - !variable jwks-uri
"""

YEAR = 365 * DAY


class EndingsCase(WorldCase):
    """An account with things that end. The database's clock shows the time of the server's."""

    def setUp(self) -> None:
        """Make them."""
        super().setUp()
        self.memory.now = self.memory.made_at = float(NOW)
        self.made = self.load(POLICY.replace("svc/", f"{self.dialect.prefix}/")).json()["created_roles"]
        for name in ("short", "other", "turned"):
            self.set_value(name)
        for name, days in (("short", 3), ("other", 2), ("turned", 1)):
            self.memory.expirations[f"acme:variable:{name}"] = ExpirationRow(NOW + days * DAY)

    def listed(self, query: str = "", role: Any = ADMIN) -> list[dict[str, Any]]:
        """All that ends, by as many requests as it takes."""
        return self.pages("/expiring", "expiring", query, role)

    def pages(self, path: str, field: str, query: str = "", role: Any = ADMIN) -> list[dict[str, Any]]:
        """All of a list."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            answer = self.client.get(f"{path}?{query}{after}", role=role)
            self.assertEqual(answer.status, 200, answer.body)
            page = answer.json()
            found += page[field]
            if page["after"] is None:
                return found
            self.assertNotEqual(after, f"&after={page['after']}")
            after = f"&after={page['after']}"

    def shown(self, query: str = "", role: Any = ADMIN) -> list[tuple[str, str]]:
        """The kinds and the ids."""
        return [(found["kind"], found["id"].partition(":")[2] or found["id"]) for found in self.listed(query, role)]

    def refused(self, query: str, path: str = "/expiring") -> str:
        """The message of a refusal."""
        message: str = self.error(self.client.get(f"{path}?{query}", role=ADMIN), 422, "argument_error")
        return message


class ExpiringTests(EndingsCase):
    """The list of what ends."""

    async def certificates(self) -> list[tuple[str, str, float]]:
        """Two, of which one has ended."""
        return [("listen", "port 8443", NOW - DAY), ("audit_syslog", "client.pem", NOW + 300 * DAY)]

    def test_order(self) -> None:
        """What ends is listed by when, within the time that is asked for (END-1, END-2)."""
        kinds = "kind=value&kind=rotation"
        order = [("rotation", "variable:turned"), ("value", "variable:other"), ("value", "variable:short")]
        self.assertEqual(self.shown(kinds), order)
        self.assertEqual(self.shown(f"{kinds}&within={2 * DAY}"), order[:2])
        self.assertEqual(self.shown("kind=value"), order[1:])
        (turned, *_) = self.listed(kinds)
        self.assertEqual(turned["at"], "2023-11-15T22:13:20.000+00:00")
        self.assertEqual((turned["since"], turned["by_age"]), ("2023-11-14T22:13:20.000+00:00", False))

    def test_overdue(self) -> None:
        """A rotation that failed is listed with why, also when it is overdue; a value that has ended isn't (END-2)."""
        for name, row in (
            ("turned", ExpirationRow(NOW - 5.0, failures=3, fault="it is away")),
            ("other", ExpirationRow(NOW - 5.0)),
            ("short", ExpirationRow()),
        ):
            self.memory.expirations[f"acme:variable:{name}"] = row
        (found,) = self.listed("kind=value&kind=rotation")
        self.assertEqual((found["id"], found["failures"], found["fault"]), ("acme:variable:turned", 3, "it is away"))

    def test_tokens(self) -> None:
        """A token of a host factory is listed by its factory and its name, until it ends (END-3)."""
        asked = {"host_factory": "acme:host_factory:factory", "expiration": "2023-11-16T00:00:00Z", "count": "2"}
        answer = self.client.post(
            "/host_factory_tokens",
            "&".join(f"{name}={quote(value)}" for name, value in asked.items()).encode(),
            role=ADMIN,
            headers=[("Content-Type", "application/x-www-form-urlencoded")],
        )
        texts = [token["token"] for token in answer.json()]
        found = self.listed("kind=host-factory-token")
        self.assertEqual([each["id"] for each in found], ["acme:host_factory:factory"] * 2)
        self.assertEqual([each["part"][:7] for each in found], ["sha256:"] * 2)
        self.assertFalse(any(text in json.dumps(found) for text in texts))
        self.clock.advance(2 * DAY)
        self.assertEqual(self.listed("kind=host-factory-token"), [])

    def test_certificates(self) -> None:
        """Certificates of the server are listed, also one that has ended (END-4)."""
        found = self.listed("kind=certificate")
        self.assertEqual([(each["id"], each["part"]) for each in found], [("listen", "port 8443")])
        self.assertEqual(len(self.listed(f"kind=certificate&within={YEAR}")), 2)

    def test_api_keys(self) -> None:
        """An API key is as old as its last rotation or its role; one with an end is listed by that, until then (END-5)."""
        self.assertEqual(self.listed("kind=api-key"), [])
        self.memory.rotations["acme:user:bob"] = NOW - 10 * DAY
        self.memory.key_expirations["acme:host:web"] = NOW + DAY
        found = self.listed(f"kind=api-key&age={20 * DAY}")
        told = [(each["id"], each["at"][:10], each["since"][:10], each["by_age"]) for each in found]
        made = "2023-11-14"
        self.assertEqual(
            told,
            [
                ("acme:host:web", "2023-11-15", made, False),
                ("acme:user:bob", "2023-11-24", "2023-11-04", True),
                ("acme:user:admin", "2023-12-04", made, True),
                ("acme:user:alice", "2023-12-04", made, True),
            ],
        )
        self.assertEqual(
            [each["id"] for each in self.listed("kind=api-key&age=0&within=0")],
            [
                "acme:user:bob",
                "acme:user:admin",
                "acme:user:alice",
            ],
        )
        self.clock.advance(2 * DAY)
        self.assertNotIn("acme:host:web", [each["id"] for each in self.listed("kind=api-key&age=0")])

    def test_signing_keys(self) -> None:
        """The newest signing key grows old, one that was rotated is listed until it retires (END-6)."""
        first = self.memory.accounts[ACCOUNT][-1].key_id
        self.result_of(self.keys.rotate_key(ACCOUNT, 480))
        found = self.listed(f"kind=signing-key&age={DAY}")
        newest = self.memory.accounts[ACCOUNT][-1].key_id
        self.assertEqual([(each["part"], each["by_age"]) for each in found], [(first, False), (newest, True)])
        self.assertEqual({each["id"] for each in found}, {ACCOUNT})
        self.clock.advance(500)
        self.assertEqual([each["part"] for each in self.listed(f"kind=signing-key&age={DAY}")], [newest])

    def test_visible(self) -> None:
        """Others see what they see as resources, and their own key; nothing of the server (END-8)."""
        everything = f"age={DAY}"
        own = {("value", "variable:short"), ("api-key", "user:alice"), ("api-key", "host:web")}
        self.assertEqual(set(self.shown(everything, ALICE)), own)
        self.assertEqual(self.shown("kind=certificate&kind=signing-key&kind=provider-keys", ALICE), [])
        self.assertEqual(set(self.shown(everything, user("bob"))), {("api-key", "user:bob")})
        self.assertTrue(own < set(self.shown(everything)))
        self.assertEqual(self.client.get("/expiring", role=user("gone")).status, 403)
        self.assertEqual(self.client.get("/expiring").status, 401)

    def test_pages(self) -> None:
        """Pages of any size, and windows of any size, make the same list (END-9)."""
        self.memory.rotations["acme:user:bob"] = float(NOW)
        for role in (ADMIN, ALICE):
            whole = self.listed(f"age={DAY}", role)
            for window in (1, 2, 3):
                for limit in (1, 2, 3):
                    self.patch(upcoming_expirations, "WINDOW", window)
                    self.patch(upcoming_expirations, "WINDOWS", 1)
                    self.assertEqual(self.listed(f"age={DAY}&limit={limit}", role), whole, (window, limit))
        self.assertGreater(len(whole), 2)

    def test_refused(self) -> None:
        """Cursors of others, kinds that there aren't, and what is too much are refused (END-9)."""
        self.assertIn("'kind' is one of", self.refused("kind=keys"))
        self.assertIn("'limit' must not exceed 1000", self.refused("limit=1001"))
        for name in ("within", "age"):
            self.assertIn("a hundred years", self.refused(f"{name}={101 * YEAR}"))
            self.error(self.client.get(f"/expiring?{name}=-1", role=ADMIN), 422, "unprocessable_entity")
        whole = self.client.get("/expiring?limit=1", role=ADMIN).json()["after"]
        rank = json.loads(base64.urlsafe_b64decode(whole + "==="))[1]
        for odd in (
            "",
            "x",
            whole + "A",
            whole[:-1],
            "Ã",
            _written([float(NOW), rank, "a"]),
            _written([int(NOW), rank, "a", "b"]),
            _written([float("inf"), rank, "a", "b"]),
            _written([float("nan"), rank, "a", "b"]),
            _written([-5.0, rank, "a", "b"]),
            _written([float(NOW), rank, "a\0", "b"]),
            _written([float(NOW), rank, "\ud800", "b"]),
            _written([float(NOW), True, "a", "b"]),
            _written({"at": NOW}),
            "[" * 9000,
            _written([[]] * 3000),
        ):
            self.assertIn("'after' is none", self.refused(f"after={quote(odd, errors='surrogatepass')}"), odd[:50])
        for kind in ExpirationKind:
            for part in ("", "no name", "sha256:zzzzzzzzzzzz"):
                place = _written([float(NOW), list(ExpirationKind).index(kind), "acme:user:x", part])
                self.assertEqual(self.client.get(f"/expiring?after={place}", role=ADMIN).status, 200)

    def test_audited(self) -> None:
        """That the lists were read is recorded, and not kept (AUD-3)."""
        self.listed()
        self.client.get("/unused", role=ADMIN)
        self.assertFalse([event for _, event in self.memory.events.values() if event.msgid == "endings"])


class ProviderKeysTests(EndingsCase):
    """Keys of identity providers."""

    def setUp(self) -> None:
        """Have some at hand."""
        super().setUp()
        self.set_value("svc/authn-jwt/ci/jwks-uri", b"https://ci.example/keys")
        self.state = KeysState((("k", "t"),), fetched_at=self.clock.seconds() - 5 * DAY)
        self.provider.keys_state = self.at_hand  # type: ignore[method-assign]

    def at_hand(self, source: KeySource) -> KeysState:
        """The keys, and that nobody fetched any."""
        return self.state

    def test_old(self) -> None:
        """Keys that aren't renewed grow old from when they were fetched; no provider is asked (END-7)."""
        self.provider.down = True
        self.assertEqual(self.listed("kind=provider-keys"), [])
        (found,) = self.listed(f"kind=provider-keys&age={10 * DAY}")
        self.assertEqual((found["id"], found["part"]), ("acme:webservice:svc/authn-jwt/ci", "https://ci.example/keys"))
        self.assertEqual((found["since"][:10], found["at"][:10], found["by_age"]), ("2023-11-09", "2023-11-19", True))
        self.state = KeysState()
        self.assertEqual(self.listed("kind=provider-keys&age=0"), [])


class RenewedKeysTests(ProviderKeysTests):
    """Keys of providers that are renewed."""

    keys_dropped = 6.0 * DAY

    def test_old(self) -> None:
        """Keys that are renewed are listed when that failed, with when they are dropped (END-7)."""
        self.assertEqual(self.listed("kind=provider-keys&age=0"), [])
        self.state = KeysState((("k", "t"),), fetched_at=self.state.fetched_at, failure="it timed out")
        (found,) = self.listed("kind=provider-keys")
        self.assertEqual((found["at"][:10], found["fault"], found["by_age"]), ("2023-11-15", "it timed out", False))


class UnusedTests(EndingsCase):
    """The list of roles that don't log in."""

    async def followers(self) -> list[str]:
        """One."""
        return ["two"]

    def log_in(self, name: str, key: str, status: int = 200) -> None:
        """Log in by API key."""
        path = f"/authn/acme/{quote(name, safe='')}/authenticate"
        self.assertEqual(self.client.post(path, key.encode()).status, status)

    def idle(self, query: str = "", role: Any = ADMIN) -> list[dict[str, Any]]:
        """All that is unused."""
        return self.pages("/unused", "unused", query, role)

    def test_logins(self) -> None:
        """A login counts, and one that is refused doesn't; roles without any login come first (END-20, END-24)."""
        self.clock.advance(100 * DAY)
        self.log_in("admin", ADMIN_KEY)
        self.log_in("alice", "wrong", 401)
        self.log_in("host/web", self.made["acme:host:web"]["api_key"])
        self.result_of(self.notes.write_notes())
        self.assertEqual([each["role"] for each in self.idle()], ["acme:user:alice", "acme:user:bob"])
        self.clock.advance(100 * DAY)
        self.log_in("alice", self.made["acme:user:alice"]["api_key"])
        self.result_of(self.notes.write_notes())
        found = self.idle()
        self.assertEqual([each["role"] for each in found], ["acme:user:bob", "acme:host:web", "acme:user:admin"])
        self.assertEqual([each["last_login"] for each in found], [None, "2024-02-22", "2024-02-22"])
        self.assertEqual([each["idle_since"] for each in found], ["2023-11-14", "2024-02-22", "2024-02-22"])
        self.assertEqual([each["role"] for each in self.idle(f"since={100 * DAY}")], ["acme:user:bob"])

    def test_young(self) -> None:
        """A role that was made since isn't listed (END-24)."""
        self.assertEqual(self.idle(), [])
        self.assertEqual(len(self.idle("since=0")), 0)
        self.clock.advance(1)
        self.assertEqual(len(self.idle("since=0")), 4)

    def test_certain(self) -> None:
        """What isn't known from before last logins were kept is told (END-25)."""
        self.clock.advance(100 * DAY)
        self.memory.logins_kept_since = NOW + 50 * DAY
        self.memory.last_logins["acme:user:bob"] = day_of(NOW + 5 * DAY)
        answer = self.client.get("/unused", role=ADMIN).json()
        self.assertEqual(answer["kept_since"], "2024-01-03T22:13:20.000+00:00")
        told = {each["role"]: (each["idle_since"], each["certain"]) for each in answer["unused"]}
        self.assertEqual(told["acme:user:alice"], ("2024-01-03", False))
        self.assertEqual(told["acme:user:bob"], (iso_day(day_of(NOW + 5 * DAY)), True))
        self.assertTrue(all(each["certain"] for each in self.idle(f"since={40 * DAY}")))

    def test_followers(self) -> None:
        """The answer says that logins at followers aren't counted, and names those that are known (END-26)."""
        answer = self.client.get("/unused", role=ADMIN).json()
        self.assertEqual((answer["followers_counted"], answer["followers"]), (False, ["two"]))

    def test_visible(self) -> None:
        """Others see the roles that they see as resources (END-24)."""
        self.clock.advance(100 * DAY)
        self.assertEqual([each["role"] for each in self.idle(role=ALICE)], ["acme:host:web"])
        self.assertEqual(self.idle(role=user("bob")), [])
        self.assertEqual(self.client.get("/unused", role=user("gone")).status, 403)

    def test_pages(self) -> None:
        """Pages of any size, and windows of any size, make the same list (END-24)."""
        self.clock.advance(100 * DAY)
        self.memory.last_logins |= {"acme:user:bob": 10, "acme:user:admin": 9}
        for role in (ADMIN, ALICE):
            whole = self.idle(role=role)
            for window in (1, 2):
                for limit in (1, 2, 3):
                    self.patch(inactive_roles, "WINDOW", window)
                    self.patch(inactive_roles, "WINDOWS", 1)
                    self.assertEqual(self.idle(f"limit={limit}", role), whole)
        for odd in ("x", _written([1, 0.0, "a"]), _written([True, 0, "a"]), _written([True, 1e300, "a"])):
            self.assertIn("'after' is none", self.refused(f"after={odd}", "/unused"))
        self.assertEqual(self.client.get(f"/unused?after={_written([True, 1e10, 'a'])}", role=ADMIN).status, 200)

    def test_shown(self) -> None:
        """A user or host is shown with the day of its last login, or none, and since when these are kept (END-28)."""
        path = "/roles/acme/user/admin"
        kept = {"kept_since": "2020-09-13T12:26:40.000+00:00"}
        self.assertEqual(self.client.get(path, role=ADMIN).json()["last_login"], {"day": None, **kept})
        self.memory.last_logins["acme:user:admin"] = TODAY
        self.assertEqual(self.client.get(path, role=ADMIN).json()["last_login"], {"day": "2024-10-04", **kept})
        self.assertNotIn("last_login", self.client.get("/roles/acme/group/ops", role=ADMIN).json())


class ConjurTests(EndingsCase):
    """The same in the other dialect."""

    dialect = CONJUR

    def test_lists(self) -> None:
        """The lists are there (END-1, END-24), and roles are shown as ever (END-28)."""
        self.assertIn(("value", "variable:short"), self.shown())
        self.assertEqual(self.client.get("/unused", role=ADMIN).status, 200)
        self.assertNotIn("last_login", self.client.get("/roles/acme/user/admin", role=ADMIN).json())


def _written(fields: Any) -> str:
    """What a client writes as a cursor."""
    try:
        return encode_cursor(fields)
    except (UnicodeEncodeError, TypeError):
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode("ascii")
