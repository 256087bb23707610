"""One server, and a provider with TLS that does everything wrong in turn: who is refused, who isn't, what operators read.

The rules are those of NET-15 and AUTH-43: one deadline for a fetch, and keys at hand serve whatever becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
from OpenSSL.SSL import Connection
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator, IPullProducer
from twisted.internet.ssl import PrivateCertificate
from twisted.internet.task import LoopingCall, deferLater
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site
from zope.interface import implementer

from svc.net.fetch import ANSWER_LIMIT, DEADLINE
from tests.authn.providers.authority import Authority
from tests.integration.client import Answer, Api, now
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerTestCase
from tests.negotiation import is_acceptable
from tests.signing import jwk, jwks, token

reactor: Any = installed_reactor

#: How long a refusal may take, in seconds: the deadline of a fetch, and what a slow machine takes for the rest.
BOUND: Final = DEADLINE + 10

#: What operators read of a provider that doesn't answer in time.
LATE: Final = f"no complete answer within {DEADLINE:g} seconds"

#: How much of a gigabyte may have left the provider before it is hung up on: what its own buffers and the sockets' take.
SENT_LIMIT: Final = 50_000_000

#: Three authenticators: one whose keys were never fetched, one whose keys are at hand, and one of another provider.
SERVICES: Final = ("fresh", "known", "other")

HOST: Final = """
- !host
  id: shop
  annotations:
"""

AUTHENTICATOR: Final = """
- !policy
  id: svc/authn-jwt/{service}
  body:
    - !webservice
    - !webservice status
    - !variable jwks-uri
    - !variable ca-cert
    - !permit
      role: !host /shop
      privileges: [ read, authenticate ]
      resource: !webservice
"""

#: Answers a request, or begins to.
Answering = Callable[["Provider", Request], Any]


def _publishes(provider: Provider, request: Request) -> bytes:
    return provider.document


def _hangs(provider: Provider, request: Request) -> Any:
    return NOT_DONE_YET


def _drips(provider: Provider, request: Request) -> Any:
    """A byte a second."""
    drip = LoopingCall(request.write, b" ")
    request.notifyFinish().addErrback(lambda _: drip.stop())
    drip.start(1.0)
    return NOT_DONE_YET


@implementer(IPullProducer)
@attrs.define(eq=False)
class _Gigabyte:
    """Is sent as fast as the client takes it, and never held."""

    provider: Provider
    request: Request

    def resumeProducing(self) -> None:
        """Send some of it."""
        self.provider.sent += 65_536
        if self.provider.sent < 1_000_000_000:
            self.request.write(b" " * 65_536)

    def stopProducing(self) -> None:
        """The client hung up."""


def _floods(provider: Provider, request: Request) -> Any:
    provider.sent = 0
    request.setHeader(b"Content-Length", b"1000000000")
    request.registerProducer(_Gigabyte(provider, request), False)
    return NOT_DONE_YET


def _has_other_types(provider: Provider, request: Request) -> bytes:
    request.setResponseCode(406)
    return b"{}"


def _redirects(provider: Provider, request: Request) -> bytes:
    request.redirect(b"/elsewhere")
    return b""


def _wants_a_login(provider: Provider, request: Request) -> bytes:
    return b"<!doctype html><html><body>Please sign in.</body></html>"


def _has_no_keys(provider: Provider, request: Request) -> bytes:
    return b'{"keys": []}'


@implementer(IOpenSSLServerConnectionCreator)
class Provider(Resource):
    """A provider with TLS, known by its number. It answers as ``answering`` says, under its ``certificate``.

    ``met`` counts connections, ``sent`` the bytes of the last flood, and ``followed`` who went where a redirect leads.
    """

    isLeaf = True

    def __init__(self, case: TestCase) -> None:
        super().__init__()
        self.authority = Authority()
        self.sound = self.authority.issue("127.0.0.1")
        self.certificate: PrivateCertificate = self.sound
        self.answering: Answering = _publishes
        self.document = jwks()
        self.met = self.sent = self.followed = 0
        provider = self

        class Counted(Site):
            """Counts connections, and writes no access log."""

            noisy = False

            def buildProtocol(self, addr: Any) -> Any:
                """Count."""
                provider.met += 1
                return super().buildProtocol(addr)

            def log(self, request: Any) -> None:
                """Say nothing."""

        self._port: Any = reactor.listenSSL(0, Counted(self), self, interface="127.0.0.1")
        case.addCleanup(self._port.stopListening)

    @property
    def uri(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self._port.getHost().port}"

    def serverConnectionForTLS(self, tlsProtocol: Any) -> Connection:  # noqa: N803 (Twisted's)
        """The TLS of a connection, with the certificate of the moment at which it begins."""
        return Connection(self.certificate.options().getContext(), None)

    def render_GET(self, request: Request) -> Any:
        """Answer, as far as that is what is asked for."""
        if not is_acceptable(request.getHeader("accept"), request.path.decode("ascii")):
            request.setResponseCode(406)
            return b""
        if request.path == b"/elsewhere":
            self.followed += 1
            return self.document
        return self.answering(self, request)


@attrs.frozen
class Fault:
    """What a provider does wrong, and what operators are told; ``lasting``: whether only the deadline ends it."""

    name: str
    cause: str
    answering: Answering = _publishes
    certificate: PrivateCertificate | None = None
    lasting: bool = False


def faults(provider: Provider) -> list[Fault]:
    """Everything that a provider can do wrong."""
    return [
        Fault("hangs", LATE, _hangs, lasting=True),
        Fault("drips", LATE, _drips, lasting=True),
        Fault("floods", f"the answer is longer than {ANSWER_LIMIT} bytes", _floods),
        Fault(
            "redirects", "the answer has status 302, and redirects are not followed; it leads to '/elsewhere'", _redirects
        ),
        Fault(
            "other-types",
            "the answer has status 406: nothing there is of the types that were asked for",
            _has_other_types,
        ),
        Fault("html", "it is not JSON", _wants_a_login),
        Fault("empty", "it has no usable key", _has_no_keys),
        # An authority of the same name and with another key: the signature of its certificates is broken.
        Fault("broken-certificate", "certificate verify failed", certificate=Authority().issue("127.0.0.1")),
        Fault("expired", "certificate verify failed", certificate=provider.authority.issue("127.0.0.1", days=1)),
        Fault("another-host", "the certificate is for another host", certificate=provider.authority.issue("idp.example")),
        Fault(
            "no-host",
            "the certificate is for no host",
            certificate=provider.authority.issue("some-old-printer", common_name_alone=True),
        ),
    ]


class FaultTests(PostgresTestCase, ServerTestCase):
    """A server whose authenticators ``fresh`` and ``known`` have the faulty provider, and ``other`` a healthy one."""

    timeout = 600
    skip = unavailable()

    async def prepare(self) -> None:
        """Start all that. A fetch may follow another at once, so that no fault hides behind the budget."""
        await super().prepare()
        self.provider, self.healthy = Provider(self), Provider(self)
        self.process = self.serve(
            "--account=acme",
            "--authenticators=" + ",".join(["authn", *(f"authn-jwt/{service}" for service in SERVICES)]),
            "--allow-private-providers=127.0.0.0/8",
            "--jwks-refetch-interval=0",
            database_url=await self.create_database(migrated=False),
        )
        self.api = Api.of(self, await self.process.ready())
        self.admin = await self.api.authenticate("admin", self.process.admin_key())
        policy = HOST + "".join(f"    authn-jwt/{service}/project: shop\n" for service in SERVICES)
        policy += "".join(AUTHENTICATOR.format(service=service) for service in SERVICES)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", policy.encode(), self.admin)
        self.assertEqual(loaded.status, 201, loaded)
        for service in SERVICES:
            provider = self.healthy if service == "other" else self.provider
            await self.tell(service, "ca-cert", provider.authority.pem)
            await self.tell(service, "jwks-uri", f"{provider.uri}/{service}")

    async def tell(self, service: str, name: str, value: str) -> None:
        """Set a variable of an authenticator."""
        path = self.api.variable(f"svc/authn-jwt/{service}/{name}")
        self.assertEqual((await self.api.ask("POST", path, value.encode(), self.admin)).status, 201)

    async def login(self, service: str, status: int, key: str = "k1", **header: Any) -> float:
        """Have the workload log in, which must be answered with this status; return how many seconds that took."""
        began = now()
        evidence = token({"project": "shop", "iat": int(began), "exp": int(began) + 300}, key, **header)
        answer = await self.api.present(evidence, service, "host/shop")
        self.assertEqual(answer.status, status, f"{service}, of {key} as {header}")
        self.assertEqual("retry-after" in answer.headers, status == 503)
        return now() - began

    async def status(self, service: str) -> Answer:
        """How an authenticator stands."""
        return await self.api.ask("GET", f"/authn-jwt/{service}/acme/status", token=self.admin)

    async def test_faults(self) -> None:
        """Whatever a provider does wrong, who needs its keys is put off in time, and nobody else notices.

        That is: a login with keys that never came is 503 within the deadline, and status says why in words; logins with keys
        that came before succeed, even while unknown key ids ask for newer ones, which is 503 too; another authenticator,
        whose provider changes its key meanwhile, learns the new one. When the fault is over, so is all that it caused.
        """
        await self.login("known", 200)
        await self.login("other", 200)
        for turn, fault in enumerate(faults(self.provider)):
            self.provider.answering = fault.answering
            self.provider.certificate = fault.certificate or self.provider.sound
            await self._fault(fault, f"k{turn % 2 + 2}")
        self.provider.answering, self.provider.certificate = _publishes, self.provider.sound
        await self.login("fresh", 200)
        self.provider.document = jwks(jwk("k2"))
        await self.login("known", 200, "k2")
        self.assertEqual((await self.status("fresh")).json()["status"], "ok")
        self.assertEqual(self.provider.followed, 0, "a redirect was followed")
        self.assertNotIn("Traceback", self.process.said)

    async def _fault(self, fault: Fault, new: str) -> None:
        """One fault; meanwhile the healthy provider changes to a ``new`` key."""
        await self.tell("fresh", "jwks-uri", f"{self.provider.uri}/{fault.name}")
        before = self.provider.met
        asking = [Deferred.fromCoroutine(self.login("fresh", 503)), Deferred.fromCoroutine(self._forged(fault))]
        over = gatherResults(asking, True)
        while self.provider.met < before + len(asking) and not over.called:
            await deferLater(reactor, 0.01)
        looking = Deferred.fromCoroutine(self.status("fresh"))
        self.healthy.document = jwks(jwk(new))
        meanwhile = 0
        while True:
            await self.login("other", 200, new)
            await self.login("known", 200)
            meanwhile += not over.called
            if over.called or not fault.lasting:
                break
            await deferLater(reactor, 0.2)
        for spent in await over:
            self.assertLess(spent, BOUND, f"{fault.name}: a refusal took {spent:.1f} seconds")
        if fault.lasting:
            self.assertGreater(meanwhile, 0, f"{fault.name}: nobody logged in while the provider was being asked")
        await self._told(fault, await looking)
        self.assertLess(self.provider.sent, SENT_LIMIT, f"{fault.name}: more was read than an answer may have")

    async def _forged(self, fault: Fault) -> float:
        """Have ``known`` want newer keys."""
        return await self.login("known", 503, kid=f"forged-{fault.name}")

    async def _told(self, fault: Fault, fresh: Answer) -> None:
        """The status of ``fresh``, and that of ``known``, name the cause.

        On a machine that paused for as long as the deadline the provider was late, whatever else it did: it is asked again.
        """
        while LATE in fresh.body.decode() and not fault.lasting:
            fresh = await self.status("fresh")
        self.assertEqual(fresh.status, 500, fault.name)
        [problem] = fresh.json()["problems"]
        self.assertIn(fault.cause, problem["what"], fault.name)
        self.assertIn(self.provider.uri, problem["what"], fault.name)
        self.assertIn("refresh the keys", problem["remedy"])
        known = await self.status("known")
        while LATE in known.body.decode() and not fault.lasting:
            await self._forged(fault)
            known = await self.status("known")
        self.assertEqual((known.status, known.json()["keys"]["ids"]), (500, ["k1"]), fault.name)
        self.assertIn(fault.cause, known.json()["keys"]["last_fetch"]["outcome"], fault.name)
