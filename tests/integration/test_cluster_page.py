"""The page of the cluster in a real browser: what it computes, not what the text of the page intends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from tests.integration.browser import Browser
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import ServerTestCase
from tests.integration.test_remote_health import Member, _answer

#: The contrast that WCAG 2.2 asks of text at level AA.
CONTRAST: Final = 4.5

SERVICES: Final = b'"core": "ok", "authn": "ok", "authz": "ok", "expiration": "ok", "pubkeys": "ok", "audit": "ok"'
WELL: Final = _answer(
    "200 OK",
    b'{"ok": true, "services": {' + SERVICES + b', "ok": true}, "database": {"ok": true, "connect": {"main": "ok"},'
    b' "replication_status": {"lag_seconds": 0.4, "lag_bytes": 18432}}}',
)
ILL: Final = _answer(
    "502 Bad Gateway",
    b'{"ok": false, "services": {' + SERVICES + b', "<img src=x onerror=f()>": "failed", "ldap": "failed",'
    b' "ok": false}, "database": {"ok": true, "connect": {"main": "ok"}, "replication_status": {}}}',
)

#: The least contrast of a text on the page with what lies behind it, each by the browser's own computation.
_LEAST_CONTRAST: Final = """
const read = text => text.match(/[0-9.]+/g).map(Number);
const light = rgb => rgb.slice(0, 3).map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = e => { for (; e; e = e.parentElement) { const c = read(getComputedStyle(e).backgroundColor);
  if (c.length == 3 || c[3] == 1) return c; } return [255, 255, 255]; };
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let least = 99, count = 0;
while (walk.nextNode()) { if (!walk.currentNode.data.trim()) continue;
  const e = walk.currentNode.parentElement, a = light(read(getComputedStyle(e).color)), b = light(ground(e));
  least = Math.min(least, (Math.max(a, b) + .05) / (Math.min(a, b) + .05)); count++; }
return [least, count];
"""


class ClusterPageTests(PostgresTestCase, ServerTestCase):
    """A server with four others: well, ill, hanging, and of a long name."""

    async def test_page(self) -> None:
        """The page is readable in both schemes, fits a phone, says to screen readers what it shows, and runs nothing
        (HEALTH-24).
        """
        browser = await Browser.start(self)
        members = {
            "b.svc.example": Member(self, WELL),
            "c.svc.example": Member(self, ILL),
            "d.svc.example": Member(self, b"SSH-2.0-x\r\n"),
            "long-" + "x" * 50 + ".svc.example": Member(self, WELL),
        }
        listed = ",".join(f"{name}={member.url}" for name, member in members.items())
        server = self.serve("--cluster", listed, database_url=await self.create_database(migrated=False))
        url = f"{await server.ready()}/ui/health"
        for width, dark in ((1180, False), (1180, True), (360, False), (360, True)):
            await browser.look(width=width, dark=dark)
            await browser.open(url)
            least, count = await browser.evaluate(_LEAST_CONTRAST)
            self.assertGreater(count, 60)
            self.assertGreaterEqual(least, CONTRAST, (width, dark))
            wide = await browser.evaluate("return [document.documentElement.scrollWidth, innerWidth]")
            self.assertLessEqual(wide[0], wide[1], (width, dark))
            dim = await browser.evaluate("return getComputedStyle(document.body).backgroundColor")
            self.assertEqual(dim == "rgb(20, 22, 26)", dark)
            await self.read(browser, len(members) + 1)
            await self.keep(await browser.screenshot(), f"cluster-{width}-{'dark' if dark else 'light'}.png")
        for width in (300, 520, 700, 840, 1000, 1600):
            await browser.look(width=width)
            wide = await browser.evaluate("return [document.documentElement.scrollWidth, innerWidth]")
            self.assertLessEqual(wide[0], wide[1], width)
            await self.keep(await browser.screenshot(), f"cluster-{width}.png")
        self.assertEqual(await browser.evaluate("return document.title"), "2 not ok: cluster")
        self.assertEqual(await browser.evaluate("return document.images.length + document.scripts.length"), 0)

    async def read(self, browser: Browser, servers: int) -> None:
        """The page has its landmarks and its table, whatever the width."""
        landmarks = [role for role, _ in await browser.roles("header, main, footer, h1, table")]
        self.assertEqual(landmarks, ["banner", "heading", "main", "table", "contentinfo"])
        heads: list[Any] = await browser.roles("tbody th")
        self.assertEqual([role for role, _ in heads], ["rowheader"] * servers)
        self.assertEqual([name for _, name in heads][:2], ["this server", "b.svc.example"])
        self.assertEqual({role for role, _ in await browser.roles("tbody td")}, {"cell"})
        self.assertEqual({role for role, _ in await browser.roles("tr")} - {"row", "none", "generic"}, set())
        self.assertEqual({role for role, _ in await browser.roles("ul")}, {"list"})

    async def keep(self, picture: bytes, name: str) -> None:
        """Keep a picture where the test runs, for who wants to look at it."""
        folder = Path("pictures")
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(picture)
        self.assertGreater(os.path.getsize(folder / name), 1000)
