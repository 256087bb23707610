"""Tests of changes that are repeated under an ``Idempotency-Key``, over HTTP."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from svc.authn.throttling import ADDRESS_FAILURES
from svc.crypto.vault import api_key_name
from svc.model.clocks import iso_seconds
from svc.model.credentials import new_api_key
from svc.model.idempotency import RequestKey
from svc.model.names import RESERVED_ACCOUNT, RoleName, admin_of
from tests.web.routes.test_credentials import PASSWORD, basic
from tests.web.support import Answer
from tests.web.world import ADMIN, WorldCase, user

POLICY = """
- !user alice
- !user bob
- !host web
- !layer fleet
- !host-factory { id: f, layers: [ !layer fleet ] }
- !policy { id: p, owner: !user alice }
- !permit { role: !user alice, privileges: [ read, update ], resource: !host web }
- !permit { role: !user alice, privileges: [ read, execute ], resource: !host_factory f }
- !permit { role: !user bob, privileges: [ read, update ], resource: !host web }
"""
ALICE, BOB = user("alice"), user("bob")
ROOT = "/policies/acme/policy/root"
ROTATE = "/authn/acme/api_key?role=host%3Aweb"
TOKENS = json.dumps({"host_factory": "acme:host_factory:f", "expiration": "2033-01-01T00:00:00Z", "count": 2}).encode()
JSON = ("Content-Type", "application/json")

Headers = list[tuple[str, str]]


def named(key: str = "k-1") -> Headers:
    """The header."""
    return [("Idempotency-Key", f'"{key}"')]


class RepeatsTests(WorldCase):
    """Alice rotates the key of a host, makes tokens and loads a policy of hers."""

    def setUp(self) -> None:
        """Load the policy."""
        super().setUp()
        made = self.load(POLICY).json()["created_roles"]
        self.alice = made["acme:user:alice"]["api_key"]
        self.journal.told()

    def key_of(self, role: RoleName) -> str:
        """The API key of a role, as it is stored."""
        return self.vault.open(api_key_name(role), self.memory.credentials[str(role)]).decode()

    def sends(self) -> dict[str, Any]:
        """Every request that makes keys, by its name; each takes headers."""
        self.result_of(self.create_account(RESERVED_ACCOUNT, "1operator"))
        token = json.loads(self.client.post("/host_factory_tokens", TOKENS, role=ALICE, headers=[JSON]).body)[0]["token"]
        factory = ("Authorization", f'Token token="{token}"')
        operator = admin_of(RESERVED_ACCOUNT)
        own = basic("alice", self.alice)
        document = b"- !host made\n"
        return {
            "POST": lambda more: self.client.post(ROOT, document, role=ADMIN, headers=more),
            "PATCH": lambda more: self.client.patch(f"{ROOT}?", b"- !host patched\n", role=ADMIN, headers=more),
            "PUT": lambda more: self.client.put("/policies/acme/policy/p", document, role=ALICE, headers=more),
            "tokens": lambda more: self.client.post("/host_factory_tokens", TOKENS, role=ALICE, headers=[JSON, *more]),
            "host": lambda more: self.client.post("/host_factories/hosts", b"id=new", headers=[factory, *more]),
            "rotation": lambda more: self.client.put(ROTATE, role=ALICE, headers=more),
            "own": lambda more: self.client.put("/authn/acme/api_key", headers=[*own, *more]),
            "account": lambda more: self.client.post("/accounts", b"id=more", role=operator, headers=more),
        }

    def test_same_answer(self) -> None:
        """Every request that makes keys gets the same answer for ten minutes, and is made once (WIRE-53, WIRE-56); the audit
        says that it was repeated (WIRE-57).
        """
        for name, send in self.sends().items():
            first: Answer = send(named(name))
            self.assertIn(first.status, {200, 201}, (name, first.body))
            stored, told = self.memory.credentials.copy(), self.journal.told()
            self.assertNotIn("repeat", [operation for _, operation, _, _ in told])
            self.memory.now += 599
            again = send(named(name))
            self.assertEqual((again.status, again.body), (first.status, first.body), name)
            self.assertEqual(self.memory.credentials, stored, name)
            self.assertEqual([(told[1], told[3]) for told in self.journal.told()], [("repeat", None)], name)

    def test_expired(self) -> None:
        """After ten minutes the key makes a change again (WIRE-53)."""
        for name, send in self.sends().items():
            first = send(named(name))
            self.memory.now += 601
            again = send(named(name))
            self.assertNotEqual((again.status, again.body), (first.status, first.body), name)

    def test_without(self) -> None:
        """Without the header nothing is kept, and the same request makes a change of its own (WIRE-53)."""
        for name, send in self.sends().items():
            first, again = send([]), send([])
            self.assertNotEqual(again.body, first.body, name)
        self.assertEqual(self.memory.answers, {})

    def test_another_request(self) -> None:
        """The same key with another method, path, query or body is 422, and changes nothing (WIRE-54)."""
        self.assertEqual(self.client.post(ROOT, b"- !host a\n", role=ADMIN, headers=named()).status, 201)
        others = (("POST", ROOT, b"- !host b\n"), ("PATCH", ROOT, b"- !host a\n"), ("POST", f"{ROOT}?x", b"- !host a\n"))
        for method, target, body in others:
            answer = self.client.request(method, target, body=body, role=ADMIN, headers=named())
            self.error(answer, 422, "unprocessable_entity")
        self.assertNotIn("acme:host:b", self.memory.roles)
        token = self.client.post("/host_factory_tokens", TOKENS, role=ADMIN, headers=[JSON, *named()])
        self.error(token, 422, "unprocessable_entity")

    def test_under_way(self) -> None:
        """While a request with the key is under way, another is 409 with ``in_progress`` and ``Retry-After`` (WIRE-54)."""
        self.memory.running.add((f"{ADMIN} 0", "k-1"))
        for answer in (
            self.client.post(ROOT, b"- !host a\n", role=ADMIN, headers=named()),
            self.client.post("/host_factory_tokens", TOKENS, role=ADMIN, headers=[JSON, *named()]),
        ):
            self.error(answer, 409, "in_progress")
            self.assertEqual(answer.headers["retry-after"], "1")
        self.assertEqual(self.client.put(ROTATE, role=ALICE, headers=named()).status, 200)
        self.assertNotIn("acme:host:a", self.memory.roles)

    def test_another_caller(self) -> None:
        """Another caller with the same key and request has a change of its own, and nothing of the first (WIRE-55)."""
        first = self.client.put(ROTATE, role=ALICE, headers=named())
        other = self.client.put(ROTATE, role=BOB, headers=named())
        self.assertEqual((first.status, other.status), (200, 200))
        self.assertNotEqual(first.body, other.body)
        self.assertEqual(self.client.put(ROTATE, headers=named()).status, 401)

    def test_no_longer_permitted(self) -> None:
        """A caller that lost the privilege, or was deleted or made again, gets nothing of what is kept (WIRE-55)."""
        sends = self.sends()
        first = {name: sends[name](named(name)) for name in ("rotation", "tokens", "PUT")}
        self.load("- !deny { role: !user alice, privileges: [ update ], resource: !host web }", method="PATCH")
        self.load("- !deny { role: !user alice, privileges: [ execute ], resource: !host_factory f }", method="PATCH")
        self.load("- !policy { id: p, owner: !user bob }", method="PATCH")
        for name, answer in first.items():
            self.assertEqual(answer.status // 100, 2)
            self.assertIn(sends[name](named(name)).status, {403, 404}, name)
        self.load("- !delete { record: !user alice }", method="PATCH")
        self.assertIn(sends["rotation"](named("rotation")).status, {401, 403, 404})

    def test_another_host(self) -> None:
        """A repeat tells nothing of another host than the one which the factory made: it is 404 when that was deleted, or
        made again, and 403 when somebody else has declared one of its name (WIRE-55).
        """
        send = self.sends()["host"]
        others = "- !host { id: new, owner: !user bob, annotations: { for: nobody else } }"
        made = send(named("first"))
        self.assertEqual((made.status, send(named("first")).body), (201, made.body))
        self.load("- !delete { record: !host new }", method="PATCH")
        self.error(send(named("first")), 404, "not_found")
        self.assertEqual((send(named("second")).status, send(named("first")).status), (201, 404))
        self.load("- !delete { record: !host new }", method="PATCH")
        self.load(others, method="PATCH")
        refused = [send(named(key)) for key in ("third", "first", "second")]
        self.assertEqual([(answer.status, answer.body) for answer in refused], [(403, b"")] * 3)

    def test_tokens_that_ended(self) -> None:
        """Tokens of a factory are returned again until their expiration; then the repeat is 422 (WIRE-53)."""
        ends = iso_seconds(self.clock.seconds() + 60)
        wanted = json.dumps({"host_factory": "acme:host_factory:f", "expiration": ends}).encode()
        sent = [self.client.post("/host_factory_tokens", wanted, role=ALICE, headers=[JSON, *named()]) for _ in range(2)]
        self.assertEqual([answer.status for answer in sent], [200, 200])
        self.assertEqual(sent[0].body, sent[1].body)
        self.clock.advance(60)
        late = self.client.post("/host_factory_tokens", wanted, role=ALICE, headers=[JSON, *named()])
        self.assertEqual(late.status, 422)
        self.assertNotIn(sent[0].json()[0]["token"].encode(), late.body)

    def test_refusals(self) -> None:
        """Only what was done is kept: after a refusal the same key makes the change (WIRE-53)."""
        refused = b"- !host a\n- !grant { role: !layer none, member: !host a }"
        bad = self.client.post(ROOT, refused, role=ADMIN, headers=named())
        self.assertEqual(bad.status, 422)
        self.assertEqual(self.memory.answers, {})
        self.assertEqual(self.client.post(ROOT, b"- !host a\n", role=ADMIN, headers=named()).status, 201)

    def test_dry_run(self) -> None:
        """A dry run changes nothing, and keeps nothing (WIRE-56)."""
        answer = self.client.post(f"{ROOT}?dryRun=true", b"- !host a\n", role=ADMIN, headers=named())
        self.assertEqual((answer.status, self.memory.answers), (200, {}))

    def test_form(self) -> None:
        """A key is a string in quotation marks, or its characters alone; any other header, and two, are 422 (WIRE-56)."""
        for text in ('"a"', "a", '"' + "x" * 128 + '"', "a/b+c=@:~._-"):
            headers = [("Idempotency-Key", text)]
            self.assertEqual(self.client.post(ROOT, b"- !host a\n", role=ADMIN, headers=headers).status, 201, text)
        for text in ("", '""', '"a', 'a"', "a b", "x" * 129, '"a";p', "a,b", "\xe4", "'a'", "a\\"):
            headers = [("Idempotency-Key", text)]
            self.error(self.client.post(ROOT, b"- !host a\n", role=ADMIN, headers=headers), 422, "unprocessable_entity")
        twice = [*named("a"), *named("a")]
        self.error(self.client.post(ROOT, b"- !host a\n", role=ADMIN, headers=twice), 422, "unprocessable_entity")

    def test_own_key(self) -> None:
        """A role that replaced its API key, and lost the answer, gets the new one for the old one and the request's key,
        as long as the new one proves it; nobody else does (WIRE-55, TOK-9).
        """
        old = basic("alice", self.alice)
        first = self.client.put("/authn/acme/api_key", headers=[*old, *named()])
        self.assertEqual(first.status, 200)
        again = self.client.put("/authn/acme/api_key", headers=[*old, *named()])
        self.assertEqual((again.status, again.body, again.body.decode()), (200, first.body, self.key_of(ALICE)))
        for headers, target in (
            ([*old], "/authn/acme/api_key"),
            ([*old, *named("k-2")], "/authn/acme/api_key"),
            ([*old, *named()], "/authn/acme/api_key?role=host%3Aweb"),
            ([*basic("bob", self.alice), *named()], "/authn/acme/api_key"),
            ([*basic("alice", "1wrong"), *named()], "/authn/acme/api_key"),
            ([*basic("", self.alice), *named()], "/authn/acme/api_key"),
        ):
            self.assertEqual(self.client.put(target, headers=headers).status, 401, (headers, target))
        self.memory.key_expirations[str(ALICE)] = 1.0
        self.assertEqual(self.client.put("/authn/acme/api_key", headers=[*old, *named()]).status, 401)
        self.memory.key_expirations.clear()
        newer = self.client.put("/authn/acme/api_key", headers=basic("alice", first.body.decode()))
        self.assertEqual(newer.status, 200)
        self.assertEqual(self.client.put("/authn/acme/api_key", headers=[*old, *named()]).status, 401)

    def test_unasked(self) -> None:
        """Who is proven, and an address that is refused, has no answer looked for; any other key counts as a failure and
        has one looked for, whether its role exists or not (TOK-22, WIRE-55).
        """
        wrong = new_api_key()
        for login, evidence, peer, status, looked in (
            ("alice", self.alice, "203.0.113.5", 200, 0),
            ("bob", wrong, "203.0.113.5", 401, 1),
            ("nobody", wrong, "203.0.113.5", 401, 1),
            ("bob", PASSWORD, "203.0.113.5", 401, 0),
            ("alice", self.alice, "203.0.113.5", 200, 1),
            *[(f"user{number}", wrong, "203.0.113.5", 401, 1) for number in range(ADDRESS_FAILURES - 4)],
            ("alice", self.alice, "203.0.113.5", 429, 0),
            ("nobody", wrong, "203.0.113.5", 429, 0),
            ("alice", self.alice, "203.0.113.6", 200, 1),
        ):
            before = self.memory.answers_sought
            headers = [*basic(login, evidence), *named()]
            answer = self.client.put("/authn/acme/api_key", headers=headers, peer=peer)
            sought = self.memory.answers_sought - before
            self.assertEqual((answer.status, sought), (status, looked), (login, peer))

    def test_sealed(self) -> None:
        """What is kept is sealed, under a name that no other caller, key or piece has (WIRE-57)."""
        new = self.client.put(ROTATE, role=ALICE, headers=named()).body
        [(caller, key)] = self.memory.answers
        [(_, kept)] = self.memory.answers.values()
        self.assertNotIn(new, b"".join(kept.pieces))
        self.assertEqual((caller, key), (f"{ALICE} 0", "k-1"))
        self.memory.answers[f"{BOB} 0", "k-1"] = self.memory.answers[caller, key]
        self.error(self.client.put(ROTATE, role=BOB, headers=named()), 422, "data_key_invalid")

    def test_warnings(self) -> None:
        """The answer of a load is kept with its warnings and its roles without a key (WIRE-53)."""
        document = b'- !host { id: dark, annotations: { authn/api-key: "false" } }\n- !user u\n'
        first = self.client.post(ROOT, document, role=ADMIN, headers=named())
        self.assertEqual(first.status, 201, first.body)
        self.assertIsNone(first.json()["created_roles"]["acme:host:dark"]["api_key"])
        again = self.client.post(ROOT, document, role=ADMIN, headers=named())
        self.assertEqual((again.status, again.body), (201, first.body))

    @settings(deadline=None, max_examples=40)
    @given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["ok", "refused", "running", "old"])), max_size=12))
    def test_histories(self, history: list[tuple[str, str]]) -> None:
        """Whatever was sent and failed before, a key makes one change in ten minutes, and all answers are that of it
        (WIRE-53).
        """
        before = self.memory.copied()
        self.addCleanup(self.memory.restore, before)
        self.memory.answers.clear()
        self.memory.running.clear()
        made: dict[str, tuple[float, bytes]] = {}
        rotations = 0
        for key, event in history:
            held = (f"{ALICE} 0", key)
            if event == "old":
                self.memory.now += 350
            elif event == "running":
                self.memory.running.add(held)
                self.assertEqual(self.client.put(ROTATE, role=ALICE, headers=named(key)).status, 409)
                self.memory.running.clear()
            elif event == "refused":
                self.memory.standby = True
                self.assertEqual(self.client.put(ROTATE, role=ALICE, headers=named(key)).status, 405)
                self.memory.standby = False
            else:
                edition = self.memory.editions.get("acme:host:web", 0)
                answer = self.client.put(ROTATE, role=ALICE, headers=named(key))
                self.assertEqual(answer.status, 200)
                made_at, body = made.get(key, (-1e12, b""))
                if self.memory.now - made_at < 600:
                    self.assertEqual((answer.body, self.memory.editions["acme:host:web"]), (body, edition))
                else:
                    rotations += 1
                    self.assertEqual(self.memory.editions["acme:host:web"], edition + 1)
                    made[key] = (self.memory.now, answer.body)

    def test_digest(self) -> None:
        """Requests are told apart by method, target and body (WIRE-54)."""
        targets = [f"{method} {path}" for method in "AB" for path in "ab"]
        texts = {RequestKey("k", target).with_body(body).request_digest for target in targets for body in (b"", b"\n")}
        self.assertEqual(len(texts), 8)
