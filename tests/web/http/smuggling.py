"""Requests that servers have read in different ways: what smugglers send, and what only looks like it.

``CASES`` is the table. A case is what a client sends on a connection, and how each request in it is answered: with the body
that was read, or with a refusal. After a refusal, and after a request that closes, nothing is read any more. ``/smuggled``
is the target of bytes that belong to another request, if a server takes them for a request of their own.
"""

from __future__ import annotations

from typing import Final

import attrs

#: A request that is hidden in something else, and its length.
HIDDEN: Final = b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"

_POST: Final = b"POST /a HTTP/1.1\r\nHost: h\r\n"
_GET: Final = b"GET /a HTTP/1.1\r\nHost: h\r\n"
_CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"
_BODY: Final = b"3\r\nabc\r\n0\r\n\r\n"


@attrs.frozen
class Case:
    """What is sent, and what each request in it is answered with: the body that was read, or the status of a refusal."""

    sent: bytes
    answers: tuple[bytes | int, ...]
    #: Whether the connection takes no other request afterwards.
    closes: bool

    @property
    def read(self) -> list[bytes]:
        """The bodies of the requests that are answered."""
        return [answer for answer in self.answers if isinstance(answer, bytes)]


def _case(sent: bytes, *answers: bytes | int, closes: bool = False) -> Case:
    return Case(sent, answers, closes or isinstance(answers[-1], int))


def _lengths() -> dict[str, Case]:
    """Lengths of bodies."""
    refused = {
        "twice": b"Content-Length: 3\r\nContent-Length: 3",
        "twice and different": b"Content-Length: 3\r\nContent-Length: 38",
        "twice, spelled differently": b"Content-Length: 3\r\ncontent-length: 38",
        "twice, one far away": b"Content-Length: 3\r\nX: y\r\nZ: z\r\nCONTENT-LENGTH: 0",
        "a list of the same": b"Content-Length: 3, 3",
        "a list": b"Content-Length: 3, 38",
        "a list that ends": b"Content-Length: 3,",
        "many zeros before": b"Content-Length: " + b"0" * 5000 + b"3",
        "plus": b"Content-Length: +3",
        "minus": b"Content-Length: -3",
        "minus nothing": b"Content-Length: -0",
        "hexadecimal": b"Content-Length: 0x3",
        "letters": b"Content-Length: 3a",
        "underscore": b"Content-Length: 3_8",
        "decimal point": b"Content-Length: 3.0",
        "exponent": b"Content-Length: 3e1",
        "quoted": b'Content-Length: "3"',
        "nothing": b"Content-Length:",
        "blanks": b"Content-Length:   ",
        "blank inside": b"Content-Length: 3 8",
        "folded inside": b"Content-Length: 3\r\n 8",
        "semicolon": b"Content-Length: 3;38",
        "superscript": b"Content-Length: \xb3",
        "Arabic": b"Content-Length: \xd9\xa3",
        "NUL before": b"Content-Length: \x003",
        "NUL after": b"Content-Length: 3\x00",
        "vertical tab": b"Content-Length: \x0b3",
        "no-break space": b"Content-Length: \xa03",
        "blank before the colon": b"Content-Length : 3",
        "tab before the colon": b"Content-Length\t: 3",
        "NUL in the name": b"Content-Length\x00: 3",
        "high byte in the name": b"Content-Length\xa0: 3",
        "bare CR before": b"X: y\rContent-Length: 3",
        "bare LF before": b"X: y\nContent-Length: 3",
        "bare CR after": b"Content-Length: 3\rX: y",
        "bare LF after": b"Content-Length: 3\nX: y",
    }
    cases = {f"length: {name}": _case(_POST + line + b"\r\n\r\nabc", 400) for name, line in refused.items()}
    for name, number in (
        ("2**64", b"18446744073709551616"),
        ("2**64 + 3", b"18446744073709551619"),
        ("2**63 - 1", b"9223372036854775807"),
        ("150 digits", b"9" * 150),
    ):
        cases[f"length: {name}"] = _case(_POST + b"Content-Length: " + number + b"\r\n\r\nabc", 413)
    for name, line in {
        "plain": b"Content-Length: 3",
        "no blank": b"Content-Length:3",
        "blanks around": b"Content-Length: \t 3 \t ",
        "zeros before": b"Content-Length: 0003",
        "lower case": b"content-length: 3",
        "folded before": b"Content-Length:\r\n 3",
    }.items():
        cases[f"length: {name}"] = _case(_POST + line + b"\r\n\r\nabc", b"abc")
    hidden = b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN
    cases["length: of what looks like a request"] = _case(_POST + hidden, HIDDEN)
    cases["length: of a GET"] = _case(_GET + hidden, HIDDEN)
    cases["length: underscore in the name"] = _case(_POST + b"Content_Length: 3\r\nContent-Length: 0\r\n\r\n", b"")
    return cases


def _codings() -> dict[str, Case]:
    """Transfer codings, with lengths and without."""
    both = b"Content-Length: 3\r\n"
    refused = {
        "length first": both + _CHUNKED,
        "length second": _CHUNKED + both,
        "length zero": b"Content-Length: 0\r\n" + _CHUNKED,
        "length of all": b"Content-Length: 13\r\n" + _CHUNKED,
        "two lengths": both + both + _CHUNKED,
        "length, folded": both + b"Transfer-Encoding:\r\n chunked\r\n",
        "length, identity": both + b"Transfer-Encoding: identity\r\n",
        "length, unknown": both + b"Transfer-Encoding: cow\r\n",
        "length, blank before the colon": both + b"Transfer-Encoding : chunked\r\n",
        "length, empty": both + b"Transfer-Encoding:\r\n",
        "twice": _CHUNKED + _CHUNKED,
        "twice, then identity": _CHUNKED + b"Transfer-Encoding: identity\r\n",
        "identity first": b"Transfer-Encoding: identity\r\n" + _CHUNKED,
        "then unknown": _CHUNKED + b"Transfer-Encoding: cow\r\n",
        "unknown first": b"Transfer-Encoding: cow\r\n" + _CHUNKED,
        "then empty": _CHUNKED + b"Transfer-Encoding:\r\n",
        "empty": b"Transfer-Encoding:\r\n",
        "identity": b"Transfer-Encoding: identity\r\n",
        "gzip": b"Transfer-Encoding: gzip\r\n",
        "gzip, chunked": b"Transfer-Encoding: gzip, chunked\r\n",
        "chunked, gzip": b"Transfer-Encoding: chunked, gzip\r\n",
        "chunked, chunked": b"Transfer-Encoding: chunked, chunked\r\n",
        "chunked, identity": b"Transfer-Encoding: chunked, identity\r\n",
        "comma after": b"Transfer-Encoding: chunked,\r\n",
        "comma before": b"Transfer-Encoding: ,chunked\r\n",
        "parameter": b"Transfer-Encoding: chunked;q=1\r\n",
        "quoted": b'Transfer-Encoding: "chunked"\r\n',
        "apostrophes": b"Transfer-Encoding: 'chunked'\r\n",
        "something before": b"Transfer-Encoding: xchunked\r\n",
        "something after": b"Transfer-Encoding: chunkedx\r\n",
        "blank inside": b"Transfer-Encoding: chu nked\r\n",
        "folded inside": b"Transfer-Encoding: chunked\r\n identity\r\n",
        "vertical tab": b"Transfer-Encoding: \x0bchunked\r\n",
        "form feed after": b"Transfer-Encoding: chunked\x0c\r\n",
        "NUL": b"Transfer-Encoding: chunked\x00\r\n",
        "high byte": b"Transfer-Encoding: \xffchunked\r\n",
        "no-break space": b"Transfer-Encoding:\xa0chunked\r\n",
        "dotless letter": b"Transfer-Encoding: chun\xe2\x84\xaaed\r\n",
        "blank before the colon": b"Transfer-Encoding : chunked\r\n",
        "tab before the colon": b"Transfer-Encoding\t: chunked\r\n",
        "two colons": b"Transfer-Encoding:: chunked\r\n",
        "no colon": b"Transfer-Encoding chunked\r\n",
        "name folded": b"Transfer-\r\n Encoding: chunked\r\n",
        "bare LF before": b"X: y\nTransfer-Encoding: chunked\r\n",
        "bare CR before": b"X: y\rTransfer-Encoding: chunked\r\n",
        "bare LF after": b"Transfer-Encoding: chunked\nX: y\r\n",
        "bare CR after": b"Transfer-Encoding: chunked\rX: y\r\n",
    }
    cases = {f"coding: {name}": _case(_POST + lines + b"\r\n" + _BODY, 400) for name, lines in refused.items()}
    for name, line in {
        "plain": _CHUNKED,
        "no blank": b"transfer-encoding:chunked\r\n",
        "other case": b"tRANSFER-eNCODING: \tcHUNKED \r\n",
        "folded before": b"Transfer-Encoding:\r\n chunked\r\n",
        "beside TE": b"TE: trailers\r\n" + _CHUNKED,
        "of a GET": _CHUNKED,
    }.items():
        head = _GET if name == "of a GET" else _POST
        cases[f"coding: {name}"] = _case(head + line + b"\r\n" + _BODY, b"abc")
    cases["coding: underscore"] = _case(_POST + both + b"Transfer_Encoding: chunked\r\n\r\nabc", b"abc")
    cases["coding: only accepted"] = _case(_POST + both + b"TE: chunked\r\n\r\nabc", b"abc")
    old = b"POST /a HTTP/1.0\r\nHost: h\r\n"
    cases["coding: HTTP/1.0"] = _case(old + _CHUNKED + b"\r\n" + _BODY, 400)
    cases["coding: HTTP/1.0 with length"] = _case(old + both + _CHUNKED + b"\r\n" + _BODY, 400)
    return cases


def _chunks() -> dict[str, Case]:
    """Chunks and trailers."""
    head, end = _POST + _CHUNKED + b"\r\n", b"0\r\n\r\n"
    refused = {
        "plus": b"+3\r\nabc\r\n" + end,
        "minus": b"-3\r\nabc\r\n" + end,
        "minus zero": b"-0\r\n\r\n",
        "0x": b"0x3\r\nabc\r\n" + end,
        "underscore": b"0_3\r\nabc\r\n" + end,
        "no number": b"x\r\nabc\r\n" + end,
        "no size": b"\r\nabc\r\n" + end,
        "only an extension": b";a\r\nabc\r\n" + end,
        "blank before": b" 3\r\nabc\r\n" + end,
        "blank after": b"3 \r\nabc\r\n" + end,
        "tab after": b"3\t\r\nabc\r\n" + end,
        "NUL after": b"3\x00\r\nabc\r\n" + end,
        "2**64": b"10000000000000000\r\nabc\r\n" + end,
        "2**64 + 3": b"10000000000000003\r\nabc\r\n" + end,
        "2**68": b"100000000000000000\r\nabc\r\n" + end,
        "bare LF after the size": b"3\nabc\r\n" + end,
        "bare CR after the size": b"3\rabc\r\n" + end,
        "two CR after the size": b"3\r\r\nabc\r\n" + end,
        "bare LF after the chunk": b"3\r\nabc\n" + end,
        "bare CR after the chunk": b"3\r\nabc\r" + end,
        "nothing after the chunk": b"3\r\nabc" + end,
        "too short a size": b"2\r\nabc\r\n" + end,
        "too long a size": b"4\r\nabc\r\n" + end,
        "empty line before": b"\r\n" + _BODY,
        "extension without a name": b"3;\r\nabc\r\n" + end,
        "extension after a blank": b"3 ;a=b\r\nabc\r\n" + end,
        "bare LF in an extension": b"3;a\nb\r\nabc\r\n" + end,
        "bare LF ends an extension": b"3;a=b\nabc\r\n" + end,
        "bare CR in an extension": b"3;a=b\rc\r\nabc\r\n" + end,
        "NUL in an extension": b"3;a=\x00\r\nabc\r\n" + end,
        "line end in a quoted extension": b'3;a="\r\nabc\r\n' + end + b'"\r\n',
        "long extension": b"3;a=" + b"b" * 6000 + b"\r\nabc\r\n" + end,
        "bare LF ends the body": b"0\n\n" + HIDDEN,
        "bare LF ends the last line": b"0\r\n\n" + HIDDEN,
        "bare CR ends the last line": b"0\r\n\r" + HIDDEN,
        "trailer without a colon": b"0\r\nabc\r\n\r\n",
        "trailer with a blank before the colon": b"0\r\nA : b\r\n\r\n",
        "trailer with a bare LF": b"0\r\nA: b\nC: d\r\n\r\n",
        "trailer, folded": b"0\r\nA: b\r\n c\r\n\r\n",
        "trailer with NUL": b"0\r\nA: \x00\r\n\r\n",
        "trailer that is a length": b"0\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
        "trailer that is a coding": b"0\r\nTransfer-Encoding: chunked\r\n\r\n" + _BODY,
        "many trailers": b"0\r\n" + b"A: b\r\n" * 2000 + b"\r\n",
    }
    cases = {f"chunk: {name}": _case(head + body, 400) for name, body in refused.items()}
    for name, body, read in (
        ("one", _BODY, b"abc"),
        ("none", end, b""),
        ("zeros before", b"0000000000000000000000003\r\nabc\r\n000\r\n\r\n", b"abc"),
        ("upper case", b"A\r\n0123456789\r\n" + end, b"0123456789"),
        ("lower case", b"a\r\n0123456789\r\n" + end, b"0123456789"),
        ("extension", b"3;a\r\nabc\r\n0;b=c\r\n\r\n", b"abc"),
        ("quoted extension", b'3;a="b;\\"c";d=e\r\nabc\r\n' + end, b"abc"),
        ("trailers", b"3\r\nabc\r\n0\r\nA: b\r\nHost: other\r\n\r\n", b"abc"),
        ("empty lines inside", b"8\r\n\r\n\r\n\r\n\r\n\r\n" + end, b"\r\n" * 4),
        ("end inside", b"b\r\n0\r\n\r\n0\r\n\r\nx\r\n" + end, b"0\r\n\r\n0\r\n\r\nx"),
        ("request inside", b"%x\r\n%b\r\n" % (len(HIDDEN), HIDDEN) + end, HIDDEN),
    ):
        cases[f"chunk: {name}"] = _case(head + body, read)
    return cases


def _lines() -> dict[str, Case]:
    """First lines, hosts and other headers."""
    host = b"Host: h\r\n\r\n"
    refused = {
        "two blanks": b"GET  /a HTTP/1.1\r\n" + host,
        "two blanks later": b"GET /a  HTTP/1.1\r\n" + host,
        "blank at the end": b"GET /a HTTP/1.1 \r\n" + host,
        "blank at the beginning": b" GET /a HTTP/1.1\r\n" + host,
        "tab": b"GET\t/a\tHTTP/1.1\r\n" + host,
        "blank in the target": b"GET /a HTTP/1.1 /b HTTP/1.1\r\n" + host,
        "no target": b"GET HTTP/1.1\r\n" + host,
        "no method": b" /a HTTP/1.1\r\n" + host,
        "no version": b"GET /a\r\n" + host,
        "version in small letters": b"GET /a http/1.1\r\n" + host,
        "version 0.9": b"GET /a HTTP/0.9\r\n" + host,
        "version 1.2": b"GET /a HTTP/1.2\r\n" + host,
        "version 1.10": b"GET /a HTTP/1.10\r\n" + host,
        "version 1.01": b"GET /a HTTP/1.01\r\n" + host,
        "version 2.0": b"GET /a HTTP/2.0\r\n" + host,
        "version 3": b"GET /a HTTP/3\r\n" + host,
        "another protocol": b"SOURCE /a ICE/1.0\r\n" + host,
        "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
        "fragment": b"GET /a#/b HTTP/1.1\r\n" + host,
        "NUL": b"GET /a\x00b HTTP/1.1\r\n" + host,
        "high byte": b"GET /a\xc3\xa9 HTTP/1.1\r\n" + host,
        "DEL": b"GET /a\x7f HTTP/1.1\r\n" + host,
        "parentheses": b"G(T) /a HTTP/1.1\r\n" + host,
        "bare LF": b"GET /a HTTP/1.1\n" + host,
        "bare CR": b"GET /a HTTP/1.1\r" + host,
        "only LF": b"GET /a HTTP/1.1\nHost: h\n\n\r\n\r\n",
        "bare LF in the target": b"GET /a\nX HTTP/1.1\r\n" + host,
        "LF before": b"\nGET /a HTTP/1.1\r\n" + host,
        "CR before": b"\rGET /a HTTP/1.1\r\n" + host,
        "five lines before": b"\r\n" * 5 + _GET + b"\r\n",
        "folded": b"GET /a HTTP/1.1\r\n X: y\r\n" + host,
        "absolute without Host": b"GET http://h/a HTTP/1.1\r\n\r\n",
        "no Host": b"GET /a HTTP/1.1\r\nX: y\r\n\r\n",
        "two Hosts": _GET + b"Host: h\r\n\r\n",
        "two different Hosts": _GET + b"host: other\r\n\r\n",
        "Host, blank before the colon": b"GET /a HTTP/1.1\r\nHost : h\r\n\r\n",
        "Host with a user": b"GET /a HTTP/1.1\r\nHost: h@other\r\n\r\n",
        "Host with a path": b"GET /a HTTP/1.1\r\nHost: h/other\r\n\r\n",
        "list of Hosts": b"GET /a HTTP/1.1\r\nHost: h, other\r\n\r\n",
        "header without a colon": _GET + b"abc\r\n\r\n",
        "header without a name": _GET + b": abc\r\n\r\n",
        "name with a blank": _GET + b"A b: c\r\n\r\n",
        "name with parentheses": _GET + b"A(b): c\r\n\r\n",
        "name with a control character": _GET + b"A\x01: c\r\n\r\n",
        "value with NUL": _GET + b"A: b\x00c\r\n\r\n",
        "value with a control character": _GET + b"A: b\x08c\r\n\r\n",
        "value with DEL": _GET + b"A: b\x7f\r\n\r\n",
        "value with CR": _GET + b"A: b\rC: d\r\n\r\n",
        "value with LF": _GET + b"A: b\nC: d\r\n\r\n",
        "LF ends a header": _GET + b"A: b\n\r\n",
        "CR ends a header": _GET + b"A: b\r\r\n\r\n",
        "LF ends the head": _GET + b"A: b\r\n\n" + HIDDEN,
        "hidden by LF": _GET + b"A: b\n\n" + HIDDEN,
    }
    cases = {f"line: {name}": _case(sent, 400) for name, sent in refused.items()}
    for name, sent in {
        "four lines before": b"\r\n" * 4 + _GET + b"\r\n",
        "absolute": b"GET http://h/a HTTP/1.1\r\n" + host,
        "absolute, another Host": b"GET http://other/a HTTP/1.1\r\n" + host,
        "absolute, with a user": b"GET http://h@other:1/a HTTP/1.1\r\n" + host,
        "method in small letters": b"get /a HTTP/1.1\r\n" + host,
        "unknown method": b"X-Y /a HTTP/1.1\r\n" + host,
        "header, folded": _GET + b"A: b\r\n c\r\n\td\r\n\r\n",
        "header, folded to nothing": _GET + b"A: b\r\n \r\n\r\n",
        "header without a value": _GET + b"A:\r\nB: \t \r\n\r\n",
        "high byte in a value": _GET + b"A: \xff\xa0\r\n\r\n",
    }.items():
        cases[f"line: {name}"] = _case(sent, b"")
    return cases


def _sequences() -> dict[str, Case]:
    """Several requests, and requests that ask for something else than an answer."""
    post = _POST + b"Content-Length: 3\r\n"
    old = b"POST /a HTTP/1.0\r\nContent-Length: 3\r\n"
    h2c = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    return {
        "two": _case((post + b"\r\nabc") * 2, b"abc", b"abc"),
        "length, then chunks": _case(post + b"\r\nabc" + _POST + _CHUNKED + b"\r\n" + _BODY, b"abc", b"abc"),
        "blank lines between": _case(post + b"\r\nabc\r\n\r\n" + _GET + b"\r\n", b"abc", b""),
        "a refusal between": _case(_GET + b"\r\n" + _GET + b"A : b\r\n\r\n" + HIDDEN, b"", 400),
        "after close": _case(post + b"Connection: close\r\n\r\nabc" + HIDDEN, b"abc", closes=True),
        "after close, among others": _case(post + b"Connection: x, CLOSE ,y\r\n\r\nabc" + HIDDEN, b"abc", closes=True),
        "after close of the proxy": _case(post + b"Proxy-Connection: close\r\n\r\nabc", b"abc"),
        "HTTP/1.0": _case(old + b"\r\nabc" + HIDDEN, b"abc", closes=True),
        "HTTP/1.0, keep-alive": _case(old + b"Connection: keep-alive\r\n\r\nabc" + HIDDEN, b"abc", closes=True),
        "invitation": _case(post + b"Expect: 100-continue\r\n\r\nabc", b"abc"),
        "unknown expectation": _case(post + b"Expect: cow\r\n\r\nabc", b"abc"),
        "length is an option": _case(post + b"Connection: Content-Length\r\n\r\nabc", b"abc"),
        "upgrade to HTTP/2": _case(_GET + h2c + b"\r\n" + _GET + b"\r\n", b"", b""),
        "upgrade with a body": _case(post + h2c + b"\r\nabc", b"abc"),
        "upgrade with a hidden request": _case(_POST + h2c + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN, HIDDEN),
        "upgrade with chunks": _case(_POST + h2c + _CHUNKED + b"\r\n" + _BODY, b"abc"),
        "upgrade to a websocket": _case(
            _GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + _GET + b"\r\n",
            b"",
            b"",
        ),
        "upgrade that isn't an option": _case(post + b"Upgrade: h2c\r\n\r\nabc", b"abc"),
        "CONNECT": _case(b"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n" + HIDDEN, 400),
        "CONNECT with a body": _case(b"CONNECT h:80 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", 400),
        "CONNECT to a path": _case(b"CONNECT /a HTTP/1.1\r\nHost: h\r\n\r\n" + HIDDEN, 400),
        "CONNECT in small letters": _case(b"connect /a HTTP/1.1\r\nHost: h\r\n\r\n" + _GET + b"\r\n", b"", b""),
    }


CASES: Final[dict[str, Case]] = {
    **_lengths(),
    **_codings(),
    **_chunks(),
    **_lines(),
    **{f"sequence: {name}": case for name, case in _sequences().items()},
}
