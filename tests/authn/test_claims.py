"""Tests of ``svc.authn.checks``: what a token's claims must be."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.checks import find_claim, host_of, parse_login
from svc.authn.settings import name_fault
from svc.model.key_sets import EvidenceRefused, SignedClaims
from svc.model.reasons import Reason
from tests.authn.verified import check_audience, check_begun, check_expiry, check_issuer

NOW = 1_700_000_000.25

#: Anything that a JSON claim can be.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def claims(**members: object) -> SignedClaims:
    """Claims as a verified token has them."""
    return SignedClaims(members)


class Case(SynchronousTestCase):
    """Checks that raise."""

    def refusal(self, reason: Reason, check: Callable[..., object], *args: Any, **options: Any) -> str:
        """The detail with which the check refuses for this reason."""
        refused: EvidenceRefused = self.assertRaises(EvidenceRefused, check, *args, **options)
        self.assertEqual(refused.reason, reason, refused.detail)
        self.assertTrue(refused.detail.isprintable(), refused.detail)
        return refused.detail


class ExpiryTests(Case):
    """``check_expiry``."""

    def test_missing(self) -> None:
        """A token must say when it expires."""
        self.refusal(Reason.EXPIRY_MISSING, check_expiry, claims(iat=NOW), NOW, 0)

    def test_lies_ahead(self) -> None:
        """A token lives until its expiry, and is dead in that very instant (AUTH-19)."""
        check_expiry(claims(exp=math.ceil(NOW)), NOW, 0)
        check_expiry(claims(exp=NOW + 0.01), NOW, 0)
        for expiry in (NOW, math.floor(NOW), 0, -1, -1e308, -0.0):
            self.refusal(Reason.TOKEN_EXPIRED, check_expiry, claims(exp=expiry), NOW, 0)

    def test_far_ahead(self) -> None:
        """Large numbers that a double holds are times far ahead."""
        for expiry in (2**53, 2**63 - 1, 1e300, 253_402_300_799):
            check_expiry(claims(exp=expiry), NOW, 0)

    def test_skew(self) -> None:
        """The granted difference of clocks counts after the expiry, and not a moment longer (AUTH-20)."""
        check_expiry(claims(exp=NOW - 4.9), NOW, 5)
        self.refusal(Reason.TOKEN_EXPIRED, check_expiry, claims(exp=NOW - 5), NOW, 5)

    def test_is_a_finite_number(self) -> None:
        """Text, booleans, null, arrays, objects and numbers beyond measure are no times (AUTH-19)."""
        for expiry in ("2000000000", "", True, False, None, [2e9], {"exp": 2e9}, math.inf, -math.inf, math.nan, 10**400):
            self.refusal(Reason.TIME_CLAIM_INVALID, check_expiry, claims(exp=expiry), NOW, 0)
        self.refusal(Reason.TIME_CLAIM_INVALID, check_expiry, SignedClaims(json.loads('{"exp": 1e400}')), NOW, 0)

    @given(VALUES)
    def test_any_value_is_decided(self, value: object) -> None:
        """Whatever the claim is, the check passes or refuses."""
        try:
            check_expiry(claims(exp=value), NOW, 0)
        except EvidenceRefused:
            return
        assert isinstance(value, int | float)
        self.assertGreater(value, NOW)


class BegunTests(Case):
    """``check_begun``."""

    def test_may_be_absent(self) -> None:
        """``nbf`` and ``iat`` are optional (AUTH-19)."""
        check_begun(claims(), "nbf", NOW, 0)
        check_begun(claims(nbf="?"), "iat", NOW, 0)

    def test_lies_not_ahead(self) -> None:
        """A moment has begun that is not ahead of the next whole second, whatever the fractions on either side (AUTH-19)."""
        whole = math.ceil(NOW)
        for name in ("nbf", "iat"):
            for moment in (NOW, NOW - 1, 0, -1, NOW + 0.5, whole - 0.001, whole):
                check_begun(claims(**{name: moment}), name, NOW, 0)
            check_begun(claims(**{name: whole}), name, whole, 0)
            for moment, now in ((whole + 0.001, NOW), (whole + 1, NOW), (whole + 0.001, whole), (whole + 1, whole)):
                self.refusal(Reason.TOKEN_NOT_YET_VALID, check_begun, claims(**{name: moment}), name, now, 0)

    def test_skew(self) -> None:
        """The granted difference of clocks counts before the moment."""
        check_begun(claims(iat=math.ceil(NOW) + 5), "iat", NOW, 5)
        self.refusal(Reason.TOKEN_NOT_YET_VALID, check_begun, claims(iat=math.ceil(NOW) + 5.01), "iat", NOW, 5)

    def test_is_a_finite_number(self) -> None:
        """One that is there and no finite number is refused, null included (AUTH-19)."""
        moments: list[object] = ["0", False, None, [], {}, math.inf, -math.inf, 10**400]
        for moment in moments:
            self.refusal(Reason.TIME_CLAIM_INVALID, check_begun, claims(nbf=moment), "nbf", NOW, 0)


class IssuerTests(Case):
    """``check_issuer``."""

    def test_is_exactly_the_expected_text(self) -> None:
        """No prefix, case or slash makes two issuers one (AUTH-21)."""
        check_issuer(claims(iss="https://idp"), "https://idp", mandatory=True)
        for issuer in ("https://idp/", "https://id", "HTTPS://idp", "", " https://idp", "https://idp\n"):
            for mandatory in (True, False):
                self.refusal(Reason.ISSUER_WRONG, check_issuer, claims(iss=issuer), "https://idp", mandatory=mandatory)

    def test_missing(self) -> None:
        """It may be absent unless it is mandatory and one is expected."""
        check_issuer(claims(), "https://idp", mandatory=False)
        check_issuer(claims(), None, mandatory=True)
        self.refusal(Reason.ISSUER_MISSING, check_issuer, claims(), "https://idp", mandatory=True)

    def test_is_text(self) -> None:
        """One that is there and no text is refused, expected or not, mandatory or not (AUTH-21)."""
        for issuer in (None, 1, True, ["https://idp"], {"https://idp": 1}):
            for expected in ("https://idp", None):
                self.refusal(Reason.ISSUER_WRONG, check_issuer, claims(iss=issuer), expected, mandatory=False)

    def test_is_not_compared_with_nothing(self) -> None:
        """When none is expected any text will do."""
        check_issuer(claims(iss="whoever"), None, mandatory=True)


class AudienceTests(Case):
    """``check_audience``."""

    def test_is_or_holds_the_expected_text(self) -> None:
        """One text, or an array of texts with the expected one among them, passes (AUTH-23)."""
        for audience in ("svc", ["svc"], ["other", "svc"]):
            check_audience(claims(aud=audience), "svc")

    def test_is_another(self) -> None:
        """No part, case or nesting makes two audiences one (AUTH-23)."""
        for audience in (
            "svcs",
            "sv",
            "SVC",
            "",
            [],
            ["other"],
            [["svc"]],
            ["svc", 1],
            [None, "svc"],
            {"svc": 1},
            None,
            1,
            True,
        ):
            self.refusal(Reason.AUDIENCE_WRONG, check_audience, claims(aud=audience), "svc")

    def test_missing(self) -> None:
        """When one is expected a token must have one."""
        self.refusal(Reason.AUDIENCE_MISSING, check_audience, claims(), "svc")

    def test_is_not_looked_at_when_none_is_expected(self) -> None:
        """Without expectation anything passes (AUTH-23)."""
        for audience in ("any", 1, None):
            check_audience(claims(aud=audience), None)


class NameTests(Case):
    """``name_fault`` and ``find_claim``."""

    def test_names(self) -> None:
        """A name is a letter, ``$``, ``_`` or ``|``, then letters, digits, ``$ _ - .`` or ``|`` (AUTH-27)."""
        for name in ("sub", "_x", "$ref", "a.b-c_d$e", "|x|", "A1"):
            self.assertIsNone(name_fault(name, nested=False), name)
        for name in ("", " ", "1a", "-a", ".a", "a b", "a[0]", "a:b", "a*", "a%", "a\n", "\na", "\u00e4", "a\x00"):
            for nested in (True, False):
                self.assertIsNotNone(name_fault(name, nested=nested), name)

    def test_paths(self) -> None:
        """A path is names joined by slashes, where nested claims are supported (AUTH-27)."""
        for name in ("a/b", "a/b/c"):
            self.assertIsNone(name_fault(name, nested=True), name)
            self.assertIn("is a path", name_fault(name, nested=False) or "")
        for name in ("/", "a/", "/a", "a//b", "a/1", "a/b c", "a/b[0]"):
            self.assertIsNotNone(name_fault(name, nested=True), name)

    def test_find(self) -> None:
        """A claim is found by its name, or at the end of a path where nested claims are supported; a whole name wins
        (AUTH-27).
        """
        tree: Mapping[str, object] = {"a": {"b": "deep", "c": None}, "x/y": "flat", "x": {"y": "deep"}, "t": "text"}
        for name, nested, value in (
            ("a/b", True, "deep"),
            ("a/b", False, None),
            ("x/y", True, "flat"),
            ("x/y", False, "flat"),
            *((name, True, None) for name in ("a/c", "a/d", "t/e", "a/b/c", "z", "z/z")),
        ):
            self.assertEqual(find_claim(tree, name, nested=nested), value, name)


class IdentityTests(Case):
    """``host_of`` and ``parse_login``."""

    def host(self, value: object, path: str = "", name: str = "app", nested: bool = False) -> str:
        """The host that a token with this claim speaks for."""
        return str(host_of(claims(app=value), "acme", name, path, nested=nested))

    def test_is_joined_with_single_slashes(self) -> None:
        """Path and claim are joined by one slash, however many stand at the joint; inner ones stay (AUTH-31)."""
        for path in ("jwt-apps", "/jwt-apps", "jwt-apps/", "//jwt-apps//"):
            for value in ("x", "/x", "//x"):
                self.assertEqual(self.host(value, path), "acme:host:jwt-apps/x")
        self.assertEqual(self.host("a//b", "p//q"), "acme:host:p//q/a//b")
        self.assertEqual(self.host("x/"), "acme:host:x/")

    def test_root(self) -> None:
        """Without path, and with the root as path, the claim is the whole identifier."""
        for path in ("", "/"):
            self.assertEqual(self.host("/x", path), "acme:host:x")

    def test_is_always_a_host(self) -> None:
        """A claim that begins like the login of a user or host names a host all the same (AUTH-31)."""
        self.assertEqual(self.host("user/admin"), "acme:host:user/admin")
        self.assertEqual(self.host("host/x"), "acme:host:host/x")
        self.assertEqual(self.host("acme:user:admin"), "acme:host:acme:user:admin")

    @given(st.text(max_size=20), st.text(max_size=10))
    def test_stays_below_the_path(self, value: str, path: str) -> None:
        """No claim names a host outside the path, or one that has the path's own name (AUTH-31)."""
        try:
            host = host_of(claims(app=value), "acme", "app", path, nested=False)
        except EvidenceRefused:
            return
        self.assertEqual((host.account, host.kind), ("acme", "host"))
        above = path.strip("/")
        self.assertTrue(host.identifier.startswith(f"{above}/") if above else host.identifier)

    def test_missing(self) -> None:
        """A claim that is absent, null or empty names nobody (AUTH-31)."""
        for value in (None, ""):
            self.refusal(Reason.IDENTITY_CLAIM_MISSING, self.host, value)
        self.refusal(Reason.IDENTITY_CLAIM_MISSING, self.host, "x", name="other")

    def test_is_text(self) -> None:
        """A claim that isn't text names nobody."""
        for value in (1, 1.5, True, ["x"], {"x": 1}):
            self.refusal(Reason.IDENTITY_CLAIM_INVALID, self.host, value)

    def test_nested(self) -> None:
        """Where nested claims are supported the claim may lie deeper."""
        self.assertEqual(self.host({"id": "x"}, name="app/id", nested=True), "acme:host:x")
        self.refusal(Reason.IDENTITY_CLAIM_MISSING, self.host, {"id": "x"}, name="app/id")

    def test_impossible_names(self) -> None:
        """What can't be a name is refused like a name that doesn't exist."""
        for value in ("/", "a\x00b", "\ud800", "x" * 2000):
            self.refusal(Reason.ROLE_UNKNOWN, self.host, value)
        for login in ("", "host/", "a\x00b", "\udfff", "x" * 2000):
            self.refusal(Reason.ROLE_UNKNOWN, parse_login, login, "acme")

    def test_logins(self) -> None:
        """A login in the path names a host or a user; another first segment belongs to a user's name (TOK-1)."""
        for login, role in (
            ("host/a/b", "host:a/b"),
            ("alice", "user:alice"),
            ("user/al", "user:al"),
            ("group/g", "user:group/g"),
        ):
            self.assertEqual(str(parse_login(login, "acme")), f"acme:{role}")
