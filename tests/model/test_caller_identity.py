"""Tests of ``svc.model.caller_identity``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.caller_identity import CallerIdentity, read_caller, read_error
from svc.model.strict_json import Malformed
from tests.aws import ACCOUNT, KEYS, NAMESPACE, answer, error

#: A text that would become a gigabyte.
BOMB = (
    '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{("&" + chr(97 + n) + ";") * 10}">' for n in range(9))
    + "]>"
)


class CallerTests(SynchronousTestCase):
    """What is read of an answer."""

    def test_caller(self) -> None:
        """The ARN and the account are read, wherever they stand among others, with any blanks around them (AWS-13)."""
        expected = CallerIdentity(KEYS.arn, ACCOUNT)
        self.assertEqual(read_caller(answer()), expected)
        self.assertEqual(read_caller(b'<?xml version="1.0" encoding="UTF-8"?>\n' + answer()), expected)
        self.assertEqual(read_caller(answer().replace(b"<Arn>", b"<Arn>\n  ").replace(b"</Arn>", b"\n</Arn>")), expected)
        self.assertEqual(read_caller(answer().replace(b"arn:aws", b"<![CDATA[arn]]>&#58;aws")), expected)
        self.assertEqual(expected.assumed_role, "web")

    def test_error(self) -> None:
        """Of an error the code is read, and nothing else (AWS-13)."""
        self.assertEqual(read_error(error("ExpiredToken", "the token &lt;secret&gt;")), "ExpiredToken")

    def test_malformed(self) -> None:
        """What is no such XML is none: cut, of another namespace, with a document type, deep, or with elements twice
        (AWS-13).
        """
        good, bad = answer(), error("x")
        for document in (
            *(b"", b"x", b"{}", b"<html></html>", b"<x/>", good[:-5], good + b"x", good * 2),
            *(
                good.replace(NAMESPACE.encode(), b"https://evil.example/"),
                good.replace(f' xmlns="{NAMESPACE}"'.encode(), b""),
            ),
            *(
                good.replace(b"<Arn>", b"<Arn>x</Arn><Arn>"),
                good.replace(b"Arn>", b"arn>"),
                good.replace(b"Account>", b"X>"),
            ),
            *(good.replace(ACCOUNT.encode(), b"12345"), good.replace(b"arn:aws", b""), good.replace(b"web/", b"w b/")),
            *(BOMB.encode() + good.replace(b"i-0abc", b"&j;"), b'<!DOCTYPE x SYSTEM "https://evil.example/x.dtd">' + good),
            *(b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + good, good.replace(b"i-0abc", b"&e;")),
            *(b"<?xml-stylesheet href='x'?>" + good, b"<a>" * 10_000, good.replace(b"<UserId>", b"<x>" * 9), bad),
            good.replace(b"<UserId>", b"".join(f"<x{n}/>".encode() for n in range(70)) + b"<UserId>"),
            good.replace(b"<Arn>", b"<Arn xmlns='https://evil.example/'>"),
        ):
            with self.assertRaises(Malformed):
                read_caller(document)
        for document in (good, b"<html>403</html>", bad.replace(b"<Code>x", b"<Code>"), error("x y"), error("x" * 65)):
            with self.assertRaises(Malformed):
                read_error(document)


class AnythingTests(SynchronousTestCase):
    """Whatever answers."""

    @given(st.binary(max_size=300) | st.tuples(st.integers(0, 500), st.binary(max_size=8)).map(lambda at: _damaged(*at)))
    def test_anything(self, document: bytes) -> None:
        """Any answer is read or malformed, and never another failure (AWS-13)."""
        for read in (read_caller, read_error):
            try:
                read(document)
            except Malformed as fault:
                self.assertTrue(fault.why.startswith("it "))


def _damaged(place: int, what: bytes) -> bytes:
    good = answer()
    return good[:place] + what + good[place + 1 :]
