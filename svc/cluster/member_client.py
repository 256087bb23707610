"""Questions to another server of the cluster, over HTTP and within the limits of HEALTH-19."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.internet.interfaces import IStreamClientEndpoint

from svc.audit.record_search import PAGE_BYTES, RecordsPage, RecordsQuestion
from svc.cluster.peer_claims import PeerClaims
from svc.cluster.record_questions import RecordQuestions
from svc.cluster.reports import UNREACHABLE, ProbeReply, parse_reply
from svc.model.databases import ClusterMember, DatabaseIdentity
from svc.model.errors import ConfigurationInvalid
from svc.model.readings import ReadingBatch
from svc.net.outgoing import HttpAnswer, Unanswered, send_request
from svc.net.trust import Trust

#: Seconds from the lookup of the name to the last byte of an answer, and its most bytes, headers included (HEALTH-19).
DEADLINE: Final = 5.0
ANSWER_LIMIT: Final = 64 * 1024

#: Seconds for a search of its audit files, which may wait for ten there and take sixty, and the most bytes of the answer.
SEARCH_DEADLINE: Final = 75.0
SEARCH_LIMIT: Final = PAGE_BYTES + 1024 * 1024
#: The most bytes of an answer with counts of reads.
READINGS_LIMIT: Final = 1024 * 1024

#: Seconds for a database's identity: the first writes wait for it, and the first round of expiration, which has two.
CLAIM_DEADLINE: Final = 1.5


class MemberClient:
    """Questions to one member; ``trust`` returns the trust in force, by default that in the platform's authorities."""

    def __init__(self, reactor: Any, member: ClusterMember, trust: Callable[[], Trust] = Trust) -> None:
        address = urlsplit(member.url)
        host = address.hostname
        assert host is not None
        self._reactor, self._url = reactor, member.url
        secure = address.scheme == "https"
        port = address.port or (443 if secure else 80)
        endpoint: IStreamClientEndpoint = HostnameEndpoint(reactor, host, port, timeout=DEADLINE)
        # Made for each question, since what TLS holds belongs to one connection.
        self._endpoint: Callable[[], IStreamClientEndpoint] = lambda: (
            wrapClientTLS(trust().connection_creator(host), endpoint) if secure else endpoint
        )

    async def fetch_health(self) -> ProbeReply:
        """Ask for its health. A failure is in the reply; nothing is raised."""
        try:
            answer = await self._get_path("/health", DEADLINE)
        except Unanswered as error:
            return ProbeReply(fault=UNREACHABLE, why=error.why)
        except (ConnectError, DNSLookupError) as error:
            return ProbeReply(fault=UNREACHABLE, why=f"no connection: {error}")
        return parse_reply(answer.status, answer.body)

    async def fetch_database_identity(self, claims: PeerClaims) -> DatabaseIdentity | None:
        """Ask for the identity of its database; ``None`` when no answer comes in time that proves to know the data key."""
        challenge, body = await self._send_challenge(claims)
        return claims.read_identity(challenge, body)

    async def fetch_data_keys(self, claims: PeerClaims) -> tuple[str, ...] | None:
        """Ask for the ids of the data keys that it knows; ``None`` as above, or when it doesn't say."""
        challenge, body = await self._send_challenge(claims)
        return claims.read_data_keys(challenge, body)

    async def fetch_records(self, questions: RecordQuestions, question: RecordsQuestion) -> RecordsPage:
        """Ask for audit records. Why there are none, or why some may be missing, is in the page; nothing is raised."""
        sent = questions.make_question(question)
        try:
            answer = await self._get_path(f"/cluster/records?{sent.query_string}", SEARCH_DEADLINE, SEARCH_LIMIT)
        except Unanswered as error:
            return RecordsPage(faults=(f"it can't be asked: {error.why}",))
        except (ConnectError, DNSLookupError) as error:
            return RecordsPage(faults=(f"it can't be asked: no connection: {error}",))
        if answer.status == 503:
            return RecordsPage(faults=("it can't search now: other searches are under way there; repeat this one",))
        if answer.status != 200:
            fault = f"it can't be asked (status {answer.status}): its version or its data key is another, or it is no member"
            return RecordsPage(faults=(fault,))
        page = questions.open_page(sent, answer.body)
        return RecordsPage(faults=("its answer is none of a server of this cluster",)) if page is None else page

    async def fetch_readings(self, claims: PeerClaims, source: str, confirmed: int) -> ReadingBatch | None:
        """Ask for its next counts of reads, after those of ``source`` with the number ``confirmed`` were added.

        Returns ``None`` when no answer comes in time that proves to know the data key.
        """
        challenge, code = claims.new_readings_question(source, confirmed)
        query = f"challenge={challenge}&code={code}&source={source}&confirmed={confirmed}"
        try:
            answer = await self._get_path(f"/cluster/readings?{query}", DEADLINE, READINGS_LIMIT)
        except (Unanswered, ConnectError, DNSLookupError):
            return None  # Its health report says why.
        return claims.open_readings(challenge, answer.body) if answer.status == 200 else None

    async def _send_challenge(self, claims: PeerClaims) -> tuple[str, bytes]:
        """Return a challenge, and what was answered; nothing when there was no answer."""
        challenge, code = claims.new_challenge()
        try:
            answer = await self._get_path(f"/cluster/database?challenge={challenge}&code={code}", CLAIM_DEADLINE)
        except (Unanswered, ConnectError, DNSLookupError):
            return challenge, b""  # Its health report says why.
        return challenge, answer.body if answer.status == 200 else b""

    def _get_path(self, path: str, deadline: float, limit: int = ANSWER_LIMIT) -> Deferred[HttpAnswer]:
        try:
            endpoint = self._endpoint()
        except UnicodeError:
            raise Unanswered("no certificate can be for a host of that name") from None
        asked = send_request(endpoint, self._reactor, f"{self._url}{path}", limit)

        def raise_late(*_: object) -> Any:
            raise Unanswered(f"there was no complete answer within {deadline:g} seconds")

        return Deferred.fromCoroutine(asked).addTimeout(deadline, self._reactor, raise_late)


def load_trust(path: Path, key: str) -> Trust:
    """Return trust in the authorities of a file of PEM alone; ``key`` is the setting that names it.

    :raises ConfigurationInvalid: it can't be read, or holds no certificates.
    """
    try:
        return Trust.from_file(path)
    except OSError as error:
        raise ConfigurationInvalid(key, f"names a file that can't be read: {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationInvalid(key, f"names the file {path}, which {error}") from None
