"""Tests of ``svc.storage.driver.standbys`` without PostgreSQL."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.storage.driver.standbys import name_of


class NameTests(SynchronousTestCase):
    """The names of hosts in the log."""

    def test_ports(self) -> None:
        """Hosts of one address are told apart by their ports (CLU-42)."""
        for place, name in (
            ({"host": "127.0.0.1", "port": "5433"}, "127.0.0.1:5433"),
            ({"host": "db", "hostaddr": "192.0.2.1", "port": "5432"}, "db:5432"),
            ({"hostaddr": "2001:db8::1", "port": "5432"}, "[2001:db8::1]:5432"),
            ({"host": "db"}, "db"),
            ({}, "the host that the environment names"),
        ):
            self.assertEqual(name_of(place), name)
