"""Users who are gone from a real LDAP directory: OpenLDAP's server, PostgreSQL, and ``twistd -n svc`` between them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twisted.internet import reactor as installed_reactor
from twisted.internet.task import deferLater

from tests.integration import slapd
from tests.integration.client import Answer, Api
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerTestCase
from tests.integration.slapd import BASE, SERVICE, SERVICE_PASSWORD, Slapd

reactor: Any = installed_reactor

PEOPLE: Final = {"alice": "alice's password", "bob": "bob's password"}

#: A person, below an entry that the authenticator ``team`` begins at.
TEAM: Final = f"""
dn: ou=team,{BASE}
objectClass: organizationalUnit
ou: team

dn: uid=carol,ou=team,{BASE}
objectClass: inetOrgPerson
objectClass: posixAccount
uid: carol
cn: carol
sn: carol
uidNumber: 3000
gidNumber: 1000
homeDirectory: /home
userPassword: carol's password
"""

#: Alice's entry, as she gets it back.
ALICE: Final = f"""
dn: uid=alice,ou=people,{BASE}
changetype: add
objectClass: inetOrgPerson
objectClass: posixAccount
uid: alice
cn: alice
sn: alice
uidNumber: 2000
gidNumber: 1000
homeDirectory: /home
userPassword: another password
"""

POLICY: Final = """
- !policy
  id: svc/authn-ldap/{service}
  body:
    - !webservice
      annotations:
        ldap-authn/uri: "ldap://127.0.0.1:{port}"
        ldap-authn/base_dn: {base}
        ldap-authn/bind_dn: {bind}
    - !webservice status
    - !variable bind-password
    - !variable tls-ca-cert
    - !permit {{ role: !group /people, privileges: [ read, authenticate ], resource: !webservice }}
"""
USERS: Final = """
- !user alice
- !user bob
- !user carol
- !group people
- !grant { role: !group people, members: [ !user alice, !user bob, !user carol ] }
"""

#: How often something is looked for that a round does, a fifth of a second apart.
_TRIES: Final = 75


class DirectoryRoundTests(PostgresTestCase, ServerTestCase):
    """Three people, and two authenticators."""

    timeout = 300
    skip = unavailable() or slapd.unavailable()

    async def prepare(self) -> None:
        """Start all, load policy, and set variables."""
        await super().prepare()
        self.directory = Slapd(Path(self.mktemp()).absolute(), PEOPLE, "twice", TEAM)
        self.addCleanup(self.directory.kill)
        await self.directory.start()
        self.dsn = await self.create_database(migrated=False)
        await self.start()
        self.admin_key = self.process.admin_key()
        self.admin = await self.api.authenticate("admin", self.admin_key)
        policy = USERS
        for service, unit in (("corp", "people"), ("team", "team")):
            policy += POLICY.format(service=service, port=self.directory.port, base=f"ou={unit},{BASE}", bind=SERVICE)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", policy.encode(), self.admin)
        self.assertEqual(loaded.status, 201, loaded)
        made = loaded.json()["created_roles"]
        self.keys = {login: made[f"acme:user:{login}"]["api_key"].encode() for login in (*PEOPLE, "carol")}
        for service in ("corp", "team"):
            for name, value in (("bind-password", SERVICE_PASSWORD), ("tls-ca-cert", self.directory.authority.pem)):
                path = self.api.variable(f"svc/authn-ldap/{service}/{name}")
                self.assertEqual((await self.api.ask("POST", path, value.encode(), self.admin)).status, 201)

    async def start(self, processes: int = 1) -> None:
        """Start a server of so many processes, one of which does rounds all the time."""
        self.process = self.serve(
            "--account=acme",
            "--authenticators=authn,authn-ldap/corp,authn-ldap/team",
            "--allow-private-providers=127.0.0.0/8",
            "--ldap-sync-interval=1",
            "--health-interval=1",
            f"--processes={processes}",
            database_url=self.dsn,
        )
        self.api = Api.of(self, await self.process.ready())

    def command(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement."""
        return self.server.command(sql, self.dsn.rpartition("dbname=")[2])

    async def by_key(self, login: str) -> Answer:
        """Ask for a token by an API key."""
        return await self.api.ask("POST", f"/authn/acme/{login}/authenticate", self.keys[login])

    async def by_password(self, login: str, password: str, service: str = "corp") -> Answer:
        """Ask for a token by the directory."""
        return await self.api.ask("POST", f"/authn-ldap/{service}/acme/{login}/authenticate", password.encode())

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait for what a round does."""
        for _ in range(_TRIES):
            if done():
                return
            await deferLater(reactor, 0.2)
        self.fail(self.process.said)

    async def until_status(self, login: str, status: int) -> Answer:
        """Wait until a login by API key has this status."""
        for _ in range(_TRIES):
            answer = await self.by_key(login)
            if answer.status == status:
                return answer
            await deferLater(reactor, 0.2)
        raise AssertionError(self.process.said)

    def missing(self) -> list[str]:
        """The users who are missing."""
        sql = "SELECT role_id FROM directory_users WHERE missing_since IS NOT NULL ORDER BY role_id"
        return [role.rpartition(":")[2] for (role,) in self.command(sql)]

    async def until_refused(self, *logins: str) -> None:
        """Wait until a round finds that these are missing, and as if for ten minutes, until they are refused."""
        await self.until(lambda: set(logins) <= set(self.missing()))
        self.command(
            "UPDATE directory_users SET missing_since = missing_since - interval '10 minutes'"
            " WHERE missing_since IS NOT NULL AND NOT refused"
        )
        for login in logins:
            self.assertEqual((await self.until_status(login, 401)).body, b"")

    async def test_a_life(self) -> None:
        """A user who is gone from the directory, or disabled there, loses tokens, and the API key is refused until the entry
        is back; nobody is refused where the entry is gone below which all are, and memberships stay (LDAP-20 to LDAP-25).
        """
        token = await self.by_password("alice", PEOPLE["alice"])
        logged_in = [
            token,
            await self.by_password("bob", PEOPLE["bob"]),
            await self.by_password("carol", "carol's password", "team"),
        ]
        self.assertEqual([answer.status for answer in logged_in], [200] * 3, self.process.said)
        await self.process.stop()
        await self.start(processes=2)
        self.admin = await self.api.authenticate("admin", self.admin_key)
        alice = base64.b64encode(token.body).decode()
        self.assertEqual((await self.api.ask("GET", "/whoami", token=alice)).status, 200)
        self.assertEqual([(await self.by_key(login)).status for login in self.keys], [200] * 3)

        gone = "dn: uid={},ou={},{}\nchangetype: delete\n\n"
        team = f"dn: ou=team,{BASE}\nchangetype: delete\n"
        await self.directory.change(gone.format("alice", "people", BASE) + gone.format("carol", "team", BASE) + team)
        after = len(self.process.stdout)
        await self.until_refused("alice")
        await self.process.says(": ldap-entry-gone (", after)
        self.assertEqual((await self.api.ask("GET", "/whoami", token=alice)).status, 401)
        self.assertEqual((await self.by_password("alice", PEOPLE["alice"])).status, 401)
        memberships = (await self.api.ask("GET", "/roles/acme/user/alice?memberships", token=self.admin)).json()
        self.assertIn("acme:group:people", [each["role"] for each in memberships])
        self.assertEqual([(await self.by_key(login)).status for login in ("bob", "carol")], [200] * 2)

        status = await self.api.ask("GET", "/authn-ldap/team/acme/status", token=self.admin)
        self.assertEqual((status.status, self.missing()), (500, ["alice"]), status.body)
        self.assertIn(f"Nothing is found below 'ou=team,{BASE}'", status.body.decode())
        self.assertEqual((await self.api.ask("GET", "/health")).json()["services"]["ldap"], "failed")
        self.assertEqual((await self.api.ask("GET", "/authn-ldap/corp/acme/status", token=self.admin)).status, 200)

        bob = f"dn: uid=bob,ou=people,{BASE}\nchangetype: modify\n"
        await self.directory.change(f"{bob}add: pwdAccountLockedTime\npwdAccountLockedTime: 000001010000Z\n")
        await self.until_refused("bob")
        await self.directory.change(f"{bob}delete: pwdAccountLockedTime\n\n{ALICE}")
        for login in ("alice", "bob"):
            await self.until_status(login, 200)
        self.assertEqual((await self.by_password("alice", "another password")).status, 200)
        self.assertEqual((await self.by_key("carol")).status, 200)
        audit = (await self.api.ask("GET", "/audit/roles/acme:user:alice?limit=20", token=self.admin)).body.decode()
        self.assertIn("svc revoked the tokens and refused the API key of acme:user:alice", audit)
        self.assertIn("ceased to refuse acme:user:alice", audit)
