"""Tests of ``svc.workload.metadata``."""

from __future__ import annotations

import base64
import errno
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Request

from svc.cli.platform import APP_SERVICE_PATH, IDENTITY_HEADER
from svc.workload.exchange import Exchange
from svc.workload.faults import BadAddress, NoIdentity, PlatformUnavailable, TooLong
from svc.workload.machine import Machine
from svc.workload.metadata import ANSWER_LIMIT, MARGIN, IdentityToken, Metadata
from tests.cloudplatform import MACHINE, SHARED, SILENCE, Unruly
from tests.walls import Wall
from tests.workload.wire import NOW, Wire, clock

BASE = "http://platform.example"

APP_SERVICE = {"IDENTITY_ENDPOINT": f"{BASE}{APP_SERVICE_PATH}", "IDENTITY_HEADER": IDENTITY_HEADER}


def signed(claims: object) -> str:
    """Return a token with these claims, whose signature nobody looks at."""
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.x"


class Told(Resource):
    """A metadata service that tells what the test wants."""

    isLeaf = True

    def __init__(self, document: object, status: int = 200) -> None:
        super().__init__()
        self.document = document
        self.status = status
        self.asked: list[Request] = []

    def render(self, request: Request) -> bytes:
        """Tell it."""
        self.asked.append(request)
        request.setResponseCode(self.status)
        return self.document if isinstance(self.document, bytes) else json.dumps(self.document).encode()


class MetadataCase(SynchronousTestCase):
    """A machine on a platform."""

    def setUp(self) -> None:
        """Make the platform."""
        self.clock = clock()
        self.wall = Wall(self.clock)
        self.platform = Unruly(self.wall)
        self.wire = Wire(self.platform.build_app().resource())

    def source(self, surroundings: Mapping[str, str] | None = None, wire: Wire | None = None, **more: Any) -> Metadata:
        """The machine's source of tokens; pauses are the shortest."""
        http: Any = wire or self.wire
        exchange = Exchange(http, self.clock, ANSWER_LIMIT)
        return Metadata(exchange, surroundings or {}, **{"base_url": BASE, "chance": lambda: 0.0, "wall": self.wall, **more})

    def begin(self, source: Metadata) -> Deferred[IdentityToken]:
        """Begin to get a token."""
        return Deferred.fromCoroutine(source.identity_token())

    def token(self, source: Metadata) -> IdentityToken:
        """A token that is there at once."""
        return self.successResultOf(self.begin(source))

    def refusal(self, source: Metadata, kind: type[Exception]) -> str:
        """What is said where there is none, at once."""
        return str(self.failureResultOf(self.begin(source), kind).value)


class FormTests(MetadataCase):
    """What is asked, and what is made of the answer."""

    def test_virtual_machines(self) -> None:
        """A machine asks for its own identity with the header, the version and the resource, encoded, and nothing else
        (NET-25).
        """
        token = self.token(self.source(resource="api://svc?x=1&y=ü"))
        self.assertEqual(Machine.of(token.text).object_id, MACHINE.object_id)
        self.assertEqual(Machine.of(token.text).audience, "api://svc?x=1&y=ü")
        self.assertEqual(token.ends_at, NOW + 3600)
        [request] = self.platform.asked
        self.assertEqual(request.getHeader("metadata"), "true")
        self.assertEqual(
            request.uri,
            b"/metadata/identity/oauth2/token?api-version=2018-02-01&resource=api%3A%2F%2Fsvc%3Fx%3D1%26y%3D%C3%BC",
        )

    def test_user_assigned(self) -> None:
        """A user-assigned identity is asked for by its client id, in both variants (NET-25)."""
        for surroundings in ({}, APP_SERVICE):
            token = self.token(self.source(surroundings, client_id=SHARED.client_id))
            self.assertEqual(Machine.of(token.text).user_assigned_identity, "shop-backend")

    def test_app_services(self) -> None:
        """Where the environment names an endpoint, that is asked, with the header that it gives (NET-25)."""
        token = self.token(self.source(APP_SERVICE))
        self.assertEqual(token.ends_at, NOW + 3600)
        [request] = self.platform.asked
        self.assertEqual(request.path.decode(), APP_SERVICE_PATH)
        self.assertEqual(request.args[b"api-version"], [b"2019-08-01"])
        self.assertEqual(request.getHeader("x-identity-header"), IDENTITY_HEADER)
        self.assertIsNone(request.getHeader("metadata"))

    def test_older_app_services(self) -> None:
        """The variables of older app services lead to their endpoint, with its header, version and parameter (NET-25)."""
        older = {"MSI_ENDPOINT": APP_SERVICE["IDENTITY_ENDPOINT"], "MSI_SECRET": IDENTITY_HEADER}
        told = Told({"access_token": "t", "expires_in": "3599.0"})
        token = self.token(self.source(older, Wire(told), client_id="c"))
        self.assertEqual(token.ends_at, NOW + 3599)
        [request] = told.asked
        self.assertEqual(request.args[b"api-version"], [b"2017-09-01"])
        self.assertEqual(request.args[b"clientid"], [b"c"])
        self.assertEqual(request.getHeader("secret"), IDENTITY_HEADER)

    def test_unserved_surroundings(self) -> None:
        """In surroundings that aren't served nothing is asked, and the fault names them and what to do (NET-28)."""
        endpoint = APP_SERVICE["IDENTITY_ENDPOINT"]
        for surroundings, found, remedy in (
            ({"IDENTITY_ENDPOINT": endpoint}, "IDENTITY_ENDPOINT without", "whole environment"),
            ({"IDENTITY_HEADER": "h"}, "IDENTITY_HEADER without IDENTITY_ENDPOINT", "whole environment"),
            ({"IDENTITY_HEADER": "h", "IMDS_ENDPOINT": BASE}, "IDENTITY_HEADER without", "whole environment"),
            ({"MSI_SECRET": "s"}, "MSI_SECRET without MSI_ENDPOINT", "whole environment"),
            ({**APP_SERVICE, "IDENTITY_SERVER_THUMBPRINT": "ab"}, "Service Fabric", "svc authenticate jwt"),
            ({"MSI_ENDPOINT": endpoint}, "Cloud Shell", "svc login"),
            ({"IMDS_ENDPOINT": BASE}, "IMDS_ENDPOINT without IDENTITY_ENDPOINT", "whole environment"),
            ({"IDENTITY_SERVER_THUMBPRINT": "ab"}, "IDENTITY_SERVER_THUMBPRINT without", "whole environment"),
            ({"AZURE_POD_IDENTITY_AUTHORITY_HOST": BASE}, "AZURE_POD_IDENTITY_AUTHORITY_HOST", "with --metadata-url"),
            ({"AZURE_FEDERATED_TOKEN_FILE": "/var/token"}, "workload identity", "--token-file /var/token"),
        ):
            refusal = self.refusal(self.source(surroundings), NoIdentity)
            self.assertIn(found, refusal)
            self.assertIn(remedy, refusal)
        self.assertEqual(self.platform.asked, [])

    def test_ends(self) -> None:
        """The end of a token is told as a moment or as the rest of its life, in digits as a text or as a number (NET-25)."""
        for told, ends_at in (
            ({"expires_on": str(int(NOW) + 50)}, NOW + 50),
            ({"expires_on": int(NOW) + 50}, NOW + 50),
            ({"expires_in": "50"}, NOW + 50),
            ({"expires_in": 50, "expires_on": str(int(NOW) + 60)}, NOW + 60),
            ({"expires_in": 50, "expires_on": "1/1/2027 12:00:00 AM +00:00"}, NOW + 50),
            ({"expires_on": f"{int(NOW) + 50}.5"}, NOW + 50.5),
            ({"expires_in": "3599.0"}, NOW + 3599),
        ):
            source = self.source(wire=Wire(Told({"access_token": "t", **told})))
            self.assertEqual(self.token(source), IdentityToken("t", ends_at))

    def test_own_end(self) -> None:
        """Where the platform writes a date, or nothing, the token's own end counts (NET-25)."""
        text = signed({"exp": int(NOW) + 70})
        for told in (
            {},
            {"expires_on": None},
            {"expires_on": "11/28/2026 1:05:12 AM +00:00"},
            {"expires_on": "11/28/2026 15:18:31 +00:00"},
            {"expires_on": "11/28/2026 00:00:00 PM +00:00", "expires_in": ""},
            {"expires_on": "2026-11-28T01:05:12Z"},
        ):
            source = self.source(wire=Wire(Told({"access_token": text, **told})))
            self.assertEqual(self.token(source), IdentityToken(text, NOW + 70))
        for end in (True, -1, 0, "5", 1e300, None):
            source = self.source(wire=Wire(Told({"access_token": signed({"exp": end})})))
            self.refusal(source, NoIdentity)

    def test_bad_answers(self) -> None:
        """An answer that is no token with an end, or whose token has ended, is a fault that says so."""
        answers: tuple[object, ...] = (b"", b"<html>", b"\xff", [], {}, {"access_token": "t"}, b"[" * 100_000)
        answers += tuple({"access_token": text, "expires_in": 50} for text in (None, 5, "\ud800"))
        for answer in (*answers, {"access_token": "t", "expires_on": "soon"}):
            self.assertIn("is no identity token", self.refusal(self.source(wire=Wire(Told(answer))), NoIdentity))
        ends: tuple[dict[str, object], ...] = ({"expires_on": str(int(NOW))}, {"expires_in": 0})
        for told in ends:
            source = self.source(wire=Wire(Told({"access_token": "t", **told})))
            self.assertIn("has expired", self.refusal(source, NoIdentity))

    def test_bad_addresses(self) -> None:
        """What the environment or the caller names must be an address; the fault says which of them isn't."""
        for url in ("", "here", "gopher://platform.example", "http://a_b/", "http://[x", "http://me:key@platform.example"):
            said = str(self.assertRaises(BadAddress, self.source, base_url=url))
            self.assertIn("the address of the metadata service must", said)
        surroundings = {**APP_SERVICE, "IDENTITY_ENDPOINT": "http://me:key@platform.example/"}
        said = str(self.assertRaises(BadAddress, self.source, surroundings))
        self.assertIn("IDENTITY_ENDPOINT must", said)
        self.assertNotIn("key", said)

    def test_refusals_that_nest(self) -> None:
        """A refusal whose body can't be read is one all the same."""
        source = self.source(wire=Wire(Told(b"[" * 100_000, 400)))
        self.assertIn("identity not found on this machine (status 400)", self.refusal(source, NoIdentity))

    def test_long_answers(self) -> None:
        """Of an answer that doesn't end, no more is taken than any token has."""
        self.assertIn("larger", self.refusal(self.source(wire=Wire(Told(b"x" * (ANSWER_LIMIT + 1)))), TooLong))

    def test_nothing_shows_a_token(self) -> None:
        """Neither a token nor the header of an app service is in what a source or a token looks like."""
        source = self.source(APP_SERVICE)
        token = self.token(source)
        self.assertNotIn(token.text, repr(token))
        self.assertNotIn(IDENTITY_HEADER, f"{source!r} {vars(source)!r}")


class ArcTests(MetadataCase):
    """The agent of a machine that Arc connects, which has the process prove that it may read a file."""

    def setUp(self) -> None:
        """Make the folder of the agent's files."""
        super().setUp()
        self.folder = Path(self.mktemp()).resolve()
        self.folder.mkdir()

    def ask(self, realm: str | None) -> tuple[Deferred[IdentityToken], Agent]:
        """Ask an agent that names a file."""
        agent = Agent(realm)
        surroundings = {"IDENTITY_ENDPOINT": f"{BASE}/metadata/identity/oauth2/token", "IMDS_ENDPOINT": BASE}
        return self.begin(self.source(surroundings, Wire(agent), keys=self.folder)), agent

    def test_proof(self) -> None:
        """The content of the file is sent back once, and the token comes (NET-28)."""
        (self.folder / "a.key").write_text("the-content")
        asked, agent = self.ask(f"Basic realm={self.folder}/a.key")
        self.assertEqual(self.successResultOf(asked).text, "t")
        self.assertEqual(agent.shown, [None, "Basic the-content"])
        self.assertEqual(agent.versions, [b"2020-06-01"] * 2)

    def test_forms_of_challenges(self) -> None:
        """The scheme and the names of a challenge are without case, and it may have other parameters (NET-28)."""
        (self.folder / "a.key").write_text("the-content")
        file = f"{self.folder}/a.key"
        for challenge in (
            f'Basic realm="{file}"',
            f"basic Realm={file}",
            f'BASIC REALM = "{file}", charset="UTF-8"',
            f'Basic realm={file}, charset="UTF-8"',
            f"Basic charset=UTF-8 ,realm={file}",
        ):
            asked, agent = self.ask(challenge)
            self.assertEqual(self.successResultOf(asked).text, "t")
            self.assertEqual(agent.shown, [None, "Basic the-content"])
        for challenge in (
            f"Basic realm={file}, realm={file}",
            f"Basic realm={file}, realm=/etc/x.key",
            f"Basic realm={file} charset=UTF-8",
            f'Basic x="realm={file}"',
            f"Basicrealm={file}",
            f"Negotiate realm={file}",
        ):
            asked, agent = self.ask(challenge)
            self.failureResultOf(asked, NoIdentity)
            self.assertEqual(agent.shown, [None], challenge)

    def test_other_files(self) -> None:
        """No other file is read: none elsewhere, of another ending, too large, or a link (NET-28)."""
        (self.folder / "a.txt").write_text("secret")
        (self.folder / "large.key").write_text("x" * 4097)
        (self.folder / "lines.key").write_text("x\ny")
        (self.folder / "link.key").symlink_to(self.folder / "a.txt")
        (self.folder / "within").mkdir()
        (self.folder / "within" / "b.key").write_text("secret")
        os.mkfifo(self.folder / "pipe.key")
        names = ("a.txt", "large.key", "lines.key", "link.key", "within/b.key", "missing.key", "pipe.key", "within/../a.txt")
        challenges = (f"Basic realm={self.folder}/{name}" for name in names)
        for challenge in (*challenges, "Basic realm=/etc/passwd.key", "Basic realm=", "Bearer x", None):
            asked, agent = self.ask(challenge)
            failure = self.failureResultOf(asked, NoIdentity)
            self.assertEqual(agent.shown, [None], challenge)
            self.assertNotIn("himds", str(failure.value))

    def test_rights(self) -> None:
        """Where the rights to the file are missing, and there alone, the fault says who may read it (NET-28)."""
        for number in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EIO):

            def refuse(path: Path, *_: int, number: int = number) -> int:
                raise OSError(number, os.strerror(number), str(path))

            patch = self.patch(os, "open", refuse)
            asked, _ = self.ask(f"Basic realm={self.folder}/a.key")
            patch.restore()
            failure = self.failureResultOf(asked, NoIdentity)
            rights = number in {errno.EACCES, errno.EPERM}
            self.assertEqual("as a member of the group himds" in str(failure.value), rights, number)


class Agent(Resource):
    """Arc's agent: refuses with a challenge, then answers."""

    isLeaf = True

    def __init__(self, challenge: str | None) -> None:
        super().__init__()
        self.challenge = challenge
        self.shown: list[str | None] = []
        self.versions: list[bytes] = []

    def render(self, request: Request) -> bytes:
        """Answer those that show something."""
        self.shown.append(request.getHeader("authorization"))
        self.versions += request.args[b"api-version"]
        if self.shown[-1] is not None:
            return b'{"access_token": "t", "expires_in": 50}'
        request.setResponseCode(401)
        if self.challenge is not None:
            request.setHeader("www-authenticate", self.challenge)
        return b""


class CacheTests(MetadataCase):
    """How long a token serves."""

    def test_kept(self) -> None:
        """A token is asked for once, until shortly before it ends; an expired one is never given out (NET-26)."""
        source = self.source()
        first = self.token(source)
        self.clock.advance(3600 - MARGIN - 1)
        self.assertIs(self.token(source), first)
        self.assertEqual(self.wire.asked, 1)
        self.clock.advance(1)
        self.assertGreater(self.token(source).ends_at, first.ends_at)
        self.assertEqual(self.wire.asked, 2)

    def test_clock_set(self) -> None:
        """The platform tells the end of a token as a time of day: once the machine's clock is past it, there is another."""
        source = self.source()
        first = self.token(source)
        self.wall.ahead = -3600.0
        self.assertIs(self.token(source), first)
        self.wall.ahead = 3600.0
        self.assertIsNot(self.token(source), first)

    def test_short_lives(self) -> None:
        """A token whose whole life is short is given out, and asked for each time."""
        self.platform.lifetime = 60
        source = self.source()
        self.assertEqual(self.token(source).ends_at, NOW + 60)
        self.token(source)
        self.assertEqual(self.wire.asked, 2)

    def test_no_fallback(self) -> None:
        """While the platform is away, a token that is nearly over isn't given out instead of the fault."""
        source = self.source(deadline=1.0)
        self.token(source)
        self.clock.advance(4000)
        self.wire.faults = [ConnectError()] * 2
        waiting = self.begin(source)
        self.clock.pump([0.5, 2.0])
        self.failureResultOf(waiting, PlatformUnavailable)

    def test_shared(self) -> None:
        """Those who ask at once share one request; who leaves takes nothing from the others."""
        self.platform.troubles = [429, 429]
        source = self.source()
        waiting = [self.begin(source) for _ in range(3)]
        waiting[0].cancel()
        self.failureResultOf(waiting[0])
        self.clock.pump([0.0, 2.0])
        first, second = (self.successResultOf(one) for one in waiting[1:])
        self.assertIs(first, second)
        self.assertEqual(self.wire.asked, 3)

    def test_shared_faults(self) -> None:
        """They share a fault, too, and the next to come asks again."""
        self.platform.troubles = [400]
        source = self.source()
        self.platform.troubles = [429, 400]
        waiting = [self.begin(source) for _ in range(2)]
        self.clock.advance(0)
        for one in waiting:
            self.failureResultOf(one, NoIdentity)
        self.token(source)


class RetryTests(MetadataCase):
    """When it asks again (the platform's retry guidance)."""

    def moments(self, troubles: list[int], **more: Any) -> list[float]:
        """The seconds at which it asks until it has a token."""
        self.platform.troubles = troubles
        start, asked, moments = self.clock.seconds(), self.wire.asked, [0.0]
        waiting = self.begin(self.source(**more))
        while not waiting.called:
            before = self.wire.asked
            self.clock.advance(0.5)
            moments += [self.clock.seconds() - start] * (self.wire.asked - before)
        self.successResultOf(waiting)
        self.assertEqual(len(moments), self.wire.asked - asked)
        return moments

    def test_throttled(self) -> None:
        """Throttling is waited out: 0, 2, 6, 14 and 30 seconds; so is an endpoint that isn't there (NET-26)."""
        for status in (429, 404):
            self.assertEqual(self.moments([status] * 5), [0, 0.5, 2.5, 8.5, 22.5, 52.5], status)

    def test_faults_of_the_service(self) -> None:
        """After a fault of the service at least a second passes (NET-26)."""
        for status in (500, 503, 504):
            self.assertEqual(self.moments([status] * 2), [0, 1, 3], status)

    def test_updates(self) -> None:
        """A service that is being updated is asked for more than seventy seconds (NET-26)."""
        self.assertEqual(self.moments([410] * 8), [0, 10, 20, 30, 40, 50, 60, 70, 80])

    def test_refused_connections(self) -> None:
        """A connection that is refused is tried again."""
        self.wire.faults = [ConnectError()] * 2
        self.assertEqual(self.moments([]), [0, 0.5, 2.5])

    def test_silence(self) -> None:
        """A try without an answer ends after its own time, and another follows."""
        self.assertEqual(self.moments([SILENCE], try_deadline=3.0), [0, 3])

    def test_jitter(self) -> None:
        """Pauses are up to a fifth longer, by chance (NET-26)."""
        self.assertEqual(self.moments([429] * 3, chance=lambda: 0.99), [0, 0.5, 3, 10.5])

    def test_no_end(self) -> None:
        """After the last try, and at the end of its time, it gives up, and says what it last heard and what to look at."""
        for troubles, tries in (([429] * 9, 6), ([410] * 20, 9)):
            self.platform.troubles = troubles
            waiting = self.begin(self.source(deadline=math.inf))
            self.clock.pump([1] * 200)
            said = str(self.failureResultOf(waiting, PlatformUnavailable).value)
            self.assertIn(f"{tries} tries", said)
            self.assertIn(f"status {troubles[0]}: as the test   wants", said)
            self.assertIn("is this a machine of the platform", said)

    def test_deadline(self) -> None:
        """The deadline counts for all tries together: the last is cut short by it, and no pause reaches beyond it."""
        for deadline, tries, moment in ((7.0, 2, 7.0), (11.5, 2, 10.0)):
            self.platform.troubles = [SILENCE] * 9
            waiting = self.begin(self.source(deadline=deadline, try_deadline=5.0))
            self.clock.pump([0.5] * int(moment * 2 - 1))
            self.assertNoResult(waiting)
            self.clock.advance(0.5)
            said = str(self.failureResultOf(waiting, PlatformUnavailable).value)
            self.assertIn(f"within {deadline:g} s and {tries} tries", said)

    def test_not_retried(self) -> None:
        """What won't change isn't asked for again, and the fault says what to do (NET-26)."""
        for status, client_id, told in (
            (400, None, "identity not found on this machine (status 400: as the test   wants): assign a system-assigned"),
            (400, "ab-cd", "identity ab-cd not found on this machine"),
            (401, None, f"the metadata service at {BASE} refuses this process (status 401: as the test"),
            (403, None, "not through a proxy"),
            (403, None, "this may be no machine of that platform"),
            (302, None, "is no metadata service"),
            (405, None, "is no metadata service"),
        ):
            before = self.wire.asked
            self.platform.troubles = [status]
            self.assertIn(told, self.refusal(self.source(client_id=client_id), NoIdentity))
            self.assertEqual(self.wire.asked, before + 1, status)

    def test_unknown_resources(self) -> None:
        """A resource that the platform doesn't know is named as the cause, whichever identity is asked for (NET-26)."""
        for words in (
            b'{"error": "invalid_resource", "error_description": "AADSTS500011: The resource principal named api://x"}',
            b'{"statusCode": 400, "message": "AADSTS500011: The resource principal named api://x was not found"}',
        ):
            for client_id in (None, "ab-cd"):
                self.platform.troubles, self.platform.words = [400], words
                said = self.refusal(self.source(resource="api://x", client_id=client_id), NoIdentity)
                self.assertIn("no identity token for the resource api://x (status 400: AADSTS500011", said)
                self.assertIn("--resource", said)
                self.assertNotIn("assign", said)

    def test_unknown_identities(self) -> None:
        """An identity that the machine doesn't have is refused by its client id; so is a wrong header of an app service."""
        self.assertIn("Identity not found", self.refusal(self.source(client_id="none"), NoIdentity))
        self.assertIn("No Managed Identity", self.refusal(self.source(APP_SERVICE, client_id="none"), NoIdentity))
        wrong = {**APP_SERVICE, "IDENTITY_HEADER": "wrong"}
        self.assertIn("the environment that the platform gave", self.refusal(self.source(wrong), NoIdentity))
