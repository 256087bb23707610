"""With what the manifests for Kubernetes give to a container, and nothing else, a server starts, serves and ends."""

from __future__ import annotations

import re
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SkipTest, TestCase

from tests import manifests
from tests.certificates import LEAF_KEY, named, pem
from tests.integration import container, postgres
from tests.integration.container import Container
from tests.integration.embedding import python_for
from tests.integration.postgres import Server
from tests.integration.process import DATA_KEY, beat


class ContainerTests(TestCase):
    """The container of the deployment."""

    timeout = 240
    skip = postgres.unavailable() or container.unavailable()

    async def begin(self) -> Container:
        """Make a database, and the container's surroundings."""
        server = Server()
        self.addCleanup(server.destroy)
        await server.start()
        await server.create_database("contained", migrated=False)
        server.directory.chmod(0o755)  # the container's user finds the socket there
        python = python_for(container.user())
        if python is None:
            raise SkipTest("the user of the image can run no Python that finds svc and its libraries")
        key = LEAF_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        files = {
            "data-key": {"data-key": f"{DATA_KEY}\n".encode()},
            "tls": {"tls.key": key, "tls.crt": pem(*named("svc.svc-system.svc")).encode()},
            "database-ca": {"ca.crt": b""},
            "cluster-token": {"token": b"of the cluster"},
        }
        made = Container(python, server.dsn("contained"), files)
        self.addCleanup(made.remove)
        return made

    async def test_serves(self) -> None:
        """A server whose database is elsewhere runs without rights on a file system that it can't write to, but for its data
        directory; it answers its probes, commands work beside it, and as the first process it ends well when it is told to
        (OPS-10, OPS-11, OPS-12, OPS-13).
        """
        made = await self.begin()
        code, said = await deferToThread(made.run, *self.migrate())
        self.assertEqual(code, 0, said)
        made.start()
        while not made.ready():
            await beat()
        status = Path(f"/proc/{made.pid}/status").read_text()
        self.assertRegex(status, r"(?m)^NSpid:\s+\d+\s+1$")
        self.assertRegex(status, r"(?m)^Uid:\s+10001\s+10001\s+10001\s+10001$")
        self.assertRegex(status, r"(?m)^CapBnd:\s+0+$")
        self.assertRegex(status, r"(?m)^NoNewPrivs:\s+1$")
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = manifests.container()[name]["httpGet"]
            port = next(each["containerPort"] for each in manifests.container()["ports"] if each["name"] == probe["port"])
            address = f"{probe['scheme'].lower()}://127.0.0.1:{port}{probe['path']}"
            code, said = await deferToThread(made.inside, "curl", "--insecure", "--fail", "--silent", address)
            self.assertEqual((code, said), (0, '{"ok":true}'), name)
        code, said = await deferToThread(made.inside, "curl", "--fail", "--silent", "http://127.0.0.1:8447/metrics")
        self.assertIn("svc_", said)
        code, said = await deferToThread(made.svc, *manifests.words("HEALTHCHECK")[1:])
        self.assertEqual(code, 0, said)
        code, said = await deferToThread(made.svc, "account", "create", "acme")
        self.assertRegex(said, r"(?m)^API key for admin: \w+$")
        self.assertNotIn(b"API key", made.said)
        for place in ("/", "/tmp", "/run", "/etc", "/var/lib", "/run/svc/tls"):
            code, said = await deferToThread(made.inside, "touch", f"{place}/x")
            self.assertNotEqual(code, 0, place)
        self.assertEqual(await deferToThread(made.stop), 0, made.said)
        written = [path.name for name in made.empty for path in (made.folder / name).iterdir()]
        self.assertEqual(written, ["audit-chain"])
        self.assertIsNone(re.search(rb"\bcan't be\b|Traceback", made.said), made.said)

    def migrate(self) -> list[str]:
        """What the init container does."""
        [each] = manifests.found("Deployment")["spec"]["template"]["spec"]["initContainers"]
        arguments = each["args"]
        assert isinstance(arguments, list)
        return arguments
