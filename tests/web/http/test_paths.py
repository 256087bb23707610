"""Paths are matched as they arrive and decoded afterwards."""

from __future__ import annotations

from urllib.parse import quote

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from werkzeug.exceptions import NotFound
from werkzeug.routing import Map, MapAdapter, Rule

from svc.model.errors import InvalidName
from svc.web.http.messages import split_target
from svc.web.http.routing import Pattern, configure_map

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=200)


@attrs.define
class Matcher:
    """A map with nothing but one pattern."""

    pattern: Pattern
    _routes: MapAdapter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the map."""
        routes = Map()
        configure_map(routes)
        for rule, values in self.pattern.werkzeug_rules():
            routes.add(Rule(rule, defaults=values, endpoint=rule))
        self._routes = routes.bind("svc")

    def match(self, path: str, limit: int = 1024) -> dict[str, str | None] | None:
        """The values that the pattern reads from a path; ``None`` when it doesn't match."""
        try:
            _, raw = self._routes.match(path, "GET")
        except NotFound:
            return None
        return self.pattern.decode_values(raw, limit)


class TargetTests(SynchronousTestCase):
    """``split_target``."""

    def test_path_and_query(self) -> None:
        """The query begins after the first question mark, and both stay raw (WIRE-7)."""
        for target, expected in (
            ("/a%2Fb?x=%20&y?z", ("/a%2Fb", "x=%20&y?z")),
            ("/", ("/", "")),
            ("/?a", ("/", "a")),
            ("//a", ("//a", "")),
        ):
            self.assertEqual(split_target(target), expected)

    def test_trailing_slash(self) -> None:
        """One raw trailing slash is dropped, with a query or without; an encoded one stays (WIRE-8)."""
        for target, path in (("/a/", "/a"), ("/a/?q", "/a"), ("/a//", "/a/"), ("/a%2F", "/a%2F"), ("/a%2F/", "/a%2F")):
            self.assertEqual(split_target(target)[0], path)

    def test_absolute(self) -> None:
        """An absolute target is read without its origin (WIRE-7)."""
        for target, expected in (
            ("http://svc.example/a/b?c", ("/a/b", "c")),
            ("HTTPS://user@h:1/a", ("/a", "")),
            ("http://h", ("/", "")),
            ("http://h?q", ("/", "q")),
        ):
            self.assertEqual(split_target(target), expected)

    def test_no_path(self) -> None:
        """A target of a form that names no path stays without a slash at its beginning."""
        for target in ("*", "svc.example:443", "a/b"):
            self.assertFalse(split_target(target)[0].startswith("/"))

    @given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1))
    def test_total(self, target: str) -> None:
        """Every target can be cut."""
        path, query = split_target(target)
        self.assertNotIn("?", path)
        self.assertIn(query, target)


class PatternTests(SynchronousTestCase):
    """``Pattern``."""

    one = Matcher(Pattern("/one/<name>"))
    flat = Matcher(Pattern("/flat/<flat:account>/end"))
    tail = Matcher(Pattern("/tail/<tail:identifier>"))
    either = Matcher(Pattern("/a-<flat:kind>{/}<name>/<flat:account>"))
    login = Matcher(Pattern("/authn/<flat:account>/<optional:login>/authenticate"))

    @given(NAMES)
    def test_round_trip(self, name: str) -> None:
        """Any name, quoted as one segment, is read as it was, by each sort of value that takes slashes."""
        quoted = quote(name, safe="")
        self.assertEqual(self.one.match(f"/one/{quoted}"), {"name": name})
        self.assertEqual(self.tail.match(f"/tail/{quoted}"), {"identifier": name})
        self.assertEqual(self.login.match(f"/authn/a/{quoted}/authenticate"), {"account": "a", "login": name})

    @given(NAMES)
    def test_round_trip_without_slash(self, name: str) -> None:
        """A flat value takes any name but one with a slash (WIRE-10)."""
        found = self.flat.match(f"/flat/{quote(name, safe='')}/end")
        self.assertEqual(found, None if "/" in name else {"account": name})

    @given(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?")))
    def test_reads_or_refuses(self, path: str) -> None:
        """No path makes a pattern raise anything but its refusal."""
        for matcher in (self.one, self.flat, self.tail, self.login):
            for prefix in ("/", "/one/", "/flat/", "/tail/", "/authn/a/"):
                try:
                    matcher.match(prefix + path)
                except InvalidName as refusal:
                    self.assertIn(refusal.parameter, matcher.pattern.value_names)

    def test_raw_and_encoded_slashes(self) -> None:
        """In a tail both slashes are one, also at the beginning and doubled; elsewhere a raw one separates (WIRE-11)."""
        for path, name in (("a/b", "a/b"), ("a%2Fb", "a/b"), ("a%2fb/c", "a/b/c"), ("%2Fa", "/a"), ("a//b", "a//b")):
            self.assertEqual(self.tail.match(f"/tail/{path}"), {"identifier": name})
        self.assertEqual(self.one.match("/one/a%2Fb"), {"name": "a/b"})
        self.assertIsNone(self.one.match("/one/a/b"))

    def test_either_slash(self) -> None:
        """Where a pattern says so its slash may be encoded; what follows is read as it is anywhere (WIRE-15)."""
        for path in ("/a-x/b/c", "/a-x%2Fb/c", "/a-x%2fb/c"):
            self.assertEqual(self.either.match(path), {"kind": "x", "name": "b", "account": "c"})
        for path in ("/a-x/b%2Fd/c", "/a-x%2Fb%2fd/c"):
            self.assertEqual(self.either.match(path), {"kind": "x", "name": "b/d", "account": "c"})
        for path in ("/a-x%2Fb%2Fc", "/a-x%252Fb/c", "/a-%2Fb/c", "/a-x%2F/c", "/a-x/b/d/c"):
            self.assertIsNone(self.either.match(path), path)
        self.assertEqual(str(self.either.pattern), "/a-<flat:kind>/<name>/<flat:account>")
        self.assertTrue(self.either.pattern.anonymous_rules() & Pattern("/a-<flat:x>/<y>/<flat:z>").anonymous_rules())

    def test_plus_stays(self) -> None:
        """A plus sign in a path is a plus sign (WIRE-11)."""
        self.assertEqual(self.one.match("/one/a+b"), {"name": "a+b"})

    def test_optional(self) -> None:
        """An optional value may be left out with its slash or without it (WIRE-14)."""
        for path in ("/authn/a/authenticate", "/authn/a//authenticate"):
            self.assertEqual(self.login.match(path), {"account": "a", "login": None})
        for path, login in (("host/x", "host/x"), ("%2F", "/"), ("authenticate", "authenticate"), ("/", "/")):
            self.assertEqual(self.login.match(f"/authn/a/{path}/authenticate"), {"account": "a", "login": login})

    def test_fixed_words_have_one_spelling(self) -> None:
        """A fixed word is not decoded, and no slash is merged (WIRE-9)."""
        for path in ("/%6Fne/a", "/ONE/a", "/one//a", "/one/", "/one", "/one/a/"):
            self.assertIsNone(self.one.match(path))

    def test_undecodable(self) -> None:
        """What doesn't decode is refused by the value's name, with the place (WIRE-12)."""
        for raw in ("%", "%zz", "%ff", "a%00"):
            refusal = self.assertRaises(InvalidName, self.one.match, f"/one/{raw}")
            self.assertEqual(refusal.parameter, "name")
            self.assertIn("name in the path", refusal.message)

    def test_limit(self) -> None:
        """A value may have as many bytes as the limit says, counted when it is decoded (WIRE-13)."""
        self.assertEqual(self.one.match("/one/%C3%A9%C3%A9", 4), {"name": "éé"})
        for raw in ("%C3%A9%C3%A9a", "abcde", "éé%41"):
            refusal = self.assertRaises(InvalidName, self.one.match, f"/one/{raw}", 4)
            self.assertIn("4 bytes", refusal.message)

    def test_shapes(self) -> None:
        """Two patterns have a shape in common when a path can match both by the same rule."""
        self.assertEqual(Pattern("/one/<other>").anonymous_rules(), self.one.pattern.anonymous_rules())
        self.assertTrue(self.login.pattern.anonymous_rules() & Pattern("/authn/<flat:x>/authenticate").anonymous_rules())
        self.assertFalse(self.login.pattern.anonymous_rules() & Pattern("/authn/<x>/authenticate").anonymous_rules())
