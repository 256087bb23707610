"""Attacks on the JWT authenticator that a right signature doesn't stop: each is refused, in both dialects.

What is tried on signatures, headers and keys is in ``tests/crypto/test_token_attacks``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from svc.crypto.tokens import SigningKey
from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from svc.model.reasons import Reason
from tests.authn.world import CLAIMS, HOST, ISSUER, NOW, URI, Case
from tests.signing import base64url, jwks, token
from tests.statuses import privilege_missing_status


def raw(**members: str) -> bytes:
    """A signed token whose claims are written as given; the others are good."""
    written = {name: json.dumps(value) for name, value in CLAIMS.items()} | members
    return token(("{" + ",".join(f'"{name}":{value}' for name, value in written.items()) + "}").encode())


class TimeAttacks(Case):
    """A token that would be valid for ever, if its times were read kindly."""

    def test_expiry_as_text(self) -> None:
        """An expiry in quotation marks is no time, whatever it says."""
        for text in ("2000000000", "2e9", "9999-12-31T23:59:59Z", "never", "", " 2000000000"):
            self.refusal(Reason.TIME_CLAIM_INVALID, self.claims(exp=text))

    def test_expiry_as_float(self) -> None:
        """A fraction of a second is read exactly, rounded neither up nor down."""
        self.assert_admitted(self.claims(exp=NOW + 0.5))
        self.refusal(Reason.TOKEN_EXPIRED, self.claims(exp=NOW - 0.5))
        self.clock.advance(0.5)
        self.refusal(Reason.TOKEN_EXPIRED, self.claims(exp=NOW + 0.5))
        self.assert_admitted(raw(exp="20E+8"))

    def test_expiry_beyond_all_numbers(self) -> None:
        """An expiry too large for a number is refused, in exponents and in digits, and so is infinity by name."""
        for written in ("1e400", "-1e400", "1" + "0" * 400, "-" + "9" * 400):
            self.refusal(Reason.TIME_CLAIM_INVALID, raw(exp=written))
        for written in ("Infinity", "NaN", "1" * 5000):
            self.refusal(Reason.TOKEN_MALFORMED, raw(exp=written))

    def test_negative_expiry(self) -> None:
        """An expiry before the epoch has passed."""
        for expiry in (-1, -1.5, -(2**63), 0, -0.0):
            self.refusal(Reason.TOKEN_EXPIRED, self.claims(exp=expiry))

    def test_expiry_as_boolean_or_null(self) -> None:
        """Neither a boolean, nor null, nor an array or object with a time in it is an expiry."""
        for value in (True, False, None, [NOW + 60], {"exp": NOW + 60}):
            self.refusal(Reason.TIME_CLAIM_INVALID, self.claims(exp=value))

    def test_expiry_by_another_name(self) -> None:
        """An expiry in other letters, or inside another claim, is none."""
        for name in ("Exp", "EXP", "exp ", "expires", "exp\x00"):
            self.refusal(Reason.EXPIRY_MISSING, self.claims(exp=..., **{name: NOW + 60}))
        self.refusal(Reason.EXPIRY_MISSING, self.claims(exp=..., nested={"exp": NOW + 60}))

    def test_token_of_the_future(self) -> None:
        """A token that begins later, or was issued later, is not valid yet, however far its expiry is."""
        for name in ("nbf", "iat"):
            self.refusal(Reason.TOKEN_NOT_YET_VALID, self.claims(**{name: NOW + 0.1}, exp=NOW + 1e9))


class IssuerAttacks(Case):
    """A token that says it is by somebody else."""

    def test_issuer_as_list(self) -> None:
        """A list that holds the issuer is not the issuer."""
        for value in ([ISSUER], [ISSUER, "https://evil.example"], {ISSUER: True}, {"iss": ISSUER}):
            self.refusal(Reason.ISSUER_WRONG, self.claims(iss=value))

    def test_issuer_as_prefix(self) -> None:
        """What begins, ends or is contained like the issuer is not the issuer."""
        for value in (ISSUER[:-1], ISSUER + "/", ISSUER + ".evil.example", "x" + ISSUER, f"{ISSUER} {ISSUER}", ""):
            self.refusal(Reason.ISSUER_WRONG, self.claims(iss=value))

    def test_issuer_that_looks_alike(self) -> None:
        """The issuer is compared exactly: no case, blank, encoding or look-alike letter is overlooked."""
        for value in (
            *(ISSUER.upper(), "https://IDP.example", ISSUER + " ", ISSUER + "\n", ISSUER + "\x00", "http://idp.example"),
            *("https://idp.example:443", "https://%69dp.example", "https://\u0456dp.example", "https://idp.example."),
        ):
            self.refusal(Reason.ISSUER_WRONG, self.claims(iss=value))

    def test_audience_of_another_service(self) -> None:
        """A token for somebody else is refused, also when our name is in a list with something that is no name."""
        self.readings.set(self.branch, audience="svc")
        for value in ("svc2", "sv", "SVC", " svc", "", ["svc", 1], ["svc", None], [["svc"]], {"svc": 1}, [], None, True):
            self.refusal(Reason.AUDIENCE_WRONG, self.claims(aud=value))


class SubstitutionAttacks(Case):
    """Something that was made for another purpose is presented as a token."""

    def test_access_token_as_jwt(self) -> None:
        """An access token of our own is no evidence, in any form, even when its key is published by the provider."""
        key = SigningKey.generate("acme")
        minted = key.mint_token(HOST, int(NOW), 60)
        parts = json.loads(minted)
        compact = ".".join(parts[name].rstrip("=") for name in ("protected", "payload", "signature")).encode()
        self.provider.published[URI] = jwks(key.verification.public_jwk())
        self.refusal(Reason.ALGORITHM_REFUSED, compact)
        for evidence in (minted, base64.b64encode(minted), b'Token token="' + base64.b64encode(minted) + b'"'):
            self.refusal(Reason.TOKEN_MALFORMED, evidence)

    def test_nested_jwt(self) -> None:
        """A good token inside a signed one, as its payload or as a claim, says nothing."""
        inner = token(CLAIMS)
        self.refusal(Reason.TOKEN_MALFORMED, token(inner, cty="JWT"))
        self.refusal(Reason.TOKEN_MALFORMED, token(json.dumps(inner.decode()).encode(), cty="JWT"))
        self.refusal(Reason.EXPIRY_MISSING, token({"jwt": inner.decode()}, cty="JWT"))

    def test_wrapped_token(self) -> None:
        """A good token in wrapping, or two of them, is none."""
        good = token(CLAIMS)
        for evidence in (b"Bearer " + good, b'"' + good + b'"', b'{"jwt":"' + good + b'"}', good + b"," + good):
            self.refusal(Reason.TOKEN_MALFORMED, evidence)

    def test_token_of_another_authenticator(self) -> None:
        """A token that one authenticator admits is refused by one that trusts other keys."""
        self.assert_admitted(token(CLAIMS))
        bare = f"{self.dialect.prefix}/authn-jwt/bare"
        other = "https://other.example/keys"
        self.provider.published[other] = jwks()
        self.readings.set(bare, jwks_uri=other, issuer="https://other.example", token_app_property="app")
        self.refusal(Reason.ISSUER_WRONG, token(CLAIMS), service="bare")


class ClaimAttacks(Case):
    """A claim that is nearly what the annotation says."""

    def annotate(self, **annotations: str) -> None:
        """Give the host annotations for this authenticator."""
        self.readings.annotations[HOST] = {f"authn-jwt/ci/{name}": value for name, value in annotations.items()}

    def test_claim_equal_only_as_text(self) -> None:
        """A number, boolean, null, array or object never equals the text that it would be written as."""
        for wanted, written, reason in (
            ("1", "1", Reason.CLAIM_IS_NUMBER),
            ("1.0", "1.0", Reason.CLAIM_IS_NUMBER),
            ("1e2", "1e2", Reason.CLAIM_IS_NUMBER),
            ("True", "true", Reason.CLAIM_IS_BOOLEAN),
            ("true", "true", Reason.CLAIM_IS_BOOLEAN),
            ("None", "null", Reason.CLAIM_MISSING),
            ("null", "null", Reason.CLAIM_MISSING),
            ("['a']", '["a"]', Reason.CLAIM_IS_ARRAY),
            ('["a"]', '["a"]', Reason.CLAIM_IS_ARRAY),
            ("a", '["a"]', Reason.CLAIM_IS_ARRAY),
            ("{'a': 1}", '{"a":1}', Reason.CLAIM_IS_OBJECT),
            ('{"a":1}', '{"a":1}', Reason.CLAIM_IS_OBJECT),
        ):
            self.annotate(repo=wanted)
            self.refusal(reason, raw(repo=written))
            self.assert_admitted(self.claims(repo=wanted))

    def test_claim_that_looks_alike(self) -> None:
        """Claims are compared exactly: no case, blank, composition, width or pattern is overlooked."""
        self.annotate(repo="org/caf\u00e9")
        self.assert_admitted(raw(repo='"org/caf\\u00e9"'))
        for value in (
            *("org/cafe\u0301", "ORG/CAF\u00c9", "org/caf\u00e9 ", " org/caf\u00e9", "org/caf\u00e9\n", "org/caf\u00e9\x00"),
            *("org/caf\u00e9\u200b", "\uff4frg/caf\u00e9", "org/caf", "org/caf\u00e9/x", "org//caf\u00e9", "org/caf%C3%A9"),
        ):
            self.refusal(Reason.CLAIM_MISMATCH, self.claims(repo=value))
        for pattern in ("org/*", ".*", "%", "org/caf?"):
            self.annotate(repo=pattern)
            self.refusal(Reason.CLAIM_MISMATCH, self.claims(repo="org/caf\u00e9"))

    def test_annotation_named_like_a_registered_claim(self) -> None:
        """An annotation for a claim that every token has binds nobody to anything, and refuses every token."""
        claims: Mapping[str, object] = {**CLAIMS, "jti": "1", "aud": "svc"}
        for name in ("iss", "exp", "nbf", "iat", "jti", "aud"):
            self.annotate(repo="org/app", **{name: str(claims[name])})
            self.refusal(Reason.ANNOTATION_FORBIDDEN, token(claims))

    def test_claim_of_another_host(self) -> None:
        """The host is named by its claim alone: no path, dots, encoding or other kind leads out of the identity path."""
        root = RoleName("acme", "host", "build")
        self.readings.annotations[root] = {"authn-jwt/ci/repo": "org/app"}
        self.readings.permitted.add(root)
        for value in (
            *("../build", "../../build", "./build", "x/../build", "build/", "%2e%2e/build", "..\\build"),
            *("host/build", "acme:host:jwt-apps/build", "user/admin", "build\n", "build\x00", "BUILD", " build"),
        ):
            self.refusal(Reason.ROLE_UNKNOWN, self.claims(app=value))


class LateChangeAttacks(Case):
    """Something changes between the verification of a token and the decision."""

    def change(self, **annotations: str) -> None:
        """The host's annotations for this authenticator change."""
        self.readings.annotations[HOST] = {f"authn-jwt/ci/{name}": value for name, value in annotations.items()}

    def test_host_deleted_between_verification_and_issue(self) -> None:
        """A host that is deleted while its token is verified is not admitted."""
        self.assert_admitted(token(CLAIMS))
        self.readings.before_candidate = self.readings.annotations.clear
        self.refusal(Reason.ROLE_UNKNOWN, token(CLAIMS))

    def test_host_moved_between_verification_and_issue(self) -> None:
        """A host that is taken out of the group, or bound to another claim, while its token is verified is not admitted."""
        self.readings.before_candidate = lambda: self.change(repo="org/other")
        self.refusal(Reason.CLAIM_MISMATCH, token(CLAIMS))
        self.readings.before_candidate = self.readings.permitted.clear
        self.refusal(Reason.PRIVILEGE_MISSING, token(CLAIMS), privilege_missing_status(self.dialect))

    def test_identity_path_moved_between_verification_and_issue(self) -> None:
        """Settings that move identities elsewhere while a token is verified decide that token."""
        self.assert_admitted(token(CLAIMS))

        def move() -> None:
            self.readings.before_candidate = lambda: None
            self.readings.set(self.branch, identity_path="elsewhere")

        self.readings.before_candidate = move
        refused = self.refusal(Reason.ROLE_UNKNOWN, token(CLAIMS))
        self.assertEqual(refused.role, "acme:host:elsewhere/build")

    def test_expiry_between_two_readings(self) -> None:
        """A token that expires while the settings are read again is decided afresh, and refused."""
        self.assert_admitted(token(CLAIMS))

        def dawdle() -> None:
            self.readings.before_candidate = lambda: None
            self.readings.set(self.branch, issuer=ISSUER)
            self.clock.advance(3600)

        self.readings.before_candidate = dawdle
        self.refusal(Reason.TOKEN_EXPIRED, token(CLAIMS))

    def test_altered_claims_under_a_remembered_header(self) -> None:
        """The header of a good token, known from before, makes nothing of another payload."""
        head, _, signature = token(CLAIMS).split(b".")
        self.assert_admitted(token(CLAIMS))
        for claims in ({**CLAIMS, "app": "deploy"}, {**CLAIMS, "exp": NOW + 1e9}):
            body = base64url(json.dumps(claims).encode()).encode()
            self.refusal(Reason.SIGNATURE_WRONG, b".".join((head, body, signature)))


class ConjurTimeAttacks(TimeAttacks):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurIssuerAttacks(IssuerAttacks):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurSubstitutionAttacks(SubstitutionAttacks):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurClaimAttacks(ClaimAttacks):
    """The same in the dialect of the installed base."""

    dialect = CONJUR


class ConjurLateChangeAttacks(LateChangeAttacks):
    """The same in the dialect of the installed base."""

    dialect = CONJUR
