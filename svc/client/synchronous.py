"""The service, as a program of threads calls it."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from svc.client.blocking import BlockingExchange, BlockingTransport, run_coroutine
from svc.client.platforms import PLATFORM_LIMIT, Proof, make_evidence
from svc.model.clocks import steady_seconds
from svc.workload.batches import SecretValues
from svc.workload.calls import ANSWER_LIMIT, DEADLINE, Calls
from svc.workload.faults import Fault
from svc.workload.requester import StreamRequester
from svc.workload.versions import Versions
from svc.workload.watching import Watch, WatchEvent


class Client:
    """One server, one account and one role, whose proof of identity is ``evidence``.

    It keeps connections and one access token, which it renews: a program has one for its life, for all its threads, and
    closes it in the end, or uses it in ``with``. A process that was forked may go on with it. Parameters and faults are
    those of ``AsyncClient``; ``requester`` is one whose coroutines never suspend.
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
        self._exchanges: list[BlockingExchange] = []
        if requester is None:
            versions = Versions(steady_seconds) if versions is None else versions
            requester = self._register_exchange(BlockingExchange(lambda: BlockingTransport(ca_file), ANSWER_LIMIT, versions))
        self._requester, self._url, self._account = requester, url, account
        self._deadline, self._chance = deadline, chance
        proof = make_evidence(
            evidence, lambda: self._register_exchange(BlockingExchange(BlockingTransport, PLATFORM_LIMIT)), url
        )
        self._calls = Calls(url, account, proof, requester, access_token=access_token, deadline=deadline, chance=chance)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        for own in self._exchanges:
            own.close()

    def _register_exchange(self, exchange: BlockingExchange) -> BlockingExchange:
        self._exchanges.append(exchange)
        return exchange

    def secret(self, variable: str, version: int | None = None) -> bytes:
        """Read the value of a variable, such as ``ci/database/password``: the newest, unless a version is given.

        :raises NotFound: there is no value for this role.
        :raises NotPermitted: the role sees the variable, but may not read it.
        :raises Fault: the role can't log in, or the service can't be reached.
        """
        return run_coroutine(self._calls.secret(variable, version))

    def secrets(self, variables: Iterable[str]) -> dict[str, bytes]:
        """Read the newest values of several variables, all of them or none, with one request unless there are very many."""
        return run_coroutine(self._calls.secrets(variables))

    def batch(self, variables: Iterable[str], *, partial: bool = False, tag: str | None = None) -> SecretValues:
        """Read up to 10,000 variables with one request; ``partial`` and ``tag`` as ``AsyncClient.batch`` has them."""
        return run_coroutine(self._calls.batch(variables, partial=partial, tag=tag))

    def log_in_and_read(self, variables: Iterable[str], *, partial: bool = False) -> SecretValues:
        """Log in and read variables with one request; the login serves later requests."""
        return run_coroutine(self._calls.log_in_and_read(variables, partial=partial))

    def set_secret(
        self, variable: str, value: bytes, *, if_match: str | None = None, create_only: bool = False
    ) -> str | None:
        """Set the value of a variable, which keeps older ones; return the tag of the new value.

        :param if_match: replace only the value of this tag.
        :param create_only: set only a first value.
        :raises ValueChanged: the value is another one, or there is one.
        """
        return run_coroutine(self._calls.set_secret(variable, value, if_match=if_match, create_only=create_only))

    def whoami(self) -> dict[str, Any]:
        """Return what the service knows of the caller: ``account``, ``username``, ``client_ip``, ``token_issued_at``."""
        return run_coroutine(self._calls.whoami())

    def resources(
        self, kind: str | None = None, *, search: str | None = None, limit: int | None = None, offset: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the resources of the account that the role sees, as the service describes them."""
        return run_coroutine(self._calls.resources(kind, search=search, limit=limit, offset=offset))

    def access_token(self) -> str:
        """Return an access token with some life left, in base64 as in the header ``Authorization: Token token="…"``."""
        return run_coroutine(self._calls.access_token())

    @contextmanager
    def watch(
        self,
        variables: Iterable[str],
        *,
        lost: Callable[[Fault], object] | None = None,
        back: Callable[[], object] | None = None,
    ) -> Generator[Iterator[WatchEvent], None, None]:
        """Follow variables: a context whose value yields an event for each news, as ``AsyncClient.watch``.

        It waits for them, in the thread that asks.
        """
        watch = Watch(
            self._url,
            self._account,
            list(variables),
            self._calls,
            self._requester,
            deadline=self._deadline,
            chance=self._chance,
            lost=lost,
            back=back,
        )
        try:
            yield _iterate_events(watch)
        finally:
            run_coroutine(watch.close())


def _iterate_events(watch: Watch) -> Iterator[WatchEvent]:
    while True:
        yield run_coroutine(watch.next())
