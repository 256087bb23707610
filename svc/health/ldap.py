"""The check of ``ldap``: directories of a share of the authenticators are bound to in each round (``sampling``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from zope.interface import implementer

from svc.health.checks_loop import LONGEST_CHECK
from svc.health.probes import ProbeFailed
from svc.health.sampling import AccountSampler
from svc.model.ldap_directories import DirectoryRefused, IDirectories, LdapServer
from svc.model.names import ResourceName
from svc.model.probes import IProbe

#: The number of accounts whose authenticators a round finds, and the number of these that it tries.
ACCOUNTS_PER_ROUND: Final = 500
DIRECTORIES_PER_ROUND: Final = 10

#: The share of a check's time that a directory has.
SHARE_OF_CHECK: Final = 0.9


class _Servers(Protocol):
    """``svc.authn.ldap.directory_settings.LdapServers``."""

    async def list_webservices(self, after: str, limit: int) -> Sequence[tuple[str, Sequence[ResourceName]]]: ...
    async def find_server(self, webservice: ResourceName) -> LdapServer | object: ...


@implementer(IProbe)
class LdapProbe:
    """Binds to the directories that are due in a round, all at once, with the client that ``directories`` returns.

    A directory has ``within`` seconds for all its hosts: less than the check, or the next one could never be tried in time.
    ``others`` returns what else of directories has failed, ``None`` for nothing. ``mended`` is called with the name of an
    authenticator whose directory can be bound to again.
    """

    service = "ldap"

    def __init__(
        self,
        servers: _Servers,
        directories: Callable[[], IDirectories],
        within: float = SHARE_OF_CHECK * LONGEST_CHECK,
        others: Callable[[], str | None] = lambda: None,
        mended: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._servers, self._others, self._mended = servers, others, mended
        self._within = within
        self._directories = directories
        self._sampler: AccountSampler[ResourceName] = AccountSampler(
            self._list_webservices, ACCOUNTS_PER_ROUND, DIRECTORIES_PER_ROUND
        )

    async def check(self) -> None:
        """Fail while a bind to a known directory fails, and name it. Each is queried once, however many name it."""
        asked: dict[LdapServer, list[str]] = {}
        for name, webservice in await self._sampler.next_sample():
            server = await self._servers.find_server(webservice)
            if isinstance(server, LdapServer):
                asked.setdefault(server, []).append(name)
            else:
                self._sampler.record_result(name, str(server))
        waiting = dict(asked)

        async def try_server(server: LdapServer) -> None:
            fault = await self._try_bind(server)
            for name in waiting.pop(server):
                if self._sampler.record_result(name, fault):
                    self._mended(name)

        asking = [Deferred.fromCoroutine(try_server(server)) for server in asked]
        try:
            for each in asking:
                await each
        finally:
            for each in asking:
                each.cancel()
                each.addErrback(lambda failure: failure.trap(CancelledError))
            # Where the time for a check is over; others are tried in the next round all the same.
            for name in (name for names in waiting.values() for name in names):
                self._sampler.record_result(name, "no answer in time")
        if trouble := "; ".join(filter(None, (self._sampler.failure_summary, self._others()))):
            raise ProbeFailed(trouble)

    async def _list_webservices(self, after: str, limit: int) -> Sequence[tuple[str, Mapping[str, ResourceName]]]:
        seen = await self._servers.list_webservices(after, limit)
        return [(account, {str(webservice): webservice for webservice in found}) for account, found in seen]

    async def _try_bind(self, server: LdapServer) -> str | None:
        try:
            await self._directories().check_connection(server, self._within)
        except DirectoryRefused as refusal:
            return f"{refusal.detail} ({refusal.reason.value})"
        return None
