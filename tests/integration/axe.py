"""axe-core, the checker of accessibility, from the registry of npm: its script, run in a page from outside."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SkipTest, TestCase

from tests.integration.browser import Browser
from tests.programs import require_programs

PACKAGE: Final = "axe-core@4.14.1"

#: What it looks for: all rules of WCAG 2.2 up to AA, and what else is good practice.
_RUN: Final = """
return await axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.map(
  each => [each.id, each.help, each.nodes.map(node => node.html).slice(0, 3)]));
"""


async def axe_script(case: TestCase) -> str:
    """The script, from the registry; skips the test, with the reason, where it can't be had."""
    [npm] = require_programs("npm")
    folder = Path(tempfile.mkdtemp())
    case.addCleanup(shutil.rmtree, folder, ignore_errors=True)
    environment = {"PATH": f"{Path(npm).parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)}
    _, said, code = await getProcessOutputAndValue(npm, ["pack", PACKAGE, "--silent"], environment, str(folder))
    archives = list(folder.glob("*.tgz"))
    if code or not archives:
        raise SkipTest(f"npm can't get {PACKAGE}: {said.decode()[-300:]}")
    with tarfile.open(archives[0]) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode("utf-8")


async def violations(browser: Browser, script: str) -> list[Any]:
    """Return what the page violates that is shown, with some of the elements; the page gets the script once."""
    if not await browser.evaluate("return typeof window.axe === 'object'"):
        await browser.evaluate(script)
    found: list[Any] = await browser.evaluate(_RUN)
    return found
