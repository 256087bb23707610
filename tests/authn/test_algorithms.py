"""Logins with each algorithm that an operator may allow, from the variable ``algorithms`` to admission."""

from __future__ import annotations

import json

from svc.model.dialect import CONJUR
from svc.model.key_sets import ALGORITHMS, DEFAULT_ALGORITHMS
from svc.model.reasons import Reason
from tests.authn.world import CLAIMS, HOST, ISSUER, PROVIDER, URI, Case
from tests.signing import jwk, jwk_for, jwks, token

#: The names of keys that aren't RSA's.
KEYS = {"ES256": "e1", "ES384": "e2", "EdDSA": "d1", "ES512": "e3"}


class AlgorithmsTests(Case):
    """An authenticator whose provider has a key of each type, and whose operator allows some algorithms."""

    def setUp(self) -> None:
        """Keys of each type are published."""
        super().setUp()
        self.published = [jwk("k1"), *(jwk_for(algorithm, name) for algorithm, name in KEYS.items())]
        self.provider.published[URI] = jwks(*self.published)

    def signed(self, algorithm: str) -> bytes:
        """A good token by this algorithm."""
        return token(CLAIMS, KEYS.get(algorithm, "k1"), algorithm)

    def allow(self, *algorithms: str) -> None:
        """Set the variable."""
        self.readings.set(self.branch, algorithms=", ".join(algorithms))

    def test_default(self) -> None:
        """Without the variable the three algorithms of RSA admit, and keys of other types are no hindrance (AUTH-17)."""
        for algorithm in ALGORITHMS:
            if algorithm in DEFAULT_ALGORITHMS:
                self.assert_admitted(self.signed(algorithm))
            else:
                refused = self.refusal(Reason.ALGORITHM_REFUSED, self.signed(algorithm))
                self.assertEqual(refused.detail, f"the algorithm is '{algorithm}', not RS256, RS384 or RS512")
        status = self.status()
        self.assertEqual((status.problems, status.algorithms), ((), DEFAULT_ALGORITHMS))
        self.assertEqual([kid for kid, _ in status.keys.keys], ["k1"])
        self.assertEqual(
            status.keys.unused,
            tuple(
                f"key {number} '{name}' is not used: it is for {algorithm}, not for RS256, RS384 or RS512"
                for number, (algorithm, name) in enumerate(KEYS.items(), 2)
            ),
        )

    def test_each_alone(self) -> None:
        """An algorithm that is allowed admits, and then no other does, those of RSA included."""
        for allowed in ALGORITHMS:
            self.allow(allowed)
            for algorithm in ALGORITHMS:
                if algorithm == allowed:
                    self.assert_admitted(self.signed(algorithm))
                else:
                    self.refusal(Reason.ALGORITHM_REFUSED, self.signed(algorithm))
            self.assertEqual(self.status().algorithms, (allowed,))

    def test_all_together(self) -> None:
        """All can be allowed at once."""
        self.allow(*ALGORITHMS)
        for algorithm in ALGORITHMS:
            self.assert_admitted(self.signed(algorithm))
        self.assertEqual(len(self.status().keys.keys), 5)

    def test_from_the_next_login_on(self) -> None:
        """What an operator takes back ends with the next login, whatever was remembered."""
        self.allow("ES256")
        self.assert_admitted(self.signed("ES256"))
        self.allow("EdDSA")
        self.refusal(Reason.ALGORITHM_REFUSED, self.signed("ES256"))
        self.assert_admitted(self.signed("EdDSA"))
        self.readings.unset(self.branch, "algorithms")
        self.refusal(Reason.ALGORITHM_REFUSED, self.signed("EdDSA"))
        self.assert_admitted(self.signed("RS256"))

    def test_keys_of_other_authenticators(self) -> None:
        """Two authenticators of one provider have the algorithms that each one's operator allows, no others (AUTH-43)."""
        other = self.branch.replace("/ci", "/bare")
        self.readings.set(other, jwks_uri=URI, issuer=ISSUER, token_app_property="app", identity_path="/jwt-apps")
        self.readings.annotations[HOST]["authn-jwt/bare/repo"] = "org/app"
        self.readings.set(other, algorithms="ES256")
        for _ in range(2):
            self.assert_admitted(self.signed("RS256"))
            self.assert_admitted(self.signed("ES256"), service="bare")
            self.refusal(Reason.ALGORITHM_REFUSED, self.signed("RS256"), service="bare")
            self.refusal(Reason.ALGORITHM_REFUSED, self.signed("ES256"))

    def test_the_key_narrows(self) -> None:
        """A key that says what it is for is for nothing else that is allowed."""
        self.allow("RS256", "PS256")
        self.provider.published[URI] = jwks(jwk("k1", alg="PS256"))
        self.assert_admitted(self.signed("PS256"))
        refused = self.refusal(Reason.ALGORITHM_REFUSED, self.signed("RS256"))
        self.assertEqual(refused.detail, "the key is for PS256, not RS256")

    def test_no_key_for_what_is_allowed(self) -> None:
        """A provider without a key for what is allowed has none: nobody can be judged, and status says why."""
        self.readings.unset(self.branch, "jwks-uri")
        self.readings.set(self.branch, algorithms="EdDSA")
        value = json.dumps({"type": "jwks", "value": {"keys": [jwk("k1")]}})
        self.readings.set(self.branch, public_keys=value)
        (problem,) = self.status().problems
        self.assertIn("it has no usable key", problem.what)
        self.refusal(Reason.CONFIGURATION_INVALID, self.signed("EdDSA"))

    def test_faulty_lists(self) -> None:
        """With a list that can't be read nobody logs in, by whatever algorithm, and status names what is wrong (AUTH-17)."""
        for text in ("none", "HS256", "RS256, HS256", "RS256 none", "rs256", ",", "ES521", " ", None):
            self.readings.set(self.branch, algorithms=text)
            for algorithm in ALGORITHMS:
                refused = self.refusal(Reason.CONFIGURATION_INVALID, self.signed(algorithm))
                self.assertIn("The variable algorithms ", refused.detail)
            for name in ("none", "HS256"):
                forged = token(CLAIMS, alg=name)
                self.refusal(Reason.TOKEN_UNSIGNED if name == "none" else Reason.ALGORITHM_REFUSED, forged)
            self.assertTrue(self.status().problems)

    def test_two_names_of_one(self) -> None:
        """``Ed25519`` and ``EdDSA`` are one algorithm, in the variable, in keys and in tokens (AUTH-17)."""
        for allowed in ("EdDSA", "Ed25519", "RS256 Ed25519"):
            self.allow(allowed)
            for alg in ("EdDSA", "Ed25519", None):
                self.provider.published[URI] = jwks(jwk_for("EdDSA", "d1", alg=alg))
                self.provider.cached.clear()
                for name in ("EdDSA", "Ed25519"):
                    self.assert_admitted(token(CLAIMS, "d1", "EdDSA", alg=name))
            self.assertIn("EdDSA", self.status().algorithms)
        self.allow("RS256")
        refused = self.refusal(Reason.ALGORITHM_REFUSED, token(CLAIMS, "d1", "EdDSA", alg="Ed25519"))
        self.assertEqual(refused.detail, "the algorithm is 'Ed25519', not RS256")

    def test_explained(self) -> None:
        """Operators are told which algorithm a token has, and which are allowed."""
        self.allow("ES256", "RS256")
        steps = {step.check: step for step in self.explained(self.signed("ES256")).steps}
        self.assertEqual(steps["token"].detail, "it is signed with ES256 (allowed are RS256, ES256), and names the key 'e1'")
        failed = self.failed(self.signed("EdDSA"))
        assert failed is not None
        self.assertEqual((failed.check, failed.detail), ("token", "the algorithm is 'EdDSA', not RS256 or ES256"))

    def test_discovered_keys(self) -> None:
        """Keys that are discovered are read for what is allowed, too."""
        self.readings.unset(self.branch, "jwks-uri")
        self.readings.set(self.branch, provider_uri=PROVIDER, algorithms="EdDSA")
        self.provider.published[PROVIDER] = jwks(*self.published)
        self.assert_admitted(self.signed("EdDSA"))

    def test_distrusted(self) -> None:
        """A key of any type is distrusted by its id or thumbprint."""
        self.allow("EdDSA", "ES256")
        for name in ("d1", dict(self.status().keys.keys)["d1"]):
            self.readings.tell(self.branch, distrusted=frozenset({name}))
            self.refusal(Reason.KEY_DISTRUSTED, self.signed("EdDSA"))
            self.assert_admitted(self.signed("ES256"))


class ConjurAlgorithmsTests(AlgorithmsTests):
    """The same in the other dialect."""

    dialect = CONJUR
