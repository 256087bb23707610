"""What other JOSE libraries refuse, this service refuses; ``integration/test_jose_differential`` goes further."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests import EXAMPLES
from tests.mutations import compare, tokens


class DifferentialTests(SynchronousTestCase):
    """PyJWT and joserfc beside this service (see ``mutations``)."""

    def test_what_a_library_refuses_is_refused(self) -> None:
        """Of two thousand mutated tokens none is accepted that PyJWT or joserfc refuses, or reads as other claims.

        All three judge every token by signature, header, times, issuer and audience.
        """
        comparison = compare(tokens(80 * EXAMPLES))
        self.assertEqual(comparison.disputed, [])
        self.assertTrue(0.01 < comparison.accepted / comparison.count < 0.5, comparison)  # otherwise nothing was compared
