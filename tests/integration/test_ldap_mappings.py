"""Mappings of an LDAP directory's groups and users: OpenLDAP's server, and ``twistd -n svc`` before it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tests.integration import slapd
from tests.integration.client import Answer, Api
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerTestCase
from tests.integration.slapd import BASE, SERVICE, SERVICE_PASSWORD, Slapd

GROUPS: Final = f"ou=groups,{BASE}"
ODD: Final = "o'brien (jr)*"
PEOPLE: Final = {"alice": "alice's password", "bob": "bob's password", ODD: "x", "eve": "eve's password"}

ENTRIES: Final = f"""
dn: {GROUPS}
objectClass: organizationalUnit
ou: groups

dn: ou=elsewhere,{GROUPS}
objectClass: organizationalUnit
ou: elsewhere

dn: cn=Devs,{GROUPS}
objectClass: groupOfNames
cn: Devs
member: uid=alice,ou=people,{BASE}

dn: cn=devs,ou=elsewhere,{GROUPS}
objectClass: groupOfNames
cn: devs
member: uid=eve,ou=people,{BASE}

dn: cn=ops,{GROUPS}
objectClass: posixGroup
cn: ops
gidNumber: 5000
memberUid: bob
memberUid: {ODD}

dn: cn=a(b)*\\2Cc,{GROUPS}
objectClass: groupOfNames
cn: a(b)*,c
member: uid=alice,ou=people,{BASE}
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
        {more}
    - !variable bind-password
    - !variable tls-ca-cert
    - !group users
    - !permit {{ role: !group users, privileges: [ read, authenticate ], resource: !webservice }}
"""

COMMON: Final = """
- !policy
  id: app
  body:
    - !group users
    - !variable secret
    - !permit { role: !group users, privileges: [ read, execute ], resource: !variable secret }
- !user operator
- !permit { role: !user operator, privileges: [ read, update ], resource: !webservice svc/authn-ldap/corp }
- !permit { role: !user operator, privilege: read, resource: !group app/users }
"""


class LdapMappingTests(PostgresTestCase, ServerTestCase):
    """People in groups, and two authenticators that learn of these in the two ways."""

    timeout = 300
    skip = unavailable() or slapd.unavailable()

    async def prepare(self) -> None:
        """Start both, load policy, and set variables."""
        await super().prepare()
        self.directory = Slapd(Path(self.mktemp()).absolute(), PEOPLE, "twice", ENTRIES)
        self.addCleanup(self.directory.kill)
        await self.directory.start()
        self.dsn = await self.create_database(migrated=False)
        self.process = self.serve(
            "--account=acme",
            "--authenticators=authn,authn-ldap/corp,authn-ldap/own",
            "--allow-private-providers=127.0.0.0/8",
            database_url=self.dsn,
        )
        self.api = Api.of(self, await self.process.ready())
        self.admin = await self.api.authenticate("admin", self.process.admin_key())
        policy = "".join(f"- !user {json.dumps(login)}\n" for login in PEOPLE)
        for service, more in (("corp", f"ldap-authn/group_base_dn: {GROUPS}"), ("own", "")):
            policy += POLICY.format(service=service, port=self.directory.port, base=BASE, bind=SERVICE, more=more)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", (policy + COMMON).encode(), self.admin)
        self.assertEqual(loaded.status, 201, loaded)
        self.operator_key = loaded.json()["created_roles"]["acme:user:operator"]["api_key"]
        for service in ("corp", "own"):
            for name, value in (("bind-password", SERVICE_PASSWORD), ("tls-ca-cert", self.directory.authority.pem)):
                path = self.api.variable(f"svc/authn-ldap/{service}/{name}")
                self.assertEqual((await self.api.ask("POST", path, value.encode(), self.admin)).status, 201)
        await self.api.ask("POST", self.api.variable("app/secret"), b"s3cret", self.admin)

    async def put(self, name: str, *roles: str, to: str = "corp", kind: str = "groups", token: str = "") -> Answer:
        """Map a name."""
        path = f"/authn-ldap/{to}/acme/{kind}/{quote(name, safe='')}"
        return await self.api.ask("POST", path, json.dumps({"roles": roles}).encode(), token or self.admin)

    async def remove(self, name: str, to: str = "corp") -> None:
        """Map a name no longer."""
        gone = await self.api.ask("DELETE", f"/authn-ldap/{to}/acme/groups/{quote(name, safe='')}", token=self.admin)
        self.assertEqual(gone.status, 204)

    async def login(self, login: str, to: str = "corp") -> str | int:
        """Log in with the password, and return the access token, or the status of a refusal."""
        path = f"/authn-ldap/{to}/acme/{quote(login, safe='')}/authenticate"
        answer = await self.api.ask("POST", path, PEOPLE[login].encode())
        return base64.b64encode(answer.body).decode() if answer.status == 200 else answer.status

    async def reads(self, token: str | int) -> int:
        """The status of reading the secret."""
        assert isinstance(token, str), token
        return (await self.api.ask("GET", self.api.variable("app/secret"), token=token)).status

    async def test_a_life(self) -> None:
        """A group of the directory gives access to a secret; who leaves it loses that with the next login, and all with the
        mapping, at once (LDAP-10, LDAP-13, LDAP-15).
        """
        self.assertEqual(await self.login("alice"), 401, "she has no privilege yet")
        self.assertEqual((await self.put("devs", "group:app/users", "group:svc/authn-ldap/corp/users")).status, 201)
        alice = await self.login("alice")
        self.assertEqual(await self.reads(alice), 200)
        self.assertEqual(await self.login("eve"), 401, "her group is called so too, elsewhere")
        self.assertEqual(await self.login("bob"), 401)
        leaves = f"dn: cn=Devs,{GROUPS}\nchangetype: modify\nreplace: member\nmember: uid=bob,ou=people,{BASE}\n"
        await self.directory.change(leaves)
        self.assertEqual(await self.reads(alice), 200, "nobody has told yet")
        bob = await self.login("bob")
        self.assertEqual(await self.reads(bob), 200)
        self.assertEqual(await self.login("alice"), 401)
        self.assertEqual(await self.reads(alice), 404)
        await self.remove("DEVS")
        self.assertEqual(await self.reads(bob), 404)
        self.assertEqual(await self.login("bob"), 401)
        audit = (await self.api.ask("GET", "/audit/roles/acme:group:app%2Fusers?limit=20", token=self.admin)).body.decode()
        for words in ("acme:user:alice became a member of acme:group:app/users", "removed acme:user:bob from"):
            self.assertIn(words, audit)

    async def test_posix_and_odd_names(self) -> None:
        """Members by login count, too; names and logins of any characters mean what they say (LDAP-2, LDAP-11)."""
        roles = ("group:app/users", "group:svc/authn-ldap/corp/users")
        self.assertEqual((await self.put("ops", *roles)).status, 201)
        for login in ("bob", ODD):
            self.assertEqual(await self.reads(await self.login(login)), 200, login)
        self.assertEqual(await self.login("alice"), 401)
        for name in ("*", "a*", "(cn:*)", "a(b)*", f"cn=*,{GROUPS}"):
            self.assertEqual((await self.put(name, *roles)).status, 201, name)
        self.assertEqual(await self.login("alice"), 401)
        self.assertEqual((await self.put("a(b)*,c", *roles)).status, 201)
        self.assertEqual(await self.reads(await self.login("alice")), 200)
        self.assertEqual((await self.put(ODD, "group:app/users", kind="users")).status, 201)
        await self.remove("ops")
        self.assertEqual(await self.login(ODD), 401)

    async def test_of_the_entry(self) -> None:
        """Without an entry for groups, the person's own tells them, by their whole names (LDAP-11)."""
        roles = ("group:app/users", "group:svc/authn-ldap/own/users")
        told = f"dn: uid=alice,ou=people,{BASE}\nchangetype: modify\nadd: memberOf\nmemberOf: cn=Devs,{GROUPS}\n"
        await self.directory.change(told)
        self.assertEqual((await self.put("devs", *roles, to="own")).status, 422)
        self.assertEqual(await self.login("alice", "own"), 401)
        self.assertEqual((await self.put(f"CN=devs, {GROUPS}", *roles, to="own")).status, 201)
        self.assertEqual(await self.reads(await self.login("alice", "own")), 200)
        self.assertEqual(await self.login("bob", "own"), 401)

    async def test_authority(self) -> None:
        """Who may change the authenticator gives no role that is another's to give (LDAP-7)."""
        operator = await self.api.authenticate("operator", self.operator_key)
        refused = await self.put("devs", "group:app/users", token=operator)
        self.assertEqual(refused.status, 403)
        self.assertIn(b"may not grant acme:group:app/users", refused.body)

    async def test_read_only(self) -> None:
        """While the database takes no writes, whom mappings would give other roles is put off, and who has its own is
        admitted (LDAP-16).
        """
        await self.put("devs", "group:app/users", "group:svc/authn-ldap/corp/users")
        await self.put("ops", "group:svc/authn-ldap/corp/users")
        self.assertIsInstance(await self.login("alice"), str)
        name = self.dsn.rpartition("=")[2]
        self.server.command(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        self.server.command(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        await self.api.tells("/authenticators", 200)
        after = len(self.process.stdout)
        self.assertEqual(await self.login("bob"), 503)
        await self.process.says(": ldap-roles-unwritten (", after)
        self.assertIsInstance(await self.login("alice"), str)
