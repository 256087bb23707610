"""A provider of OpenID Connect that is not of this project's making, and a person who signs in there.

``RealProvider.start`` gets npm's ``oidc-provider`` from the registry, and skips the test, with the reason, where it can't be
had.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, Self
from urllib.parse import urljoin

import attrs
from treq.client import HTTPClient
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorProcess
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.utils import getProcessOutputAndValue
from twisted.python.failure import Failure
from twisted.trial.unittest import SkipTest, TestCase
from twisted.web.client import Agent

from tests.programs import require_programs

PACKAGE: Final = "oidc-provider@9.13.3"

_SCRIPT: Final = Path(__file__).with_name("oidc_provider.mjs")

_READY: Final = re.compile(rb"ready (\S+)\n")


class _Node(ProcessProtocol):
    """The process; ``ready`` fires with what its address is."""

    def __init__(self) -> None:
        self.ready: Deferred[str] = Deferred()
        self.ended: Deferred[None] = Deferred()
        self.said = b""

    def outReceived(self, data: bytes) -> None:
        """Find the address."""
        self.said += data
        if not self.ready.called and (found := _READY.search(self.said)):
            self.ready.callback(found[1].decode("ascii"))

    def errReceived(self, data: bytes) -> None:
        """Keep what it says."""
        self.said += data

    def processEnded(self, reason: Failure) -> None:
        """Tell that it has ended."""
        if not self.ready.called:
            self.ready.errback(AssertionError(f"the provider ended: {self.said.decode()}"))
        self.ended.callback(None)


@attrs.define
class RealProvider:
    """A provider that runs, and knows everybody who says a name."""

    issuer: str

    @classmethod
    async def start(cls, case: TestCase, *redirect_uris: str) -> Self:
        """Start one that sends browsers back to these addresses."""
        node, npm = require_programs("node", "npm")
        folder = Path(tempfile.mkdtemp())
        case.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        environment = {"PATH": f"{Path(npm).parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)}
        # Without one npm would look for it in the folders above; a prefix would hide the machine's own settings.
        (folder / "package.json").write_text("{}")
        options = ("--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--silent")
        _, said, code = await getProcessOutputAndValue(npm, ["install", *options, PACKAGE], environment, str(folder))
        if code or not (folder / "node_modules" / "oidc-provider").is_dir():
            raise SkipTest(f"npm can't get {PACKAGE}: {said.decode()[-300:]}")
        script = shutil.copy(_SCRIPT, folder)
        process = _Node()
        running = IReactorProcess(installed_reactor).spawnProcess(
            process, node, [node, str(script), *redirect_uris], env=environment, path=str(folder)
        )

        def stop() -> Deferred[None]:
            if not process.ended.called:
                os.kill(running.pid or 0, 15)
            return process.ended

        case.addCleanup(stop)
        return cls(await process.ready)


class _Forms(HTMLParser):
    """The first form of a page: where it goes, and what is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self._over = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a form and its fields."""
        given = {name: value or "" for name, value in attrs}
        if tag == "form" and self.action is None:
            self.action = given.get("action", "")
        elif tag == "input" and self.action is not None and not self._over and "name" in given:
            self.fields[given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        """End the form."""
        self._over = self._over or tag == "form"


class Person:
    """A person with a browser, who fills in every form that comes with their name and goes on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._http = HTTPClient(Agent(installed_reactor))

    async def visit(self, url: str, until: str = "\0", **given: str) -> tuple[str, str]:
        """Go on from this address; return where it ended, at an address that begins with ``until`` or where there is no
        form any more, and the page. ``given`` are fields to fill in, such as the code of a device.
        """
        method, fields = "GET", dict[str, str]()
        for _ in range(20):
            if url.startswith(until):
                return url, ""
            response = await self._http.request(
                method, url, data=fields if method == "POST" else None, allow_redirects=False, unbuffered=False
            )
            page = await response.text()
            if location := response.headers.getRawHeaders("location"):
                url, method = urljoin(url, location[0]), "GET"
                continue
            forms = _Forms()
            forms.feed(page)
            if forms.action is None:
                return url, page
            answers = {"login": self.name, "password": "any", **given}
            fields = {name: answers.get(name) or value for name, value in forms.fields.items()}
            url, method = urljoin(url, forms.action or url), "POST"
        raise AssertionError(f"no end of pages at {url}")
