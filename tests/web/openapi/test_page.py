"""Tests of ``svc.web.openapi.page``: the page for people."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

from svc.web.openapi.document import iterate_operations
from svc.web.openapi.page import format_schema, render_page, split_code
from tests.web.world import WorldCase


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the ids."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.ids = [attributes["id"] for _, attributes in self.found if "id" in attributes]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep it."""
        self.found.append((tag, dict(attrs)))


class PageTests(WorldCase):
    """The page of a server."""

    def test_shown(self) -> None:
        """OAS-10: every operation is shown under its name, and no id is given twice."""
        page = self.client.get("/docs")
        self.assertEqual((page.status, page.headers["content-type"]), (200, "text/html; charset=utf-8"))
        found = Elements(page.body.decode("utf-8"))
        names = {operation["operationId"] for _, _, operation in iterate_operations(self.client.get("/openapi.json").json())}
        self.assertEqual(names - set(found.ids), set())
        self.assertEqual(len(found.ids), len(set(found.ids)))

    def test_alone(self) -> None:
        """OAS-10: the page loads and runs nothing: it has no element for that, and its policy forbids all but one style."""
        page = self.client.get("/docs")
        found = Elements(page.body.decode("utf-8"))
        self.assertEqual(
            {tag for tag, _ in found.found} & {"script", "link", "img", "iframe", "form", "object", "base"}, set()
        )
        named = {name for _, attributes in found.found for name in attributes}
        self.assertEqual({name for name in named if name.startswith("on") or name in {"src", "style", "srcset"}}, set())
        links = {attributes["href"] or "" for tag, attributes in found.found if tag == "a"}
        self.assertEqual({link for link in links if not link.startswith("#")}, {"/openapi.json"})
        [style] = re.findall(r"<style>(.*?)</style>", page.body.decode("utf-8"), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
        policy = page.headers["content-security-policy"]
        self.assertEqual(
            policy,
            f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        )

    def test_kept(self) -> None:
        """OAS-10: a browser that has the page is told so."""
        tag = self.client.get("/docs").headers["etag"]
        self.assertEqual(self.client.get("/docs", headers=[("If-None-Match", tag)]).status, 304)

    def test_as_it_is_taken(self) -> None:
        """OAS-12: for a client that takes nothing little is kept, and it gets the whole once it takes it."""
        for path in ("/docs", "/openapi.json"):
            whole = self.client.get(path).body
            connection = self.client.connect()
            connection.stall()
            connection.send(f"GET {path} HTTP/1.1\r\nHost: svc.example\r\n\r\n".encode())
            self.assertLess(len(connection.sent), len(whole) / 4)
            connection.resume()
            self.assertEqual(connection.answer().body, whole)
            self.assertEqual(self.client.head(path).status, 200)

    def test_escaped(self) -> None:
        """What the document says is text on the page, whatever it looks like."""
        document = self.client.get("/openapi.json").json()
        document["paths"] = {"/docs": document["paths"]["/docs"]}
        document["paths"]["/docs"]["get"]["summary"] = "<script>`<b>`</script>"
        page, _ = render_page(document)
        self.assertIn(b"&lt;script&gt;<code>&lt;b&gt;</code>&lt;/script&gt;", page)

    def test_words(self) -> None:
        """Schemas are told in few words, and what stands between backticks is code."""
        for schema, words in (
            ({"type": ["string", "null"]}, "string | null"),
            ({"type": "integer", "minimum": 1, "maximum": 9}, "integer ≥ 1, ≤ 9"),
            ({"type": "string", "enum": ["", "true"]}, '"" | "true"'),
            ({"type": "array", "items": {"$ref": "#/components/schemas/Refusal"}}, "[Refusal]"),
            ({"anyOf": [{}, {"type": "null"}]}, "any | null"),
            (
                {"type": "object", "properties": {"a": {}, "b": {"type": "string"}}, "required": ["b"]},
                "{a?: any, b: string}",
            ),
            ({"type": "object", "additionalProperties": {"type": "string"}}, "{…: string}"),
        ):
            self.assertEqual(format_schema(schema), words)
        self.assertEqual(split_code("a `b` c"), [("a ", False), ("b", True), (" c", False)])
