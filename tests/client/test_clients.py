"""Tests of ``svc.client``: what both clients do alike; each test runs with either."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Generator
from typing import Any

import httpx

from svc.client import (
    BadAddress,
    BadAnswer,
    Client,
    Fault,
    Jwt,
    LoginRefused,
    NewVersions,
    NoEvidence,
    NoLongerThere,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    SecretFault,
    SecretValues,
    TooLong,
    Unavailable,
    Unexpected,
    Unreachable,
    Untrusted,
    ValueChanged,
)
from tests.client.small import KEY, LIMIT, EitherClient, OfAsyncio, OfThreads, Pieces, encoded, in_base64, token

HTML = {"content-type": "text/html"}
ATTACHED = {"content-disposition": "attachment", "x-request-id": "r-1"}
VALUES = {"a": b"\x00\xff", "b,c": b"two"}


def event(name: str, document: object, mark: str = "") -> bytes:
    """An event of a stream."""
    lines = [*([f"id: {mark}"] if mark else []), f"event: {name}", f"data: {json.dumps(document)}", "", ""]
    return "\n".join(lines).encode()


class BothClients(EitherClient):
    """What either does."""

    def test_one(self) -> None:
        """A value is read with a token, uncompressed, and little else is sent."""
        self.service.answers = [httpx.Response(200, content=b"\x00\xff")] * 2
        self.assertEqual(self.call("secret", "ci/key", 3, times=2), b"\x00\xff")
        self.assertEqual(self.service.asked(), ["GET /secrets/acme/variable/ci%2Fkey?version=3"] * 2)
        self.assertEqual(self.service.logins, 1)
        sent = dict(self.service.requests[0].headers)
        self.assertRegex(sent.pop("user-agent"), "^svc-client/[0-9.]+$")
        self.assertEqual(
            sent,
            {
                "host": "svc.example",
                "accept": "*/*",
                "accept-encoding": "identity",
                "authorization": f'Token token="{token(1)}"',
            },
        )

    def test_batches(self) -> None:
        """A batch is one request, with values, why there are none, or that nothing has changed (LIB-3, SEC-40)."""
        self.service.answers = [in_base64({"values": encoded(VALUES)}, etag='W/"1"')]
        self.assertEqual(self.call("batch", list(VALUES)), SecretValues(VALUES, {}, 'W/"1"'))
        request = self.service.requests[0]
        self.assertEqual(json.loads(request.content), {"variable_ids": ["acme:variable:a", "acme:variable:b,c"]})
        self.assertEqual((request.url.path, request.headers["accept-encoding"]), ("/secrets/batch", "base64"))
        self.service.answers = [httpx.Response(304)]
        self.assertEqual(self.call("batch", ["a"], tag='W/"1"'), SecretValues(tag='W/"1"', unchanged=True))
        self.assertEqual(self.service.requests[-1].headers["if-none-match"], 'W/"1"')
        errors = {"acme:variable:x": {"code": "not_found", "message": "it isn't there"}}
        self.service.answers = [in_base64({"values": encoded({"a": b"1"}), "errors": errors}, etag='W/"1"')]
        partial = self.call("batch", ["a", "x"], partial=True)
        self.assertEqual(partial, SecretValues({"a": b"1"}, {"x": SecretFault("not_found", "it isn't there")}))
        self.assertTrue(json.loads(self.service.requests[-1].content)["partial"])
        self.assertEqual(self.call("batch", []), SecretValues())
        self.assertNotIn("two", repr(SecretValues(VALUES)))

    def test_login_and_read(self) -> None:
        """Login and values come with one request, and the login serves on; what it can't take follows (LIB-4, SEC-43)."""
        self.service.answers = [in_base64({"token": token(9), "values": encoded({"a": b"1"})})]
        self.service.answers += [in_base64({"values": encoded({"b,c": b"two"})})]
        self.assertEqual(self.call("log_in_and_read", ["a", "b,c"]).values, {"a": b"1", "b,c": b"two"})
        self.assertEqual(
            self.service.asked(),
            ["POST /authn/acme/host%2Fshop/authenticate?secrets=acme%3Avariable%3Aa", "POST /secrets/batch"],
        )
        self.assertEqual(self.service.requests[0].content, b"the-api-key")
        self.assertEqual(self.service.requests[1].headers["authorization"], f'Token token="{token(9)}"')
        names = [f"n{number}" for number in range(150)]
        parts = names[:100], names[100:]
        answers = [encoded(dict.fromkeys(part, b"1")) for part in parts]
        self.service.answers = [
            in_base64({"token": token(9), "values": answers[0]}),
            in_base64({"values": answers[1]}),
        ]
        self.assertEqual(list(self.call("log_in_and_read", names, partial=True).values), names)
        self.assertIn("&partial=true", self.service.asked()[-2])
        self.assertEqual(self.service.logins, 0)
        for status, kind in ((401, LoginRefused), (403, NotPermitted), (404, NotFound)):
            self.service.answers = [httpx.Response(status)]
            self.fault(kind, "log_in_and_read", ["a"])

    def test_bad_answers(self) -> None:
        """What isn't what was asked for is a fault."""
        for method, document in (
            ("log_in_and_read", {"token": "e30=", "values": {}}),
            ("log_in_and_read", {"token": token(1), "values": {}}),
            ("log_in_and_read", []),
            ("batch", {"values": {"acme:variable:a": "?"}}),
        ):
            self.service.answers = [in_base64(document)]
            self.fault(BadAnswer, method, ["a"])
        for method, text in (("whoami", "[]"), ("whoami", "{"), ("resources", "{}")):
            self.service.answers = [httpx.Response(200, text=text)]
            self.fault(BadAnswer, method)
        self.service.answers = [httpx.Response(200, json={"values": {"acme:variable:a": "aGk="}})]
        self.assertIn("does a proxy on the way", str(self.fault(BadAnswer, "batch", ["a"])))

    def test_writing(self) -> None:
        """A value is set as it is, on a condition if there is one; against it, or without the privilege, it is a fault."""
        self.service.answers = [httpx.Response(201, headers={"etag": '"2-x"'})] * 3
        self.assertEqual(self.call("set_secret", "a", b"\x00"), '"2-x"')
        self.call("set_secret", "a", b"", if_match='"1-x"')
        self.call("set_secret", "a", b"", create_only=True)
        plain, match, create = self.service.requests
        self.assertEqual((plain.method, plain.url.path, plain.content), ("POST", "/secrets/acme/variable/a", b"\x00"))
        self.assertNotIn("if-match", plain.headers)
        self.assertEqual((match.headers["if-match"], create.headers["if-none-match"]), ('"1-x"', "*"))
        self.service.answers = [httpx.Response(412, headers={"etag": '"5-x"'})]
        self.assertEqual(self.fault(ValueChanged, "set_secret", "a", b"").tag, '"5-x"')
        self.service.answers = [httpx.Response(403)]
        self.assertIn("privilege update", str(self.fault(NotPermitted, "set_secret", "a", b"")))

    def test_what_is_set_once(self) -> None:
        """A value is sent again only when it can't have arrived, or was turned away; otherwise that is told (LIB-5)."""
        set_once = httpx.Response(201)
        turned_away = httpx.Response(503, headers={"retry-after": "2"})
        self.service.answers = [httpx.ConnectError("refused"), turned_away, set_once]
        self.call("set_secret", "a", b"1")
        self.assertEqual(self.slept, [0.25, 2.5])
        unknown = httpx.Response(503, json={"error": {"code": "outcome_unknown"}}, headers={"retry-after": "2"})
        for answer, kind, text in (
            (httpx.ReadError("broke off"), Unreachable, "broke off"),
            (unknown, Unexpected, "the change may or may not have been made"),
        ):
            self.service.answers = [answer, set_once]
            self.assertIn(text, str(self.fault(kind, "set_secret", "a", b"1")))
            self.assertEqual(len(self.service.answers), 1)

    def test_in_front(self) -> None:
        """An answer without the id of its request, a page and a redirect are not the service's, whatever their status: they
        are no secret, no refusal of a role or token, and what is in them is not shown (LIB-12).
        """
        html = {"content-type": "text/html"}
        calls: tuple[tuple[Any, ...], ...]
        calls = (("secret", "a"), ("secrets", ["a"]), ("log_in_and_read", ["a"]), ("whoami",), ("set_secret", "a", b"1"))
        for call in calls:
            changes = call[0] == "set_secret"
            for status in (200, 201, 204, 304, 302, 401, 403, 404, 412, 500, 503):
                for headers in (html, {**html, "x-request-id": "r-2"}):
                    to = {"location": "https://login.example/?hunter2"} if status == 302 else {}
                    self.service.answers = [httpx.Response(status, content=b"<html>hunter2", headers={**headers, **to})]
                    self.service.logins = 0
                    away = status == 503 and not changes
                    fault = self.fault(Unavailable if away else Unexpected, *call)
                    said = "redirects to https://login.example/ (" if to else "cannot serve now" if away else "answered"
                    self.assertIn(said, str(fault))
                    self.assertTrue(str(fault).startswith("something in front of https://svc.example "), fault)
                    self.assertFalse(fault.ours)
                    self.assertNotIn("hunter2", str(fault))
                    self.assertEqual(self.service.logins, 0 if call[0] == "log_in_and_read" else 1)
                    doubt = str(fault).count("; the change may or may not have been made")
                    self.assertEqual(doubt, int(changes and status in {200, 201, 204, 500, 503}), (status, str(fault)))
        self.service.answers = [httpx.Response(200, content=b"<html>", headers={**html, **ATTACHED})]
        self.assertEqual(self.call("secret", "a"), b"<html>")
        self.service.troubles = [httpx.Response(200, content=token(1).encode(), headers=html)]
        self.assertNotIn(token(1), str(self.fault(Unexpected, "secret", "a")))
        page = httpx.Response(503, content=b"<html>", headers={**html, "retry-after": "2"})
        self.service.answers = [page, httpx.Response(201)]
        self.assertTrue(self.fault(Unexpected, "set_secret", "a", b"1").uncertain)
        self.assertEqual((len(self.service.answers), self.slept), (1, []))

    def test_in_front_without_a_page(self) -> None:
        """An answer without the id of its request and without a code is not the service's either, though it is empty or
        has an ``error``; after a change, 408 and 500 and above leave it uncertain (LIB-12).
        """
        said, code = {"error": "gateway says no"}, {"error": {"code": "unavailable", "message": "later"}}
        for status in (401, 403, 404, 408, 412, 413, 500, 503):
            for answer in (httpx.Response(status), httpx.Response(status, json=said)):
                answer.headers["x-request-id"] = ""
                for call in (("secret", "a"), ("log_in_and_read", ["a"]), ("set_secret", "a", b"1")):
                    changes = call[0] == "set_secret"
                    self.service.answers = [answer]
                    fault = self.fault(Unavailable if status == 503 and not changes else Unexpected, *call)
                    self.assertTrue(str(fault).startswith("something in front of https://svc.example "), fault)
                    self.assertFalse(fault.ours)
                    self.assertNotIn("refused", str(fault))
                    doubt = "the change may or may not have been made" in str(fault)
                    self.assertEqual(doubt, changes and status in {408, 500, 503}, fault)
        self.service.answers = [httpx.Response(503, json=code, headers={"x-request-id": ""})]
        self.assertTrue(self.fault(Unavailable, "set_secret", "a", b"1").ours)

    def test_sentences(self) -> None:
        """A sentence has no mark before nothing, and one before what follows."""
        self.service.answers = [httpx.Response(404)]
        self.assertTrue(str(self.fault(NotFound, "secret", "a")).endswith("(status 404) (request r-1)"))
        late = Unexpected("https://svc.example", 502, "no response.", None, False, True)
        self.assertIn("no response; the change", str(late))

    def test_descriptions(self) -> None:
        """Who the caller is, and which resources it sees, come as the service tells them."""
        self.service.answers = [httpx.Response(200, json={"username": "host/shop"}), httpx.Response(200, json=[{"id": "x"}])]
        self.service.answers += [httpx.Response(200, json=[])]
        self.assertEqual(self.call("whoami"), {"username": "host/shop"})
        self.assertEqual(self.call("resources"), [{"id": "x"}])
        self.assertEqual(self.call("resources", "variable", search="db key", limit=5), [])
        self.assertEqual(
            self.service.asked(),
            ["GET /whoami", "GET /resources/acme", "GET /resources/acme/variable?search=db+key&limit=5"],
        )

    def test_tokens_that_end(self) -> None:
        """A token that the service takes no more is replaced, once (NET-24)."""
        self.service.refused = 1
        self.service.answers = [httpx.Response(200)]
        self.call("secret", "a")
        self.assertEqual(self.service.logins, 2)
        self.service.refused = 99
        self.fault(NotAuthenticated, "secret", "a")

    def test_tries(self) -> None:
        """What changes nothing is sent again, with pauses, when there is no answer or the service says when (NET-23)."""
        self.service.answers = [
            *(httpx.ReadError("broke"), httpx.RemoteProtocolError("odd")),
            *(httpx.Response(429, headers={"retry-after": "7"}), httpx.Response(200, content=b"x")),
        ]
        self.assertEqual(self.call("secret", "a"), b"x")
        self.assertEqual(self.slept, [0.25, 0.5, 8.0])
        self.service.answers = [httpx.ConnectError("refused")] * 9
        self.assertEqual(str(self.fault(Unreachable, "secret", "a")), "cannot reach https://svc.example: refused")
        self.assertEqual(len(self.service.answers), 5)

    def test_errors(self) -> None:
        """Each error of a connection is a fault with the service's name and nothing else of the address."""
        untrusted = httpx.ConnectError("x")
        untrusted.__cause__ = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong")
        for error, kind, told in (
            (untrusted, Untrusted, "it doesn't speak TLS there"),
            (httpx.ReadTimeout(""), Unreachable, "no answer from https://svc.example: there was no complete answer"),
            (httpx.ConnectTimeout(""), Unreachable, "cannot reach https://svc.example: no connection within 10 seconds"),
            (httpx.RemoteProtocolError("\x1b[31m odd"), Unreachable, "[31m odd"),
        ):
            self.service.answers = [error] * 4
            said = str(self.fault(kind, "secret", "a"))
            self.assertIn(told, said)
            self.assertNotIn("\x1b", said)

    def test_nothing_followed(self) -> None:
        """A redirect is an answer that nobody asked for, and a cookie isn't sent back (LIB-7)."""
        location = {"location": "https://elsewhere.example/", "set-cookie": "a=b"}
        self.service.answers = [httpx.Response(302, headers=location), httpx.Response(302)]
        for _ in range(2):
            self.fault(Unexpected, "secret", "a")
        self.assertEqual({request.url.host for request in self.service.requests}, {"svc.example"})
        self.assertFalse(any("cookie" in request.headers for request in self.service.requests))

    def test_dots(self) -> None:
        """An id of dots is asked for, and no other path (LIB-11)."""
        for variable, segment in (("..", "%2E%2E"), (".", "%2E"), ("../x", "..%2Fx"), ("a?b#c%2f", "a%3Fb%23c%252f")):
            self.service.answers = [httpx.Response(200), httpx.Response(201), httpx.Response(200, json=[])]
            self.call("secret", variable)
            self.call("set_secret", variable, b"1")
            self.call("resources", variable)
            path = f"/secrets/acme/variable/{segment}"
            asked = [f"GET {path}", f"POST {path}", f"GET /resources/acme/{segment}"]
            self.assertEqual(self.service.asked()[-3:], asked)

    def test_bad_headers(self) -> None:
        """What can't be a header isn't sent, and not repeated either: it may be a token (LIB-7)."""
        for text in ("s3cr3t\n", "s3cr3t\r\nX: y", "s3cr3t\0", "s3cr3t\u00e9"):
            fault = self.fault(NoEvidence, "set_secret", "a", b"1", if_match=text)
            self.assertIn("what should be sent as If-Match", str(fault))
            self.assertNotIn("s3cr3t", f"{fault!r} {fault} {fault.__context__!r}")
        self.assertEqual(self.service.requests, [])

    def test_long_answers(self) -> None:
        """Of an answer no more is taken than the limit, and a compressed one isn't unpacked."""
        body = Pieces([b"x" * LIMIT, b"y"])
        self.service.answers = [httpx.Response(200, stream=body)]
        self.assertIn("larger than 100000 bytes", str(self.fault(TooLong, "secret", "a")))
        self.assertTrue(body.closed)
        self.service.answers = [
            httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Pieces([b"\x1f\x8b", b"z"])),
        ]
        self.assertEqual(self.call("secret", "a"), b"\x1f\x8bz")

    def test_answers_that_break_off(self) -> None:
        """An answer that breaks off is asked for again."""
        self.service.answers = [
            httpx.Response(200, stream=Pieces([b"half", httpx.RemoteProtocolError("incomplete")])),
            httpx.Response(200, content=b"whole"),
        ]
        self.assertEqual(self.call("secret", "a"), b"whole")

    def test_versions(self) -> None:
        """A version that an answer tells is asked for by the next request (NET-27)."""
        self.service.answers = [httpx.Response(200, headers={"svc-version": "1.2.3"})] * 2
        self.call("secret", "a", times=2)
        self.assertEqual([r.headers.get("svc-at-least") for r in self.service.requests], [None, "1.2.3"])

    def test_addresses(self) -> None:
        """What is no address of a service is refused before anything is sent."""
        for url in ("svc.example", "ftp://svc.example", "https://me:hunter2@svc.example", "https://svc.example/?a"):
            said = str(self.assertRaises(BadAddress, Client, url, "acme", KEY))
            self.assertNotIn("hunter2", said)


class WatchCase(EitherClient):
    """What either does of a watch."""

    def stream(self, *pieces: bytes | Exception) -> httpx.Response:
        """A stream of these pieces."""
        return httpx.Response(200, stream=Pieces(pieces))

    def test_news(self) -> None:
        """The first event has all versions, then come changes and what is gone, in whatever pieces (SEC-48, SEC-50)."""
        whole = b"retry: 1000\n:\r\n" + event("versions", {"acme:variable:a": 1, "acme:variable:b": None}, "m1")
        whole += (
            event("unheard-of", 5) + event("versions", {"acme:variable:a": 2}) + event("gone", ["acme:variable:b"], "m2")
        )
        wanted = [NewVersions({"a": 1, "b": None}), NewVersions({"a": 2}), NoLongerThere(("b",))]
        for pieces in ([whole], [bytes([byte]) for byte in whole], [whole.replace(b"\n", b"\r\n")]):
            self.service.answers = [self.stream(*pieces)]
            self.assertEqual(self.events(3), wanted)
        asked = self.service.requests[0]
        self.assertEqual(asked.url.raw_path, b"/secrets/watch?variable_ids=acme%3Avariable%3Aa%2Cacme%3Avariable%3Ab")
        self.assertEqual((asked.headers["accept"], asked.headers.get("last-event-id")), ("text/event-stream", None))

    def test_outages(self) -> None:
        """A watch goes on through every outage from the event it has had, and tells of each (LIB-6, SEC-49)."""
        begun = event("versions", {"acme:variable:a": 1, "acme:variable:b": 1}, "m1")
        self.service.answers = [
            httpx.ConnectError("refused"),
            httpx.Response(503, headers={"retry-after": "40"}),
            self.stream(begun, httpx.ReadError("broke")),
            self.stream(b":\n\n", httpx.ReadTimeout("")),
            self.stream(),
            self.stream(event("versions", {"acme:variable:a": 2}, "m2")),
        ]
        lost: list[Fault | None] = []
        self.assertEqual(self.events(2, lost.append, back=lambda: lost.append(None))[1], NewVersions({"a": 2}))
        self.assertEqual([at for at, fault in enumerate(lost) if fault is None], [2, 4, 7])
        lost = [fault for fault in lost if fault is not None]
        self.assertEqual([type(fault) for fault in lost], [Unreachable, Unavailable, Unreachable, Unreachable, Unreachable])
        self.assertIn("nothing came for 60 seconds", str(lost[3]))
        self.assertEqual(self.slept, [0.5, 40.0, 0.5, 0.5, 1.0])
        marks = [request.headers.get("last-event-id") for request in self.service.requests]
        self.assertEqual(marks, [None, None, None, "m1", "m1", "m1"])

    def test_login_while_away(self) -> None:
        """A server that can't log anybody in now, or what stands before it, is an outage too (LIB-6)."""
        self.service.troubles = [httpx.Response(status) for status in (429, 500, 502, 503, 504)]
        self.service.answers = [self.stream(event("gone", []))]
        lost: list[Fault] = []
        self.events(1, lost.append)
        self.assertEqual((len(lost), self.service.logins), (5, 1))
        self.service.troubles = [httpx.Response(501)]
        self.assertRaises(Unexpected, self.events, 1)

    def test_watching_in_front(self) -> None:
        """An answer of something in front of the service ends a watch that begins, and is an outage later (LIB-6)."""
        pages = [httpx.Response(status, content=b"<html>", headers=HTML) for status in (200, 401, 403, 404, 302)]
        for page in pages:
            self.service.answers = [page]
            self.assertIn("something in front of", str(self.assertRaises(Unexpected, self.events, 1)))
        begun = event("versions", {"acme:variable:a": 1, "acme:variable:b": 1}, "m1")
        self.service.answers = [self.stream(begun), *pages, self.stream(event("versions", {"acme:variable:a": 2}, "m2"))]
        lost: list[Fault] = []
        self.service.logins, self.slept[:] = 0, []
        self.assertEqual(self.events(2, lost.append)[1], NewVersions({"a": 2}))
        self.assertEqual((len(lost), self.service.logins, self.slept), (6, 1, [0.5, 1.0, 2.0, 4.0, 8.0, 15.0]))

    def test_pauses(self) -> None:
        """The pauses grow to half a minute and stay there."""
        self.service.answers = [*[httpx.ConnectError("refused")] * 8, self.stream(event("gone", []))]
        self.events(1)
        self.assertEqual(self.slept, [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0])

    def test_ends(self) -> None:
        """After an end by the service it comes back soon, logged in again unless the server only drained (SEC-51)."""
        for reason, logins in (("drain", 1), ("token", 2), ("role", 2)):
            self.service.logins = 0
            self.service.answers = [self.stream(event("end", {"reason": reason})), self.stream(event("gone", []))]
            lost: list[Fault] = []
            self.events(1, lost.append)
            self.assertEqual((self.service.logins, lost), (logins, []))

    def test_faults(self) -> None:
        """What time doesn't mend is raised."""
        for answer, kind in (
            (httpx.Response(403), NotPermitted),
            (httpx.Response(404, json={"error": {"message": "none"}}), NotFound),
            (httpx.Response(422), Unexpected),
            (httpx.Response(501), Unexpected),
            (self.stream(event("versions", {"acme:variable:other": 1})), BadAnswer),
            (self.stream(event("versions", {"acme:variable:a": "x"})), BadAnswer),
            (self.stream(b"data: {\n\n"), BadAnswer),
            (self.stream(b"event: end\ndata: {\n\n"), BadAnswer),
            (self.stream(b"x" * (4 * 1024 * 1024 + 1)), TooLong),
        ):
            self.service.answers = [answer]
            self.assertRaises(kind, self.events, 1)
        self.service.refused = 99
        self.assertRaises(NotAuthenticated, self.events, 1)


class AsyncClientCase(OfAsyncio, BothClients, WatchCase):
    """The client on asyncio."""

    def test_shared_login(self) -> None:
        """Tasks that call at once share one login; one that is cancelled takes nothing from the others (NET-24)."""

        async def work() -> list[Any]:
            self.service.answers = [httpx.Response(200)] * 3
            async with self.client() as client:
                tasks = [asyncio.ensure_future(client.secret("a")) for _ in range(4)]
                await asyncio.sleep(0)
                tasks[0].cancel()
                return await asyncio.gather(*tasks, return_exceptions=True)

        first, *others = asyncio.run(work())
        self.assertIsInstance(first, asyncio.CancelledError)
        self.assertEqual((others, self.service.logins), ([b""] * 3, 1))

    def test_later_proofs(self) -> None:
        """What returns a JWT may be awaited."""

        async def later() -> str:
            await asyncio.sleep(0)
            return "a.b.c"

        self.service.answers = [httpx.Response(200)]
        self.call("secret", "a", evidence=Jwt("ci", later))
        self.assertEqual(self.service.logins, 1)


class ClientCaseOfThreads(OfThreads, BothClients, WatchCase):
    """The client for programs of threads."""

    def test_shared_login(self) -> None:
        """Threads that call at once share one login (LIB-1, NET-24)."""
        both = threading.Barrier(2)
        release = threading.Event()
        fresh = self.service.answer

        def held(request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/authenticate"):
                both.wait(10)
                release.wait(10)
            return fresh(request)

        self.patch(type(self.service), "answer", lambda _, request: held(request))
        self.service.answers = [httpx.Response(200)] * 4
        client = self.client()
        results: list[bytes] = []
        threads = [threading.Thread(target=lambda: results.append(client.secret("a"))) for _ in range(4)]
        for thread in threads:
            thread.start()
        both.wait(10)
        release.set()
        for thread in threads:
            thread.join(10)
        self.assertEqual((results, self.service.logins), ([b""] * 4, 1))

    def test_interrupted(self) -> None:
        """A login that the user interrupts is done by the next that needs it."""
        interrupted = [KeyboardInterrupt()]

        def key() -> str:
            if interrupted:
                raise interrupted.pop()
            return "a.b.c"

        client = self.client(Jwt("ci", key))
        self.assertRaises(KeyboardInterrupt, client.secret, "a")
        self.service.answers = [httpx.Response(200)]
        self.assertEqual(client.secret("a"), b"")

    def test_proofs_to_await(self) -> None:
        """A proof that has to be awaited is a mistake, which is told."""

        class Later:
            def __await__(self) -> Generator[None, None, str]:
                yield
                return "a.b.c"

        error = self.assertRaises(RuntimeError, self.client(Jwt("ci", Later)).secret, "a")
        self.assertIn("use AsyncClient", str(error))


del EitherClient, OfAsyncio, OfThreads, BothClients, WatchCase
