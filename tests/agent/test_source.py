"""Tests of ``svc.agent.source``."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.agent.faults import SourceFault
from svc.agent.source import VariableSnapshot, VariableSource
from tests.agent.scene import ServerInMemory, result_of


class SourceTests(SynchronousTestCase):
    """Which questions are asked."""

    def test_two_batches(self) -> None:
        """What was refused is asked for by itself, so that the others have a tag (AGT-15)."""
        server = ServerInMemory({"a": b"1", "b": b"2"})
        source = VariableSource(server)
        both = VariableSnapshot({"a": b"1", "b": b"2"}, {})
        self.assertEqual(result_of(source.read({"b", "a"})), both)
        self.assertEqual(result_of(source.read({"b", "a"})), both)
        server.forbidden = {"a"}
        some = VariableSnapshot({"b": b"2"}, {"a": "the role may not read it"})
        for _ in range(3):
            self.assertEqual(result_of(source.read({"b", "a"})), some)
        tag, b = repr([("a", b"1"), ("b", b"2")]), repr([("b", b"2")])
        self.assertEqual(server.asked[:3], [(("a", "b"), None), (("a", "b"), tag), (("a", "b"), tag)])
        self.assertEqual(server.asked[3:], [(("b",), None), (("a",), None), (("b",), b), (("a",), None)])
        server.forbidden = set()
        self.assertEqual(result_of(source.read({"b", "a"})), both)
        self.assertEqual(result_of(source.read({"b", "a"})), both)
        self.assertEqual(server.asked[-1], (("a", "b"), None))

    def test_other_ids(self) -> None:
        """The tag of other ids isn't shown, and nothing at all is no question (AGT-15)."""
        server = ServerInMemory({"a": b"1", "b": b"2"})
        source = VariableSource(server)
        result_of(source.read({"a"}))
        result_of(source.read({"a", "b"}))
        self.assertEqual(result_of(source.read(())), VariableSnapshot())
        self.assertEqual(server.asked, [(("a",), None), (("a", "b"), None)])

    def test_faults(self) -> None:
        """Without an answer there is a fault, and the tag holds after it (AGT-18)."""
        server = ServerInMemory({"a": b"1"})
        source = VariableSource(server)
        result_of(source.read({"a"}))
        server.fault = "away"
        self.assertRaises(SourceFault, result_of, source.read({"a"}))
        server.fault = None
        self.assertEqual(result_of(source.read({"a"})).values, {"a": b"1"})
        self.assertEqual(server.asked[-1], (("a",), repr([("a", b"1")])))
