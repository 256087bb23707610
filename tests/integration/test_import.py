"""``svc import conjur`` between two real servers in the dialect ``conjur``, as its users run it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase
from tests.integration.test_cli import CommandTestCase, Outcome

TEAMS, VARIABLES = 6, 50

#: The policy of one team: hosts with networks, a layer, a group, and variables that these may read.
TEAM = """
- !group readers
- !layer hosts
- !host {{ id: one, restricted_to: [ 127.0.0.0/8 ], annotations: {{ authn-jwt/ci/sub: "{team}:one" }} }}
- !host {{ id: two, owner: !group readers }}
- !grant {{ role: !group readers, member: !layer hosts }}
- !grant {{ role: !layer hosts, members: [ !host one, !host two ] }}
- !grant {{ role: !group readers, member: !member {{ role: !user /alice, admin: true }} }}
- !host-factory {{ id: factory, layers: [ !layer hosts ] }}
"""


class ImportTests(CommandTestCase, PostgresTestCase):
    """From one server into another."""

    async def prepare(self) -> None:
        """Start both, and fill the first."""
        await super().prepare()
        self.source, self.source_key = await self.start_server()
        self.target, self.target_key = await self.start_server()
        api = Api.of(self, self.source)
        admin = await api.authenticate("admin", self.source_key)
        texts = ["- !user alice\n", *(f"- !policy team{team}\n" for team in range(TEAMS))]
        await self.load(api, admin, "root", "".join(texts))
        for team in range(TEAMS):
            names = [f"service {number}/password" for number in range(VARIABLES)]
            text = TEAM.format(team=team) + "".join(f"- !variable '{name}'\n" for name in names)
            text += "".join(
                f"- !permit {{ role: !group readers, privileges: [ read, execute ], resource: !variable '{name}' }}\n"
                for name in names
            )
            await self.load(api, admin, f"team{team}", text)
            for number, name in enumerate(names):
                for version in range(3 if number < 3 else 1):
                    value = f"a-secret-value {team} {number} {version}\n".encode() + bytes([255, number])
                    path = api.variable(f"team{team}/{name}")
                    self.assertEqual((await api.ask("POST", path, value, admin)).status, 201)

    async def start_server(self) -> tuple[str, str]:
        """Start a server with a database of its own, and return its address and its admin's key."""
        process = self.serve("--account=acme", "--dialect=conjur", database_url=await self.create_database(migrated=False))
        return await process.ready(), process.admin_key()

    async def load(self, api: Api, token: str, branch: str, text: str) -> None:
        """Load policy into the source."""
        self.assertEqual((await api.ask("POST", f"/policies/acme/policy/{branch}", text.encode(), token)).status, 201)

    def environ(self) -> dict[str, str]:
        """The environment of the command."""
        return {
            "SVC_URL": self.target,
            "SVC_ACCOUNT": "acme",
            "SVC_LOGIN": "admin",
            "SVC_API_KEY": self.target_key,
            "CONJUR_ACCOUNT": "acme",
            "CONJUR_AUTHN_LOGIN": "admin",
            "CONJUR_AUTHN_API_KEY": self.source_key,
        }

    async def move(self, *options: str, code: int | None = 0) -> Outcome:
        """Run the import; it prints no secret."""
        outcome = await self.svc("import", "conjur", self.source, *options, environ=self.environ(), code=code)
        for secret in (self.source_key, self.target_key, "a-secret-value"):
            self.assertNotIn(secret, outcome.stdout + outcome.stderr)
        return outcome

    async def test_moved(self) -> None:
        """Some hundred variables are moved, over an interruption, and both servers are the same (IMP-10, IMP-11, IMP-20)."""
        planned = await self.move("--plan")
        self.assertIn(f"variable\t{TEAMS * VARIABLES}", planned.stdout)
        keys = Path(self.mktemp()).resolve()
        first = self.start(
            "import", "conjur", self.source, "--new-keys", str(keys), environ=self.environ(), awaited=b"To make:"
        )
        await first.on_output
        assert first.transport is not None
        first.transport.signalProcess("INT")
        ended = await first.ended
        self.assertEqual(ended.exit_code, 128 + signal.SIGINT, ended)
        # Before the load has begun there is nothing to say of it.
        self.assertIn(ended.stderr and "Nothing of it is half done", ended.stderr)
        await self.move("--new-keys", str(keys))
        compared = await self.move("--verify")
        self.assertEqual(compared.stdout, "0 differences.\n")
        self.assertIn(f"{TEAMS * VARIABLES} variables' values", compared.stderr)
        again = await self.move()
        self.assertIn("0 statements of policy were loaded, 0 versions of values set", again.stderr)
        wanted = {"alice.env", *(f"host%2Fteam{team}%2F{host}.env" for team in range(TEAMS) for host in ("one", "two"))}
        self.assertEqual(set(os.listdir(keys)), wanted)
        await self.log_in_by_file(keys / "host%2Fteam0%2Fone.env")

    async def log_in_by_file(self, path: Path) -> None:
        """A moved host logs in with its new key, and reads what it could read."""
        lines = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
        api = Api.of(self, lines["SVC_URL"])
        token = await api.authenticate(lines["SVC_LOGIN"], lines["SVC_API_KEY"])
        answer = await api.ask("GET", api.variable("team0/service 0/password"), b"", token)
        self.assertEqual((answer.status, answer.body), (200, b"a-secret-value 0 0 2\n\xff\x00"))
