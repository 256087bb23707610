"""Tests of ``svc.authn.evaluation`` and ``checks``: what operators are told of logins, and of an authenticator."""

from __future__ import annotations

import json

from twisted.internet.defer import Deferred

from svc.authn.jwt import JWT
from svc.authn.settings import fetch_problem
from svc.model.authentication import Admitted, ExplanationStep, KeySource, Refused
from svc.model.dialect import CONJUR
from svc.model.errors import DOCUMENT_UNUSABLE, ISSUER_DIFFERS, LEADS, UNLISTED, InvalidName, StoreUnavailable
from svc.model.reasons import Reason
from tests.authn.world import CLAIMS, HOST, ISSUER, NOW, PROVIDER, URI, Case
from tests.signing import jwk, jwk_for, jwks, token


class ExplainTests(Case):
    """``explain``, in both dialects."""

    def test_checks_have_names(self) -> None:
        """Every check has a name of its own, of a fixed list."""
        self.assertEqual(
            " ".join(check.name for check in JWT.checks),
            "enabled account token webservice configuration keys signature expiry not-before issuer issued-at audience "
            "identity role privilege origin annotations-extent annotation-names annotations enforced-claims permitted-names "
            "claims",
        )

    def test_admitted(self) -> None:
        """Of a login that would be admitted every check has passed, and it's said what was compared."""
        self.readings.set(self.branch, audience="svc", enforced_claims="ref", claim_aliases="branch: ref")
        self.readings.annotations[HOST]["authn-jwt/ci/branch"] = "main"
        self.readings.restrictions[HOST] = ("192.0.2.0/24",)
        explanation = self.explained(self.claims(aud=["svc"], ref="main"))
        self.assertTrue(explanation.admitted)
        self.assertEqual(explanation.role, str(HOST))
        self.assertEqual({step.outcome for step in explanation.steps}, {"passed"})
        told = {step.check: step.detail for step in explanation.steps}
        self.assertNotIn("", told.values())
        for check, text in (
            ("enabled", "'authn-jwt/ci' is listed in the configuration"),
            ("account", "the account 'acme' exists"),
            ("token", "it is signed with RS256 (allowed are RS256, RS384, RS512), and names the key 'k1'"),
            ("webservice", f"a policy defines the webservice '{self.branch}'"),
            ("keys", f"from '{URI}': 'k1'"),
            ("expiry", "'exp' is 2023-11-14T22:14:20Z, the time here is 2023-11-14T22:13:20Z"),
            ("issuer", f"'iss' is or holds '{ISSUER}'"),
            ("audience", "'aud' is or holds 'svc'"),
            ("identity", f"the claim 'app' names '{HOST}'"),
            ("privilege", "it has the privilege authenticate on 'authn-jwt/ci'"),
            ("origin", "the request comes from '192.0.2.1', one that it is restricted to"),
            ("enforced-claims", "enforced are: 'ref'"),
            ("claims", "'repo' is 'org/app'; 'ref' is 'main'"),
        ):
            self.assertEqual(told[check], text)
        self.assertIn("'branch' for 'ref'", told["permitted-names"])

    def test_keys_that_take_a_token(self) -> None:
        """Operators are told the status with which a cluster refuses to show its keys, and no token (AUTH-67, AUTH-70)."""
        self.readings.set(self.branch, jwks_token="sekret.of.cluster")
        self.provider.refused = f"{URI}: the answer has status 403: the token that was shown is not accepted"
        step = self.failed(self.claims())
        assert step is not None
        self.assertEqual((step.check, step.reason), ("keys", Reason.KEYS_UNAVAILABLE))
        self.assertIn("status 403", step.detail)
        status = self.status()
        self.assertIn("status 403", status.problems[0].what)
        self.assertIn("jwks-token", status.problems[0].remedy)
        self.refusal(Reason.KEYS_UNAVAILABLE, self.claims(), 503)
        self.assertNotIn("sekret", f"{status}{self.explained(self.claims())}")
        self.assertIn(KeySource(URI, token="sekret.of.cluster"), self.provider.granted)

    def test_with_the_least(self) -> None:
        """What a token needn't have, and settings don't say, is said too."""
        self.readings.unset(self.branch, "issuer", "jwks-uri", "token-app-property", "identity-path")
        self.readings.set(self.branch, issuer=ISSUER)
        self.readings.set(self.branch, public_keys=json.dumps({"type": "jwks", "value": json.loads(jwks())}))
        told = {step.check: step.detail for step in self.explained(self.claims(nbf=..., iat=...), login=HOST.login).steps}
        self.assertEqual(told["not-before"], "the token has no 'nbf', and needs none")
        self.assertEqual(told["issued-at"], "the token has no 'iat', and needs none")
        self.assertEqual(told["audience"], "the token has no 'aud', and needs none")
        self.assertEqual(told["keys"], "from the variable public-keys: 'k1'")
        self.assertEqual(told["identity"], f"the path names '{HOST}'")
        self.assertEqual(told["enforced-claims"], "enforced are: none")

    def test_refused(self) -> None:
        """The check that refuses a login has failed, those before it have passed, and those after it weren't reached."""
        explanation = self.explained(self.claims(repo="other"))
        *passed, failed = explanation.steps
        self.assertEqual({step.outcome for step in passed}, {"passed"})
        detail = "the claim 'repo' is 'other'; the annotation says 'org/app'"
        self.assertEqual(failed, ExplanationStep("claims", "failed", detail, Reason.CLAIM_MISMATCH))
        self.assertFalse(explanation.admitted)
        self.assertEqual(explanation.role, str(HOST))

    def test_refused_early(self) -> None:
        """Of what wasn't reached nothing is told, though it was looked at: an expired token of an unknown account."""
        explanation = self.explained(self.claims(exp=NOW), account="other")
        outcomes = [(step.check, step.outcome) for step in explanation.steps[:3]]
        self.assertEqual(outcomes, [("enabled", "passed"), ("account", "failed"), ("token", "not reached")])
        for step in explanation.steps[2:]:
            self.assertEqual((step.outcome, step.detail, step.reason), ("not reached", "", None))

    def test_refused_at_once(self) -> None:
        """Authenticators and accounts that can't exist are explained as well."""
        for options, check in (
            ({"service": "x" * 2000}, "enabled"),
            ({"account": "a b"}, "account"),
            ({"account": "a b", "service": "off"}, "enabled"),
        ):
            failed = self.failed(token(CLAIMS), **options)
            assert failed is not None
            self.assertEqual(failed.check, check)

    def test_agrees_with_the_decision(self) -> None:
        """An explanation admits whom the decision admits, and refuses for the same reason in the same words (AUTH-62)."""
        self.readings.set(self.branch, audience="svc")
        good = {"aud": "svc"}
        for evidence in (
            self.claims(**good),
            self.claims(),
            self.claims(**good, exp=NOW),
            self.claims(**good, app="x"),
            self.claims(**good, repo=1),
            token(CLAIMS, "k2"),
            b"a.b.c",
            b"",
        ):
            decision, explanation = self.attempt(evidence), self.explained(evidence)
            self.assertEqual(isinstance(decision, Admitted), explanation.admitted)
            if isinstance(decision, Refused):
                (failed,) = (step for step in explanation.steps if step.outcome == "failed")
                self.assertEqual((failed.reason, failed.detail), (decision.reason, decision.detail))
                self.assertEqual(explanation.role, decision.role)

    def test_store_unavailable(self) -> None:
        """While the store can't be asked nothing is explained."""
        self.readings.down = True
        self.failureResultOf(
            Deferred.fromCoroutine(self.authenticator.explain(self.trying(token(CLAIMS)))), StoreUnavailable
        )

    def test_many_keys(self) -> None:
        """Of many keys the first few are named."""
        self.provider.published[URI] = jwks(*(jwk("k1", kid=f"key-{number}") for number in range(20)))
        told = {step.check: step.detail for step in self.explained(token(CLAIMS, kid="key-7")).steps}
        self.assertTrue(told["keys"].endswith("'key-9', …"), told["keys"])


class StatusTests(Case):
    """``status``, in both dialects."""

    def whats(self) -> list[str]:
        """What is wrong, by the status."""
        return [problem.what for problem in self.status().problems]

    def test_well(self) -> None:
        """Of an authenticator that is well there are the source of keys and the keys, and no problems."""
        status = self.status()
        self.assertEqual((status.problems, status.source, status.uri), ((), "jwks-uri", URI))
        self.assertEqual([key_id for key_id, _ in status.keys.keys], ["k1"])
        self.assertEqual((status.keys.fetched_at, status.keys.failure), (NOW, None))
        self.assertEqual((status.clock_offset, status.tokens), (None, 0))
        self.status()
        self.assertEqual(self.provider.fetches, 1)

    def test_sources(self) -> None:
        """The source of keys is named by its variable."""
        self.readings.unset(self.branch, "jwks-uri")
        self.readings.set(self.branch, provider_uri=PROVIDER)
        status = self.status()
        self.assertEqual((status.source, status.uri, len(status.keys.keys)), ("provider-uri", PROVIDER, 1))
        self.readings.unset(self.branch, "provider-uri")
        entries = [jwk("k1"), jwk("weak", 1024)]
        self.readings.set(self.branch, public_keys=json.dumps({"type": "jwks", "value": {"keys": entries}}))
        status = self.status()
        self.assertEqual((status.problems, status.source, status.uri), ((), "public-keys", None))
        self.assertEqual(([key_id for key_id, _ in status.keys.keys], len(status.keys.problems)), (["k1"], 1))
        self.readings.unset(self.branch, "public-keys")
        status = self.status()
        self.assertEqual((status.source, status.uri, status.keys.keys), (None, None, ()))

    def test_every_problem(self) -> None:
        """All problems of the settings are told together, each with its remedy, and the keys are looked at all the same
        (AUTH-29).
        """
        self.readings.set(self.branch, audience=None, enforced_claims="iss,a b", token_app_property="a b")
        status = self.status()
        self.assertEqual(len(status.problems), 4)
        for problem in status.problems:
            self.assertTrue(problem.what.endswith("."))
            self.assertTrue(problem.remedy.endswith("."))
        self.assertEqual((status.source, len(status.keys.keys)), ("jwks-uri", 1))

    def test_no_keys(self) -> None:
        """Keys that can't be had are a problem."""
        self.provider.refused = "no route"
        self.assertEqual(self.whats(), ["There are no keys: no route."])
        self.assertEqual(self.status().keys.failure, "no route")

    def test_private_networks(self) -> None:
        """Where the setting forbids the address of the keys, the remedy is that option, and a new start."""
        self.provider.refused = f"{URI}: its address is loopback, and {UNLISTED}"
        (problem,) = self.status().problems
        self.assertIn("--allow-private-providers, and start the server again", problem.remedy)

    def test_old_keys(self) -> None:
        """That the last fetch failed is a problem, though logins go on with the keys at hand, which it says (AUTH-60)."""
        self.status()
        self.provider.refused = "no route"
        (problem,) = self.status().problems
        self.assertEqual(
            problem.what,
            "The last fetch of the keys failed: no route."
            " Logins go on with the keys that were fetched before, but not after a new start of the server.",
        )
        self.assertTrue(problem.remedy.startswith("Mend the address, ca-cert, jwks-token, or "), problem.remedy)
        self.assert_admitted(token(CLAIMS))
        self.provider.refused = None
        self.assertEqual(self.whats(), [])

    def test_no_usable_key(self) -> None:
        """A set without usable key says of each key why, by whichever way it comes, and what to set (AUTH-60)."""
        declared = "Declare the variable algorithms and set it to what the provider signs with: ES256."
        for entries, why, remedy, of_variable in (
            (
                [jwk_for("ES256", "e1")],
                "it has no usable key: key 1 'e1' is not used: it is for ES256, not for RS256, RS384 or RS512;"
                " the variable algorithms could allow ES256.",
                declared,
                declared,
            ),
            (
                [jwk_for("ES256", "e1"), jwk_for("EdDSA", "e2")],
                "it has no usable key: key 1 'e1' is not used: it is for ES256, not for RS256, RS384 or RS512;"
                " key 2 'e2' is not used: it is for EdDSA, not for RS256, RS384 or RS512;"
                " the variable algorithms could allow ES256 or EdDSA.",
                "set it to what the provider signs with: ES256,EdDSA.",
                "set it to what the provider signs with: ES256,EdDSA.",
            ),
            (
                [],
                "it has no usable key: the set is empty.",
                "Have the provider make a key, then refresh the keys:",
                "Put the provider's keys into the variable.",
            ),
            (
                [{**jwk("p"), "d": "AQ"}],
                "it has no usable key: key 1 'p' is refused: it is symmetric or holds private parts.",
                "Have the provider publish a public key that can be used;",
                "Set the variable again without the private members d, p, q, dp, dq and qi,",
            ),
            (
                [jwk("s", use="jwt-svid")],
                "it has no usable key: key 1 's' is not used: its 'use' is 'jwt-svid', not 'sig'.",
                "Have the provider publish a public key that can be used;",
                "Set the variable to public keys of the provider that can be used;",
            ),
        ):
            document = {"keys": entries}
            self.provider.published[URI] = json.dumps(document).encode()
            status = self.status()
            (problem,) = status.problems
            self.assertEqual(problem.what, f"There are no keys: {URI}: {why}")
            self.assertIn(remedy, problem.remedy)
            self.assertEqual(len(status.keys.problems + status.keys.unused), len(entries))
            refused = self.refusal(Reason.KEYS_UNAVAILABLE, token(CLAIMS), 503)
            self.assertIn(why.removesuffix("."), refused.detail)
            self.readings.unset(self.branch, "jwks-uri")
            self.readings.set(self.branch, public_keys=json.dumps({"type": "jwks", "value": document}))
            status = self.status()
            (problem,) = status.problems
            self.assertEqual(problem.what, f"The variable public-keys is not usable: {why}")
            self.assertIn(of_variable, problem.remedy)
            self.assertEqual((status.source, len(status.keys.problems + status.keys.unused)), ("public-keys", len(entries)))
            self.readings.unset(self.branch, "public-keys")
            self.readings.set(self.branch, jwks_uri=URI)

    def test_declared_algorithms(self) -> None:
        """Where the variable algorithms is declared already, the remedy is to set it, to text that it takes (AUTH-60)."""
        self.provider.published[URI] = json.dumps({"keys": [jwk("r1", alg="RS384")]}).encode()
        self.readings.set(self.branch, algorithms="ES256")
        (problem,) = self.status().problems
        self.assertEqual(problem.remedy, "Set the variable algorithms to what the provider signs with: RS384.")
        self.readings.unset(self.branch, "jwks-uri")
        self.readings.set(self.branch, public_keys=json.dumps({"type": "jwks", "value": {"keys": [jwk("r1")]}}))
        (problem,) = self.status().problems
        taken = "RS256,RS384,RS512,PS256,PS384,PS512"
        self.assertEqual(problem.remedy, f"Set the variable algorithms to what the provider signs with: {taken}.")
        self.readings.set(self.branch, algorithms=taken)
        self.assertEqual(self.whats(), [])

    def test_no_issuer(self) -> None:
        """Where the document names no issuer, the remedy is to declare keys and issuer (AUTH-60)."""
        self.provider.refused = f"https://a.example/: {DOCUMENT_UNUSABLE}it names no issuer"
        (problem,) = self.status().problems
        self.assertEqual(problem.remedy, "Declare jwks-uri and issuer in the place of provider-uri.")

    def test_faulty_documents(self) -> None:
        """Where the document lacks an address, or names one that is none, the remedy is to declare keys and issuer, or
        else to have the provider name one; the settings are not at fault (AUTH-50, AUTH-60).
        """
        for why, member in (
            ("it names no jwks_uri", "jwks_uri"),
            ("its jwks_uri '/rel/keys' is no address of the form https://host[:port]/path", "jwks_uri"),
            ("its token_endpoint http://a.example/t is not https, and its provider is", "token_endpoint"),
        ):
            self.provider.refused = f"https://a.example/: {DOCUMENT_UNUSABLE}{why}"
            (problem,) = self.status().problems
            self.assertIn(why, problem.what)
            self.assertEqual(problem.remedy, "Declare jwks-uri and issuer in the place of provider-uri.")
            problem = fetch_problem("There are no keys", self.provider.refused, ("provider-uri", "ca-cert"))
            self.assertEqual(problem.remedy, f"Have the provider name a usable {member} in its document.")
        for why in ("it is not JSON", "it is no JSON object, or not only one"):
            self.provider.refused = f"https://a.example/: {DOCUMENT_UNUSABLE}{why}"
            (problem,) = self.status().problems
            self.assertTrue(problem.remedy.startswith("Mend the address, ca-cert, jwks-token"), problem.remedy)

    def test_another_issuer(self) -> None:
        """A document of another provider is a problem with both texts, whose remedy is ``provider-uri`` (AUTH-50)."""
        self.provider.refused = f"https://a.example/: the discovery document is not usable: {ISSUER_DIFFERS}'b', not 'a'"
        (problem,) = self.status().problems
        self.assertIn("its issuer is 'b', not 'a'.", problem.what)
        self.assertIn("Set provider-uri to the issuer that the document names", problem.remedy)

    def test_redirects(self) -> None:
        """An address that leads to another is a problem whose remedy is to set the variable that named it (AUTH-60)."""
        leads = f"the answer has status 301, and {LEADS}'https://idp.example/k4'"
        self.provider.refused = f"{URI}: {leads}"
        (problem,) = self.status().problems
        self.assertEqual(
            problem.remedy,
            "Set jwks-uri to where it leads, if that is the provider's;"
            " else mend what is between provider and server, then refresh the keys.",
        )
        self.readings.unset(self.branch, "jwks-uri")
        self.readings.set(self.branch, provider_uri="https://idp.example")
        for address, remedy in (
            (
                "https://idp.example/.well-known/openid-configuration",
                "Set provider-uri to the issuer whose document is there",
            ),
            (
                "https://idp.example/keys",
                "Have the provider's document name the address to which it leads, or declare jwks-uri",
            ),
        ):
            self.provider.refused = f"{address}: {leads}"
            (problem,) = self.status().problems
            self.assertTrue(problem.remedy.startswith(remedy), problem.remedy)

    def test_a_pattern_of_issuers(self) -> None:
        """A document for many tenants has a pattern as its issuer; the remedy is to name one of the tenants (AUTH-60)."""
        differs = f"{ISSUER_DIFFERS}'https://sts.example/{{tenantid}}/v2.0', not 'https://sts.example/common/v2.0'"
        self.provider.refused = f"https://a.example/: the discovery document is not usable: {differs}"
        (problem,) = self.status().problems
        self.assertTrue(problem.remedy.startswith("Name your own tenant in provider-uri: "), problem.remedy)
        self.assertNotIn("Set provider-uri to the issuer", problem.remedy)

    def test_a_malformed_address(self) -> None:
        """An address that is none is refused as a fault of the settings, and nobody is asked (AUTH-29)."""
        self.readings.set(self.branch, jwks_uri="https://idp.example/realms/My Realm")
        (problem,) = self.status().problems
        self.assertIn("is no address of the form", problem.what)
        self.assertIn("percent-encoded", problem.remedy)
        self.refusal(Reason.CONFIGURATION_INVALID, token(CLAIMS))
        self.assertEqual(self.provider.fetches, 0)

    def test_refresh(self) -> None:
        """A wish for newer keys is granted before the status is told."""
        self.status()
        self.provider.published[URI] = jwks(jwk("k2"))
        self.readings.tell(self.branch, refreshes=1)
        self.assertEqual([key_id for key_id, _ in self.status().keys.keys], ["k2"])

    def test_every_key_distrusted(self) -> None:
        """When no key is left that is trusted, that is a problem."""
        self.provider.published[URI] = jwks(jwk("k1"), jwk("k2"))
        thumbprint = dict(self.status().keys.keys)["k2"]
        self.readings.tell(self.branch, distrusted=frozenset({"k1"}))
        self.assertEqual(self.whats(), [])
        self.readings.tell(self.branch, distrusted=frozenset({"k1", thumbprint}))
        self.assertEqual(self.whats(), ["Every key of the provider is distrusted."])

    def test_not_enabled(self) -> None:
        """An authenticator that may not be used says so, and all the rest."""
        off = f"{self.dialect.prefix}/authn-jwt/off"
        self.readings.set(off, jwks_uri=URI, audience=None)
        problems = self.status(service="off").problems
        self.assertEqual(len(problems), 2)
        self.assertIn("listed in the configuration", problems[0].what)

    def test_clock_offset(self) -> None:
        """The clock here is ahead of the provider's by the age of the youngest token at most, as recent tokens tell."""
        for iat in (NOW - 30, NOW - 2, NOW - 7):
            self.assert_admitted(self.claims(iat=iat))
        self.refusal(Reason.TOKEN_EXPIRED, self.claims(iat=NOW - 1.5, exp=NOW - 1))
        for unusable in (..., "x", None, 10**400):
            self.attempt(self.claims(iat=unusable))
        self.attempt(token({**CLAIMS, "iat": NOW + 9}, "k2"))
        status = self.status()
        self.assertEqual((status.clock_offset, status.tokens), (1.5, 4))

    def test_clock_behind(self) -> None:
        """A token from the future shows that the clock here is behind, which is a problem for an hour after one was refused
        for it, whatever was admitted since (AUTH-60).
        """
        self.refusal(Reason.TOKEN_NOT_YET_VALID, self.claims(iat=NOW + 9))
        self.refusal(Reason.TOKEN_NOT_YET_VALID, self.claims(iat=NOW + 2.28))
        status = self.status()
        self.assertEqual(status.clock_offset, -9)
        (problem,) = status.problems
        self.assertEqual(
            problem.what,
            "The provider's clock is ahead of this server's by 9 s: 2 of 2 recent tokens were refused for it.",
        )
        self.assertEqual(problem.remedy, "Set both clocks by NTP, or start the server with --clock-skew 9.")
        self.assert_admitted(token(CLAIMS))
        self.assertEqual(
            self.whats(),
            ["The provider's clock is ahead of this server's by 9 s: 2 of 3 recent tokens were refused for it."],
        )
        self.clock.advance(3600)
        self.assertEqual(len(self.whats()), 1)
        self.clock.advance(1)
        self.assertEqual(self.whats(), [])
        self.clock.rightNow = NOW
        self.authenticator = self.made(clock_skew=10)
        self.assert_admitted(self.claims(iat=NOW + 9))
        self.assertEqual((self.whats(), self.status().clock_offset), ([], -9))

    def test_recent_tokens(self) -> None:
        """Only recent tokens count, of a bounded number."""
        self.assert_admitted(self.claims(iat=NOW - 1))
        old = self.claims(iat=NOW - 50)
        for _ in range(100):
            self.assert_admitted(old)
        status = self.status()
        self.assertEqual((status.clock_offset, status.tokens), (50, 100))

    def test_impossible_names(self) -> None:
        """There is no status of what can't exist."""
        for account, service in (("a b", "ci"), ("acme", "x" * 2000), ("acme", "\x00")):
            self.failureResultOf(Deferred.fromCoroutine(self.authenticator.read_status(account, service)), InvalidName)

    def test_is_of_this_moment(self) -> None:
        """Settings that changed since the last login are told as they are now (AUTH-61)."""
        self.assert_admitted(token(CLAIMS))
        self.readings.set(self.branch, audience=None)
        self.assertEqual(self.whats(), ["The variable audience is declared and has no value."])
        self.readings.set(self.branch, audience="svc")
        self.assertEqual(self.whats(), [])


class NativeStatusTests(Case):
    """What holds in the service's own dialect alone."""

    def test_switched(self) -> None:
        """What is switched off says so; what isn't listed is told to be listed. Nobody is asked for keys then (AUTH-61)."""
        self.readings.tell(self.branch, switched=False)
        (problem,) = self.status().problems
        self.assertEqual((problem.what, problem.remedy), ("'authn-jwt/ci' is switched off.", "Switch it on."))
        self.readings.set("svc/authn-jwt/off", jwks_uri=URI)
        self.readings.tell("svc/authn-jwt/off", switched=True)
        (problem,) = self.status(service="off").problems
        self.assertEqual(problem.what, "'authn-jwt/off' is not listed in the configuration.")
        self.assertEqual(self.provider.fetches, 0)


class ConjurExplainTests(ExplainTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurStatusTests(StatusTests):
    """The same in the dialect of the installed base."""

    dialect = CONJUR

    def test_switched(self) -> None:
        """What is listed or switched on is well; an explanation says which it is."""
        self.readings.set("conjur/authn-jwt/off", jwks_uri=URI)
        self.readings.tell("conjur/authn-jwt/off", switched=True)
        self.assertEqual(self.status(service="off").problems, ())
        step = self.explained(token(CLAIMS), service="off").steps[0]
        self.assertEqual(step, ExplanationStep("enabled", "passed", "'authn-jwt/off' is switched on"))
        self.readings.tell(self.branch, switched=False)
        self.assertEqual(self.status().problems, ())
