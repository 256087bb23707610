"""Policies as the installed base has them, each loaded in every mode."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from ipaddress import ip_network
from typing import Final

from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from svc.model.query_results import is_within
from svc.web.http.refusal_responses import V2
from tests.web.routes.test_effective_policy import rows
from tests.web.routes.test_language import LanguageCase
from tests.web.world import ADMIN, user

MODES: Final = ("POST", "PATCH", "PUT")
ANN: Final = user("ann")
BOB: Final = user("bob")
EVE: Final = user("eve")
DELETED: Final = "/deleted/acme/policy/root"
JSON: Final = ("Content-Type", "application/json")


class InstalledCase(LanguageCase):
    """Ways of loading one document in every mode, each into a world of its own."""

    def everywhere(
        self, document: str, *expected: str, into: str = "root", before: str = "", modes: Iterable[str] = MODES
    ) -> None:
        """Load a document in all modes: records that begin with a minus don't exist then, the others do."""
        for mode in modes:
            self.setUp()
            if before and into != "root":
                self.load(before)
            self.load(before + document if into == "root" else document, policy=into, method=mode)
            for record in expected:
                self.assertEqual(self.exists(record.removeprefix("-")), record[0] != "-", (mode, document, record))

    def reads_back(self, policy: str = "root", around: str = "root", before: str = "") -> str:
        """Return the effective policy of the last world, which makes the same rows in a new one."""
        path = f"/policies/acme/policy/{policy.replace('/', '%2F')}"
        text = self.client.get(path, role=ADMIN).body.decode()
        held = rows(self.memory, recorders=False)
        self.setUp()
        self.load(before + text.removeprefix("---\n"), policy=around, method="PUT")
        self.assertEqual(rows(self.memory, recorders=False), held, text)
        return text


AROUND: Final = "- !group ops\n- !group deep/ops\n- !policy { id: shop/web }\n"

#: What stands in a body of the policy ``shop/web``, and what is there afterwards.
BLANK: Final = (
    ("- !host", "host:shop/web"),
    ("- !host\n  annotations: { description: the one machine }", "host:shop/web"),
    ("- !host { restricted_to: [ 10.0.0.0/8 ] }", "host:shop/web"),
    ("- !host { id: '', owner: !group /ops }", "host:shop/web"),
    ("- !host { id: ~ }", "host:shop/web"),
    ("- !host ''", "host:shop/web"),
    ("- !user", "user:web@shop"),
    ("- !user { id: '  ', annotations: { a: b }, restricted_to: 10.0.0.1 }", "user:web@shop"),
    ("- !layer\n- !host-factory { layers: [ !layer ] }", "layer:shop/web", "host_factory:shop/web"),
    ("- !layer\n- !host_factory { layer: !layer, annotations: { a: b } }", "host_factory:shop/web"),
    ("- !host\n- !variable { id: v, owner: !host }\n- !group { id: g, owner: !host }", "host:shop/web", "group:shop/web/g"),
    ("- !user\n- !layer { owner: !user }", "user:web@shop", "layer:shop/web"),
    ("- !host\n- !layer\n- !grant { role: !layer, member: !host }", "host:shop/web"),
    ("- !host\n- !layer\n- !grant { role: !layer, members: [ !host , { role: !host , admin: true } ] }", "host:shop/web"),
    ("- !host\n- !user\n- !group\n- !grant { roles: [ !group ], members: [ !host , !user ] }", "user:web@shop"),
    ("- !host\n- !permit { role: !group /ops, privilege: read, resource: !host }", "host:shop/web"),
    ("- !host\n- !variable\n- !permit { role: !host, privileges: [ read, use ], resource: !variable }", "variable:shop/web"),
    (
        "- !layer\n- !host-factory { layers: [ !layer ] }\n"
        "- !permit { role: !group /ops, privilege: execute, resource: !host-factory }",
        "host_factory:shop/web",
    ),
    ("- !resource { kind: host }\n- !role { kind: user }", "host:shop/web", "user:web@shop"),
    ("- !policy { id: in, body: [ !host , !user , !grant { role: !host, member: !user } ] }", "user:in@shop-web"),
    ("- !policy { id: in, body: [ !group { id: g, owner: !host .. }, !host ] }\n- !host", "host:shop/web/in"),
    ("- &h !host\n- !group g\n- !grant { role: !group g, member: *h }", "host:shop/web"),
)

#: What takes something away in ``shop/web``, once two actors there hold a group, and may read it and one of them; how many
#: grants and permissions are left, and what is there afterwards.
REMOVALS: Final = (
    ("- !delete { record: !host }", 1, 1, "-host:shop/web", "user:web@shop"),
    ("- !delete { records: [ !host , !user ] }", 0, 0, "-host:shop/web", "-user:web@shop"),
    ("- !revoke { role: !group, member: !host }", 1, 4, "host:shop/web"),
    ("- !revoke { role: !group, members: [ !host , !user ] }", 0, 4, "host:shop/web"),
    ("- !deny { role: !host, privilege: read, resource: !group }", 2, 3, "host:shop/web"),
    ("- !deny { role: !user, privileges: [ read ], resources: [ !host , !group ] }", 2, 2, "user:web@shop"),
)


class BlankIdTests(InstalledCase):
    """Records without an id inside of a policy (POL-25)."""

    def test_in_bodies(self) -> None:
        """Each kind but a policy takes the id of the policy around it, in declarations and references, in the policy's body,
        in bodies within bodies, and in a document that is loaded into the policy itself (POL-25).
        """
        for body, *expected in BLANK:
            lines = body.replace("\n", "\n    ")
            self.everywhere(f"- !policy\n  id: shop/web\n  body:\n    {lines}\n", *expected, before="- !group ops\n")
            deeper = f"- !policy\n  id: web\n  body:\n    {lines}\n".replace("\n", "\n    ")
            self.everywhere(f"- !policy\n  id: shop\n  body:\n    {deeper}\n", *expected, before="- !group ops\n")
            self.everywhere(f"{body}\n", *expected, into="shop/web", before=AROUND)

    def test_taken_away(self) -> None:
        """Statements that take something away mean the same records, in a body and in the policy's own document (POL-25)."""
        held = (
            "[ !host , !user , !group , !grant { role: !group, members: [ !host , !user ] }, "
            "!permit { roles: [ !host , !user ], privilege: read, resources: [ !group , !host ] } ]"
        )
        for removal, granted, permitted, *expected in REMOVALS:
            for mode, policy in (("PATCH", "root"), ("PUT", "root"), ("PATCH", "shop/web"), ("PUT", "shop/web")):
                self.setUp()
                self.load("- !policy shop/web\n")
                text = f"- {held}\n{removal}\n"
                if policy == "root":
                    text = "- !policy\n  id: shop/web\n  body:\n    " + text.replace("\n", "\n    ")
                self.load(text.replace(removal, ""), policy=policy)
                self.load(text, policy=policy, method=mode)
                for record in expected:
                    self.assertEqual(self.exists(record.removeprefix("-")), record[0] != "-", (mode, policy, removal))
                grants = [key for key in self.memory.memberships if not key[2]]
                self.assertEqual((len(grants), len(self.memory.permissions)), (granted, permitted), (mode, policy, removal))

    def test_owners(self) -> None:
        """They belong to that policy, as all in its body (POL-25, POL-32)."""
        self.everywhere(
            "- !layer\n- !host\n- !user\n- !host-factory { layers: [ !layer ] }\n", into="shop/web", before=AROUND
        )
        for record in ("host:shop/web", "user:web@shop", "host_factory:shop/web"):
            self.assertEqual(self.owner(record), "policy:shop/web")

    def test_refused(self) -> None:
        """A policy without an id, and anything without one at the root, is refused; the advice of a dry run says so
        (POL-25, POL-73).
        """
        for kind in ("host", "user", "host-factory", "layer", "group", "variable", "webservice", "policy"):
            layers = " { layers: [ !layer x ] }" if kind == "host-factory" else ""
            self.assertEqual(self.invalid(f"- !{kind}{layers}\n"), f"{kind.replace('-', '_')} has a blank id")
        self.assertEqual(self.invalid("- !policy { id: shop, body: [ !policy ] }\n"), "policy has a blank id")
        self.load(AROUND)
        self.assertEqual(self.invalid("- !policy\n", policy="shop/web"), "policy has a blank id")
        answer = self.client.request("POST", "/policies/acme/policy/root?dryRun", body=b"- !host\n", role=ADMIN)
        self.assertIn(
            "Only inside of a policy, whose id then counts, may it be left out; a policy needs one", answer.body.decode()
        )

    def test_read_back(self) -> None:
        """The effective policy has them without ids where their policy owns them, and loads back (POL-77, POL-78)."""
        whole = (
            "- !group ops\n- !policy\n  id: shop\n  body:\n    - !user\n    - !host other\n    - !policy\n      id: web\n"
            "      body: [ !host , !user , !layer , !host-factory { layers: [ !layer ] }, "
            "!grant { role: !layer, member: !host }, "
            "!permit { role: !user, privilege: read, resource: !host } ]\n    - !policy other\n"
        )
        self.load(whole)
        for record in ("user:shop", "user:web@shop", "host:shop/web", "host_factory:shop/web"):
            self.assertTrue(self.exists(record), record)
        text = self.reads_back()
        self.assertEqual((text.count("- !user\n"), text.count("- !host\n")), (2, 1), text)
        self.assertIn("- !host other\n", text)
        self.reads_back("shop", before="- !group ops\n")
        self.setUp()
        self.load(whole)
        text = self.client.get("/policies/acme/policy/shop%2Fweb", role=ADMIN).body.decode()
        self.assertEqual((text.count("- !user\n"), text.count("- !host\n")), (1, 1), text)
        self.assertNotIn("!host", self.client.get("/policies/acme/policy/shop%2Fother", role=ADMIN).body.decode())

    def test_of_others(self) -> None:
        """Nobody takes over somebody else's host or user by a blank id: not one that the policy above declared beside the
        policy, nor one of the policy from above after it was made there (POL-65, POL-66).
        """
        self.load("- !policy { id: shop, body: [ !host web, !user web, !policy web ] }\n- !user eve\n")
        self.load("- !permit { role: !user eve, privileges: [ read, create, update ], resource: !policy shop/web }\n")
        for statement in ("- !host\n", "- !user\n"):
            self.load(statement, policy="shop/web", role=EVE, status=403)
            self.load(statement, policy="shop/web", role=EVE, status=403, method="PUT")
        self.setUp()
        self.load(AROUND)
        self.load("- !host\n", policy="shop/web")
        self.assertIn("made by somebody else", self.error(self.load("- !host shop/web\n", status=403), 403, "forbidden"))


class ConjurBlankIdTests(BlankIdTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


#: Documents that make ``team/own``, which owns itself, with what they are loaded into.
OWN: Final = (
    ("- !policy\n  id: team\n  body:\n    - !policy\n      id: own\n      owner: !policy own\n", "root"),
    ("- !policy { id: team, body: [ !policy { id: own, owner: !policy /team/own } ] }", "root"),
    ("- !policy team\n- !policy { id: team/own, owner: !policy team/own }", "root"),
    ("- !policy { owner: !policy team/own, id: team/own }\n- !policy team", "root"),
    ("- !policy { id: team, body: [ !policy { id: own, owner: { kind: policy, id: own } } ] }", "root"),
    ("- !policy { id: team, body: [ !policy { id: own, owner: !role { kind: policy, id: own } } ] }", "root"),
    ("- !policy { id: team, body: [ !resource { kind: policy, id: own, owner: !policy own } ] }", "root"),
    ("- !policy { id: team, body: [ &own !policy { id: own, owner: !policy x/../own }, !policy x ] }", "root"),
    ("- !policy { id: team, body: [ !policy { id: own, owner: !policy own, body: [ !group g, !variable v ] } ] }", "root"),
    (
        "- !policy { id: team, body: [ !policy { id: own, owner: !policy own, annotations: { a: b },"
        " body: [ !policy { id: in, owner: !policy in } ] } ] }",
        "root",
    ),
    ("- !policy { id: own, owner: !policy own }", "team"),
    ("- !policy { id: own, owner: !policy ../team/own, body: [ !host , !user ] }", "team"),
)


class OwnPolicyTests(InstalledCase):
    """Policies that own themselves, in the vocabulary of the installed base (POL-33)."""

    dialect = CONJUR

    def test_loaded(self) -> None:
        """They are made in every mode, and loaded again; nobody but the policy's own role owns one (POL-33)."""
        for document, into in OWN:
            self.everywhere(document, "policy:team/own", into=into, before="- !policy team\n" if into == "team" else "")
            self.assertEqual(self.owner("policy:team/own"), "policy:team/own")
            held = copy.deepcopy(self.memory.memberships)
            for mode in MODES:
                self.load(document, policy=into, method=mode)
            self.assertEqual(self.memory.memberships, held)
            self.load("- !variable v\n", policy="team/own", status=404)
            members = [key[1] for key in held if key[0] == "acme:policy:team/own"]
            self.assertEqual(members, ["acme:policy:team/own"])

    def test_other_roles(self) -> None:
        """Only a policy may own itself, and only by itself: other roles and longer circles are refused (POL-33)."""
        for text in (
            "- !group { id: g, owner: !group g }",
            "- !user { id: u, owner: !user u }",
            "- !layer { id: l, owner: !layer l }",
            "- !policy { id: a, owner: !policy b }\n- !policy { id: b, owner: !policy a }",
            "- !policy { id: a, owner: !group a/g, body: [ !group g ] }",
        ):
            self.assertIn("Dependency cycle encountered", self.invalid(text))
        self.load("- !policy { id: team, body: [ !policy { id: own, owner: !policy own } ] }")
        self.load("- !policy { id: mine, owner: !policy mine }", policy="team/own", status=404)
        self.load("- !policy { id: two, owner: !policy two }\n- !group { id: g, owner: !policy two }", policy="team")
        document = "- !policy { id: team, owner: !group team/g }"
        self.assertIn("Dependency cycle encountered", self.invalid(document, method="PATCH"))

    def test_replaced(self) -> None:
        """Its recorder's owners replace the policy around one; others can't, though they may load into that (POL-41)."""
        inner = "!policy { id: in, owner: !policy in }"
        own = f"- !policy {{ id: own, owner: !policy own, body: [ !variable v, !group g, {inner} ] }}"
        mine = f"- !variable {{ id: w, owner: !group own/g }}\n{own}"
        for recorder, caller, added, status in (
            ("team", ANN, 201, 201),
            ("team", ADMIN, 201, 201),
            ("root", ADMIN, 201, 201),
            ("root", ANN, 403, 403),
            ("team", BOB, 201, 403),
            ("team", EVE, 404, 404),
        ):
            for replacing in (mine, own, "[]"):
                self.setUp()
                self.load(
                    "- !user ann\n- !user bob\n- !user eve\n- !policy { id: team, owner: !user ann }\n"
                    "- !policy { id: other, owner: !user bob }\n"
                    "- !permit { role: !user bob, privileges: [ read, create, update ], resource: !policy team }\n"
                )
                body = f"- !policy\n  id: team\n  owner: !user ann\n  body:\n    {mine}".replace("\n- ", "\n    - ")
                self.load(body if recorder == "root" else mine, policy=recorder)
                self.load(mine, policy="team", role=caller, status=added)
                self.load(replacing, policy="team", method="PUT", role=caller, status=status)
                gone = (recorder, status, replacing) == ("team", 201, "[]")
                for record in ("policy:team/own", "policy:team/own/in", "variable:team/own/v"):
                    self.assertEqual(self.exists(record), not gone, (recorder, caller, replacing, record))
        self.setUp()
        self.load("- !user bob\n- !user ann\n- !policy { id: team, owner: !user ann, body: [ !policy own ] }")
        self.load("- !permit { role: !user bob, privileges: [ read, create ], resource: !policy team/own }")
        self.load(f"- {inner}", policy="team/own", role=BOB)
        outer = "- !policy { id: team, owner: !user ann, body: [ !policy { id: own, owner: !policy own } ] }"
        self.load(outer, method="PATCH")
        for caller, status in ((ANN, 403), (ADMIN, 201)):
            self.load("[]", policy="team", method="PUT", role=caller, status=status)

    def test_given_to_itself_and_back(self) -> None:
        """An update gives a policy to itself, and back (POL-42)."""
        self.load("- !policy { id: team, body: [ !policy own ] }")
        self.load("- !policy { id: own, owner: !policy own }", policy="team", status=403, method="PUT", role=user("nobody"))
        own = "- !policy { id: team, body: [ !policy { id: own, owner: !policy own } ] }"
        self.load(own, method="PATCH")
        self.assertEqual(self.owner("policy:team/own"), "policy:team/own")
        self.load("- !policy { id: team, body: [ !policy own ] }", method="PATCH")
        self.assertEqual(self.owner("policy:team/own"), "policy:team")
        self.assertNotIn(("acme:policy:team/own", "acme:policy:team/own", True), self.memory.memberships)

    def test_deleted(self) -> None:
        """One goes with the policy around it, whatever deletes that, and alone by the policy that recorded it (POL-45)."""
        own = "- !policy { id: team, body: [ !policy { id: own, owner: !policy own, body: [ !variable v, !host h ] } ] }"
        for document, mode, stays in (
            ("- !delete { record: !policy team }", "PATCH", ""),
            ("- !delete { record: !policy team/own }", "PATCH", "team"),
            ("[]", "PUT", ""),
            ("- !policy team", "PUT", "team"),
            ("- !delete { record: !group ops }", "PATCH", ""),
        ):
            self.setUp()
            group = "- !group ops\n" if "ops" in document else ""
            self.load(group + (own.replace("team,", "team, owner: !group ops,") if group else own))
            before = set(self.memory.resources)
            tried = self.client.request(mode, "/policies/acme/policy/root?dryRun", body=document.encode(), role=ADMIN)
            told = {item["identifier"] for item in tried.json()["deleted"]["items"]}
            self.load(document, method=mode)
            self.assertEqual(told, before - set(self.memory.resources), document)
            for record in ("policy:team/own", "variable:team/own/v", "host:team/own/h"):
                self.assertFalse(self.exists(record), (document, record))
            self.assertEqual(self.exists("policy:team"), bool(stays))

    def test_nearer_policies(self) -> None:
        """Only the nearest policy around it takes one along: another that stays between keeps it (POL-45)."""
        self.load("- !group ops\n- !policy team\n- !policy { id: team/sub, owner: !group ops }\n")
        self.load("- !policy { id: team/sub/own, owner: !policy team/sub/own }")
        self.load("- !delete { record: !policy team }", method="PATCH")
        self.assertTrue(self.exists("policy:team/sub/own"))
        self.load("- !delete { record: !policy team/sub }", method="PATCH")
        self.assertFalse(self.exists("policy:team/sub/own"))

    def test_recorded_by_others(self) -> None:
        """One that another policy recorded doesn't go with the policy around it, but stays for its recorder, since a load
        that may not delete it alone may make and delete policies around it (POL-45, POL-33, NEWER-17).
        """
        adm = "!policy { id: %s/adm, owner: !policy %s/adm, body: [ !variable precious, !host h ] }"
        by_name = f"- !user bob\n- !policy {{ id: shop, owner: !user bob }}\n- {adm % ('shop/z', 'shop/z')}\n"
        by_root = f"- !user bob\n- !policy {{ id: shop, owner: !user bob, body: [ !policy z, {adm % ('z', 'z')} ] }}\n"
        bob, around, within = user("bob"), "- !delete { record: !policy z }", "- !delete { record: !policy z/adm }"
        for document, made in ((by_name, "- !policy z"), (by_root, "")):
            self.setUp()
            self.load(document)
            self.load(within, policy="shop", method="PATCH", role=bob, status=403)
            if made:
                self.load(made, policy="shop", role=bob)
            before = set(self.memory.resources)
            self.load("[]", policy="shop", method="PUT", role=bob, status=403)
            answer = self.client.request("DELETE", "/branches/acme/shop/z", role=bob, headers=(("Accept", V2),))
            self.assertEqual((answer.status, set(self.memory.resources)), (404, before), answer.body)
            path = "/policies/acme/policy/shop?dryRun"
            tried = self.client.request("PATCH", path, body=around.encode(), role=bob).json()
            self.load(around, policy="shop", method="PATCH", role=bob)
            gone = before - set(self.memory.resources)
            self.assertEqual((gone, {row["identifier"] for row in tried["deleted"]["items"]}), ({"acme:policy:shop/z"},) * 2)
            self.assertEqual({row.record.resource for row in self.memory.deleted.values()}, gone)
            self.load(within, policy="shop", method="PATCH", role=bob, status=403)
            self.load("- !delete { record: !policy shop }", method="PATCH")
            self.assertFalse(any(self.exists(f"{kind}:shop/z/adm{rest}") for kind, rest in (("policy", ""), ("host", "/h"))))

    def test_replaced_around(self) -> None:
        """A replacement of the root that drops the policy around one takes it along only if the root recorded it, and can't
        keep it then; where that policy recorded it, it goes too (POL-45, POL-35).
        """
        own = "- !policy { id: team/sub/own, owner: !policy team/sub/own }\n"
        for before, recorder, document, stays in (
            (own, "root", "- !policy team\n", False),
            (own.replace("team/", ""), "team", "- !policy team\n", True),
            (own.replace("team/sub/", ""), "team/sub", "- !policy team\n", False),
            (own.replace("team/", ""), "team", "[]", False),
        ):
            self.setUp()
            self.load("- !policy team\n- !policy team/sub\n")
            self.load(before, policy=recorder)
            if recorder == "root":
                self.assertIn("would be deleted", self.invalid(f"- !policy team\n{own}", method="PUT"))
            self.load(document, method="PUT")
            self.assertEqual(self.exists("policy:team/sub"), False)
            self.assertEqual(self.exists("policy:team/sub/own"), stays, (recorder, document))

    def test_had_back(self) -> None:
        """A deleted one is had back, with what it owned, by the policy that recorded it (DEL-12)."""
        self.load("- !policy { id: team, body: [ !policy { id: own, owner: !policy own, body: [ !variable v ] } ] }")
        self.client.post("/secrets/acme/variable/team%2Fown%2Fv", b"x", role=RoleName("acme", "policy", "team/own"))
        self.load("- !delete { record: !policy team }", method="PATCH")
        listed = self.client.get(DELETED, role=ADMIN).json()
        self.assertEqual(
            [each["id"] for each in listed if "own" in each["id"]], ["acme:variable:team/own/v", "acme:policy:team/own"]
        )
        numbers = "&".join(f"number={each['number']}" for each in listed)
        answer = self.client.post(f"{DELETED}?{numbers}", b"", role=ADMIN)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.json()["left"], [], answer.body)
        self.assertEqual(self.owner("policy:team/own"), "policy:team/own")
        self.assertTrue(self.exists("variable:team/own/v"))

    def test_authority(self) -> None:
        """Nobody gets anything by it: its recorder's loaders may change and delete it, and neither see nor read more; others
        may neither load into it nor take it (POL-33, POL-58).
        """
        self.load(
            "- !user eve\n- !user bob\n"
            "- !policy { id: team, body: [ !policy { id: own, owner: !policy own, body: [ !variable v ] } ] }\n"
            "- !permit { role: !user eve, privileges: [ read, create, update ], resource: !policy team }"
        )
        bob = "[ !grant { role: !policy own, member: !user /bob } ]"
        for mode in MODES:
            for text in (
                f"- {bob}",
                "- !permit { role: !user /bob, privilege: execute, resource: !variable own/v }",
                "- !grant { role: !policy own, member: !policy /team }",
                "- !policy { id: own, annotations: { a: b } }",
            ):
                self.load(text, policy="team", method=mode, role=EVE, status=403)
            self.load("- !variable w", policy="team/own", method=mode, role=EVE, status=404)
            self.load("- !variable w", policy="team/own", method=mode, status=404)
        self.load("- !delete { record: !policy own }", policy="team", method="PATCH", role=EVE, status=403)
        for role, path in ((ADMIN, "own%2Fv"), (EVE, "own%2Fv")):
            answer = self.client.get(f"/secrets/acme/variable/team%2F{path}", role=role)
            self.assertEqual(answer.status, 404)
        for role in (ADMIN, EVE):
            self.assertEqual(self.client.get("/resources/acme/policy/team%2Fown", role=role).status, 404)

    def test_who_can(self) -> None:
        """Who has access to one is told, and ends (ACC-1)."""
        self.load("- !policy { id: team, body: [ !policy { id: own, owner: !policy own, body: [ !variable v ] } ] }")
        self.load("- !user eve\n- !grant { role: !policy team/own, member: !user eve }\n", status=201)
        for path in ("policy/team%2Fown", "variable/team%2Fown%2Fv"):
            answer = self.client.get(f"/resources/acme/{path}?holders&privilege=update", role=EVE)
            self.assertIn(answer.status, {200, 404}, answer.body)
            answer = self.client.get(f"/resources/acme/{path}?permitted_roles&privilege=update", role=EVE)
            self.assertEqual(answer.json(), ["acme:policy:team/own", "acme:user:admin", "acme:user:eve"])
        for view in ("all", "graph", "members", "memberships"):
            self.assertEqual(self.client.get(f"/roles/acme/policy/team%2Fown?{view}", role=EVE).status, 200, view)

    def test_read_back(self) -> None:
        """The effective policy tells the owner, and loads back (POL-77)."""
        self.load("- !policy { id: team, body: [ !policy { id: own, owner: !policy own, annotations: { a: b } } ] }")
        self.assertIn("owner: !policy /team/own", self.reads_back())
        self.reads_back("team")

    def test_branches(self) -> None:
        """Branches tell the owner; one is given to itself, and deleted with the branch around it, or
        with what that owns if the policy around the branch recorded it (NEWER-16, NEWER-17).
        """
        self.load("- !policy { id: team, body: [ !policy { id: own, owner: !policy own, body: [ !variable v ] } ] }")
        self.load("- !policy { id: seen, body: [ !policy own ] }")
        path = "/branches/acme/seen/own"
        body = b'{"owner": {"kind": "policy", "id": "seen/own"}}'
        answer = self.client.request("PATCH", path, body=body, role=ADMIN, headers=(JSON, ("Accept", V2)))
        self.assertEqual((answer.status, self.owner("policy:seen/own")), (200, "policy:seen/own"), answer.body)
        self.load("- !user eve\n- !permit { role: !user eve, privilege: read, resource: !policy seen/own }\n")
        told = json.loads(self.client.get(path, role=EVE, headers=(("Accept", V2),)).body)
        self.assertEqual(told["owner"], {"kind": "policy", "id": "seen/own"})
        answer = self.client.request("DELETE", "/branches/acme/team", role=ADMIN, headers=(("Accept", V2),))
        self.assertEqual(answer.status, 204, answer.body)
        self.assertFalse(self.exists("policy:team/own") or self.exists("variable:team/own/v"))
        for deleted, stays in (("a%2Fb", True), ("a", False)):
            self.setUp()
            self.load("- !policy a\n- !policy a/b\n- !policy { id: c, owner: !policy a/b }\n")
            self.load("- !policy { id: c/own, owner: !policy c/own }\n")
            answer = self.client.request("DELETE", f"/branches/acme/{deleted}", role=ADMIN, headers=(("Accept", V2),))
            self.assertEqual((answer.status, self.exists("policy:c")), (204, False), answer.body)
            self.assertEqual(self.exists("policy:c/own"), stays, deleted)


class NativeOwnPolicyTests(InstalledCase):
    """The dialect ``native`` refuses them, since nobody would own them (POL-33, POL-90)."""

    def test_refused(self) -> None:
        """The words name the policy (POL-33)."""
        for document, into in OWN:
            self.setUp()
            if into == "team":
                self.load("- !policy team\n")
            self.assertIn("Dependency cycle encountered between Policy 'team/own", self.invalid(document, policy=into))


#: What the installed base takes, and what is there afterwards; ``native`` refuses all of it.
LENIENT: Final = (
    # Layers without a tag.
    ("- !layer web\n- !host-factory { id: f, layers: [ web ] }", "host_factory:f"),
    ("- !layer web\n- !host-factory { id: f, layer: web }", "host_factory:f"),
    ("- !layer web\n- !host-factory { id: f, layers: web }", "host_factory:f"),
    ("- !layer web\n- !host-factory { id: f, layers: [ 'web' ] }", "host_factory:f"),
    ("- !layer web\n- !host-factory { id: f, layers: [ ! web, !layer web ] }", "host_factory:f"),
    ("- !layer a\n- !layer b\n- !host-factory\n  id: f\n  layers:\n    - a\n    - !layer b\n", "host_factory:f"),
    ("- !layer a\n- !layer b\n- !host-factory { id: f, layers: [ [ a ], b ] }", "host_factory:f"),
    ("- !policy { id: p, body: [ !layer web, !host-factory { id: f, layers: [ web ] } ] }", "host_factory:p/f"),
    ("- !layer web\n- !policy { id: p, body: [ !host-factory { layers: [ /web ] } ] }", "host_factory:p"),
    ("- !layer web\n- !host-factory { id: f, layers: [ &w web ] }\n- !host_factory { id: g, layer: *w }", "host_factory:g"),
    ("- !layer x\n- !resource { kind: host_factory, id: f }\n", "-host_factory:f"),
    # Lists of nothing.
    ("- !host-factory { id: f, layers: [] }", "host_factory:f"),
    ("- !host_factory { id: f, layer: [ ] }", "host_factory:f"),
    ("- !host-factory { id: f, layers: [ [], [] ] }", "host_factory:f"),
    # Records once more.
    ("- &h !host a\n- *h", "host:a"),
    ("- &h !host { id: a, annotations: { a: b } }\n- !group g\n- *h\n- *h", "host:a", "group:g"),
    ("- &all [ !host a, !group b ]\n- *all", "host:a", "group:b"),
    ("- &p !policy { id: p, body: [ !variable v ] }\n- *p", "variable:p/v"),
    ("- !policy { id: p, body: [ &h !host a, *h ] }", "host:p/a"),
    ("- &p !policy { id: p, body: &b [ &h !host a, *h ] }\n- !policy { id: q, body: *b }\n- *p", "host:p/a", "host:q/a"),
    ("- [ &h !user a, [ *h ] ]", "user:a"),
    ("- &k !host k\n- !group g\n- !grant { role: !group g, member: *k }\n- *k", "host:k"),
    # Singular and plural of one attribute: the last counts.
    ("- !group g\n- !host a\n- !host b\n- !grant { role: !group g, member: !host a, members: [ !host b ] }", "host:b"),
    ("- !group g\n- !host b\n- !grant { roles: [ !group g ], role: !group g, member: !host b }", "host:b"),
    ("- !layer a\n- !host-factory { id: f, layer: !layer none, layers: [ !layer a ] }", "host_factory:f"),
    ("- !user u\n- !permit { role: !user u, privilege: x, privileges: [ read ], resource: !user u }", "user:u"),
    ("- !user u\n- !permit { role: !user u, privilege: x, resources: !variable w, resource: !user u }", "user:u"),
    # Zones.
    ("- !host { id: a, restricted_to: 'fe80::1%eth0' }", "host:a"),
    ("- !user { id: a, restricted_to: [ 10.0.0.0/8, fe80::%en0/64, fe80::1%2 ] }", "user:a"),
)

#: What both dialects take.
EMPTY: Final = (
    ("- !host { id: a, annotations: [] }", "host:a"),
    ("- !variable { id: a, annotations: [] }\n- !policy { id: p, annotations: [], body: [] }", "variable:a", "policy:p"),
    ("- !host { id: a, annotations: {} }", "host:a"),
    ("- !host { id: a, restricted_to: [] }", "host:a"),
    ("- !user { id: a, public_keys: [] }", "user:a"),
    ("- !group g\n- !grant { role: !group g, members: [] }", "group:g"),
    ("- !user u\n- !permit { roles: [], privileges: [], resources: [] }", "user:u"),
    ("- !policy { id: p, body: [] }", "policy:p"),
)


class LenientTests(InstalledCase):
    """What the installed base takes, in its vocabulary (POL-90)."""

    dialect = CONJUR

    def test_loaded(self) -> None:
        """All of it loads, in every mode (POL-90)."""
        for document, *expected in LENIENT:
            if expected != ["-host_factory:f"]:
                self.everywhere(document, *expected)

    def test_what_counts(self) -> None:
        """Of singular and plural the last counts, layers without a tag are layers, and records once more are themselves
        (POL-90).
        """
        self.load("- !group g\n- !host a\n- !host b\n- !grant { role: !group g, member: !host a, members: [ !host b ] }")
        self.assertEqual((self.granted("group:g", "host:a"), self.granted("group:g", "host:b")), (False, True))
        self.load("- !layer web\n- !host-factory { id: f, layers: [ web ] }")
        self.assertTrue(self.granted("layer:web", "host_factory:f"))
        self.assertEqual(
            self.invalid("- !host-factory { id: f, layers: [ 7 ] }")[-32:], "layer for field 'layer', got Integer"[-32:]
        )
        self.assertIn("got String", self.invalid("- !group g\n- !grant { role: g, member: !user admin }"))
        self.assertIn(
            "Duplicate attribute: role", self.invalid("- !grant { role: !group g, role: !group h, member: !user admin }")
        )
        self.assertIn("more than once", self.invalid("- !host x\n- !host x"))
        self.assertEqual(self.invalid("- !host-factory f2"), "Host factory 'f2' does not include any layers")

    def test_zones(self) -> None:
        """A range with a zone is kept, shown and warned of, and admits nobody: by which interface a client comes isn't known
        (POL-14, POL-90).
        """
        text = "- !host { id: a, restricted_to: [ 'fe80::1%eth0', 10.0.0.0/8, 'fe80::%eth1/64' ] }"
        answer = self.load(text).json()
        self.assertEqual(self.ranges("host:a"), {"fe80::1%eth0/128", "10.0.0.0/8", "fe80::%eth1/64"})
        told = "The range 'fe80::1%eth0/128' of Host 'a' has a zone and so admits nobody."
        self.assertIn(told, answer["warnings"])
        networks = [ip_network(each) for each in self.ranges("host:a")]
        for client, admitted in (("10.1.2.3", True), ("fe80::1", False), ("fe80::1%eth0", False), ("fe80::2%eth1", False)):
            self.assertEqual(is_within(client, networks), admitted, client)
        self.assertFalse(is_within("fe80::1", [ip_network("fe80::1%eth0/128")]))
        self.assertIn("fe80::1%eth0/128", self.reads_back())
        for wrong in ("1.2.3.4%eth0", "fe80::1%", "fe80::1%a b", "::1%eth0%eth1", "fe80::1%eth0/64"):
            self.assertIn("Invalid IP address or CIDR range", self.invalid(f"- !host {{ id: b, restricted_to: '{wrong}' }}"))

    def test_padded_privileges(self) -> None:
        """A permitted privilege that is blank, or begins or ends with a blank, is kept and warned of (POL-90)."""
        warned = {
            f"The privilege '{each}' is blank, or begins or ends with a blank: no other request uses it."
            for each in ("", " ", " read", "read\t")
        }
        unknown = "The privilege 'a b' is none that this service checks."
        self.assertEqual(set(self.load(PADDED).json()["warnings"]), {*warned, unknown})
        self.assertEqual({privilege for _, privilege, _ in self.memory.permissions}, {"", " ", " read", "read\t", "a b"})
        self.assertIn("' read'", self.reads_back())

    def test_lists_of_nothing(self) -> None:
        """Lists of nothing mean nothing (POL-90)."""
        for document, *expected in EMPTY:
            self.everywhere(document, *expected)


class NativeLenientTests(InstalledCase):
    """The same in the dialect ``native``, which refuses what is likely a mistake (POL-90)."""

    def test_refused(self) -> None:
        """Each is refused with words (POL-90)."""
        for document, *_ in LENIENT:
            self.setUp()
            self.assertTrue(self.invalid(document), document)

    def test_padded_privileges(self) -> None:
        """A permitted privilege that is blank, or begins or ends with a blank, is refused; a denial removes one that there
        is, and the effective policy names it by a comment (POL-90, POL-96).
        """
        for each in ("''", "' '", "' read'", "[ a b, 'read ' ]"):
            document = (
                f"- !group g\n- !variable v\n- !permit {{ role: !group g, privilege: {each}, resource: !variable v }}\n"
            )
            self.assertIn("is blank, or begins or ends with a blank", self.invalid(document))
        self.load("- !group g\n- !variable v\n")
        self.memory.permissions[("acme:variable:v", " read", "acme:group:g")] = "acme:policy:root"
        printed = self.client.get("/policies/acme/policy/root", role=ADMIN).body.decode()
        self.assertIn("# - the privilege ' read' of 'acme:group:g' on 'acme:variable:v'\n", printed)
        self.load("- !deny { role: !group g, privilege: ' read', resource: !variable v }", method="PATCH")
        self.assertEqual(self.memory.permissions, {})

    def test_lists_of_nothing(self) -> None:
        """Lists of nothing mean nothing (POL-90)."""
        for document, *expected in EMPTY:
            self.everywhere(document, *expected)


PADDED: Final = """
- !group g
- !variable v
- !permit { role: !group g, privileges: [ '', ' ', ' read', "read\\t", a b ], resource: !variable v }
"""

#: Texts without quotes as values of annotations, and the signs that YAML reads.
UNQUOTED: Final = (
    ("{3f2a-1}", "In YAML { begins a mapping: put quotes"),
    ("{a, b}", "In YAML { begins a mapping: put quotes"),
    ("{{ value }}", "In YAML { begins a mapping: put quotes"),
    ("{a}-b", "Put quotes around the whole"),
    ("{{a}}/b", "In YAML { begins a mapping: put quotes"),
    ("*main", "In YAML * begins an alias: put quotes"),
    ("*.example.org", "In YAML * begins an alias: put quotes"),
    ("*", "In YAML * begins an alias: put quotes"),
    ("refs/*:x: y", "Put quotes around a text with a colon before a blank"),
    ("@scope/x", "In YAML @ begins no text: put quotes"),
    ("%x", "In YAML % begins no text: put quotes"),
    ("`x`", "In YAML ` begins no text: put quotes"),
    ("&", "In YAML & begins an anchor: put quotes"),
    ("|x", "In YAML | begins a block of text: put quotes"),
    (">=1.2", "In YAML > begins a block of text: put quotes"),
    ("[a] b", "Put quotes around the whole"),
    ("'a' b", "Put quotes around the whole"),
    ("- x", "In YAML - before a blank begins an item of a list: put quotes around a text that begins so, or begin the list"),
    ("-", "In YAML - before a blank begins an item of a list: put quotes"),
    ("? x", "In YAML ? before a blank begins a key: put quotes"),
    (", a", "In YAML , begins no text: put quotes"),
    ("[!y]", "Put a blank between the tag and ']', or quotes around a text that begins with !"),
    ("{x: !y}", "Put a blank between the tag and '}', or quotes around a text that begins with !"),
    ("!y, z", "Put a blank between the tag and ',', or quotes around a text that begins with !"),
    ("!y{z}", "Put a blank between the tag and '{', or quotes around a text that begins with !"),
    ('!y"z"', "Put a blank between the tag and '\"', or quotes around a text that begins with !"),
)


class UnquotedTests(InstalledCase):
    """Texts that want quotes (POL-91)."""

    def test_words(self) -> None:
        """The refusal names what YAML reads, and that quotes are needed; so does a dry run (POL-91)."""
        for value, expected in UNQUOTED:
            text = f"- !host\n  id: a\n  annotations:\n    authn-jwt/bb/repositoryUuid: {value}\n    b: c\n"
            self.assertIn(expected, self.invalid(text), value)
            tried = self.client.request("POST", "/policies/acme/policy/root?dryRun", body=text.encode(), role=ADMIN)
            self.assertIn(expected, tried.json()["errors"][0]["message"])

    def test_merge_keys(self) -> None:
        """Merge keys are refused by name, in annotations and in records (POL-91)."""
        for text in (
            "- !host { id: a, annotations: &common { a: b } }\n- !host { id: b, annotations: { <<: *common, c: d } }",
            "- !host { id: a, <<: { owner: !user admin } }",
        ):
            self.assertIn("Merge keys are not read: write out what they would merge", self.invalid(text))
