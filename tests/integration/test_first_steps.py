"""``docs/start/first-steps.md``, done word by word: its commands in a shell, its policy in a file."""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
from pathlib import Path
from typing import Final

from twisted.internet.utils import getProcessOutputAndValue

import svc
from tests.integration.process import ServerTestCase
from tests.integration.test_cli import CommandTestCase
from tests.programs import explain_missing
from tests.test_docs import commands

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "start" / "first-steps.md"

#: The program of the Python that runs the tests, as a command.
_PROGRAM: Final = """\
#!/bin/sh
exec {python} -c 'from svc.cli.main import main; main()' "$@"
"""


def _missing() -> str | None:
    return explain_missing("bash", "curl", "openssl") or CommandTestCase.skip


class FirstStepsTests(ServerTestCase):
    """What a newcomer does after the installation."""

    skip = _missing()

    async def test_page(self) -> None:
        """The page's commands, one block after the other, lead from nothing to a secret in a job's environment."""
        text = PAGE.read_text(encoding="utf-8")
        first, *blocks = re.findall(r"(?ms)^```sh\n(.*?)^```$", text)
        [policy] = re.findall(r"(?ms)^```yaml\n(.*?)^```$", text)
        [(program, command, *options)] = commands(first)
        self.assertEqual((program, command), ("svc", "server"))
        server = self.serve(*options)
        url = await server.ready()
        folder = Path(self.mktemp()).resolve()
        folder.mkdir(parents=True)
        (folder / "policy.yml").write_text(policy)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            provider = str(free.getsockname()[1])
        script = "".join(blocks).replace("http://127.0.0.1:8080", url).replace("127.0.0.1:8089", f"127.0.0.1:{provider}")
        script = script.replace("svc provider serve", f"svc provider serve --port {provider}")
        script = script.replace("svc provider token", f"svc provider token --issuer http://127.0.0.1:{provider}")
        (folder / "steps.sh").write_text(f"set -euo pipefail\ntrap 'kill $(jobs -p)' EXIT\n{script}")
        (folder / "svc").write_text(_PROGRAM.format(python=shlex.quote(sys.executable)))
        (folder / "svc").chmod(0o755)
        surroundings = {
            "PYTHONPATH": str(Path(svc.__file__).resolve().parent.parent),
            "PATH": f"{folder}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
        }
        given = f"admin\n{server.admin_key()}\n".encode()
        out, err, code = await getProcessOutputAndValue("bash", ["steps.sh"], surroundings, str(folder), stdinBytes=given)
        self.assertEqual(code, 0, (out, err))
        self.assertRegex(out.decode(), r"The password is [A-Za-z0-9+/]{32}\n")
