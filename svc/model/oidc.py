"""Values of logins with OpenID Connect: metadata of providers, codes, and the logins offered to people."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import attrs

from svc.model.authentication import LoginRequest
from svc.model.errors import Refusal

#: The errors of a provider that concern the provider alone: the same request may succeed later (RFC 6749 4.1.2.1).
PROVIDER_ERRORS: Final = frozenset({"server_error", "temporarily_unavailable"})


@attrs.frozen(cache_hash=True)
class OidcIssuer:
    """A provider: ``uri`` is its issuer identifier; ``ca_cert`` is as in ``KeySource``."""

    uri: str
    ca_cert: str | None = attrs.field(default=None, repr=False)


@attrs.frozen
class OidcMetadata:
    """The endpoints in a provider's discovery document; all addresses have been checked for their form.

    ``posts_secret``: a client proves itself in the body of a request, since the provider takes no HTTP Basic.
    ``names_issuer``: the answer to the browser has ``iss`` (RFC 9207). ``device_endpoint`` is that of RFC 8628, if any.
    ``declared_issuer`` is the issuer in the document, where it differs from the requested address in any character.
    """

    authorization_endpoint: str
    token_endpoint: str
    posts_secret: bool = False
    names_issuer: bool = False
    device_endpoint: str | None = None
    declared_issuer: str | None = None


@attrs.frozen
class OidcClient:
    """The client that this service is at a provider. ``redirect_uri`` is ``None`` where none is sent."""

    issuer: OidcIssuer
    id: str
    secret: str = attrs.field(repr=False)
    scope: str
    redirect_uri: str | None = None


@attrs.frozen
class ClientRefusal:
    """A provider takes no codes of a client: first at a login at ``since``, in seconds since the epoch, and never after."""

    since: float
    why: str


@attrs.frozen(eq=False)
class CodeLogin(LoginRequest):
    """A login with an authorization code, which is the ``evidence``.

    ``redirect_uri`` takes the place of the client's, where a browser was sent there. ``exchanged`` has the id token that the
    code was exchanged for, by the client that did so: a code can be exchanged once.
    """

    nonce: str = attrs.field(kw_only=True, repr=False)
    verifier: str | None = attrs.field(default=None, kw_only=True, repr=False)
    redirect_uri: str | None = attrs.field(default=None, kw_only=True)
    exchanged: dict[OidcClient, bytes] = attrs.field(factory=dict, init=False, repr=False)

    @property
    def throttle_key(self) -> str:
        """The key that failures are counted under: each code has its own."""
        return f"{self.account}:code:{blake2b(self.evidence, digest_size=16).hexdigest()}"


@attrs.frozen(str=False)
class ProviderUnavailable(Refusal):
    """A provider could not be reached, or gave no usable answer. ``why`` is for the log and for operators."""

    why: str
    retry_after: int | None = None


@attrs.frozen(str=False)
class ClientRefused(Refusal):
    """A provider doesn't take this service as its client; raised by ``OidcEndpoints.exchange_code``."""

    why: str


@attrs.frozen(str=False)
class CodeRefused(Refusal):
    """A provider rejects a code; raised by ``OidcEndpoints.exchange_code``. ``replayed``: it was sent there before."""

    why: str
    replayed: bool = False


@attrs.frozen
class OidcSetting:
    """An authenticator that is set up for people to log in at. ``name`` is for people.

    ``client`` is ``None`` where no code is taken; ``takes_tokens``: id tokens for ``client_id`` are.
    """

    service_id: str
    name: str
    issuer: OidcIssuer
    client_id: str
    scope: str
    client: OidcClient | None
    takes_tokens: bool


@attrs.frozen
class OidcOffer(OidcSetting):
    """One whose provider was reachable, with the provider's metadata."""

    metadata: OidcMetadata

    @property
    def declared_issuer(self) -> str:
        """The provider's own text of its issuer, which tokens and its answers to browsers have as ``iss``."""
        return self.metadata.declared_issuer or self.issuer.uri
