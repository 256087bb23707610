"""Three readers of tokens, at length: a minute of work for a processor, though no socket and no database."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.mutations import compare, tokens

#: How many tokens; ``tests/crypto/test_differential`` reads the first few thousand of them in every run.
COUNT = 200_000


class DifferentialTests(TestCase):
    """PyJWT and joserfc beside this service (see ``mutations``)."""

    timeout = 1800

    def test_what_a_library_refuses_is_refused(self) -> None:
        """Of 200,000 mutated tokens none is accepted that PyJWT or joserfc refuses, or reads as other claims.

        All three judge every token by signature, header, times, issuer and audience.
        """
        comparison = compare(tokens(COUNT))
        self.assertEqual((comparison.count, comparison.disputed), (COUNT, []))
