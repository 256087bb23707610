"""Names, annotations and values of all characters that policy takes, in every place where a page shows them."""

from __future__ import annotations

import html
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias
from urllib.parse import quote, urljoin

from svc.model.names import RoleName, check_identifier
from svc.model.refusals import RefusedRequest
from svc.model.text import quote_text
from svc.policy.ids import identifier_of
from svc.web.console import links
from svc.web.console.rendering import mark_invisible
from tests.web.console.world import ConsoleCase, Page
from tests.web.support import NOW
from tests.web.world import ADMIN

#: A name that needs nothing.
PLAIN: Final = "aBc"


def _parts(chars: list[str], size: int) -> Iterator[list[str]]:
    return (chars[start : start + size] for start in range(0, len(chars), size))


#: Characters by themselves: all of ASCII but NUL and the slash, all of Latin-1, and all that are not seen, or turn others.
_SPECIAL: Final = [
    *map(chr, (each for each in range(1, 0x100) if each != ord("/"))),
    *(char for code in range(0x100, 0x10000) if unicodedata.category(char := chr(code)) in {"Cf", "Zl", "Zp", "Zs"}),
    *("\ufffe", "\uffff", "\U0001ffff", "\ue000", "\u0301", "\u034f", "\u115f", "\u3164", "\ufe0f"),
    *("\U000e0100", "\U000e0041", "\U0001d173", "\U000110bd", "\U00013430"),
    *("\u0416", "\u05d0", "\u0627", "\u65e5", "\U0001f511"),
]
#: A privilege, which is a name too, has 64 bytes at most.
ALL: Final = tuple(
    f"a{''.join(several)}z"
    for size, chars in itertools.groupby(_SPECIAL, lambda char: len(char.encode()))
    for several in _parts(list(chars), 60 // size)
)

#: What a page could take for markup, a browser for another address, or a style or a script for its end.
ODD: Final = (
    "<script>alert(1)<!--",
    "\"'><img src=x onerror=alert(1)>",
    "' autofocus onfocus='alert(1)",
    "&lt;b&gt;&amp;&#x3c;&NewLine;&nbsp",
    "{{ 7*7 }}{% raw %}{# ${x} #}",
    "a\r\nSet-Cookie: x=y\r\n\r\n<b>",
    "%2e%2e%2f%00%5c+;?#&=@:",
    "]]>--><![CDATA[",
    "a  \n\n  b",
)
#: What a browser would leave out of an address, or take for another server.
SLASHED: Final = (
    "javascript:alert(1)//",
    ".",
    "a/./b",
    "a//b",
    "a/",
    "a\\..\\b",
    "%2e%2e/a/%2E%2e",
    "</title></style></textarea></script><svg/onload=alert(1)>",
    "a/.\t./b",
)
#: What it would follow upwards. A document can declare these, and not refer to them.
CLIMBING: Final = ("..", "a/..", "../../secrets", "a/../../b", "../%2e%2e")

POLICY: Final = """
- !policy {{ id: {0}, annotations: {{ ? {0} : {0} }}, body: [ !variable {0} ] }}
- !user {{ id: {0}, annotations: {{ ? {0} : {0} }} }}
- !group {{ id: {0}, owner: !user {0} }}
- !layer {0}
- !host {{ id: {0}, restricted_to: [ 10.0.0.0/8 ] }}
- !variable {{ id: {0}, owner: !group {0}, annotations: {{ ? {0} : {0} }} }}
- !host-factory {{ id: {0}, layers: [ !layer {0} ] }}
- !policy
  id: svc/authn-jwt
  body: [ !policy {{ id: {0}, body: [ !webservice , !webservice status, !variable jwks-uri ] }} ]
- !grant {{ role: !group {0}, member: !layer {0} }}
- !grant {{ role: !layer {0}, member: !host {0} }}
- !permit {{ role: !layer {0}, privileges: [ read, {0} ], resource: !variable {0} }}
- !permit {{ role: !user {0}, privileges: [ read, execute, create ], resource: !policy root }}
"""
#: What is tried, and loaded.
CHANGE: Final = """
- !variable {{ id: {1}, annotations: {{ ? {0} : {0} }} }}
- !host {{ id: {1}, annotations: {{ policy: {0} }} }}
- !permit {{ role: !group {0}, privileges: [ {0} ], resource: !policy {0} }}
- !grant {{ role: !group {0}, member: !host {1} }}
"""
#: A document with faults that name it.
FAULTS: Final = """
- !grant {{ role: !group {0}, member: !user {1} }}
- !permit {{ role: !host {1}, privilege: x, resource: !group {0} }}
"""


def in_policy(name: str) -> str:
    """A name as a document writes it, whatever its characters are."""
    return '"' + "".join(f"\\U{ord(char):08X}" for char in name) + '"'


def written(document: str, name: str) -> str:
    """A document with this name, and one of something new beneath it."""
    return document.format(in_policy(name), in_policy(f"{name}/new"))


def told(name: str) -> str:
    """A name as a page shows it."""
    return "".join(piece for piece, _ in mark_invisible(name))


Pages: TypeAlias = list[tuple[str, Page]]
Skeleton: TypeAlias = list[tuple[str, tuple[str, ...]]]


class NamesTests(ConsoleCase):
    """An account in which everything has one name."""

    def begin(self, name: str) -> None:
        """Make an account, and nothing else."""
        self.setUp()
        loaded = self.load(written(POLICY, name))
        self.role = RoleName("acme", "user", identifier_of("user", name))
        self.set_value(quote(name, safe=""), name.encode())
        self.memory.key_expirations |= {str(self.role): NOW + 1, f"acme:host:{name}": NOW + 1}
        for kind, authenticator in (("user", "authn"), ("host", "authn-jwt")):
            self.refusals.add_refusal(
                RefusedRequest(
                    *(NOW, name, "192.0.2.1", "acme", "POST /authn", "role-unknown", name, authenticator),
                    name if authenticator == "authn-jwt" else None,
                    str(self.role) if kind == "user" else f"acme:host:{name}",
                )
            )
        key = self.api_key(loaded, str(self.role))
        self.own = self.new_browser()
        self.own.get("/ui")
        login = {"account": "acme", "login": self.role.login, "evidence": key}
        self.assertEqual(self.own.press("Sign in", **login).answer.status, 200, name)
        self.admin = self.signed_in("admin", "1admin")

    def shown(self, name: str) -> Iterator[tuple[str, Page]]:
        """Each page that shows the name in some place, with which it is."""
        self.begin(name)
        admin, own = self.admin, self.own
        for kind in ("policy", "user", "group", "layer", "host", "variable", "host_factory"):
            full = str(self.role) if kind == "user" else f"acme:{kind}:{name}"
            yield f"resource {kind}", admin.get(links.resource(full))
            if kind != "variable":
                yield f"role {kind}", admin.get(links.role(full))
        variable, said = links.resource(f"acme:variable:{name}"), quote(name, safe="")
        for kind in ("policy", "variable", "user", "host", "webservice"):
            yield f"beneath {kind}", admin.get(f"{links.policy(f'acme:policy:{name}')}?kind={kind}")
            yield f"all {kind}", admin.get(f"/ui/policies?kind={kind}")
        yield "holders", admin.get(f"{variable}?privilege={said}")
        yield "search", admin.get(f"/ui/resources?search={said}")
        yield "home", admin.get("/ui")
        yield "what ends", admin.get("/ui/expiring?within=31536000")
        yield "audit", admin.get("/ui/audit")
        yield "audit of it", admin.get(f"/ui/audit?what={quote(f'acme:variable:{name}', safe='')}&operation={said}")
        yield "audit by it", admin.get(f"/ui/audit?who={quote(str(self.role), safe='')}&request={said}")
        yield "refusals", admin.get("/ui/refusals")
        yield "refusals of a request", admin.get(f"/ui/refusals?request={said}")
        yield "refusals of a sort", admin.get(f"/ui/refusals?reason=role-unknown&authenticator=authn-jwt&service={said}")
        yield "authenticators", admin.get("/ui/authenticators")
        if name != ".":  # of which no browser has an address
            yield "authenticator", admin.get(links.authenticator(f"authn-jwt/{name}"))
            yield "explained", admin.press("Show the checks", jwt=name, login=name)
        yield "signed in", own.get("/ui")
        admin.get(variable)
        yield "value", admin.press("Show the value of version 1")
        for who, browser in (("admin", admin), ("own", own)):
            browser.get("/ui/change")
            yield f"faults {who}", browser.press("Try it", mode="append", text=written(FAULTS, name))
            browser.get("/ui/change")
            yield f"tried {who}", browser.press("Try it", mode="append", text=written(CHANGE, name))
        admin.get("/ui/change")
        yield "policy unknown", admin.press("Try it", mode="append", policy=name, text="- !user x")
        admin.press("Try it", mode="append", policy="root", text=written(CHANGE, name))
        yield "loaded", admin.press("Load it")
        yield "audit after", admin.get("/ui/audit")
        yield "version", admin.get("/ui/resources/acme:policy:root")
        admin.get(links.role(f"acme:host:{name}"))
        yield "revoked", admin.press("Revoke its tokens")
        stranger = self.new_browser()
        yield "account", stranger.get(f"/ui/sign-in?account={said}&to={said}")
        stranger.get("/ui/sign-in")
        yield "login", stranger.press("Sign in", account=name, login=name, evidence="x")

    def skeleton(self, page: Page) -> Skeleton:
        """The elements of a page with the names of their attributes, but for the codes of characters that aren't seen, and
        for what is drawn.
        """
        return sorted(
            (tag, tuple(sorted(attributes)))
            for tag, attributes in page.tags
            if (tag, attributes) != ("span", {"class": "code"}) and tag not in {"path", "text", "svg", "rect", "title"}
        )

    def text(self, page: Page) -> str:
        """The text of a page, but for the labels of a picture, which are cut; its elements have been looked at."""
        body = page.answer.body.decode()
        return html.unescape(re.sub("<[^>]*>", "", re.sub("<(text|style)[ >].*?</\\1>", "", body, flags=re.DOTALL)))

    def test_names(self) -> None:
        """Whatever characters a name has, each page has the same elements and attributes as for a plain one, the name is
        there as it is, but for characters that aren't seen, which are there by their codes, and every link leads to its
        thing, as a browser reads it (CON-14).
        """
        plain = {which: (self.skeleton(page), self.text(page).count(PLAIN)) for which, page in self.shown(PLAIN)}
        self.assertGreater(len(plain), 40)
        for name in (*ALL, *ODD, *SLASHED):
            pages = list(self.shown(name))
            if name not in SLASHED:
                self.assertEqual(check_identifier(name), name)
                self.assert_like_plain(name, pages, plain)
            if name not in ALL[2:]:
                self.assert_links(name, pages)

    def assert_like_plain(self, name: str, pages: Pages, plain: Mapping[str, tuple[Skeleton, int]]) -> None:
        """Fail unless the pages have the elements of those for a plain name, and this name as often."""
        for which, page in pages:
            with self.subTest(which=which, name=name):
                self.assertLess(page.answer.status, 500, which)
                expected, count = plain[which]
                self.assertEqual(self.skeleton(page), expected, (which, name))
                found = self.text(page).count(told(name))
                if which in {"value", "search"}:
                    continue
                # Sentences of checks write what isn't seen in their own way.
                sentences = quote_text(name) != name
                self.assertTrue(0 < found <= count if sentences and count else found == count, (which, name, found))

    def assert_links(self, name: str, pages: Pages) -> None:
        """Fail unless nothing on the pages is active, and every link leads to a page."""
        led = set[str]()
        for which, page in pages:
            for tag, attributes in page.tags:
                self.assertNotIn(tag, {"script", "img", "b", "iframe", "base", "object"}, which)
                self.assertFalse([each for each in attributes if each.startswith("on")], which)
            led |= {link.partition("#")[0] for link in page.links if not link.startswith("#")}
        self.assert_addresses(led)
        for kind in ("policy", "user", "group", "layer", "host", "variable"):
            full = str(self.role) if kind == "user" else f"acme:{kind}:{name}"
            self.assertIn(links.resource(full) if kind == "variable" else links.role(full), led, name)
        # Of authenticators, the list has also those of which this account has none; health is another route's.
        own = links.authenticator(f"authn-jwt/{name}")
        elsewhere = ("/ui/sign-", "/ui/authenticators/", "/ui/health")
        for link in sorted(each for each in led if each == own or not each.startswith(elsewhere)):
            page = self.admin.get(link)
            self.assertEqual(page.answer.status, 200, (name, link))

    def test_around(self) -> None:
        """Of the policies that an id names around it, those are links that the reader sees (CON-20)."""
        permit = "- !permit { role: !user u, privilege: read, resource: !variable a/b/v }\n"
        key = self.api_key(self.load(f"- !policy a\n- !variable a/b/v\n- !user u\n{permit}"), "acme:user:u")
        for browser, expected in ((self.signed_in("admin", "1admin"), True), (self.signed_in("u", key), False)):
            page = browser.get("/ui/resources/acme:variable:a/b/v")
            self.assertEqual("/ui/policies/acme:policy:a" in page.links, expected)
            self.assertNotIn("/ui/policies/acme:policy:a/b", page.links)

    def test_climbing(self) -> None:
        """So does every link to what has a name that a browser would follow upwards (CON-14)."""
        kinds = ("policy", "group", "layer", "host", "variable", "webservice")
        for name in CLIMBING:
            self.setUp()
            self.load("".join(f"- !{kind} {in_policy(name)}\n" for kind in kinds))
            admin = self.signed_in("admin", "1admin")
            for kind in kinds:
                full = f"acme:{kind}:{name}"
                page = admin.get(f"/ui/policies?kind={kind}")
                self.assertIn(links.policy(full) if kind == "policy" else links.resource(full), page.links)
                for path in (links.resource(full), links.role(full), links.policy(full)):
                    self.assert_addresses(page.links)
                    if path in page.links:
                        page = admin.get(path)
                        self.assertEqual(page.answer.status, 200, path)
                        self.assertIn(name, page.text)

    def assert_addresses(self, led: Iterable[str]) -> None:
        """Fail unless a browser takes the links for what they are."""
        for link in led:
            self.assertTrue(link.isascii() and link.isprintable(), link)
            self.assertEqual(urljoin("http://a/ui", link), f"http://a{link}" if link[0] == "/" else f"http://a/ui{link}")
            parts = link.partition("?")[0].partition("#")[0].lower().replace("%2e", ".").split("/")
            self.assertEqual({"", ".", ".."}.intersection(parts[1:]), set(), link)


class PiecesTests(ConsoleCase):
    """Codes for characters."""

    def test_every_character(self) -> None:
        """Every character that can't be seen or turns others has a code, and each other one is itself (CON-14)."""
        every = "".join(map(chr, (*range(1, 0xD800), *range(0xE000, 0x110000))))
        coded = {chr(int(piece[2:], 16)) for piece, unseen in mark_invisible(every) if unseen}
        self.assertEqual(
            "".join(piece for piece, unseen in mark_invisible(every) if not unseen),
            "".join(c for c in every if c not in coded),
        )
        for char in every:
            if unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp", "Zs"} and char not in "\n \u3000":
                self.assertIn(char, coded, hex(ord(char)))
            elif unicodedata.category(char)[0] in {"L", "N", "P", "S"} and char in coded:
                self.assertIn(char, "\u115f\u1160\u3164\uffa0\u2800", hex(ord(char)))
        self.assertEqual(coded & set(map(chr, range(0x20, 0x7F))), set())
        self.assertEqual(str(ADMIN), told(str(ADMIN)))
