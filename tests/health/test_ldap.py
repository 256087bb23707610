"""The check of ``ldap`` binds to directories, of some authenticators in each round."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.health.checks_loop import LONGEST_CHECK
from svc.health.ldap import ACCOUNTS_PER_ROUND, DIRECTORIES_PER_ROUND, SHARE_OF_CHECK, LdapProbe
from svc.health.probes import ProbeFailed
from svc.model.ldap_directories import DirectoryBase, DirectoryRefused, EntryState, IDirectories, LdapServer, Security
from svc.model.names import ResourceName
from svc.model.probes import IProbe
from svc.model.reasons import Reason


@implementer(IDirectories)
@attrs.define
class FakeDirectories:
    """Those at the hosts in ``down`` can't be reached; those at hosts in ``slow`` answer when the test lets them."""

    down: set[str] = attrs.field(factory=set)
    slow: dict[str, Deferred[None]] = attrs.field(factory=dict)
    reached: list[str] = attrs.field(factory=list)
    within: float | None = None

    async def verify_password(self, server: LdapServer, login: str, password: bytes, *, by_operator: bool = False) -> None:
        """A probe has nobody's password."""
        raise NotImplementedError

    async def read_groups(
        self, server: LdapServer, login: str, password: bytes, mapped: Sequence[str] = (), *, by_operator: bool = False
    ) -> Sequence[str]:
        """A probe has nobody's password."""
        raise NotImplementedError

    async def read_bases(self, server: LdapServer) -> Sequence[DirectoryBase]:
        """A probe reads none."""
        raise NotImplementedError

    async def read_entry_states(self, server: LdapServer, logins: Sequence[str]) -> Sequence[EntryState]:
        """A probe looks for nobody."""
        raise NotImplementedError

    async def check_connection(self, server: LdapServer, within: float | None = None, *, by_operator: bool = False) -> None:
        """Answer."""
        self.reached.append(server.host)
        self.within = within
        if server.host in self.slow:
            await self.slow[server.host]
        if server.host in self.down:
            raise DirectoryRefused(Reason.LDAP_UNAVAILABLE, "nobody there")


@attrs.define
class FakeServers:
    """Authenticators by account, each with the host of its directory, ``None`` where that isn't said; reads are counted."""

    hosts: dict[str, dict[str, str | None]] = attrs.field(factory=dict)
    looked: int = 0
    read: int = 0

    async def list_webservices(self, after: str, limit: int) -> Sequence[tuple[str, Sequence[ResourceName]]]:
        """The next accounts."""
        found = [account for account in sorted(self.hosts) if account > after][:limit]
        self.looked += len(found)
        return [(account, [ResourceName(account, "webservice", name) for name in self.hosts[account]]) for account in found]

    async def find_server(self, webservice: ResourceName) -> LdapServer | object:
        """The directory of one."""
        self.read += 1
        host = self.hosts[webservice.account][webservice.identifier]
        if host is None:
            return "It is not said which directory is asked."
        return LdapServer(host, 389, Security.TLS, "dc=example", "(uid=%s)")


class LdapProbeTests(SynchronousTestCase):
    """Directories."""

    def setUp(self) -> None:
        """No directory is configured."""
        self.servers, self.directories = FakeServers(), FakeDirectories()
        self.probe = LdapProbe(self.servers, lambda: self.directories)

    def check(self) -> Deferred[None]:
        """Run the probe."""
        return Deferred.fromCoroutine(self.probe.check())

    def add(self, *hosts: str | None, account: str = "acme") -> None:
        """Configure directories."""
        named = self.servers.hosts.setdefault(account, {})
        for host in hosts:
            named[f"svc/authn-ldap/{host}{len(named)}"] = host

    def test_provides(self) -> None:
        """It is a probe, of the name in the report."""
        self.assertTrue(verifyObject(IProbe, self.probe))
        self.assertTrue(verifyObject(IDirectories, self.directories))
        self.assertEqual(self.probe.service, "ldap")

    def test_none(self) -> None:
        """Where no directory is configured all is well, and no client is made (HEALTH-15)."""
        self.successResultOf(Deferred.fromCoroutine(LdapProbe(self.servers, self.fail).check()))

    def test_all_are_reached(self) -> None:
        """Every directory is bound to, once, however many name it (HEALTH-15)."""
        self.add("a", "b", "a")
        self.successResultOf(self.check())
        self.assertEqual(sorted(self.directories.reached), ["a", "b"])

    def test_within(self) -> None:
        """A directory has less time than the check, for all its hosts (HEALTH-15)."""
        self.add("a")
        self.successResultOf(self.check())
        self.assertEqual(self.directories.within, SHARE_OF_CHECK * LONGEST_CHECK)
        self.successResultOf(Deferred.fromCoroutine(LdapProbe(self.servers, lambda: self.directories, 0.5).check()))
        self.assertEqual(self.directories.within, 0.5)

    def test_one_is_down(self) -> None:
        """A directory that can't be bound to fails the probe, which names it; all were asked at once (HEALTH-15)."""
        self.add("a", "b", "c")
        self.directories.down = {"b"}
        self.directories.slow = {"a": Deferred()}
        checked = self.check()
        self.assertEqual(sorted(self.directories.reached), ["a", "b", "c"])
        self.assertNoResult(checked)
        self.directories.slow["a"].callback(None)
        failure = self.failureResultOf(checked, ProbeFailed)
        self.assertIn("acme:webservice:svc/authn-ldap/b1: nobody there (ldap-unavailable)", str(failure.value))
        self.assertNotIn("authn-ldap/a", str(failure.value))
        self.directories.down.clear()
        self.directories.slow.clear()
        self.successResultOf(self.check())

    def test_unusable(self) -> None:
        """A directory whose settings are of no use fails the probe; of many faults a few are told."""
        self.add(None, *(f"h{number}" for number in range(7)))
        self.directories.down = {f"h{number}" for number in range(7)}
        failure = self.failureResultOf(self.check(), ProbeFailed)
        self.assertIn("authn-ldap/None0: It is not said", str(failure.value))
        self.assertIn("and 3 more", str(failure.value))

    def test_silent(self) -> None:
        """One that says nothing until the time for a check is over fails it, and doesn't keep the turn from others."""
        self.add("a", "b", *(f"h{number:02}" for number in range(2 * DIRECTORIES_PER_ROUND)))
        self.directories.slow = {host: Deferred() for host in ("a", "b")}
        for _ in range(4):
            checked = self.check()
            self.assertNoResult(checked)
            checked.cancel()
            self.failureResultOf(checked, CancelledError)
            self.directories.slow = {host: Deferred() for host in ("a", "b")}
        self.assertEqual(len(set(self.directories.reached)), 2 * DIRECTORIES_PER_ROUND + 2)
        self.directories.slow.clear()
        self.successResultOf(self.check())

    def test_a_round_does_not_grow(self) -> None:
        """With 1,000 authenticators of one tenant, and 1,000 tenants, a round reads and binds no more than with a few
        (HEALTH-16).
        """
        self.add(*(f"a{number:03}" for number in range(1000)))
        for number in range(1000):
            self.add(f"t{number:03}", account=f"tenant-{number:03}")
        for _ in range(5):
            looked, read, reached = self.servers.looked, self.servers.read, len(self.directories.reached)
            self.successResultOf(self.check())
            self.assertLessEqual(self.servers.looked - looked, ACCOUNTS_PER_ROUND + 1)
            self.assertLessEqual(self.servers.read - read, DIRECTORIES_PER_ROUND)
            self.assertLessEqual(len(self.directories.reached) - reached, DIRECTORIES_PER_ROUND)
