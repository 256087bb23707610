"""The forms in which settings are written: what they read, and what they refuse."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import forms
from svc.dialect import CONJUR
from svc.forms import Form


class FormsTests(SynchronousTestCase):
    """Each form, read from text and from TOML."""

    def refused(self, form: Form[Any], text: str) -> str:
        """The message with which a form refuses a text."""
        return str(self.assertRaises(ValueError, form.of_text, text))

    def test_flag(self) -> None:
        """A flag is one of six words, in any case of letters; in TOML it is a boolean."""
        for text, value in {
            "true": True,
            "1": True,
            "yes": True,
            "false": False,
            "0": False,
            "no": False,
            "YES": True,
        }.items():
            self.assertIs(forms.FLAG.of_text(text), value)
        self.assertIs(forms.FLAG.of_toml(True), True)
        for text in ("", "on", "2", " true", "ja"):
            self.assertIn("true or false", self.refused(forms.FLAG, text))
        for unfit in ("true", 1, None):
            self.assertRaises(ValueError, forms.FLAG.of_toml, unfit)

    def test_whole_numbers(self) -> None:
        """A whole number is written in ASCII digits and lies within its bounds, which are allowed."""
        form = forms.whole(1, 18000, "SECONDS")
        self.assertEqual([form.of_text("1"), form.of_text("18000"), form.of_toml(480)], [1, 18000, 480])
        for text in ("0", "18001", "-1", "+5", "1.0", "1e2", "1_000", " 5", "5\n", "\u0665", "", "9" * 40, "nan"):
            self.assertIn("a whole number from 1 to 18000", self.refused(form, text))
        for value in (480.0, "480", True, [480]):
            self.assertRaises(ValueError, form.of_toml, value)

    def test_decimal_numbers(self) -> None:
        """A number may have a fraction, and is neither infinite nor not a number."""
        form = forms.decimal(0, 3600, "SECONDS")
        self.assertEqual([form.of_text("0"), form.of_text("0.25"), form.of_text("3600.0")], [0.0, 0.25, 3600.0])
        self.assertEqual([form.of_toml(10), form.of_toml(0.5)], [10.0, 0.5])
        for text in ("", "-1", ".5", "5.", "1e3", "inf", "nan", "3600.1", "1,5", "\u0665"):
            self.assertIn("a number from 0 to 3600", self.refused(form, text))
        for value in (float("inf"), float("nan"), "5", True):
            self.assertRaises(ValueError, form.of_toml, value)

    @given(st.floats(min_value=0.001, max_value=3600).map(lambda number: round(number, 3)))
    def test_decimal_property(self, number: float) -> None:
        """Every number that is written out in decimals is read as itself."""
        form = forms.decimal(0, 3600, "SECONDS")
        self.assertEqual(form.of_text(f"{number:.3f}"), number)

    def test_decimal_or_off(self) -> None:
        """Where a number may be absent, the word off says so in every place."""
        form = forms.decimal_or_off(1, 3600, "SECONDS")
        for text in ("off", "OFF"):
            self.assertIsNone(form.of_text(text))
            self.assertIsNone(form.of_toml(text))
        self.assertEqual((form.of_text("2.5"), form.of_toml(2.5), form.of_toml(2)), (2.5, 2.5, 2.0))
        for text in ("0", "3601", "on", "", "-1"):
            self.assertIn("must be off, or a number from 1 to 3600", self.refused(form, text))
        bad: list[object] = [True, float("inf"), ["off"]]
        for value in bad:
            self.assertRaises(ValueError, form.of_toml, value)

    def test_texts(self) -> None:
        """A text isn't empty and holds no NUL; a refusal doesn't repeat it, since it may hold a password."""
        self.assertEqual(forms.TEXT.of_text("host=/run dbname=svc"), "host=/run dbname=svc")
        for text in ("", "pass\x00word"):
            self.assertNotIn("word", self.refused(forms.TEXT, text))
        self.assertIn("text", str(self.assertRaises(ValueError, forms.TEXT.of_toml, 5)))

    def test_paths(self) -> None:
        """A path becomes absolute when it is read, and a tilde is the user's home."""
        self.assertEqual(forms.PATH.of_text("/a b/../c"), Path("/c"))
        self.assertEqual(forms.PATH.of_text("state"), Path(os.getcwd()) / "state")
        self.assertEqual(forms.PATH.of_text("~/state"), Path.home() / "state")
        self.assertIn("empty", self.refused(forms.PATH, ""))

    def test_endpoints(self) -> None:
        """Endpoints are split at blanks in a text, and hold any in TOML; there is at least one."""
        self.assertEqual(forms.ENDPOINTS.of_text(" tcp:1:interface=a,b \n tcp:2"), ("tcp:1:interface=a,b", "tcp:2"))
        self.assertEqual(forms.ENDPOINTS.of_toml(["unix:/a b"]), ("unix:/a b",))
        self.assertIn("at least one", self.refused(forms.ENDPOINTS, " "))
        self.assertRaises(ValueError, forms.ENDPOINTS.of_toml, [])
        self.assertRaises(ValueError, forms.ENDPOINTS.of_toml, "tcp:1")

    def test_networks(self) -> None:
        """Networks are CIDRs or single addresses of either family; none is allowed, bits beside the mask aren't."""
        self.assertEqual(
            forms.NETWORKS.of_text("10.0.0.0/8, ::1,10.0.0.0/8,"),
            (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::1/128")),
        )
        self.assertEqual(forms.NETWORKS.of_text(""), ())
        for text in ("10.0.0.1/8", "example.org", "10.0.0.0/33", "*"):
            self.assertIn("10.0.0.0/8", self.refused(forms.NETWORKS, text))
        self.assertRaises(ValueError, forms.NETWORKS.of_toml, [10])

    def test_authenticators(self) -> None:
        """Authenticators are split at commas, blanks around them don't count, and an empty list is authn alone."""
        self.assertEqual(forms.AUTHENTICATORS.of_text(" authn-jwt/ci , authn"), ("authn-jwt/ci", "authn"))
        self.assertEqual(forms.AUTHENTICATORS.of_text("authn-cloud/a,authn-azure/b"), ("authn-cloud/a", "authn-azure/b"))
        self.assertEqual(forms.AUTHENTICATORS.of_text(""), ("authn",))
        self.assertEqual(forms.AUTHENTICATORS.of_toml(["authn-jwt/a/b"]), ("authn-jwt/a/b",))

    def test_unknown_authenticator(self) -> None:
        """An authenticator of unknown type is refused by its name (wire facts, authn 0)."""
        for text in ("authn-jwtx/ci", "jwt/ci", "authn/ci", "/", "authn-JWT/ci"):
            self.assertIn(repr(text), self.refused(forms.AUTHENTICATORS, f"authn,{text}"))

    def test_authenticator_without_service(self) -> None:
        """An authenticator of which there are several is listed with its service id."""
        for text in ("authn-jwt", "authn-jwt/", "authn-cloud", "authn-azure/"):
            self.assertIn("needs a service id", self.refused(forms.AUTHENTICATORS, text))

    def test_accounts(self) -> None:
        """An account has a name that an account can have."""
        self.assertEqual(forms.ACCOUNT.of_text("acme"), "acme")
        for text in ("", "a:b", "a/b", "a b"):
            self.assertIn("name for an account", self.refused(forms.ACCOUNT, text))
        self.assertIn("own account", self.refused(forms.ACCOUNT, "!"))

    def test_dialects(self) -> None:
        """A dialect is one of the two."""
        self.assertIs(forms.DIALECT.of_text("conjur"), CONJUR)
        self.assertIn("native, conjur", self.refused(forms.DIALECT, "Conjur"))

    def test_long_values_are_cut(self) -> None:
        """A refusal repeats no more than the beginning of a long value."""
        self.assertLess(len(self.refused(forms.FLAG, "x" * 10000)), 120)
