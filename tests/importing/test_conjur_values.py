"""Tests of ``svc.importing.conjur_values``: batches, versions, and what isn't given."""

from __future__ import annotations

import httpx

from svc.importing.conjur_values import ConjurValues
from svc.importing.inventory import NoteKind, Values
from tests.importing.moving import ImportCase


class ValuesTests(ImportCase):
    """Values of a Conjur."""

    def read_values(self) -> dict[str, Values]:
        """Read all values."""
        variables = [each for each in self.read().of_kind("variable") if each.versions]
        self.source.requests.clear()

        async def collect() -> list[Values]:
            return [each async for each in ConjurValues(self.session).read_values(variables)]

        found = self.run_import(collect())
        self.assertEqual(sorted(each.variable for each in found), [each.id for each in variables])
        return {each.variable.identifier: each for each in found}

    def bytes_of(self, values: Values) -> list[bytes]:
        """The values alone."""
        return [each.value for each in values.versions]

    def test_batch(self) -> None:
        """Values are bytes, read in base64 with its line breaks, and never trimmed (MOVE-44, MOVE-45)."""
        values = [b" v ", b"v\n", b"\xff\x00", b"x" * 1000, "é".encode(), b"1"]
        for number, value in enumerate(values):
            self.source.set_values(f"v{number}", value)
        self.source.add("variable:empty")
        found = self.read_values()
        self.assertEqual([self.bytes_of(found[f"v{number}"]) for number in range(len(values))], [[each] for each in values])
        [request] = self.source.requests
        self.assertEqual(request.headers["accept-encoding"], "base64")
        self.assertNotIn("empty", str(request.url))

    def test_cut_by_bytes(self) -> None:
        """Batches are cut by the bytes of the query (MOVE-45)."""
        for number in range(300):
            self.source.set_values(f"{number:03}/" + "é" * 30, b"%d" % number)
        found = self.read_values()
        self.assertEqual(
            {int(name[:3]): self.bytes_of(each) for name, each in found.items()}, {n: [b"%d" % n] for n in range(300)}
        )
        self.assertGreater(len(self.source.requests), 5)
        self.assertLess(len(self.source.requests), 50)
        self.assertLess(max(len(each.url.query) for each in self.source.requests), 10_240)

    def test_refused_batch(self) -> None:
        """A refused batch is read one by one; what isn't permitted is listed (MOVE-45, IMP-7)."""
        for number in range(5):
            self.source.set_values(f"v{number}", b"%d" % number)
        self.source.unreadable.add("variable:v2")
        found = self.read_values()
        self.assertEqual([self.bytes_of(found[f"v{n}"]) for n in range(5)], [[b"0"], [b"1"], [], [b"3"], [b"4"]])
        [note] = found["v2"].notes
        self.assertEqual((note.kind, note.what), (NoteKind.UNSEEN, "variable:v2"))
        self.assertFalse(found["v2"].complete)

    def test_versions(self) -> None:
        """Versions are read by the numbers that the list has, oldest first (MOVE-42)."""
        self.source.set_values("v", *(b"%d" % number for number in range(6, 26)), first=6)
        found = self.read_values()["v"]
        self.assertEqual([(each.number, each.value) for each in found.versions], [(n, b"%d" % n) for n in range(6, 26)])
        self.assertTrue(found.complete)
        self.assertNotIn("25", repr(found.versions[-1]).replace("number=25", ""))

    def test_version_that_went(self) -> None:
        """A version that went since the list was read is a note, and the others are given (MOVE-42, IMP-5)."""
        self.source.set_values("v", b"1", b"2", b"3")

        def remove_oldest(_: httpx.Request) -> None:
            self.source.resources["variable:v"].values.pop(1, None)

        variables = self.read().of_kind("variable")
        self.source.intruders.append(remove_oldest)

        async def collect() -> list[Values]:
            return [each async for each in ConjurValues(self.session).read_values(variables)]

        [found] = self.run_import(collect())
        self.assertEqual(self.bytes_of(found), [b"2", b"3"])
        self.assertFalse(found.complete)
        self.assertEqual([each.what for each in found.notes], ["version 1 of variable:v"])

    def test_commas(self) -> None:
        """An id with a comma, which parts ids in a query, is read by itself (MOVE-53)."""
        self.source.set_values("a,b", b"1")
        self.source.set_values("c", b"2")
        self.source.set_values("d", b"3")
        found = self.read_values()
        self.assertEqual(
            {name: self.bytes_of(each) for name, each in found.items()}, {"a,b": [b"1"], "c": [b"2"], "d": [b"3"]}
        )

    def test_large(self) -> None:
        """A batch of too many bytes is read in halves; one value beyond the limit is listed (MOVE-44, IMP-7)."""
        self.source.set_values("a", b"a" * 400_000)
        self.source.set_values("b", b"b" * 400_000)
        self.source.set_values("c", b"c" * 400_000)
        self.source.set_values("d", b"d" * 2_000_000)
        found = self.read_values()
        sizes = {name: sum(map(len, self.bytes_of(each))) for name, each in found.items()}
        self.assertEqual(sizes, {"a": 400_000, "b": 400_000, "c": 400_000, "d": 0})
        self.assertEqual([each.kind for each in found["d"].notes], [NoteKind.UNSEEN])

    def test_strange_batches(self) -> None:
        """A batch in another shape stops, and gives nothing of it (IMP-8)."""
        self.source.set_values("v", b"a-secret-value")
        self.source.set_values("w", b"a-secret-value")
        for answer in (
            httpx.Response(200, text="<html>a-secret-value"),
            httpx.Response(200, json=["a-secret-value"]),
            httpx.Response(200, json={}),
            httpx.Response(200, json={"myorg:variable:v": "YQ==", "myorg:variable:x": "YQ=="}),
            httpx.Response(200, json={"myorg:variable:v": "YQ==", "myorg:variable:w": 1}),
            httpx.Response(200, json={"myorg:variable:v": "YQ==", "myorg:variable:w": "a-secret-value"}),
            httpx.Response(500, text="a-secret-value"),
        ):

            def intrude(request: httpx.Request, answer: httpx.Response = answer) -> httpx.Response | None:
                return answer if request.url.path == "/secrets" else None

            self.source.intruders = [intrude]
            self.stopped(self.read_values)
