"""Mappings of LDAP authenticators over HTTP, and what logins do by them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from svc.model.authentication import ExplanationRequest
from svc.model.dialect import CONJUR
from svc.model.errors import OutcomeUnknown, PrimaryContested
from svc.model.ldap_directories import NAMES_MOST, ROLES_MOST, DirectoryRefused, LdapServer
from svc.model.reasons import Reason
from tests.authn.ldap.test_authenticator import PASSWORD, LdapCase
from tests.memory_ldap_mappings import MemoryLdapMappings
from tests.web.support import Answer
from tests.web.world import ADMIN, user

ALICE, BOB, OPERATOR, AUDITOR, DEPUTY = (user(name) for name in ("alice", "bob", "operator", "auditor", "deputy"))
BASE: Final = "ou=groups,dc=example"

POLICY: Final = """
- !user operator
- !user auditor
- !user deputy
- !user reader
- !group devs
- !group ops
- !layer machines
- !permit {{ role: !user operator, privileges: [ read, update ], resource: !webservice {prefix}/authn-ldap/corp }}
- !permit {{ role: !user deputy, privileges: [ read, update ], resource: !webservice {prefix}/authn-ldap/corp }}
- !permit {{ role: !user reader, privilege: execute, resource: !webservice {prefix}/authn-ldap/corp }}
- !permit {{ role: !user auditor, privilege: inspect, resource: !policy root }}
- !grant {{ role: !group devs, member: !member {{ role: !user deputy, admin: true }} }}
- !policy
  id: app
  body:
    - !group users
    - !variable secret
    - !permit {{ role: !group users, privileges: [ read, execute ], resource: !variable secret }}
- !permit {{ role: !user deputy, privilege: update, resource: !policy app }}
"""


class MappingCase(LdapCase):
    """An authenticator, and groups to map to."""

    def setUp(self) -> None:
        """Load the policy."""
        super().setUp()
        self.load(POLICY.format(prefix=self.dialect.prefix), method="PATCH")
        self.annotate(group_base_dn=BASE)
        self.set_value("app/secret", b"s3cret")

    def put(self, name: str, *roles: str, role: object = ADMIN, kind: str = "groups") -> Answer:
        """Map a name."""
        body = json.dumps({"roles": list(roles)}).encode()
        return self.client.post(f"/authn-ldap/corp/acme/{kind}/{name}", body, role=role)

    def get(self, path: str = "groups", role: object = ADMIN) -> Answer:
        """Read a mapping, or a list."""
        return self.client.get(f"/authn-ldap/corp/acme/{path}", role=role)

    def delete(self, path: str, role: object = ADMIN) -> Answer:
        """Remove a mapping."""
        return self.client.request("DELETE", f"/authn-ldap/corp/acme/{path}", role=role)

    def groups(self, login: str, *names: str) -> None:
        """Have the directory tell these groups of a person."""
        self.directory.groups_of[login] = [f"cn={name},{BASE}" for name in names]

    def login(self, login: str = "alice", password: bytes = PASSWORD) -> int:
        """Ask for an access token, and return the status."""
        return self.client.post(f"/authn-ldap/corp/acme/{login}/authenticate", password).status

    def granted(self, login: str = "alice") -> set[str]:
        """The groups that are granted to a user, but for those of the authenticator's users."""
        found = self.client.get(f"/roles/acme/user/{login}?memberships", role=ADMIN).json()
        return {row["role"].removeprefix("acme:group:") for row in found if not row["ownership"]} - {f"{self.branch}/users"}

    def recorded(self, msgid: str = "membership") -> list[tuple[str, str, str]]:
        """The operations of events of a type, with their subjects and outcomes."""
        return [
            (event.operation, " ".join(value for _, value in event.subject), outcome.reason or "")
            for _, event, outcome in self.journal.taken
            if event.msgid == msgid
        ]


class RequestTests(MappingCase):
    """The requests of operators."""

    def test_answers(self) -> None:
        """A name is mapped (201), mapped otherwise (200), shown, listed and removed (204), as published clients expect
        (LDAP-3, LDAP-4).
        """
        self.assertEqual(self.get().json(), {"keys": []})
        made = self.put("Devs", "group:ops", "acme:group:devs", "group:ops")
        self.assertEqual(
            (made.status, made.json()), (201, {"ldap_group": "Devs", "roles": ["acme:group:devs", "acme:group:ops"]})
        )
        again = self.put("devs", "group:app/users")
        self.assertEqual((again.status, again.json()), (200, {"ldap_group": "devs", "roles": ["acme:group:app/users"]}))
        self.assertEqual(self.get("groups/DEVS").json(), again.json())
        person = self.put("alice", "group:devs", kind="users")
        self.assertEqual((person.status, person.json()), (201, {"ldap_username": "alice", "roles": ["acme:group:devs"]}))
        self.assertEqual(self.get("users/alice").json(), person.json())
        self.assertEqual((self.get().json(), self.get("users").json()), ({"keys": ["devs"]}, {"keys": ["alice"]}))
        self.assertEqual(self.get("users/Alice").status, 404)
        for path in ("groups/devs", "users/alice"):
            self.assertEqual((self.delete(path).status, self.delete(path).status, self.get(path).status), (204, 404, 404))
        self.assertEqual(
            self.get("groups/devs").json()["error"]["message"], "Mapping 'group devs' not found in account 'acme'"
        )

    def test_names(self) -> None:
        """Names are decoded, whatever characters they have; distinguished names are compared as such (LDAP-2, LDAP-4)."""
        for encoded, name in (
            ("a%2Fb", "a/b"),
            ("%28cn%3A%2A%29%28", "(cn:*)("),
            ("%C3%A9t%C3%A9", "été"),
            (r"CN%3DA%5C2C%20b%2C%20dc%3Dx", r"CN=A\2C b, dc=x"),
        ):
            self.assertEqual(self.put(encoded, "group:devs").json()["ldap_group"], name)
            self.assertEqual(self.get(f"groups/{encoded}").json()["ldap_group"], name)
        self.assertEqual(self.get(r"groups/cn%3Da%5C%2C%20B%2CDC%3DX").status, 200)
        for wrong in ("cn%3D", "%20", "a%00b", "%0A", "x" * 2000):
            self.assertEqual(self.put(wrong, "group:devs").status, 422, wrong)
        refused = self.put("cn%3D%22a%2Cb%22%2Cdc%3Dx", "group:devs")
        self.assertEqual(refused.status, 422)
        advice = 'no quotation mark is taken, as at character 4: write cn=a\\,b for cn="a,b"'
        self.assertIn(advice, refused.json()["error"]["message"])
        self.assertEqual(self.put(r"cn%3Da%5C%2Cb%2Cdc%3Dx", "group:devs").status, 201)
        for wrong in ("admin", "host%2Fweb"):
            self.assertEqual(self.put(wrong, "group:devs", kind="users").status, 422, wrong)

    def test_plain_names(self) -> None:
        """A plain name of a group takes an entry below which it would stand, and has no blank at its ends, as a login has
        none (LDAP-2).
        """
        for base in (None, ""):
            self.annotate(group_base_dn=base)
            refused = self.put("devs", "group:devs")
            self.assertEqual(refused.status, 422)
            self.assertIn("ldap-authn/group_base_dn", refused.body.decode())
            self.assertEqual(self.put("cn%3Ddevs%2Cdc%3Dexample", "group:devs").status, 200 if base == "" else 201)
            self.assertEqual(self.put("alice", "group:devs", kind="users").status, 200 if base == "" else 201)
        self.assertEqual(self.delete("groups/devs").status, 404)
        for login in ("%20alice", "alice%20", "alice%C2%A0"):
            self.assertEqual(self.put(login, "group:devs", kind="users").status, 422, login)
            self.assertEqual(self.put(login, "group:devs").status, 422, login)
        self.assertIn("a plain name that begins or ends with a blank", self.put("%20a", "group:devs").body.decode())
        self.assertEqual(self.put("cn%3Ddevs%5C%20%2Cdc%3Dexample%20", "group:devs").status, 201)

    def test_token_groups(self) -> None:
        """Where Active Directory tells groups by their SIDs, it is asked for the groups that are mapped, as they were
        written (LDAP-11).
        """
        for name in ("devs", "CN=Ops%2CDC=example"):
            self.put(name, "group:devs")
        self.login()
        self.assertEqual(list(self.directory.mapped), [])
        self.annotate(group_source="tokenGroups")
        self.groups("alice", "devs")
        self.login()
        self.assertEqual(sorted(self.directory.mapped), ["CN=Ops,DC=example", "devs"])
        self.assertIn("devs", self.granted())

    def test_logins_of_these_names(self) -> None:
        """Users who are called like the routes log in as ever; encoded, the words are names of groups (LDAP-5)."""
        self.load("- !user groups\n- !user users", method="PATCH")
        for name in ("groups", "users"):
            self.directory.passwords[name] = PASSWORD
            self.assertIn(self.client.post(f"/authn-ldap/corp/acme/{name}/authenticate", PASSWORD).status, {401, 403})
            self.assertEqual(self.directory.asked[-1][1], name)
            explained = self.client.post(f"/authn-ldap/corp/acme/{name}/explain", b"", role=ADMIN)
            self.assertNotEqual(explained.json().get("keys"), [])
        self.assertEqual(self.put("%61uthenticate", "group:devs").status, 201)
        self.assertEqual(self.get().json(), {"keys": ["authenticate"]})
        self.assertEqual(self.get("groups/%61uthenticate").status, 200)
        self.assertEqual(self.delete("groups/%65xplain").status, 404)

    def test_bodies(self) -> None:
        """Only ids of groups of the account are roles, from 1 to 50; the body is JSON (LDAP-1, LDAP-3)."""
        wrong = ("layer:machines", "user:alice", "policy:root", "devs", "group:", "other:group:devs", "acme:user:alice", ":")
        for role in (*wrong, ""):
            self.assertEqual(self.put("a", "group:devs", role).status, 422, role)
        self.assertEqual(self.put("a").status, 422)
        self.assertEqual(self.put("a", *(f"group:{number}" for number in range(ROLES_MOST + 1))).status, 422)
        for body, status in ((b"", 400), (b"[]", 400), (b"{}", 422), (b'{"roles":"group:a"}', 422), (b'{"roles":[1]}', 422)):
            self.assertEqual(self.client.post("/authn-ldap/corp/acme/groups/a", body, role=ADMIN).status, status, body)
        self.assertEqual(self.get().json(), {"keys": []})

    def test_how_many(self) -> None:
        """An authenticator maps so many names of a kind, and no more (LDAP-1, LIM-23)."""
        webservice = f"acme:webservice:{self.branch}"
        for number in range(NAMES_MOST):
            self.memory.mappings[webservice, "group", f"g{number}", "acme:group:devs"] = f"g{number}"
        self.assertEqual(self.put("more", "group:devs").status, 422)
        self.assertEqual(self.put("g1", "group:ops").status, 200)
        self.assertEqual(self.put("more", "group:devs", kind="users").status, 201)

    def test_how_long(self) -> None:
        """What is too long for an index together with the longest login is refused, and nothing is mapped (LDAP-1)."""
        name = "cn=" + "=" * 1000
        refused = self.put(quote(name), "group:devs")
        self.assertEqual(refused.status, 422)
        self.assertIn("bytes together", refused.json()["error"]["message"])
        self.assertEqual(self.get().json(), {"keys": []})
        self.assertEqual(self.put(quote("cn=" + "a" * 1000), "group:devs").status, 201)

    def test_who_reads(self) -> None:
        """Who has ``read`` on the webservice or inspects it sees mappings; others are 403, or 404 (LDAP-6)."""
        self.put("devs", "group:devs")
        expected = {ADMIN: 200, OPERATOR: 200, AUDITOR: 200, user("reader"): 403, user("mallory"): 404}
        for path in ("groups", "groups/devs", "users"):
            for role, status in expected.items():
                found = 404 if path == "groups/devs" and status == 404 else status
                self.assertEqual(self.get(path, role).status, found, (path, role))
        self.assertEqual(self.client.get("/authn-ldap/absent/acme/groups", role=ADMIN).status, 404)
        self.assertEqual(self.client.get("/authn-ldap/corp/other/groups", role=ADMIN).status, 404)
        self.assertEqual(self.client.get("/authn-ldap/corp/acme/groups").status, 401)

    def test_who_changes(self) -> None:
        """To change a mapping takes ``update`` on the webservice (LDAP-6)."""
        self.put("devs", "group:devs")
        for role, status in ((AUDITOR, 403), (user("reader"), 403), (user("mallory"), 404)):
            self.assertEqual(self.put("devs", "group:devs", role=role).status, status, role)
            self.assertEqual(self.delete("groups/devs", role).status, status, role)
        # A stranger doesn't learn that the body is wrong.
        self.assertEqual(self.put("devs", "nothing", role=user("mallory")).status, 404)
        self.assertEqual(self.delete("groups/devs", OPERATOR).status, 204)

    def test_who_grants(self) -> None:
        """Each role that is newly named takes the authority to grant it, beside ``update`` on the authenticator (LDAP-7)."""
        refused = self.put("devs", "group:ops", role=OPERATOR)
        self.assertEqual(refused.status, 404, "the operator doesn't see the group")
        self.load("- !permit { role: !user operator, privilege: read, resource: !group ops }", method="PATCH")
        refused = self.put("devs", "group:ops", role=OPERATOR)
        self.assertEqual((refused.status, refused.json()["error"]["message"]), (403, "may not grant acme:group:ops"))
        self.assertEqual(self.put("devs", "group:absent", role=ADMIN).status, 404)
        self.load(
            "- !permit { role: !user deputy, privilege: read, resources: [ !group ops, !group devs ] }", method="PATCH"
        )
        self.assertEqual(self.put("devs", "group:devs", role=DEPUTY).status, 201)
        self.assertEqual(self.put("devs", "group:devs", "group:ops", role=DEPUTY).status, 403)
        self.assertEqual(self.get("groups/devs").json()["roles"], ["acme:group:devs"])
        self.load(
            "- !group own\n- !permit { role: !user /deputy, privilege: read, resource: !group own }", "app", method="PATCH"
        )
        self.assertEqual(self.put("apps", "group:app/own", role=DEPUTY).status, 201, "update on the policy is enough")

    def test_what_stays_takes_nothing(self) -> None:
        """A role that the name had before takes no authority again, and to leave one out takes none (LDAP-7)."""
        self.put("devs", "group:devs", "group:ops")
        self.load(
            "- !permit { role: !user operator, privilege: read, resources: [ !group ops, !group devs ] }", method="PATCH"
        )
        self.assertEqual(self.put("Devs", "group:ops", "group:devs", role=OPERATOR).status, 200)
        self.assertEqual(self.put("devs", "group:ops", role=OPERATOR).status, 200)
        self.assertEqual(self.put("devs", "group:ops", "group:devs", role=OPERATOR).status, 403)

    def test_recorded(self) -> None:
        """Requests are recorded, and the memberships that go with a mapping (LDAP-18)."""
        self.put("devs", "group:devs", "group:ops")
        self.groups("alice", "devs")
        self.assertEqual(self.login(), 200)
        self.journal.taken.clear()
        self.put("devs", "group:ops")
        self.delete("groups/devs")
        self.delete("groups/devs")
        self.get("groups/devs")
        self.get("users")
        webservice = "acme:webservice:svc/authn-ldap/corp"
        told = [
            (operation, words.replace(self.dialect.prefix, "svc"), reason)
            for operation, words, reason in self.recorded("ldap-mapping")
        ]
        one = f"{webservice} group devs"
        self.assertEqual(
            told,
            [
                ("set", one, ""),
                ("remove", one, ""),
                ("remove", one, "not-found"),
                ("show", one, "not-found"),
                ("list", f"{webservice} user", ""),
            ],
        )
        lost = [("remove", f"acme:group:{name} acme:user:alice", "") for name in ("devs", "ops")]
        self.assertEqual(self.recorded(), lost)
        kept = [event for _, event in self.memory.events.values() if event.msgid in {"membership", "ldap-mapping"}]
        self.assertEqual([event.operation for event in kept[-4:]], ["set", "remove", "remove", "remove"])


class EffectTests(MappingCase):
    """What logins do."""

    def test_a_group_gives_access(self) -> None:
        """Whom the directory has in a mapped group reads what the role may, until directory or mapping say otherwise
        (LDAP-10, LDAP-13).
        """
        secret = "/secrets/acme/variable/app/secret"
        self.put("devs", "group:app/users")
        self.groups("alice", "Devs", "others")
        self.assertEqual(self.client.get(secret, role=ALICE).status, 404)
        self.assertEqual(self.login(), 200)
        self.assertEqual(self.client.get(secret, role=ALICE).body, b"s3cret")
        self.groups("alice", "others")
        self.assertEqual(self.login(), 200)
        self.assertEqual(self.client.get(secret, role=ALICE).status, 404)
        self.groups("alice", "devs")
        self.login()
        self.assertEqual(self.client.get(secret, role=ALICE).status, 200)
        self.delete("groups/devs")
        self.assertEqual(self.client.get(secret, role=ALICE).status, 404)

    def test_both_logins(self) -> None:
        """To be told the API key by the password is such a login, too (LDAP-10)."""
        self.put("alice", "group:devs", kind="users")
        credentials = base64.b64encode(b"alice:" + PASSWORD).decode()
        told = self.client.get("/authn-ldap/corp/acme/login", headers=[("Authorization", f"Basic {credentials}")])
        self.assertEqual((told.status, self.granted()), (200, {"devs"}))

    def test_who_is_not_asked_about(self) -> None:
        """An API key changes nothing, and a wrong password, and a login of nobody; nobody is made (LDAP-10, LDAP-15)."""
        self.put("devs", "group:devs")
        for login in ("alice", "nobody", "mallory"):
            self.groups(login, "devs")
        before = self.memory.copied()
        self.assertEqual(self.login("alice", self.api_keys["alice"]), 200)
        self.login("alice", b"wrong")
        self.assertEqual(self.login("nobody"), 401)
        self.assertEqual((self.memory.memberships, self.memory.roles), (before["memberships"], before["roles"]))

    def test_the_privilege(self) -> None:
        """A mapping may give the privilege ``authenticate``, and takes it by the same login (LDAP-15)."""
        barred = 403 if self.dialect is CONJUR else 401
        self.assertEqual(self.login("mallory"), barred)
        self.put("staff", f"group:{self.branch}/users", "group:devs")
        self.groups("mallory", "staff")
        self.assertEqual(self.login("mallory"), 200)
        self.groups("mallory")
        self.assertEqual(self.login("mallory"), barred)
        self.assertEqual(self.granted("mallory"), set())
        # One who may not come from there has what the directory says all the same.
        self.groups("near", "staff")
        self.assertEqual(self.login("near"), 401)
        self.assertEqual(self.granted("near"), {"devs"})

    def test_nothing_differs(self) -> None:
        """A login that changes nothing writes nothing (LDAP-10)."""
        self.put("devs", "group:devs", "group:ops")
        self.groups("alice", "devs")
        self.login()
        self.journal.taken.clear()
        self.memory.standby = True
        self.assertEqual(self.login(), 200)
        self.assertEqual(self.recorded(), [])

    def test_followers(self) -> None:
        """Where it can't be written, the login is put off, and not admitted with the roles of before (LDAP-16)."""
        self.put("devs", "group:devs")
        self.groups("alice", "devs")
        self.memory.standby = True
        self.assertEqual((self.login(), self.granted()), (503, set()))
        self.assertEqual(self.login("bob"), 200)
        self.memory.standby = False
        self.assertEqual(self.login(), 200)
        self.groups("alice")
        self.memory.standby = True
        self.assertEqual(self.login(), 503)
        self.memory.standby = False

        for error in (OutcomeUnknown("lost"), PrimaryContested("two primaries")):

            async def refused(*_: object, why: Exception = error) -> None:
                raise why

            self.patch(MemoryLdapMappings, "apply_mappings", refused)
            self.assertEqual(self.login(), 503)

    def test_groups_unknown(self) -> None:
        """Where the directory doesn't tell the groups nobody is admitted, known or not, and nothing changes (LDAP-11)."""
        self.put("devs", "group:devs")
        self.groups("alice", "devs")
        self.login()
        self.directory.groups_refused = DirectoryRefused(Reason.LDAP_GROUPS_UNKNOWN, "32")
        for login, password in (("alice", PASSWORD), ("nobody", PASSWORD), ("mallory", PASSWORD)):
            self.assertEqual(self.login(login, password), 503, login)
        self.assertEqual(self.login("alice", b"wrong"), 401)
        self.assertEqual(self.login("alice", self.api_keys["alice"]), 200)
        self.assertEqual(self.granted(), {"devs"})
        self.delete("groups/devs")
        self.assertEqual(self.login(), 200, "where no group is mapped, none is asked for")

    def test_same_work(self) -> None:
        """The directory is asked the same about users whom policy knows and others (LDAP-17)."""
        self.put("devs", "group:devs")
        asked: list[str] = []
        groups = self.directory.read_groups

        async def counted(
            server: LdapServer, login: str, password: bytes, mapped: Sequence[str], **options: bool
        ) -> Sequence[str]:
            asked.append(login)
            return await groups(server, login, password, mapped, **options)

        self.patch(self.directory, "read_groups", counted)
        logins = ["alice", "nobody", "mallory", "stranger"]
        for login in logins:
            self.login(login)
        self.assertEqual(asked, logins)

    def test_policy_stays(self) -> None:
        """What policy says stays when mappings go, and a load takes what a mapping gave for its own (LDAP-12)."""
        self.load("- !grant { role: !group devs, member: !user alice }", method="PATCH")
        self.put("devs", "group:devs", "group:ops", "group:app/users")
        self.groups("alice", "devs")
        self.login()
        self.load("- !grant { role: !group ops, member: !user alice }", method="PATCH")
        added = self.client.post("/roles/acme/group/app/users?members&member=acme:user:alice", b"", role=ADMIN)
        self.assertEqual(added.status, 204)
        self.delete("groups/devs")
        self.assertEqual(self.granted(), {"app/users", "devs", "ops"})

    def test_taken_by_hand(self) -> None:
        """What a mapping made no policy can revoke; a request takes it until the next login gives it again (LDAP-12)."""
        self.put("devs", "group:devs")
        self.groups("alice", "devs")
        self.login()
        self.load("- !revoke { role: !group devs, member: !user alice }", method="PATCH")
        self.assertEqual(self.granted(), {"devs"})
        path = "/roles/acme/group/devs?members&member=acme:user:alice"
        self.assertEqual(self.client.request("DELETE", path, role=ADMIN).status, 204)
        self.assertEqual(self.granted(), set())
        self.login()
        self.assertEqual(self.granted(), {"devs"})

    def test_shown(self) -> None:
        """Memberships that mappings made are shown as others are, but for effective policy (LDAP-14)."""
        self.put("devs", "group:app/users")
        self.groups("alice", "devs")
        self.login()
        held = self.client.get("/roles/acme/user/alice?all", role=ADMIN).json()
        self.assertIn("acme:group:app/users", held)
        who = self.client.get("/resources/acme/variable/app/secret?who_can=execute&privilege=execute", role=ADMIN).body
        self.assertIn(b"acme:user:alice", who)
        policy = self.client.get("/policies/acme/policy/root", role=ADMIN).body.decode()
        self.assertNotIn("role: !group app/users", policy)
        self.assertIn("authn-ldap/corp", policy)

    def test_deleted(self) -> None:
        """With the authenticator go its mappings and what followed; had back, it has none (LDAP-13, LDAP-14)."""
        self.put("devs", "group:devs")
        self.groups("alice", "devs")
        self.login()
        self.load(f"- !delete {{ record: !policy {self.branch} }}", method="PATCH")
        self.assertEqual(self.granted(), set())
        self.assertEqual(self.memory.mappings, {})

    def test_recorded(self) -> None:
        """Each membership that a login adds or removes is an event of the user, in journal and database (LDAP-18)."""
        self.put("devs", "group:devs", "group:ops")
        self.groups("mallory", "devs")
        self.journal.taken.clear()
        self.login("mallory")
        self.groups("mallory")
        self.login("mallory")
        one, other = (f"acme:group:{name} acme:user:mallory" for name in ("devs", "ops"))
        expected = [("add", one, ""), ("add", other, ""), ("remove", one, ""), ("remove", other, "")]
        self.assertEqual(self.recorded(), expected, "though the logins are refused")
        kept = [event for _, event in self.memory.events.values() if event.authenticator == "authn-ldap"]
        self.assertEqual(
            [event.operation for event in kept if event.msgid == "membership"], ["add", "add", "remove", "remove"]
        )
        self.assertEqual({event.user for event in kept if event.msgid == "membership"}, {"acme:user:mallory"})


class ExplainTests(MappingCase):
    """What operators are told of it (LDAP-17)."""

    def step(self, login: str = "alice", password: bytes | None = PASSWORD) -> tuple[str, str]:
        """The outcome of the check of mappings, and its detail."""
        request = ExplanationRequest(
            "acme", login, password or b"", "192.0.2.1", "corp", address="192.0.2.1", tried=password is not None
        )
        found = self.result_of(self.ldap.explain(request))
        self.assertNotIn(PASSWORD.decode(), repr(found))
        return next((step.outcome, step.detail) for step in found.steps if step.check == "mappings")

    def test_told(self) -> None:
        """It tells what is mapped, and what a login would change, and changes nothing."""
        self.assertEqual(self.step(), ("passed", "no name is mapped"))
        self.put("devs", "group:devs", f"group:{self.branch}/users")
        self.groups("alice", "devs", "others")
        self.groups("mallory", "devs")
        self.assertEqual(self.step(password=None), ("not tried", ""))
        before = self.memory.copied()
        outcome, told = self.step()
        self.assertEqual(outcome, "passed")
        self.assertEqual(
            told, "of 2 groups and the login, mapped are: the group 'devs'; a login makes it a member of 'acme:group:devs'"
        )
        self.assertEqual(self.step(password=self.api_keys["alice"])[1], "not asked: the evidence is the role's API key")
        request = ExplanationRequest("acme", "mallory", PASSWORD, "192.0.2.1", "corp", address="192.0.2.1", tried=True)
        self.assertTrue(self.result_of(self.ldap.explain(request)).admitted, "as it would be")
        self.assertEqual(self.memory.copied()["memberships"], before["memberships"])
        self.login()
        self.groups("alice")
        self.assertEqual(
            self.step()[1], "of 0 groups and the login, mapped are: no name of its; a login takes from it 'acme:group:devs'"
        )

    def test_untold(self) -> None:
        """Where the directory doesn't tell the groups, that is what fails."""
        self.put("devs", "group:devs")
        self.directory.groups_refused = DirectoryRefused(Reason.LDAP_GROUPS_UNKNOWN, "result 32")
        self.assertEqual(self.step(), ("failed", "result 32"))


class ConjurRequestTests(RequestTests):
    """The same in the ``conjur`` dialect."""

    dialect = CONJUR


class ConjurEffectTests(EffectTests):
    """The same in the ``conjur`` dialect."""

    dialect = CONJUR
