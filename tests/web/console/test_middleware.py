"""What all pages have in common, against those who attack them: forms of other sites, markup in names, frames, caches."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources
from typing import Final
from urllib.parse import quote, urlencode

from svc.web.console import links
from svc.web.console.rendering import NAVIGATION, mark_invisible
from svc.web.http.messages import Response
from svc.web.http.routing import SESSION, Call, Routes
from tests.web.console.world import HOST, ConsoleCase, MemoryBrowser, Page
from tests.web.declared import declared_pages
from tests.web.support import Answer, Client
from tests.web.world import ADMIN

POLICY: Final = """
- !user alice
- !policy { id: prod, body: [ !variable db ] }
- !variable secret
- !permit { role: !user alice, privileges: [ read ], resources: [ !variable prod/db ] }
"""

#: What a page could take for markup, or a browser for something else than text.
MARKUP: Final = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</title></style></textarea><svg/onload=alert(1)>",
    "&lt;b&gt; &amp; &#x3c;",
    "{{ 7*7 }}{% raw %}{#",
    "javascript:alert(1)",
    "a\r\nSet-Cookie: x=y\n\n<b>",
    "\u202egnp.exe\u2028\x01\u200b",
    "..",
    "../../secrets",
    "a//b/./c/",
    "%2e%2e%2f%00+;?#&=",
    "\U0001f511 schlüssel",
)

#: The headers of every page.
HEADERS: Final = {
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "content-type": "text/html; charset=utf-8",
}


class GateCase(ConsoleCase):
    """An account with a few things, and its admin signed in."""

    def setUp(self) -> None:
        """Load policy."""
        super().setUp()
        self.alice_key = self.api_key(self.load(POLICY), "acme:user:alice")
        self.set_value("prod/db", b"s3cret")
        self.admin = self.signed_in("admin", "1admin")

    def paths(self) -> list[str]:
        """A path of each page that can be opened."""
        names = {
            "resources": "acme:variable:prod/db",
            "roles": "acme:user:alice",
            "policies": "acme:policy:prod",
        }
        patterns = [route.pattern.text for _, route in declared_pages() if route.method == "GET"]
        patterns = [text.replace("<flat:kind>/<service_id>", "authn-jwt/ci") for text in patterns]
        return [re.sub("([a-z]+)/<tail:name>", lambda noun: f"{noun[1]}/{names[noun[1]]}", text) for text in patterns]


class HeadersTests(GateCase):
    """The headers of every page."""

    def assert_headers(self, answer: Answer) -> None:
        """Fail unless a page can't be framed, kept, or do anything but show itself."""
        for name, value in HEADERS.items():
            self.assertEqual(answer.headers.get(name), value, name)
        style = re.search(rb"<style>(.*?)</style>", answer.body, re.DOTALL)
        assert style is not None
        digest = base64.b64encode(hashlib.sha256(style[1]).digest()).decode()
        self.assertEqual(
            answer.headers["content-security-policy"],
            f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        )

    def test_pages(self) -> None:
        """Every page forbids all but its own style and forms to this server, frames, caches and referrers (CON-13)."""
        self.assertGreater(len(self.paths()), 6)
        for path in self.paths():
            self.assert_headers(self.admin.get(path).answer)

    def test_navigation(self) -> None:
        """Every page, refusals included, says who is signed in, and leads to all parts of the console and out of it
        (CON-16).
        """
        for path in (*self.paths(), "/ui/resources/acme:variable:none", "/ui/expiring?within=x"):
            page = self.admin.get(path)
            if path.startswith(links.SIGN_IN):
                continue  # nobody needs to be signed in there
            self.assertIn("Signed in as admin in acme", " ".join(page.text.split()), path)
            self.assertIn("/ui/roles/acme:user:admin", page.links, path)
            self.assertLessEqual({"/ui", *(each for _, each in NAVIGATION)}, set(page.links), path)
            self.assertEqual(page.forms["Search"][:2], ("/ui/resources", "get"), path)
            self.assertEqual(page.forms["Sign out"][:2], ("/ui/sign-out", "post"), path)

    def test_refusals(self) -> None:
        """So do refusals, and answers that lead elsewhere aren't kept either (CON-13)."""
        for path, status in (
            ("/ui/resources/acme:variable:none", 404),
            ("/ui/no-page", 404),
            ("/ui/resources?offset=x", 422),
            ("/ui/roles/acme:variable:prod/db", 404),
        ):
            answer = self.admin.ask("GET", path)
            self.assertEqual(answer.status, status, path)
            self.assert_headers(answer)
        answer = self.new_browser().ask("GET", "/ui")
        self.assertEqual((answer.status, answer.headers["cache-control"]), (303, "no-store"))
        self.assertEqual(answer.headers["referrer-policy"], "no-referrer")

    def test_methods(self) -> None:
        """So do answers to other methods, wherever in the console; ``HEAD`` has the headers of the page, and makes no press
        (CON-11, CON-13).
        """
        paths = [*self.paths(), "/ui/no-page", "/ui/", "/ui/change/load", "/ui/sign-out", "/ui/sign-in/provider"]
        for browser in (self.admin, self.new_browser()):
            for path in paths:
                for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "POST"):
                    answer = browser.ask(method, path, b"a=b" if method != "OPTIONS" else b"")
                    self.assertIn(answer.status, {303, 403, 404, 405}, (method, path))
                    if answer.status != 303:
                        self.assert_headers(answer)
                answer = browser.ask("HEAD", path)
                self.assertEqual(answer.headers.get("x-frame-options"), "DENY", path)
        self.assertEqual(self.admin.get("/ui").answer.status, 200)

    def test_bombs(self) -> None:
        """Forms with very many fields, or very long ones, are refused by pages, and quickly (CON-13, CON-17)."""
        token = self.admin.get("/ui/change").forms["Try it"][2]["token"].encode()
        for body, status in (
            (b"&".join(b"a%d=b" % number for number in range(100_000)), 413),
            (b"token=" + token + b"&a" * 30_000, 400),
            (b"token=" + token + b"&text=" + b"[" * 50_000, 422),
            (b"token=" + token + b"&mode=append&policy=" + b"x" * 5000, 422),
            (b"%" * 60_000, 400),
        ):
            answer = self.admin.ask("POST", "/ui/change", body)
            self.assertEqual(answer.status, status, body[:200])
            self.assert_headers(answer)

    def test_no_script(self) -> None:
        """No page loads, runs or styles anything but by its own style (CON-13)."""
        for path in self.paths():
            page = self.admin.get(path)
            tags = {tag for tag, _ in page.tags}
            self.assertEqual(
                tags & {"script", "img", "link", "iframe", "object", "embed", "base", "foreignobject", "use", "image"},
                set(),
                path,
            )
            for tag, attributes in page.tags:
                wrong = [name for name in attributes if name.startswith("on") or name in {"style", "srcdoc", "formaction"}]
                self.assertEqual(wrong, [], (path, tag))
                self.assertFalse((attributes.get("href") or "/").lower().startswith("javascript"), path)
                self.assertTrue((attributes.get("href") or "/").startswith(("/", "#")), (path, attributes))

    def test_bugs(self) -> None:
        """A bug is a page too, which tells nothing but the id that the log has it under (CON-17)."""

        class Broken:
            """A page with a bug."""

            routes = Routes()

            @routes.add("GET", "/ui/broken", caller=SESSION)
            async def show(self, call: Call) -> Response:
                """Fail."""
                raise ZeroDivisionError("a secret")

        client = Client(Broken(), console=self.gate)
        cookie = "; ".join(f"{name}={value}" for name, value in self.admin.cookies.items())
        answer = client.get("/ui/broken", headers=[("Cookie", cookie)])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(answer.status, 500)
        self.assert_headers(answer)
        self.assertNotIn(b"secret", answer.body)
        self.assertIn(f"{answer.headers['x-request-id']}</bdi>, for an operator".encode(), answer.body)
        self.assertRaises(TypeError, Client, Broken())


class FormsTests(GateCase):
    """Forms are sent by pages of this server, in the browser that they were made for."""

    def setUp(self) -> None:
        """Open the page of a variable."""
        super().setUp()
        self.page = self.admin.get("/ui/resources/acme:variable:prod/db")
        self.path, _, self.fields = self.page.forms["Show the value of version 1"]
        self.journal.told()

    def pressed(self, browser: MemoryBrowser | None = None, **fields: str | None) -> Answer:
        """Send the form, with other fields."""
        given = {name: value for name, value in {**self.fields, **fields}.items() if value is not None}
        return (browser or self.admin).ask("POST", self.path, urlencode(given).encode())

    def test_good(self) -> None:
        """The form of the page works (CON-11)."""
        self.assertIn(b"s3cret", self.pressed().body)

    def test_tokens(self) -> None:
        """Without the token of this session it is 403, and nothing is done: another session's, the sign-in's, none
        (CON-11).
        """
        other = self.signed_in("admin", "1admin").page.forms["Sign out"][2]["token"]
        visitor = self.new_browser().get("/ui/sign-in").forms["Sign in"][2]["token"]
        self.journal.told()
        for token in (None, "", "x", other, visitor, self.fields["token"][:-1]):
            answer = self.pressed(token=token)
            self.assertEqual(answer.status, 403, token)
            self.assertIn(b"This form is not taken", answer.body)
            self.assertNotIn(b"s3cret", answer.body)
        self.assertEqual(self.journal.told(), [])
        answer = self.admin.ask("POST", f"{self.path}?token={self.fields['token']}")
        self.assertEqual(answer.status, 403)

    def test_other_sites(self) -> None:
        """A form that another page sent is 403, whatever it knows: of another site, of a neighbour, of none (CON-11)."""
        for site, origin, status in (
            ("cross-site", "https://evil.example", 403),
            ("cross-site", f"https://{HOST}", 403),
            ("same-site", f"https://a.{HOST}", 403),
            ("none", "null", 403),
            ("same-origin", "null", 200),
            ("same-origin", f"https://{HOST}", 200),
            (None, f"https://{HOST}", 200),
            (None, f"http://{HOST}", 200),
            (None, "https://evil.example", 403),
            (None, f"https://{HOST}.evil.example", 403),
            (None, "null", 403),
            (None, None, 403),
        ):
            self.admin.headers = {"Sec-Fetch-Site": site, "Origin": origin}
            self.assertEqual(self.pressed().status, status, (site, origin))

    def test_origins_behind_a_proxy(self) -> None:
        """With public_url a form counts that comes from there, whatever Host a proxy sends (CFG-49)."""
        for public, origin, status in (
            ("https://secrets.example", "https://secrets.example", 200),
            ("https://secrets.example", "http://secrets.example", 403),
            ("https://secrets.example", f"https://{HOST}", 403),
            (None, "https://secrets.example", 403),
        ):
            self.public_url = public
            self.setUp()
            self.admin.headers = {"Sec-Fetch-Site": None, "Origin": origin}
            self.assertEqual(self.pressed().status, status, (public, origin))

    def test_sign_in(self) -> None:
        """The form to sign in is bound to the browser too: nobody can be signed in as somebody else unawares (CON-11)."""
        fields = {"account": "acme", "login": "alice", "evidence": self.alice_key}
        attacker, victim = self.new_browser(), self.new_browser()
        stolen = attacker.get("/ui/sign-in").forms["Sign in"][2]["token"]
        for browser in (self.new_browser(), victim):
            self.assertEqual(browser.send("/ui/sign-in", {**fields, "token": stolen}).answer.status, 403)
            browser.get("/ui/sign-in")
            self.assertEqual(browser.send("/ui/sign-in", {**fields, "token": stolen}).answer.status, 403)
        victim.get("/ui/sign-in")
        victim.headers = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
        self.assertEqual(victim.press("Sign in", **fields).answer.status, 403)
        self.assertEqual(self.journal.told(), [])

    def test_two_tabs(self) -> None:
        """A form to sign in that stands open in one tab works after another was opened (CON-11)."""
        browser = self.new_browser()
        token = browser.get("/ui/sign-in").forms["Sign in"][2]["token"]
        self.assertEqual(browser.get("/ui/sign-in").forms["Sign in"][2]["token"], token)

    def test_every_form(self) -> None:
        """Every press needs the token, and none is made by opening a page (CON-11)."""
        presses = [route for _, route in declared_pages() if route.method != "GET"]
        self.assertGreater(len(presses), 3)
        for route in presses:
            self.assertEqual(route.method, "POST")
            path = route.pattern.text.replace("<tail:name>", "acme:variable:prod/db")
            for browser in (self.admin, self.new_browser()):
                answer = browser.ask("POST", path, b"account=acme&login=admin&evidence=1admin")
                self.assertIn(answer.status, {403} if browser is self.admin else {303, 403}, path)
        self.assertEqual(self.journal.told(), [])


class RedirectsTests(GateCase):
    """Where a sign-in leads."""

    def test_elsewhere(self) -> None:
        """It leads to a page of the console and nowhere else (CON-2)."""
        for target in (
            "https://evil.example/",
            "//evil.example/ui",
            "/\\evil.example",
            "/ui/\\evil.example",
            "/ui//evil.example",
            "/ui/../secrets/acme/variable/db",
            "/ui/./policies",
            "/uix",
            "/ui.evil.example",
            "ui",
            "/secrets/acme/variable/db",
            "/ui/sign-out",
            "/ui/policies\r\nSet-Cookie: a=b",
            "/ui/policies\t",
            "javascript:alert(1)",
            "/ui/ü",
            "/ui?" + "x" * 3000,
            "",
        ):
            self.assertEqual(links.return_path(target), "/ui", target)
            browser = self.new_browser()
            browser.get(f"/ui/sign-in?to={quote(target, safe='')}")
            page = browser.press("Sign in", account="acme", login="alice", evidence=self.alice_key, to=target)
            self.assertEqual(page.path, "/ui", target)
        for target in ("/ui", "/ui/policies", "/ui/resources?search=a%20b", "/ui/resources/acme:variable:%2e", "/ui?x"):
            self.assertEqual(links.return_path(target), target)

    def test_after_it_ended(self) -> None:
        """A press after the session has ended leads to its page, once signed in again; it isn't made by that (CON-2)."""
        page = self.admin.get("/ui/resources/acme:variable:prod/db")
        self.clock.advance(self.console_idle + 1)
        path, _, fields = page.forms["Show the value of version 1"]
        answer = self.admin.ask("POST", path, urlencode(fields).encode())
        self.assertEqual(answer.headers["location"], "/ui/sign-in?to=/ui/resources/acme%3Avariable%3Aprod/db")
        page = self.admin.follow(answer, path)
        page = self.admin.press("Sign in", account="acme", login="admin", evidence="1admin")
        self.assertEqual(page.path, "/ui/resources/acme:variable:prod/db")
        self.assertNotIn("s3cret", page.text)

    def test_from_elsewhere(self) -> None:
        """Who follows a link from another site, with which no session is sent, can go on without signing in (CON-2)."""
        kept = self.admin.cookies
        self.admin.cookies = {}
        page = self.admin.get("/ui/policies")
        self.assertIn("/ui/policies", page.links)
        # Nothing took the session away that the browser has kept for itself.
        self.assertFalse([cookie for cookie in self.admin.set_cookies if "Max-Age=0" in cookie])
        self.admin.cookies = {**kept, **self.admin.cookies}
        self.assertEqual(self.admin.get("/ui/policies").answer.status, 200)
        self.assertIn("Signed in as admin", self.admin.page.text)


class MarkupTests(GateCase):
    """Names, annotations, values and words of a search are text, whatever they are."""

    def assert_harmless(self, page: Page, texts: tuple[str, ...]) -> None:
        """Fail if a text has made an element or an attribute, or isn't shown as it is."""
        for tag, attributes in page.tags:
            self.assertNotIn(tag, {"script", "img", "b", "textarea"})
            drawn = attributes.get("role") == "img" or set(attributes) == {"x", "y", "width", "height"}
            self.assertTrue(tag != "svg" or drawn, attributes)
            self.assertFalse([name for name in attributes if name.startswith("on")], attributes)
        for text in texts:
            self.assertIn("".join(piece for piece, _ in mark_invisible(text)), page.text)

    def test_stored(self) -> None:
        """What is stored is shown as it is, and every link leads to its thing (CON-14)."""
        for text in MARKUP:
            name, policy = f"acme:variable:x{text}", "acme:policy:root"
            for each in (name, f"acme:variable:{text}", f"acme:group:{text}"):
                self.memory.resources[each] = (str(ADMIN), policy)
            self.memory.annotations[name, text] = (text, policy)
            self.memory.permissions[name, text, "acme:user:alice"] = policy
            page = self.admin.get(links.resource(name))
            self.assertEqual(page.answer.status, 200, text)
            self.assert_harmless(page, (f"x{text}", text))
            page = self.admin.get(links.resource(f"acme:variable:{text}"))
            self.assertEqual(page.answer.status, 200, text)
            listing = self.admin.get("/ui/policies?kind=variable")
            self.assert_harmless(listing, (f"x{text}",))
            self.assertIn(links.resource(name), listing.links)

    def test_values(self) -> None:
        """A value is text, and what is none is shown in base64 (CON-12, CON-14)."""
        for text in MARKUP:
            self.set_value("prod/db", text.encode())
            page = self.admin.get("/ui/resources/acme:variable:prod/db")
            newest = next(button for button in page.forms if button.startswith("Show the value"))
            page = self.admin.press(newest)
            self.assert_harmless(page, ())
            self.assertIn(base64.b64encode(text.encode()).decode() if "\x01" in text else text, page.text)
        self.set_value("prod/db", b"\xff\x00")
        self.admin.get("/ui/resources/acme:variable:prod/db")
        newest = next(button for button in self.admin.page.forms if button.startswith("Show the value"))
        self.assertIn("/wA=", self.admin.press(newest).text)

    def test_reflected(self) -> None:
        """What a request says is text in its answer (CON-14)."""
        for text in MARKUP:
            said = quote(text, safe="")
            for path in (
                f"/ui/resources?search={said}",
                f"/ui/resources?search=x&offset={said}",
                f"/ui/resources?kind={said}",
                f"/ui/policies?after={said}",
                f"/ui/policies?kind={said}",
                f"/ui/resources/{said}",
                f"/ui/roles/acme:user:{said}",
                f"/ui/roles/acme:user:alice?cursor={said}",
                f"/ui/{said}",
            ):
                self.assert_harmless(self.admin.get(path), ())
            page = self.new_browser().get(f"/ui/sign-in?to={said}")
            self.assert_harmless(page, ())
            browser = self.new_browser()
            browser.get("/ui/sign-in")
            page = browser.press("Sign in", account=text, login=text, evidence=text)
            self.assert_harmless(page, ())
            self.assertEqual(page.answer.status, 401)

    def test_templates(self) -> None:
        """No template marks anything as safe, and all attributes are quoted, which escaping relies on (CON-14)."""
        found = 0
        for file in (resources.files("svc.web.console") / "templates").iterdir():
            text = file.read_text(encoding="utf-8")
            found += 1
            self.assertIsNone(re.search(r"\|\s*safe|autoescape|Markup|=\s*\{\{", text), file.name)
        self.assertGreater(found, 7)
