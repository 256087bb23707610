"""Tests of ``svc.storage.dumps``: which objects of a dump are this program's, by their names."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StartRefused
from svc.storage.dumps import KINDS, known_objects, require_own_objects

#: The entries of a dump with all objects, in a schema, and what is not restored or not the database's own beside them.
WHOLE = (
    *(f"{kind} place {name} svc" for kind, name in sorted(known_objects())),
    "TABLE DATA place accounts svc",
    "SEQUENCE SET place key_refresh_numbers svc",
    "ACL place TABLE accounts svc",
    "DEFAULT ACL public DEFAULT PRIVILEGES FOR TABLES postgres",
    "COMMENT - EXTENSION pg_stat_statements ",
    "EXTENSION - pg_stat_statements ",
    "SCHEMA - place svc",
)


class DemandOwnObjectsTests(SynchronousTestCase):
    """What ``pg_restore --list`` names."""

    def test_own(self) -> None:
        """A dump of this program's objects is taken, in any one schema, and so is one that lacks newer ones (DATA-39)."""
        schema, objects = require_own_objects(WHOLE)
        self.assertEqual(schema, "place")
        self.assertEqual(objects, {(kind, "place", name.partition("(")[0]) for kind, name in known_objects()})
        _, older = require_own_objects([entry for entry in WHOLE if "ldap_mappings" not in entry])
        self.assertEqual({name for kind, _, name in objects - older if kind == "TABLE"}, {"ldap_mappings"})
        require_own_objects([f"{entry.rpartition(' ')[0]} the owner" for entry in WHOLE])
        self.assertEqual({kind for kind, _ in known_objects()}, set(KINDS))

    def test_schemas(self) -> None:
        """The schema may have any name, also one with blanks (DATA-57)."""
        for name in ("sy", "Its Own", "TABLE DATA"):
            entries = [entry.replace(" place ", f" {name} ") for entry in WHOLE]
            self.assertEqual(require_own_objects(entries)[0], name)

    def test_quotes(self) -> None:
        """Types of a function's arguments may have quotes, as with ``quote_all_identifiers`` (DATA-58)."""
        self.assertIn("FUNCTION place guard_sealed_column(regclass, name) svc", WHOLE)
        quoted = [entry.replace("(regclass, name)", '("regclass", "name")') for entry in WHOLE]
        self.assertEqual(require_own_objects(quoted), require_own_objects(WHOLE))
        twice = self.assertRaises(StartRefused, require_own_objects, [*WHOLE, *(set(quoted) - set(WHOLE))])
        self.assertIn("it holds 'FUNCTION place guard_sealed_column(regclass, name)'", twice.message)

    def test_strange(self) -> None:
        """An object that no migration makes is refused by its kind, its schema or its name (DATA-39)."""
        for strange in (
            "FUNCTION place evil()",
            "FUNCTION place touch_account(text)",
            "FUNCTION other touch_account()",
            "AGGREGATE place touch_account()",
            "TRIGGER place accounts evil",
            "TRIGGER place audit_keys touched_by_insert",
            "EVENT TRIGGER - evil",
            "RULE place accounts evil",
            "VIEW place accounts",
            "MATERIALIZED VIEW place searchable",
            "TABLE place accounts evil",
            "TABLE place Accounts",
            "TABLE DATA place evil",
            "INDEX place evil",
            "SEQUENCE place evil",
            "POLICY place accounts evil",
            "ROW SECURITY place accounts",
            "DEFAULT place accounts account",
            "CAST - CAST (text AS bigint)",
            "PROCEDURAL LANGUAGE - evil",
            "PUBLICATION - evil",
            "SUBSCRIPTION - evil",
            "TYPE place evil",
            "OPERATOR place =",
            "BLOB - 16384",
        ):
            refused = self.assertRaises(StartRefused, require_own_objects, [*WHOLE, f"{strange} svc"])
            self.assertIn(f"it holds {strange!r}, which this program doesn't make: it was altered", refused.message)

    def test_another_database(self) -> None:
        """A dump without the record of the migrations is none of this program's (DATA-20)."""
        refused = self.assertRaises(StartRefused, require_own_objects, ["TABLE public notes svc"])
        self.assertEqual(refused.message, "it holds no database of this program")
