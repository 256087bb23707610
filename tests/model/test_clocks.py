"""Clocks: what timers go by, and what tells the time of day."""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.selectreactor import SelectReactor
from twisted.trial.unittest import SynchronousTestCase

from svc.model.clocks import MachineClock, describe_moment, iso_milliseconds, parse_rfc3339, use_steady_clock


class SteadyTests(SynchronousTestCase):
    """A reactor that runs steadily."""

    def setUp(self) -> None:
        """Make a reactor that goes by a clock which a test sets, as reactors go by the machine's, and a timer of it."""
        self.reactor: Any = SelectReactor()
        self.addCleanup(self.reactor.removeAll)
        self.ahead = 0.0
        real = time.time
        self.patch(time, "time", lambda: real() + self.ahead)
        self.reactor.seconds = time.time
        self.fired: list[str] = []
        self.reactor.callLater(100, self.fired.append, "earlier")
        use_steady_clock(self.reactor)
        self.reactor.callLater(50, self.fired.append, "later")

    def test_clock_set_back(self) -> None:
        """Timers are due when they would have been, those too that were running before."""
        self.ahead = -3600.0
        self.assertLessEqual(self.reactor.timeout(), 50)
        self.assertGreater(self.reactor.timeout(), 0)
        self.assertLessEqual(max(call.getTime() for call in self.reactor.getDelayedCalls()) - self.reactor.seconds(), 100)

    def test_clock_set_forwards(self) -> None:
        """No timer is due because of it."""
        self.ahead = 3600.0
        self.reactor.runUntilCurrent()
        self.assertEqual(self.fired, [])

    def test_time_of_day(self) -> None:
        """The wall clock follows the machine's; a reactor begins with its time, which libraries write as a date."""
        self.assertLess(abs(self.reactor.seconds() - time.time()), 60)
        before = MachineClock().seconds()
        self.ahead = -3600.0
        self.assertLess(MachineClock().seconds(), before - 3000)


class MomentTests(SynchronousTestCase):
    """Moments as people read them."""

    def test_described(self) -> None:
        """A moment is a date and time with its zone; a number that is outside the calendar stays one (CLI-70)."""
        for seconds, text in (
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (1_700_000_000.25, "2023-11-14T22:13:20.250Z"),
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (1e18, "1e+18 s after 1970"),
            (10**30, "1e+30 s after 1970"),
            (math.inf, "inf s after 1970"),
            (math.nan, "nan s after 1970"),
        ):
            self.assertEqual(describe_moment(seconds), text)


#: Moments that are outside of the years 1 to 9999 in UTC, or once their fraction is rounded.
EXTREME = ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.9999999Z")


class ReadTests(SynchronousTestCase):
    """Texts of RFC 3339."""

    def test_extreme(self) -> None:
        """A moment that couldn't be written is none (AUD-30)."""
        for text in (*EXTREME, "2026-11-22T09:30:00", "2026-11-22", ""):
            self.assertRaises(ValueError, parse_rfc3339, text)

    @given(st.datetimes(timezones=st.timezones()), st.integers(-1439, 1439))
    def test_any(self, at: datetime, minutes: int) -> None:
        """What is read can be written, whatever its zone (AUD-30)."""
        text = at.replace(tzinfo=timezone(timedelta(minutes=minutes))).isoformat()
        try:
            seconds = parse_rfc3339(text)
        except ValueError:
            self.assertNotIn(at.year, range(2, 9999))
        else:
            self.assertTrue(iso_milliseconds(seconds))
