"""Tests of ``svc.model.expiration``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.expiration import Duration, is_about_expiration, parse_lifetime

#: How often each part is there, by its letter; ``None`` for not at all.
PARTS = st.tuples(*(st.none() | st.integers(0, most) for most in (99, 999, 99, 9999, 9999, 99999, 99999)))


def written(years: object, months: object, weeks: object, days: object, *time: object) -> str:
    """A duration as ISO 8601 writes it."""
    date = "".join(f"{n}{letter}" for n, letter in zip((years, months, weeks, days), "YMWD", strict=True) if n is not None)
    clock = "".join(f"{n}{letter}" for n, letter in zip(time, "HMS", strict=True) if n is not None)
    return f"P{date}" + (f"T{clock}" if clock else "")


class DurationTests(SynchronousTestCase):
    """Durations of ISO 8601."""

    def test_examples(self) -> None:
        """Years and months are those of a calendar, weeks are days, and the rest is seconds (SEC-21)."""
        for text, duration in (
            ("P30D", Duration(days=30)),
            ("P1Y2M", Duration(months=14)),
            ("P2W", Duration(days=14)),
            ("PT12H", Duration(seconds=43200)),
            ("P1DT2H30M5.25S", Duration(days=1, seconds=9005.25)),
            ("PT0,5S", Duration(seconds=0.5)),
            ("PT90M", Duration(seconds=5400)),
        ):
            self.assertEqual(Duration.parse(text), duration, text)
            self.assertEqual(parse_lifetime(text), duration)

    def test_bad_ones(self) -> None:
        """What isn't a duration is refused, as is one of no time at all, one in another order, or one beyond all measure
        (SEC-21).
        """
        for text in (
            *(
                "",
                "P",
                "PT",
                "P1",
                "1D",
                "30",
                "P-1D",
                "-P1D",
                "+P1D",
                "p1d",
                "P1D ",
                " P1D",
                "P1H",
                "PT1D",
                "P1DT",
                "P1.5D",
            ),
            *(
                "PT1M1H",
                "P1D1M",
                "P0D",
                "PT0S",
                "PT0.0S",
                "P1D\n",
                "P٣D",
                "P99999Y",
                "P1001Y",
                "P366001D",
                "PT9999999H",
                "PT1.S",
                "PT.5S",
                "P1D;DROP",
                "P" + "9" * 9,
            ),
        ):
            with self.assertRaises(ValueError, msg=repr(text)) as caught:
                Duration.parse(text)
            self.assertTrue(str(caught.exception).startswith("must be"))
            self.assertIsNone(parse_lifetime(text))
        self.assertIsNone(parse_lifetime(None))

    @given(PARTS)
    def test_every_part_counts(self, parts: tuple[int | None, ...]) -> None:
        """A duration is the sum of its parts, whichever of them are there."""
        years, months, weeks, days, hours, minutes, seconds = (part or 0 for part in parts)
        wanted = Duration(years * 12 + months, weeks * 7 + days, float(hours * 3600 + minutes * 60 + seconds))
        if wanted == Duration():
            self.assertRaises(ValueError, Duration.parse, written(*parts))
        else:
            self.assertEqual(Duration.parse(written(*parts)), wanted)

    @given(st.text(alphabet="PYMWDTHS0123456789.,- ", max_size=12))
    def test_any_text(self, text: str) -> None:
        """Any text is a positive duration or refused."""
        try:
            duration = Duration.parse(text)
        except ValueError:
            return
        self.assertTrue(duration.months + duration.days + duration.seconds > 0)
        self.assertTrue(text.startswith("P"))

    def test_annotations(self) -> None:
        """The annotations of expiration are told from all others."""
        for name in ("expiration/ttl", "rotation/rotator", "rotation/ttl", "rotation/postgresql/password/length"):
            self.assertTrue(is_about_expiration(name))
        for name in ("expiration", "expiration/", "rotation", "x/rotation/ttl", "Rotation/ttl", ""):
            self.assertFalse(is_about_expiration(name))
