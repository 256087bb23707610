"""Tests of ``svc.settings.plain``: settings as a file of the server has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import ConfigurationInvalid
from svc.settings.config import OPTIONS, Settings
from svc.settings.plain import parse_plain_settings, plain_settings
from svc.settings.reading import read_settings
from tests.settings.test_config import example_values

_LEFT_OUT = {"database_url", "data_key", "data_key_command"}


def parsed_again(settings: Settings) -> Settings:
    """The settings after they were written and read."""
    return parse_plain_settings(json.loads(json.dumps(plain_settings(settings))), settings.written)


class PlainSettingsTests(SynchronousTestCase):
    """Settings that are written and read again."""

    def test_each(self) -> None:
        """Each setting without a secret comes back as it was, and those with one aren't written (CFG-93)."""
        for option in OPTIONS:
            needed = {} if option.field == "dialect" else {"dialect": "conjur"}
            if option.field in {"data_key", "data_key_file", "config"}:
                continue
            text = {"conjur_version": "1.22.0", "ignore_missing_issuer": "true"}.get(option.field) or example_values(
                option.field
            )[0]
            settings = read_settings({**needed, option.field: text}, {})
            unknown: dict[str, Any] = dict.fromkeys(_LEFT_OUT)
            plain = attrs.evolve(settings, **unknown)
            self.assertEqual(parsed_again(settings), plain, option.field)
            self.assertEqual(option.field in plain_settings(settings), option.field not in _LEFT_OUT)

    def test_odd_values(self) -> None:
        """So do values of unusual forms: switches that are off, addresses of IPv6, members with authorities, small numbers
        (CFG-93).
        """
        for field, text in (
            ("login_throttle", "on"),
            ("trusted_proxies", "none"),
            ("processes", "auto"),
            ("jwks_max_age", "off"),
            ("memory_lag", "0.00001"),
            ("deleted_retention", "0"),
            ("jwks_token_files", "https://[2001:db8::1]:8443=/token,https://k8s.example=/other"),
            ("listen", "tcp:1:interface=\\:\\:1 unix:/a"),
            ("allow_private_providers", "10.0.0.0/8,2001:db8::/32"),
            ("authenticators", "authn,authn-jwt/*"),
            ("data_dir", "/a folder/ä"),
        ):
            settings = read_settings({field: text}, {})
            self.assertEqual(parsed_again(settings), settings, field)
        path = Path(self.mktemp())
        path.write_text('[[cluster]]\nname = "b.example"\nurl = "https://b.example"\nca = "/ca.pem"\n')
        settings = read_settings({"config": str(path)}, {})
        self.assertEqual(parsed_again(settings), settings)

    def test_secrets(self) -> None:
        """No text that is or may hold a secret is among the values (CFG-93)."""
        given = {"database_url": "postgresql://u:s3cret@h/d", "data_key_command": "print s3cret"}
        settings = read_settings(given, {})
        self.assertNotIn("s3cret", json.dumps(plain_settings(settings)))
        self.assertNotIn("database_url", plain_settings(settings))

    def test_others(self) -> None:
        """Values that can't be those of this program are refused by the name of the setting (CFG-93)."""
        for field, value in (("processes", 1.5), ("cluster", ["x"]), ("memory_lag", "x"), ("dialect", "other")):
            refusal = self.assertRaises(ConfigurationInvalid, parse_plain_settings, {field: value}, {})
            assert isinstance(refusal, ConfigurationInvalid)
            self.assertEqual(refusal.key, field)

    @given(st.floats(0, 10), st.floats(0.1, 3600))
    def test_numbers(self, lag: float, interval: float) -> None:
        """Numbers come back as they were, to nine digits after the point, which is what settings have (CFG-93)."""
        settings = attrs.evolve(Settings(), memory_lag=round(lag, 9), health_interval=round(interval, 9))
        self.assertEqual(parsed_again(settings), settings)
