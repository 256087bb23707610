"""Proofs of identity that platforms give, as clients on ``httpx`` take them: each is fetched the way the client sends its
requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import attrs

from svc.workload.aws import AwsCredentials
from svc.workload.evidence import AwsRole, CloudIdentity, Evidence, GoogleIdentity
from svc.workload.google import GoogleMetadata
from svc.workload.machine import RESOURCE
from svc.workload.metadata import LINK_LOCAL, Metadata, environment
from svc.workload.platform_service import PlatformService
from svc.workload.requester import Requester


@attrs.frozen
class AzureMachine:
    """The managed identity of an Azure machine, as ``host/apps/shop``, for ``authn-cloud/<service_id>``.

    ``client_id`` names a user-assigned identity; ``resource`` is the audience of its tokens. ``metadata_url`` goes before
    the environment.
    """

    service_id: str
    host: str
    client_id: str | None = None
    resource: str = RESOURCE
    metadata_url: str | None = None

    def on(self, requester: Requester, url: str) -> Evidence:  # noqa: ARG002 (the others need it)
        """Return the proof for the service at ``url``, asked for by ``requester``."""
        surroundings = environment() if self.metadata_url is None else {}
        base_url = self.metadata_url or LINK_LOCAL
        source = Metadata(requester, surroundings, resource=self.resource, client_id=self.client_id, base_url=base_url)
        return CloudIdentity(self.service_id, self.host, source)


@attrs.frozen
class GoogleWorkload:
    """The service account that Google Cloud gives, as ``host/google/billing``, for ``authn-gcp``.

    ``prefix`` begins the audience: ``svc``, or ``conjur`` for a server that speaks that dialect.
    """

    host: str
    prefix: str = "svc"
    metadata_url: str | None = None

    def on(self, requester: Requester, url: str) -> Evidence:  # noqa: ARG002 (the others need it)
        """Return the proof for the service at ``url``, asked for by ``requester``."""
        source = GoogleMetadata(PlatformService(requester), environment(), base_url=self.metadata_url)
        return GoogleIdentity(self.host, source, self.prefix)


@attrs.frozen
class AwsWorkload:
    """The role that AWS gives, as ``host/aws/123456789012/billing``, for ``authn-iam/<service_id>``.

    ``server_id`` is the authenticator's variable of that name: the host name of the service unless it is given, none where
    it is empty. ``region`` goes before what the environment and the machine say.
    """

    service_id: str
    host: str
    server_id: str | None = None
    region: str | None = None
    metadata_url: str | None = None

    def on(self, requester: Requester, url: str) -> Evidence:
        """Return the proof for the service at ``url``, asked for by ``requester``."""
        name = urlsplit(url).hostname if self.server_id is None else self.server_id
        service = PlatformService(requester)
        source = AwsCredentials(service, environment(), region=self.region, base_url=self.metadata_url)
        return AwsRole(self.service_id, self.host, source, name or None)


#: The largest answer of a platform, in bytes.
PLATFORM_LIMIT: Final = 256 * 1024

Proof = Evidence | AzureMachine | GoogleWorkload | AwsWorkload


def make_evidence(evidence: Proof, elsewhere: Callable[[], Requester], url: str) -> Evidence:
    """Return a proof of identity as the client's logic takes it.

    Requests to platforms go by what ``elsewhere`` makes: with the system's authorities, and nothing of the service's own.
    """
    return evidence.on(elsewhere(), url) if isinstance(evidence, AzureMachine | GoogleWorkload | AwsWorkload) else evidence
