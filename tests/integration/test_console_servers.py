"""The console of two servers in a real browser: on a read-only follower, and behind the sample proxy."""

from __future__ import annotations

from tests.integration.browser import Browser
from tests.integration.process import beat
from tests.integration.proxied_pair import ProxiedPairTestCase

VARIABLE = "/ui/resources/acme:variable:v"


class ServersTests(ProxiedPairTestCase):
    """A primary and a follower with the console, behind the proxy."""

    timeout = 300
    options = ("--console",)

    async def press(self, browser: Browser, selector: str, told: str) -> None:
        """Click on something, and wait until the page says this."""
        await browser.click(selector)
        while told not in await browser.evaluate("return document.body.innerText"):
            await beat()

    async def sign_in(self, browser: Browser, url: str) -> None:
        """Sign the admin in."""
        await browser.open(url)
        for field, text in (("#account", "acme"), ("#login", "admin"), ("#evidence", self.key)):
            await browser.fill(field, text)
        await self.press(browser, 'form[action="/ui/sign-in"][method="post"] button', "Signed in as admin")

    async def try_change(self, browser: Browser, url: str, told: str) -> None:
        """Try a change."""
        await browser.open(f"{url}/ui/change")
        await browser.fill("#text", "- !user carol")
        await self.press(browser, 'form[action="/ui/change"] button', told)

    async def test_follower(self) -> None:
        """On a follower one signs in, looks, and is shown a value; the session is one of the primary, too; what changes
        something is refused in words (CON-10).
        """
        primary, follower = (f"https://127.0.0.1:{port}" for port in self.ports)
        browser = await Browser.start(self)
        await self.sign_in(browser, f"{follower}{VARIABLE}")
        await self.press(browser, 'button[aria-label="Show the value of version 1"]', "kept")
        await self.try_change(browser, follower, "It is a follower, and changes nothing")
        await self.try_change(browser, primary, "Created: 1")
        await browser.open(f"{follower}/ui")
        await self.press(browser, 'form[action="/ui/sign-out"] button', "You are signed out")
        await browser.open(f"{primary}/ui")
        self.assertEqual(await browser.evaluate("return location.pathname"), "/ui/sign-in")

    async def test_proxy(self) -> None:
        """Behind the sample proxy one session is of both servers, and each press is made where it can be (CON-10)."""
        url = f"https://127.0.0.1:{self.proxy.port}"
        browser = await Browser.start(self)
        await self.sign_in(browser, f"{url}{VARIABLE}")
        for _ in range(6):
            await browser.open(f"{url}{VARIABLE}")
            await self.press(browser, 'button[aria-label="Show the value of version 1"]', "kept")
            await self.try_change(browser, url, "Created: 1")
        await self.press(browser, 'form[action="/ui/change/load"] button', "They are shown here and nowhere again")
        backends = {backend for request, backend in self.proxy.routed() if request.startswith("POST /ui/")}
        self.assertEqual(backends, {"any", "primary"})
