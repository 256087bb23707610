"""Advice on faults."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import PolicyInvalid
from svc.policy.advice import advise_on_fault
from svc.policy.document import Bounds
from svc.policy.grammar import parse_document
from tests.policy.world import World


class AdviceTests(SynchronousTestCase):
    """What to do about the faults that documents have."""

    def test_kinds(self) -> None:
        """Faults of each kind, as documents really get them, have advice that fits (POL-73)."""
        for text, expected in (
            ("- !grant { role: !group no, member: !user admin }", "Declare it"),
            ("- !gruop x", "spelling of the tag"),
            ("- !role { kind: gruop, id: x }", "spelling of the kind"),
            ("- !user { id: a, colour: red }", "spelling of the attribute"),
            ("- !user\n  id: a\n  id: b", "Keep one of the two"),
            ("- &a !user a\n- &a !user b", "another name"),
            ("- *a", "Define the anchor"),
            ("- !user a\n- !user a", "Keep one of the declarations"),
            ("- !group { id: a, owner: !group b }\n- !group { id: b, owner: !group a }", "outside of the circle"),
            ("- !user /a", "leading slash"),
            ("- !grant { role: !user admin, member: !user ../../a }", "Remove one '..'"),
            ("- !user", "Write an id"),
            ("- !host-factory { id: f, layers: [ web ] }", "Write !layer"),
            ("- !grant { role: !user admin }", "Add the attribute"),
            ("- !user { id: { a: b } }", "single value"),
            ("- !user { id: 12 }", "wants quotes"),
            ("- !user { id: a, account: other }", "Remove the account"),
            ("- !user a\n---\n- !user b", "three hyphens"),
            ("- !user {annotations: {a: &a b, c: *a, d: *a, e: *a}, id: x}", "Divide the document"),
            ("- " + "[" * 70, "Nest less deeply"),
            ("- !permit { role: !user admin, privilege: " + "x" * 65 + ", resource: !user admin }", "Shorten it"),
            ("- !host { id: a, restricted_to: [ 300.1.1.1 ] }", "such as '10.1.2.3', '10.0.0.0/8'"),
            ("- !host { id: a, restricted_to: [ 10.1.2.3/8 ] }", "Write that network, or the address alone"),
            ("- !host { id: a, restricted_to: [ 'fe80::1%eth0' ] }", "Remove the % and what follows it"),
            ("- !host-factory { id: f, layers: [] }", "such as layers: [ !layer web ]"),
            ("- !host-factory f", "such as layers: [ !layer web ]"),
            ("just a text", "begins with a hyphen"),
            ("- !permit {role: !group ops, privilege: read, resource: !host}", "A tag ends with a blank"),
            ("- !user [", "near this place"),
        ):
            with self.assertRaises(PolicyInvalid) as caught:
                parse_document(text, Bounds(aliases=2))
                World().load(text)
            self.assertIn(expected, advise_on_fault(caught.exception), caught.exception)
        with self.assertRaises(PolicyInvalid) as caught:
            parse_document(b"- \xff")
        self.assertIn("UTF-8", advise_on_fault(caught.exception))
