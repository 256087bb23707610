"""How a DSN becomes parameters, with names looked up by a resolver that is only imagined."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
    IHostnameResolver,
    IHostResolution,
    IReactorPluggableNameResolver,
    IResolutionReceiver,
)
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.model.errors import ConfigurationInvalid, StoreUnavailable
from svc.storage.driver.location import Location, milliseconds, with_attributes, without_secrets


@implementer(IHostResolution)
class Resolution:
    """A look-up of a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def cancel(self) -> None:
        """It is too late."""


@implementer(IHostnameResolver)
class Resolver:
    """Knows some names."""

    def __init__(self, known: Mapping[str, Sequence[str]]) -> None:
        self.known = known

    def resolveHostName(
        self,
        resolutionReceiver: IResolutionReceiver,  # noqa: N803
        hostName: str,  # noqa: N803
        portNumber: int = 0,  # noqa: N803
        addressTypes: Sequence[type[IAddress]] | None = None,  # noqa: N803
        transportSemantics: str = "TCP",  # noqa: N803
    ) -> IHostResolution:
        """Answer at once."""
        resolution = Resolution(hostName)
        resolutionReceiver.resolutionBegan(resolution)
        for text in self.known.get(hostName, ()):
            kind: Any = IPv6Address if ":" in text else IPv4Address
            resolutionReceiver.addressResolved(kind("TCP", text, portNumber))
        resolutionReceiver.resolutionComplete()
        return resolution


@implementer(IReactorPluggableNameResolver)
class Reactor:
    """A reactor that resolves names and does nothing else."""

    def __init__(self, known: Mapping[str, Sequence[str]]) -> None:
        self.nameResolver = Resolver(known)

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        """Keep the one it has."""
        return self.nameResolver


KNOWN = {"db.example": ["192.0.2.1", "2001:db8::1", "192.0.2.1"], "other.example": ["192.0.2.7"]}


class LocationTests(SynchronousTestCase):
    """Parameters for libpq."""

    def located(self, dsn: str) -> Mapping[str, str]:
        """What a DSN becomes."""
        location = Location(Reactor(KNOWN), dsn, 2.5)
        return self.successResultOf(Deferred.fromCoroutine(location.resolve_parameters(read_only=False)))

    def hosts(self, dsn: str) -> tuple[str | None, str | None, str | None]:
        """Where a DSN leads."""
        located = self.located(dsn)
        return located.get("host"), located.get("hostaddr"), located.get("port")

    def test_places(self) -> None:
        """Each host is a place, and each address of a name; one port is that of all (CLU-39)."""
        for dsn, places in (
            ("dbname=x", [{}]),
            ("host=/run/a,192.0.2.9 port=1", [{"host": "/run/a", "port": "1"}, {"host": "192.0.2.9", "port": "1"}]),
            (
                "postgresql://db.example:1,other.example:2/x",
                [
                    {"host": "db.example", "hostaddr": "192.0.2.1", "port": "1"},
                    {"host": "db.example", "hostaddr": "2001:db8::1", "port": "1"},
                    {"host": "other.example", "hostaddr": "192.0.2.7", "port": "2"},
                ],
            ),
        ):
            location = Location(Reactor(KNOWN), dsn, 2.5)
            self.assertEqual(self.successResultOf(Deferred.fromCoroutine(location.list_hosts())), places, dsn)

    def test_alternatives(self) -> None:
        """Of several hosts each is tried on its own where one alone suits; else they are left to libpq (CLU-42)."""
        for attributes, hosts in (
            ("primary", ["192.0.2.1", "192.0.2.2"]),
            ("read-write", ["192.0.2.1", "192.0.2.2"]),
            ("any", ["192.0.2.1,192.0.2.2"]),
            ("prefer-standby", ["192.0.2.1,192.0.2.2"]),
        ):
            location = Location(Reactor(KNOWN), f"host=192.0.2.1,192.0.2.2 port=7 target_session_attrs={attributes}", 2.5)
            found = self.successResultOf(Deferred.fromCoroutine(location.list_alternatives(read_only=False)))
            self.assertEqual([(each["host"], each["port"]) for each in found], [(host, "7") for host in hosts])
            self.assertEqual({each["target_session_attrs"] for each in found}, {attributes})

    def test_attributes(self) -> None:
        """A DSN is made one for a primary, or for a standby at one place; one that can't be read is refused (CLU-39)."""
        primary = self.located(
            with_attributes("postgresql://u:p%20w@192.0.2.1,192.0.2.2/x?target_session_attrs=any", "primary")
        )
        self.assertEqual((primary["target_session_attrs"], primary["password"]), ("primary", "p w"))
        self.assertEqual(primary["host"], "192.0.2.1,192.0.2.2")
        standby = self.located(with_attributes("host=192.0.2.1,192.0.2.2 port=1,2", "standby", host="192.0.2.2", port="2"))
        self.assertEqual((standby["target_session_attrs"], standby["host"], standby["port"]), ("standby", "192.0.2.2", "2"))
        self.assertRaises(ConfigurationInvalid, with_attributes, "hidden", "primary")

    def test_read_write(self) -> None:
        """A primary that is read-only for a while suits sessions for readings, whatever the DSN wants (DATA-51)."""
        location = Location(Reactor(KNOWN), "host=192.0.2.1 target_session_attrs=read-write", 2.5)
        for read_only, attributes in ((True, "primary"), (False, "read-write")):
            parameters = self.successResultOf(Deferred.fromCoroutine(location.resolve_parameters(read_only=read_only)))
            self.assertEqual(parameters["target_session_attrs"], attributes)

    def test_fakes(self) -> None:
        """The imagined reactor and resolver are what Twisted expects."""
        verifyObject(IReactorPluggableNameResolver, Reactor(KNOWN))
        verifyObject(IHostnameResolver, Resolver(KNOWN))
        verifyObject(IHostResolution, Resolution("db.example"))

    def test_settings(self) -> None:
        """The options of libpq are the DSN's own alone: what the program counts on is set once it is connected (DATA-50)."""
        self.assertNotIn("options", self.located("dbname=svc"))
        self.assertEqual(self.located("options='-c search_path=svc'")["options"], "-c search_path=svc")
        self.assertEqual(self.located("client_encoding=LATIN1")["client_encoding"], "UTF8")
        settings = Location(Reactor(KNOWN), "options='-c timezone=Mars'", 2.5).session_settings(read_only=False)
        self.assertEqual((settings["statement_timeout"], settings["TimeZone"]), ("2500", "UTC"))

    def test_read_only(self) -> None:
        """A session for readings may not write, whatever the DSN says (DATA-15); whether one for writes may, is up to the
        database (DATA-51).
        """
        location = Location(Reactor(KNOWN), "options='-c default_transaction_read_only=off'", 2.5)
        for read_only, expected in ((True, "on"), (False, None)):
            self.assertEqual(location.session_settings(read_only=read_only).get("default_transaction_read_only"), expected)

    def test_defaults(self) -> None:
        """The name under which connections appear, and how dead peers are noticed, is the DSN's affair when it says so."""
        self.assertEqual(self.located("dbname=svc")["application_name"], "svc")
        given = self.located("postgresql:///svc?application_name=other&keepalives_idle=5")
        self.assertEqual((given["application_name"], given["keepalives_idle"]), ("other", "5"))

    def test_unreadable(self) -> None:
        """A DSN that cannot be read is refused without repeating it, since a password may be in it."""
        for dsn in ("postgresql://user:hidden@[", "password=hidden host", "hidden", "hidden=1"):
            with self.assertRaises(ConfigurationInvalid) as caught:
                Location(Reactor(KNOWN), dsn, 1.0)
            self.assertNotIn("hidden", str(caught.exception))
            self.assertTrue(caught.exception.__suppress_context__)

    def test_reasons(self) -> None:
        """The refusal says what libpq doesn't accept, by its name, and repeats nothing that may be of a password (CFG-5)."""
        unreadable = "is neither a PostgreSQL URL nor key=value pairs"
        for dsn, message in (
            (
                "postgresql://u:hidden@h/x?connection_limit=5",
                'can\'t be read by libpq: invalid URI query parameter: "connection_limit"',
            ),
            ("host=h passwrd=hidden", 'can\'t be read by libpq: invalid connection option "passwrd"'),
            ("host=h password=my hidden=x", unreadable),
            ("postgresql://u:p/x?hidden=x@h/x", unreadable),
            ("host=h password=hidden o=x", unreadable),
            *(
                (f"postgresql://{rest}", unreadable)
                for rest in (
                    "h/x?password=Tr0ub&hidden=x",
                    "h/x?p%61ssword=Tr0ub&hidden=x",
                    "h/x?password=hidden&s=x",
                    "h/x?sslpassword=a&hidden=b",
                    "u:abc/?hidden=x%40",
                    "u:1234/?hidden=x%40",
                    "u:abc/?hidden=x",
                )
            ),
            ("postgresql://u:pass@h:1,[::1]:2,/?word=5", 'can\'t be read by libpq: invalid URI query parameter: "word"'),
            ("host=h user=u password='hidden", unreadable),
            ("postgresql://u:%hidden@h/x", "has a % that begins no escape: write % in a password as %25"),
            ("postgresql://u:hid%deen@h/x", "has bytes that are no text: write % in a password as %25"),
            ("postgresql://u:a@hidden@h/x", "has more than one @ before the path: write @ in a password as %40"),
            ("postgres://u:a@hidden@h", "has more than one @ before the path: write @ in a password as %40"),
            ("postgresql://u:hidden@h/x?sslmode=bogus", "has a value of sslmode that libpq doesn't accept"),
            ("host=h ssl_min_protocol_version=hidden", "has a value of ssl_min_protocol_version that libpq doesn't accept"),
            ("host=h keepalives=hidden", "has a value of keepalives that libpq doesn't accept"),
            ("host=h,i port=1,2,3", "has a value of port that libpq doesn't accept"),
            ("host=h sslnegotiation=direct", "has a value that libpq doesn't accept"),
            *(
                (dsn, "has a value of port that libpq doesn't accept; write / in a password as %2F")
                for dsn in ("postgresql://u:p@h:hidden/x", "postgresql://u:p@h,i:99999/x", "postgresql://u:hidden/word@h/x")
            ),
        ):
            with self.assertRaises(ConfigurationInvalid) as caught:
                Location(Reactor(KNOWN), dsn, 1.0)
            self.assertEqual(caught.exception.message, message)
        for dsn in (
            "postgresql://u@h/x?options=a@b@c",
            "host=h,[::1] password=a@b@c port=1,2 connect_timeout=3",
            "host=@a,@b",
            "host=h gssencmode=require",
        ):
            Location(Reactor(KNOWN), dsn, 1.0)
        with patch.dict(os.environ, {"PGHOST": "a,b", "PGPORT": "1,2", "PGGSSENCMODE": "require"}):
            for dsn in ("dbname=x", "port=3,4", "host=h"):
                Location(Reactor(KNOWN), dsn, 1.0)

    def test_no_names(self) -> None:
        """Sockets, addresses and hosts whose addresses are given are not looked up."""
        self.assertEqual(self.hosts("dbname=svc"), (None, None, None))
        for host in ("/run/postgresql", "@abstract", "192.0.2.9", "2001:db8::9", "/one,192.0.2.9"):
            self.assertEqual(self.hosts(f"host={host} port=5433"), (host, None, "5433"))
        self.assertEqual(self.hosts("host=missing hostaddr=192.0.2.9"), ("missing", "192.0.2.9", None))

    def test_name(self) -> None:
        """A name goes with each of its addresses, and stays with them for the check of a certificate."""
        self.assertEqual(self.hosts("host=db.example"), ("db.example,db.example", "192.0.2.1,2001:db8::1", ","))
        self.assertEqual(
            self.hosts("host=db.example port=5433"), ("db.example,db.example", "192.0.2.1,2001:db8::1", "5433,5433")
        )

    def test_several(self) -> None:
        """Names, addresses and sockets may stand beside each other, each with its port; a missing name is passed over."""
        self.assertEqual(
            self.hosts("host=missing,db.example,/run,192.0.2.9,other.example port=1,2,3,4,5"),
            (
                "db.example,db.example,/run,192.0.2.9,other.example",
                "192.0.2.1,2001:db8::1,,,192.0.2.7",
                "2,2,3,4,5",
            ),
        )

    def test_missing(self) -> None:
        """When no name has an address, the store is unavailable."""
        location = Location(Reactor(KNOWN), "host=missing,absent", 1.0)
        failure = self.failureResultOf(
            Deferred.fromCoroutine(location.resolve_parameters(read_only=False)), StoreUnavailable
        )
        self.assertIn("missing, absent", failure.value.why)

    def test_milliseconds(self) -> None:
        """A time-out is never rounded to none."""
        self.assertEqual([milliseconds(seconds) for seconds in (5, 0.25, 0.0001)], [5000, 250, 1])


class SecretsTests(SynchronousTestCase):
    """A DSN without its secrets."""

    def test_without_secrets(self) -> None:
        """Passwords, and options that may hold some, are left out of a DSN; all else stays, the passfile too (CFG-93)."""
        for dsn, shown in (
            ("postgresql://u:s3cret@h:5433/d?sslmode=verify-full", "dbname=d host=h port=5433 sslmode=verify-full user=u"),
            ("host=h password='s3 cret' passfile=/p", "host=h passfile=/p"),
            ("host=h sslpassword=s3cret sslkey=/k options='-c x.y=s3cret'", "host=h sslkey=/k"),
            ("", ""),
        ):
            self.assertEqual(without_secrets(dsn), shown)
