"""All faults of a document in one answer, of loads and of dry runs."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.dialect import CONJUR, NATIVE
from svc.model.errors import InvalidParameter, PolicyInvalid
from svc.policy.document import Bounds
from svc.policy.faults import FAULTS_MOST, FaultCollector
from svc.policy.grammar import parse_document
from svc.policy.resolve import resolve_statements
from tests.policy.world import policy_named, resolved
from tests.strategies import EDITS, SOUP, mangled
from tests.web.world import WorldCase

#: Documents, each with the lines and beginnings of all messages.
CASES: tuple[tuple[str, list[tuple[int | None, str]]], ...] = (
    ("- !gruop g\n- !usr u\n- !user ok\n", [(1, "Unrecognized data type '!gruop'"), (2, "Unrecognized data type '!usr'")]),
    # Every attribute of a record counts, and its body is read; what is missing isn't looked for, as a body may be lost.
    (
        "- !policy\n  id: p\n  ownr: !user u\n  body:\n  - !host { id: h, restricted_to: x, owner: 5 }\n  - !grop g\n"
        "- !grant { role: !group gone, member: !user none }\n",
        [(3, "No such attribute 'ownr'"), (5, "Expected"), (5, "Invalid IP address"), (6, "Unrecognized")],
    ),
    # Nothing was lost that could declare it: references count, too (POL-106).
    (
        "- !host { id: h, restricted_to: x }\n- !grant { role: !group gone, member: !host h }\n",
        [(1, "Invalid IP address"), (2, "Group 'gone' not found")],
    ),
    (
        "- !grant { role: !group gone }\n- !permit { role: !user none, privilege: read, resource: !user admin }\n",
        [(1, "Attribute 'member' is missing"), (2, "User 'none' not found")],
    ),
    (
        "- !group g\n- !group g\n- !group /h\n- !user u\n- !user u\n",
        [(2, "Group 'g' is declared more"), (3, "Illegal absolute id"), (5, "User 'u' is declared more")],
    ),
    (
        "- !group { id: a, owner: !group b }\n- !group { id: b, owner: !group a }\n- !group { id: c, owner: !group c }\n",
        [(1, "Dependency cycle"), (3, "Dependency cycle")],
    ),
    ("- !group { id: a, id: b }\n- !grp b\n", [(1, "Duplicate attribute: id"), (2, "Unrecognized")]),
    # Of faults of YAML there is only the first, after those that come before it.
    ("- !gruop g\n- !user { id: [\n- !usr u\n", [(1, "Unrecognized"), (3, "")]),
    ("- !group { id: g, layers: [] }\n- &a !user u\n- *b\n- !usr u\n", [(1, "No such attribute"), (3, "Unknown anchor b")]),
    (
        "".join(f"- !t{number} x\n" for number in range(30)),
        [(number, "Unrecognized") for number in range(1, FAULTS_MOST + 1)],
    ),
    (
        "".join(f"- !grant {{ role: !group g{number}, member: !user admin }}\n" for number in range(20)),
        [(number, "Group") for number in range(1, 21)],
    ),
)


class FaultsTests(WorldCase):
    """The member ``errors``."""

    def faults(self, answer: Any) -> list[tuple[int | None, str]]:
        """The lines and messages of all faults."""
        return [(fault.get("line"), fault["message"].partition("\n")[0]) for fault in answer.json()["errors"]]

    def test_all(self) -> None:
        """Loads and dry runs have the same faults, as POL-73 has them; the first is the load's own (POL-105, POL-106)."""
        for text, expected in CASES:
            tried = self.load(text, "root?dryRun=true", status=422)
            for method in ("POST", "PATCH", "PUT"):
                answer = self.load(text, method=method, status=422)
                self.assertEqual(answer.json()["errors"], tried.json()["errors"], text)
            found = self.faults(answer)
            self.assertEqual([line for line, _ in found], [line for line, _ in expected], found)
            for (_, message), (_, beginning) in zip(found, expected, strict=True):
                self.assertTrue(message.startswith(beginning), (message, beginning))
            error, first = answer.json()["error"], answer.json()["errors"][0]
            self.assertEqual(error["code"], "policy_invalid")
            self.assertIn(found[0][1], error["message"])
            self.assertEqual(error["innererror"]["line"], first["line"])
            self.assertEqual(first["context"], {"policy_id": "root", "offending_lines": [first["line"]]})
        self.assertEqual(self.memory.versions, {})

    def test_most(self) -> None:
        """A load lists the first twenty references to what doesn't exist, a dry run all (POL-53, POL-105)."""
        text = "".join(f"- !grant {{ role: !group g{number}, member: !user admin }}\n" for number in range(30))
        found = self.faults(self.load(text, status=422))
        self.assertEqual(found, self.faults(self.load(text, "root?dryRun=true", status=422))[:FAULTS_MOST])

    def test_without_place(self) -> None:
        """A fault without a place has none in the list either (POL-105)."""
        text = "- !policy p\n- !policy { id: q, owner: !policy p }\n"
        self.load(text)
        answer = self.load("- !policy { id: p, owner: !policy q }\n", method="PATCH", status=422)
        [(line, message)] = self.faults(answer)
        self.assertEqual((line, message.partition(" ")[0]), (None, "Dependency"))
        self.assertNotIn("innererror", answer.json()["error"])


class ConjurFaultsTests(FaultsTests):
    """The same in the other dialect."""

    dialect = CONJUR


class CollectedTests(SynchronousTestCase):
    """What is collected, for all documents."""

    @settings(max_examples=100)
    @given(st.one_of(EDITS, SOUP, mangled()))
    def test_first(self, text: str) -> None:
        """The first fault that is collected is the one for which a document is refused; without one it means the same
        (POL-53, POL-105).
        """
        faults = FaultCollector()
        try:
            statements = parse_document(text, Bounds(), False, faults)
        except InvalidParameter:
            self.assertRaises(InvalidParameter, resolved, text)
            return
        meaning = resolve_statements(statements, policy_named("root"), NATIVE, faults)
        self.assertLessEqual(len(faults.found), FAULTS_MOST)
        try:
            expected = resolved(text)
        except PolicyInvalid as fault:
            found = faults.found[0]
            self.assertEqual((found.message, found.line, found.column), (fault.message, fault.line, fault.column))
        else:
            self.assertEqual((faults.found, meaning.rows, meaning.removals), ([], expected.rows, expected.removals))

    def test_too_much(self) -> None:
        """A document that makes too much has that fault once (POL-105)."""
        names = ", ".join(f"!user u{number}" for number in range(1500))
        grant = f"- !revoke {{ roles: [ {names} ], members: [ {names} ] }}\n"
        faults = FaultCollector()
        resolve_statements(parse_document(grant * 3, Bounds(), False, faults), policy_named("root"), NATIVE, faults)
        self.assertEqual([fault.message for fault in faults.found], ["More than 2000000 grants and permissions"])
