"""A browser for tests: Chromium without a screen, driven over the WebDriver protocol, which is HTTP and JSON.

``Browser.start`` skips the test, with the reason, where there is no Chromium; where tests may not be skipped, that fails.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from base64 import b64decode
from typing import Any, Final

import treq
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.interfaces import IReactorProcess, IReactorTCP
from twisted.internet.protocol import ProcessProtocol, ServerFactory
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests.integration.process import beat
from tests.programs import require_programs

#: Nothing of the browser's own goes over any network.
_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)

#: The key under which the protocol names an element.
_ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"


class _Driver(ProcessProtocol):
    """The process of the driver."""

    def __init__(self) -> None:
        self.ended: Deferred[None] = Deferred()

    def processEnded(self, reason: Failure) -> None:
        """Note that it has."""
        self.ended.callback(None)


class Browser:
    """One window."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._session = ""

    @classmethod
    async def start(cls, case: TestCase) -> Browser:
        """Open a window, which closes when the test ends."""
        chromium, driver = require_programs("chromium", "chromedriver")
        port: Any = IReactorTCP(installed_reactor).listenTCP(0, ServerFactory(), interface="127.0.0.1")
        number = port.getHost().port
        await port.stopListening()
        # The browser has a socket there, whose path may not be long.
        folder = tempfile.mkdtemp()
        process = _Driver()
        environment = {"PATH": os.defpath, "HOME": folder, "TMPDIR": folder}
        arguments = [driver, f"--port={number}", "--silent"]
        transport = IReactorProcess(installed_reactor).spawnProcess(process, driver, arguments, environment, folder)

        def end() -> Deferred[None]:
            transport.signalProcess("TERM")
            return process.ended

        case.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        case.addCleanup(end)
        browser = cls(f"http://127.0.0.1:{number}")
        options = {"binary": chromium, "args": [*_OPTIONS, f"--user-data-dir={folder}/profile"]}
        wanted = {"capabilities": {"alwaysMatch": {"acceptInsecureCerts": True, "goog:chromeOptions": options}}}
        for _ in range(200):
            try:
                browser._session = f"/session/{(await browser._ask('POST', '/session', wanted))['sessionId']}"
                break
            except Refused:
                await beat()
        case.addCleanup(lambda: Deferred.fromCoroutine(browser._ask("DELETE", browser._session)))
        return browser

    async def look(self, *, width: int, height: int = 700, dark: bool = False) -> None:
        """Be a window of this size, on a light or a dark desktop."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.command("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", {"features": [scheme]})

    async def command(self, name: str, parameters: dict[str, Any]) -> Any:
        """Give the browser one of its own commands."""
        return await self._ask("POST", f"{self._session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    async def open(self, url: str) -> None:
        """Open a page."""
        await self._ask("POST", f"{self._session}/url", {"url": url})

    async def evaluate(self, script: str) -> Any:
        """What the body of a function returns, run from outside of the page."""
        return await self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    async def roles(self, selector: str) -> list[tuple[str, str]]:
        """The roles of elements and their names, as the browser tells them to a screen reader."""
        found = await self._ask("POST", f"{self._session}/elements", {"using": "css selector", "value": selector})
        elements = [f"{self._session}/element/{each[_ELEMENT]}" for each in found]
        return [
            (await self._ask("GET", f"{e}/computedrole"), await self._ask("GET", f"{e}/computedlabel")) for e in elements
        ]

    async def fill(self, selector: str, text: str) -> None:
        """Type a text into the one field that fits, key by key."""
        await self._ask("POST", f"{await self._element(selector)}/value", {"text": text})

    async def click(self, selector: str) -> None:
        """Click on the one element that fits, and wait for the page that it leads to."""
        await self._ask("POST", f"{await self._element(selector)}/click", {})

    async def _element(self, selector: str) -> str:
        found = await self._ask("POST", f"{self._session}/elements", {"using": "css selector", "value": selector})
        assert len(found) == 1, f"{len(found)} elements fit {selector}"
        return f"{self._session}/element/{found[0][_ELEMENT]}"

    async def screenshot(self) -> bytes:
        """A picture of the window, as PNG."""
        return b64decode(await self._ask("GET", f"{self._session}/screenshot"))

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        headers: dict[bytes | str, bytes | str] = {"Content-Type": "application/json"}
        response = await treq.request(method, self._driver + path, data=content, headers=headers, persistent=False)
        answer = json.loads(await treq.content(response))["value"]
        assert response.code == 200, answer
        return answer
