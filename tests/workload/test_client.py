"""Tests of ``svc.workload.client`` and ``svc.workload.evidence``."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectError
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import RequestTransmissionFailed, ResponseNeverReceived
from twisted.web.server import Request

from svc.workload.calls import ANSWER_LIMIT, DEADLINE, TRIES
from svc.workload.client import Client
from svc.workload.evidence import TOKEN_LIMIT, ApiKey, CloudIdentity, Evidence, GetToken, Jwt
from svc.workload.exchange import Exchange
from svc.workload.faults import (
    BadAddress,
    BadAnswer,
    Fault,
    LoginRefused,
    NoEvidence,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    TooLong,
    Unavailable,
    Unexpected,
    Unreachable,
)
from tests.workload.wire import Service, Wire, clock

T = TypeVar("T")

KEY = ApiKey("host/apps/shop", "the-api-key")
VALUES = {
    "acme:variable:apps/password": b"s3cret",
    "acme:variable:apps/key": bytes(range(256)),
    "acme:variable:a,b": b"comma",
}


def in_base64(answer: bytes, request: Request) -> bytes:
    """Answer with this, and say that it is in base64."""
    request.setHeader(b"content-encoding", b"base64")
    return answer


class ClientCase(SynchronousTestCase):
    """A client of a service."""

    def setUp(self) -> None:
        """Make the service."""
        self.clock = clock()
        self.service = Service(self.clock, dict(VALUES))
        self.wire = Wire(self.service.site().resource())

    def client(self, evidence: Evidence = KEY, *, limit: int = ANSWER_LIMIT, **more: Any) -> Client:
        """Make a client whose pauses are the shortest."""
        http: Any = self.wire
        return Client(
            "https://svc.example/", "acme", evidence, Exchange(http, self.clock, limit), **{"chance": lambda: 0.0, **more}
        )

    def begin(self, coroutine: Any) -> Deferred[Any]:
        """Begin a coroutine."""
        return Deferred.fromCoroutine(coroutine)

    def result(self, coroutine: Any) -> Any:
        """The result of a coroutine, which must be there at once."""
        return self.successResultOf(self.begin(coroutine))

    def fault(self, coroutine: Any, kind: type[Fault]) -> str:
        """What a coroutine's fault says, which must be there at once."""
        return str(self.failureResultOf(self.begin(coroutine), kind).value)


class ReadTests(ClientCase):
    """Reading."""

    def test_one(self) -> None:
        """A value comes as its exact bytes, of the newest version or of the one asked for."""
        client = self.client()
        self.service.values["acme:variable:apps/password"] = b"\x00\xff"
        self.assertEqual(self.result(client.secret("apps/password")), b"\x00\xff")
        self.assertEqual(self.result(client.secret("apps/password", 3)), b"\x00\xff")
        path = "/secrets/acme/variable/apps%2Fpassword"
        self.assertEqual(self.service.reads, [path, f"{path}?version=3"])
        self.assertEqual(len(self.service.logins), 1)

    def test_several(self) -> None:
        """Several values come with one request, by the ids that were asked for; each is asked for once."""
        got = self.result(self.client().secrets(["apps/password", "apps/key", "apps/password"]))
        self.assertEqual(got, {"apps/password": b"s3cret", "apps/key": bytes(range(256))})
        self.assertEqual(self.service.reads, ["/secrets/batch"])
        self.assertEqual(self.service.asked, [["acme:variable:apps/password", "acme:variable:apps/key"]])
        self.assertEqual(self.result(self.client().secrets([])), {})

    def test_commas(self) -> None:
        """An id with a comma is asked for like any other."""
        self.assertEqual(
            self.result(self.client().secrets(["a,b", "apps/password"])), {"a,b": b"comma", "apps/password": b"s3cret"}
        )
        self.assertEqual(len(self.service.reads), 1)

    def test_very_many(self) -> None:
        """More than one request can ask for come with several requests (LIB-2)."""
        for names, requests in (
            ([f"apps/{number}" for number in range(10_001)], [10_000, 1]),
            ([f"apps/{'x' * 200_000}{number}" for number in range(3)], [2, 1]),
        ):
            self.service.asked.clear()
            self.service.values.update({f"acme:variable:{name}": name.encode() for name in names})
            got = self.result(self.client().secrets(names))
            self.assertEqual(got, {name: name.encode() for name in names})
            self.assertEqual([len(asked) for asked in self.service.asked], requests)

    def test_too_long_together(self) -> None:
        """What the service finds too long for one answer is read in parts, in the end each by itself."""
        names = ["apps/password", "apps/key"]
        client = self.client()
        self.result(client.access_token())
        self.service.troubles = [(413, None), (413, None)]
        self.assertEqual(self.result(client.secrets(names)), {"apps/password": b"s3cret", "apps/key": bytes(range(256))})
        self.assertEqual(
            [read.partition("?")[0] for read in self.service.reads],
            ["/secrets/batch", "/secrets/batch", "/secrets/acme/variable/apps%2Fpassword", "/secrets/batch"],
        )

    def test_refusals(self) -> None:
        """Each refusal has its own fault, which names what was asked for and what the service says."""
        client = self.client()
        self.assertIn("apps/none was not found", self.fault(client.secret("apps/none"), NotFound))
        for status, kind, told in (
            (403, NotPermitted, "lacks the privilege execute"),
            (404, NotFound, "so the test wants it"),
            (422, Unexpected, "status 422): so the test wants it"),
            (503, Unavailable, "try again later"),
            (429, Unavailable, "status 429"),
            (302, Unexpected, "status 302"),
        ):
            self.service.troubles = [(status, None)]
            self.assertIn(told, self.fault(client.secret("apps/password"), kind))

    def test_bad_batches(self) -> None:
        """A list of values that isn't what was asked for is a fault."""
        for value in (
            *(b"[]", b"{}", b"no", b'{"values": 5}', b'{"values": {}, "errors": 5}', b"[" * 100_000),
            *(b'{"values": {"acme:variable:a": %b}}' % told for told in (b"5", b'"YWJj!"', b"null")),
            b'{"values": {}, "errors": {"acme:variable:a": {"code": 5, "message": ""}}}',
        ):
            self.patch(self.service, "_read", partial(in_base64, value))
            self.assertIn("is this the address", self.fault(self.client().secrets(["a"]), BadAnswer))

    def test_plain_answers(self) -> None:
        """Values that weren't sent in base64 are a fault, even where they could be read as base64; so is a plain token.

        So a proxy that drops what was asked for never makes rubbish of a secret.
        """
        for answer in (
            b'{"values": {"acme:variable:a": "hunter2hunter2aa"}}',
            b'{"values": {"acme:variable:a": "aHVudGVyMg=="}}',
        ):
            self.patch(self.service, "_read", lambda request, answer=answer: answer)
            self.assertIn("does a proxy on the way drop", self.fault(self.client().secrets(["a"]), BadAnswer))
        self.patch(self.service, "_log_in", lambda request: b'{"protected": "", "payload": "", "signature": ""}')
        self.assertIn("does a proxy on the way drop", self.fault(self.client().access_token(), BadAnswer))

    def test_line_ends(self) -> None:
        """Lines of base64 may end in any way."""
        for text in ("aHVu\ndGVy\n", "aHVu\r\ndGVy\r\n", "aHVudGVy"):
            answer = json.dumps({"values": {"acme:variable:a": text}}).encode()
            self.patch(self.service, "_read", partial(in_base64, answer))
            self.assertEqual(self.result(self.client().secrets(["a"])), {"a": b"hunter"})

    def test_long_answers(self) -> None:
        """Of an answer, no more is taken than the limit."""
        self.service.values["acme:variable:large"] = b"x" * 2000
        self.assertIn("larger than 1999", self.fault(self.client(limit=1999).secret("large"), TooLong))

    def test_addresses(self) -> None:
        """What is no address of a service is refused before anything is sent."""
        for url in (
            "",
            "svc.example",
            "ftp://svc.example",
            "https://",
            "https://a_b",
            "https://x..y",
            "https://svc.example:x",
        ):
            http: Any = self.wire
            self.assertRaises(BadAddress, Client, url, "acme", KEY, Exchange(http, self.clock, 1))


class FreshTests(ClientCase):
    """How a client stays logged in."""

    def test_renewed_ahead(self) -> None:
        """A token serves most of its life; then the next read renews it, at a moment that chance chooses (NET-24)."""
        for chance, moment in ((0.0, 336.0), (0.999, 408.0)):
            client = self.client(chance=lambda chance=chance: chance)
            self.result(client.access_token())
            before = len(self.service.logins)
            self.clock.advance(moment - 1)
            first = self.result(client.access_token())
            self.clock.advance(1)
            self.assertNotEqual(self.result(client.access_token()), first)
            self.assertEqual(len(self.service.logins), before + 1)

    def test_shared_login(self) -> None:
        """Those who read at once share one login; one that gives up takes nothing from the others (NET-24)."""
        self.service.held = Deferred()
        client = self.client()
        waiting = [self.begin(client.access_token()) for _ in range(3)]
        waiting[0].cancel()
        self.failureResultOf(waiting[0])
        self.service.held.callback(None)
        self.wire.flush()
        self.assertEqual(len({self.successResultOf(one) for one in waiting[1:]}), 1)
        self.assertEqual(len(self.service.logins), 1)

    def test_a_token_that_ends_while_reading(self) -> None:
        """A read whose token is refused logs in afresh, once, and reads (NET-24)."""
        client = self.client()
        self.result(client.secret("apps/password"))
        self.service.valid.clear()
        self.assertEqual(self.result(client.secret("apps/password")), b"s3cret")
        self.assertEqual((len(self.service.logins), len(self.service.reads)), (2, 3))

    def test_tokens_that_are_never_taken(self) -> None:
        """When a fresh token is refused too, it is a fault, and not asked again."""
        client = self.client()
        self.service.life = 0
        self.assertIn("status 401", self.fault(client.secret("apps/password"), NotAuthenticated))
        self.assertEqual((len(self.service.logins), len(self.service.reads)), (2, 2))

    def test_a_clock_that_is_put_back(self) -> None:
        """A token that ends early by the service's clock is found out by its refusal."""
        client = self.client()
        self.result(client.secret("apps/password"))
        for token in self.service.valid:
            self.service.valid[token] = 0
        self.assertEqual(self.result(client.secret("apps/password")), b"s3cret")

    def test_no_login_for_now(self) -> None:
        """While the service can't log anybody in, a token serves to its end, and then no longer."""
        client = self.client(deadline=1.0)
        first = self.result(client.access_token())
        self.clock.advance(400)
        self.service.troubles = [(503, None)]
        self.assertEqual(self.result(client.access_token()), first)
        self.clock.advance(80)
        self.service.troubles = [(503, None)]
        self.fault(client.access_token(), Unavailable)

    def test_a_refused_login(self) -> None:
        """A login that is refused is a fault even while the old token lives: the role may be gone."""
        client = self.client()
        self.result(client.access_token())
        self.clock.advance(400)
        self.service.refused = True
        said = self.fault(client.access_token(), LoginRefused)
        self.assertEqual(
            said,
            "the server refused the API key of host/apps/shop (account acme, status 401); its log and its audit say why: "
            "an operator learns it with `svc explain-request r-1`",
        )

    def test_who_explains(self) -> None:
        """The fault of a refused login names the command that tells operators why, in one word whatever the id is."""
        self.assertTrue(str(LoginRefused("it", "acme", 401, "r-1")).endswith(" learns it with `svc explain-request r-1`"))
        self.assertTrue(str(LoginRefused("it", "acme", 401, "a;b")).endswith(" `svc explain-request 'a;b'`"))

    def test_a_token_at_hand(self) -> None:
        """A token that is at hand is used without a login, until the service refuses it."""
        self.service.valid["at-hand"] = self.clock.seconds() + 10
        client = self.client(access_token="at-hand")
        self.assertEqual(self.result(client.secret("apps/password")), b"s3cret")
        self.assertEqual(self.service.logins, [])
        self.clock.advance(10)
        self.assertEqual(self.result(client.secret("apps/password")), b"s3cret")
        self.assertEqual(len(self.service.logins), 1)

    def test_bad_tokens(self) -> None:
        """An answer to a login that is no access token is a fault; so is one whose token never ends."""
        lives = (
            b'{"iat": 0, "exp": 1e999}',
            b'{"iat": 0, "exp": NaN}',
            b'{"iat": 0, "exp": 1%s}' % (b"0" * 400),
            b"[" * 100_000,
        )
        endless = [b'{"payload": "%s"}' % base64.b64encode(life) for life in lives]
        parts = (b'{"payload": "W10="}', b'{"payload": 5}', b"[" * 100_000, *endless)
        for answer in (b"", b"\xff", b"e30=", *map(base64.b64encode, parts)):
            self.patch(self.service, "_log_in", partial(in_base64, answer))
            self.assertIn("not an access token", self.fault(self.client().access_token(), BadAnswer))

    def test_nothing_shows_secrets(self) -> None:
        """Neither a key nor a token is in what evidence and clients look like."""
        client = self.client()
        token = self.result(client.access_token())
        login = self.result(KEY.login("acme"))
        seen = f"{KEY!r} {client!r} {vars(client)!r} {login!r}"
        self.assertNotIn("the-api-key", seen)
        self.assertNotIn(token, seen)


class TriesTests(ClientCase):
    """What is sent again."""

    def test_later(self) -> None:
        """When the service says when to come again, that is waited for, at logins and reads alike (NET-23)."""
        client = self.client()
        self.service.troubles = [(503, "2"), (429, "1")]
        waiting = self.begin(client.secret("apps/password"))
        self.clock.pump([2.2, 0.1, 1.4])
        self.assertEqual((len(self.service.logins), len(self.service.reads)), (2, 0))
        self.clock.advance(0.1)
        self.assertEqual(self.successResultOf(waiting), b"s3cret")
        self.service.troubles = [(503, "3")]
        waiting = self.begin(client.secret("apps/password"))
        self.clock.pump([3.2, 0.1])
        self.assertEqual(self.successResultOf(waiting), b"s3cret")
        self.assertEqual((len(self.service.logins), len(self.service.reads)), (3, 3))

    def test_connections(self) -> None:
        """A request that was not answered is sent again, with pauses that grow (NET-23)."""
        lost = Failure(ConnectError())
        self.wire.faults = [ConnectError(), RequestTransmissionFailed([lost]), ResponseNeverReceived([lost])]
        waiting = self.begin(self.client().access_token())
        asked = [self.wire.asked]
        for _ in range(7):
            self.clock.advance(0.25)
            asked.append(self.wire.asked)
        self.assertEqual(asked, [1, 2, 2, 3, 3, 3, 3, 4])
        self.successResultOf(waiting)

    def test_few(self) -> None:
        """There are few tries, and the last fault is told."""
        for faults, troubles, kind in (
            ([ConnectError("refused")] * 9, [], Unreachable),
            ([], [(503, "0")] * 9, Unavailable),
        ):
            self.wire.asked, self.wire.faults, self.service.troubles = 0, list(faults), list(troubles)
            waiting = self.begin(self.client().access_token())
            self.clock.pump([1.0] * 5)
            self.failureResultOf(waiting, kind)
            self.assertEqual(self.wire.asked, TRIES)

    def test_no_pause_beyond_the_deadline(self) -> None:
        """When the service wants to be asked after the deadline, it isn't asked again."""
        self.service.troubles = [(503, "3600")]
        self.fault(self.client().access_token(), Unavailable)
        self.assertEqual(self.wire.asked, 1)

    def test_not_again(self) -> None:
        """What the service refuses, or can't do without saying for how long, is not asked again (NET-23)."""
        for status, kind in (
            (401, LoginRefused),
            (403, LoginRefused),
            (500, Unexpected),
            (503, Unavailable),
            (429, Unavailable),
        ):
            self.wire.asked = 0
            self.service.troubles = [(status, None)]
            self.fault(self.client().access_token(), kind)
            self.assertEqual(self.wire.asked, 1, status)

    def test_deadline(self) -> None:
        """A request that isn't answered ends with its deadline."""
        self.service.held = Deferred()
        waiting = self.begin(self.client().access_token())
        self.clock.advance(DEADLINE - 1)
        self.assertNoResult(waiting)
        self.clock.advance(1)
        said = str(self.failureResultOf(waiting, Unreachable).value)
        self.assertEqual(said, "no answer from https://svc.example: there was no complete answer within 30 seconds")


class EvidenceTests(ClientCase):
    """What a workload proves itself with."""

    def test_api_keys(self) -> None:
        """An API key is the whole body, for the role in the path."""
        self.result(self.client().access_token())
        self.assertEqual(self.service.logins, [("/authn/acme/host%2Fapps%2Fshop/authenticate", b"the-api-key")])

    def test_jwt(self) -> None:
        """A JWT is a form field, from whatever returns it, at once or later; a host is named where the token doesn't."""

        async def later() -> str:
            return "a.b+c.d"

        sources: tuple[GetToken, ...] = (lambda: "a.b+c.d\n", lambda: b" a.b+c.d", later, lambda: succeed(b"a.b+c.d"))
        for source in sources:
            self.result(self.client(Jwt("ci", source)).access_token())
        self.result(self.client(Jwt("ci", sources[0], "host/apps/shop")).access_token())
        self.result(self.client(Jwt("authn-jwt/ci", sources[0])).access_token())
        body = b"jwt=a.b%2Bc.d"
        path = "/authn-jwt/ci/acme/authenticate"
        self.assertEqual(self.service.logins[:4], [(path, body)] * 4)
        self.assertEqual(
            self.service.logins[4:], [("/authn-jwt/ci/acme/host%2Fapps%2Fshop/authenticate", body), (path, body)]
        )

    def test_files(self) -> None:
        """The file of a JWT is read for each login."""
        path = Path(self.mktemp())
        client = self.client(Jwt("ci", path))
        for token in ("one", "two"):
            path.write_text(f"{token}\n")
            self.result(client.access_token())
            self.clock.advance(400)
        self.assertEqual([body for _, body in self.service.logins], [b"jwt=one", b"jwt=two"])

    def test_no_files(self) -> None:
        """A file that isn't there, is empty or is no token's is a fault that names it, and nothing is sent."""
        path = Path(self.mktemp())
        for contents, told in (
            (None, "No such file"),
            (b"\n", "is empty"),
            (b"x" * (TOKEN_LIMIT + 1), "longer than any JWT"),
        ):
            if contents is not None:
                path.write_bytes(contents)
            said = self.fault(self.client(Jwt("ci", path)).access_token(), NoEvidence)
            self.assertIn(told, said)
            self.assertIn(str(path), said)
        self.assertIn("no JWT", self.fault(self.client(Jwt("ci", lambda: "")).access_token(), NoEvidence))
        self.assertEqual(self.service.logins, [])

    def test_cloud(self) -> None:
        """A cloud identity's token is a form field, at the path of its host; another name of the authenticator counts."""

        class Source:
            async def token(self) -> str:
                return "the.cloud.token"

        for service_id, name in (("prod", "authn-cloud"), ("authn-azure/prod", "authn-azure")):
            evidence = CloudIdentity(service_id, "host/apps/shop", Source())
            self.result(self.client(evidence).access_token())
            path = f"/{name}/prod/acme/host%2Fapps%2Fshop/authenticate"
            self.assertEqual(self.service.logins[-1], (path, b"jwt=the.cloud.token"))
        self.service.refused = True
        self.assertIn("identity as host/apps/shop", self.fault(self.client(evidence).access_token(), LoginRefused))

    def test_what_is_raised(self) -> None:
        """What a source of tokens raises comes through as it is."""

        def broken() -> Awaitable[str]:
            raise NoEvidence("the agent is not running")

        self.assertEqual(self.fault(self.client(Jwt("ci", broken)).access_token(), NoEvidence), "the agent is not running")
