"""The samples: ``etc/agent.toml``, the unit, and the configurations of the guide."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from svc.agent.configuration import CLOUDS, AgentConfiguration, read_configuration
from tests.agent.scene import AgentCase
from tests.programs import require_programs
from tests.web.world import WorldCase

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "etc" / "agent.toml"
UNIT = ROOT / "etc" / "systemd" / "svc-agent.service"
GUIDE = ROOT / "docs" / "guides" / "agent.md"


class GuideTests(WorldCase):
    """The policy of the guide."""

    def test_policy(self) -> None:
        """It loads, and its host may read the password."""
        [policy] = re.findall(r"(?ms)^```yaml\n(.*?)^```$", GUIDE.read_text())
        self.load(policy)
        self.assertIn(("acme:variable:shop/database/password", "execute", "acme:host:shop/web"), self.memory.permissions)


class SamplesTests(AgentCase):
    """What operators begin with."""

    def read(self, text: str) -> AgentConfiguration:
        """Read a configuration; the users that it names are root here."""
        path = self.folder / "agent.toml"
        text = re.sub(r'(?m)^(owner|group) = "[a-z]+"', r'\1 = "0"' if self.is_root() else "", text)
        path.write_text(text)
        path.chmod(0o644)
        return read_configuration(path, {"CREDENTIALS_DIRECTORY": "/run/credentials/svc-agent.service"})

    def is_root(self) -> bool:
        """Whether the tests run as root."""
        return (self.folder.stat().st_uid) == 0

    def test_sample(self) -> None:
        """The sample can be used as it is, and says each setting with its default (AGT-1)."""
        text = SAMPLE.read_text()
        found = self.read(text)
        self.assertEqual(found.variables, {"shop/database/password", "shop/tls/key"})
        shown = self.read(re.sub(r"(?m)^#(?=[a-z])", "", text))
        self.assertEqual(
            [(file.destination, file.command, file.removed_when_refused) for file in shown.files],
            [(file.destination, file.command, file.removed_when_refused) for file in found.files],
        )
        self.assertEqual(
            (shown.interval, shown.watch, shown.declared, shown.process, shown.login),
            (found.interval, found.watch, found.declared, found.process, found.login),
        )

    def test_examples(self) -> None:
        """So can each of its examples (AGT-1, AGT-3, AGT-6)."""
        text = SAMPLE.read_text()
        examples = re.findall(r"(?m)^# ([a-zA-Z_]+ = .*)$", text)
        self.assertEqual(len(examples), 9)
        for example in examples:
            name = example.partition(" ")[0]
            if name in {"service_id", "jwt_file"}:
                continue
            others = re.sub(rf"(?m)^{name} = .*\n", "", text) if name == "api_key_file" else text
            with self.subTest(example=example):
                self.read(others.replace(f"# {example}", example, 1))
        jwt = re.sub(r"(?m)^# (service_id|jwt_file)", r"\1", text.replace('kind = "api-key"', 'kind = "jwt"'))
        self.assertEqual(self.read(re.sub(r"(?m)^api_key_file.*\n", "", jwt)).login.kind, "jwt")

    def test_kinds(self) -> None:
        """The sample names every kind of login (AGT-3)."""
        for kind in ("jwt", "api-key", *CLOUDS):
            self.assertIn(f'#   "{kind}"', SAMPLE.read_text())

    def test_guide(self) -> None:
        """The configurations of the guide can be used (AGT-1)."""
        blocks = re.findall(r"(?ms)^```toml\n(.*?)^```$", GUIDE.read_text())
        self.assertGreater(len(blocks), 1)
        head = blocks[0]
        for block in blocks:
            self.read(block if block.startswith("url") else f"{head}\n{block}")

    def test_unit(self) -> None:
        """Systemd finds nothing wrong with the unit (AGT-35)."""
        require_programs("systemd-analyze")
        copy = self.folder / "svc-agent.service"
        copy.write_text(UNIT.read_text().replace("/opt/svc/bin/svc", sys.executable))
        done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
        # Other units of the machine are read along with it, and warned of.
        ours = [line for line in (done.stdout + done.stderr).splitlines() if copy.name in line]
        self.assertEqual((done.returncode, ours), (0, []))
