"""Access tokens are of one creation and one epoch of their role (ROLE-8): every route that takes one refuses others."""

from __future__ import annotations

import base64
import re
from typing import Any, Final

from svc.crypto.tokens import INVALID
from svc.model.host_factories import FactoryToken, digest_token
from svc.model.names import RoleName
from svc.services.authenticators import FederatedService
from svc.web.http.routing import PUBLIC
from svc.web.routes.authenticators import FederatedAuthenticators
from tests.memory import MemoryAuthenticators, MemoryRoles
from tests.memory_factories import MemoryHostFactories
from tests.walls import Wall
from tests.web.declared import NAME, declared
from tests.web.routes.test_authenticators import Explainer
from tests.web.support import NOW, Answer, Client, token
from tests.web.world import WorldCase, user

ALICE: Final = user("alice")

#: What the values in paths are in the requests below, unless a request says another.
VALUES: Final = {
    "account": "acme",
    "kind": "group",
    "identifier": "ops",
    "service_id": "ci",
    "token": "text",
    "key": "k1",
    "session_id": "0" * 32,
    "login": "host%2Fh",
    "member": "ops",
    "name": "ci",
}

#: Of what is asked of each route: more of the target, values in the path, the body.
Request = tuple[str, dict[str, str], bytes]
_PLAIN: Final[Request] = ("", {}, b"")
_POLICY: Final = {"identifier": "root"}
_LOADED: Final = (("", _POLICY, b"[]"), ("?dryRun=true", _POLICY, b"[]"))
_VARIABLE: Final = {"identifier": "v"}
_KEY: Final = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ55cmzk0rRQ8xjcYZsfg2j3PjKZ3yIfaVLfqGZkqvA5 laptop"
_LISTED: Final[tuple[Request, ...]] = (
    _PLAIN,
    ("?count=true", {}, b""),
    ("?role=acme:group:ops", {}, b""),
    ("?owner=group:ops", {}, b""),
)

#: The requests of routes for which the plain one with these values doesn't come as far as the store.
REQUESTS: Final[dict[str, tuple[Request, ...]]] = {
    "POST /accounts": (("", {}, b"id=other"),),
    "GET /audit/resources/<tail:identifier>": (("", {"identifier": "acme:group:ops"}, b""),),
    "GET /audit/roles/<tail:identifier>": (("", {"identifier": "acme:group:ops"}, b""),),
    "GET /audit/entities/<tail:identifier>": (("", {"identifier": "acme:group:ops"}, b""),),
    "PATCH /authn/<flat:account>": (("", {}, b"enabled=true"),),
    "PATCH /authn-<flat:kind>/<flat:account>": (("", {"kind": "gcp"}, b"enabled=true"),),
    "PATCH /authn-<flat:kind>/<service_id>/<flat:account>": (("", {"kind": "jwt"}, b"enabled=true"),),
    f"POST /{NAME}/<service_id>/<flat:account>/<optional:login>/explain": (("", {}, b"jwt=x"),),
    "PUT /authn/<flat:account>/password": (("", {}, b"SUperSecret!!1"),),
    "PUT /authn/<flat:account>/api_key": (_PLAIN, ("?role=user:bob", {}, b"")),
    "GET /authn/<flat:account>/api_key": (_PLAIN, ("?role=user:bob", {}, b"")),
    "DELETE /authn/<flat:account>/tokens": (_PLAIN, ("?role=user:bob", {}, b"")),
    "GET /authn/<flat:account>/sessions": (_PLAIN, ("?role=user:bob", {}, b"")),
    "DELETE /authn/<flat:account>/sessions": (_PLAIN, ("?role=user:bob", {}, b"")),
    "GET /host_factory_tokens": (("?host_factory=acme:host_factory:f", {}, b""),),
    "POST /host_factory_tokens": (("", {}, b"host_factory=acme:host_factory:f&expiration=2999-01-01"),),
    "GET /deleted/<flat:account>/policy/<tail:identifier>": (("", _POLICY, b""),),
    "POST /deleted/<flat:account>/policy/<tail:identifier>": (("?number=1", _POLICY, b""),),
    "DELETE /deleted/<flat:account>/policy/<tail:identifier>": (("", _POLICY, b""),),
    "GET /policies/<flat:account>/policy/<tail:identifier>": (("", _POLICY, b""),),
    "POST /policies/<flat:account>/policy/<tail:identifier>": _LOADED,
    "PATCH /policies/<flat:account>/policy/<tail:identifier>": _LOADED,
    "PUT /policies/<flat:account>/policy/<tail:identifier>": _LOADED,
    "POST /secrets/<flat:account>/public_key/<tail:identifier>": (("", {"identifier": "user%2Fbob%2Fk"}, _KEY),),
    "GET /resources": _LISTED,
    "GET /resources/<flat:account>": _LISTED,
    "GET /resources/<flat:account>/<kind>": _LISTED,
    "GET /resources/<flat:account>/<kind>/<tail:identifier>": (
        _PLAIN,
        ("?check&privilege=read", {}, b""),
        ("?check&privilege=read&role=acme:group:ops", {}, b""),
        ("?permitted_roles&privilege=read", {}, b""),
        ("?who_can&privilege=read", {}, b""),
        ("?who_can&privilege=read&count", {}, b""),
        ("?can&privilege=read&role=acme:group:ops", {}, b""),
    ),
    "GET /roles/<flat:account>/<kind>/<tail:identifier>": (
        _PLAIN,
        *(
            (f"?{flag}", dict[str, str](), b"")
            for flag in ("members", "memberships", "all", "graph", "members&count", "reach")
        ),
    ),
    "POST /roles/<flat:account>/<kind>/<tail:identifier>": (("?members&member=acme:user:bob", {}, b""),),
    "DELETE /roles/<flat:account>/<kind>/<tail:identifier>": (("?members&member=acme:user:bob", {}, b""),),
    "GET /secrets/<flat:account>/variable/<tail:identifier>": (("", _VARIABLE, b""), ("?version=1", _VARIABLE, b"")),
    "GET /secrets": (("?variable_ids=acme:variable:v", {}, b""),),
    "GET /secrets/watch": (("?variable_ids=acme:variable:v", {}, b""),),
    "POST /secrets/batch": (("", {}, b'{"variable_ids":["acme:variable:v"]}'),),
    "POST /secrets/<flat:account>/variable/<tail:identifier>": (
        ("", _VARIABLE, b"new"),
        ("?expirations", _VARIABLE, b""),
        ("?rotation", _VARIABLE, b""),
    ),
    "DELETE /secrets/<flat:account>/variable/<tail:identifier>": (("?expirations", _VARIABLE, b""),),
    "POST /secrets/<flat:account>/<kind>/<tail:identifier>": (("?expirations", {"kind": "variable", **_VARIABLE}, b""),),
}

#: Routes that take a token and answer everybody alike: what is public, that something can't be had, and
#: logins, which a token is no proof for.
ALIKE: Final = {
    "GET /authn/<flat:account>/status": 501,
    "GET /authn/<flat:account>/login": 401,
    "GET /authn-ldap/<service_id>/<flat:account>/login": 401,
    "GET /public_keys/<flat:account>/user/<tail:identifier>": 200,
}

POLICY: Final = """
- !user alice
- !user bob
- !grant { role: !policy root, member: !user alice }
- !group ops
- !variable v
- !layer l
- !host-factory { id: f, layers: [ !layer l ] }
- !policy { id: svc/authn-jwt/ci, body: [ !webservice , !webservice status ] }
- !webservice svc/authn-gcp
"""


class CallersTests(WorldCase):
    """Alice was deleted and made again."""

    def setUp(self) -> None:
        """Make Alice twice, with the same rights, and all that requests are about."""
        super().setUp()
        self.load(POLICY)
        self.load("- !delete { record: !user alice }\n", method="PATCH")
        self.load(POLICY, method="PATCH")
        self.set_value("v", b"kept")
        # Who may watch is told that there is no more of it, instead of a stream that doesn't end.
        self.watches.stopService()
        factory = FactoryToken(RoleName("acme", "host_factory", "f"), NOW + 60.0, ())
        self.result_of(MemoryHostFactories(self.memory).add_tokens([digest_token("text")], factory))
        self.federated = Client(
            FederatedAuthenticators(
                FederatedService(
                    name=NAME,
                    explainer=Explainer(),
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

    def ask(self, route: Any, request: Request, creation: int, epoch: int = 0) -> Answer:
        """Send a request of a route with Alice's token of a creation and an epoch."""
        more, values, body = request
        path = re.sub(r"<(?:\w+:)?(\w+)>", lambda name: {**VALUES, **values}[name[1]], route.pattern.text)
        client = self.federated if route.handler.__module__.endswith("authenticators") and NAME in path else self.client
        client = self.client if route.method == "PATCH" else client
        headers = [("Authorization", token(ALICE, creation, epoch)), ("Content-Type", "application/x-www-form-urlencoded")]
        return client.request(route.method, path + more, body=body, headers=headers)

    def test_every_route(self) -> None:
        """A token of the role that was deleted, or that was revoked, is 401 on every route that takes one, and changes
        nothing; another is not (TOK-31, TOK-36, TOK-38).
        """
        routes = [route for _, route in declared() if route.admission is not PUBLIC and str(route) not in ALIKE]
        for epochs in ({}, {str(ALICE): 1}, {"acme": 1}, {str(ALICE): 2, "acme": 3}):
            self.memory.epochs = epochs
            before = self.memory.copied()
            now = sum(epochs.values())
            for creation, epoch in ((0, now), *(((1, 0), (1, now + 1)) if epochs else ())):
                for route in routes:
                    for request in REQUESTS.get(str(route), (_PLAIN,)):
                        answer = self.ask(route, request, creation, epoch)
                        told = (answer.status, answer.headers.get("content-type"), answer.body.decode())
                        self.assertEqual(told, (401, "text/plain; charset=utf-8", INVALID), (str(route), request))
            self.assertEqual(self.memory.copied(), before)
            for route in routes:
                for request in REQUESTS.get(str(route), (_PLAIN,)):
                    self.assertNotEqual(self.ask(route, request, 1, now).body.decode(), INVALID, (str(route), request))
                    self.memory.restore(before)

    def test_alike(self) -> None:
        """Where nothing depends on the caller, it doesn't depend on the caller's creation either."""
        for _, route in declared():
            for creation in (0, 1) if str(route) in ALIKE else ():
                self.assertEqual(self.ask(route, _PLAIN, creation).status, ALIKE[str(route)], str(route))

    def test_login(self) -> None:
        """A login gives a token of the role as it is now, which ends with that role."""
        for creation in (2, 3):
            self.load("- !delete { record: !user alice }\n", method="PATCH")
            made = self.load(POLICY, method="PATCH").json()["created_roles"]["acme:user:alice"]
            answer = self.client.post("/authn/acme/alice/authenticate", made["api_key"].encode())
            shown = b'Token token="%s"' % base64.b64encode(answer.body)
            read = self.result_of(self.tokens.find_caller(shown))
            self.assertEqual((read.role, read.creation), (ALICE, creation))
            for older, status in ((creation, 200), (creation - 1, 401)):
                headers = [("Authorization", token(ALICE, older))]
                self.assertEqual(self.client.get("/whoami", headers=headers).status, status)

    def test_gone(self) -> None:
        """Of a role that is gone, and wasn't made again, tokens are good and for nothing (ROLE-8) (TOK-31)."""
        self.load("- !delete { record: !user alice }\n", method="PATCH")
        for creation in (0, 1, 2):
            answer = self.client.get("/whoami", headers=[("Authorization", token(ALICE, creation))])
            self.assertEqual((answer.status, answer.body), (403, b""))
