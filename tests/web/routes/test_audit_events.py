"""What requests leave in the audit, and that nothing is answered before it is there."""

from __future__ import annotations

import base64

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from svc.authn.throttling import ADDRESS_FAILURES
from svc.model.errors import AuditUnavailable
from svc.model.ldap_directories import DirectoryRefused
from svc.model.reasons import Reason
from tests.signing import token as jwt
from tests.web.support import PEER
from tests.web.world import ADMIN, ADMIN_KEY, WorldCase, user

POLICY = """
- !user alice
- !user bob
- !group ops
- !grant {role: !group ops, member: !user bob}
- !variable db
- !variable other
- !permit {role: !user alice, privileges: [read, execute, update], resources: !variable db}
- !permit {role: !user bob, privileges: [read], resources: !variable db}
- !layer l
- !host-factory {id: f, layers: [!layer l]}
"""

LDAP_POLICY = """
- !policy
  id: svc/authn-ldap/corp
  body:
    - !webservice
      annotations: { ldap-authn/uri: ldap://ldap.example, ldap-authn/base_dn: dc=example }
"""

#: Routes that leave no record: they are for everybody, or tell nothing of anybody.
UNAUDITED = {
    "GET /",
    "GET /authenticators",
    "GET /authn/<flat:account>/.well-known/jwks.json",
    "GET /authn/<flat:account>/status",
    "GET /authn-oidc/<flat:account>/providers",
    "GET /docs",
    "GET /health",
    "GET /info",
    "GET /livez",
    "GET /openapi.json",
    "GET /public_keys/<flat:account>/user/<tail:identifier>",
    "GET /readyz",
}

DB = "acme:variable:db"
ALICE, BOB = user("alice"), user("bob")


def basic(name: str, password: str) -> tuple[str, str]:
    """The header of HTTP Basic."""
    return ("Authorization", f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}")


class AuditedCase(WorldCase):
    """A world with a policy, whose loading is forgotten."""

    def setUp(self) -> None:
        """Load it."""
        super().setUp()
        self.load(POLICY)
        self.set_value("db", b"secret value")
        self.journal.told()


class RecordedTests(AuditedCase):
    """Each sort of request."""

    def test_fetch(self) -> None:
        """Reading a value is a fetch; so is a refusal, with its reason: what is hidden is forbidden, though it is 404
        (AUD-3, AUD-4).
        """
        self.client.get("/secrets/acme/variable/db", role=ALICE)
        self.client.get("/secrets/acme/variable/db", role=BOB)
        self.assertEqual(self.client.get("/secrets/acme/variable/other", role=BOB).status, 404)
        self.client.get("/secrets/acme/variable/absent?version=3", role=BOB)
        self.assertEqual(
            self.journal.told(),
            [
                ("fetch", "fetch", {"resource": DB}, None),
                ("fetch", "fetch", {"resource": DB}, "forbidden"),
                ("fetch", "fetch", {"resource": "acme:variable:other"}, "forbidden"),
                ("fetch", "fetch", {"resource": "acme:variable:absent", "version": "3"}, "not-found"),
            ],
        )

    def test_origin(self) -> None:
        """A record says who asked, from where, and in which request (AUD-9)."""
        self.client.get("/secrets/acme/variable/db", role=ALICE, headers=[("X-Request-Id", "r-7")])
        [(origin, _, _)] = self.journal.taken
        self.assertEqual((origin.user, origin.client_ip, origin.request_id), ("acme:user:alice", PEER, "r-7"))

    def test_batch(self) -> None:
        """Of several values each is an event (AUD-3)."""
        self.client.get(f"/secrets?variable_ids={DB},acme:variable:other", role=ADMIN)
        self.client.get("/secrets?variable_ids=", role=ADMIN)
        self.assertEqual(
            self.journal.told(),
            [
                ("fetch", "fetch", {"resource": DB}, "not-found"),
                ("fetch", "fetch", {"resource": "acme:variable:other"}, "not-found"),
                ("fetch", "fetch", {"resource": "-"}, "invalid"),
            ],
        )

    def test_update(self) -> None:
        """Setting a value is an update, in the journal and in the store; its refusal in the journal alone (AUD-3,
        AUD-24).
        """
        self.set_value("db", b"another", role=ALICE)
        self.set_value("db", b"another", role=BOB, status=403)
        self.set_value("db", b" ", role=ALICE, status=422)
        self.assertEqual(
            self.journal.told(),
            [("update", "update", {"resource": DB}, reason) for reason in (None, "forbidden", "invalid")],
        )
        self.assertEqual(self.stored()[:1], [("update", "update", {"resource": DB})])
        self.assertEqual(len([event for event in self.stored() if event[0] == "update"]), 2)

    def test_authenticate(self) -> None:
        """Logging in is audited with the authenticator; a role that doesn't exist acts as nobody (AUD-3)."""
        post = self.client.post
        post("/authn/acme/admin/authenticate", ADMIN_KEY.encode())
        post("/authn/acme/admin/authenticate", b"wrong")
        post("/authn/acme/host%2Fabsent/authenticate", b"wrong")
        post("/authn-jwt/ci/acme/authenticate", b"jwt=" + jwt({}))
        taken, self.journal.taken = self.journal.taken, []
        self.assertEqual(
            [(event.user, dict(event.subject), event.service, outcome.reason) for _, event, outcome in taken[:3]],
            [
                ("acme:user:admin", {"role": "acme:user:admin"}, None, None),
                ("acme:user:admin", {"role": "acme:user:admin"}, None, "credentials-wrong"),
                ("not-found", {"role": "acme:host:absent"}, None, "role-unknown"),
            ],
        )
        _, event, outcome = taken[3]
        self.assertEqual((event.authenticator, event.service), ("authn-jwt", "authn-jwt/ci"))
        self.assertIsNotNone(outcome.reason)
        self.assertEqual(taken[0][1].did, "successfully authenticated with authenticator authn")

    def test_login(self) -> None:
        """So is asking for one's API key, also without a name."""
        self.client.get("/authn/acme/login", headers=[basic("admin", ADMIN_KEY)])
        self.client.get("/authn/acme/login", headers=[basic("alice", "wrong")])
        self.client.get("/authn/acme/login")
        self.assertEqual(
            self.journal.told(),
            [
                ("authn", "login", {"role": "acme:user:admin"}, None),
                ("authn", "login", {"role": "acme:user:alice"}, "credentials-wrong"),
                ("authn", "login", {"role": "acme:user:USERNAME_MISSING"}, "credentials-missing"),
            ],
        )

    def test_impossible_account(self) -> None:
        """A login at an account that can't be, as its name has a colon, is of no account that can (AUD-26, AUD-61)."""
        self.client.post("/authn/acme%3Auser/eve/authenticate", b"wrong")
        self.client.get("/authn/acme%3Ahost/login", headers=[basic("eve", "wrong")])
        [(_, _, first, _), (_, _, second, _)] = self.journal.told()
        self.assertEqual((first, second), ({"role": "acme/user:user:eve"}, {"role": "acme/host:user:eve"}))

    def test_throttled(self) -> None:
        """A login that is refused since there were too many failures is audited too, whatever it would have proven
        (AUD-12).
        """
        for number in range(ADDRESS_FAILURES):
            self.client.post(f"/authn/acme/host%2F{number}/authenticate", b"wrong")
        self.journal.told()
        answers = [
            self.client.post("/authn/acme/admin/authenticate", ADMIN_KEY.encode()),
            self.client.get("/authn/acme/login", headers=[basic("admin", ADMIN_KEY)]),
            self.client.put("/authn/acme/password", b"My-Password-1", headers=[basic("admin", ADMIN_KEY)]),
        ]
        self.assertEqual([answer.status for answer in answers], [429, 429, 429])
        role = {"role": "acme:user:admin"}
        self.assertEqual(
            self.journal.told(),
            [
                ("authn", "authenticate", role, "failures-too-many"),
                ("authn", "login", role, "failures-too-many"),
                ("password", "change", role, "failures-too-many"),
            ],
        )

    def test_ldap_away(self) -> None:
        """A login that nobody can judge is a failure for that reason, be there such a user or not."""
        self.load(LDAP_POLICY)
        self.directory.refused = DirectoryRefused(Reason.LDAP_UNAVAILABLE, "down")
        self.journal.told()
        for login in ("alice", "nobody"):
            self.client.get("/authn-ldap/corp/acme/login", headers=[basic(login, "password")])
            self.client.post(f"/authn-ldap/corp/acme/{login}/authenticate", b"password")
        self.assertEqual(
            [(event.operation, event.user, event.does, outcome.reason) for _, event, outcome in self.journal.taken],
            [
                (operation, f"acme:user:{login}", f"{does} with authenticator authn-ldap service authn-ldap/corp", reason)
                for login in ("alice", "nobody")
                for operation, does, reason in (
                    ("login", "log in", "ldap-unavailable"),
                    ("authenticate", "authenticate", "ldap-unavailable"),
                )
            ],
        )

    def test_ldap(self) -> None:
        """Logging in by a directory is audited with its service, and so is asking for its status."""
        self.client.get("/authn-ldap/corp/acme/login", headers=[basic("alice", "wrong")])
        self.client.post("/authn-ldap/corp/acme/alice/authenticate", b"wrong")
        self.client.get("/authn-ldap/corp/acme/status", role=ALICE)
        taken, self.journal.taken = self.journal.taken, []
        self.assertEqual(
            [
                (event.operation, event.authenticator, event.service, event.user, outcome.reason)
                for _, event, outcome in taken
            ],
            [
                ("login", "authn-ldap", "authn-ldap/corp", str(ALICE), "webservice-unknown"),
                ("authenticate", "authn-ldap", "authn-ldap/corp", str(ALICE), "webservice-unknown"),
                ("validate-status", "authn-ldap", "authn-ldap/corp", None, "http-404"),
            ],
        )

    def test_passwords_and_api_keys(self) -> None:
        """Who changes a password or an API key, and whose, is audited, in the store too; a refusal in the journal alone
        (AUD-3).
        """
        admin, password = [basic("admin", ADMIN_KEY)], "My-Password-1"
        self.client.put("/authn/acme/password", password.encode(), headers=admin)
        self.client.put("/authn/acme/password", b"short", headers=admin)
        self.client.put("/authn/acme/password", password.encode(), role=ADMIN)
        self.client.put("/authn/acme/password", password.encode(), headers=[basic("absent", "wrong")])
        self.client.put("/authn/acme/password", password.encode())
        key = self.client.put("/authn/acme/api_key", headers=[basic("admin", password)]).body.decode()
        self.client.put("/authn/acme/api_key?role=user:alice", role=ADMIN)
        self.client.get("/authn/acme/api_key?role=user:alice", role=ADMIN)
        self.client.put("/authn/acme/api_key?role=user:alice", role=BOB)
        self.client.put("/authn/acme/api_key?role=user:nobody", role=BOB)
        self.client.put("/authn/acme/api_key?role=group:ops", role=ADMIN)
        taken, self.journal.taken = self.journal.taken, []
        own, alice = {"role": str(ADMIN)}, {"role": str(ALICE)}
        self.assertEqual(
            [(event.msgid, event.operation, event.user, dict(event.subject), outcome.reason) for _, event, outcome in taken],
            [
                ("password", "change", str(ADMIN), own, None),
                ("password", "change", str(ADMIN), own, "invalid"),
                ("password", "change", str(ADMIN), own, "credentials-insufficient"),
                ("password", "change", "not-found", {"role": "acme:user:absent"}, "role-unknown"),
                (
                    "password",
                    "change",
                    "acme:user:USERNAME_MISSING",
                    {"role": "acme:user:USERNAME_MISSING"},
                    "credentials-missing",
                ),
                ("api-key", "rotate", str(ADMIN), own, None),
                ("api-key", "rotate", str(ADMIN), alice, None),
                ("api-key", "show", str(ADMIN), alice, None),
                ("api-key", "rotate", str(BOB), alice, "forbidden"),
                ("api-key", "rotate", str(BOB), {"role": "acme:user:nobody"}, "not-found"),
                ("api-key", "rotate", str(ADMIN), {"role": "acme:group:ops"}, "invalid"),
            ],
        )
        self.assertEqual(
            self.stored()[:3], [("api-key", "rotate", alice), ("api-key", "rotate", own), ("password", "change", own)]
        )
        told = repr(taken) + repr(self.memory.events)
        for secret in (password, key, ADMIN_KEY):
            self.assertNotIn(secret, told)

    def test_expirations_cleared(self) -> None:
        """Clearing expirations is audited, in the store too, and is no update; without its flag there is no such route
        (AUD-3).
        """
        for kind in ("variable", "group"):
            self.client.post(f"/secrets/acme/{kind}/db?expirations", role=ALICE)
        self.client.post("/secrets/acme/variable/db?expirations", role=BOB)
        self.client.post("/secrets/acme/group/db", role=ALICE)
        self.client.request("DELETE", "/secrets/acme/variable/db?expirations", role=ALICE)
        self.client.post("/secrets/acme/variable/db?rotation", role=ALICE)
        self.assertEqual(
            self.journal.told(),
            [
                ("expiration", "clear", {"resource": DB}, None),
                ("expiration", "clear", {"resource": "acme:group:db"}, "invalid"),
                ("expiration", "clear", {"resource": DB}, "forbidden"),
                ("expiration", "clear", {"resource": DB}, None),
                ("expiration", "request-rotation", {"resource": DB}, "invalid"),
            ],
        )
        self.assertEqual(self.stored()[0], ("expiration", "clear", {"resource": DB}))
        self.assertEqual([operation for _, operation, _ in self.stored()].count("clear"), 2)

    def test_conditions(self) -> None:
        """Who knows a value already fetches it; who demands another than there is changes nothing, and fails (AUD-12)."""
        tag = self.client.get("/secrets/acme/variable/db", role=ALICE).headers["etag"]
        self.client.get("/secrets/acme/variable/db", role=ALICE, headers=[("If-None-Match", tag)])
        self.client.post("/secrets/acme/variable/db", b"x", role=ALICE, headers=[("If-Match", '"9-no"')])
        told = [(operation, reason) for _, operation, _, reason in self.journal.told()]
        self.assertEqual(told, [("fetch", None), ("fetch", None), ("update", "precondition-failed")])

    def test_lists_and_checks(self) -> None:
        """What is asked of resources and roles is audited with what was asked for (AUD-3)."""
        get = self.client.get
        get("/resources/acme?kind=user&limit=3", role=ALICE)
        get("/resources/acme/variable?limit=x&kind[a]=b", role=ALICE)
        get("/resources/acme/variable/db", role=ALICE)
        get("/resources/acme/variable/db?check=true&privilege=update", role=ALICE)
        get("/resources/acme/variable/db?check=true&privilege=update", role=BOB)
        get("/resources/acme/variable/db?permitted_roles=true&privilege=update", role=ALICE)
        get("/resources/acme/variable/db?who_can&privilege=update&direct&limit=3", role=ALICE)
        get(f"/resources/acme/variable/db?can&privilege=update&role={BOB}", role=ADMIN)
        get("/roles/acme/group/ops?reach", role=ADMIN)
        get("/roles/acme/group/ops?members&search=x", role=ADMIN)
        get("/roles/acme/group/ops?all", role=ADMIN)
        get("/roles/acme/group/ops", role=ADMIN)
        get("/whoami", role=ALICE)
        self.assertEqual(
            self.journal.told(),
            [
                ("list", "list", {"account": "acme", "kind": "user", "limit": "3"}, None),
                ("list", "list", {"account": "acme", "kind": "variable", "limit": "x"}, "invalid"),
                ("resource", "show", {"resource": DB}, None),
                ("check", "check", {"resource": DB, "role": str(ALICE), "privilege": "update"}, None),
                ("check", "check", {"resource": DB, "role": str(BOB), "privilege": "update"}, "http-404"),
                ("resource", "permitted-roles", {"resource": DB, "privilege": "update"}, None),
                ("resource", "who-can", {"resource": DB, "privilege": "update", "direct": "", "limit": "3"}, None),
                ("resource", "can", {"resource": DB, "role": str(BOB), "privilege": "update"}, None),
                ("role", "reach", {"role": "acme:group:ops"}, None),
                (
                    "members",
                    "list",
                    {"account": "acme", "kind": "group", "search": "x", "role": "acme:group:ops"},
                    None,
                ),
                ("role", "all", {"role": "acme:group:ops"}, None),
                ("role", "show", {"role": "acme:group:ops"}, None),
                ("identity-check", "check", {"role": str(ALICE)}, None),
            ],
        )

    def test_memberships(self) -> None:
        """Granting and taking back are audited, in the journal and in the store; a grant that is there already isn't (AUD-3,
        AUD-5).
        """
        path = f"/roles/acme/group/ops?members&member={ALICE}"
        for _ in range(2):
            self.assertEqual(self.client.post(path, role=ADMIN).status, 204)
        self.client.delete(path, role=ADMIN)
        self.client.delete(path, role=ADMIN)
        subject = {"role": "acme:group:ops", "member": str(ALICE)}
        self.assertEqual(
            self.journal.told(),
            [
                ("membership", "add", subject, None),
                ("membership", "remove", subject, None),
                ("membership", "remove", subject, "not-found"),
            ],
        )
        self.assertEqual(self.stored()[:2], [("membership", "remove", subject), ("membership", "add", subject)])

    def test_policy(self) -> None:
        """A load is a notice for each row that it changed, of the version that it made, and one for itself (AUD-3,
        AUD-5).
        """
        self.load("- !user carol\n- !permit {role: !user carol, privileges: read, resources: !variable db}")
        taken, self.journal.taken = self.journal.taken, []
        self.assertEqual(
            [(event.operation, dict(event.subject)) for _, event, _ in taken],
            [
                ("add", {"role": "acme:user:carol"}),
                ("add", {"resource": "acme:user:carol", "owner": "acme:user:admin"}),
                ("add", {"role": "acme:user:carol", "owner": "acme:user:admin"}),
                ("add", {"resource": DB, "role": "acme:user:carol", "privilege": "read"}),
                ("load", {"policy": "acme:policy:root"}),
            ],
        )
        self.assertEqual([event.policy for _, event, _ in taken[:4]], [("acme:policy:root", 2)] * 4)
        self.assertEqual({(event.msgid, event.severity) for _, event, _ in taken}, {("policy", 5)})
        self.assertEqual(taken[2][1].did, "added ownership of acme:user:admin in acme:user:carol")
        self.load("- !delete {record: !user carol}", method="PATCH")
        self.assertIn(("policy", "remove", {"role": "acme:user:carol"}, None), self.journal.told())

    def test_policy_that_fails(self) -> None:
        """A load that fails, and a dry run, change nothing, and are one event each (AUD-5)."""
        self.load("- !user carol", role=ALICE, status=404)
        self.load("- !grant", status=422)
        self.client.post("/policies/acme/policy/root?dryRun=true", b"- !user carol", role=ADMIN)
        self.client.get("/policies/acme/policy/root", role=ADMIN)
        subject = {"policy": "acme:policy:root"}
        self.assertEqual(
            self.journal.told(),
            [
                ("policy", "load", subject, "forbidden"),
                ("policy", "load", subject, "invalid"),
                ("policy", "dry-run", subject, None),
                ("policy", "read", subject, None),
            ],
        )

    def test_host_factory(self) -> None:
        """Tokens of host factories and the hosts that they make are audited, never with the token (AUD-3)."""
        body = b"host_factory=acme:host_factory:f&expiration=2050-01-01&count=1"
        [made] = self.client.post("/host_factory_tokens", body, role=ADMIN).json()
        authorization = [("Authorization", f'Token token="{made["token"]}"')]
        self.client.post("/host_factories/hosts?id=h", headers=authorization)
        [listed] = self.client.get("/host_factory_tokens?host_factory=acme:host_factory:f", role=ADMIN).json()
        self.client.delete(f"/host_factory_tokens/{listed['id']}", role=ADMIN)
        self.client.post("/host_factories/hosts?id=h", headers=authorization)
        self.assertNotIn(made["token"], repr(self.journal.taken))
        told = self.journal.told()
        self.assertEqual(
            [(operation, reason) for _, operation, _, reason in told],
            [
                ("create-tokens", None),
                ("create-host", None),
                ("list-tokens", None),
                ("revoke-token", None),
                ("create-host", "credentials-wrong"),
            ],
        )
        self.assertEqual(told[2][2], {"resource": "acme:host_factory:f"})
        self.assertEqual(told[3][2], {"resource": "acme:host_factory:f", "token": listed["id"]})
        self.assertEqual((told[1][2]["role"], told[1][2]["resource"]), ("acme:host:h", "acme:host_factory:f"))
        self.assertEqual([event[1] for event in self.stored()[:3]], ["revoke-token", "create-host", "create-tokens"])

    def test_secrets_never(self) -> None:
        """No value, API key, password or token is in any record (AUD-8)."""
        self.client.get("/secrets/acme/variable/db", role=ALICE)
        self.set_value("db", b"another secret value")
        self.client.get("/authn/acme/login", headers=[basic("admin", ADMIN_KEY)])
        self.client.post("/authn/acme/admin/authenticate", b"a wrong key")
        told = repr(self.journal.taken) + repr(self.memory.events)
        for secret in ("secret value", ADMIN_KEY, "a wrong key"):
            self.assertNotIn(secret, told)

    def test_every_route(self) -> None:
        """Every route of the server leaves a record, but for those that are known to need none (AUD-2)."""
        routes = {str(route) for noun in self.client.router._resources for route in noun.routes if route.audit is None}
        self.assertEqual(
            routes - UNAUDITED, set(), "a route that needs no audit says so twice: in its declaration, and here"
        )

    def stored(self) -> list[tuple[str, str, dict[str, str]]]:
        """The events in the store, the newest first."""
        found = sorted(self.memory.events.items(), reverse=True)
        return [(event.msgid, event.operation, dict(event.subject)) for _, (_, event) in found]


class BeforeTests(AuditedCase):
    """Nothing is answered before it is recorded."""

    def test_a_secret_waits(self) -> None:
        """A value, an API key and an access token leave when their record is taken, and not before (AUD-1)."""
        for method, target, more in (
            ("GET", "/secrets/acme/variable/db", {"role": ALICE}),
            ("GET", f"/secrets?variable_ids={DB}", {"role": ALICE}),
            ("GET", "/authn/acme/login", {"headers": [basic("admin", ADMIN_KEY)]}),
            ("POST", "/authn/acme/admin/authenticate", {"body": ADMIN_KEY.encode()}),
        ):
            self.journal.wait = wait = Deferred[None]()
            connection = self.client.begin(method, target, **more)
            self.assertEqual(connection.received(), b"", target)
            self.journal.wait = None
            wait.callback(None)
            self.assertEqual(connection.answer().status, 200, target)

    def test_no_journal(self) -> None:
        """While nothing can be recorded, what is audited is 503 at once, changes nothing, and says when to try again
        (AUD-20).
        """
        self.journal.away = True
        for method, target in (
            ("GET", "/secrets/acme/variable/db"),
            ("POST", "/secrets/acme/variable/db"),
            ("GET", "/whoami"),
            ("POST", "/policies/acme/policy/root"),
        ):
            answer = self.client.request(method, target, body=b"- !user carol" if method == "POST" else b"", role=ADMIN)
            self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "1"), target)
            self.assertNotIn(b"secret", answer.body)
        self.assertNotIn("acme:user:carol", self.memory.roles)
        with capturedLogs() as logs:
            self.client.get("/whoami", role=ADMIN)
        # The log may go to the very pipe that nobody reads.
        self.assertEqual(logs, [])
        self.assertEqual(self.client.get("/authenticators").status, 200)

    def test_the_journal_fails_meanwhile(self) -> None:
        """When the record can't be taken after all, the answer is 503 and has nothing of what was asked for (AUD-20)."""
        self.journal.wait = wait = Deferred[None]()
        connection = self.client.begin("GET", "/secrets/acme/variable/db", role=ALICE)
        self.journal.wait = None
        wait.errback(AuditUnavailable("full"))
        answer = connection.answer()
        self.assertEqual(answer.status, 503)
        self.assertNotIn(b"secret value", answer.body)

    def test_a_client_that_leaves(self) -> None:
        """Who doesn't stay for the answer leaves a record nevertheless (AUD-6)."""
        self.journal.wait = wait = Deferred[None]()
        connection = self.client.begin("GET", "/secrets/acme/variable/db", role=ALICE)
        connection.leave()
        self.journal.wait = None
        wait.callback(None)
        self.assertEqual([event[0] for event in self.journal.told()], ["fetch"])
