"""The service, as a workload on Twisted calls it: log in with what the workload has, read secrets, stay logged in.

A workload that reads its database's password::

    from svc.workload.client import Client
    from svc.workload.evidence import Jwt

    async def password(reactor) -> bytes:
        evidence = Jwt("ci", Path("/var/run/secrets/tokens/svc"))
        client = Client.of(reactor, "https://svc.example.org", "acme", evidence)
        return await client.secret("ci/database/password")

Its logic is in ``svc.workload.calls``; programs without Twisted have the same in ``svc.client``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from svc.workload.calls import ANSWER_LIMIT, DEADLINE, Calls
from svc.workload.evidence import Evidence
from svc.workload.exchange import Exchange, http_client
from svc.workload.versions import Versions


class TwistedClient(Calls):
    """One server, one account and one role, whose proof of identity is ``evidence``."""

    @classmethod
    def of(
        cls,
        reactor: Any,
        url: str,
        account: str,
        evidence: Evidence,
        *,
        ca_file: Path | None = None,
        deadline: float = DEADLINE,
        versions: Versions | None = None,
    ) -> TwistedClient:
        """Return a client that connects by ``reactor``.

        :param url: where the service is, such as ``https://svc.example.org``.
        :param ca_file: PEM file of the only authorities to trust; without it, the system's.
        :param deadline: seconds for a request, all its tries included.
        :param versions: versions that reads must not be older than, where the program writes through another client or
          server.
        :raises BadAddress: requests can't be sent to ``url``.
        :raises NoEvidence: the file can't be read, or holds no certificate.
        """
        versions = Versions(reactor.seconds) if versions is None else versions
        exchange = Exchange(http_client(reactor, ca_file), reactor, ANSWER_LIMIT, versions)
        return cls(url, account, evidence, exchange, deadline=deadline)


#: Its name for programs.
Client = TwistedClient
