"""The forms in which settings are written: what they read, and what they refuse."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.databases import ClusterMember
from svc.model.dialect import CONJUR
from svc.settings import parsers
from svc.settings.parsers import Parser


class FormsTests(SynchronousTestCase):
    """Each parser, read from text and from TOML."""

    def refused(self, parser: Parser[Any], text: str) -> str:
        """The message with which a parser refuses a text."""
        return str(self.assertRaises(ValueError, parser.from_text, text))

    def test_flag(self) -> None:
        """A flag is one of six words, in any case of letters; in TOML it is a boolean (CFG-4)."""
        for text, value in {
            "true": True,
            "1": True,
            "yes": True,
            "false": False,
            "0": False,
            "no": False,
            "YES": True,
        }.items():
            self.assertIs(parsers.FLAG.from_text(text), value)
        self.assertIs(parsers.FLAG.from_toml(True), True)
        for text in ("", "on", "2", " true", "ja"):
            self.assertIn("true or false", self.refused(parsers.FLAG, text))
        for unfit in ("true", 1, None):
            self.assertRaises(ValueError, parsers.FLAG.from_toml, unfit)

    def test_whole_numbers(self) -> None:
        """A whole number is written in ASCII digits and lies within its bounds, which are allowed (CFG-4)."""
        parser = parsers.whole_number(1, 18000, "SECONDS")
        self.assertEqual([parser.from_text("1"), parser.from_text("18000"), parser.from_toml(480)], [1, 18000, 480])
        for text in ("0", "18001", "-1", "+5", "1.0", "1e2", "1_000", " 5", "5\n", "\u0665", "", "9" * 40, "nan"):
            self.assertIn("a whole number from 1 to 18000", self.refused(parser, text))
        for value in (480.0, "480", True, [480]):
            self.assertRaises(ValueError, parser.from_toml, value)

    def test_decimal_numbers(self) -> None:
        """A number may have a fraction, and is neither infinite nor not a number (CFG-4)."""
        parser = parsers.decimal_number(0, 3600, "SECONDS")
        self.assertEqual([parser.from_text("0"), parser.from_text("0.25"), parser.from_text("3600.0")], [0.0, 0.25, 3600.0])
        self.assertEqual([parser.from_toml(10), parser.from_toml(0.5)], [10.0, 0.5])
        for text in ("", "-1", ".5", "5.", "1e3", "inf", "nan", "3600.1", "1,5", "\u0665"):
            self.assertIn("a number from 0 to 3600", self.refused(parser, text))
        for value in (float("inf"), float("nan"), "5", True):
            self.assertRaises(ValueError, parser.from_toml, value)

    @given(st.floats(min_value=0.001, max_value=3600).map(lambda number: round(number, 3)))
    def test_decimal_property(self, number: float) -> None:
        """Every number that is written out in decimals is read as itself."""
        parser = parsers.decimal_number(0, 3600, "SECONDS")
        self.assertEqual(parser.from_text(f"{number:.3f}"), number)

    def test_decimal_or_off(self) -> None:
        """Where a number may be absent, the word off says so in every place (CFG-4)."""
        parser = parsers.decimal_or_off(1, 3600, "SECONDS")
        for text in ("off", "OFF"):
            self.assertIsNone(parser.from_text(text))
            self.assertIsNone(parser.from_toml(text))
        self.assertEqual((parser.from_text("2.5"), parser.from_toml(2.5), parser.from_toml(2)), (2.5, 2.5, 2.0))
        for text in ("0", "3601", "on", "", "-1"):
            self.assertIn("must be off, or a number from 1 to 3600", self.refused(parser, text))
        bad: list[object] = [True, float("inf"), ["off"]]
        for value in bad:
            self.assertRaises(ValueError, parser.from_toml, value)

    def test_whole_or_auto(self) -> None:
        """A number that the server may find by itself is given as the word auto, in every place (CFG-28)."""
        parser = parsers.whole_or_auto(1, 64, "NUMBER")
        for text in ("auto", "Auto"):
            self.assertIsNone(parser.from_text(text))
            self.assertIsNone(parser.from_toml(text))
        self.assertEqual((parser.from_text("2"), parser.from_toml(2)), (2, 2))
        for text in ("0", "65", "2.5", "all", ""):
            self.assertIn("must be auto, or a whole number from 1 to 64", self.refused(parser, text))
        self.assertRaises(ValueError, parser.from_toml, True)

    def test_texts(self) -> None:
        """A text isn't empty and holds no NUL; a refusal doesn't repeat it, since it may hold a password."""
        self.assertEqual(parsers.TEXT.from_text("host=/run dbname=svc"), "host=/run dbname=svc")
        for text in ("", "pass\x00word"):
            self.assertNotIn("word", self.refused(parsers.TEXT, text))
        self.assertIn("text", str(self.assertRaises(ValueError, parsers.TEXT.from_toml, 5)))

    def test_paths(self) -> None:
        """A path becomes absolute when it is read, and a tilde is the user's home (CFG-6)."""
        self.assertEqual(parsers.PATH.from_text("/a b/../c"), Path("/c"))
        self.assertEqual(parsers.PATH.from_text("state"), Path(os.getcwd()) / "state")
        self.assertEqual(parsers.PATH.from_text("~/state"), Path.home() / "state")
        self.assertIn("empty", self.refused(parsers.PATH, ""))

    def test_endpoints(self) -> None:
        """Endpoints are split at blanks in a text, and hold any in TOML; there is at least one (CFG-3)."""
        self.assertEqual(parsers.ENDPOINTS.from_text(" tcp:1:interface=a,b \n tcp:2"), ("tcp:1:interface=a,b", "tcp:2"))
        self.assertEqual(parsers.ENDPOINTS.from_toml(["unix:/a b"]), ("unix:/a b",))
        self.assertIn("at least one", self.refused(parsers.ENDPOINTS, " "))
        self.assertRaises(ValueError, parsers.ENDPOINTS.from_toml, [])
        self.assertRaises(ValueError, parsers.ENDPOINTS.from_toml, "tcp:1")

    def test_networks(self) -> None:
        """Networks are CIDRs or single addresses of either family; none is allowed, bits beside the mask aren't."""
        self.assertEqual(
            parsers.NETWORKS.from_text("10.0.0.0/8, ::1,10.0.0.0/8,"),
            (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::1/128")),
        )
        self.assertEqual(parsers.NETWORKS.from_text(""), ())
        for text in ("fe80::1%eth0", "fe80::%1/64", "::1%"):
            self.assertIn("without a zone", self.refused(parsers.NETWORKS, text))
        for text in ("10.0.0.1/8", "example.org", "10.0.0.0/33", "*"):
            self.assertIn("10.0.0.0/8", self.refused(parsers.NETWORKS, text))
        self.assertRaises(ValueError, parsers.NETWORKS.from_toml, [10])

    def test_proxies(self) -> None:
        """The word none and an empty list are no network at all, and the word stands alone (CFG-3)."""
        one = (ipaddress.ip_network("::1/128"),)
        for text, networks in (("none", ()), (" none ", ()), ("none,", ()), ("", ()), ("::1", one)):
            self.assertEqual(parsers.PROXIES.from_text(text), networks)
            self.assertEqual(parsers.PROXIES.from_toml(text.split(",")), networks)
        self.assertEqual(parsers.PROXIES.from_toml([]), ())
        self.assertIn("10.0.0.0/8", self.refused(parsers.PROXIES, "no"))
        for text in ("none,127.0.0.1", "127.0.0.1, none", "none,none"):
            self.assertIn("must be none alone", self.refused(parsers.PROXIES, text))
            self.assertRaises(ValueError, parsers.PROXIES.from_toml, text.split(","))
        for text in ("None", "NONE", "NONE,127.0.0.1"):
            self.assertIn("must be none in small letters", self.refused(parsers.PROXIES, text))
        for value in ("none", [10], None):
            self.assertRaises(ValueError, parsers.PROXIES.from_toml, value)

    def test_origins(self) -> None:
        """The address that browsers know has no path, TLS but on this machine, and the form of Origin (CFG-49)."""
        for text, origin in (
            ("https://svc.example", "https://svc.example"),
            ("https://SVC.example:443/", "https://svc.example"),
            ("HTTPS://svc.example", "https://svc.example"),
            ("Http://localhost", "http://localhost"),
            ("https://svc.example:8443", "https://svc.example:8443"),
            ("https://[2001:db8::1]", "https://[2001:db8::1]"),
            ("http://localhost:8080", "http://localhost:8080"),
            ("http://127.0.0.1:80", "http://127.0.0.1"),
        ):
            self.assertEqual(parsers.ORIGIN.from_text(text), origin)
        for text in (
            "svc.example",
            "https://svc.example/svc",
            "https://u@svc.example",
            "https://svc.example:0",
            "https://a?b",
        ):
            self.assertIn("https://host", self.refused(parsers.ORIGIN, text))
        self.assertIn("TLS", self.refused(parsers.ORIGIN, "http://svc.example"))

    def test_authenticators(self) -> None:
        """Authenticators are split at commas, blanks around them don't count, and an empty list is authn alone (CFG-3)."""
        self.assertEqual(parsers.AUTHENTICATORS.from_text(" authn-jwt/ci , authn"), ("authn-jwt/ci", "authn"))
        self.assertEqual(parsers.AUTHENTICATORS.from_text("authn-cloud/a,authn-azure/b"), ("authn-cloud/a", "authn-azure/b"))
        self.assertEqual(parsers.AUTHENTICATORS.from_text(""), ("authn",))
        self.assertEqual(parsers.AUTHENTICATORS.from_toml(["authn-jwt/a/b"]), ("authn-jwt/a/b",))

    def test_unknown_authenticator(self) -> None:
        """An authenticator of unknown type is refused by its name (CFG-9)."""
        for text in ("authn-jwtx/ci", "jwt/ci", "authn/ci", "/", "authn-JWT/ci"):
            self.assertIn(repr(text), self.refused(parsers.AUTHENTICATORS, f"authn,{text}"))

    def test_authenticator_patterns(self) -> None:
        """A service id may be a pattern, with one ``*`` at the end of a segment; a type may not (CFG-90)."""
        for text in (
            "authn-jwt/*",
            "authn-jwt/team-*",
            "authn-jwt/team/*",
            "authn-jwt/*/prod",
            "authn-ldap/*",
            "authn-azure/*",
        ):
            self.assertEqual(parsers.AUTHENTICATORS.from_text(text), (text,))
        for text in ("authn-jwt/**", "authn-jwt/*a", "authn-jwt/*/*", "authn-jwt/a*b", "authn-jwt/*-a/b"):
            self.assertIn("a pattern has one *", self.refused(parsers.AUTHENTICATORS, text))
        for text in ("authn-*", "*", "authn-*/ci", "*/ci"):
            self.assertIn("write each type", self.refused(parsers.AUTHENTICATORS, text))
        self.assertIn("without a service id", self.refused(parsers.AUTHENTICATORS, "authn-gcp/*"))

    def test_authenticator_without_service(self) -> None:
        """An authenticator of which there are several is listed with its service id (CFG-9)."""
        for text in ("authn-jwt", "authn-jwt/", "authn-cloud", "authn-azure/"):
            self.assertIn("needs a service id", self.refused(parsers.AUTHENTICATORS, text))

    def test_accounts(self) -> None:
        """An account has a name that an account can have."""
        self.assertEqual(parsers.ACCOUNT.from_text("acme"), "acme")
        for text in ("", "a:b", "a/b", "a b"):
            self.assertIn("name for an account", self.refused(parsers.ACCOUNT, text))
        self.assertIn("own account", self.refused(parsers.ACCOUNT, "!"))

    def test_dialects(self) -> None:
        """A dialect is one of the two."""
        self.assertIs(parsers.DIALECT.from_text("conjur"), CONJUR)
        self.assertIn("native, conjur", self.refused(parsers.DIALECT, "Conjur"))

    def test_long_values_are_cut(self) -> None:
        """A refusal repeats no more than the beginning of a long value."""
        self.assertLess(len(self.refused(parsers.FLAG, "x" * 10000)), 120)


class TokenFilesTests(SynchronousTestCase):
    """Files of tokens, each for one origin (AUTH-69)."""

    def test_files(self) -> None:
        """An origin is brought into one form, and a path is made absolute; TOML has a list of the same texts."""
        text = "https://K8s.example=/run/a, https://10.0.0.1:6443/=/run/b=c, https://[::1]=~"
        found = dict(parsers.TOKEN_FILES.from_text(text))
        self.assertEqual(list(found), ["https://k8s.example:443", "https://10.0.0.1:6443", "https://::1:443"])
        self.assertEqual(found["https://10.0.0.1:6443"], Path("/run/b=c"))
        self.assertTrue(all(path.is_absolute() for path in found.values()))
        self.assertEqual(parsers.TOKEN_FILES.from_toml(["https://a.example=/x"]), (("https://a.example:443", Path("/x")),))
        self.assertEqual(parsers.TOKEN_FILES.from_text(""), ())

    def test_refused(self) -> None:
        """What is no origin of https with a file is refused, and so are two files for one origin."""
        for text in ("/run/a", "=/run/a", "http://a.example=/x", "https://a.example/p=/x", "https://u@a.example=/x", "a=/x"):
            with self.assertRaisesRegex(ValueError, "must list files as https://"):
                parsers.TOKEN_FILES.from_text(text)
        with self.assertRaisesRegex(ValueError, "impossible port"):
            parsers.TOKEN_FILES.from_text("https://a.example:0=/x")
        with self.assertRaisesRegex(ValueError, "may not be empty"):
            parsers.TOKEN_FILES.from_text("https://a.example=")
        with self.assertRaisesRegex(ValueError, "two files for one address"):
            parsers.TOKEN_FILES.from_text("https://a.example=/x,https://A.example:443=/y")


class ClusterTests(SynchronousTestCase):
    """The servers of a cluster."""

    def refused(self, text: str) -> str:
        """The message with which a list of servers is refused."""
        return str(self.assertRaises(ValueError, parsers.CLUSTER.from_text, text))

    def test_addresses(self) -> None:
        """An address is https with a host, a port or none, and a path or none; its last slash doesn't count."""
        for url in ("https://b", "https://b.example:1", "https://[::1]:65535", "https://10.0.0.1/svc/b", "https://b_1/"):
            (member,) = parsers.CLUSTER.from_text(f"b={url}")
            self.assertEqual(member, ClusterMember("b", url.rstrip("/")))

    def test_plain_http_is_for_this_machine(self) -> None:
        """An http address is taken when it is this machine's own, and no other (CFG-10)."""
        for host in ("127.0.0.1", "127.1.2.3:80", "[::1]:80", "localhost", "a.localhost:8080"):
            self.assertEqual(parsers.CLUSTER.from_text(f"b=http://{host}")[0].url, f"http://{host}")
        for host in ("b.example", "10.0.0.1", "[::2]", "0.0.0.0", "localhost.example", "127.0.0.1.example", "127.1"):
            self.assertIn("use https", self.refused(f"b=http://{host}"))

    def test_bad_addresses(self) -> None:
        """Users, queries, fragments, impossible hosts and ports, and other schemes are refused, and not repeated
        (CFG-10).
        """
        for url in (
            "https://u:pässword@b",
            "https://u@b",
            "https://b?x",
            "https://b#x",
            "https://b:0",
            "https://b:65536",
            "https://b:",
            "https://",
            "https://-b",
            "https://[::1",
            "https://[:::]",
            "https://b\\c",
            "https://b/%2e",
            "https://b/a b",
            "https://b\x00",
            "https://b\nc",
            "https://\u0431",
            "https:/b",
            "ftp://b",
            "b",
            "",
            "https://" + "b" * 3000,
        ):
            message = self.refused(f"b={url}")
            self.assertIn("gives b no address of the form https://", message)
            self.assertNotIn("pässword", message)

    def test_names(self) -> None:
        """A name is one of a host; what is none, and one that stands there twice, in whatever case, is refused (CFG-10)."""
        for name in ("", "a b", "-a", "a..b", "a/b", "a:1", "u@a", "\u212a", "a" * 64, ".".join(["a" * 60] * 5), "a\x00"):
            self.assertIn("which is no name of a host", self.refused(f"{name}=https://b"))
        self.assertIn("names B twice", self.refused("b=https://b,B=https://c"))
        self.assertIn("names b twice", self.refused("b=https://b,b=https://b"))
        self.assertIn("NAME=URL", self.refused("https://b"))
        self.assertIn("more than 100", self.refused(",".join(f"b{n}=https://b" for n in range(101))))

    def test_tables(self) -> None:
        """In TOML a server is a table of a name, an address and perhaps an authority, all texts, and nothing else
        (CFG-3).
        """
        good = {"name": "b", "url": "https://b"}
        self.assertEqual(parsers.CLUSTER.from_toml([good]), (ClusterMember("b", "https://b"),))
        self.assertEqual(parsers.CLUSTER.from_toml([{**good, "ca": "/x"}]), (ClusterMember("b", "https://b", Path("/x")),))
        for bad in (
            good,
            "b=https://b",
            ["b=https://b"],
            [{"name": "b"}],
            [{**good, "url": 1}],
            [{**good, "ca": False}],
            [{**good, "ca": ""}],
            [{**good, "CA": "/x"}],
            [{"name": "b", "url": "http://127.0.0.1", "ca": "/x"}],
            [good, good],
        ):
            self.assertRaises(ValueError, parsers.CLUSTER.from_toml, bad)

    @given(st.text(max_size=60))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        """Whatever is written, it lists servers with plain names and addresses, or is refused."""
        for prefix in ("", "b=", "b=https://", "b=https://b"):
            try:
                members = parsers.CLUSTER.from_text(prefix + text)
            except ValueError:
                continue
            for member in members:
                self.assertTrue((member.name + member.url).isascii())
                self.assertFalse({"@", "?", "#", "%", "\\"} & set(member.url))
