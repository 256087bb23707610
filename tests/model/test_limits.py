"""The limits that hold unless the configuration says otherwise."""

from __future__ import annotations

import attrs
from twisted.trial.unittest import SynchronousTestCase

from svc.model.limits import Limits


class LimitsTests(SynchronousTestCase):
    """``Limits``."""

    def test_defaults(self) -> None:
        """The defaults are those of the documentation (LIM-1)."""
        limits = Limits()
        self.assertEqual((limits.body, limits.policy_body), (1 << 20, 32 << 20))
        self.assertEqual((limits.request_line, limits.header_limit, limits.identifier), (64 << 10, 32 << 10, 1 << 10))
        self.assertEqual(limits.request_seconds, 30)

    def test_frozen(self) -> None:
        """Nobody changes a limit of a running server."""
        self.assertRaises(attrs.exceptions.FrozenInstanceError, setattr, Limits(), "body", 1)
