"""What is remembered, within its bytes."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.storage.cache.read_cache import CacheEntries, CacheShare
from svc.storage.driver.connection import SharedText

#: Bytes: few enough that answers give way.
LIMIT = 400_000

_KEYS = st.tuples(st.sampled_from(["one", "two"]), st.integers(0, 40))
_NAMES = st.frozensets(st.sampled_from([f"r:a:host:{number}" for number in range(12)]), max_size=5)
_ROWS = st.lists(st.tuples(st.binary(max_size=12_000) | st.text(max_size=20) | st.none() | st.integers()), max_size=3)


@attrs.frozen
class Kept:
    """What an answer was remembered with."""

    rows: list[tuple[Any, ...]]
    names: frozenset[str]
    ends_at: float | None


class EntriesTests(SynchronousTestCase):
    """Answers that are remembered and dropped."""

    def setUp(self) -> None:
        """Make room for some."""
        self.entries = CacheEntries(LIMIT)

    def put(
        self,
        key: object,
        *names: str,
        rows: Any = ((b"",),),
        ends_at: float | None = None,
        share: CacheShare = CacheShare.SINGLE_ROW,
    ) -> int:
        """Remember an answer."""
        return self.entries.put((key,), list(rows), frozenset(names), ends_at, share)

    @settings(max_examples=200, deadline=None)
    @given(st.data())
    def test_model(self, data: st.DataObject) -> None:
        """Whatever is put, dropped and asked for: bytes are bounded, and an answer is the last one put, and none dropped."""
        entries, model = CacheEntries(LIMIT), dict[tuple[object, ...], Kept]()
        now = 0.0
        for _ in range(data.draw(st.integers(1, 40))):
            match data.draw(st.sampled_from(["put", "put", "put", "drop", "discard", "get", "later", "clear"])):
                case "put":
                    key, share = data.draw(_KEYS), data.draw(st.sampled_from(CacheShare))
                    ends_at = data.draw(st.none() | st.floats(now, now + 5))
                    kept = Kept(data.draw(_ROWS), data.draw(_NAMES), ends_at)
                    entries.put(key, kept.rows, kept.names, ends_at, share)
                    model[key] = kept
                case "drop":
                    names = data.draw(_NAMES)
                    entries.drop_dependent(names)
                    model = {key: kept for key, kept in model.items() if not kept.names & names}
                case "discard":
                    key = data.draw(_KEYS)
                    entries.discard(key)
                    model.pop(key, None)
                case "later":
                    now += data.draw(st.floats(0, 3))
                case "clear":
                    self.assertLessEqual(entries.clear(), len(model))
                    model.clear()
                case _:
                    key = data.draw(_KEYS)
                    rows, expected = entries.get(key, now), model.get(key)
                    if rows is not None:
                        assert expected is not None
                        self.assertEqual(rows, expected.rows)
                        self.assertTrue(expected.ends_at is None or now < expected.ends_at)
            self.assertLessEqual(entries.size, LIMIT)
            self.assertLessEqual(len(entries), len(model))
        # Whoever is left without names is dropped by nothing but all.
        entries.drop_dependent({name for kept in model.values() for name in kept.names})
        self.assertLessEqual(len(entries), sum(not kept.names for kept in model.values()))
        entries.clear()
        self.assertEqual((entries.size, len(entries)), (0, 0))

    def test_replaced(self) -> None:
        """A later answer takes the place of the earlier one, with its names and its share (CLU-35)."""
        self.put("a", "x", rows=[(b"old",)], share=CacheShare.NEGATIVE)
        self.put("a", "y", rows=[(b"new",)])
        self.assertEqual(self.entries.drop_dependent(["x"]), 0)
        self.assertEqual(self.entries.get(("a",), 0.0), [(b"new",)])
        self.assertEqual(self.entries.drop_dependent(["y"]), 1)
        self.assertEqual(self.entries.size, 0)

    def test_least_recently_used(self) -> None:
        """What was used longest ago gives way, and how many did is told (CLU-35)."""
        size = LIMIT // 80
        evicted = 0
        for number in range(200):
            evicted += self.put(number, "x", rows=[(b"v" * size,)])
            self.entries.get((0,), 0.0)
        self.assertIsNotNone(self.entries.get((0,), 0.0))
        self.assertIsNone(self.entries.get((1,), 0.0))
        self.assertEqual(evicted + len(self.entries), 200)

    def test_strangers(self) -> None:
        """What doesn't exist takes a sixteenth at most, and displaces nothing that does (CLU-35)."""
        for number in range(30):
            self.put(number, f"x{number}")
        before = self.entries.size
        for number in range(5000):
            self.put(f"stranger {number}", "y", share=CacheShare.NEGATIVE)
        self.assertLessEqual(self.entries.size - before, LIMIT / 16)
        self.assertTrue(all(self.entries.get((number,), 0.0) for number in range(30)))
        self.assertIsNone(self.entries.get(("stranger 1",), 0.0))

    def test_lists(self) -> None:
        """Batches and lists take a quarter at most, and displace no answer of one row (CLU-35)."""
        self.put("login", "x")
        for number in range(500):
            self.put(f"list {number}", "y", rows=[(b"v" * 1000,)] * 5, share=CacheShare.SEVERAL_ROWS)
        self.assertLessEqual(self.entries.size, LIMIT / 4 + 2000)
        self.assertIsNotNone(self.entries.get(("login",), 0.0))

    def test_weight(self) -> None:
        """An answer weighs what its texts do, however deep in it they are (CLU-35)."""
        text = "t" * 1000
        for value in ([(text,)], (Kept([(text,)], frozenset(), None),), Kept([((text,),)], frozenset(), None)):
            self.entries.put(("a",), value, frozenset(), None, CacheShare.SEVERAL_ROWS)
            self.assertGreater(self.entries.size, len(text))
            self.assertLess(self.entries.size, 2 * len(text))

    def test_too_large(self) -> None:
        """An answer of more than a sixty-fourth isn't remembered, and what it would replace is forgotten (CLU-35)."""
        self.put("a", "x")
        self.assertEqual(self.put("a", "x", rows=[(b"v" * (LIMIT // 64),)]), 0)
        self.assertIsNone(self.entries.get(("a",), 0.0))
        self.assertEqual(self.entries.size, 0)

    def test_ends(self) -> None:
        """An answer that ends is not told from that moment on (CLU-34)."""
        self.put("a", "x", ends_at=5.0)
        self.assertIsNotNone(self.entries.get(("a",), 4.999))
        self.assertIsNone(self.entries.get(("a",), 5.0))
        self.assertEqual(len(self.entries), 0)

    def test_shared_text(self) -> None:
        """A parameter that many answers share is kept once, and weighs nothing in each (CLU-35)."""
        text = "x" * 5000
        self.put(SharedText(text), "x")
        self.assertLess(self.entries.size, len(text))
        self.assertIsNotNone(self.entries.get((text,), 0.0))
