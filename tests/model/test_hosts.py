"""Tests of ``svc.model.web_address``: how hosts are written."""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from svc.model.web_address import DNS_NAME, HOST, HOST_NAME, IPV6

LABEL = "a" * 63


class PatternTests(SynchronousTestCase):
    """The patterns."""

    def test_patterns(self) -> None:
        """Each text is what the patterns named beside it take, and no others do."""
        patterns = {"dns": DNS_NAME, "name": HOST_NAME, "number": IPV6, "host": HOST}
        for text, taken in (
            ("a", "dns name host"),
            ("192.0.2.1", "dns name host"),
            ("A-1.example", "dns name host"),
            (f"{LABEL}.{LABEL}", "dns name host"),
            ("a_b.example", "dns name host"),
            ("_a.example", "name host"),
            ("my_idp_", "name host"),
            ("[::1]", "number host"),
            ("[2001:db8::192.0.2.1]", "number host"),
            ("", ""),
            ("-a", ""),
            ("a-", ""),
            ("a..b", ""),
            ("a.", ""),
            (".a", ""),
            ("a b", ""),
            ("\u00e4", ""),
            (f"a{LABEL}", ""),
            ("::1", ""),
            ("[:]", ""),
            ("[g::]", ""),
            ("[" + "a" * 46 + "]", ""),
        ):
            found = {name for name, pattern in patterns.items() if re.fullmatch(pattern, text)}
            self.assertEqual(found, set(taken.split()), text)
