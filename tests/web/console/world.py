"""The console in memory, on the account ``acme``, and a browser: it keeps cookies, follows redirects and sends forms."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import urlencode

from svc.crypto.console_cookies import ConsoleCookies
from svc.web.console.middleware import ConsoleMiddleware
from svc.web.http.refusal_recorder import RefusalRecorder
from tests.web.support import PEER, Answer, Client
from tests.web.world import ADMIN_KEY, WorldCase

HOST: Final = "svc.example"


class Page:
    """A page as a browser has it: its elements, its text, and its forms by the words of their buttons; read on first use."""

    def __init__(self, answer: Answer, path: str) -> None:
        self.answer = answer
        self.path = path

    @functools.cached_property
    def _read(self) -> _Reader:
        reader = _Reader()
        reader.feed(self.answer.body.decode())
        return reader

    @property
    def tags(self) -> list[tuple[str, dict[str, str | None]]]:
        """Its elements with their attributes."""
        return self._read.tags

    @property
    def text(self) -> str:
        """Its text."""
        return self._read.text

    @property
    def forms(self) -> dict[str, tuple[str, str, dict[str, str]]]:
        """Address, method and fields of its forms, by the words of their buttons."""
        return self._read.forms

    @property
    def words(self) -> str:
        """Its text without the id of its request, which no two have."""
        return self.text.replace(f"Request {self.answer.headers['x-request-id']}, for", "Request, for")

    @property
    def links(self) -> list[str]:
        """Where its links lead."""
        return [attributes["href"] or "" for tag, attributes in self.tags if tag == "a"]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.forms: dict[str, tuple[str, str, dict[str, str]]] = {}
        self._form: tuple[str, str, dict[str, str]] | None = None
        self._button: str | None = None
        self._has_label = False
        self._style = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Keep an element."""
        given = dict(attributes)
        self.tags.append((tag, given))
        if tag == "form":
            self._form = given["action"] or "", given["method"] or "", {}
        elif tag == "input" and self._form is not None and given.get("name"):
            self._form[2][given["name"] or ""] = given.get("value") or ""
        elif tag == "button":
            self._button = given.get("aria-label") or ""
            self._has_label = bool(self._button)
        self._style = tag == "style"

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        if not self._style:
            self.text += data
        if self._button is not None and not self._has_label:
            self._button += data

    def handle_endtag(self, tag: str) -> None:
        """Keep the form whose button ends."""
        if tag == "button" and self._form is not None and self._button is not None:
            self.forms[self._button] = self._form
            self._button = None
        self._style = self._style and tag != "style"


class MemoryBrowser:
    """A browser that shows one page after the other. ``headers`` are sent instead of those that it would send itself."""

    def __init__(self, client: Client, host: str = HOST, peer: str = PEER) -> None:
        self.client = client
        self.cookies: dict[str, str] = {}
        self.headers: dict[str, str | None] = {}
        self.set_cookies: list[str] = []
        self._host = host
        self._peer = peer
        self._page: Page | None = None

    @property
    def page(self) -> Page:
        """The page that it shows."""
        assert self._page is not None
        return self._page

    def get(self, path: str, **more: Any) -> Page:
        """Open a page, and follow where it leads."""
        return self.follow(self.ask("GET", path, **more), path)

    def press(self, button: str, **fields: str) -> Page:
        """Press a button of the page that is shown, with the fields of its form filled in."""
        path, method, given = self.page.forms[button]
        return (
            self.send(path, {**given, **fields})
            if method == "post"
            else self.get(f"{path}?{urlencode({**given, **fields})}")
        )

    def send(self, path: str, fields: Mapping[str, str]) -> Page:
        """Send a form, and follow where it leads."""
        return self.follow(self.ask("POST", path, urlencode(fields).encode()), path)

    def sign_in(self, login: str = "admin", evidence: str = ADMIN_KEY, account: str = "acme", path: str = "/ui") -> Page:
        """Open a page, and sign in on the way."""
        self.get(path)
        return self.press("Sign in", account=account, login=login, evidence=evidence)

    def ask(self, method: str, target: str, body: bytes = b"", **more: Any) -> Answer:
        """Send a request as a browser does, and keep the cookies of its answer."""
        headers: dict[str, str | None] = {"Sec-Fetch-Site": "same-origin" if self._page else "none"}
        if method == "POST":
            # Of the policy no-referrer.
            headers |= {"Origin": "null", "Content-Type": "application/x-www-form-urlencoded"}
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers |= self.headers
        lines = [f"{name}: {value}" for name, value in {"Host": self._host, **headers}.items() if value is not None]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""])
        connection = self.client.connect(self._peer).send(head.encode() + body)
        self.client.clock.advance(0)
        answer = connection.answer(head=method == "HEAD")
        connection.leave()
        self._keep(answer.headers.get("set-cookie"))
        return answer

    def follow(self, answer: Answer, path: str) -> Page:
        """Show an answer, after those that it leads to."""
        for _ in range(5):
            if answer.status != 303:
                break
            path = answer.headers["location"]
            answer = self.ask("GET", path)
        self._page = Page(answer, path)
        return self._page

    def _keep(self, cookie: str | None) -> None:
        if cookie is None:
            return
        self.set_cookies.append(cookie)
        pair, *attributes = cookie.split("; ")
        name, _, value = pair.partition("=")
        lax = {"Path=/ui/sign-in/callback", "SameSite=Lax", "Max-Age=300"}
        own = lax if name.endswith("svc-console-provider") else {"Path=/ui", "SameSite=Strict"}
        assert {"Secure", "HttpOnly", *own} <= set(attributes), cookie
        if "Max-Age=0" in cookie:
            self.cookies.pop(name, None)
        else:
            self.cookies[name] = value


class ConsoleCase(WorldCase):
    """A test of the console: ``self.browser`` hasn't signed in."""

    console = True

    def setUp(self) -> None:
        """Make the world, and its console beside it."""
        super().setUp()
        self.server.singletons.checks_loop.startService()
        self.addCleanup(self.server.singletons.checks_loop.stopService)
        self.authenticators, self.cookies = self.server.federated_services, ConsoleCookies(self.vault)
        gate, pages = self.server.console
        assert isinstance(gate, ConsoleMiddleware)
        self.gate = gate
        self.web = Client(
            *pages,
            console=self.gate,
            journal=self.journal,
            ensure_writable=self.memory.ensure_writable,
            dialect=self.dialect,
            refused=RefusalRecorder(self.refusals, self.clock),
        )
        self.browser = self.new_browser()

    def new_browser(self, **more: Any) -> MemoryBrowser:
        """A browser that hasn't signed in."""
        return MemoryBrowser(self.web, **more)

    def signed_in(self, login: str, evidence: str, **more: Any) -> MemoryBrowser:
        """A browser in which a role has signed in."""
        browser = self.new_browser(**more)
        page = browser.sign_in(login, evidence)
        self.assertEqual((page.answer.status, page.path), (200, "/ui"), page.text)
        return browser

    def api_key(self, loaded: Answer, role: str) -> str:
        """The API key of a role that a load made."""
        key: str = loaded.json()["created_roles"][role]["api_key"]
        return key
