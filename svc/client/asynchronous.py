"""The service, as a program on asyncio calls it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from svc.client.async_exchange import AsyncExchange, async_transport
from svc.client.platforms import PLATFORM_LIMIT, Proof, make_evidence
from svc.model.clocks import steady_seconds
from svc.workload.calls import ANSWER_LIMIT, DEADLINE, Calls
from svc.workload.faults import Fault
from svc.workload.requester import StreamRequester
from svc.workload.versions import Versions
from svc.workload.watching import Watch, WatchEvent


class AsyncClient(Calls):
    """One server, one account and one role, whose proof of identity is ``evidence``.

    It keeps connections and one access token, which it renews: a program has one for its life, and closes it in the end, or
    uses it in ``async with``. Many tasks may call it at once; one that is cancelled takes nothing from the others.

    :param url: where the service is, such as ``https://svc.example.org``.
    :param ca_file: PEM file of the only authorities to trust; without it, the system's.
    :param deadline: seconds for a request, all its tries included.
    :param versions: versions that reads must not be older than, where the program writes through another client or server.
    :param requester: sends requests, instead of connections of its own.
    :raises BadAddress: requests can't be sent to ``url``.
    :raises NoEvidence: the file can't be read, or holds anything else than certificates.
    """

    def __init__(
        self,
        url: str,
        account: str,
        evidence: Proof,
        *,
        ca_file: Path | None = None,
        deadline: float = DEADLINE,
        versions: Versions | None = None,
        access_token: str | None = None,
        requester: StreamRequester | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._exchanges: list[AsyncExchange] = []
        if requester is None:
            versions = Versions(steady_seconds) if versions is None else versions
            requester = self._register_exchange(AsyncExchange(async_transport(ca_file), ANSWER_LIMIT, versions))
        self._streams = requester
        proof = make_evidence(
            evidence, lambda: self._register_exchange(AsyncExchange(async_transport(), PLATFORM_LIMIT)), url
        )
        super().__init__(url, account, proof, requester, access_token=access_token, deadline=deadline, chance=chance)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        for own in self._exchanges:
            await own.close()

    def _register_exchange(self, exchange: AsyncExchange) -> AsyncExchange:
        self._exchanges.append(exchange)
        return exchange

    @asynccontextmanager
    async def watch(
        self,
        variables: Iterable[str],
        *,
        lost: Callable[[Fault], object] | None = None,
        back: Callable[[], object] | None = None,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Follow variables: an asynchronous context, whose value yields an event for each news (SEC-48, SEC-50).

        ``async with client.watch(["ci/database/password"]) as events:``, and within it ``async for event in events:``. The
        first event has the versions of all variables. It goes on through outages: ``lost`` is called with each fault that
        it outlives, ``back`` when the service is heard again.

        :raises Fault: one that time doesn't mend: a refused login, a variable that may not be read.
        """
        watch = Watch(
            self._url,
            self._account,
            list(variables),
            self,
            self._streams,
            deadline=self._deadline,
            chance=self._chance,
            lost=lost,
            back=back,
        )
        try:
            yield _iterate_events(watch)
        finally:
            await watch.close()


async def _iterate_events(watch: Watch) -> AsyncIterator[WatchEvent]:
    while True:
        yield await watch.next()
