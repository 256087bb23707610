"""Policies as the installed base has them, each loaded in every mode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from svc.model.dialect import CONJUR
from tests.web.routes.test_effective_policy import rows
from tests.web.routes.test_language import LanguageCase
from tests.web.world import ADMIN, user

MODES: Final = ("POST", "PATCH", "PUT")
EVE: Final = user("eve")


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
