"""Values and port of host factories: tokens with which machines make hosts of their own (HF-3, HF-11)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_network
from typing import Final

import attrs
from zope.interface import Interface

from svc.model.events import EventBatch
from svc.model.idempotency import Once
from svc.model.names import RoleName
from svc.model.query_results import OutstandingToken, Sealed, is_within

_NAME: Final = re.compile("sha256:[0-9a-f]{12}")


@attrs.frozen
class FactoryToken:
    """A host factory's token without its text; ``expires_at`` in epoch seconds; no ``networks`` (CIDR) means all."""

    factory: RoleName
    expires_at: float
    networks: tuple[str, ...] = ()

    def admits_address(self, client_ip: str) -> bool:
        """Return whether it may be used from an address; one of the other family is in no network."""
        return not self.networks or is_within(client_ip, map(ip_network, self.networks))


def digest_token(token: str) -> bytes:
    """Return the SHA-256 of a token, by which the store finds it: a thief of the store gets no token."""
    return hashlib.sha256(token.encode("utf-8")).digest()


def name_token(digest: bytes) -> str:
    """Return the name of a token for logs and answers, which mustn't contain it: the start of a hash of 256 random bits."""
    return f"sha256:{digest.hex()[:12]}"


def is_token_name(text: str) -> bool:
    """Return whether a text has the form of a token's name, which no token has."""
    return _NAME.fullmatch(text) is not None


@attrs.frozen
class CreatedHost:
    """The outcome of making a host: whether it is ``new``, and whether it was given the API key, as policy permits."""

    new: bool
    has_key: bool
    #: The host's (see ``Caller``). Not compared: no two stores make the same.
    creation: int = attrs.field(default=0, eq=False)


@attrs.frozen
class ExpiredToken:
    """A token that was removed since it had expired: its name, as ``name_token`` returns it, and its factory."""

    name: str
    factory: RoleName


#: Returns the events of tokens that were removed.
RemovalEvents = Callable[[Sequence[ExpiredToken]], EventBatch | None]


class IHostFactories(Interface):
    """Tokens of host factories, each known by its ``digest_token``, and the hosts that they make. Errors: see ``ports``."""

    async def add_tokens(
        digests: Sequence[bytes], token: FactoryToken, trail: EventBatch | None = None, once: Once[None] | None = None
    ) -> None:
        """Add tokens that are alike.

        :raises NotFound: the factory is missing.
        :raises AnswerKept: ``once`` says that it was done before (``kept_answers``).
        """

    async def read_token(digest: bytes) -> FactoryToken | None:
        """Return the token, expired or not; ``None`` when there is none."""

    async def find_digest(account: str, name: str) -> bytes | None:
        """Return the digest of the account's token that is ``name_token`` so; ``None`` when there is none."""

    async def list_tokens(factory: RoleName, limit: int, offset: int) -> list[OutstandingToken]:
        """Return a factory's tokens, expired or not, those that expire first before others, then by their digests."""

    async def remove_token(digest: bytes, trail: EventBatch | None = None) -> bool:
        """Remove a token, and return whether there was one."""

    async def create_host(
        digest: bytes,
        host: RoleName,
        annotations: Mapping[str, str],
        api_key: Sealed,
        trail: EventBatch | None = None,
        once: Once[CreatedHost] | None = None,
    ) -> CreatedHost:
        """Make a host of the token's factory, or give the one that it has made another API key.

        The factory owns it, and it becomes a member of the factory's layers, both as recorded by no policy. One that is
        there keeps its annotations. Of several that make the same host at once, one makes it.

        :raises NotFound: the token is gone.
        :raises Conflict: the id belongs to another, or did; or it lies beneath a policy, and the factory isn't that policy's
            own (HF-17, HF-19).
        :raises AnswerKept: ``once`` says that it was done before (``kept_answers``).
        """

    async def require_host(factory: RoleName, host: RoleName, creation: int) -> None:
        """Return if a host of the factory is still the one of this creation.

        :raises NotFound: it is gone, or was made again.
        :raises Conflict: the id belongs to another by now.
        """

    async def remove_expired(now: float, recount: RemovalEvents) -> list[ExpiredToken]:
        """Remove some tokens that have expired at ``now``, return them, and write what ``recount`` returns."""

    async def can_find_known_token() -> bool:
        """Look up a token that is always there, and one that never is; return whether both answers were right."""
