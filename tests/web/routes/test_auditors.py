"""Auditors, who hold the privilege ``inspect``, on every route: they change nothing, and no value comes to them (INS)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final
from urllib.parse import quote

from svc.crypto.vault import api_key_name, password_name
from svc.model.authentication import AuthenticatorStatus, Explanation, ExplanationStep, KeysState, Problem
from svc.model.deleted_records import OVERWRITTEN_MOST
from svc.model.dialect import CONJUR
from svc.model.host_factories import FactoryToken, digest_token
from svc.model.names import ResourceName, RoleName
from svc.services.authenticators import FederatedService
from svc.web.http.routing import PUBLIC, Route
from svc.web.routes.authenticators import FederatedAuthenticators
from tests.memory import KEPT, Memory, MemoryAuthenticators, MemoryRoles
from tests.memory_factories import MemoryHostFactories
from tests.walls import Wall
from tests.web.declared import NAME, declared
from tests.web.routes.test_authenticators import Explainer
from tests.web.routes.test_callers import ALIKE, POLICY, REQUESTS, VALUES, Request
from tests.web.support import NOW, Answer, Client
from tests.web.world import ADMIN, WorldCase, user

ROOT: Final = Path(__file__).resolve().parents[3]

AUDITOR: Final = user("auditor")
STRANGER: Final = user("stranger")

#: What everybody may do to himself, for which another is asked about instead.
OF_ONESELF: Final = frozenset({"DELETE /authn/<flat:account>/tokens", "DELETE /authn/<flat:account>/sessions"})

MORE: Final = """
- !user auditor
- !user stranger
- !group auditors
- !grant { role: !group auditors, member: !user auditor }
- !permit { role: !group auditors, privilege: inspect, resource: !policy root }
- !policy { id: shop, body: [ !variable a/b, !host web, !group staff ] }
- !policy { id: gone, body: [ !variable v ] }
- !user
  id: keyed
  public_keys: [ "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ55cmzk0rRQ8xjcYZsfg2j3PjKZ3yIfaVLfqGZkqvA5 laptop" ]
"""


class AuditorsCase(WorldCase):
    """An account in which everything has a value that is known when it is met."""

    def setUp(self) -> None:
        """Load policies, and plant a value in all that has one."""
        super().setUp()
        prefix = f"{self.dialect.prefix}/"
        self.load((POLICY + MORE).replace("svc/", prefix))
        self.load("- !variable jwks-uri\n- !variable algorithms", policy=f"{prefix}authn-jwt/ci")
        self.planted: list[bytes] = []
        names = [ResourceName.parse(full) for full in self.memory.resources]
        variables = [name for name in names if name.kind == "variable"]
        for name in variables:
            for _ in range(KEPT + 1 if name.identifier == "v" else 2):
                self.set_value(name.identifier, self.plant())
        self.load("- !delete { record: !policy gone }", method="PATCH")
        self.assertTrue(any(row.values for row in self.memory.deleted.values()))
        self.assertLess(len(self.memory.deleted), OVERWRITTEN_MOST)
        for role in [RoleName.parse(full) for full in self.memory.credentials]:
            self.memory.credentials[str(role)] = self.vault.seal(api_key_name(role), self.plant())
            self.memory.passwords[str(role)] = self.vault.seal(password_name(role), self.plant())
        factory = FactoryToken(RoleName("acme", "host_factory", "f"), NOW + 60.0, ())
        digests = [digest_token(VALUES["token"]), digest_token(self.plant().decode())]
        self.result_of(MemoryHostFactories(self.memory).add_tokens(digests, factory))
        explainer = Explainer(
            self.status(), Explanation((ExplanationStep("issuer", "failed", self.plant().decode()),), None, False)
        )
        # Who may watch is told that there is no more of it, instead of a stream that doesn't end.
        self.watches.stopService()
        self.federated = Client(
            FederatedAuthenticators(
                FederatedService(
                    name=NAME,
                    explainer=explainer,
                    store=MemoryAuthenticators(self.memory),
                    roles=MemoryRoles(self.memory),
                    listed=frozenset(),
                    dialect=self.dialect,
                    token_limit=1000,
                    clock=self.clock,
                    wall=Wall(self.clock),
                )
            )
        )

    def status(self) -> AuthenticatorStatus:
        """A state that tells settings, wherever it may."""
        text = self.plant().decode()
        keys = KeysState(((text, text),), (text,), 1.0, 1.0, text, (text,))
        return AuthenticatorStatus((Problem(text, text),), "jwks-uri", text, keys, (), None, 0, (text,))

    def plant(self) -> bytes:
        """A value that is like no other text."""
        value = f"planted#{len(self.planted):04}#{'walrus' * 3}".encode()
        self.planted.append(value)
        return value

    def ask(self, route: Route, request: Request, role: RoleName) -> Answer:
        """Send a request of a route with the token of a role."""
        more, values, body = request
        path = re.sub(r"<(?:\w+:)?(\w+)>", lambda name: {**VALUES, **values}[name[1]], route.pattern.text)
        client = self.federated if route.handler.__module__.endswith("authenticators") and NAME in path else self.client
        client = self.client if route.method == "PATCH" else client
        headers = [("Content-Type", "application/x-www-form-urlencoded")]
        return client.request(route.method, path + more, body=body, headers=headers, role=role)

    def requests(self) -> Iterator[tuple[Route, Request]]:
        """Requests of every route that takes a token, those of a resource about every one that there is."""
        for _, route in declared():
            if route.admission is PUBLIC or str(route) in ALIKE:
                continue
            known = REQUESTS.get(str(route), (("", {}, b""),))
            asked = [request for request in known if request[0] or str(route) not in OF_ONESELF]
            yield from ((route, request) for request in asked)
            if "<tail:identifier>" in route.pattern.text and "/audit/" not in route.pattern.text:
                yield from self._of_each(route, asked)

    def _of_each(self, route: Route, asked: list[Request]) -> Iterator[tuple[Route, Request]]:
        for full, (more, values, body) in product(sorted(self.memory.resources), asked):
            _, kind, identifier = full.split(":", 2)
            if "<kind>" in route.pattern.text or f"/{kind}/" in route.pattern.text:
                yield route, (more, {**values, "kind": kind, "identifier": quote(identifier, safe="")}, body)

    def forms(self) -> Iterator[bytes]:
        """All that would betray a value: as it is, and as it may be encoded, wherever it begins; and what is sealed."""
        sealed = [value for versions in self.memory.secrets.values() for _, value in versions.values()]
        for value in [*self.planted, *sealed, *self.memory.credentials.values()]:
            yield value
            yield value.hex().encode()
            for shift in range(3):
                yield base64.b64encode(b"-" * shift + value)[4:-4]
                yield base64.urlsafe_b64encode(b"-" * shift + value)[4:-4]
        yield b"planted"
        yield b"walrus"


class AuditorsTests(AuditorsCase):
    """Who inspects the whole account."""

    def test_every_route(self) -> None:
        """With every route, who inspects the root changes nothing, and gets no byte of a value, key or token (INS-5,
        INS-6).
        """
        before, forms, count, statuses = self.memory.copied(), tuple(self.forms()), 0, set[int]()
        for route, request in self.requests():
            answer = self.ask(route, request, AUDITOR)
            sent = b"\n".join((answer.body, *(f"{name}: {value}".encode() for name, value in answer.headers.items())))
            met = [form for form in forms if form in sent]
            self.assertEqual(met, [], (str(route), request, answer.body))
            if self.memory.copied() != before:
                self.fail(f"{route} {request} changed something: {answer.status}")
            statuses.add(answer.status)
            count += 1
        self.assertGreater(count, 500)
        self.assertLessEqual({200, 403}, statuses)

    def test_seen(self) -> None:
        """What there is, is 404 on no route to who inspects the root: what takes a privilege is 403 (INS-4)."""
        before = self.memory.copied()
        for route, request in self.requests():
            if "check" in request[0]:
                continue
            allowed = self.ask(route, request, ADMIN).status
            self.memory.restore(before)
            status = self.ask(route, request, AUDITOR).status
            if allowed < 300 and status >= 300:
                self.assertIn(status, (401, 403), (str(route), request))

    def test_stranger(self) -> None:
        """Without the privilege the same is hidden (ROLE-4)."""
        for target, status in SEEN:
            self.assertEqual(self.client.get(target, role=AUDITOR).status, 200, target)
            expected = status or (404 if self.dialect.hides_roles else 403)
            self.assertEqual(self.client.get(target, role=STRANGER).status, expected, target)

    def test_no_privilege(self) -> None:
        """To inspect is no privilege on what is inspected: a check says no, and nobody is listed with it (INS-4)."""
        for privilege in ("read", "execute", "update", "inspect"):
            answer = self.client.get(f"/resources/acme/variable/v?check&privilege={privilege}", role=AUDITOR)
            self.assertEqual((answer.status, answer.body), (404, b""))
            listed = self.client.get(f"/resources/acme/variable/v?permitted_roles&privilege={privilege}", role=AUDITOR)
            self.assertEqual(listed.json(), ["acme:user:admin"])
        self.assertEqual(self.client.get("/resources/acme/policy/root?check&privilege=inspect", role=AUDITOR).status, 204)

    def test_batch(self) -> None:
        """In a batch, and in a watch, what is only inspected is 403, and what is hidden 404 (INS-4) (SEC-13)."""
        self.load("- !permit { role: !user stranger, privileges: [ read, execute ], resource: !variable v }", method="POST")
        for role, ids, status in (
            (AUDITOR, "acme:variable:v", 403),
            (AUDITOR, "acme:variable:none", 404),
            (AUDITOR, "acme:variable:none,acme:variable:v", 403),
            (STRANGER, "acme:variable:v", 200),
            (STRANGER, "acme:variable:v,acme:variable:shop/a/b", 404),
        ):
            body = json.dumps({"variable_ids": ids.split(",")}).encode()
            self.assertEqual(self.client.get(f"/secrets?variable_ids={ids}", role=role).status, status, (role, ids))
            self.assertEqual(self.client.post("/secrets/batch", body, role=role).status, status, (role, ids))
            watched = self.client.get(f"/secrets/watch?variable_ids={ids}", role=role).status
            self.assertEqual(watched, 503 if status == 200 else status, (role, ids))

    def test_audit(self) -> None:
        """Who inspects the root reads the audit of the account; of a policy, that of what it owns (INS-7)."""
        self.load("- !user narrow\n- !permit { role: !user narrow, privilege: inspect, resource: !policy shop }")
        narrow = user("narrow")
        self.assertEqual(len(self.client.get("/audit?limit=1000", role=AUDITOR).json()), len(self.memory.events))
        self.assertEqual(self.client.get("/audit", role=narrow).status, 403)
        for name, status in (
            ("acme:policy:shop", 200),
            ("acme:variable:shop%2Fa%2Fb", 200),
            ("acme:policy:root", 404),
            ("acme:variable:v", 404),
            ("acme:variable:none", 404),
        ):
            self.assertEqual(self.client.get(f"/audit/entities/{name}", role=narrow).status, status, name)

    def test_privileges_beside(self) -> None:
        """Other privileges on a policy don't take from what its auditors see (INS-7)."""
        self.load("- !permit { role: !user auditor, privilege: read, resource: !policy shop }")
        self.load("- !permit { role: !user stranger, privilege: read, resource: !policy shop }")
        for path in ("/policies/acme/policy/shop", "/audit/resources/acme:policy:shop"):
            self.assertEqual(self.client.get(path, role=AUDITOR).status, 200, path)
            self.assertEqual(self.client.get(path, role=STRANGER).status, 403, path)

    def test_effective_policy(self) -> None:
        """The effective policy has all that its auditor inspects; what lies there and is another's is left out (INS-7)."""
        self.load("- !user narrow\n- !permit { role: !user narrow, privilege: inspect, resource: !policy shop }")
        self.load("- !variable { id: shop/foreign, owner: !user bob }")
        whole = self.client.get("/policies/acme/policy/root", role=ADMIN)
        self.assertEqual(self.client.get("/policies/acme/policy/root", role=AUDITOR).body, whole.body)
        text = self.client.get("/policies/acme/policy/shop", role=user("narrow")).body.decode()
        self.assertIn("a/b", text)
        self.assertNotIn("foreign", text)
        self.assertEqual(self.client.get("/policies/acme/policy/root", role=user("narrow")).status, 404)

    def test_deleted(self) -> None:
        """Auditors list what is kept of what was deleted, and have nothing of it back (INS-7, DEL-6)."""
        self.load("- !user narrow\n- !permit { role: !user narrow, privilege: inspect, resource: !policy shop }")
        self.load("- !variable c", policy="shop")
        self.load("- !delete { record: !variable c }", policy="shop", method="PATCH")
        listed = self.client.get("/deleted/acme/policy/shop", role=ADMIN).json()
        self.assertEqual([record["id"] for record in listed], ["acme:variable:shop/c"])
        whole = self.client.get("/deleted/acme/policy/root", role=ADMIN).json()
        self.assertGreater(len(whole), 1)
        for role in (AUDITOR, user("narrow")):
            self.assertEqual(self.client.get("/deleted/acme/policy/shop", role=role).json(), listed)
            answer = self.client.post(f"/deleted/acme/policy/shop?number={listed[0]['number']}", role=role)
            self.assertEqual(answer.status, 403)
            self.assertEqual(self.client.request("DELETE", "/deleted/acme/policy/shop", role=role).status, 403)
        self.assertEqual(self.client.get("/deleted/acme/policy/root", role=AUDITOR).json(), whole)
        self.assertEqual(self.client.get("/deleted/acme/policy/root", role=user("narrow")).status, 404)
        self.assertEqual(self.client.get("/deleted/acme/policy/shop", role=STRANGER).status, 404)

    def test_whose_to_give(self) -> None:
        """Who may only update a policy can open to himself what the policy owns, and not the policy, nor another (INS-8)."""
        self.load(
            """
            - !policy { id: shop/inner, owner: !policy shop, body: [ !variable v ] }
            - !permit { role: !user bob, privileges: [ create, update ], resource: !policy shop }
            """
        )
        bob, permit = user("bob"), "- !permit {{ role: !user /bob, privilege: inspect, resource: !{} }}"
        for thing in ("policy /shop", "policy /root", f"policy /{self.dialect.prefix}/authn-jwt/ci", "group /ops"):
            self.assertIn(self.load_as(bob, permit.format(thing)).status, (403, 404), thing)
        self.assertEqual(self.load_as(bob, permit.format("policy inner")).status, 201)
        listed = self.client.get("/resources/acme", role=bob).json()
        ids = {"acme:policy:shop", "acme:policy:shop/inner", "acme:variable:shop/inner/v"}
        self.assertEqual({each["id"] for each in listed}, ids)

    def load_as(self, role: RoleName, text: str) -> Answer:
        """Load a document into the shop."""
        return self.client.request("POST", "/policies/acme/policy/shop", body=text.encode(), role=role)

    def test_hosts_of_a_factory(self) -> None:
        """A host that a factory makes inspects what its layers do, and no more (INS-1)."""
        self.load("- !permit { role: !layer l, privilege: inspect, resource: !policy shop }")
        token, headers = VALUES["token"], [("Content-Type", "application/x-www-form-urlencoded")]
        headers.append(("Authorization", f'Token token="{token}"'))
        self.assertEqual(self.client.post("/host_factories/hosts", b"id=made", headers=headers).status, 201)
        listed = self.client.get("/resources/acme", role=RoleName("acme", "host", "made")).json()
        owned = ("group:shop/staff", "host:shop/web", "policy:shop", "variable:shop/a/b")
        self.assertEqual([each["id"] for each in listed], [f"acme:{name}" for name in owned])
        self.assertNotIn(b"planted", self.client.get("/resources/acme", role=RoleName("acme", "host", "made")).body)

    def test_status(self) -> None:
        """An authenticator's status shows settings: it takes read on it, as before (INS-5, AUTH-59)."""
        answer = self.federated.get(f"/{NAME}/ci/acme/status", role=AUDITOR)
        self.assertEqual(answer.status, 403)
        status = f"!webservice {self.dialect.prefix}/{NAME}/ci/status"
        self.load(f"- !permit {{ role: !user auditor, privilege: read, resource: {status} }}")
        self.assertEqual(self.federated.get(f"/{NAME}/ci/acme/status", role=AUDITOR).status, 500)

    def test_sample(self) -> None:
        """The auditor of the sample policy sees all of it, and reads nothing (INS-2, INS-5)."""
        if self.dialect is CONJUR:
            return  # The sample is for the other one.
        self.memory.restore(Memory().copied())
        self.result_of(self.create_account("acme", "1admin"))
        self.load((ROOT / "etc" / "quickstart" / "policy.yml").read_text(encoding="utf-8"))
        self.set_value("workloads/database/password", self.plant())
        whole = self.client.get("/resources/acme", role=ADMIN)
        self.assertEqual(self.client.get("/resources/acme", role=AUDITOR).body, whole.body)
        path = "/secrets/acme/variable/workloads%2Fdatabase%2Fpassword"
        self.assertEqual(self.client.get(path, role=AUDITOR).status, 403)

    def test_other_account(self) -> None:
        """Another account stays hidden (INS-2)."""
        self.result_of(self.create_account("other", "2admin"))
        for target in ("/resources/other/policy/root", "/roles/other/user/admin", "/policies/other/policy/root"):
            self.assertEqual(self.client.get(target, role=AUDITOR).status, 404, target)
        self.assertEqual(self.client.get("/resources/other", role=AUDITOR).json(), [])
        self.assertEqual(self.client.get("/audit/resources/other:policy:root", role=AUDITOR).status, 404)


#: What an auditor sees, and the status for a stranger; ``None`` is that of a role, which only one dialect hides.
SEEN: Final = (
    ("/resources/acme/variable/v", 404),
    ("/resources/acme/policy/root", 404),
    ("/resources/acme/host_factory/f", 404),
    ("/resources/acme/variable/v?permitted_roles&privilege=execute", 404),
    ("/roles/acme/group/ops", None),
    ("/roles/acme/group/ops?members", None),
    ("/roles/acme/group/ops?members&count", None),
    ("/roles/acme/group/ops?members&transitive", None),
    ("/roles/acme/user/admin?memberships", None),
    ("/roles/acme/user/admin?all", None),
    ("/roles/acme/user/admin?graph", None),
    ("/policies/acme/policy/root", 404),
    ("/audit", 403),
    ("/audit/roles/acme:user:bob", 404),
    ("/deleted/acme/policy/root", 404),
)


class ConjurAuditorsTests(AuditorsTests):
    """The same in the other dialect."""

    dialect = CONJUR
