"""Tests of ``svc.web.routes.status``."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from svc._version import VERSION
from svc.model.dialect import CONJUR, NATIVE
from tests.web.world import ADMIN, WorldCase, user


class Page(HTMLParser):
    """What is on a page: the tags that were opened, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.opened.append((tag, dict(attrs)))


class StatusTests(WorldCase):
    """The status page, and what there is to know (WIRE-49 and WIRE-50)."""

    version = VERSION
    service, prefix = "svc", "svc"

    def test_page(self) -> None:
        """Without a login a page says that the service is running, and its version where clients look for it (WIRE-49)."""
        answer = self.client.get("/")
        self.assertEqual((answer.status, answer.headers["content-type"]), (200, "text/html; charset=utf-8"))
        text = answer.body.decode()
        self.assertIn("is running!", text)
        found = re.search(r"<dd>\s*Version\s*([^\s<]+)\s*</dd>", text)
        assert found is not None
        self.assertEqual(found[1], self.version)
        self.assertRegex(text, r"Version\s+\d+\.\d+\.\d+")
        self.assertEqual(self.client.head("/").status, 200)

    def test_page_is_accessible(self) -> None:
        """The page has a language, a title, one heading in its main part, and leaves size and colours to the reader."""
        page = Page(self.client.get("/").body.decode())
        tags = [tag for tag, _ in page.opened]
        self.assertEqual([tags.count(tag) for tag in ("title", "main", "h1")], [1, 1, 1])
        self.assertEqual(dict(page.opened)["html"], {"lang": "en"})
        metas = {attributes.get("name"): attributes.get("content") for tag, attributes in page.opened if tag == "meta"}
        self.assertEqual(metas["viewport"], "width=device-width")
        self.assertEqual(metas["color-scheme"], "light dark")

    def test_page_is_quiet(self) -> None:
        """The page loads nothing, runs nothing and can be framed by nobody."""
        answer = self.client.get("/")
        page = Page(answer.body.decode())
        self.assertEqual({"script", "img", "link", "iframe", "form"} & {tag for tag, _ in page.opened}, set())
        self.assertEqual([name for _, found in page.opened for name in found if name in {"src", "href", "onload"}], [])
        self.assertIn("default-src 'none'", answer.headers["content-security-policy"])
        self.assertIn("frame-ancestors 'none'", answer.headers["content-security-policy"])

    def test_json(self) -> None:
        """A client that accepts JSON is told the version in JSON, and nothing else (WIRE-49)."""
        for accepted in ("application/json", "text/html, application/json;q=0.9", "application/x.v2+json"):
            answer = self.client.get("/", headers=[("Accept", accepted)])
            self.assertEqual(answer.json(), {"version": self.version})
            self.assertEqual(answer.headers["vary"], "Accept")
        self.assertEqual(self.client.get("/", headers=[("Accept", "*/*")]).headers["vary"], "Accept")

    def test_without_a_store(self) -> None:
        """The page needs nothing: it is there while the store is away, and whatever token comes with the request
        (WIRE-49).
        """
        self.memory.down = True
        self.assertEqual(self.client.get("/", headers=[("Authorization", "Token nonsense")]).status, 200)
        self.assertEqual(self.client.get("/?x=y").status, 200)
        self.assertEqual(self.client.post("/").status, 404)

    def test_info(self) -> None:
        """Who has a token is told what this server is, and what its authenticators are (WIRE-50)."""
        answer = self.client.get("/info", role=ADMIN)
        self.assertEqual(
            answer.json(),
            {
                "version": self.version,
                "role": "primary",
                "authenticators": self.client.get("/authenticators").json(),
                "configuration": {self.prefix: {"account": "acme"}},
                "services": {self.service: {"version": self.version}},
            },
        )
        self.assertIn("authn-jwt", answer.json()["authenticators"]["installed"])

    def test_info_of_a_follower(self) -> None:
        """A server on a standby says that it is a follower (CLU-1)."""
        self.memory.standby = True
        self.assertEqual(self.client.get("/info", role=ADMIN).json()["role"], "follower")

    def test_no_info(self) -> None:
        """Without a token it is 401, with that of a role that is gone 403, and 503 while the store is away (WIRE-50)."""
        self.assertEqual(self.client.get("/info").status, 401)
        self.assertEqual(self.client.get("/info", role=user("gone")).status, 403)
        self.assertEqual(self.client.post("/info", role=ADMIN).status, 404)
        self.memory.down = True
        self.assertEqual(self.client.get("/info", role=ADMIN).status, 503)


class ConjurStatusTests(StatusTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR
    version = CONJUR.reported_version or ""
    service, prefix = "possum", "conjur"

    def test_gates(self) -> None:
        """The version is one that clients of the installed base know, and not the program's own (WIRE-49)."""
        self.assertEqual(self.version, "1.23.0")
        self.assertNotEqual(self.version, NATIVE.reported_version)
