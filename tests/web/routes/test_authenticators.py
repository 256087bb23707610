"""Tests of ``svc.web.routes.authenticators``."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import capturedLogs, formatEvent

from svc.authn.evaluation import FederatedAuthenticator
from svc.model.authentication import AuthenticatorStatus, Explanation, ExplanationStep, KeysState, LoginRequest, Problem
from svc.model.dialect import CONJUR
from svc.model.listed_authenticators import ListedAuthenticators
from svc.model.reasons import Reason
from svc.services.authenticators import REFRESH_PAUSE, AuthenticatorService, FederatedService
from svc.web.routes.authenticators import Authenticators, FederatedAuthenticators
from tests.memory import MemoryAuthenticators, MemoryRoles
from tests.walls import Wall
from tests.web.support import NOW, PEER, Answer, Client
from tests.web.world import ADMIN, WorldCase, user

OLIVIA, MAX, EVE = user("olivia"), user("max"), user("eve")

POLICY = """
- !user olivia
- !user max
- !user eve
- !policy
  id: {prefix}/authn-jwt/ci
  body:
    - !webservice
    - !webservice status
    - !group operators
    - !permit {{ role: !group operators, privileges: [ read ], resource: !webservice status }}
- !grant {{ role: !group {prefix}/authn-jwt/ci/operators, member: !user olivia }}
- !permit {{ role: !user max, privileges: [ read, update ], resource: !webservice {prefix}/authn-jwt/ci }}
- !webservice {prefix}/authn-jwt/unlisted
- !webservice {prefix}/authn-other
- !webservice {prefix}/somewhere
"""

PATH = "/authn-jwt/ci/acme"

LISTED = ListedAuthenticators(["authn", "authn-jwt/ci", "authn-jwt/undefined", "authn-jwt/team-*"])

KEYS = KeysState(
    (("k1", "thumb-1"), (None, "thumb-2")), ("key 3 is weak",), NOW - 90.0, NOW - 30.0, "timed out", ("key 4 is odd",)
)

SHOWN = {
    "source": "jwks-uri",
    "uri": "https://ci.example/jwks",
    "count": 2,
    "ids": ["k1", None],
    "thumbprints": ["thumb-1", "thumb-2"],
    "age": 90.0,
    "last_fetch": {"at": "2023-11-14T22:12:50.000+00:00", "outcome": "timed out"},
    "problems": ["key 3 is weak"],
    "unused": ["key 4 is odd"],
}

GOOD = AuthenticatorStatus((), "jwks-uri", "https://ci.example/jwks", KEYS, (), -1.23456, 7, ("RS256", "EdDSA"))
NOTHING = Explanation((), None, False)
BAD = AuthenticatorStatus((Problem("There is no <source>.", "Set jwks-uri."), Problem("It is blank.", "Set it.")))


class Explainer(FederatedAuthenticator):
    """Says what a test has it say, and keeps what it was asked."""

    def __init__(self, state: AuthenticatorStatus = GOOD, explanation: Explanation = NOTHING) -> None:
        self.state, self.explanation = state, explanation
        self.asked: list[Any] = []

    async def explain(self, request: LoginRequest) -> Explanation:
        """The explanation."""
        self.asked.append(request)
        return self.explanation

    async def read_status(self, account: str, service_id: str | None, *, ask: bool = True) -> AuthenticatorStatus:
        """The state."""
        self.asked.append((account, service_id))
        return self.state


class AuthenticatorsCase(WorldCase):
    """A server of this noun, beside one of all others."""

    policy = POLICY

    def setUp(self) -> None:
        """Load a policy with an authenticator, its operator Olivia, and Max who may change it."""
        super().setUp()
        self.load(self.policy.format(prefix=self.dialect.prefix, cloud=self.dialect.cloud))
        self.explainer, self.cloud = Explainer(), Explainer()
        self.wall = Wall(self.clock)
        self.store = MemoryAuthenticators(self.memory)
        self.others = self.client
        self.client = Client(
            Authenticators(
                AuthenticatorService(
                    store=self.store,
                    roles=MemoryRoles(self.memory),
                    installed=("authn-jwt", self.dialect.cloud),
                    listed=LISTED,
                    dialect=self.dialect,
                )
            ),
            *(
                FederatedAuthenticators(
                    FederatedService(
                        name=name,
                        explainer=explainer,
                        store=self.store,
                        roles=MemoryRoles(self.memory),
                        listed=LISTED,
                        dialect=self.dialect,
                        token_limit=1000,
                        clock=self.clock,
                        wall=self.wall,
                    )
                )
                for name, explainer in (("authn-jwt", self.explainer), (self.dialect.cloud, self.cloud))
            ),
            dialect=self.dialect,
        )

    def declare(self, text: str) -> Any:
        """Load policy at the server of all nouns, and return the answer's document."""
        answer = self.others.post("/policies/acme/policy/root", text.encode(), role=ADMIN)
        self.assertEqual(answer.status, 201, answer.body)
        return answer.json()

    @property
    def webservice(self) -> str:
        """The full id of the authenticator."""
        return f"acme:webservice:{self.dialect.prefix}/authn-jwt/ci"


class ListTests(AuthenticatorsCase):
    """Which authenticators there are (AUTH-4)."""

    def enabled(self) -> list[str]:
        """Those that may be used."""
        found = self.client.get("/authenticators").json()["enabled"]
        assert isinstance(found, list)
        return found

    def test_list(self) -> None:
        """Anybody is told what is installed, what policy defines, and what may be used, without status webservices (AUTH-1,
        AUTH-4).
        """
        self.assertEqual(
            self.client.get("/authenticators").json(),
            {
                "installed": sorted(["authn", "authn-jwt", self.dialect.cloud]),
                "configured": ["authn", "authn-jwt/ci", "authn-jwt/unlisted", "authn-other"],
                "enabled": ["authn", "authn-jwt/ci", "authn-jwt/undefined"],
            },
        )

    def test_switched(self) -> None:
        """What is switched off isn't enabled, and switching on what isn't listed enables nothing (AUTH-4)."""
        self.memory.switches[self.webservice] = False
        self.memory.switches[self.webservice.replace("/ci", "/unlisted")] = True
        self.assertEqual(self.enabled(), ["authn", "authn-jwt/undefined"])

    def test_accounts(self) -> None:
        """What is enabled in one account is enabled (AUTH-4)."""
        self.memory.resources[self.webservice.replace("acme", "other")] = ("other:user:admin", None)
        self.memory.switches[self.webservice] = False
        self.memory.accounts["other"] = []
        self.assertIn("authn-jwt/ci", self.enabled())


class ConjurListTests(ListTests):
    """The same, where a switch adds to what is listed (AUTH-2)."""

    dialect = CONJUR

    def test_switched(self) -> None:
        """What is switched on is enabled, and switching off what is listed changes nothing (AUTH-4)."""
        self.memory.switches[self.webservice] = False
        self.memory.switches[self.webservice.replace("/ci", "/unlisted")] = True
        self.assertEqual(self.enabled(), ["authn", "authn-jwt/ci", "authn-jwt/undefined", "authn-jwt/unlisted"])


class SwitchTests(AuthenticatorsCase):
    """Switching on and off (AUTH-5 and AUTH-6)."""

    def switch(self, body: bytes, path: str = PATH, role: Any = MAX, **headers: str) -> int:
        """Ask for it, and return the status; nothing else is told."""
        answer = self.client.patch(path, body, role=role, headers=[*headers.items()])
        return answer.status

    def test_forms(self) -> None:
        """A form says ``true`` or ``false``, in any case and with blanks around, whatever its content type (AUTH-5)."""
        for body, on in ((b"enabled=true", True), (b"enabled=FALSE", False), (b"x=1&enabled=+True+", True)):
            self.assertEqual(self.switch(body), 204)
            self.assertEqual(self.memory.switches, {self.webservice: on})
        answer = self.client.patch(PATH, b"enabled=false", role=MAX, headers=[("Content-Type", "text/plain")])
        self.assertEqual((answer.status, answer.body), (204, b""))
        self.assertEqual(self.memory.switches, {self.webservice: False})

    def test_json(self) -> None:
        """JSON is read where the content type says that it is (AUTH-5)."""
        json_type = [("Content-Type", "Application/JSON; charset=utf-8")]
        for body, on in ((b'{"enabled":true}', True), (b'{"enabled": false, "x": []}', False)):
            self.assertEqual(self.client.patch(PATH, body, role=MAX, headers=json_type).status, 204)
            self.assertEqual(self.memory.switches, {self.webservice: on})

    def test_usable(self) -> None:
        """``Svc-Enabled`` says whether the authenticator may be used now: in ``native`` one that no name and no pattern
        lists may not, though it is switched on; in ``conjur`` one that is listed may, though it is switched off (AUTH-90).
        """
        self.declare(f"- !policy {{ id: {self.dialect.prefix}/authn-jwt/team-a, body: [ !webservice ] }}")
        conjur = self.dialect.switch_enables
        for name, on, usable in (
            ("authn-jwt/unlisted", True, conjur),
            ("authn-jwt/unlisted", False, False),
            ("authn-jwt/ci", True, True),
            ("authn-jwt/ci", False, conjur),
            ("authn-jwt/team-a", True, True),
        ):
            answer = self.client.patch(f"/{name}/acme", f"enabled={on}".encode(), role=ADMIN)
            self.assertEqual((answer.status, answer.body), (204, b""))
            self.assertEqual(answer.headers["svc-enabled"], str(usable).lower(), (name, on))

    def test_encoded_slash(self) -> None:
        """The slash within the name may be encoded: that is the same route, with the same answers (WIRE-15)."""
        for slash in ("%2F", "%2f"):
            for enabled in (True, False):
                body = f"enabled={enabled}".encode()
                self.assertEqual(self.switch(body, f"/authn-jwt{slash}ci/acme"), 204)
                self.assertEqual(self.memory.switches, {self.webservice: enabled})
            for path, role, status in (
                ("/authn-jwt{}none/acme", ADMIN, 401),
                ("/authn-jwt{}ci{}status/acme", ADMIN, 401),
                ("/authn-jwt{}ci/nobody", ADMIN, 401),
                ("/authn-jwt{}ci/acme", OLIVIA, 403),
                ("/authn-jwt{}ci/acme", None, 401),
                ("/authn-jwt{}/acme", ADMIN, 404),
                ("/authn{}jwt/acme", ADMIN, 404),
                ("/authn-jwt{}ci{}acme", ADMIN, 404),
                ("/authn-jwt/ci{}acme", ADMIN, 404),
            ):
                self.assertEqual(self.switch(b"enabled=true", path.replace("{}", slash), role), status, path)
            self.assertEqual(self.client.post(f"/authn-jwt{slash}ci/acme", role=ADMIN).status, 404)
            self.assertEqual(self.client.get(f"/authn-jwt{slash}ci/acme/status", role=ADMIN).status, 404)

    def test_bad_values(self) -> None:
        """A missing or other value is 422 and names the field; what can't be read is 400; nothing changes (AUTH-5,
        WIRE-59).
        """
        json_type = [("Content-Type", "application/json")]
        for body in (b"", b"enabled", b"enabled=", b"enabled=1", b"enabled=yes", b"enabled[]=true"):
            self.assertIn("enabled", self.error(self.client.patch(PATH, body, role=MAX), 422, "argument_error"))
        for body in (b"{}", b'{"enabled":"true"}', b'{"enabled":1}', b'{"enabled":null}'):
            answer = self.client.patch(PATH, body, role=MAX, headers=json_type)
            self.assertIn("enabled", self.error(answer, 422, "argument_error"))
        for body in (b"", b"{", b"[]", b"true", b'{"enabled":true,"enabled":false}', b"[" * 5000, b"\xff"):
            self.error(self.client.patch(PATH, body, role=MAX, headers=json_type), 400, "bad_request")
        for body in (b"enabled=%", b"\xff=1", b'{"enabled":true}'):
            self.error(self.client.patch(PATH, body, role=MAX), 400, "bad_request")
        self.assertEqual(self.memory.switches, {})

    def test_callers(self) -> None:
        """It takes ``update`` on the webservice: 403 without, seen or not; 401 without a token (AUTH-6)."""
        for role, status in ((MAX, 204), (ADMIN, 204), (OLIVIA, 403), (EVE, 403), (user("gone"), 403), (None, 401)):
            answer = self.client.patch(PATH, b"enabled=true", role=role)
            self.assertEqual(answer.status, status, role)
        self.assertEqual(self.client.patch(PATH, b"enabled=true", role=EVE).body, b"")

    def test_missing(self) -> None:
        """An unknown webservice, a nested one, an unknown account and a foreign one are 401; with a sentence where a role
        asks for the first that may look at the account or at the policy of that id (AUTH-6).
        """
        prefix = self.dialect.prefix
        self.declare(
            "- !user ann\n- !user ina\n- !permit { role: !user ina, privilege: inspect, resource: !policy root }\n"
            f"- !policy {{ id: {prefix}/authn-jwt/none, owner: !user ann }}\n",
        )
        foreign = attrs.evolve(ADMIN, account="other")
        for path, role in (
            ("/authn-jwt/none/acme", MAX),
            ("/authn-jwt/none/acme", OLIVIA),
            ("/authn-jwt/other/acme", user("ann")),
            ("/authn-jwt/ci%2Fstatus/acme", ADMIN),
            ("/authn-jwt/ci/nobody", ADMIN),
            (PATH, foreign),
        ):
            answer = self.client.patch(path, b"enabled=true", role=role)
            self.assertEqual((answer.status, answer.body), (401, b""), (path, role))
        for path, role, identifier in (
            ("/authn-jwt/none/acme", ADMIN, "authn-jwt/none"),
            ("/authn-jwt%2Fnone/acme", user("ina"), "authn-jwt/none"),
            ("/authn-jwt/none/acme", user("ann"), "authn-jwt/none"),
            ("/authn-jwt/acme", ADMIN, "authn-jwt"),
            ("/authn/acme", ADMIN, "authn"),
        ):
            message = self.error(self.client.patch(path, b"enabled=true", role=role), 401, "unauthorized")
            missing = self.worded(f"CONJ00005E Webservice '{prefix}/{identifier}' not found in account 'acme'")
            self.assertEqual(message, f"{missing}: policy declares it before it can be switched")
        self.assertEqual(self.memory.switches, {})

    def test_unlisted(self) -> None:
        """One that isn't listed is switched all the same, and so is one without a service id (AUTH-6)."""
        self.assertEqual(self.client.patch("/authn-jwt/unlisted/acme", b"enabled=true", role=ADMIN).status, 204)
        self.assertEqual(self.client.patch("/authn-other/acme", b"enabled=true", role=ADMIN).status, 204)
        prefix = f"acme:webservice:{self.dialect.prefix}"
        self.assertEqual(self.memory.switches, {f"{prefix}/authn-jwt/unlisted": True, f"{prefix}/authn-other": True})

    def test_other_paths(self) -> None:
        """What doesn't begin like an authenticator is no route, with a token or without (WIRE-16)."""
        for path in ("/somewhere/acme", "/policies/acme/policy", "/authnx/ci/acme", "/authn-/ci/acme", "/authn/ci/acme"):
            for role in (ADMIN, None):
                self.assertEqual(self.client.patch(path, b"enabled=true", role=role).status, 404, path)

    def test_standby(self) -> None:
        """A standby takes no switch (AUTH-65)."""
        self.memory.standby = True
        self.assertEqual(self.switch(b"enabled=true"), 405)

    def test_logged(self) -> None:
        """The log says who switched what."""
        with capturedLogs() as events:
            self.switch(b"enabled=false")
        self.assertEqual([formatEvent(event) for event in events], [f"acme:user:max switched {self.webservice} off"])

    def test_unserved(self) -> None:
        """What asks for an authenticator of a type of the installed base that is not served, is 404 and led to another one;
        a load that declares one warns (AUTH-66).
        """
        for kind, hint in (("authn-k8s", "service account token"), ("authn-cert", "token of their platform")):
            for method, path in (
                ("POST", f"/{kind}/prod/acme/host%2Fapp/authenticate"),
                ("POST", f"/{kind}/prod/acme/authenticate"),
                ("POST", f"/{kind}/prod/inject_client_cert"),
                ("POST", f"/{kind}%2Fprod/acme/authenticate"),
                ("GET", f"/{kind}/prod/acme/status"),
            ):
                for role in (None, ADMIN):
                    message = self.error(self.others.request(method, path, role=role), 404, "not_found")
                    self.assertTrue(message.startswith(f"{kind} is not served: "), message)
                    self.assertIn("authn-jwt", message)
                    self.assertIn(hint, message)
            prefix = self.dialect.prefix
            body = f"- !policy {{ id: {prefix}/{kind}/prod, body: [ !webservice , !webservice status ] }}"
            (warning,) = self.declare(body)["warnings"]
            self.assertTrue(warning.startswith(f"{kind} is not served: "), warning)
            self.assertNotIn("warnings", self.declare(f"- !webservice {kind}/prod\n- !group {prefix}/{kind}/ops"))
        for path in ("/authn-k8sx/prod/acme/authenticate", "/authn-k8s", "/x/authn-k8s/prod"):
            self.assertIn("no route", self.error(self.others.post(path), 404, "not_found"))


class ConjurSwitchTests(SwitchTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class OperatorsTests(AuthenticatorsCase):
    """Status and explanations are for callers that may read the status."""

    def ask(self, path: str, role: Any, status: int) -> list[Answer]:
        """Ask each of the routes for operators under a path, in a second of their own; all must answer with this status."""
        self.clock.advance(REFRESH_PAUSE)
        answers = [
            self.client.get(f"{path}/status", role=role),
            self.client.post(f"{path}/explain", b"jwt=a.b.c", role=role),
            self.client.post(f"{path}/refresh-keys", role=role),
        ]
        self.assertEqual([answer.status for answer in answers], [status] * 3, (path, role))
        return answers

    def refused(self, path: str, role: Any, status: int, message: str) -> None:
        """Ask; the answer about the status has the form of a status, as installed clients read it."""
        document = self.ask(path, role, status)[0].json()
        self.assertEqual(document, {"status": "error", "error": self.worded(message)})

    def test_operators(self) -> None:
        """It takes ``read`` on the webservice's ``status``; who lacks that is told so, whatever else he may
        (AUTH-59).
        """
        for role in (OLIVIA, ADMIN):
            self.ask(PATH, role, 200)
        self.explainer.asked.clear()
        for role in (MAX, EVE):
            self.refused(PATH, role, 403, f"CONJ00006E {role} lacks read on {self.webservice}/status")
        gone = user("gone")
        self.refused(PATH, gone, 403, f"CONJ00006E {gone} no longer exists")
        self.ask(PATH, None, 401)
        self.assertEqual(self.explainer.asked, [])

    def test_missing(self) -> None:
        """An unknown or foreign account, and an authenticator without its webservices, are 404 (AUTH-59)."""
        prefix = self.dialect.prefix
        for name in ("none", "unlisted"):
            missing = f"CONJ00005E Webservice '{prefix}/authn-jwt/{name}/status' not found"
            self.refused(f"/authn-jwt/{name}/acme", ADMIN, 404, missing)
        self.refused("/authn-jwt/ci/nobody", OLIVIA, 404, "CONJ00008E Account 'nobody' not found")
        self.refused(PATH, attrs.evolve(ADMIN, account="other"), 404, "CONJ00008E Account 'acme' not found")
        del self.memory.resources[self.webservice]
        self.refused(PATH, OLIVIA, 404, f"CONJ00005E Webservice '{prefix}/authn-jwt/ci' not found")
        self.assertEqual(self.explainer.asked, [])

    def test_long_ids(self) -> None:
        """A service id that makes no identifier is 422."""
        self.ask(f"/authn-jwt/{'x' * 1020}/acme", OLIVIA, 422)


class ConjurOperatorsTests(OperatorsTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class StatusTests(AuthenticatorsCase):
    """``GET …/status``."""

    def ask(self, path: str, role: Any = OLIVIA) -> Answer:
        """Ask for the status."""
        return self.client.get(f"{path}/status", role=role)

    def test_ok(self) -> None:
        """A working authenticator is 200, with what is known of its keys (AUTH-60)."""
        self.memory.distrusted[self.webservice, "k0"] = (NOW, "acme:user:max")
        answer = self.ask(PATH)
        self.assertEqual(
            (answer.status, answer.json()),
            (
                200,
                {
                    "status": "ok",
                    "problems": [],
                    "listed": True,
                    "algorithms": ["RS256", "EdDSA"],
                    "keys": SHOWN,
                    "distrusted": [{"key": "k0", "since": "2023-11-14T22:13:20.000+00:00", "by": "acme:user:max"}],
                    "clock_offset": -1.235,
                    "recent_tokens": 7,
                },
            ),
        )
        self.assertEqual(self.explainer.asked, [("acme", "ci")])

    def test_error(self) -> None:
        """A faulty one is 500, with every problem and its remedy; what belongs to HTML is escaped (AUTH-60)."""
        self.explainer.state = BAD
        answer = self.ask(PATH)
        self.assertEqual(answer.status, 500)
        self.assertIn(b"\\u003csource\\u003e", answer.body)
        document = answer.json()
        self.assertEqual((document["status"], document["error"]), ("error", "There is no <source>. It is blank."))
        self.assertEqual(
            document["problems"],
            [{"what": "There is no <source>.", "remedy": "Set jwks-uri."}, {"what": "It is blank.", "remedy": "Set it."}],
        )
        nothing = dict.fromkeys(("source", "uri", "age", "last_fetch"))
        self.assertEqual(
            document["keys"], {**nothing, "count": 0, "ids": [], "thumbprints": [], "problems": [], "unused": []}
        )
        self.assertIsNone(document["clock_offset"])

    def test_fetched(self) -> None:
        """A fetch that went well has the outcome ``ok``."""
        self.explainer.state = attrs.evolve(GOOD, keys=attrs.evolve(KEYS, failure=None))
        self.assertEqual(self.ask(PATH).json()["keys"]["last_fetch"]["outcome"], "ok")

    def test_clock_set(self) -> None:
        """How old keys are doesn't hang on the machine's clock, and when they were fetched is told by it."""
        self.wall.ahead = -3600.0
        keys = self.ask(PATH).json()["keys"]
        self.assertEqual((keys["age"], keys["last_fetch"]["at"]), (90.0, "2023-11-14T21:12:50.000+00:00"))

    def test_odd_services(self) -> None:
        """A service id is only text, decoded."""
        identifier = "a b/ü:%"
        for name in ("", "/status"):
            full = f"acme:webservice:{self.dialect.prefix}/authn-jwt/{identifier}{name}"
            self.memory.resources[full] = (str(ADMIN), None)
        self.assertEqual(self.ask(f"/authn-jwt/{quote(identifier, safe='')}/acme", ADMIN).status, 200)
        self.assertEqual(self.explainer.asked, [("acme", identifier)])

    def test_other_types(self) -> None:
        """``authn`` has no status, which is 501; types that don't exist have no route (AUTH-58)."""
        answer = self.client.get("/authn/acme/status", role=OLIVIA)
        told = self.worded("CONJ00056E Status check is not supported for authn")
        self.assertEqual((answer.status, answer.json()), (501, {"status": "error", "error": told}))
        self.assertEqual(self.client.get("/authn/acme/status").status, 401)
        self.assertEqual(self.client.get("/authn-other/x/acme/status", role=OLIVIA).status, 404)

    def test_no_service(self) -> None:
        """Without a service id there is no such route."""
        self.assertEqual(self.client.get("/authn-jwt/acme/status", role=OLIVIA).status, 404)


class ExplainTests(AuthenticatorsCase):
    """``POST …/explain``."""

    def ask(self) -> Answer:
        """Have a token explained."""
        return self.client.post(f"{PATH}/explain", b"jwt=a.b.c", role=OLIVIA)

    def test_steps(self) -> None:
        """Every step is told, with the role, and whether it would be admitted (AUTH-62)."""
        self.explainer.explanation = Explanation(
            (
                ExplanationStep("token", "passed", "it has <three> parts"),
                ExplanationStep("signature", "failed", "key k1", Reason.SIGNATURE_WRONG),
                ExplanationStep("role", "not reached"),
            ),
            "acme:host:web",
            False,
        )
        answer = self.ask()
        self.assertEqual((answer.status, answer.headers["cache-control"]), (200, "no-store"))
        self.assertEqual(
            answer.json(),
            {
                "admitted": False,
                "role": "acme:host:web",
                "steps": [
                    {"check": "token", "outcome": "passed", "detail": "it has <three> parts", "reason": None},
                    {"check": "signature", "outcome": "failed", "detail": "key k1", "reason": "signature-wrong"},
                    {"check": "role", "outcome": "not reached", "detail": "", "reason": None},
                ],
            },
        )

    def test_attempts(self) -> None:
        """It takes what authenticate takes: the trimmed token, and the host's id, which may be left out in two ways
        (AUTH-62).
        """
        request = LoginRequest("acme", None, b"a.b.c", PEER, "ci")
        for path, login in (("", None), ("/", None), ("/host%2Fweb", "host/web"), ("/host/web", "host/web")):
            self.assertEqual(self.client.post(f"{PATH}{path}/explain", b"x=1&jwt=+a.b.c%0A", role=OLIVIA).status, 200)
            self.assertEqual(self.explainer.asked.pop(), attrs.evolve(request, login=login))
        for body in (b"", b"jwt="):
            self.assertEqual(self.client.post(f"{PATH}/explain", body, role=OLIVIA).status, 200)
            self.assertEqual(self.explainer.asked.pop().evidence, b"")

    def test_too_large(self) -> None:
        """A token over the limit is 413, and so is a form that is longer than forms are (LIM-5)."""
        for size, status in ((1000, 200), (1001, 413), (65536, 413)):
            answer = self.client.post(f"{PATH}/explain", b"jwt=" + b"x" * size, role=OLIVIA)
            self.assertEqual(answer.status, status, size)
        self.assertEqual(self.client.post(f"{PATH}/explain", b"jwt=%", role=OLIVIA).status, 400)

    def test_logged(self) -> None:
        """Who had a token explained, and for which authenticator and role, is logged; the token is not."""
        with capturedLogs() as events:
            self.ask()
        (event,) = events
        self.assertEqual((event["role"], event["webservice"]), (str(OLIVIA), self.webservice))
        self.assertNotIn("a.b.c", repr(event))


class RefreshTests(AuthenticatorsCase):
    """``POST …/refresh-keys``."""

    def ask(self) -> Answer:
        """Ask for newer keys."""
        return self.client.post(f"{PATH}/refresh-keys", role=OLIVIA)

    def test_refresh(self) -> None:
        """The wish is written down before the keys are asked for, and the answer tells what is known of them then
        (AUTH-63).
        """
        answer = self.ask()
        self.assertEqual((answer.status, answer.json()), (200, {"keys": SHOWN, "problems": []}))
        self.assertEqual(self.memory.refreshes, {self.webservice: 1})
        self.assertEqual(self.explainer.asked, [("acme", "ci")])

    def test_faulty(self) -> None:
        """Where no source is known, the problems tell why."""
        self.explainer.state = BAD
        document = self.ask().json()
        self.assertEqual((document["keys"]["source"], len(document["problems"])), (None, 2))

    def test_too_often(self) -> None:
        """Who wishes again within a second is told to wait, and nothing is written down (AUTH-63)."""
        self.assertEqual(self.ask().status, 200)
        again = self.ask()
        self.assertEqual((again.status, again.headers["retry-after"]), (429, "1"))
        self.assertEqual(self.memory.refreshes, {self.webservice: 1})
        self.clock.advance(REFRESH_PAUSE)
        self.assertEqual(self.ask().status, 200)
        self.assertEqual(self.memory.refreshes, {self.webservice: 2})

    def test_standby(self) -> None:
        """A standby can't write it down (AUTH-65)."""
        self.memory.standby = True
        self.assertEqual(self.ask().status, 405)
        self.assertEqual(self.explainer.asked, [])


class DistrustTests(AuthenticatorsCase):
    """``PUT`` and ``DELETE …/distrusted-keys/<key>``."""

    def send(self, method: str, key: str, role: Any = MAX, path: str = PATH) -> int:
        """Distrust a key, or trust it again; the status."""
        return self.client.request(method, f"{path}/distrusted-keys/{quote(key, safe='')}", role=role).status

    def test_there_and_back(self) -> None:
        """A key is distrusted, by whom is kept, and trusted again; what isn't distrusted can't be (AUTH-64)."""
        for key in ("k1", "a/b c:ü", "k1"):
            self.assertEqual(self.send("PUT", key), 204)
        kept = self.result_of(self.store.list_distrusted_keys(next(self._webservices())))
        self.assertEqual([(found.key, found.by) for found in kept], [("a/b c:ü", str(MAX)), ("k1", str(MAX))])
        self.assertEqual(self.send("DELETE", "k1"), 204)
        self.assertEqual(self.send("DELETE", "k1"), 404)
        self.assertEqual([key for _, key in self.memory.distrusted], ["a/b c:ü"])

    def _webservices(self) -> Any:
        return (name for name, _ in self.result_of(self.store.list_webservices(self.dialect.prefix)))

    def test_callers(self) -> None:
        """It takes ``update`` on the webservice: 404 for who doesn't see it, 401 without a token (AUTH-64)."""
        for method in ("PUT", "DELETE"):
            for role, status in ((OLIVIA, 404), (EVE, 404), (user("gone"), 403), (None, 401)):
                self.assertEqual(self.send(method, "k1", role), status, role)
            for path in ("/authn-jwt/none/acme", "/authn-jwt/ci/nobody"):
                self.assertEqual(self.send(method, "k1", ADMIN, path), 404)
        self.memory.permissions[self.webservice, "read", str(EVE)] = None
        self.assertEqual(self.send("PUT", "k1", EVE), 403)
        self.assertEqual(self.memory.distrusted, {})

    def test_long_keys(self) -> None:
        """A key's name has the limits of an identifier."""
        self.assertEqual(self.send("PUT", "x" * 1025), 422)
        self.assertEqual(self.client.put(f"{PATH}/distrusted-keys/%00", role=MAX).status, 422)

    def test_logged(self) -> None:
        """The log says who did it, and the name of a key can't write lines of its own there."""
        with capturedLogs() as events:
            self.send("PUT", "k\n1")
            self.send("DELETE", "k\n1")
        self.assertEqual(
            [formatEvent(event) for event in events],
            [
                f"acme:user:max distrusts the key k\\n1 for {self.webservice}",
                f"acme:user:max trusts again the key k\\n1 for {self.webservice}",
            ],
        )


class RoutesTests(AuthenticatorsCase):
    """How the routes stand beside others."""

    def test_beside_logging_in(self) -> None:
        """No route takes another noun's requests."""
        others = [
            noun for noun in self.others.router._resources if not isinstance(noun, (Authenticators, FederatedAuthenticators))
        ]
        nouns = [*others, *self.client.router._resources]
        client = Client(*nouns)
        self.assertEqual(client.post("/authn-jwt/ci/acme/authenticate").status, 400)
        self.assertEqual(client.post("/authn-jwt/ci/acme/explain/authenticate").status, 400)
        self.assertEqual(client.get("/authenticators").status, 200)
        self.assertEqual(json.loads(client.get(f"{PATH}/status", role=OLIVIA).body)["status"], "ok")

    @given(st.binary(), st.sampled_from(["", "application/json", "application/x-www-form-urlencoded"]))
    def test_any_body(self, body: bytes, content_type: str) -> None:
        """Whatever the body of a switch, the answer is one of those."""
        answer = self.client.patch(PATH, body, role=MAX, headers=[("Content-Type", content_type)])
        self.assertIn(answer.status, {204, 400, 422})


class CloudTests(AuthenticatorsCase):
    """The same routes for cloud authenticators, under the name that these have in the dialect."""

    policy = POLICY.replace("authn-jwt/ci", "{cloud}/prod")

    def setUp(self) -> None:
        """Load an authenticator, with the same operators."""
        super().setUp()
        self.name = self.dialect.cloud
        self.path = f"/{self.name}/prod/acme"

    @property
    def webservice(self) -> str:
        """The full id of the authenticator."""
        return f"acme:webservice:{self.dialect.prefix}/{self.name}/prod"

    def test_list(self) -> None:
        """It is installed, and listed under its name."""
        found = self.client.get("/authenticators").json()
        self.assertIn(self.name, found["installed"])
        self.assertIn(f"{self.name}/prod", found["configured"])

    def test_status(self) -> None:
        """Its status is asked of the cloud authenticator alone."""
        answer = self.client.get(f"{self.path}/status", role=OLIVIA)
        self.assertEqual((answer.status, answer.json()["keys"], answer.json()["listed"]), (200, SHOWN, False))
        self.assertEqual((self.explainer.asked, self.cloud.asked), ([], [("acme", "prod")]))
        self.assertEqual(self.client.get(f"{self.path}/status", role=MAX).status, 403)
        self.assertEqual(self.client.get(f"/{self.name}/none/acme/status", role=OLIVIA).status, 404)

    def test_explain(self) -> None:
        """Its tokens are explained, each for the host that the path names."""
        answer = self.client.post(f"{self.path}/host%2Fweb/explain", b"jwt=a.b.c", role=OLIVIA)
        self.assertEqual(answer.status, 200)
        self.assertEqual(self.cloud.asked, [LoginRequest("acme", "host/web", b"a.b.c", PEER, "prod")])

    def test_keys(self) -> None:
        """Its keys are fetched again, distrusted and trusted again."""
        self.assertEqual(self.client.post(f"{self.path}/refresh-keys", role=OLIVIA).status, 200)
        self.assertEqual(self.memory.refreshes, {self.webservice: 1})
        self.assertEqual(self.client.put(f"{self.path}/distrusted-keys/k1", role=MAX).status, 204)
        self.assertEqual([*self.memory.distrusted], [(self.webservice, "k1")])
        self.assertEqual(self.client.request("DELETE", f"{self.path}/distrusted-keys/k1", role=MAX).status, 204)

    def test_switch(self) -> None:
        """It is switched off."""
        self.assertEqual(self.client.patch(self.path, b"enabled=false", role=MAX).status, 204)
        self.assertEqual(self.memory.switches, {self.webservice: False})

    def test_the_other_name(self) -> None:
        """Under its name in the other dialect there is no route, with a token or without (CFG-27)."""
        other = {"authn-cloud": "authn-azure", "authn-azure": "authn-cloud"}[self.name]
        for role in (OLIVIA, None):
            self.assertEqual(self.client.get(f"/{other}/prod/acme/status", role=role).status, 404)
            self.assertEqual(self.others.post(f"/{other}/prod/acme/host%2Fx/authenticate", role=role).status, 404)


class ConjurCloudTests(CloudTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR
