"""Tests of ``svc.workload.google``, and of logging in with its tokens."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Request

from svc.workload.evidence import GoogleIdentity
from svc.workload.exchange import Exchange
from svc.workload.faults import BadAddress, NoIdentity, PlatformUnavailable
from svc.workload.google import MARGIN, GoogleMetadata, annotations_of
from svc.workload.platform_service import ANSWER_LIMIT, PlatformService
from tests.signing import base64url
from tests.walls import Wall
from tests.workload.wire import NOW, Wire, clock

AUDIENCE = "svc/acme/host/google/billing"


def made(audience: str, ends_at: float, **claims: object) -> str:
    """An identity token, of which nobody verifies the signature here."""
    payload = json.dumps({"aud": audience, "exp": ends_at, "sub": "42", **claims})
    return f"{base64url(b'{}')}.{base64url(payload.encode())}.{base64url(b'signature')}"


class MetadataServer(Resource):
    """Google's metadata server: it answers with ``answers`` first, each a status and a body."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Request] = []
        self.answers: list[tuple[int, bytes]] = []
        self.flavor: str | None = "Google"
        self.ends_at = NOW + 3600

    def render(self, request: Request) -> bytes:
        """Answer."""
        self.asked.append(request)
        if self.flavor is not None:
            request.setHeader("Metadata-Flavor", self.flavor)
        status, body = self.answers.pop(0) if self.answers else (200, None)
        request.setResponseCode(status)
        request.setHeader("Content-Type", "text/plain")
        return made(request.args[b"audience"][0].decode(), self.ends_at).encode() if body is None else body


class GoogleCase(SynchronousTestCase):
    """A workload on Google Cloud."""

    def setUp(self) -> None:
        """Make the metadata server."""
        self.clock = clock()
        self.server = MetadataServer()
        self.wire = Wire(self.server)
        self.source = self.made()

    def made(self, surroundings: dict[str, str] | None = None, **more: Any) -> GoogleMetadata:
        """A source of tokens; pauses are the shortest."""
        http: Any = self.wire
        service = PlatformService(Exchange(http, self.clock, ANSWER_LIMIT), chance=lambda: 0.0)
        return GoogleMetadata(service, surroundings or {}, **{"wall": Wall(self.clock), **more})

    def begin(self, audience: str = AUDIENCE) -> Deferred[str]:
        """Begin to get a token."""
        return Deferred.fromCoroutine(self.source.token(audience))

    def refusal(self, kind: type[Exception]) -> str:
        """What is said where there is none, at once."""
        return str(self.failureResultOf(self.begin(), kind).value)


class GoogleMetadataTests(GoogleCase):
    """Where tokens come from."""

    def test_question(self) -> None:
        """The default service account's token is asked for, for the audience, in the format ``full`` (GCP-9)."""
        self.assertEqual(self.successResultOf(self.begin()), made(AUDIENCE, NOW + 3600))
        [request] = self.server.asked
        self.assertEqual(
            request.uri,
            b"/computeMetadata/v1/instance/service-accounts/default/identity"
            b"?audience=svc%2Facme%2Fhost%2Fgoogle%2Fbilling&format=full",
        )
        self.assertEqual(request.getHeader("metadata-flavor"), "Google")
        self.assertEqual(request.getHeader("host"), "metadata.google.internal")

    def test_other_places(self) -> None:
        """The environment names another host, a caller another address or service account (GCP-9)."""
        told = {"GCE_METADATA_HOST": "169.254.169.254:8080"}
        for surroundings, more, place in (
            (told, {}, "169.254.169.254:8080"),
            (told, {"base_url": "http://other.example"}, "other.example"),
        ):
            self.source = self.made(surroundings, **more)
            self.successResultOf(self.begin())
            self.assertEqual(self.server.asked[-1].getHeader("host"), place)
        self.source = self.made(service_account="a@b.example/../x")
        self.successResultOf(self.begin())
        self.assertIn(b"/a@b.example%2F..%2Fx/identity", self.server.asked[-1].uri)
        for surroundings in ({"GCE_METADATA_HOST": "me:key@x"}, {"GCE_METADATA_HOST": "x?y"}):
            self.assertRaises(BadAddress, self.made, surroundings)

    def test_kept(self) -> None:
        """A token is kept for its audience until five minutes before it expires (GCP-9)."""
        for _ in range(3):
            self.successResultOf(self.begin())
        self.successResultOf(self.begin("other"))
        self.assertEqual(len(self.server.asked), 2)
        self.clock.advance(3600 - MARGIN)
        self.server.ends_at += 3600
        self.assertEqual(self.successResultOf(self.begin()), made(AUDIENCE, NOW + 7200))
        for number in range(250):
            self.successResultOf(self.begin(str(number)))

    def test_again(self) -> None:
        """It is asked again while it is busy or silent, and given up after five tries (GCP-10)."""
        self.server.answers = [(503, b""), (429, b"")]
        self.wire.faults = [ConnectError()]
        asked = self.begin()
        for pause in (0.5, 1.0, 2.0):
            self.assertNoResult(asked)
            self.clock.advance(pause)
            self.wire.flush()
        self.successResultOf(asked)
        self.server.answers = [(500, b"")] * 5
        asked = self.begin("other")
        for pause in (0.5, 1.0, 2.0, 4.0):
            self.assertNoResult(asked)
            self.clock.advance(pause)
            self.wire.flush()
        said = str(self.failureResultOf(asked, PlatformUnavailable).value)
        self.assertIn("5 tries, the last: status 500", said)

    def test_no_identity(self) -> None:
        """What is final says what to do, and no token is in it (GCP-9)."""
        for answer, words in (
            ((404, b"no account"), "status 404: no account"),
            ((403, b""), "status 403"),
            ((200, b"<html>"), "no JWT"),
            ((200, b"\xff"), "is no identity token"),
            ((200, f"x.{base64url(b'{}')}.y".encode()), "is no identity token"),
            ((200, made(AUDIENCE, NOW).encode()), "has expired"),
        ):
            self.server.answers = [answer]
            self.assertIn(words, self.refusal(NoIdentity))
        self.server.flavor = None
        self.assertIn("no metadata server of Google", self.refusal(NoIdentity))

    def test_annotations(self) -> None:
        """What a token says of the workload is what its host's annotations must say (GCP-7)."""
        machine = {"compute_engine": {"project_id": "shop", "instance_name": "web-1", "zone": "x"}}
        token = made(AUDIENCE, NOW, email="a@b.example", google=machine)
        all_four = {"service-account-id": "42", "service-account-email": "a@b.example", "project-id": "shop"}
        self.assertEqual(annotations_of(token), {**all_four, "instance-name": "web-1"})
        for odd in ({}, {"google": 1, "email": 1}, {"google": {"compute_engine": []}, "email": ""}):
            self.assertEqual(annotations_of(made(AUDIENCE, NOW, **odd)), {"service-account-id": "42"})


class EvidenceTests(GoogleCase):
    """The login."""

    def test_login(self) -> None:
        """The audience names the account and the host, with the prefix of the server's dialect, and the path none
        (GCP-2, GCP-4).
        """
        for prefix in ("svc", "conjur"):
            evidence = GoogleIdentity("host/google/billing", self.source, prefix)
            login = self.successResultOf(Deferred.fromCoroutine(evidence.login("acme")))
            self.assertEqual(login.segments, ("authn-gcp", "acme", "authenticate"))
            token = made(f"{prefix}/acme/host/google/billing", NOW + 3600)
            self.assertEqual(
                (login.body, login.content_type), (f"jwt={token}".encode(), "application/x-www-form-urlencoded")
            )
            self.assertNotIn(token, repr(login) + repr(evidence) + evidence.what)
