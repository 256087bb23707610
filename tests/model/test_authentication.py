"""Refusals, and when who is put off may come again."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.model.authentication import Refused, spread_retry_after
from svc.model.reasons import POSTPONING_REASONS, Reason, RefusalKind


class RefusedTests(SynchronousTestCase):
    """What the client gets."""

    def test_every_reason(self) -> None:
        """A refusal postpones for a reason that says nothing of the credentials, and else is what it was made with
        (FAIL-13).
        """
        for reason in Reason:
            refused = Refused.for_reason(reason, "detail", "acct:user:alice", RefusalKind.UNPRIVILEGED, chance=lambda: 0.5)
            expected = (RefusalKind.POSTPONED, 3) if reason in POSTPONING_REASONS else (RefusalKind.UNPRIVILEGED, None)
            self.assertEqual((refused.kind, refused.retry_after), expected, reason)
            self.assertEqual(
                Refused.for_reason(reason, "detail").kind,
                expected[0] if reason in POSTPONING_REASONS else RefusalKind.UNPROVEN,
            )

    def test_moments(self) -> None:
        """Nobody comes again before he can be judged, and all within as long again, or two seconds where that is longer
        (WIRE-48).
        """
        cases = ((0.0, 1, 2), (0.2, 1, 3), (2.0, 2, 4), (10.0, 10, 20))
        for seconds, first, last in cases:
            self.assertEqual(
                (spread_retry_after(seconds, lambda: 0.0), spread_retry_after(seconds, lambda: 1.0)), (first, last)
            )
        self.assertGreater(len({spread_retry_after(30.0) for _ in range(100)}), 1)
