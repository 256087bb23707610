"""What a follower refuses: every route that writes, and no other (CLU-3)."""

from __future__ import annotations

from typing import Final

import attrs
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import ReadOnlyStandby, StoreUnavailable
from svc.model.host_factories import FactoryToken, digest_token
from svc.model.limits import Limits
from svc.model.names import RoleName
from svc.web.http.messages import Response
from svc.web.http.routing import PUBLIC, REQUIRED, Call, Routes
from tests.memory_factories import MemoryHostFactories
from tests.web.declared import NAME, declared, path_of
from tests.web.support import NOW, Client
from tests.web.world import ADMIN, WorldCase

#: The whole answer (CLU-3).
REFUSAL: Final = {"error": {"code": 405, "message": "Write operations are not allowed"}}

#: Requests of another method than GET that change nothing: logins, and what would become of one.
READING: Final = {
    "POST /secrets/batch",
    "POST /authn/<flat:account>/<tail:login>/authenticate",
    "POST /authn-ldap/<service_id>/<flat:account>/<tail:login>/authenticate",
    "POST /authn-oidc/<service_id>/<flat:account>/authenticate",
    f"POST /{NAME}/<service_id>/<flat:account>/<optional:login>/authenticate",
    f"POST /{NAME}/<service_id>/<flat:account>/<optional:login>/explain",
    "POST /authn/<flat:account>/<tail:login>/explain",
    "POST /authn-ldap/<service_id>/<flat:account>/<tail:login>/explain",
}

#: Routes that write and prove by themselves who calls, and so refuse by themselves, too; each has a test below.
SELF_PROVING: Final = {
    "POST /host_factories/hosts",
    "POST /authn/<flat:account>/<tail:login>/sessions",
    "POST /authn/<flat:account>/<tail:login>/renew",
}

#: Routes that memory may answer when the database can't be asked. None waits for anything else before it reads: that would
#: take longer for what is remembered, as a directory does that is asked about a password.
OUTLIVING: Final = {
    "POST /secrets/batch",
    "GET /secrets",
    "GET /secrets/<flat:account>/variable/<tail:identifier>",
    "POST /authn/<flat:account>/<tail:login>/authenticate",
    "POST /authn-jwt/<service_id>/<flat:account>/<optional:login>/authenticate",
}


@attrs.frozen
class Declared:
    """A noun with those routes, of which none can be run."""

    routes: Routes


async def standby() -> None:
    """Say that the database is a standby."""
    raise ReadOnlyStandby


class EveryRouteTests(SynchronousTestCase):
    """All declared routes."""

    def test_writes_are_refused(self) -> None:
        """Every route that writes is 405, with the one body, to whom has a token; nothing else of it is done or read
        (CLU-3).
        """
        refused = 0
        for routes, route in declared():
            if not route.writes or route.admission is PUBLIC:
                continue
            client = Client(Declared(routes), ensure_writable=standby, limits=Limits(body=10, policy_body=10))
            path = path_of(route)
            answer = client.request(route.method, path, body=b"longer than any body may be", role=ADMIN)
            self.assertEqual((answer.status, answer.json()), (405, REFUSAL), str(route))
            self.assertEqual(answer.headers["content-type"], "application/json")
            refused += 1
            if route.admission is REQUIRED:
                self.assertEqual(client.request(route.method, path).status, 401, str(route))
        self.assertGreater(refused, 15)

    def test_what_writes(self) -> None:
        """A GET writes nothing; other methods do, but for those that are known to read; public ones refuse by themselves
        (CLU-3, WIRE-46, AUTH-65).
        """
        routes = {str(route): route for _, route in declared()}
        self.assertEqual({name for name, route in routes.items() if route.method == "GET" and route.writes}, set())
        self.assertEqual({name for name, route in routes.items() if route.method != "GET" and not route.writes}, READING)
        public = {name for name, route in routes.items() if route.writes and route.admission is PUBLIC}
        self.assertEqual(public, SELF_PROVING)

    def test_what_outlives(self) -> None:
        """Logins by JWT and API key, and readings of secrets, go on without the database, and nothing else (CLU-36)."""
        self.assertEqual({str(route) for _, route in declared() if route.serves_stale}, OUTLIVING)

    def test_when_nobody_knows(self) -> None:
        """Where the database can't be asked whether it is a standby, a write is 503 (CLU-4)."""

        async def away() -> None:
            raise StoreUnavailable("gone")

        class Noun:
            """One route."""

            routes = Routes()

            @routes.add("POST", "/x", caller=REQUIRED)
            async def write(self, call: Call) -> Response:
                """Write."""
                raise AssertionError("it was run")

        self.assertEqual(Client(Noun(), ensure_writable=away).post("/x", role=ADMIN).status, 503)


class FollowerTests(WorldCase):
    """A whole server, on a standby."""

    def test_host_factory(self) -> None:
        """A client that shows a host factory's token is told 405, and one with none, or a wrong one, no more than ever
        (HF-27, CLU-3, WIRE-46).
        """
        self.load("- !layer l\n- !host-factory\n  id: f\n  layers: [ !layer l ]\n")
        token = FactoryToken(RoleName("acme", "host_factory", "f"), NOW + 60.0, ())
        self.result_of(MemoryHostFactories(self.memory).add_tokens([digest_token("text")], token))
        self.memory.standby = True
        path = "/host_factories/hosts?id=h"
        for shown, status in (("text", 405), ("other", 401)):
            answer = self.client.post(path, headers=[("Authorization", f'Token token="{shown}"')])
            self.assertEqual(answer.status, status)
        self.assertEqual(self.client.post(path).status, 401)

    def test_reading(self) -> None:
        """Secrets, roles, resources, policies and logins are there as ever (SEC-36, CLU-2)."""
        self.load("- !variable v\n")
        self.set_value("v", b"kept")
        self.memory.standby = True
        self.assertEqual(self.client.get("/secrets/acme/variable/v", role=ADMIN).body, b"kept")
        for path in ("/roles/acme/user/admin", "/resources/acme", "/policies/acme/policy/root", "/whoami", "/info"):
            self.assertEqual(self.client.get(path, role=ADMIN).status, 200, path)
        self.assertEqual(self.client.post("/authn/acme/admin/authenticate", b"1admin").status, 200)

    def test_promotion(self) -> None:
        """The first write after a promotion works (CLU-5)."""
        self.load("- !variable v\n")
        self.memory.standby = True
        self.set_value("v", status=405)
        self.memory.standby = False
        self.set_value("v", status=201)
