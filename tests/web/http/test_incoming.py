"""A body on its way in is kept within its limit, and only while somebody wants it."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import TooLarge
from svc.web.http.request import IncomingRequest
from svc.web.http.request_reader import Fields


def incoming(declared: int = 0, limit: int = 10, headers: Fields | None = None) -> IncomingRequest:
    """A request whose body is to come."""
    return IncomingRequest("POST", "/", headers or {}, "192.0.2.1", "r1", declared, limit)


def wait(request: IncomingRequest) -> Deferred[bytes]:
    """Ask for the body."""
    return Deferred.fromCoroutine(request.read_body())


class IncomingTests(SynchronousTestCase):
    """``IncomingRequest``."""

    def test_body(self) -> None:
        """The body comes when it is complete, whole."""
        request = incoming()
        asked = wait(request)
        request.append_body(b"12345")
        request.append_body(b"67890")
        self.assertNoResult(asked)
        request.end_body()
        self.assertEqual(self.successResultOf(asked), b"1234567890")
        self.assertEqual(self.successResultOf(wait(request)), b"1234567890")

    def test_declared_too_large(self) -> None:
        """A declared length over the limit is refused before a byte has come (LIM-2)."""
        self.assertEqual(self.failureResultOf(wait(incoming(11)), TooLarge).value.limit, 10)

    def test_chunked_too_large(self) -> None:
        """A body without a declared length is refused with the byte that exceeds the limit (LIM-2)."""
        request = incoming()
        asked = wait(request)
        request.append_body(b"1234567890")
        self.assertNoResult(asked)
        request.append_body(b"1")
        self.failureResultOf(asked, TooLarge)
        request.append_body(b"2" * 100)
        self.assertGreater(request.size, request.limit)

    def test_too_large_before_anyone_asks(self) -> None:
        """A body that has exceeded the limit is refused whenever it is asked for."""
        request = incoming()
        request.append_body(b"12345678901")
        request.end_body()
        self.failureResultOf(wait(request), TooLarge)

    def test_limit_of_the_route(self) -> None:
        """A route may take more than what is usual."""
        request = incoming(11)
        request.limit = 20
        self.assertLessEqual(request.size, request.limit)
        request.append_body(b"12345678901")
        request.end_body()
        self.assertEqual(self.successResultOf(wait(request)), b"12345678901")

    def test_discard(self) -> None:
        """What nobody wants is dropped, and still counted."""
        request = incoming()
        request.discard_body()
        request.append_body(b"12345678901")
        self.assertGreater(request.size, request.limit)

    def test_headers(self) -> None:
        """Header lines of one name are one value; bytes that are no text are read as Latin-1."""
        headers = {b"x-some": [b"a", b"\xe9"]}
        request = incoming(headers=headers)
        self.assertEqual(request.header(b"X-Some"), "a, é")
        self.assertIsNone(request.header(b"x-other"))

    def test_secret_in_no_repr(self) -> None:
        """The body doesn't show."""
        request = incoming()
        request.append_body(b"hunter2")
        self.assertNotIn("hunter2", repr(request))
