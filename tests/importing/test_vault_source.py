"""A whole server of Vault as a source."""

from __future__ import annotations

import asyncio
from typing import Any

from twisted.internet.task import Clock

from svc.importing import vault_source
from svc.importing.hcl import Number
from svc.importing.inventory import Inventory, NoteKind, Record, RecordId, Values
from svc.importing.vault_logins import read_conditions
from svc.importing.vault_source import VaultSource
from tests.importing.test_vault_http import URL, VaultTestCase
from tests.importing.vault_stand_in import TOKEN, KeptSecret, reply
from tests.walls import Wall

_READ = 'path "secret/data/app/*" { capabilities = ["read"] }'


class SourceTestCase(VaultTestCase):
    """A server with an engine, three methods and policies."""

    def setUp(self) -> None:
        """Make it."""
        super().setUp()
        vault = self.vault
        vault.data["auth/token/lookup-self"] = {"num_uses": 0, "ttl": 0}
        vault.mounts = {"secret/": {"options": {"version": "2"}}}
        vault.second["secret/", "app/db"] = KeptSecret({1: '{"pw":"a"}'})
        vault.data["sys/auth"] = {"token/": {"type": "token"}}
        self.put_policy("web", _READ)

    def put_policy(self, name: str, text: str, namespace: str = "") -> None:
        """Write a policy."""
        self.vault.lists.setdefault(f"{namespace}sys/policies/acl", []).append(name)
        self.vault.data[f"{namespace}sys/policies/acl/{name}"] = {"policy": text}

    def mount_auth(self, path: str, kind: str, namespace: str = "", **roles: dict[str, Any]) -> None:
        """Mount a method with its roles or users."""
        self.vault.data.setdefault(f"{namespace}sys/auth", {})[path] = {"type": kind}
        names = "users" if kind == "userpass" else "role"
        self.vault.lists[f"{namespace}auth/{path}{names}"] = list(roles)
        for name, role in roles.items():
            self.vault.data[f"{namespace}auth/{path}{names}/{name}"] = role
            self.vault.data[f"{namespace}auth/{path}{names}/{name}/role-id"] = {"role_id": f"id-of-{name}"}

    def read(self, **options: Any) -> Inventory:
        """Return the inventory."""
        self.source = VaultSource(self.connection, wall=Wall(Clock()), **options)
        inventory: Inventory = asyncio.run(self.source.read_inventory(lambda what, done, total: None))
        self.inventory = inventory
        return inventory

    def record(self, kind: str, identifier: str) -> Record:
        """Return a record of the inventory."""
        return next(each for each in self.inventory.records if each.id == RecordId(kind, identifier))

    def notes(self, *kinds: NoteKind) -> str:
        """Return the notes of the inventory."""
        return "\n".join(str(note) for note in self.inventory.notes if not kinds or note.kind in kinds)

    def values(self) -> dict[str, list[bytes]]:
        """Return the values of all variables."""

        async def collect() -> list[Values]:
            return [each async for each in self.source.read_values(self.inventory.of_kind("variable"))]

        return {each.variable.identifier: [one.value for one in each.versions] for each in asyncio.run(collect())}

    def roles_of(self, member: RecordId) -> set[str]:
        """Return the roles that somebody is a direct member of."""
        return {str(grant.role) for grant in self.inventory.grants if grant.member == member}


class JwtTests(SourceTestCase):
    """Roles of JWTs."""

    def role(self, **changes: object) -> dict[str, Any]:
        """Return a role as OpenBao answers it."""
        role: dict[str, Any] = {
            "role_type": "jwt",
            "user_claim": "sub",
            "bound_audiences": ["svc"],
            "bound_subject": "x",
            "bound_claims": None,
            "bound_claims_type": "string",
            "claim_mappings": None,
            "token_bound_cidrs": [],
            "token_policies": ["web"],
            "expiration_leeway": -1,
        }
        return role | changes

    def test_unbound(self) -> None:
        """Null, "" and [] are all "not bound" (MOVE-23)."""
        unbound: tuple[object, ...] = (None, "", [])
        for empty in unbound:
            for name in ("bound_audiences", "bound_claims", "bound_subject"):
                if (name == "bound_claims" and empty in ("", [])) or (name == "bound_subject" and empty == []):
                    continue
                with self.subTest(name=name, empty=empty):
                    read_conditions(self.role(**{name: empty}))
        self.assertEqual(read_conditions(self.role(bound_claims=None)).claims, {"sub": "x"})
        self.assertIn("no audience", read_conditions(self.role(bound_audiences=None)).reasons[0])
        self.assertIn("any token", read_conditions(self.role(bound_subject="")).reasons[0])
        self.assertRaises(ValueError, read_conditions, self.role(bound_subject=["x"]))

    def test_claims(self) -> None:
        """Texts become annotations; whatever is compared otherwise there lets nobody in (MOVE-24)."""
        for value, expected in (
            ("main", "main"),
            (["main"], "main"),
            (["main", "next"], "any of 2 values"),
            ([], "any of 0 values"),
            (Number("5"), "no text"),
            ([Number("5")], "no text"),
            (True, "no text"),
            (None, "no text"),
            ({"a": "b"}, "no text"),
            ("", "blank"),
        ):
            with self.subTest(str(value)):
                found = read_conditions(self.role(bound_claims={"ref": value}))
                if found.reasons:
                    self.assertIn(expected, found.reasons[0])
                else:
                    self.assertEqual(found.claims, {"sub": "x", "ref": expected})
        for name in ("/n/k", "n/k", "iss", "aud", "a b", ""):
            with self.subTest(name):
                self.assertTrue(read_conditions(self.role(bound_claims={name: "x"})).reasons)
        self.assertIn("two values", read_conditions(self.role(bound_claims={"sub": "y"})).reasons[0])

    def test_globs(self) -> None:
        """A pattern with * is listed; its other characters are letters, and so is the rest (MOVE-25)."""
        for value, moved in (("main", True), ("a?[b]{c}", True), ("main/*", False), ("*", False)):
            with self.subTest(value):
                found = read_conditions(self.role(bound_claims={"ref": value}, bound_claims_type="glob"))
                self.assertEqual(not found.reasons, moved)
        self.assertFalse(read_conditions(self.role(bound_claims={"ref": "main/*"})).reasons)

    def test_moved(self) -> None:
        """A role becomes a host of an authenticator, with annotations, addresses and groups (MOVE-23, IMP-45)."""
        self.mount_auth("jwt/", "jwt", ci=self.role(bound_claims={"ref": "main"}, token_bound_cidrs=["10.1.2.3/8"]))
        config = {"jwks_url": "https://issuer.example.org/keys", "bound_issuer": "https://issuer.example.org"}
        self.vault.data["auth/jwt/config"] = {**config, "oidc_discovery_url": "", "jwt_supported_algs": ["RS256", "ES256"]}
        self.vault.lists["auth/jwt/cel/role"] = ["prog"]
        self.read()
        host = self.record("host", "auth/jwt/ci")
        without_key = {"authn/api-key": "false"}
        self.assertEqual(host.annotations, {"authn-jwt/jwt/sub": "x", "authn-jwt/jwt/ref": "main"} | without_key)
        self.assertEqual((host.restricted_to, host.had_api_key), (("10.0.0.0/8",), False))
        self.assertEqual(self.roles_of(host.id), {"group:sys/policies/web", "group:conjur/authn-jwt/jwt/apps"})
        self.assertEqual([each.name for each in self.inventory.authenticators], ["authn-jwt/jwt"])
        settings = {name.rpartition("/")[2]: value for name, value in self.values().items() if name.startswith("conjur/")}
        issuer = b"https://issuer.example.org"
        expected = {
            "audience": [b"svc"],
            "issuer": [issuer],
            "jwks-uri": [issuer + b"/keys"],
            "algorithms": [b"RS256 ES256"],
        }
        self.assertEqual(settings, expected)
        self.assertIn("role prog of auth/jwt/cel: it is a program in CEL", self.notes(NoteKind.LEFT_OUT))

    def test_reserved(self) -> None:
        """No name there becomes a setting, a group or a member of an authenticator, whatever has it (IMP-50)."""
        evil = '{"jwks-uri":"https://evil.example/keys","a":"b"}'
        self.vault.mounts |= {"conjur/": {}, "svc/authn-ldap/": {}, "conjur/authn-jwt/jwt/": {"options": {"version": "2"}}}
        self.vault.first |= {
            ("conjur/", "authn-jwt/jwt"): evil,
            ("conjur/", "authn-oidc/other"): evil,
            ("conjur/", "fine"): evil,
            ("svc/authn-ldap/", "x"): evil,
        }
        self.vault.second["conjur/authn-jwt/jwt/", "deep"] = KeptSecret({1: evil})
        self.vault.namespaces = {"sys/namespaces": ["svc/"], "svc/sys/namespaces": ["authn-jwt/"]}
        self.mount_auth("approle/", "approle", "svc/authn-jwt/", evil={"token_policies": ["web"]})
        self.mount_auth("jwt/", "jwt", ci=self.role())
        self.vault.data["auth/jwt/config"] = {"jwks_url": "https://issuer.example.org/keys"}
        for options in ({}, {"as_json": True}):
            with self.subTest(str(options)):
                self.read(**options)
                reserved = {str(each.id) for each in self.inventory.records if "authn" in each.id.identifier}
                self.assertEqual(
                    reserved,
                    {"policy:conjur/authn-jwt", "policy:conjur/authn-jwt/jwt", "webservice:conjur/authn-jwt/jwt"}
                    | {"group:conjur/authn-jwt/jwt/apps", "variable:conjur/authn-jwt/jwt/audience"}
                    | {"variable:conjur/authn-jwt/jwt/jwks-uri"},
                )
                values = self.values()
                self.assertEqual(values["conjur/authn-jwt/jwt/jwks-uri"], [b"https://issuer.example.org/keys"])
                self.assertTrue([each for each in values if each.startswith("conjur/fine")])
                self.assertIn("those of authenticators", self.notes(NoteKind.LEFT_OUT))
                self.assertIn("role evil of svc/authn-jwt/auth/approle/", self.notes(NoteKind.LEFT_OUT))
        self.read(into="conjur/authn-jwt/jwt")
        self.assertEqual([each for each in self.values() if "evil" in each or "secret" in each], [])
        self.read(into="old")
        self.assertEqual(self.values()["old/svc/authn-ldap/x/jwks-uri"], [b"https://evil.example/keys"])

    def test_not_moved(self) -> None:
        """A role with a condition that can't be stated is a host that nobody can log in as (MOVE-25)."""
        self.mount_auth(
            "jwt/", "jwt", a=self.role(bound_claims={"ref": "m*"}, bound_claims_type="glob"), b=self.role(role_type="oidc")
        )
        self.vault.data["auth/jwt/config"] = {"jwks_url": "https://issuer.example.org/keys"}
        self.read()
        self.assertEqual(self.record("host", "auth/jwt/a").annotations, {"authn/api-key": "false"})
        self.assertEqual(self.inventory.authenticators, ())
        self.assertIn("logins by role a of auth/jwt/: claim ref: it is a pattern", self.notes(NoteKind.LEFT_OUT))
        self.assertIn("logins by role b of auth/jwt/: people log in by it with a browser", self.notes(NoteKind.LEFT_OUT))

    def test_audiences(self) -> None:
        """Each audience is an authenticator, and a role of two audiences a host of both (MOVE-23)."""
        self.mount_auth("my/jwt/", "jwt", a=self.role(bound_audiences=["one", "two"]), b=self.role(bound_audiences=["two"]))
        self.vault.data["auth/my/jwt/config"] = {"jwt_validation_pubkeys": ["PEM"]}
        self.read()
        self.assertEqual([each.name for each in self.inventory.authenticators], ["authn-jwt/my-jwt-1", "authn-jwt/my-jwt-2"])
        self.assertEqual(
            self.record("host", "auth/my/jwt/a").annotations,
            {"authn-jwt/my-jwt-1/sub": "x", "authn-jwt/my-jwt-2/sub": "x", "authn/api-key": "false"},
        )
        self.assertEqual(self.record("host", "auth/my/jwt/b").annotations["authn-jwt/my-jwt-2/sub"], "x")
        self.assertEqual(self.values()["conjur/authn-jwt/my-jwt-1/public-keys"], [])
        self.assertIn("keys of auth/my/jwt/: they are there in PEM", self.notes())


class LoginTests(SourceTestCase):
    """Other logins, and identities."""

    def test_approle(self) -> None:
        """A role of AppRole is a host with a new key; networks mean what they mean there, and secret-ids stay (MOVE-26).

        One whose networks don't meet lets nobody in there, and gets no key here.
        """
        for token, secret, expected in (
            (["10.1.2.3/8"], [], ("10.0.0.0/8",)),
            (["10.1.2.3"], None, ("10.1.2.3/32",)),
            (["10.0.0.0/8"], ["10.1.0.0/16"], ("10.1.0.0/16",)),
            ([], ["fe80::1/64"], ("fe80::/64",)),
            (["10.0.0.0/8"], ["11.0.0.0/8"], None),
            ([], [], ()),
        ):
            with self.subTest(str(token)):
                role = {"token_policies": ["Web"], "token_bound_cidrs": token, "secret_id_bound_cidrs": secret}
                self.mount_auth("approle/", "approle", batch=role)
                self.read()
                host = self.record("host", "auth/approle/batch")
                self.assertEqual((host.restricted_to, host.had_api_key), (expected or (), expected is not None))
                self.assertEqual(self.roles_of(host.id), {"group:sys/policies/web"})
        self.assertIn("secret-ids of 1 roles of auth/approle/: a secret-id can't be read", self.notes())
        self.mount_auth("approle/", "approle", batch={"token_bound_cidrs": ["everywhere"]})
        self.stopped(VaultSource(self.connection).read_inventory(lambda *_: None))

    def entity(self, **changes: object) -> None:
        """Write the entity of ann."""
        alias = {"mount_path": "auth/userpass/", "mount_type": "userpass", "mount_accessor": "acc", "name": "ann"}
        entity: dict[str, Any] = {
            "id": "e1",
            "name": "entity_c4969f81.root",
            "policies": ["web"],
            "metadata": None,
            "disabled": False,
            "aliases": [alias],
            "group_ids": ["g1"],
            "direct_group_ids": ["g1"],
        }
        self.vault.lists["identity/entity/id"] = ["e1"]
        self.vault.data["identity/entity/id/e1"] = entity | changes

    def test_identity(self) -> None:
        """An entity's policies go to the user of its alias; external groups have no members (MOVE-27)."""
        self.mount_auth("userpass/", "userpass", ann={"token_policies": []})
        self.entity()
        self.vault.lists["identity/group/id"] = ["g1", "g2"]
        self.vault.data["identity/group/id/g1"] = {"name": "devs", "type": "internal", "policies": None, "metadata": None}
        self.vault.data["identity/group/id/g2"] = {
            "name": "ext",
            "type": "external",
            "policies": ["web"],
            "member_entity_ids": ["e1"],
            "member_group_ids": ["g1"],
        }
        self.read()
        ann = self.record("user", "ann@auth-userpass")
        self.assertTrue(ann.had_api_key)
        self.assertEqual(self.roles_of(ann.id), {"group:sys/policies/web", "group:identity/group/devs"})
        self.assertEqual(self.roles_of(RecordId("group", "identity/group/devs")), {"group:identity/group/ext"})
        self.assertIn("members of group ext of identity: who belongs to it comes with each login", self.notes())
        self.assertFalse([record for record in self.inventory.records if "entity_c4969f81" in record.id.identifier])
        self.entity(disabled=True)
        self.read()
        ann = self.record("user", "ann@auth-userpass")
        self.assertEqual((ann.had_api_key, ann.annotations), (False, {"authn/api-key": "false"}))
        self.assertIn("its entity is disabled there", self.notes())

    def test_generated_names(self) -> None:
        """An entity whose name a login made is a host by mount and alias, without a key (MOVE-27)."""
        alias = {"mount_path": "auth/ldap/", "mount_type": "ldap", "mount_accessor": "acc", "name": "bob"}
        for name, expected in (("entity_c4969f81.root", "auth/ldap/bob"), ("bob", "identity/entity/bob")):
            with self.subTest(name):
                self.entity(name=name, aliases=[alias], group_ids=None, direct_group_ids=None)
                self.read()
                host = self.record("host", expected)
                self.assertFalse(host.had_api_key)
                self.assertEqual(self.roles_of(host.id), {"group:sys/policies/web"})

    def test_other_methods(self) -> None:
        """Methods and engines that aren't moved are named (MOVE-76)."""
        self.mount_auth("ldap/", "ldap")
        self.vault.mounts["transit/"] = {"type": "transit"}
        self.read()
        self.assertIn("logins by ldap at auth/ldap/", self.notes(NoteKind.LEFT_OUT))
        self.assertIn("engine transit/ of type transit", self.notes(NoteKind.LEFT_OUT))
        self.assertNotIn("token", self.notes())


class NamespaceTests(SourceTestCase):
    """Namespaces, and tokens that see a part."""

    def test_walked(self) -> None:
        """Each namespace is a branch, in depth and with its case; a locked one isn't seen (MOVE-28)."""
        self.vault.namespaces = {"sys/namespaces": ["team/", "locked/", "UPPER/"], "team/sys/namespaces": ["dev/"]}
        self.vault.mounts["team/dev/nskv/"] = {"options": {"version": "2"}}
        self.vault.second["team/dev/nskv/", "s"] = KeptSecret({1: '{"a":"b"}'})
        locked = reply(503, {"errors": ["locked"], "data": {"locked": True}})
        self.vault.odd["LIST", "locked/sys/namespaces"] = [locked]
        self.read()
        branches = {record.id.identifier for record in self.inventory.of_kind("policy")}
        self.assertLessEqual({"team", "team/dev", "team/dev/nskv", "UPPER"}, branches)
        self.assertEqual(self.values()["team/dev/nskv/s/a"], [b"b"])
        self.assertIn("namespace locked/: it is locked", self.notes(NoteKind.UNSEEN))
        self.read(namespace="team/")
        self.assertEqual([*self.values()], ["team/dev/nskv/s/a"])

    def test_endless(self) -> None:
        """Namespaces are walked up to a number, which is named (IMP-53)."""
        self.patch(vault_source, "NAMESPACES_MOST", 3)
        self.vault.namespaces = {"sys/namespaces": ["a/", "b/", "c/", "d/"]}
        self.read()
        self.assertNotIn("c", {record.id.identifier for record in self.inventory.of_kind("policy")})
        self.assertIn("namespaces from c/ on: 3 namespaces are read", self.notes(NoteKind.UNSEEN))

    def test_part(self) -> None:
        """With a right to one secret its engine is found, and all else is "not seen" (MOVE-14)."""
        self.vault.refused = [("GET", "sys/mounts"), ("GET", "sys/auth"), ("LIST", "sys/.*"), ("LIST", "identity/.*")]
        self.vault.data["sys/internal/ui/mounts"] = {"secret": {"secret/": {"type": "kv", "options": {"version": "2"}}}}
        self.read()
        self.assertEqual(self.values(), {"secret/app/db/pw": [b"a"]})
        unseen = self.notes(NoteKind.UNSEEN)
        for part in (
            "engines of the root",
            "logins of the root",
            "policies of the root",
            "namespaces below",
            "identity/group/id",
        ):
            self.assertIn(part, unseen)
        self.read(engines=("secret",), into="old")
        self.assertEqual(self.values(), {"old/secret/app/db/pw": [b"a"]})

    def test_policies(self) -> None:
        """A policy that isn't understood stops with its line, and names with slashes are read (MOVE-17, MOVE-18)."""
        self.put_policy("a b/c", _READ)
        self.put_policy("odd", f'{_READ}\npath "x" {{ when = "now" }}')
        self.mount_auth("approle/", "approle", one={"token_policies": ["A b/c"]}, two={"token_policies": ["web", "odd"]})
        self.read()
        self.assertEqual(self.roles_of(RecordId("host", "auth/approle/one")), {"group:sys/policies/a b/c"})
        self.assertEqual(self.roles_of(RecordId("host", "auth/approle/two")), set())
        self.assertIn("policy odd: its text isn't understood: line 2: 'when' is unknown in a rule", self.notes())

    def test_ended_token(self) -> None:
        """A token that ends while values are read stops with how to go on; no variable has half its versions (MOVE-29)."""
        self.vault.second["secret/", "app/db"].values[2] = '{"pw":"b"}'
        self.read()

        def end(method: str, path: str) -> None:
            self.vault.token = "s.another"

        self.vault.before = end
        fault = self.stopped(self.collect())
        self.assertIn("new token", fault.remedy)

    async def collect(self) -> list[Values]:
        """Read all values."""
        return [each async for each in self.source.read_values(self.inventory.of_kind("variable"))]

    def test_same_plan(self) -> None:
        """Two runs give the same inventory, which holds no value and no token (MOVE-13)."""
        self.assertEqual(self.read(), self.read())
        self.assertNotIn("'a'", repr(self.inventory.records).replace("'app", ""))
        self.assertNotIn(TOKEN, repr(self.source))
        self.assertEqual(self.source.place, URL)
