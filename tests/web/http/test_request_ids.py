"""Tests of ``svc.web.http.request``."""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from svc.web.http.request import BATCH_SIZE, generate_ids


class RequestIdsTests(SynchronousTestCase):
    """Ids of requests."""

    def test_each_is_another(self) -> None:
        """No two ids are alike, of one generator or of several, within what is made at a time and beyond."""
        first, second = generate_ids(), generate_ids()
        ids = [next(ids) for _ in range(2 * BATCH_SIZE + 1) for ids in (first, second)]
        self.assertEqual(len(set(ids)), len(ids))
        self.assertTrue(all(re.fullmatch("[0-9a-f]{16}", each) for each in ids))
